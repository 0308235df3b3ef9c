"""What api knows, without I/O: rows, the projection's rules, traces, cursors, guesses at what a person meant."""
