"""A stand-in for Lightning 2."""
