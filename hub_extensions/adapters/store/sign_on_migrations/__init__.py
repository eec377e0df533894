"""Migrations of the sign-on tables in the hub's own database."""
