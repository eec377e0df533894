"""``jupyterhub-gpu demo``: a real JupyterHub to try, on this machine alone. ``run.py`` is the way in."""

from __future__ import annotations


class DemoRefused(Exception):
    """The demo does not start, or a part of it; the text is one sentence for the person who typed the command."""
