"""What an admin runs in a shell: ``jupyterhub-gpu`` and its commands."""
