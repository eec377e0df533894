"""A Keycloak of one's own on the loopback address: a realm, a client, people; and what its admins do to them."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import requests

from tests.hubs import free_port, until
from tests.patience import patient

REALM = "uni"
CLIENT = "jupyterhub"
PASSWORD = "a password of the test"
GROUPS = ("thesis", "students")


class Keycloak:
    """`home`: the unpacked distribution, built once (``kc.sh build --db=dev-mem``: data in memory)."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home, self.folder, self.port = home, folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.issuer = f"{self.url}/realms/{REALM}"
        self.admin_password, self.client_secret = secrets.token_hex(16), secrets.token_hex(16)
        self._admin_token, self._token_until = "", 0.0

    @contextmanager
    def open(self) -> Iterator[Keycloak]:
        """Run it; `folder` has its log."""
        command = [
            str(self.home / "bin/kc.sh"), "start", "--optimized", "--http-enabled=true", "--hostname-strict=false",
            "--http-host=127.0.0.1", f"--http-port={self.port}", "--cache=local",
        ]  # fmt: skip
        env = os.environ | {
            "KC_BOOTSTRAP_ADMIN_USERNAME": "root",
            "KC_BOOTSTRAP_ADMIN_PASSWORD": self.admin_password,
            "JAVA_OPTS_APPEND": "-Xmx512m",
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "keycloak.log").open("wb") as log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            until(self._up, 600, "Keycloak answers")
            yield self
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # kc.sh and its Java
            process.wait(60)

    def _up(self) -> bool:
        try:
            return requests.get(f"{self.url}/realms/master", timeout=patient(5)).ok
        except requests.RequestException:
            return False

    # -------------------------------------------------------------- what admins do

    def api(self, method: str, path: str, body: object = None) -> requests.Response:
        """The admin REST API."""
        answer = requests.request(
            method,
            f"{self.url}/admin/realms/{path}",
            json=body,
            headers={"Authorization": f"Bearer {self._token()}"},
            timeout=patient(20),
        )
        answer.raise_for_status()
        return answer

    def _token(self) -> str:
        """It lives for 60 s."""
        if time.monotonic() > self._token_until:
            form = {
                "grant_type": "password", "client_id": "admin-cli", "username": "root", "password": self.admin_password
            }  # fmt: skip
            address = f"{self.url}/realms/master/protocol/openid-connect/token"
            self._admin_token = requests.post(address, data=form, timeout=patient(20)).json()["access_token"]
            self._token_until = time.monotonic() + 30
        return self._admin_token

    def make_realm(self, callback: str, logout: str, home: str, groups: Iterable[str] = GROUPS) -> None:
        """A realm with one client, whose groups stand in the claim ``groups``; nothing is left of the one before."""
        if requests.get(self.issuer, timeout=patient(20)).ok:
            self.api("DELETE", REALM)
        self.api("POST", "", {"realm": REALM, "enabled": True, "sslRequired": "none"})
        mapper = {
            "name": "groups",
            "protocol": "openid-connect",
            "protocolMapper": "oidc-group-membership-mapper",
            "config": {
                "claim.name": "groups", "full.path": "false", "id.token.claim": "true", "access.token.claim": "true",
                "userinfo.token.claim": "true",
            },
        }  # fmt: skip
        client = {
            "clientId": CLIENT,
            "secret": self.client_secret,
            "redirectUris": [callback],
            "directAccessGrantsEnabled": False,
            "attributes": {
                "backchannel.logout.url": logout,
                "backchannel.logout.session.required": "true",
                "post.logout.redirect.uris": home,
            },
            "protocolMappers": [mapper],
        }
        self.api("POST", f"{REALM}/clients", client)
        for name in groups:
            self.api("POST", f"{REALM}/groups", {"name": name})

    def add_client(self, name: str, callback: str) -> None:
        """One more client, with the same secret."""
        client = {"clientId": name, "secret": self.client_secret, "redirectUris": [callback]}
        self.api("POST", f"{REALM}/clients", client)

    def add(self, name: str, groups: Sequence[str] = GROUPS) -> str:
        """A person in these groups; the id. Who is in none has no claim of groups at all, and then they are unknown."""
        person = {
            "username": name,
            "enabled": True,
            "email": f"{name}@example.org",
            "emailVerified": True,
            "firstName": name,
            "lastName": name,
            "groups": list(groups),
            "credentials": [{"type": "password", "value": PASSWORD, "temporary": False}],
        }
        location = self.api("POST", f"{REALM}/users", person).headers["Location"]
        return location.rpartition("/")[2]

    def sessions(self, person: str) -> list[str]:
        return [each["id"] for each in self.api("GET", f"{REALM}/users/{person}/sessions").json()]

    def group(self) -> str:
        (found,) = self.api("GET", f"{REALM}/groups?search=thesis").json()
        return str(found["id"])

    # -------------------------------------------------------------- what people do

    def sign_in(self, browser: requests.Session, begin: str, name: str) -> requests.Response:
        """From the hub's address through the provider's own page and back."""
        page = browser.get(begin, timeout=patient(30))
        if "kc-form-login" not in page.text:
            return page
        for cookie in browser.cookies:
            cookie.secure = False  # marked so over http too; browsers take them on the loopback address
        action = unescape(re.findall(r'<form[^>]*id="kc-form-login"[^>]*action="([^"]+)"', page.text)[0])
        form: dict[str, Any] = {"username": name, "password": PASSWORD}
        return browser.post(action, data=form, timeout=patient(30))

    def sign_out_everywhere(self, person: str) -> None:
        """As the person does in the account page, *Sign out all devices*; by an admin's hand here, session by session,
        for the page's script wants a browser."""
        for session in self.sessions(person):
            self.api("DELETE", f"{REALM}/sessions/{session}")
