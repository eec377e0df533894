"""What sign-on sessions cost a hub: a page with 5,000 of them, 300 sign-ins in a minute, 2,000 asked about, memory.

Real hubs with their proxies. A page is compared with a stock hub's that has the same people, asked in turn in the same
run; *of a processor* is what the kernel says the hub's own process ran meanwhile. Sign-ins go to oidc-provider
(``scripts/sso``); the provider that is asked again is the tests' own, whose tokens are signed like others. Memory is
that of Python's objects (tracemalloc), as a hub has them after its start. Run as a plain user.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import re
import secrets
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import jupyterhub
import requests
import sqlalchemy as sa
from jupyterhub import orm

from benchmarks.figures import latency_row, quantile
from hub_extensions.adapters.store.sign_on import METADATA, SignOnStore
from hub_extensions.adapters.store.sign_on_provider import ProviderStore
from hub_extensions.authenticator.openid.links import KeptTokens, ProviderLinks, encrypted
from hub_extensions.authenticator.registry import SessionRegistry
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.sign_on.recheck import ProviderLink
from hub_extensions.tools.demo.sign_in import CLIENT, SignInService, serving
from tests.authenticator.openid.provider_hub import KEY, OURS, new_browser, provider_hub
from tests.authenticator.signed_hub import sessions
from tests.fakes.oidc_provider import OidcProvider
from tests.hubs import Hub, free_port
from tests.machine_needs import sign_in_service

PEOPLE, SESSIONS_EACH, ASKED = 1_000, 5, 400
LOGINS, LOGIN_SECONDS = 300, 60.0
RECHECKED = 2_000
IN_MEMORY = 20_000
KEPT_BYTES = (850, 1_150)
"""A refresh token and an id token of Keycloak."""
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/128.0"


def now() -> datetime:
    return datetime.now(timezone.utc)


@contextmanager
def hub_database(folder: Path) -> Iterator[Any]:
    """The database of a hub that has not started yet."""
    folder.mkdir(parents=True, exist_ok=True)
    db = orm.new_session_factory(f"sqlite:///{folder / 'jupyterhub.sqlite'}")()
    yield db
    db.commit()
    db.close()


def add_people(db: Any, count: int) -> list[int]:
    """So many users; their numbers."""
    db.add_all([orm.User(name=f"p{number}") for number in range(count)])
    db.commit()
    return [number for (number,) in db.query(orm.User.id)]


def add_sessions(db: Any, users: list[int], each: int) -> SessionRegistry:
    """So many sessions of each, in the database and in memory."""
    registry = SessionRegistry(SignOnStore.opened(db), SignOnConfig(), now)
    begun = [registry.begin(user, BROWSER, "192.0.2.7")[0] for user in users for _ in range(each)]
    with registry.store.transaction():
        registry.store.put(begun)
    for session in begun:
        registry.put(session)
    return registry


# ---------------------------------------------------------------------- a page


def processor_seconds(hub: Hub) -> float:
    """How long the hub's own process has run until now."""
    assert hub.process is not None
    return int(Path(f"/proc/{hub.process.pid}/schedstat").read_text().split()[0]) / 1e9


def asked(hub: Hub, browser: requests.Session) -> tuple[float, float]:
    """One page: seconds by the clock, and of a processor."""
    ran, began = processor_seconds(hub), time.perf_counter()
    answer = browser.get(f"{hub.url}/hub/home", timeout=30, allow_redirects=False)
    took = time.perf_counter() - began
    assert answer.status_code == 200, answer.headers
    return took, processor_seconds(hub) - ran


def pages(folder: Path) -> None:
    """The hub's home page, stock and ours."""
    hubs = {"stock": Hub(folder / "stock"), "ours": Hub(folder / "ours", sessions())}
    for hub in hubs.values():
        with hub_database(hub.folder) as db:
            users = add_people(db, PEOPLE)
            if hub is hubs["ours"]:
                add_sessions(db, users, SESSIONS_EACH)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in hubs}
    with hubs["stock"], hubs["ours"]:
        browsers = {name: hub.login("ada") for name, hub in hubs.items()}
        for _ in range(ASKED):
            for name, hub in hubs.items():
                found[name].append(asked(hub, browsers[name]))
    print(f"/hub/home, {PEOPLE * SESSIONS_EACH:,} sessions of {PEOPLE:,} people")
    for kind, which in (("by the clock", 0), ("of a processor", 1)):
        stock, ours = ([each[which] for each in found[name]] for name in ("stock", "ours"))
        print(latency_row(f"  stock, {kind}", stock))
        print(latency_row(f"  ours, {kind}", ours))
        print(f"  p95 over stock, {kind}: {(quantile(ours, 0.95) - quantile(stock, 0.95)) * 1000:.2f} ms")


