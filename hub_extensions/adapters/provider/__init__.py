"""Talks to OpenID Connect providers, and reads and signs tokens."""
