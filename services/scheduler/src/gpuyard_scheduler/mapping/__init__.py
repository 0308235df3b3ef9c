"""Between payloads, the domain and rows: :mod:`.rows` (database), :mod:`.heard` (what others say), :mod:`.told` (what we say)."""
