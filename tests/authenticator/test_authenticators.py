"""Sessions with the authenticators that hubs have, each a real one: one test for all of them."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import jupyterhub
import pytest
import requests

from tests.authenticator.signed_hub import COOKIE, copy_of, home, ids, rest, sessions
from tests.hubs import Hub, free_port
from tests.machine_needs import slapd
from tests.patience import patient

pytestmark = pytest.mark.hub
ADA, ADMIN, PASSWORD = "ada", "root-admin", "correct horse battery"


class GitHub:
    """Who is `who` there, as far as GitHubOAuthenticator asks."""

    def __init__(self) -> None:
        self.who = ADA
        outer = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                place = urlsplit(self.path)
                if place.path != "/authorize":
                    return self.say({"login": outer.who, "id": 1, "name": None, "email": None})
                asked = parse_qs(place.query)
                back = f"{asked['redirect_uri'][0]}?{urlencode({'code': 'c', 'state': asked['state'][0]})}"
                self.send_response(302)
                self.send_header("Location", back)
                self.end_headers()
                return None

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.say({"access_token": "token-of-github", "token_type": "bearer", "scope": ""})

            def say(self, answer: dict[str, object]) -> None:
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", free_port()), Answers)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @contextmanager
    def running(self) -> Iterator[str]:
        thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        thread.start()
        yield self.url
        self.server.shutdown()
        self.server.server_close()
        thread.join(patient(5))


DIRECTORY = """
objectclass ( 1.3.6.1.4.1.4203.666.11.1 NAME 'entry' SUP top STRUCTURAL MAY ( cn $ uid $ userPassword ) )
pidfile {folder}/pid
database ldif
suffix "cn=site"
directory {folder}/entries
"""
PEOPLE = "dn: cn=site\nobjectClass: entry\ncn: site\n" + "".join(
    f"\ndn: uid={name},cn=site\nobjectClass: entry\nuid: {name}\nuserPassword: {PASSWORD}\n" for name in (ADA, ADMIN)
)


@contextmanager
def directory(folder: Path) -> Iterator[int]:
    """A small slapd with two people; its port."""
    (folder / "entries").mkdir(parents=True)
    (folder / "slapd.conf").write_text(DIRECTORY.format(folder=folder))
    (folder / "people.ldif").write_text(PEOPLE)
    program, conf, port = str(slapd()), str(folder / "slapd.conf"), free_port()
    subprocess.run([program, "-T", "add", "-f", conf, "-l", str(folder / "people.ldif")], check=True)
    process = subprocess.Popen([program, "-d", "0", "-f", conf, "-h", f"ldap://127.0.0.1:{port}"])
    try:
        yield port
    finally:
        process.terminate()
        process.wait(patient(10))


@dataclass
class Kind:
    """An authenticator. `config`: as an admin writes it. `can_refresh`: it is asked whether an account still exists."""

    config: str
    user: str = ADA
    admin: str = ADMIN
    can_refresh: bool = False


KINDS = {
    "shared-password": Kind(f"""
c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = {PASSWORD!r}
c.SharedPasswordAuthenticator.admin_password = {PASSWORD * 2!r}
"""),
    # the accounts of the machine are real; their passwords are nobody's business
    "pam": Kind(
        """
import pamela
pamela.authenticate = lambda name, password, service="login", **more: None
pamela.open_session = pamela.close_session = lambda *some, **more: None
pamela.check_account = lambda *some, **more: None
c.JupyterHub.authenticator_class = "pam"
c.PAMAuthenticator.create_system_users = False
c.Authenticator.admin_users = {"daemon"}
""",
        user="nobody",
        admin="daemon",
    ),
    "native": Kind("""
import os, sys, types
sys.modules.setdefault("onetimepass", types.ModuleType("onetimepass"))  # its second factor, which has no wheel
import nativeauthenticator
c.JupyterHub.authenticator_class = "native"
c.NativeAuthenticator.open_signup = True
c.JupyterHub.template_paths = [os.path.join(os.path.dirname(nativeauthenticator.__file__), "templates")]
"""),
    "ldap": Kind("""
c.JupyterHub.authenticator_class = "ldap"
c.LDAPAuthenticator.server_address = "127.0.0.1"
c.LDAPAuthenticator.server_port = {port}
c.LDAPAuthenticator.tls_strategy = "insecure"
c.LDAPAuthenticator.bind_dn_template = ["uid={{username}},cn=site"]
c.LDAPAuthenticator.allow_all = True
"""),
    "github": Kind(
        """
c.JupyterHub.authenticator_class = "github"
c.GitHubOAuthenticator.client_id = "hub"
c.GitHubOAuthenticator.client_secret = "secret-of-github"
c.GitHubOAuthenticator.authorize_url = "{url}/authorize"
c.GitHubOAuthenticator.token_url = "{url}/token"
c.GitHubOAuthenticator.userdata_url = "{url}/user"
""",
        can_refresh=True,
    ),
    "header": Kind("""
from jupyterhub.auth import Authenticator
class HeaderAuthenticator(Authenticator):
    # as behind a proxy that says who it is
    auto_login = True
    async def authenticate(self, handler, data):
        return handler.request.headers.get("Remote-User")
c.JupyterHub.authenticator_class = HeaderAuthenticator
"""),
    "login-handler": Kind("""
from jupyterhub.auth import Authenticator
from jupyterhub.handlers import BaseHandler
class CallbackHandler(BaseHandler):
    # signs in by `set_login_cookie` alone, as some authenticators do
    def get(self):
        user = self.user_from_username(self.request.headers["Remote-User"])
        user.admin = user.name == "root-admin"
        self.set_login_cookie(user)
        self.redirect(self.get_next_url())
