"""Sign-on with an OpenID Connect provider: signing in, asking again, and a sign-out that comes from there.

Not here: sessions (``authenticator/sign_on.py``), the provider (``adapters/provider/oidc.py``), and what is decided
(``core/sign_on``).
"""
