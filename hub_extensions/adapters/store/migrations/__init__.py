"""Migrations of the service's tables, one per file, without branches (a test fails on two heads)."""
