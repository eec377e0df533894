"""The tests; they mirror ``hub_extensions``."""
