"""Use records and notices."""
