"""A real hub whose people sign in at the tests' own provider, and a browser without a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from hub_extensions.core.sign_on.failures import FAILURES
from tests.authenticator.canaries import shown
from tests.fakes.oidc_provider import CLIENT, SECRET, OidcProvider
from tests.hubs import Hub
from tests.patience import patient

OURS = "hub_extensions.authenticator.openid.authenticator.SingleSignOnOIDCAuthenticator"
KEY = "0123456789abcdef" * 4
CLOCKS = """
import time
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from hub_extensions.authenticator.mixin import SignOnMixin
from hub_extensions.authenticator.openid import authenticator, login_state, recheck
def ahead():
    file = Path("ahead-seconds")
    return float(file.read_text()) if file.exists() else 0.0
turned = SimpleNamespace(time=lambda: time.time() + ahead(), monotonic=lambda: time.monotonic() + ahead())
login_state.time = recheck.time = turned
authenticator.Provider = partial(authenticator.Provider, clock=turned.monotonic)
SignOnMixin.sign_on_now = lambda _: datetime.now(timezone.utc) + timedelta(seconds=ahead())
"""
"""In the `more` of a hub: its clocks, as far as sign-on reads them, are ahead by what `turn` says."""


def provider_hub(folder: Path, provider: OidcProvider, more: str = "", **settings: object) -> Hub:
    """A hub with sessions and our authenticator; everybody is let in unless `more` says otherwise."""
    config = f"""
from hub_extensions.authenticator.hub_setup import add_sign_on
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.spawner.config.loader import read_section
c.JupyterHub.authenticator_class = {OURS!r}
c.SingleSignOnOIDCAuthenticator.issuer = {provider.issuer!r}
c.SingleSignOnOIDCAuthenticator.client_id = {CLIENT!r}
c.Authenticator.admin_users = set()
c.Authenticator.allow_all = False
c.JupyterHub.load_groups = {{}}
{more}
add_sign_on(c, read_section(c, SignOnConfig), [])
"""
    env = {"JUPYTERHUB_CRYPT_KEY": KEY, "JUPYTERHUB_SIGN_ON_CLIENT_SECRET": SECRET}
    hub = Hub(folder, config, env=env)
    provider.backchannel = f"{hub.url}/hub/sso/backchannel-logout"
    return hub


def new_browser() -> requests.Session:
    browser = requests.Session()
    browser.headers["Connection"] = "close"
    return browser


def sign_in(hub: Hub, browser: requests.Session | None = None, path: str = "/hub/home") -> requests.Session:
    """As whoever the provider signs in now."""
    browser = browser or new_browser()
    answer = browser.get(f"{hub.url}/hub/oauth_login", params={"next": path}, timeout=patient(20))
    assert answer.ok, answer.text
    assert urlsplit(answer.url).path == path, answer.url
    browser.headers["X-XSRFToken"] = browser.cookies.get("_xsrf", path="/hub/") or ""
    return browser


def turn(hub: Hub, seconds: float) -> float:
    """The clocks of a hub with `CLOCKS` are ahead by so much from now on."""
    new = hub.folder / "ahead-seconds.new"
    new.write_text(str(seconds))
    new.replace(hub.folder / "ahead-seconds")
    return seconds


def failure_shown(hub: Hub, page: requests.Response) -> str:
    """The key of a failure's page, which its number has in the hub's log. The page leads nowhere by itself."""
    assert page.status_code >= 400, page.headers
    assert not {"Location", "Refresh"} & set(page.headers)
    assert 'http-equiv="refresh"' not in page.text.lower()
    number = re.search(r"Number for an administrator:\s*<code>([0-9a-f]{8})</code>", page.text)
    assert number, page.text[-1500:]
    (code,) = re.findall(rf"sign-on refused \({number[1]}\) (\S+): \S", hub.log())
    return code if code in FAILURES else "token"


def answer_of(hub: Hub, browser: requests.Session) -> str:
    """The address with which the provider sends this browser back, not yet gone to."""
    begin = browser.get(f"{hub.url}/hub/oauth_login", allow_redirects=False, timeout=patient(20))
    back = browser.get(begin.headers["Location"], allow_redirects=False, timeout=patient(20))
    return back.headers["Location"]


def metric(hub: Hub, name: str, left_out: str = "") -> float:
    """The sum of a metric over its labels, without those that have `left_out`."""
    headers = {"Authorization": f"token {hub.token}"}
    text = requests.get(f"{hub.url}/hub/metrics", headers=headers, timeout=patient(20)).text
    found = re.findall(rf"^{name}(\{{.*\}})? (\S+)$", text, re.MULTILINE)
    return sum(float(value) for labels, value in found if not left_out or left_out not in labels)


def events(hub: Hub) -> list[dict[str, Any]]:
    """The audit log's lines."""
    return [json.loads(line) for line in re.findall(r"sign-on (\{.*\})$", hub.log(), re.MULTILINE)]


def secrets_shown(hub: Hub, provider: OidcProvider, *browsers: requests.Session) -> list[str]:
    """Secrets of either side that stand where somebody could read them."""
    return shown(hub, {*provider.given, SECRET, *provider.secrets}, *browsers)


def go(browser: requests.Session, address: str) -> requests.Response:
    return browser.get(address, allow_redirects=False, timeout=patient(30))
