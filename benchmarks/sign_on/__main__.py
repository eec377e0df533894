"""Ten ways in which a sign-on ends, seven things that should end with it: seconds until each is dead.

A real Keycloak, a real hub of the environment's generation with its proxy, a real Jupyter server with an open kernel
WebSocket for each person; first with GenericOAuthenticator as it is, then with ours. `--keycloak` is the unpacked
distribution 26.4 (``org.keycloak:keycloak-quarkus-dist``) after ``kc.sh build --db=dev-mem``.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import jupyterhub
import requests
from rich.console import Console
from rich.table import Table

from benchmarks.sign_on.keycloak import CLIENT, REALM, Keycloak
from tests.authenticator.openid.provider_hub import KEY, OURS, new_browser
from tests.authenticator.test_open_pages import answers
from tests.hubs import Hub
from tests.loop.place import Place
from tests.patience import patient

RECHECK_SECONDS = 10
DRAIN_MINUTES = 0.25
COMMON = """
c.Authenticator.admin_users = set()
c.Authenticator.allow_all = False
c.JupyterHub.load_groups = {{}}
c.OAuthenticator.allowed_groups = {{"thesis"}}
c.Authenticator.manage_groups = True
c.Spawner.args = ["--allow-root"]
c.OAuthenticator.enable_auth_state = True
"""
STOCK = """
c.JupyterHub.authenticator_class = "generic-oauth"
c.GenericOAuthenticator.client_id = {client!r}
c.GenericOAuthenticator.client_secret = {secret!r}
c.GenericOAuthenticator.authorize_url = "{issuer}/protocol/openid-connect/auth"
c.GenericOAuthenticator.token_url = "{issuer}/protocol/openid-connect/token"
c.GenericOAuthenticator.userdata_url = "{issuer}/protocol/openid-connect/userinfo"
c.GenericOAuthenticator.logout_redirect_url = "{issuer}/protocol/openid-connect/logout"
c.GenericOAuthenticator.scope = ["openid", "profile"]
c.GenericOAuthenticator.username_claim = "preferred_username"
c.GenericOAuthenticator.auth_state_groups_key = "oauth_user.groups"
c.Authenticator.refresh_pre_spawn = True
"""
OURS_TOO = """
c.JupyterHub.authenticator_class = {ours!r}
c.SingleSignOnOIDCAuthenticator.issuer = {issuer!r}
c.SingleSignOnOIDCAuthenticator.client_id = {client!r}
c.SignOn.recheck_seconds = {recheck}
c.SignOn.drain_minutes = {drain}
"""
SURFACES = ("hub page", "hub API", "OAuth token", "own token", "server page", "WebSocket", "GPU server")


class Person:
    """Somebody who has signed in, with a running server, its page and an open kernel."""

    def __init__(self, hub: Hub, keycloak: Keycloak, name: str) -> None:
        self.hub, self.keycloak, self.name = hub, keycloak, name
        self.id = keycloak.add(name)
        self.browser = new_browser()
        keycloak.sign_in(self.browser, f"{hub.url}/hub/oauth_login", name)
        self.browser.headers["X-XSRFToken"] = self.browser.cookies.get("_xsrf", path="/hub/") or ""
        made = self.browser.post(
            f"{hub.url}/hub/api/users/{name}/tokens",
            json={"note": "own"},
            headers={"Sec-Fetch-Mode": "same-origin"},
            timeout=patient(20),
        )
        made.raise_for_status()
        self.token = str(made.json()["token"])
        hub.spawn(name, {"offer": "mig-1g.5gb"})
        hub.wait_ready(name, seconds=90)
        self.browser.get(f"{hub.url}/user/{name}/tree", timeout=patient(60)).raise_for_status()

    def ask_server(self, method: str, path: str) -> requests.Response:
        mine = f"/user/{self.name}/"
        xsrf = next((each.value for each in self.browser.cookies if each.name == "_xsrf" and each.path == mine), "")
        return self.browser.request(
            method, f"{self.hub.url}{mine}{path}", headers={"X-XSRFToken": xsrf or ""}, timeout=patient(20),
            allow_redirects=False,
        )  # fmt: skip

    def alive(self) -> dict[str, Callable[[], bool]]:
        """What to ask of each surface but the WebSocket. Nobody else's request goes on meanwhile."""
        hub, name, browser = self.hub, self.name, self.browser
        asked = {"Sec-Fetch-Mode": "same-origin"}
        own = {"Authorization": f"token {self.token}"}

        def oauth_token() -> bool:
            listed = hub.api("GET", f"users/{name}/tokens").json()["api_tokens"]
            return any(str(each.get("oauth_client", "")).startswith("Server at") for each in listed)

        def ok(address: str, **more: object) -> bool:
            return requests.get(address, timeout=patient(20), allow_redirects=False, **more).status_code == 200  # type: ignore[arg-type]

        def by_cookie(path: str) -> bool:
            address = f"{hub.url}/hub/{path}"
            return browser.get(address, headers=asked, allow_redirects=False, timeout=patient(20)).status_code == 200

        return {
            "hub page": lambda: by_cookie("home"),
            "hub API": lambda: by_cookie("api/user"),
            "OAuth token": oauth_token,
            "own token": lambda: ok(f"{hub.url}/hub/api/user", headers=own),
            "server page": lambda: self.ask_server("GET", "api/kernels").status_code == 200,
            "GPU server": lambda: hub.server(name) is not None,
        }


