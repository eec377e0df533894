"""RUNS in the hub: sign-on sessions for the authenticator that the hub has, and a sign-out that really signs out."""
