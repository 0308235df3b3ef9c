"""When hardware is sick and when it is well again, as pure functions over samples, streaks and open incidents."""
