"""``jupyterhub-gpu demo``: runs a real JupyterHub on this machine's loopback address. It starts in ``run.py``."""

from __future__ import annotations


class DemoRefused(Exception):
    """The demo, or a part of it, cannot start. The text is one sentence for the person who ran the command."""
