"""Sign-on sessions in a real JupyterHub, both generations."""

from __future__ import annotations

import base64
import hashlib
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import jupyterhub
import pytest
import requests

from hub_extensions.core.sign_on.ended_sessions import session_hash
from tests.authenticator.signed_hub import CLOCK, COOKIE, EVERY_SECOND, copy_of, home, ids, rest, sessions
from tests.fakes.gate_of_ends import SECRET, GateOfEnds
from tests.hubs import Hub, until
from tests.patience import patient

pytestmark = pytest.mark.hub


def test_two_browsers_a_stolen_cookie_and_every_way_to_end_a_session(tmp_path: Path) -> None:
    gate = GateOfEnds()
    with gate.beside(), Hub(tmp_path / "hub", sessions(gate=(gate.url, SECRET))) as hub:
        first, second = hub.login("ada"), hub.login("ada")
        assert home(hub, first) == home(hub, second) == 200
        # a copy of the hub's own cookie is worth nothing without the session's
        stolen = copy_of(first, COOKIE)
        assert home(hub, stolen) == 302
        assert stolen.get(f"{hub.url}/hub/api/user", timeout=patient(20)).status_code == 403
        found = ids(hub, first, "ada")
        assert (len(found[True]), len(found[False])) == (1, 1)
        cookie = next(each for each in first.cookies if each.name == COOKIE)
        assert (cookie.path, len(cookie.value)) == ("/hub/", 43)
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert cookie.get_nonstandard_attr("SameSite") == "Lax"
        assert "secure" not in {name.lower() for name in cookie._rest} and not cookie.secure
        assert behind_https(hub).endswith("; Secure")
        assert cookie.value not in hub.log()
        assert cookie.value.encode() not in (hub.folder / "jupyterhub.sqlite").read_bytes()
        session_ids = {browser.cookies.get("jupyterhub-session-id", path="/") for browser in (first, second)}
        assert len(session_ids) == 2
        # a public id is no cookie
        forged = copy_of(first, COOKIE)
        forged.cookies.set(COOKIE, found[True][0], path="/hub/")
        assert home(hub, forged) == 302
        hubs_own = cookie_id(hub, "ada")
        # signing in again in the same browser makes everything new
        before = copy_of(second)
        again(hub, second, "ada")
        assert home(hub, second) == 200
        assert home(hub, before) == 302
        # a token goes on, before and after
        token = hub.token_of("ada")
        report = rest(hub, first, "DELETE", f"users/ada/sessions/{ids(hub, first, 'ada')[False][0]}")
        assert report.json()["gate_told"] is not None, "it has not waited long for it"
        over = session_hash(second.cookies.get("jupyterhub-session-id", path="/") or "")
        until(lambda: gate.heard[-1:] == [{"user": "ada", "sessions": [over]}], 20, "the gate hears of the end")
        assert (home(hub, first), home(hub, second)) == (200, 302)
        finnish = {"Accept-Language": "fi, en;q=0.5"}
        html = first.get(f"{hub.url}/hub/sso/sessions", headers=finnish, timeout=patient(20)).content.decode()
        assert "Missä olet kirjautuneena" in html
        assert re.search(r'lang="fi-FI"\s+href="/hub/sso/sessions">Istunnot<', html), "the hub's menu too"
        by_itself = {"Sec-Fetch-Mode": "cors"}
        asked = second.get(f"{hub.url}/hub/home", headers=by_itself, timeout=patient(20))
        assert "another browser" not in asked.text, "an open page asks: nobody reads it"
        page = second.get(f"{hub.url}/hub/home", timeout=patient(20))
        assert "You ended this session from another browser." in page.text
        assert "Sign in again" in page.text
        number = re.search(r"administrator: <code>([0-9a-f]{8})<", page.text)
        assert number and f'"session":"{number[1]}"' in hub.log(), "an admin finds it"
        assert "another browser" not in second.get(f"{hub.url}/hub/home", timeout=patient(20)).text, "said once"
        assert hub.api("GET", "user", token=token).json()["name"] == "ada"
        last = copy_of(first)
        assert cookie_id(hub, "ada") == hubs_own, "another browser has it too"
        picture = first.get(f"{hub.url}/hub/logout", headers={"Sec-Fetch-Dest": "image"}, timeout=patient(20))
        assert (picture.status_code, home(hub, first)) == (403, 200), "a picture in a notebook signs nobody out"
        first.get(f"{hub.url}/hub/logout", timeout=patient(20))
        assert home(hub, first) == home(hub, last) == 302
        assert hub.api("GET", "user", token=token).ok
        until(lambda: gate.heard[-1] == {"user": "ada", "sessions": None}, 20, "the gate hears of the sign-out")
        assert cookie_id(hub, "ada") != hubs_own, (
            "with the last one the hub's own cookie is worthless, to a stock hub too"
        )
        assert home(hub, hub.login("ada")) == 200


