"""The lab's people at a real Keycloak, and pgAdmin, which is a client of that Keycloak itself beside the hub.

`--keycloak` is the unpacked ``org.keycloak:keycloak-quarkus-dist`` 26.4 after ``kc.sh build --db=dev-mem``, and pgAdmin
is found where `--programs` has a ``pgadmin4`` (PyPI, in an environment of its own).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import requests

from benchmarks.sign_on.keycloak import CLIENT, PASSWORD, Keycloak
from tests.authenticator.openid.provider_hub import KEY, OURS, new_browser
from tests.hubs import Hub
from tests.patience import patient

PGADMIN = "pgadmin"
PEOPLE: Mapping[str, str] = {"ada": "lab", "ben": "ops"}
"""Name -> group."""

_HUB = """
c.JupyterHub.authenticator_class = {ours!r}
c.SingleSignOnOIDCAuthenticator.issuer = {issuer!r}
c.SingleSignOnOIDCAuthenticator.client_id = {client!r}
c.OAuthenticator.allowed_groups = {groups!r}
c.Authenticator.allow_all = False
c.Authenticator.manage_groups = True
c.JupyterHub.load_groups = {{}}
"""
_PGADMIN = """
SERVER_MODE = True
DEFAULT_SERVER, DEFAULT_SERVER_PORT = "127.0.0.1", {port}
DATA_DIR = {data!r}
LOG_FILE = DATA_DIR + "/pgadmin4.log"
SQLITE_PATH = DATA_DIR + "/pgadmin4.db"
SESSION_DB_PATH = DATA_DIR + "/sessions"
STORAGE_DIR = DATA_DIR + "/storage"
PROXY_X_PREFIX_COUNT = 1
UPGRADE_CHECK_ENABLED = False
MASTER_PASSWORD_REQUIRED = False
AUTHENTICATION_SOURCES = ["oauth2"]
OAUTH2_AUTO_CREATE_USER = True
OAUTH2_CONFIG = [{{
    "OAUTH2_NAME": "keycloak", "OAUTH2_DISPLAY_NAME": "Keycloak", "OAUTH2_ICON": "fa-key",
    "OAUTH2_BUTTON_COLOR": "#000", "OAUTH2_CLIENT_ID": {client!r}, "OAUTH2_CLIENT_SECRET": {secret!r},
    "OAUTH2_SERVER_METADATA_URL": {issuer!r} + "/.well-known/openid-configuration",
    "OAUTH2_AUTHORIZATION_URL": {issuer!r} + "/protocol/openid-connect/auth",
    "OAUTH2_TOKEN_URL": {issuer!r} + "/protocol/openid-connect/token",
    "OAUTH2_API_BASE_URL": {issuer!r} + "/protocol/openid-connect/",
    "OAUTH2_USERINFO_ENDPOINT": "userinfo", "OAUTH2_SCOPE": "openid email profile",
    "OAUTH2_USERNAME_CLAIM": "preferred_username",
}}]
"""
SETUP: Mapping[str, str] = {"PGADMIN_SETUP_EMAIL": "setup@example.org", "PGADMIN_SETUP_PASSWORD": PASSWORD}
"""The account of its own that pgAdmin makes at its first start; with the provider alone nobody signs in by it."""


class Provider:
    """A Keycloak with the lab's realm: the hub and pgAdmin are its clients."""

    def __init__(self, keycloak: Keycloak) -> None:
        self.keycloak = keycloak

    def make_realm(self, hub: Hub, origin: str) -> None:
        """Two people of two groups; where each client is sent back to."""
        url = hub.url
        self.keycloak.make_realm(
            f"{url}/hub/oauth_callback", f"{url}/hub/sso/backchannel-logout", f"{url}/hub/login", PEOPLE.values()
        )
        self.keycloak.add_client(PGADMIN, f"{origin}/apps/{PGADMIN}/oauth2/authorize")
        for name, group in PEOPLE.items():
            self.keycloak.add(name, (group,))

    def hub_config(self) -> str:
        """Of a hub whose people sign in here."""
        about = {"issuer": self.keycloak.issuer, "client": CLIENT, "groups": set(PEOPLE.values())}
        return _HUB.format(ours=OURS, **about)

    @property
    def hub_environment(self) -> Mapping[str, str]:
        return {"JUPYTERHUB_CRYPT_KEY": KEY, "JUPYTERHUB_SIGN_ON_CLIENT_SECRET": self.keycloak.client_secret}

    def pgadmin_settings(self, port: int, data: Path) -> str:
        """Its ``config_local.py``."""
        about = {"issuer": self.keycloak.issuer, "client": PGADMIN, "secret": self.keycloak.client_secret}
        return _PGADMIN.format(port=port, data=str(data), **about)

    def sign_in(self, hub: Hub, name: str) -> requests.Session:
        """A browser, and the only form that is filled in."""
        browser = new_browser()
        page = self.keycloak.sign_in(browser, f"{hub.url}/hub/oauth_login?next=/hub/home", name)
        assert page.url == f"{hub.url}/hub/home", page.text
        _over_http(browser)
        return browser

    def open_pgadmin(self, browser: requests.Session, address: str) -> None:
        """The one click on its page: *Login with Keycloak*; Keycloak knows who is there and asks nothing."""
        sent = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Accept": "text/html"}
        page = browser.get(f"{address}login", headers=sent, timeout=patient(60))
        token = re.search(r'"csrfToken":\s*"([^"]+)"', page.text)
        if token is None:  # it was not let through
            return
        form = {"oauth2_button": "keycloak", "csrf_token": token[1]}
        own = {**sent, "Sec-Fetch-Site": "same-origin", "Referer": f"{address}login"}
        browser.post(f"{address}authenticate/login", form, headers=own, timeout=patient(60))


def _over_http(browser: requests.Session) -> None:
    """Keycloak marks its cookies *Secure*; browsers send such to the loopback address over http too, `requests` not."""
    for cookie in browser.cookies:
        cookie.secure = False


@contextmanager
def provider_at(home: Path | None, folder: Path) -> Iterator[Provider | None]:
    """A running one; None where no Keycloak was named."""
    if home is None:
        yield None
        return
    with Keycloak(home, folder / "keycloak").open() as keycloak:
        yield Provider(keycloak)
