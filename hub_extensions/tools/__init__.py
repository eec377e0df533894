"""The command ``jupyterhub-gpu`` for administrators. ``cli/`` has its options, the other modules do the work."""
