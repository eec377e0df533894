"""The panel in a real JupyterLab and a real browser."""
