"""A sign-in, a re-check and a sign-out with Canaille, a provider that insists on the nonce; ours, or oauthenticator's.

Canaille lives in a Python of its own (`--canaille`; README). It is served with its data in memory and as it is shipped
otherwise: ``REQUIRE_NONCE`` is True. It sends no logout tokens, so a sign-out there is found out by asking again.
"""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urljoin

import click
import jupyterhub
import requests

from tests.authenticator.openid.provider_hub import events, new_browser, provider_hub
from tests.authenticator.signed_hub import home
from tests.fakes.oidc_provider import CLIENT, SECRET
from tests.hubs import Hub, free_port, until
from tests.patience import patient

PASSWORD = "a password of the benchmark"
HOST = "127.0.0.2"
SERVE = """
import json, sys
from importlib.metadata import version
from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from joserfc.jwk import RSAKey

facts = json.loads(sys.argv[1])
key = {**RSAKey.generate_key(2048, auto_kid=True).as_dict(private=True), "alg": "RS256", "use": "sig"}
app = create_app({
    "SECRET_KEY": facts["password"],
    "SERVER_NAME": f"{facts['host']}:{facts['port']}",
    "PREFERRED_URL_SCHEME": "http",
    "CANAILLE": {"DATABASE": "memory", "HTMX": False, "JAVASCRIPT": False},
    "CANAILLE_OIDC": {"ACTIVE_JWKS": [key], "TRUSTED_DOMAINS": [facts["hub_host"]]},
})
with app.app_context(), Backend.instance.session():
    ada = models.User(user_name="ada", display_name="ada", formatted_name="Ada", family_name="L",
                      emails=["ada@site.example"], password=facts["password"])
    Backend.instance.save(ada)
    Backend.instance.save(models.Group(display_name="thesis", members=[ada]))
    client = models.Client(**facts["client"])
    Backend.instance.save(client)
    client.audience = [client]
    Backend.instance.save(client)
print("Canaille", version("canaille"), flush=True)
app.run(facts["host"], facts["port"], threaded=True)
"""
OURS = """
c.OAuthenticator.allowed_groups = {"thesis"}
c.OAuthenticator.scope = ["openid", "profile", "groups"]
c.SignOn.recheck_seconds = 2
"""
STOCK = """
c.JupyterHub.authenticator_class = "generic-oauth"
c.Authenticator.admin_users = set()
c.Authenticator.allow_all = True
c.GenericOAuthenticator.client_id = {client!r}
c.GenericOAuthenticator.client_secret = {secret!r}
c.GenericOAuthenticator.authorize_url = "{issuer}/oauth/authorize"
c.GenericOAuthenticator.token_url = "{issuer}/oauth/token"
c.GenericOAuthenticator.userdata_url = "{issuer}/oauth/userinfo"
c.GenericOAuthenticator.username_claim = "preferred_username"
c.GenericOAuthenticator.scope = ["openid", "profile", "groups"]
"""


