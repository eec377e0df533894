"""What a real hub takes of nobody: bad logout tokens (L1 to L24), bad sign-ins, and names that are somebody else's.

Each is refused at its first fault, nobody's session is touched, and no secret comes into the log or the database.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
import requests

from hub_extensions.core.sign_on.failures import FAILURES
from tests.authenticator.openid.provider_hub import (
    CLOCKS,
    answer_of,
    events,
    failure_shown,
    go,
    metric,
    new_browser,
    provider_hub,
    secrets_shown,
    sign_in,
    turn,
)
from tests.authenticator.signed_hub import copy_of, home
from tests.fakes.oidc_provider import (
    CLIENT,
    EVENT,
    Fault,
    OidcProvider,
    SignedWith,
    ThatFails,
    ThatHangs,
    ThatIsHuge,
    ThatRedirects,
    WithClaims,
    WithDocument,
    WithManyKeys,
    WithNoName,
    WithOtherTokens,
    WithRedirect,
    WithUserinfo,
)
from tests.hubs import Hub, until
from tests.patience import patient

pytestmark = pytest.mark.programs
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ALLOW = "c.OAuthenticator.allow_all = True"


def body(token: str) -> str:
    return urlencode({"logout_token": token})


def logout_tokens(op: OidcProvider, sub: str, sid: str) -> list[tuple[str, dict[str, Any]]]:
    """Name -> the request that has one thing wrong."""
    good, now = {"sub": sub, "sid": sid}, int(time.time())

    def post(token: str, **more: Any) -> dict[str, Any]:
        return {"method": "POST", "data": body(token), "headers": FORM, **more}

    def changed(header: dict[str, Any] | None = None, sign: Callable[..., str] | None = None, **claims: Any) -> Any:
        return post(op.logout_token(header, sign=sign, **{**good, **claims}))

    kids = [(f"L9 unknown kid {each}", changed(sign=SignedWith(kid=f"unknown-{each}").signed)) for each in range(20)]
    return [
        ("L1 none", post("x") | {"data": "another=1"}),
        ("L1 two", post("x") | {"data": f"{body(op.logout_token(**good))}&logout_token=x"}),
        ("L2 GET", {"method": "GET", "params": {"logout_token": op.logout_token(**good)}}),
        ("L2 PUT", post(op.logout_token(**good)) | {"method": "PUT"}),
        ("L3 JSON", {"method": "POST", "json": {"logout_token": op.logout_token(**good)}}),
        ("L4 above 16 kB", post("x" * 17_000)),
        ("L4 above 16 kB in pieces", post("x") | {"data": iter([b"logout_token=", b"x" * 9_000, b"x" * 9_000])}),
        ("L5 no JWS", post("no.token")),
        ("L6 alg none", changed(sign=SignedWith(algorithm="none").signed)),
        ("L7 HS256", changed(sign=SignedWith(algorithm="HS256").signed)),
        ("L8 RS512", changed(sign=SignedWith(algorithm="RS512").signed)),
        *kids,
        ("L10 another key", changed(sign=SignedWith(key="another").signed)),
        ("L11 typ", changed({"typ": "at+jwt"})),
        ("L12 an id token", post(id_token(op))),
        ("L13 iss", changed(iss="https://another.example")),
        ("L14 aud", changed(aud="another")),
        ("L15 aud without us", changed(aud=["a", "b"])),
        ("L16 no iat", changed(iat=None)),
        ("L17 iat ahead", changed(iat=now + 600, exp=now + 700)),
        ("L18 exp past", changed(iat=now - 600, exp=now - 400)),
        ("L18 no exp, and old", changed(iat=now - 600, exp=None)),
        ("L19 nobody", changed(sub=None, sid=None)),
        ("L20 no events", changed(events=None)),
        ("L21 another event", changed(events={"another": {}})),
        ("L21 no object", changed(events={EVENT: True})),
        ("L22 nonce", changed(nonce="n")),
        ("L23 no jti", changed(jti=None)),
    ]


def id_token(op: OidcProvider) -> str:
    """A real one, as the hub got it."""
    login = next(iter(op.access_tokens.values()))
    return str(op.tokens_for(login)["id_token"])


@pytest.mark.whole
def test_a_logout_token_with_one_thing_wrong_ends_nothing(tmp_path: Path) -> None:
    with OidcProvider() as op, provider_hub(tmp_path / "hub", op, ALLOW) as hub:
        sub = op.add("ada")
        ada = sign_in(hub)
        (sid,) = op.sessions_of(sub)
        other = sign_in(hub)
        asked = op.asked["keys"]
        bad = logout_tokens(op, sub, sid)
        for number, (name, request) in enumerate(bad, 1):
            answer = requests.request(**request, url=op.backchannel, timeout=patient(20))
            assert answer.status_code == {"L2": 405, "L4": 413}.get(name.split()[0], 400), f"{name}: {answer.text}"
            assert refused(hub) == number, name
        assert home(hub, ada) == 200
        assert op.asked["keys"] <= asked + 1, "twenty unknown keys are one question at most"
        # L24: once, not twice, also after a restart
        token = op.logout_token(sub="somebody else", sid="x")
        assert [send(op, token), send(op, token)] == [200, 400]
        # the provider ends all, and names one session: the other one is asked about, also by a hub that is killed
        assert home(hub, ada) == home(hub, other) == 200
        op.ended |= set(op.sessions_of(sub))
        op.fault = ThatHangs("token")
        assert send(op, op.logout_token(sub=sub, sid=sid)) == 200
        assert (home(hub, ada), home(hub, other)) == (302, 200)
        hub.kill()
        op.fault = Fault()
        hub.start()
        assert home(hub, ada) == 302
        until(lambda: home(hub, other) == 302, what="the other one was asked about")
        assert send(op, token) == 400
        assert {event["kind"] for event in events(hub)} >= {"logout-refused"}
        assert secrets_shown(hub, op, ada, other) == []
        print(f"logout tokens refused: {len(bad)} requests and one twice, nothing ended")


def send(op: OidcProvider, token: str) -> int:
    return requests.post(op.backchannel, data=body(token), headers=FORM, timeout=patient(20)).status_code


def refused(hub: Hub) -> float:
    return metric(hub, "jupyterhub_sign_on_logout_tokens_total", 'result="taken"')


OF_SOMEBODY_KNOWN = {"not-allowed", "name-taken", "name-from-before", "used", "too-late"}
"""Pages that a hub shows which has let somebody in before, or a while ago."""
DELETED = '{"error": "invalid_grant", "error_description": "referenced account not found"}'
DISABLED = '{"error": "invalid_grant", "error_description": "User disabled"}'
COLD: list[tuple[str, Fault, int, str]] = [
    ("discovery over 1 MB", ThatIsHuge("openid-configuration", 1_100_000), 503, "not answering"),
    ("discovery of another issuer", WithDocument(issuer="https://another.example"), 502, "do not fit together"),
    ("discovery is not there", ThatFails("openid-configuration", 404), 502, "do not fit together"),
    ("discovery without https", WithDocument(token_endpoint="http://a.example/"), 502, "do not fit together"),
    ("keys: a thousand", WithManyKeys(), 503, "not answering"),
    ("keys: 10 MB", ThatIsHuge("keys", 10_000_000), 503, "not answering"),
    ("keys: to another host", ThatRedirects("keys", "http://127.0.0.2:9/keys"), 502, "do not fit together"),
    ("keys that can be read at last", WithClaims(nonce=None), 502, "is not taken"),
]


def faults() -> list[tuple[str, Fault, int, str]]:
    now = int(time.time())
    return [
        ("nonce missing", WithClaims(nonce=None), 502, "is not taken"),
        ("nonce other", WithClaims(nonce="another"), 502, "is not taken"),
        ("iss parameter other", WithRedirect(iss="https://another.example"), 502, "is not taken"),
        ("iss parameter missing", WithRedirect(iss=None), 502, "is not taken"),
        ("another key", SignedWith(key="another"), 502, "is not taken"),
        ("alg none", SignedWith(algorithm="none"), 502, "is not taken"),
        ("HS256", SignedWith(algorithm="HS256"), 502, "is not taken"),
        ("aud", WithClaims(aud="another"), 502, "is not taken"),
        ("azp", WithClaims(azp="another"), 502, "is not taken"),
        ("two aud without azp", WithClaims(aud=[CLIENT, "another"]), 502, "is not taken"),
        ("iss", WithClaims(iss="https://another.example"), 502, "is not taken"),
        ("at_hash", WithClaims(at_hash="another"), 502, "is not taken"),
        ("expired", WithClaims(iat=now - 600, exp=now - 400), 502, "min behind"),
        ("from the future", WithClaims(iat=now + 600, exp=now + 900), 502, "min ahead of"),
        ("userinfo of another", WithUserinfo(sub="u-another"), 502, "is not taken"),
        ("no id token", WithOtherTokens(id_token=None), 502, "is not taken"),
        ("claims of 64 kB", WithClaims(story="x" * 65_536), 502, "is not taken"),
        ("no name", WithNoName(), 403, "gives no name"),
        ("a name with a slash", WithUserinfo(preferred_username="a/b"), 403, "cannot take your name"),
        ("a name with control signs", WithUserinfo(preferred_username="a\x1bb"), 403, "cannot take your name"),
        ("a name of 300 letters", WithUserinfo(preferred_username="x" * 300), 403, "cannot take your name"),
        ("consent refused", WithRedirect(code=None, error="access_denied"), 403, "did not agree"),
        ("account disabled", ThatFails("token", 400, DISABLED), 403, "This account is disabled"),
        ("account deleted", ThatFails("token", 400, DELETED), 403, "This account is not known any more"),
        ("client unknown", WithRedirect(code=None, error="unauthorized_client"), 502, "does not know this hub"),
        ("client's secret", ThatFails("token", 401, '{"error": "invalid_client"}'), 502, "does not know this hub"),
    ]


@pytest.mark.whole
def test_a_sign_in_with_one_thing_wrong_signs_nobody_in(tmp_path: Path) -> None:
    with OidcProvider() as op, provider_hub(tmp_path / "hub", op, ALLOW) as hub:
        op.add("ada")
        shown = []
        # as long as the hub has read neither document nor keys
        for name, fault, status, words in COLD:
            op.fault = fault if "keys" in name else Fault()
            browser = new_browser()
            if "discovery" in name:
                op.fault = fault
                answer = go(browser, f"{hub.url}/hub/oauth_login")
            else:
                before = op.asked["keys"]
                (answer,) = until(lambda before=before: asked_for_keys(hub, op, before), what=name)
            assert (answer.status_code, words in answer.text) == (status, True), f"{name}: {answer.text[-1500:]}"
            shown.append(failure_shown(hub, answer))
        for name, fault, status, words in faults():
            op.fault = fault
            browser = new_browser()
            answer = go(browser, answer_of(hub, browser))
            assert (answer.status_code, words in answer.text) == (status, True), f"{name}: {answer.text[-1500:]}"
            assert home(hub, browser) == 302, name
            shown.append(failure_shown(hub, answer))
        op.fault = Fault()
        shown += states(hub, op)
        assert set(shown) == set(FAILURES) - OF_SOMEBODY_KNOWN - {"clock-behind"}
        assert [each["name"] for each in hub.api("GET", "users").json()] == []
        assert secrets_shown(hub, op) == []
        assert metric(hub, "jupyterhub_sign_on_refused_total") >= len(shown)
        # the audit log says why, and not who; a flood of them does not fill the disk
        written = [event for event in events(hub) if event["kind"] == "refused"]
        assert {event["user"] for event in written} == {None}
        assert {"nonce", "signature", "clock", "no-name", "consent"} <= {event["cause"] for event in written}
        assert not {"cookies", "provider-away"} & {event["cause"] for event in written}
        print(f"sign-ins refused: {len(shown)}")


def asked_for_keys(hub: Hub, op: OidcProvider, before: int) -> tuple[requests.Response] | None:
    """The answer to a sign-in for which the provider's keys were asked for."""
    browser = new_browser()
    answer = go(browser, answer_of(hub, browser))
    return (answer,) if op.asked["keys"] > before else None


