"""A hub that is killed at each step of ending a session: nobody in who should be out, nobody out who should be in."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from tests.authenticator.killed_at import A_SERVER_STOPS, ALL_IS_WRITTEN, NOTHING_IS_WRITTEN, again, config, dies_before
from tests.authenticator.openid.provider_hub import answer_of, go, new_browser, provider_hub, sign_in
from tests.authenticator.signed_hub import home, rest
from tests.fakes.oidc_provider import Fault, OidcProvider, ThatDies, ThatFails
from tests.hubs import Hub, until
from tests.patience import patient

pytestmark = [pytest.mark.hub, pytest.mark.whole]
ONE_SESSION = (*NOTHING_IS_WRITTEN, *ALL_IS_WRITTEN)
BACK = "http://127.0.0.1:9/services/app/oauth_callback"
APP = {"client_id": "service-app", "client_secret": "secret-of-the-app"}
CONFIG = f"""
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{"root-admin"}}
c.SignOn.max_sessions = 30
c.SignOn.recheck_seconds = 2
c.SignOn.servers_at_revocation = "stop"
c.JupyterHub.services.append({{
    "name": "app", "api_token": {APP["client_secret"]!r}, "oauth_client_id": "service-app", "oauth_no_confirm": True,
    "oauth_redirect_uri": {BACK!r},
}})
c.JupyterHub.load_roles.append({{"name": "user", "scopes": ["self", "access:services!service=app"]}})
"""


class Signed:
    """Somebody's browser, and the token that an app behind the hub got for it."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.browser = hub, sign_in(hub)
        self.sid = str(self.browser.cookies.get("op-session"))
        begin = {"client_id": "service-app", "response_type": "code", "redirect_uri": BACK, "state": "s"}
        url = f"{hub.url}/hub/api/oauth2"
        answer = self.browser.get(f"{url}/authorize", params=begin, allow_redirects=False, timeout=patient(20))
        [code] = parse_qs(urlsplit(answer.headers["Location"]).query)["code"]
        grant = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK, **APP}
        self.token = str(requests.post(f"{url}/token", grant, timeout=patient(20)).json()["access_token"])

    def is_in(self) -> tuple[bool, bool]:
        """By its pages, by the app's token."""
        return home(self.hub, self.browser) == 200, self.hub.api("GET", "user", token=self.token).ok


IN, OUT = (True, True), (False, False)


def test_a_hub_that_is_killed_while_it_ends_sessions_ends_those_and_no_other(tmp_path: Path) -> None:
    with OidcProvider() as op, provider_hub(tmp_path / "hub", op, CONFIG + config()) as hub:
        op.rotates = False  # one whose refresh tokens are good once would refuse what a killed hub had not written
        op.add("ben")
        ben = Signed(hub)
        ada = op.add("ada")
        stays, going = Signed(hub), [Signed(hub) for _ in ONE_SESSION]
        servers = {name: run_of(hub, name) for name in ("ada", "ben")}
        for session, step in zip(going, ONE_SESSION, strict=True):
            op.fault = ThatFails("token", 503) if step in ALL_IS_WRITTEN else Fault()
            dies_before(hub, step)
            op.ended.add(session.sid)
            with suppress(requests.ConnectionError):
                op.send_logout(sub=ada, sid=session.sid)
            again(hub)
            if step in NOTHING_IS_WRITTEN:
                until(lambda: session.is_in() == OUT, 30, f"{step}: the provider's next answer ends it")  # noqa: B023
            assert (step, session.is_in(), stays.is_in(), ben.is_in()) == (step, OUT, IN, IN)
        op.fault = Fault()
        until(lambda: hub.ready("ada") and hub.ready("ben"), what="the hub knows their servers again")
        assert {name: started(hub, name) for name in servers} == servers
        found = kept(hub, "select count(*), count(distinct session) from gpu_signon_events where kind = 'ended'")
        assert found == [(len(going), len(going))], "each end is written once"
        the_provider_dies(hub, op, stays, ben)
        a_right_is_lost(hub, op, stays, ben)


def the_provider_dies(hub: Hub, op: OidcProvider, ada: Signed, ben: Signed) -> None:
    """Asked about a session, while somebody signs in, and before it hears that its logout token was taken."""
    op.add("cem")
    cem, dies = Signed(hub), Signed(hub)
    op.ended.add(cem.sid)
    op.fault = ThatDies("token")
    until(lambda: op.is_dead, what="it is asked about a session, and dies")
    assert [each.is_in() for each in (ada, ben, dies)] == [IN] * 3
    op.fault = Fault()
    op.come_back()
    until(lambda: cem.is_in() == OUT, 30, "what it ended before is over")
    browser = new_browser()
    answer = answer_of(hub, browser)
    op.fault = ThatDies("token")
    failed = go(browser, answer)
    assert (failed.status_code, op.is_dead) == (503, True)
    assert home(hub, browser) == 302
    op.ended.add(dies.sid)
    op.send_logout_and_die(sub=op.who, sid=dies.sid)
    until(lambda: dies.is_in() == OUT, what="the logout token counts, though nobody waits for an answer")
    assert [each.is_in() for each in (ada, ben)] == [IN] * 2
    op.fault = Fault()
    op.come_back()


def a_right_is_lost(hub: Hub, op: OidcProvider, ada: Signed, ben: Signed) -> None:
    """The same where servers stop; an admin does it, whose session has to last."""
    op.add("root-admin")
    admin = Signed(hub)
    bens = started(hub, "ben")
    for step in A_SERVER_STOPS:
        hub.add_users("ada")
        run_of(hub, "ada")
        dies_before(hub, step)
        with suppress(requests.ConnectionError):
            rest(hub, admin.browser, "DELETE", "users/ada/sessions?access_revoked=true")
        again(hub)
        assert (step, ada.is_in(), ben.is_in(), admin.is_in()) == (step, OUT, IN, IN)
        until(lambda: hub.server("ada") is None and not orders(hub), 30, f"{step}: the server stops")
    until(lambda: hub.ready("ben"), what="the hub knows ben's server again")
    assert started(hub, "ben") == bens


def run_of(hub: Hub, name: str) -> str:
    """A server of this user, from now on."""
    hub.spawn(name)
    hub.wait_ready(name)
    return started(hub, name)


def started(hub: Hub, name: str) -> str:
    model = hub.server(name)
    assert model is not None, f"{name} has no server"
    return str(model["started"])


def orders(hub: Hub) -> list[tuple[object, ...]]:
    """Servers that are still to stop."""
    return kept(hub, "select * from gpu_signon_stops")


def kept(hub: Hub, question: str) -> list[tuple[object, ...]]:
    """What the hub's database says."""
    with closing(sqlite3.connect(hub.folder / "jupyterhub.sqlite")) as database:
        return database.execute(question).fetchall()