@contextmanager
def canaille(python: Path, folder: Path, port: int, hub: Hub) -> Iterator[None]:
    """It runs while the block does."""
    client = {
        "client_id": CLIENT, "client_secret": SECRET, "client_name": "hub", "client_uri": hub.url,
        "redirect_uris": [f"{hub.url}/hub/oauth_callback"], "post_logout_redirect_uris": [f"{hub.url}/hub/login"],
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
        "scope": ["openid", "profile", "groups"], "token_endpoint_auth_method": "client_secret_basic",
        "id_token_signed_response_alg": "RS256",
    }  # fmt: skip
    facts = {"host": HOST, "port": port, "hub_host": "127.0.0.1", "password": PASSWORD, "client": client}
    log = folder / "canaille.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(python), "-c", SERVE, json.dumps(facts)], cwd=folder, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        document = f"http://{HOST}:{port}/.well-known/openid-configuration"
        until(lambda: answers(process, document, log), 120, "Canaille answers")
        print(next(line for line in log.read_text().splitlines() if line.startswith("Canaille ")))
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def answers(process: subprocess.Popen[bytes], address: str, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        return requests.get(address, timeout=patient(5)).ok
    except requests.RequestException:
        return False


def sign_in(hub: Hub, browser: requests.Session) -> requests.Response:
    """Through Canaille's pages, each of which has one form."""
    page = browser.get(f"{hub.url}/hub/oauth_login", params={"next": "/hub/home"}, timeout=patient(60))
    for _ in range(4):
        form = re.search(r"<form[^>]*method=\"post\".*?</form>", page.text, re.DOTALL | re.IGNORECASE)
        if page.url.startswith(hub.url) or form is None:
            break
        fields = {name: unescape(value) for name, value in inputs(form[0])}
        fields |= {"login": "ada"} if "login" in fields else {}
        fields |= {"password": PASSWORD} if "password" in fields else {}
        action = re.search(r'<form[^>]*action="([^"]+)"', form[0])
        page = browser.post(urljoin(page.url, action[1] if action else ""), fields, timeout=patient(60))
    return page


def inputs(form: str) -> Iterator[tuple[str, str]]:
    """Name and value of each input of a form."""
    for tag in re.findall(r"<(?:input|button)\b[^>]*>", form, re.DOTALL):
        name, value = (re.search(rf'\b{key}="([^"]*)"', tag) for key in ("name", "value"))
        if name:
            yield name[1], value[1] if value else ""


def stock(folder: Path, issuer: str) -> Hub:
    """A hub with oauthenticator's own."""
    return Hub(folder, STOCK.format(client=CLIENT, secret=SECRET, issuer=issuer))


def ours(folder: Path, issuer: str) -> Hub:
    """A hub with single-sign-on."""
    provider: Any = SimpleNamespace(issuer=issuer, backchannel="")
    return provider_hub(folder, provider, OURS)


def show_stock(hub: Hub) -> None:
    """What comes of a sign-in."""
    page = sign_in(hub, new_browser())
    words = " ".join(re.sub(r"<[^>]+>", " ", page.text).split())
    print(f"oauthenticator: {page.status_code} at {page.url.partition('?')[0]}: …{words[-160:]}")


def show_ours(hub: Hub, issuer: str) -> None:
    """Signed in, asked about again, signed out there and here."""
    browser, other = new_browser(), new_browser()
    for each in (browser, other):
        page = sign_in(hub, each)
        assert page.url == f"{hub.url}/hub/home", page.text
    groups = hub.api("GET", "users/ada").json()["groups"]
    print(f"signed in as ada, groups {groups}")
    until(lambda: rechecks(hub) >= 4, 60, "both sessions are asked about twice")
    print(f"asked about again {rechecks(hub):g} times: {home(hub, browser)}, {home(hub, other)}")
    left = browser.get(f"{hub.url}/hub/logout", timeout=patient(60))
    print(f"signed out here: led to {left.url.partition('?')[0]}; {home(hub, browser)}, {home(hub, other)}")
    again = browser.get(f"{hub.url}/hub/oauth_login", timeout=patient(60))
    print(f"signed out there too, so it asks who it is: {again.url.startswith(f'{issuer}/login')}")
    print(f"audit log: {', '.join(sorted({each['kind'] for each in events(hub)}))}")


def rechecks(hub: Hub) -> float:
    from tests.authenticator.openid.provider_hub import metric

    return metric(hub, "jupyterhub_sign_on_rechecks_total", "away")


@click.command()
@click.option("--canaille", "python", type=click.Path(path_type=Path, exists=True), required=True, help="Its Python.")
@click.option("--stock", "is_stock", is_flag=True, help="oauthenticator's own instead of ours.")
def main(python: Path, is_stock: bool) -> None:
    """Print what happened."""
    port = free_port(HOST)
    issuer = f"http://{HOST}:{port}"
    print(f"JupyterHub {jupyterhub.__version__}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / secrets.token_hex(4)
        folder.mkdir()
        hub = (stock if is_stock else ours)(folder / "hub", issuer)
        with canaille(python.absolute(), folder, port, hub), hub:
            if is_stock:
                show_stock(hub)
            else:
                show_ours(hub, issuer)


if __name__ == "__main__":
    main()