# ---------------------------------------------------------------------- signing in


def sign_in(hub: Hub, service: SignInService, name: str, at: float) -> tuple[float, requests.Session] | None:
    """One person at this (steady) second: how long it took, and the browser; None: it did not work."""
    time.sleep(max(0.0, at - time.monotonic()))
    began, browser = time.monotonic(), new_browser()
    try:
        page = browser.get(f"{hub.url}/hub/oauth_login", params={"next": "/hub/home"}, timeout=60)
        done = browser.post(page.url, {"person": f"u-{name}"}, headers={"Origin": service.url}, timeout=60)
    except requests.RequestException:
        return None
    if done.status_code != 200 or urlsplit(done.url).path != "/hub/home":
        return None
    return time.monotonic() - began, browser


SLOW_DISK = """
import time
from sqlalchemy import event
from sqlalchemy.engine import Engine
@event.listens_for(Engine, "commit")
def wait_for_disk(connection):
    written = connection.connection.dbapi_connection.total_changes
    if written != connection.info.get("written", 0):
        connection.info["written"] = written
        time.sleep({seconds})
"""


def logins(folder: Path, commit_seconds: float) -> None:
    """Three hundred in a minute, at random moments."""
    program = sign_in_service()
    assert program is not None, "./scripts/test sets it up"
    people = {f"p{number}": ("course",) for number in range(LOGINS)}
    service = SignInService(program, free_port(), "gpu", secrets.token_hex(16), KEY, people=people)
    config = f"""
from hub_extensions.authenticator.hub_setup import add_sign_on
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.spawner.config.loader import read_section
c.Authenticator.allow_all = False
c.Authenticator.admin_users = set()
c.JupyterHub.authenticator_class = {OURS!r}
c.SingleSignOnOIDCAuthenticator.issuer = {service.url!r}
c.SingleSignOnOIDCAuthenticator.client_id = {CLIENT!r}
c.OAuthenticator.allowed_groups = {{"course"}}
add_sign_on(c, read_section(c, SignOnConfig), [])
"""
    if commit_seconds:
        config += SLOW_DISK.format(seconds=commit_seconds)
    hub = Hub(folder / "hub", config, env=dict(service.variables))
    hub.folder.mkdir(parents=True, exist_ok=True)
    with serving(service, hub.folder, hub.url, os.environ, answers), hub, ThreadPoolExecutor(64) as together:
        ran, first = processor_seconds(hub), time.monotonic() + 1
        moments = sorted(first + random.random() * LOGIN_SECONDS for _ in people)
        begun = [together.submit(sign_in, hub, service, name, at) for name, at in zip(people, moments, strict=True)]
        done = [found for each in begun if (found := each.result()) is not None]
        ran = processor_seconds(hub) - ran
        still = [browser.get(f"{hub.url}/hub/home", timeout=60, allow_redirects=False) for _, browser in done]
        refused = Counter(re.findall(r"sign-on refused \(\S+\) (\S+:.*)", hub.log()))
    inside = sum(each.status_code == 200 for each in still)
    print(f"{LOGINS} sign-ins in {LOGIN_SECONDS:g} s: {len(done)} done, {inside} still in, {LOGINS - inside} lost")
    for why, count in refused.most_common():
        print(f"  refused {count} times: {why}")
    print(latency_row("  a sign-in, by the clock", [took for took, _ in done]))
    print(f"  of the hub's processor: {ran / LOGINS * 1000:.1f} ms each")


def answers(address: str) -> bool:
    """Whether something is there."""
    try:
        return requests.get(address, timeout=5).ok
    except requests.RequestException:
        return False


# ---------------------------------------------------------------------- asking again


