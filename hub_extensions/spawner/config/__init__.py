"""Reading our sections of ``jupyterhub_config.py``: their traits, their checks, and the spawner that is chosen."""
