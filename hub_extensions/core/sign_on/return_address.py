"""Where a sign-in leads in the end: a path below the app that was asked for, and nowhere else.

The path comes from a browser, so only what every browser and every proxy reads in the same way is gone back to. Of
anything else the app's front page is shown, which loses a bookmark's place and nothing more.
Not here: what the hub does with an address of its own (``authenticator/openid/login.py``).
"""

from __future__ import annotations

import re

from hub_extensions.core.sign_on.apps import RESERVED, App

LONGEST = 2048
_PLAIN = re.compile(r"/[!-~]*")
"""Printable ASCII: no space, no control sign, no letter that a browser turns into a slash or a dot."""
_ODD = re.compile(r"//|\\|%2f|%5c|%2e|%00|%25|#", re.IGNORECASE)
"""In a path: what one program reads as part of a name, and the next one as a step to somewhere else."""


def front_path(app: App) -> str:
    """The path of the app's front page, with a slash at its end."""
    path = "/" + app.where.partition("://")[2].partition("/")[2]
    return path if path.endswith("/") else f"{path}/"


def origin_of(app: App) -> str:
    """The origin of the app's public address, as a browser writes it: ``https://apps.example.org``."""
    scheme, _, rest = app.where.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}".lower()


def return_path(app: App, wanted: str) -> str:
    """Where to go back to: `wanted`, a path with its query, if it surely lies below the app; else its front page."""
    front = front_path(app)
    if len(wanted) > LONGEST or not _PLAIN.fullmatch(wanted) or "#" in wanted:
        return front
    path, _, query = wanted.partition("?")
    if _ODD.search(path) or not f"{path}/".startswith(front) or "\\" in query:
        return front
    steps = [step.partition(";")[0] for step in path.split("/")]
    if "." in steps or ".." in steps or f"{path}/".startswith(f"{RESERVED}/"):
        return front
    return wanted


def return_address(app: App, wanted: str) -> str:
    """The same as a whole address."""
    return f"{origin_of(app)}{return_path(app, wanted)}"
