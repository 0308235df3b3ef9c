"""Money as pure functions over integers: milliseconds, micro-units and exact fractions of a card."""
