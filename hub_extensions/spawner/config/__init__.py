"""Reads and checks this product's sections of ``jupyterhub_config.py`` and finds the spawner that they are for."""
