"""How a page of the service, or of the gate, is made: a package's templates, everything escaped, and where servers are.

Not here: the pages themselves, and the hub's own templates (JupyterHub makes those).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape


def page_templates(package: str, base_url: str, **known: Any) -> Environment:
    """The templates in `package`. `base_url`: where the hub is, for links. `known`: names that every template has."""
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
