"""The hub's own page around a page of the service, without a hub: made of its templates, styled by its files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

from jinja2 import Environment, FileSystemLoader

from hub_extensions.spawner.pages.spawn_form import TEMPLATES

HUB_FILES = Path(sys.prefix) / "share" / "jupyterhub"
FILES = re.compile(r"/jh/hub/(static/|logo$)")
"""The addresses of the hub's own files."""


def frame(name: str = "ada") -> str:
    """A page of the hub's own for a user, without contents."""
    environment = Environment(loader=FileSystemLoader([TEMPLATES, HUB_FILES / "templates"]), autoescape=True)
    user = SimpleNamespace(name=name, json_escaped_name=name, spawner=SimpleNamespace(options_form=True))
    own = SimpleNamespace(href="/jh/services/gpu/", name="gpu")
    return environment.get_template("gpu_frame.html").render(
        base_url="/jh/hub/", prefix="/jh/", user=user, parsed_scopes={}, services=[own], logout_url="/jh/hub/logout",
        static_url=lambda path, include_version=True: f"/jh/hub/static/{path}",
    )  # fmt: skip


def file_of(url: str) -> Path:
    """Where a file of the hub's own lies that a page asks for."""
    if url.endswith("/hub/logo"):
        return HUB_FILES / "static/images/jupyterhub-80.png"
    return HUB_FILES / "static" / url.split("/static/")[1].partition("?")[0]
