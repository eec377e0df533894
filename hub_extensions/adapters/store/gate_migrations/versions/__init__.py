"""The migrations of the gate's tables, one per file."""
