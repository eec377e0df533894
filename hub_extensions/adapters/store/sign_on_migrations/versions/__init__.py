"""The migrations of the sign-on tables, one per file."""
