"""A real hub whose database is locked, or whose disk is full: nobody is signed out, and no end of a session is lost."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
import requests

from tests.authenticator.openid.provider_hub import answer_of, go, new_browser, provider_hub, secrets_shown, sign_in
from tests.authenticator.signed_hub import home, rest
from tests.fakes.oidc_provider import OidcProvider
from tests.hubs import Hub, until
from tests.patience import patient

pytestmark = [pytest.mark.hub, pytest.mark.whole]
CONFIG = """
c.OAuthenticator.allow_all = True
c.SignOn.recheck_seconds = 1
c.JupyterHub.db_kwargs = {"connect_args": {"timeout": 0.1}}  # SQLite waits five seconds for each statement otherwise
"""


@contextmanager
def locked(hub: Hub) -> Iterator[None]:
    """Somebody else writes to the database, and does not come to an end."""
    other = sqlite3.connect(hub.folder / "jupyterhub.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


@contextmanager
def full(hub: Hub) -> Iterator[None]:
    """The hub gets no byte into any file, its log included."""
    assert hub.process is not None
    before = resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (1, before[1]))
    yield
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, before)


def test_a_locked_database_and_a_full_disk_sign_nobody_out_and_lose_no_end(tmp_path: Path) -> None:
    with OidcProvider() as op, provider_hub(tmp_path / "hub", op, CONFIG) as hub:
        browsers = [*one_person(hub, op, "ada", locked), *one_person(hub, op, "ben", full)]
        hub.kill()
        hub.start()
        assert [home(hub, each) for each in browsers] == [302] * 4
        assert secrets_shown(hub, op, *browsers) == []
        assert "[SQL: INSERT INTO gpu_signon_sessions" in hub.log(), "what failed stands there"
        assert "[parameters:" not in hub.log(), "and no id of a session, nor what else was to be written"


def one_person(
    hub: Hub, op: OidcProvider, name: str, trouble: Callable[[Hub], AbstractContextManager[None]]
) -> list[requests.Session]:
    """Two browsers, which ask, end and are ended meanwhile and afterwards."""
    sub = op.add(name)
    one, other = sign_in(hub), sign_in(hub)
    token = op.logout_token(sub=sub, sid=one.cookies.get("op-session"))
    asked = op.asked["token"]
    with trouble(hub):
        assert [home(hub, one), home(hub, other)] == [200, 200]
        new = new_browser()
        assert go(new, answer_of(hub, new)).status_code >= 500
        assert send(op, token) >= 500
        assert rest(hub, other, "DELETE", f"users/{name}/sessions").status_code >= 500
        until(lambda: op.asked["token"] > asked, what="the provider is asked meanwhile")
    assert [home(hub, one), home(hub, other), home(hub, new)] == [200, 200, 302]
    assert send(op, token) == 200
    assert [home(hub, one), home(hub, other)] == [302, 200]
    assert rest(hub, other, "DELETE", f"users/{name}/sessions").ok
    assert home(hub, other) == 302
    return [one, other]


def send(op: OidcProvider, token: str) -> int:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    body = urlencode({"logout_token": token})
    return requests.post(op.backchannel, data=body, headers=headers, timeout=patient(20)).status_code
