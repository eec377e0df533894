"""Configuration texts for real hubs with sign-on sessions, and what a browser asks them; for the tests beside it."""

from __future__ import annotations

from urllib.parse import quote

import requests

from tests.hubs import Hub
from tests.patience import patient

COOKIE = "jupyterhub-sign-on"
CLOCK = """
from datetime import timedelta
from pathlib import Path
class Turned(c.JupyterHub.authenticator_class):
    # the hub's clock is ahead by what stands in a file
    def sign_on_now(self):
        ahead = Path("ahead-seconds")
        return super().sign_on_now() + timedelta(seconds=float(ahead.read_text()) if ahead.exists() else 0)
c.JupyterHub.authenticator_class = Turned
"""

EVERY_SECOND = """
import hub_extensions.authenticator.sign_on as running
running.MINUTE_SECONDS = 1
"""


def sessions(before: str = "", more: str = "", gate: tuple[str, str] | None = None) -> str:
    """Sessions alone, without the GPU service; `before` it stands what an admin writes above.

    `gate`: the address of a gate, and its secret.
    """
    return f"""
{before}
from hub_extensions.core.sign_on.gate_config import GateAddress
from hub_extensions.authenticator.hub_setup import add_sign_on
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.spawner.config.loader import read_section
c.SignOn.enabled = True
gate = {gate!r}
add_sign_on(c, read_section(c, SignOnConfig), [], gate=gate and GateAddress(*gate))
{more}
"""


def home(hub: Hub, browser: requests.Session) -> int:
    """What the hub's home page answers: 200, or 302 to the sign-in."""
    answer = browser.get(f"{hub.url}/hub/home", allow_redirects=False, timeout=patient(20))
    return answer.status_code


def rest(hub: Hub, browser: requests.Session, method: str, path: str) -> requests.Response:
    """A request of the page's own script to ``/hub/api/sso/…``."""
    return browser.request(
        method, f"{hub.url}/hub/api/sso/{path}", headers={"Sec-Fetch-Mode": "same-origin"}, timeout=patient(20)
    )


def ids(hub: Hub, browser: requests.Session, name: str) -> dict[bool, list[str]]:
    """The public ids of a person's sessions, by whether it is this browser's."""
    found = rest(hub, browser, "GET", f"users/{quote(name)}/sessions")
    assert found.ok, found.text
    rows = found.json()["sessions"]
    return {mine: [row["id"] for row in rows if row["this_one"] is mine] for mine in (True, False)}


def copy_of(browser: requests.Session, *left_out: str) -> requests.Session:
    """Another browser with the same cookies, but for some."""
    copy = requests.Session()
    copy.headers["Connection"] = "close"
    for cookie in browser.cookies:
        if cookie.name not in left_out:
            copy.cookies.set_cookie(cookie)
    return copy
