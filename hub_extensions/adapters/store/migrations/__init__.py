"""Schema changes, one file a step, in one line (a test fails on two heads)."""