def cookie_id(hub: Hub, name: str) -> str:
    """What the hub's own cookie of this person has in it, in all browsers."""
    with closing(sqlite3.connect(hub.folder / "jupyterhub.sqlite")) as kept:
        [(found,)] = kept.execute("select cookie_id from users where name = ?", [name])
    return str(found)


def behind_https(hub: Hub) -> str:
    """The session's cookie as a proxy with HTTPS hands it out, with its attributes in order."""
    browser = requests.Session()
    url = f"http://127.0.0.1:{hub.hub_port}/hub/login"
    headers = {"X-Forwarded-Proto": "https", "Connection": "close"}
    page = browser.get(url, headers=headers, timeout=patient(20))
    xsrf = page.cookies.get("_xsrf", path="/hub/")
    answer = browser.post(
        url, {"username": "cem", "password": "any", "_xsrf": xsrf}, headers=headers, allow_redirects=False
    )
    [found] = [each for each in answer.raw.headers.getlist("Set-Cookie") if each.startswith(COOKIE)]
    return found


def again(hub: Hub, browser: requests.Session, name: str) -> None:
    """Sign in once more, without signing out."""
    browser.post(
        f"{hub.url}/hub/login",
        data={"username": name, "password": "any", "_xsrf": browser.headers["X-XSRFToken"]},
        timeout=patient(20),
        allow_redirects=False,
    )
    browser.headers["X-XSRFToken"] = browser.cookies.get("_xsrf", path="/hub/") or ""


def test_an_admin_ends_anybodys_sessions_and_nobody_else_does(tmp_path: Path) -> None:
    with Hub(tmp_path / "hub", sessions(APP)) as hub:
        admin, ada, ben = hub.login("root-admin"), hub.login("ada"), hub.login("ben")
        for method, path in (
            ("GET", "users/ada/sessions"),
            ("DELETE", "users/ada/sessions"),
            ("GET", "users/x/sessions"),
        ):
            assert rest(hub, ben, method, path).status_code == 404
        assert rest(hub, ben, "GET", "events").status_code == 403
        assert ben.get(f"{hub.url}/hub/sso/admin", timeout=patient(20)).status_code == 403
        assert rest(hub, ben, "DELETE", "users/ben/sessions?access_revoked=true").status_code == 403
        # an admin's request about ada, and one by a token, end nothing
        token = hub.token_of("ada")
        headers = {"Sec-Fetch-Mode": "same-origin"}
        assert admin.post(f"{hub.url}/hub/api/users/ada/server", headers=headers, timeout=patient(60)).ok
        hub.wait_ready("ada")
        assert admin.delete(f"{hub.url}/hub/api/users/ada/server", headers=headers, timeout=patient(60)).ok
        assert hub.api("GET", "user", token=token).ok
        assert home(hub, ada) == 200
        # tokens: an own one of all rights may, a server's may not
        assert hub.api("GET", "sso/users/ada/sessions", token=token).ok
        narrow = hub.api("POST", "users/ada/tokens", {"scopes": ["read:users!user=ada"]}).json()["token"]
        assert hub.api("GET", "sso/users/ada/sessions", token=narrow).status_code == 404
        assert hub.api("GET", "sso/users/ada/sessions").status_code == 404, "a service without our scope"
        admins = hub.api("GET", "sso/users/ada/sessions", token=hub.token_of("root-admin"))
        assert len(admins.json()["sessions"]) == 1
        report = rest(hub, admin, "DELETE", "users/ada/sessions")
        assert report.ok, report.text
        assert (len(report.json()["sessions"]), report.json()["tokens_kept"]) == (1, 2)
        assert (home(hub, ada), home(hub, ben), home(hub, admin)) == (302, 200, 200)
        page = ada.get(f"{hub.url}/hub/home", timeout=patient(20)).text
        assert "An admin ended this session." in page
        number = re.search(r"Number for an administrator:\s*<code>(\w{8})</code>", page)
        assert number and re.search(rf'"ended","user":"ada","session":"{number[1]}","by":"root-admin"', hub.log())
        assert hub.api("GET", "user", token=token).ok
        report = rest(hub, admin, "DELETE", "users/ada/sessions?access_revoked=true").json()
        assert (report["tokens"], report["tokens_kept"]) == (2, 0)
        assert hub.api("GET", "user", token=token).status_code == 403
        events = rest(hub, admin, "GET", "events?user=ada").json()["events"]
        assert [(each["kind"], each["by"], each["tokens"]) for each in events] == [
            ("ended", "root-admin", 2),
            ("ended", "root-admin", 0),
            ("signed-in", "", 0),
        ]
        # who is no admin any more has the right no more
        assert hub.api("PATCH", "users/root-admin", {"admin": False}, token=hub.token_of("root-admin")).ok
        assert rest(hub, admin, "GET", "users/ada/sessions").status_code == 404
        codes_are_good_once_and_for_their_app(hub, ben)
        # every form wants the hub's token
        assert '"kind":"ended","user":"ada"' in hub.log()
        without = copy_of(ben)
        answer = without.post(f"{hub.url}/hub/sso/sessions", data={"others": "yes"}, timeout=patient(20))
        assert answer.status_code == 403
        # a deleted account's sessions end with it
        assert hub.api("DELETE", "users/ben").ok
        assert home(hub, ben) == 302


