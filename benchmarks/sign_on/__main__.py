"""Ten ways in which a sign-on ends, seven things that should end with it: seconds until each is over.

A real Keycloak, a real hub of the environment's generation with its proxy and GPU service, and for each event a person
with a real Jupyter server on a GPU and an open WebSocket of a kernel. One hub after the other: GenericOAuthenticator,
ours where servers do not have our extension, and ours. The stock hub asks its provider again as often as ours. Cookies
are looked at as a copy has them, so that a browser that forgets its own is no end.
`--keycloak` is the unpacked ``org.keycloak:keycloak-quarkus-dist`` 26.4 after ``kc.sh build --db=dev-mem``.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import click

from benchmarks.sign_on.keycloak import CLIENT, REALM, Keycloak
from benchmarks.sign_on.person import SURFACES, Person, signed_in
from tests.authenticator.openid.provider_hub import KEY, OURS
from tests.loop.place import Place
from tests.patience import patient

RECHECK_SECONDS = 10
DRAIN_MINUTES = 0.25
APART_SECONDS = 8.0
"""So long one event has the machine to itself, but for what is asked of those before it."""
OFTEN_SECONDS, SELDOM_SECONDS = 0.2, 1.0
OFTEN_FOR_SECONDS = 16.0
ON_OUR_PAGE, OF_THE_REALM = "ended on our page", "of the realm"
LAYOUT = (
    """
title: "Two A100-40GB with seven small parts each"
gpus:
"""
    + 2
    * """
  - product: NVIDIA A100-PCIE-40GB
    memory_gib: 40
    sm: 108
    mig: [{profile: 19, start: 0}, {profile: 19, start: 1}, {profile: 19, start: 2}, {profile: 19, start: 3},
          {profile: 19, start: 4}, {profile: 19, start: 5}, {profile: 19, start: 6}]
"""
)
COMMON = """
c.Authenticator.allow_all = False
c.JupyterHub.load_groups = {}
c.OAuthenticator.allowed_groups = {"thesis"}
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
c.Authenticator.auth_refresh_age = {recheck}
"""
OURS_TOO = """
c.JupyterHub.authenticator_class = {ours!r}
c.SingleSignOnOIDCAuthenticator.issuer = {issuer!r}
c.SingleSignOnOIDCAuthenticator.client_id = {client!r}
c.SignOn.recheck_seconds = {recheck}
c.SignOn.drain_minutes = {drain}
"""
WITHOUT = """
c.Spawner.args.append("--ServerApp.jpserver_extensions={{'hub_extensions.server_extension': False}}")
"""
KINDS = {
    "stock": ("GenericOAuthenticator", STOCK),
    "without": ("ours, servers without our extension", OURS_TOO + WITHOUT),
    "ours": ("ours", OURS_TOO),
}
Figures = Mapping[str, float | None]


def events(keycloak: Keycloak, place: Place) -> dict[str, Callable[[Person], object]]:
    """How a sign-on ends. The one that ends everybody's comes last."""
    users, hub = f"{REALM}/users", place.hub
    password = {"type": "password", "value": "another", "temporary": False}

    def own_sign_out(person: Person) -> None:
        keycloak.sign_in(person.browser, f"{hub.url}/hub/logout", person.name)

    def ends_one(person: Person) -> None:
        keycloak.api("DELETE", f"{REALM}/sessions/{keycloak.sessions(person.id)[0]}")

    def on_our_page(person: Person) -> None:
        keycloak.add("root-admin")
        admin = signed_in(hub, keycloak, "root-admin")
        form = {"user": person.name, "access_revoked": "yes", "_xsrf": admin.headers["X-XSRFToken"]}
        person.begins()
        admin.post(f"{hub.url}/hub/sso/admin", form, timeout=patient(30)).raise_for_status()

    return {
        "own sign-out": own_sign_out,
        "at the provider": lambda person: keycloak.sign_out_everywhere(person.id),
        "admin ends one session": ends_one,
        "admin ends all of a user": lambda person: keycloak.api("POST", f"{users}/{person.id}/logout"),
        "disabled": lambda person: keycloak.api("PUT", f"{users}/{person.id}", {"enabled": False}),
        "deleted": lambda person: keycloak.api("DELETE", f"{users}/{person.id}"),
        "group taken": lambda person: keycloak.api("DELETE", f"{users}/{person.id}/groups/{keycloak.group()}"),
        "password changed": lambda person: keycloak.api("PUT", f"{users}/{person.id}/reset-password", password),
        ON_OUR_PAGE: on_our_page,
        OF_THE_REALM: lambda _: keycloak.api("POST", f"{REALM}/logout-all"),
    }


def until_over(person: Person, surface: str, seconds: float) -> float | None:
    """Seconds from the event until the first question that was refused; None: it worked to the end of the watch."""
    works = person.works[surface]
    while (asked := time.monotonic()) - person.began < seconds:
        if not works():
            return max(0.0, asked - person.began)
        time.sleep(OFTEN_SECONDS if asked - person.began < OFTEN_FOR_SECONDS else SELDOM_SECONDS)
    return None


def until_promised(place: Place, person: Person, seconds: float) -> float | None:
    """After how many seconds its server stops, as its user reads it; None: nothing was said."""
    while time.monotonic() - person.began < seconds:
        for lease in place.as_admin("api/leases"):
            if lease["user"] == person.name and lease["stop_reason"]:
                stops = datetime.fromisoformat(lease["stops_at"].replace("Z", "+00:00"))
                left = (stops - datetime.now(timezone.utc)).total_seconds()
                return time.monotonic() + left - person.began
        time.sleep(SELDOM_SECONDS)
    return None


