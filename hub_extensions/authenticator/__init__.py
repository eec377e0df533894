"""Runs in the hub: adds sign-on sessions (signed-in browsers) to any authenticator, and a sign-out that ends all parts
of a session: cookies, tokens, pages and, if configured, servers.
"""
