"""Runs in the hub: adds sign-on sessions to any authenticator, and a sign-out that ends everything."""
