"""Migrations of the gate's tables, in a database of its own or beside others."""