def states(hub: Hub, op: OidcProvider) -> list[str]:
    """What a browser brings back that is not of this sign-in; what was shown for it."""
    shown = []
    for change in ({"state": None}, {"state": "another"}, {"code": None}):
        browser = new_browser()
        shown.append(refused_for(hub, browser, with_query(answer_of(hub, browser), **change)))
    # another browser's, with cookies of a sign-in of its own
    one, other = new_browser(), new_browser()
    answer_of(hub, other)
    shown.append(refused_for(hub, other, answer_of(hub, one)))
    # a browser that keeps no cookies
    shown.append(refused_for(hub, new_browser(), answer_of(hub, one)))
    assert shown[-1] == "cookies"
    # a code that was used, in a sign-in of its own
    used = dict(parse_qsl(urlsplit(answer_of(hub, one)).query))["code"]
    op.codes.pop(used)
    return [*shown, refused_for(hub, other, with_query(answer_of(hub, other), code=used))]


def refused_for(hub: Hub, browser: requests.Session, address: str) -> str:
    answer = go(browser, address)
    assert answer.status_code in (400, 502), answer.text
    assert home(hub, browser) == 302
    return failure_shown(hub, answer)


def with_query(address: str, **changed: str | None) -> str:
    parts = urlsplit(address)
    query = {name: value for name, value in {**dict(parse_qsl(parts.query)), **changed}.items() if value is not None}
    return parts._replace(query=urlencode(query)).geturl()


