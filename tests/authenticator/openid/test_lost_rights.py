"""A real hub of both generations: groups and accounts that the provider does not name any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests

from hub_extensions.core.messages import WithoutSessions
from tests.authenticator.openid.provider_hub import (
    CLOCKS,
    answer_of,
    events,
    failure_shown,
    go,
    new_browser,
    provider_hub,
    secrets_shown,
    sign_in,
    turn,
)
from tests.authenticator.signed_hub import home
from tests.authenticator.test_servers import ONE, ours
from tests.fakes.oidc_provider import Fault, OidcProvider, ThatFails, WithClaims, WithUserinfo
from tests.fakes.service import GpuServiceInATest
from tests.hubs import Hub, until
from tests.patience import patient

pytestmark = pytest.mark.hub
ROLES = """
c.SingleSignOnOIDCAuthenticator.groups_claim = "roles"
c.SingleSignOnOIDCAuthenticator.synced_groups = ["thesis", "staff", "hub-admins"]
c.OAuthenticator.allowed_groups = {"thesis", "staff"}
c.OAuthenticator.admin_groups = {"hub-admins"}
c.SignOn.recheck_seconds = 1
c.SignOn.drain_minutes = 0
"""
EVERYBODY = "\nc.OAuthenticator.allow_all = True\nc.OAuthenticator.allowed_groups = set()\n"


def rights(hub: Hub, name: str) -> tuple[list[str], bool]:
    user = hub.api("GET", f"users/{name}").json()
    return sorted(user["groups"]), user["admin"]


def kinds(hub: Hub) -> set[tuple[str, str | None, str]]:
    return {(each["kind"], each["user"], each["cause"]) for each in events(hub)}


@pytest.mark.whole
def test_whose_last_role_was_taken_away_has_no_access_and_no_administrator_rights(tmp_path: Path) -> None:
    """Entra ID, Okta and Keycloak leave a claim out that would be empty."""
    with OidcProvider() as op, provider_hub(tmp_path / "hub", op, ROLES + CLOCKS) as hub:
        ada = op.add("ada", roles=["thesis", "hub-admins"])
        adas = sign_in(hub)
        ben = op.add("ben", roles=["staff", "hub-admins"])
        bens = sign_in(hub)
        assert (rights(hub, "ada"), rights(hub, "ben")) == (
            (["hub-admins", "thesis"], True),
            (["hub-admins", "staff"], True),
        )
        # at a sign-in no claim means no groups, whatever the hub has from before
        op.rotates, op.who = False, ada
        del op.people[ada]["roles"]
        browser = new_browser()
        page = go(browser, answer_of(hub, browser))
        assert failure_shown(hub, page) == "not-allowed"
        assert rights(hub, "ada") == ([], False)
        assert home(hub, adas) == 302, "and her other session has ended with the right"
        assert {("admin-ended", "ada", ""), ("groups-changed", "ada", "")} <= kinds(hub)
        # at a re-check it is unknown: administrator rights end at once, and the groups after a day
        del op.people[ben]["roles"]
        until(lambda: rights(hub, "ben") == (["hub-admins", "staff"], False), 30, what="ben is no administrator")
        assert ("groups-unknown", "ben", "missing") in kinds(hub)
        assert home(hub, bens) == 200
        op.ahead = turn(hub, 23 * 3600)
        asked = op.asked["userinfo"]
        until(lambda: op.asked["userinfo"] >= asked + 2, 30, what="ben was asked about a day later")
        assert (rights(hub, "ben"), home(hub, bens)) == ((["hub-admins", "staff"], False), 200)
        op.ahead = turn(hub, 24 * 3600 + 60)
        until(lambda: home(hub, bens) == 302, 30, what="ben is out")
        assert rights(hub, "ben") == ([], False)
        assert ("groups-ended", "ben", "missing") in kinds(hub)
        # one that is too large to be named leaves nobody an administrator, but in
        cem = op.add("cem", roles=["staff", "hub-admins"])
        cems = sign_in(hub)
        op.people[cem] |= {"_claim_names": {"roles": "src1"}}
        until(lambda: rights(hub, "cem") == (["hub-admins", "staff"], False), 30, what="cem is no administrator")
        assert (home(hub, cems), home(hub, sign_in(hub))) == (200, 200)
        assert rights(hub, "cem") == (["hub-admins", "staff"], False)
        del op.people[cem]["_claim_names"]
        until(lambda: rights(hub, "cem")[1], 30, what="cem is an administrator again")
        assert secrets_shown(hub, op) == []


@pytest.mark.whole
@pytest.mark.parametrize(
    ("claims", "let_in"),
    [
        ({}, False),
        ({"roles": None}, False),
        ({"roles": ""}, False),
        ({"roles": []}, False),
        ({"roles": "staff"}, True),
        ({"groups": ["staff"]}, False),
    ],
)
@pytest.mark.hub("6.1")
def test_who_is_let_in_with_a_claim_that_names_no_groups(
    house: tuple[OidcProvider, Hub], claims: dict[str, Any], let_in: bool
) -> None:
    op, hub = house
    op.add("gil", **claims)
    browser = new_browser()
    assert go(browser, answer_of(hub, browser)).status_code == (302 if let_in else 403)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("house") / "hub"
    with OidcProvider() as op, provider_hub(folder, op, ROLES.replace("= 1", "= 0")) as hub:
        yield op, hub


@pytest.mark.whole
@pytest.mark.hub("6.1")
@pytest.mark.parametrize("path", ["hub/oauth_login", "hub/oauth_callback", "hub/login"])
def test_a_next_with_a_control_character_is_dropped(house: tuple[OidcProvider, Hub], path: str) -> None:
    op, hub = house
    op.add("hal", "u-hal", roles=["staff"])
    for sign in ("%0d%0aX-Set:1", "%00", "%1b", "%7f"):
        browser = new_browser()
        if path == "hub/oauth_callback":
            answer = go(browser, f"{answer_of(hub, browser)}&next=/hub/{sign}home")
        else:
            answer = browser.get(f"{hub.url}/{path}?next=/hub/{sign}home", timeout=patient(20))
        assert answer.status_code < 500 and "X-Set" not in answer.headers
        again = browser.get(f"{hub.url}/{path}?next=/hub/{sign}home", timeout=patient(20))  # signed in already
        assert again.status_code < 500
    assert "Traceback" not in hub.log()


USERINFO = [
    ThatFails("userinfo", 401, '{"error": {"code": "InvalidAuthenticationToken"}}'),
    ThatFails("userinfo", 403, '{"error": "insufficient_scope"}'),
    ThatFails("userinfo", 500),
    ThatFails("userinfo", 200, "eyJhbGciOiJSUzI1NiJ9.e30.x"),
    ThatFails("userinfo", 200, "[]"),
    WithUserinfo(sub=None),
]


@pytest.mark.whole
@pytest.mark.hub("6.1")
@pytest.mark.parametrize("fault", USERINFO, ids=lambda fault: str(vars(fault))[:40])
def test_user_information_that_cannot_be_had_is_needed_by_nobody_whose_id_token_has_all(
    house: tuple[OidcProvider, Hub], fault: Fault
) -> None:
    op, hub = house
    op.add("fay", "u-fay", roles=["staff"])
    op.fault = fault
    try:
        browser = new_browser()
        assert go(browser, answer_of(hub, browser)).status_code == 302
        assert "the user information is not used, as the id token has all that is asked for" in hub.log()
        op.fault = BothOf(fault, WithClaims(roles=None))  # the id token lacks what is asked for
        browser = new_browser()
        assert go(browser, answer_of(hub, browser)).status_code >= 400
    finally:
        op.fault = Fault()


class BothOf(Fault):
    """What one changes of its answers, and what the other changes of its claims."""

    def __init__(self, answers: Fault, claims: Fault) -> None:
        self._answers, self._claims = answers, claims

    def answers(self, handler: Any, path: str) -> bool:
        return self._answers.answers(handler, path)

    def userinfo(self, said: dict[str, Any]) -> dict[str, Any]:
        return self._answers.userinfo(said)

    def claims(self, claims: dict[str, Any]) -> dict[str, Any]:
        return self._claims.claims(claims)


@pytest.mark.whole
def test_a_session_that_is_not_renewed_ends_with_its_tokens_and_its_server_runs_on(tmp_path: Path) -> None:
    """Nobody knows whether the account was deleted; the one next to it is known to be."""
    with OidcProvider() as op, GpuServiceInATest({ONE: 4}) as service:
        records = f'\nc.SingleSignOnOIDCAuthenticator.account_url = "{op.issuer}/admin/users/{{sub}}"\n'
        more = ROLES + EVERYBODY + ours(service) + records + "c.SignOn.unknown_account_hours = 72\n"
        with provider_hub(tmp_path / "hub", op, more) as hub:
            people = {name: op.add(name) for name in ("ada", "ben", "dan")}
            browsers = {name: sign_in_as(hub, op, sub) for name, sub in people.items()}
            op.add("root", roles=["hub-admins"])
            root = sign_in(hub)
            tokens = {name: hub.api("POST", f"users/{name}/tokens").json()["token"] for name in people}
            for name in people:
                hub.spawn(name, {"offer": ONE})
                hub.wait_ready(name)
            until(lambda: op.asked["account"] >= 3, 30, what="the administration knows all of them")
            # its administration is away: ada's session ran out, ben was deleted, and both look the same
            op.fault = ThatFails("account", 503)
            op.ended |= {*op.sessions_of(people["ada"]), *op.sessions_of(people["ben"])}
            bens = op.people.pop(people["ben"])
            until(lambda: home(hub, browsers["ada"]) == home(hub, browsers["ben"]) == 302, 30, what="both are out")
            assert [hub.ready(name) for name in people] == [True] * 3
            assert [user_of(hub, token) for token in tokens.values()] == [403, 403, 200]
            assert {("account-unknown", name, "not-renewed") for name in ("ada", "ben")} <= kinds(hub)
            until(lambda: told(service) == {"ada", "ben"}, 30, what="the GPU service knows")
            assert service.told_of(WithoutSessions)[-1].drain_after_seconds == 72 * 3600
            page = root.get(f"{hub.url}/hub/sso/admin", timeout=patient(20)).text
            assert page.count("no session since") == 2
            # a hub that was killed still knows
            hub.kill()
            hub.start()
            until(lambda: all(hub.ready(name) for name in people), 60, what="the servers are found again")
            assert root.get(f"{hub.url}/hub/sso/admin", timeout=patient(20)).text.count("no session since") == 2
            # the administration answers: ben is gone, and ada is there
            op.fault = Fault()
            until(lambda: hub.server("ben") is None, 60, what="ben's server is drained")
            until(lambda: told(service) == set(), 30, what="the GPU service knows")
            assert {("ended", "ben", "deleted"), ("account-known", "ada", "in the provider's records")} <= kinds(hub)
            assert hub.ready("ada") and hub.ready("dan")
            # disabled, though the refresh says no more than before; and a wrong secret is about nobody
            op.disabled.add(people["dan"])
            op.ended |= set(op.sessions_of(people["dan"]))
            until(lambda: hub.server("dan") is None, 60, what="dan's server is drained")
            assert home(hub, root) == 200 and bens
            assert secrets_shown(hub, op) == []


def sign_in_as(hub: Hub, op: OidcProvider, sub: str) -> requests.Session:
    op.who = sub
    return sign_in(hub)


def user_of(hub: Hub, token: str) -> int:
    headers = {"Authorization": f"token {token}"}
    return requests.get(f"{hub.url}/hub/api/user", headers=headers, timeout=patient(20)).status_code


def told(service: GpuServiceInATest) -> set[str]:
    found = service.told_of(WithoutSessions)
    return {each.user for each in found[-1].people} if found else {"nobody was told of"}


@pytest.mark.whole
def test_administrators_whom_anybody_could_become_are_named_once_at_the_start(tmp_path: Path) -> None:
    """Whoever first signs in with an administrator's name is one, until that name is pinned."""
    admins = '\nc.Authenticator.admin_users = {"ada", "root-admin"}\n'
    waiting = "nobody has signed in yet as "
    with OidcProvider() as op, provider_hub(tmp_path / "hub", op, EVERYBODY + admins) as hub:
        assert hub.log().count(f"{waiting}ada, root-admin (admin_users)") == hub.log().count(waiting) == 1
        op.add("ada")
        sign_in(hub)
        hub.kill()
        hub.start()
        assert hub.log().count(f"{waiting}root-admin (admin_users)") == 1
        assert hub.log().count(waiting) == 2