APP = """
c.JupyterHub.oauth_require_pkce = True
c.JupyterHub.services.append({
    "name": "app", "api_token": "secret-of-the-app", "oauth_client_id": "service-app", "oauth_no_confirm": True,
    "oauth_redirect_uri": "http://127.0.0.1:9/services/app/oauth_callback",
})
c.JupyterHub.load_roles.append({"name": "user", "scopes": ["self", "access:services!service=app"]})
"""


def codes_are_good_once_and_for_their_app(hub: Hub, browser: requests.Session) -> None:
    """ASVS 10.4.1, 10.4.2, 10.4.3 and 10.4.6: the hub's own part, on which apps behind it rely."""
    verifier = "v" * 64
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    back = "http://127.0.0.1:9/services/app/oauth_callback"
    wanted = {"client_id": "service-app", "response_type": "code", "redirect_uri": back, "state": "s"}
    proof = {"code_challenge": challenge, "code_challenge_method": "S256"}

    def asked(**query: str) -> tuple[int, dict[str, str]]:
        url = f"{hub.url}/hub/api/oauth2/authorize"
        answer = browser.get(url, params=query, allow_redirects=False, timeout=patient(20))
        return answer.status_code, dict(parse_qsl(urlsplit(answer.headers.get("Location", "")).query))

    wrong = [{**wanted, **proof, "redirect_uri": f"{back}/other"}]
    if jupyterhub.version_info >= (6,):  # 5.5 cannot ask apps for PKCE
        wrong.append(wanted)
    for query in wrong:
        status, found = asked(**query)
        assert "code" not in found and (status >= 400 or "error" in found), query
    status, found = asked(**wanted, **proof)
    assert (status, found["state"]) == (302, "s")
    with sqlite3.connect(hub.folder / "jupyterhub.sqlite") as kept:
        [(expires,)] = kept.execute("select expires_at from oauth_codes")
    assert expires <= time.time() + 600
    grant = {"grant_type": "authorization_code", "code": found["code"], "redirect_uri": back, "code_verifier": verifier}
    client = {"client_id": "service-app", "client_secret": "secret-of-the-app"}
    token = f"{hub.url}/hub/api/oauth2/token"
    first, second = (requests.post(token, {**grant, **client}, timeout=patient(20)).status_code for _ in range(2))
    assert first == 200 and second >= 400