@pytest.mark.whole
def test_a_name_is_its_first_owners_and_each_page_says_what_to_do(tmp_path: Path) -> None:
    lists = 'c.OAuthenticator.allowed_groups = {"thesis"}\nc.OAuthenticator.blocked_users = {"cem"}'
    lists += '\nc.Authenticator.username_map = {"eve": "fay", "fay": "ada"}'
    lists += f'\nc.SingleSignOnOIDCAuthenticator.adopt_existing_users = "none"\n{CLOCKS}'
    with OidcProvider() as op, provider_hub(tmp_path / "hub", op, lists) as hub:
        ada = op.add("ada", groups=["thesis"])
        browser = sign_in(hub)
        # used twice: with a session one is simply home, without one it is refused
        address = answer_of(hub, browser)
        assert go(browser, address).headers["Location"] == "/hub/spawn"
        assert go(browser, address).headers["Location"].endswith("/hub/home")
        # two tabs: both come back
        first, second = answer_of(hub, browser), answer_of(hub, browser)
        assert [go(browser, each).status_code for each in (second, first)] == [302, 302]
        # deleted at the provider and made anew: the old name, another person
        op.add("ada", groups=["thesis"])
        taken = refused_page(hub, "Your name belongs to another account here")
        assert "Sign in as somebody else" in taken.text
        # the same person under a new name stays who it was here
        op.who = ada
        op.people[ada]["preferred_username"] = "lovelace"
        assert sign_in(hub).get(f"{hub.url}/hub/api/user", timeout=patient(20)).json()["name"] == "ada"
        # not let in: which account that is, and another one; in the audit log without a name
        op.add("dora", groups=[])
        page = refused_page(hub, "You are dora at your sign-in service")
        go(new_browser(), f"{hub.url}/hub/oauth_login?again=other")
        other = go(new_browser(), f"{hub.url}/hub/oauth_login?again=other").headers["Location"]
        assert dict(parse_qsl(urlsplit(other).query))["prompt"] == "select_account"
        op.add("cem", groups=["thesis"])
        refused_page(hub, "This account may not use this hub")
        # the hub maps names once more than the pin was looked for
        op.add("eve", groups=["thesis"])
        refused_page(hub, "This account may not use this hub")
        assert sorted(each["name"] for each in hub.api("GET", "users").json()) == ["ada"]
        # a user with a new name has its old person, who has a session
        assert hub.api("PATCH", "users/ada", {"name": "gil"}).ok
        op.add("gil", groups=["thesis"])
        refused_page(hub, "Your name belongs to another account here")
        # and is still that person's, who signs in to it; without an admin's pin
        op.who = ada
        assert sign_in(hub).get(f"{hub.url}/hub/api/user", timeout=patient(20)).json()["name"] == "gil"
        kinds = {(event["kind"], event["cause"]) for event in events(hub)}
        assert {("name-taken", ""), ("pinned", ""), ("refused", "not-allowed")} <= kinds
        # a user from before this way to sign in
        hub.add_users("zoe")
        op.add("zoe", groups=["thesis"])
        pages = [page, taken, refused_page(hub, "Your name has to be given to you first")]
        # the same address twice, by a browser without a session; and one that was open for more than an hour
        browser, op.who = new_browser(), ada
        address, late = answer_of(hub, browser), answer_of(hub, browser)
        copy = copy_of(browser)
        assert go(browser, address).status_code == 302
        pages.append(go(copy, address))
        turn(hub, 3700)
        pages.append(go(copy, late))
        assert {failure_shown(hub, each) for each in pages} == OF_SOMEBODY_KNOWN


def refused_page(hub: Hub, words: str) -> requests.Response:
    browser = new_browser()
    page = go(browser, answer_of(hub, browser))
    assert (page.status_code, words in page.text) == (403, True), page.text[-1500:]
    return page
