"""Sign-on with an OpenID Connect provider: sign-in, periodic re-checks, and sign-out by the provider."""
