"""Who may be signed in: what a provider's tokens have to say, who somebody is, and which sessions last.

Values in, values out. Not here: the provider (``adapters/oidc.py``), and the hub (``authenticator/``).
"""
