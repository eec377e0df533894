"""Secrets of sign-on, looked for where somebody could read one: logs, database, pages, metrics, command lines.

A process's own environment has some of them by purpose: who can read that is its account.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import requests

from hub_extensions.core.sign_on.server_key import VARIABLE, server_key
from tests.hubs import Hub
from tests.patience import patient

PAGES = ("hub/home", "hub/sso/sessions", "hub/sso/admin", "hub/token", "hub/api/sso/events", "services/gpu/")
THE_HUBS_OWN = "jupyterhub-session-id"
"""The hub itself keeps it beside its tokens, and logs it with a new XSRF cookie; alone it opens nothing."""
NO_SECRETS = ("_xsrf",)


def shown(hub: Hub, secrets: Iterable[str], *browsers: requests.Session, more: Iterable[Path] = ()) -> list[str]:
    """Which secret stands where, shortened.

    Args:
        secrets: beside the browsers' cookies, the hub's cookie secret and the keys of servers. more: other files.
    """
    cookies = [each for browser in browsers for each in browser.cookies if each.name not in NO_SECRETS and each.value]
    known = {*secrets, *(each.value or "" for each in cookies), *of_the_hub(hub)}
    ids = {each.value or "" for each in cookies if each.name == THE_HUBS_OWN}
    found = []
    for place, text in readable(hub, browsers, more).items():
        wanted = known - ids if place in ("database", "log") else known
        found += [f"{secret[:12]} in {place}" for secret in wanted if secret in text]
    return found


def of_the_hub(hub: Hub) -> set[str]:
    """Its cookie secret, what it has made of it for servers, and what servers have in their environment."""
    secret = (hub.folder / "jupyterhub_cookie_secret").read_text().strip()
    keys = {server_key(bytes.fromhex(secret), id, name) for id in range(1, 6) for name in ("", "desk")}
    for pid in hub.processes():
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0"):
                name, _, value = line.partition("=")
                if name in (VARIABLE, "JUPYTERHUB_API_TOKEN", "JUPYTERHUB_CRYPT_KEY") and value not in ("", hub.token):
                    keys.add(value)
    return {secret, *keys}


def readable(hub: Hub, browsers: Iterable[requests.Session], more: Iterable[Path]) -> dict[str, str]:
    """Text by where it stands."""
    found = {"log": hub.log(), "database": contents(hub.folder.glob("jupyterhub.sqlite*"))}
    headers = {"Authorization": f"token {hub.token}"}
    found["metrics"] = requests.get(f"{hub.url}/hub/metrics", headers=headers, timeout=patient(20)).text
    found["command lines"] = contents(Path(f"/proc/{pid}/cmdline") for pid in hub.processes())
    found["other files"] = contents(more)
    for number, browser in enumerate(browsers):
        for page in PAGES:
            answer = browser.get(f"{hub.url}/{page}", allow_redirects=False, timeout=patient(20))
            found[f"{page} of browser {number}"] = answer.text
    kept = [text for place, text in found.items() if place == "metrics" or "of browser" in place]
    (hub.folder / "pages").write_text("\n".join(kept))  # for the secrets of the whole run, tests/secret_search.py
    return found


def contents(files: Iterable[Path]) -> str:
    texts = []
    for file in files:
        with suppress(OSError):
            texts.append(file.read_bytes().decode("latin-1"))
    return "\n".join(texts)