@pytest.mark.whole
def test_limits_end_sessions_and_neither_a_restart_nor_a_kill_ends_one(tmp_path: Path) -> None:
    limits = "c.SignOn.max_sessions = 2\nc.SignOn.idle_hours = 1\nc.SignOn.lifetime_hours = 3\n"
    with Hub(tmp_path / "hub", sessions(limits, CLOCK + EVERY_SECOND)) as hub:
        ahead = hub.folder / "ahead-seconds"
        one, two = hub.login("ada"), hub.login("ada")
        three = hub.login("ada")
        assert (home(hub, one), home(hub, two), home(hub, three)) == (302, 200, 200)
        assert "too many browsers" in one.get(f"{hub.url}/hub/home", timeout=patient(20)).text
        hub.kill()
        hub.start()
        assert (home(hub, one), home(hub, two), home(hub, three)) == (302, 200, 200)
        hub.terminate()
        ahead.write_text("3000")
        hub.start()
        assert (home(hub, two), home(hub, three)) == (200, 200)
        ahead.write_text("5000")
        assert home(hub, two) == 200
        ahead.write_text("7000")
        assert (home(hub, two), home(hub, three)) == (200, 302)
        assert "not used for too long" in three.get(f"{hub.url}/hub/home", timeout=patient(20)).text
        for seconds in ("10000", "10700"):
            ahead.write_text(seconds)
            assert home(hub, two) == 200
        ahead.write_text("10900")
        assert home(hub, two) == 302
        assert "longest time" in two.get(f"{hub.url}/hub/home", timeout=patient(20)).text
        # a limit ends a session without a visit, so that its tokens end too
        hub.login("ben")
        ahead.write_text("14600")
        until(lambda: re.search(r'"ended","user":"ben".*"cause":"idle"', hub.log()), what="the idle session ends")


@pytest.mark.whole
def test_who_has_set_the_authenticators_own_refresh_keeps_it(tmp_path: Path) -> None:
    """Also the one before a start, which the hub asks for once a request only, and which 6.1 answered with 500."""
    own = """
from jupyterhub.auth import DummyAuthenticator
from pathlib import Path
class AsksAProvider(DummyAuthenticator):
    refresh_pre_spawn = True
    async def refresh_user(self, user, handler=None):
        with Path("asked").open("a") as asked:
            asked.write(f"{user.name} {handler.request.path}\\n")
        return not Path("disabled").exists()
c.JupyterHub.authenticator_class = AsksAProvider
c.Authenticator.auth_refresh_age = 3600
"""
    with Hub(tmp_path / "hub", sessions(own)) as hub:
        ada = hub.login("ada")
        asked = hub.folder / "asked"
        assert home(hub, ada) == home(hub, ada) == 200
        assert not asked.exists()
        assert ada.get(f"{hub.url}/hub/spawn", timeout=patient(60)).ok
        assert asked.read_text() == "ada /hub/spawn\n"
        hub.wait_ready("ada")
        hub.stop_server("ada")
        until(lambda: hub.server("ada") is None)
        (hub.folder / "disabled").touch()
        answer = ada.get(f"{hub.url}/hub/spawn", timeout=patient(60))
        assert (answer.status_code, hub.server("ada")) == (403, None)
        assert home(hub, ada) == 200
        # switched off, the hub is as before: its own cookie alone is enough
        (hub.folder / "disabled").unlink()
        hub.terminate()
        hub.config.write_text(hub.config.read_text().replace("c.SignOn.enabled = True", "c.SignOn.enabled = False"))
        hub.start()
        assert home(hub, copy_of(ada, COOKIE)) == 200
        ben = hub.login("ben")
        assert home(hub, ben) == 200
        # switched on again: everybody signs in once; servers and tokens of before stay
        token = hub.token_of("ben")
        hub.spawn("ben")
        hub.wait_ready("ben")
        before = hub.server("ben")
        hub.kill()
        hub.config.write_text(hub.config.read_text().replace("c.SignOn.enabled = False", "c.SignOn.enabled = True"))
        hub.start()
        assert home(hub, ben) == 302
        assert hub.api("GET", "user", token=token).ok
        until(lambda: hub.ready("ben"), what="the hub knows the server again")
        after = hub.server("ben")
        assert before is not None and after is not None and after["started"] == before["started"]
