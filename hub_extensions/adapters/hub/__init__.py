"""Talks to JupyterHub."""