class CallbackAuthenticator(Authenticator):
    auto_login = True
    def login_url(self, base_url):
        return base_url.rstrip("/") + "/callback"
    def get_handlers(self, app):
        return [("/callback", CallbackHandler)]
c.JupyterHub.authenticator_class = CallbackAuthenticator
"""),
}
ON_5 = ("native", "github")
"""One with pages of its own, which JupyterHub 6 breaks (its sign-in asks for a `statsd` that is gone), and one
by a provider."""
NAMES = [name for name in KINDS if name != "native"] if jupyterhub.version_info >= (6,) else ON_5
NEEDS = {"ldap": pytest.mark.needs("slapd")}


@pytest.mark.whole
@pytest.mark.parametrize("kind", [pytest.param(name, marks=NEEDS.get(name, ())) for name in NAMES])
def test_whatever_the_authenticator_a_session_begins_ends_and_is_told_of(tmp_path: Path, kind: str) -> None:
    here, provider = KINDS[kind], GitHub()
    with ExitStack() as stack:
        config = here.config
        if kind == "github":
            config = config.format(url=stack.enter_context(provider.running()))
        if kind == "ldap":
            config = config.format(port=stack.enter_context(directory(tmp_path / "slapd")))
        hub = stack.enter_context(Hub(tmp_path / "hub", sessions(f"{config}\nc.SignOn.max_sessions = 2\n")))

        def sign_in(name: str = here.user) -> requests.Session:
            provider.who = name
            return signed_in(hub, kind, name)

        if kind == "shared-password":
            refused(hub)
        if kind == "github":
            comes_back_wrong(hub)
        if kind == "native":
            for name in (ADA, ADMIN):
                signed_up(hub, name)
        # the number is a limit: the oldest of three goes, and is told why; a copy of the hub's cookie is worth nothing
        oldest, one, two = sign_in(), sign_in(), sign_in()
        assert [home(hub, each) for each in (oldest, one, two)] == [302, 200, 200]
        assert "too many browsers" in said(hub, oldest), "and nobody is signed in again by itself"
        assert home(hub, copy_of(one, COOKIE)) == 302
        # end one, end all
        name = here.user
        assert rest(hub, two, "DELETE", f"users/{name}/sessions/{ids(hub, two, name)[False][0]}").ok
        assert (home(hub, one), home(hub, two)) == (302, 200)
        assert "You ended this session from another browser." in said(hub, one)
        assert rest(hub, two, "DELETE", f"users/{name}/sessions").ok
        assert home(hub, two) == 302
        # an admin ends them, and reads what this authenticator cannot do
        again, admin = sign_in(), sign_in(here.admin)
        assert rest(hub, again, "GET", f"users/{here.admin}/sessions").status_code == 404
        page = admin.get(f"{hub.url}/hub/sso/admin", timeout=patient(20)).text
        assert ("cannot say when an account ends" in page) is not here.can_refresh
        assert rest(hub, admin, "DELETE", f"users/{name}/sessions").ok
        assert (home(hub, again), home(hub, admin)) == (302, 200)
        assert "An admin ended this session." in said(hub, again)


def signed_in(hub: Hub, kind: str, name: str) -> requests.Session:
    if kind in ("shared-password", "pam", "native", "ldap"):
        return hub.login(name, PASSWORD * 2 if (kind, name) == ("shared-password", ADMIN) else PASSWORD)
    browser = requests.Session()
    browser.headers.update({"Remote-User": name, "Connection": "close"})
    start = "oauth_login?next=%2Fhub%2Fhome" if kind == "github" else "home"
    assert browser.get(f"{hub.url}/hub/{start}", timeout=patient(20)).url.endswith("/hub/home")
    browser.headers["X-XSRFToken"] = browser.cookies.get("_xsrf", path="/hub/") or ""
    return browser


def signed_up(hub: Hub, name: str) -> None:
    """As NativeAuthenticator's own page does it."""
    browser = requests.Session()
    page = browser.get(f"{hub.url}/hub/signup", timeout=patient(20))
    data = {"username": name, "signup_password": PASSWORD, "signup_password_confirmation": PASSWORD}
    data["_xsrf"] = page.cookies.get("_xsrf", path="/hub/") or ""
    assert browser.post(f"{hub.url}/hub/signup", data=data, timeout=patient(20)).ok


def said(hub: Hub, browser: requests.Session) -> str:
    """What a browser reads that comes back."""
    return browser.get(f"{hub.url}/hub/home", timeout=patient(20)).text


def refused(hub: Hub) -> None:
    """A wrong password is written down, without the name that was typed."""
    browser = requests.Session()
    browser.get(f"{hub.url}/hub/login", timeout=patient(20))
    data = {"username": "my-secret", "password": "wrong", "_xsrf": browser.cookies.get("_xsrf", path="/hub/")}
    assert browser.post(f"{hub.url}/hub/login", data=data, timeout=patient(20)).status_code == 403
    [line] = [line for line in hub.log().splitlines() if '"kind":"refused"' in line]
    assert '"user":null' in line


def comes_back_wrong(hub: Hub) -> None:
    """What a provider sent with somebody whose sign-in did not begin here is not written down."""
    answer = requests.get(
        f"{hub.url}/hub/oauth_callback",
        params={"code": "code-of-somebody", "state": "state-of-somebody"},
        timeout=patient(20),
    )
    assert answer.status_code == 400
    assert "400 GET /hub/oauth_callback?code=[secret]&state=[secret]" in hub.log()
    assert "-of-somebody" not in hub.log()