class CountingProvider(OidcProvider):
    """Notes when it was asked for new tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[float] = []

    def tokens_for(self, login: Any, *, refreshed: bool = False) -> Any:
        self.moments.append(time.monotonic())
        return super().tokens_for(login, refreshed=refreshed)


def add_links(db: Any, registry: SessionRegistry, op: OidcProvider) -> None:
    """Each session has a refresh token that the provider knows; the last question was an hour ago."""
    os.environ["JUPYTERHUB_CRYPT_KEY"] = KEY
    links = ProviderLinks(ProviderStore(db))

    async def add() -> None:
        made = []
        for user_id in registry.users():
            sub = op.add(f"p{user_id - 1}", sub=f"u-{user_id}", groups=["course"])
            for session in registry.of_user(user_id):
                op.refresh_tokens[session.id] = {"sub": sub, "sid": session.id, "nonce": ""}
                kept = await encrypted(KeptTokens(session.id))
                checked = now() - timedelta(hours=1)
                made.append(ProviderLink(session.id, user_id, op.issuer, sub, session.id, kept, checked))
        with registry.store.transaction():
            links.put(made)

    asyncio.run(add())


def recheck(folder: Path, seconds: float) -> None:
    """All are due at the hub's start."""
    with CountingProvider() as op:
        hub = provider_hub(folder / "hub", op, "c.OAuthenticator.allow_all = True")
        with hub_database(hub.folder) as db:
            add_links(db, add_sessions(db, add_people(db, RECHECKED), 1), op)
        with hub:
            ran, began = processor_seconds(hub), time.monotonic()
            while time.monotonic() - began < seconds and len(op.moments) < RECHECKED:
                time.sleep(1)
            ran = processor_seconds(hub) - ran
            in_a_second = Counter(int(each - op.moments[0]) for each in op.moments)
            took = op.moments[-1] - op.moments[0]
            ended = hub.log().count('"kind":"ended"')
    asked = len(op.moments)
    print(f"{RECHECKED:,} sessions that are all due: {asked:,} asked about in {took:.1f} s, {ended} ended")
    rate = (asked - 1) / took
    print(f"  {rate:.2f} a second, at most {max(in_a_second.values())} in one; all in {RECHECKED / rate:.0f} s")
    print(f"  of the hub's processor: {ran / asked * 1000:.1f} ms each")


# ---------------------------------------------------------------------- memory


def memory() -> None:
    """What a hub holds of its sessions, and of what they have from the provider."""
    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
    METADATA.create_all(engine)
    with sa.orm.Session(engine) as db:
        written = add_sessions_alone(db)
        os.environ["JUPYTERHUB_CRYPT_KEY"] = KEY

        async def kept() -> bytes:
            refresh, id_token = (secrets.token_urlsafe(size)[:size] for size in KEPT_BYTES)
            return await encrypted(KeptTokens(refresh, id_token))

        async def links() -> list[ProviderLink]:
            made = []
            for number, session in enumerate(written):
                sub, sid = secrets.token_hex(18), secrets.token_hex(18)
                issuer = "https://login.site.example/realms/uni"
                made.append(ProviderLink(session, number, issuer, sub, sid, await kept(), now()))
            return made

        ProviderStore(db).put_links(asyncio.run(links()))
        db.commit()
        db.expunge_all()
        tracemalloc.start()
        registry, of_sessions = held(lambda: SessionRegistry(SignOnStore(db), SignOnConfig(), now))
        kept_links, of_links = held(lambda: ProviderLinks(ProviderStore(db)))
        for session in list(registry.ids())[:1]:
            assert kept_links.of_session(session) is not None
    print(f"{IN_MEMORY:,} sessions in memory: {of_sessions / 1e6:.1f} MB")
    print(f"  and what they have from the provider: {of_links / 1e6:.1f} MB")


def add_sessions_alone(db: Any) -> list[str]:
    """Two of each person; their ids."""
    registry = SessionRegistry(SignOnStore(db), SignOnConfig(), now)
    begun = [registry.begin(number // 2, BROWSER, f"192.0.{number % 200}.7")[0] for number in range(IN_MEMORY)]
    registry.store.put(begun)
    return [each.id for each in begun]


def held(make: Callable[[], Any]) -> tuple[Any, int]:
    """What was made, and the bytes that are held since."""
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    made = make()
    gc.collect()
    return made, tracemalloc.get_traced_memory()[0] - before


@click.command()
@click.option("--only", type=click.Choice(["pages", "logins", "recheck", "memory"]), help="One of the four.")
@click.option("--seconds", default=300.0, show_default=True, help="So long the questions to the provider are watched.")
@click.option("--commit-seconds", default=0.0, help="A slow disk: so much longer is each commit of a sign-in.")
def main(only: str | None, seconds: float, commit_seconds: float) -> None:
    """Print the four figures."""
    print(f"JupyterHub {jupyterhub.__version__}")
    parts: dict[str, Callable[[Path], None]] = {
        "pages": pages,
        "logins": lambda folder: logins(folder, commit_seconds),
        "recheck": lambda folder: recheck(folder, seconds),
        "memory": lambda _: memory(),
    }
    for name, part in parts.items():
        if only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                part(Path(folder))


if __name__ == "__main__":
    main()
