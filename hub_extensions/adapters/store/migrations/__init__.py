"""Migrations of the service's tables, one per file, in one line (a test fails on two heads)."""
