"""The steps of the sign-on tables, which are in the hub's own database."""
