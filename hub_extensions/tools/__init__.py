"""The command ``jupyterhub-gpu`` for administrators."""
