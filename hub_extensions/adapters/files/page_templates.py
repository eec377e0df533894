"""The template environment for the pages of the service and of the gate."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape


def page_templates(package: str, base_url: str, **known: Any) -> Environment:
    """Return a Jinja environment with a package's templates, with autoescape and functions for links to servers.

    Args:
        package: name of the Python package that has the folder ``templates``.
        base_url: the hub's address, for links.
        known: names that every template can use.
    """
    environment = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def server_url(user: str, server: str) -> str:
        path = f"{base_url}user/{quote(user, safe='')}/"
        return f"{path}{quote(server, safe='')}/" if server else path

    def waiting_url(user: str, server: str) -> str:
        path = f"{base_url}hub/spawn-pending/{quote(user, safe='')}"
        return f"{path}/{quote(server, safe='')}" if server else path

    environment.globals.update(server_url=server_url, waiting_url=waiting_url, **known)
    return environment
