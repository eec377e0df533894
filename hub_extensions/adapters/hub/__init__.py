"""JupyterHub: its REST API, its OAuth, its configuration and its log."""