def until_stopping(place: Place, person: Person, seconds: float) -> float | None:
    """After how many seconds the hub begins to stop its server, which then takes its time; None: it does not."""
    while (asked := time.monotonic()) - person.began < seconds:
        model = place.hub.server(person.name)
        if model is None or model["pending"] == "stop":
            return asked - person.began
        time.sleep(OFTEN_SECONDS)
    return None


def watched(
    place: Place, person: Person, event: Callable[[Person], object], seconds: float, *, promises: bool
) -> Figures:
    """One event, and what becomes of everything that its person has."""
    with ThreadPoolExecutor(len(SURFACES) + 2) as together:
        person.begins()
        found: dict[str, Future[float | None]] = {
            surface: together.submit(until_over, person, surface, seconds) for surface in SURFACES
        }
        if promises:
            found["promised"] = together.submit(until_promised, place, person, seconds)
            found["stopping"] = together.submit(until_stopping, place, person, seconds)
        event(person)
        return {surface: each.result() for surface, each in found.items()}


def measured(
    place: Place, keycloak: Keycloak, names: Sequence[str], seconds: float, *, promises: bool
) -> Mapping[str, Figures]:
    """One hub's row for each event: a person each, and the events begin one after the other."""
    people = {event: Person(place.hub, keycloak, f"person{number}") for number, event in enumerate(names)}
    for person in people.values():
        person.opens_all()
    does = events(keycloak, place)
    together = [each for each in names if each != OF_THE_REALM]
    with ThreadPoolExecutor(len(names)) as pool:
        found = {}
        for name in together:
            found[name] = pool.submit(watched, place, people[name], does[name], seconds, promises=promises)
            time.sleep(APART_SECONDS)
        figures = {name: each.result() for name, each in found.items()}
    if OF_THE_REALM in names:
        person, event = people[OF_THE_REALM], does[OF_THE_REALM]
        figures[OF_THE_REALM] = watched(place, person, event, seconds, promises=promises)
    return figures


@contextmanager
def hub_at(folder: Path, keycloak: Keycloak, kind: str) -> Iterator[Place]:
    """A hub with the real service, whose people sign in at Keycloak."""
    text = COMMON + KINDS[kind][1].format(
        ours=OURS, issuer=keycloak.issuer, client=CLIENT, secret=keycloak.client_secret,
        recheck=RECHECK_SECONDS, drain=DRAIN_MINUTES,
    )  # fmt: skip
    place = Place(folder, layout=LAYOUT, config=text, warm=False)
    place.hub._env |= {"JUPYTERHUB_CRYPT_KEY": KEY, "JUPYTERHUB_SIGN_ON_CLIENT_SECRET": keycloak.client_secret}
    with place.open():
        yield place


def shown(row: Figures, surface: str) -> str:
    """A cell."""
    over, promised, stopping = row[surface], row.get("promised"), row.get("stopping")
    text = "works" if over is None else f"{over:.1f}"
    if surface != SURFACES[-1] or promised is None:
        return text
    begins = "not begun" if stopping is None else f"begun {stopping:.1f}"
    return f"{text} (promised {promised:.1f}, {begins})"


@click.command()
@click.option("--keycloak", "home", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--seconds", default=50.0, show_default=True, help="How long something may work on before it counts.")
@click.option("--only", default="", help="Events whose name has this word.")
@click.option("--kind", "kinds", type=click.Choice(list(KINDS)), multiple=True, default=list(KINDS))
@click.option("--then", "other", type=click.Path(exists=True), help="A Python: the same there, afterwards.")
def main(home: Path, seconds: float, only: str, kinds: Sequence[str], other: str | None) -> None:
    """Print one table: the hubs of a generation side by side."""
    print(f"\nJupyterHub {version('jupyterhub')}, oauthenticator {version('oauthenticator')}: seconds until it ends,")
    print(f'"works": still so after {seconds:.0f} s; "-": not asked of this hub')
    found: dict[str, Mapping[str, Figures]] = {}
    with tempfile.TemporaryDirectory() as temporary, Keycloak(home, Path(temporary) / "kc").open() as keycloak:
        for kind in kinds:
            before = os.getloadavg()[0]
            with hub_at(Path(temporary) / kind, keycloak, kind) as place:
                url = place.hub.url
                keycloak.make_realm(
                    f"{url}/hub/oauth_callback", f"{url}/hub/sso/backchannel-logout", f"{url}/hub/login"
                )
                names = [name for name in events(keycloak, place) if only in name]
                names = [name for name in names if kind != "stock" or name != ON_OUR_PAGE]
                found[kind] = measured(place, keycloak, names, seconds, promises=kind != "stock")
            print(f"{KINDS[kind][0]}: load {before:.1f} before, {os.getloadavg()[0]:.1f} after", flush=True)
    show(found)
    if other:
        again = [word for kind in kinds for word in ("--kind", kind)]
        command = [other, "-m", "benchmarks.sign_on", "--keycloak", home, "--seconds", str(seconds), "--only", only]
        subprocess.run([*command, *again], check=True)


def show(found: Mapping[str, Mapping[str, Figures]]) -> None:
    """A generation's table: in each cell its hubs, one beside the other."""
    print(f"\n| {' / '.join(KINDS[kind][0] for kind in found)} | " + " | ".join(SURFACES) + " |")
    print("| --- |" + " --- |" * len(SURFACES))
    for name in dict.fromkeys(name for figures in found.values() for name in figures):
        rows = [figures.get(name) for figures in found.values()]
        cells = (" / ".join(shown(row, surface) if row else "-" for row in rows) for surface in SURFACES)
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
