"""The address to which the browser returns after a sign-in at the gate: always a page of the app.

The path comes from the browser, so only a path that every browser and proxy reads in the same way is accepted. Any
other is replaced with the app's front page.
"""

from __future__ import annotations

import re

from hub_extensions.core.sign_on.apps import RESERVED, App

MAX_LENGTH = 2048
_PLAIN = re.compile(r"/[!-~]*")
"""Printable ASCII: no space, no control character, and no letter that browsers convert to a slash or a dot."""
_ODD = re.compile(r"//|\\|%2f|%5c|%2e|%00|%25|#", re.IGNORECASE)
"""Parts of a path that programs read differently: as characters of a name, or as a step into another folder."""


def front_path(app: App) -> str:
    """Return the path of the app's front page, with a trailing slash."""
    path = "/" + app.where.partition("://")[2].partition("/")[2]
    return path if path.endswith("/") else f"{path}/"


def origin_of(app: App) -> str:
    """Return the origin of the app's public address in the browser's form: ``https://apps.example.org``."""
    scheme, _, rest = app.where.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}".lower()


def return_path(app: App, wanted: str) -> str:
    """Return `wanted` if it certainly lies below the app; otherwise the path of the app's front page.

    Args:
        wanted: path with its query, as the browser sent it.
    """
    front = front_path(app)
    if len(wanted) > MAX_LENGTH or not _PLAIN.fullmatch(wanted) or "#" in wanted:
        return front
    path, _, query = wanted.partition("?")
    if _ODD.search(path) or not f"{path}/".startswith(front) or "\\" in query:
        return front
    steps = [step.partition(";")[0] for step in path.split("/")]
    if "." in steps or ".." in steps or f"{path}/".startswith(f"{RESERVED}/"):
        return front
    return wanted


def return_address(app: App, wanted: str) -> str:
    """Return the complete URL to which the browser returns: `wanted`, or the app's front page as in `return_path`."""
    return f"{origin_of(app)}{return_path(app, wanted)}"