def events(keycloak: Keycloak, hub: Hub) -> dict[str, Callable[[Person], object]]:
    """How a sign-on ends."""

    def own_sign_out(person: Person) -> None:
        keycloak.sign_in(person.browser, f"{hub.url}/hub/logout", person.name)

    def ended_on_our_page(person: Person) -> None:
        address = f"sso/users/{person.name}/sessions?lost_right=true"
        hub.api("DELETE", address, token=admin_token(hub)).raise_for_status()

    users = f"{REALM}/users"
    return {
        "own sign-out": own_sign_out,
        "at the provider": lambda person: keycloak.sign_out_everywhere(person.id),
        "admin ends one session": lambda person: keycloak.api(
            "DELETE", f"{REALM}/sessions/{keycloak.sessions(person.id)[0]}"
        ),
        "admin ends all of a user": lambda person: keycloak.api("POST", f"{users}/{person.id}/logout"),
        "of the realm": lambda person: keycloak.api("POST", f"{REALM}/logout-all"),
        "disabled": lambda person: keycloak.api("PUT", f"{users}/{person.id}", {"enabled": False}),
        "deleted": lambda person: keycloak.api("DELETE", f"{users}/{person.id}"),
        "group taken": lambda person: keycloak.api("DELETE", f"{users}/{person.id}/groups/{keycloak.group()}"),
        "password changed": lambda person: keycloak.api(
            "PUT", f"{users}/{person.id}/reset-password", {"type": "password", "value": "another", "temporary": False}
        ),
        "ended on our page": ended_on_our_page,
    }


def admin_token(hub: Hub) -> str:
    hub.add_users("root-admin")
    hub.api("PATCH", "users/root-admin", {"admin": True})
    return str(hub.api("POST", "users/root-admin/tokens", {"note": "admin"}).json()["token"])


async def measured(person: Person, event: Callable[[Person], object], seconds: float) -> dict[str, float | None]:
    """Surface -> seconds from the event until it was dead; None: it was not within `seconds`."""
    kernel = person.ask_server("POST", "api/kernels").json()["id"]
    url = f"{person.hub.url}/user/{person.name}/api/kernels/{kernel}/channels?session_id=one"
    cookie = requests.Request("GET", url, cookies=person.browser.cookies).prepare().headers["Cookie"]
    from tornado.httpclient import HTTPRequest
    from tornado.websocket import websocket_connect

    socket = await websocket_connect(HTTPRequest(url.replace("http", "ws", 1), headers={"Cookie": cookie}))
    await answers(socket)
    dead: dict[str, float | None] = dict.fromkeys(SURFACES)
    looks = person.alive()
    assert all(look() for look in looks.values()), {name: look() for name, look in looks.items()}
    loop = asyncio.get_running_loop()
    began = time.monotonic()

    async def until_closed() -> None:
        while await socket.read_message() is not None:
            pass
        dead["WebSocket"] = time.monotonic() - began

    closing = asyncio.ensure_future(until_closed())
    await loop.run_in_executor(None, event, person)
    while time.monotonic() - began < seconds and None in dead.values():
        for name, look in looks.items():
            if dead[name] is None and not await loop.run_in_executor(None, look):
                dead[name] = time.monotonic() - began
        await asyncio.sleep(0.2)
    closing.cancel()
    socket.close()
    return dead


@contextmanager
def place(folder: Path, keycloak: Keycloak, ours: bool) -> Iterator[Hub]:
    """A hub with the real service, whose people sign in at Keycloak."""
    text = COMMON.format() + (OURS_TOO if ours else STOCK).format(
        ours=OURS, issuer=keycloak.issuer, client=CLIENT, secret=keycloak.client_secret,
        recheck=RECHECK_SECONDS, drain=DRAIN_MINUTES,
    )  # fmt: skip
    running = Place(folder, layout="lab-a100", config=text, warm=False)
    running.hub._env |= {"JUPYTERHUB_CRYPT_KEY": KEY, "JUPYTERHUB_SIGN_ON_CLIENT_SECRET": keycloak.client_secret}
    with running.open():
        yield running.hub


@click.command()
@click.option("--keycloak", "home", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--seconds", default=40.0, show_default=True, help="How long a surface may live on before it counts.")
@click.option("--only", default="", help="Events whose name has this word.")
@click.option("--without-stock", is_flag=True, help="Ours alone.")
def main(home: Path, seconds: float, only: str, without_stock: bool) -> None:
    """Print a table for each of the two."""
    console = Console(width=150)
    with tempfile.TemporaryDirectory() as temporary, Keycloak(home, Path(temporary) / "keycloak").open() as keycloak:
        for ours in (True,) if without_stock else (False, True):
            with place(Path(temporary) / f"hub-{ours}", keycloak, ours) as hub:
                addresses = (
                    f"{hub.url}/hub/oauth_callback", f"{hub.url}/hub/sso/backchannel-logout", f"{hub.url}/hub/login"
                )  # fmt: skip
                first = without_stock or not ours
                (keycloak.make_realm if first else keycloak.point_client_at)(*addresses)
                title = "ours" if ours else "GenericOAuthenticator"
                table = Table("seconds until dead", *SURFACES, title=f"JupyterHub {jupyterhub.__version__}, {title}")
                for number, (name, event) in enumerate(events(keycloak, hub).items()):
                    if only not in name or (not ours and name == "ended on our page"):
                        continue
                    person = Person(hub, keycloak, f"p{number}{'o' if ours else 's'}")
                    dead = asyncio.run(measured(person, event, seconds))
                    shown = ("lives on" if at is None else f"{at:.1f}" for at in dead.values())
                    table.add_row(name, *shown)
                    hub.stop_server(person.name)
                console.print(table)


if __name__ == "__main__":
    main()
