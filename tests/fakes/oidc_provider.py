"""A small OpenID provider of the tests' own: it signs in whoever `who` names, without a page, and counts what is asked.

    with OidcProvider() as provider:
        provider.add("ada", groups=["thesis"])

It runs in a thread. What it does wrong is a class with a name, set as `fault` for as long as a test wants it. What it
ever gave to anybody, and what nobody may see, is in `given`.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import secrets
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import jwt
import requests
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from tests.patience import patient
from tests.secret_notes import NotedSet, note

EVENT = "http://schemas.openid.net/event/backchannel-logout"
CLIENT, SECRET = "the-hub", "a client's secret with signs: ä+/&="
Claims = dict[str, Any]


def private_key(name: str, algorithm: str = "RS256") -> Any:
    """The same one for the same name, in this process."""
    return _made_key(name, algorithm if algorithm in ("EdDSA", "ES256") else "RSA")


@functools.cache
def _made_key(name: str, kind: str) -> Any:
    if kind == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    if kind == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(public_exponent=65537, key_size=1024 if name == "short" else 2048)


def public_jwk(name: str, algorithm: str = "RS256", **more: Any) -> Claims:
    public = private_key(name, algorithm).public_key()
    jwk = jwt.get_algorithm_by_name(algorithm).to_jwk(public, as_dict=True)
    return {**jwk, "kid": name, "use": "sig", **more}


class Fault:
    """What is changed of what it says. This one changes nothing."""

    def answers(self, handler: _Handler, path: str) -> bool:
        """Whether it has answered by itself."""
        return False

    def document(self, said: Claims) -> Claims:
        return said

    def keys(self, keys: list[Claims]) -> list[Claims]:
        return keys

    def redirect(self, query: dict[str, str]) -> dict[str, str]:
        return query

    def claims(self, claims: Claims) -> Claims:
        return claims

    def signed(self, header: Claims, claims: Claims, key: Any) -> str:
        return jwt.encode(claims, key, algorithm=header["alg"], headers=header)

    def tokens(self, said: Claims) -> Claims:
        return said

    def userinfo(self, said: Claims) -> Claims:
        return said


class ThatFails(Fault):
    """500 at one address, or at all."""

    def __init__(self, path: str = "", status: int = 500, body: str = "{}") -> None:
        self._path, self._status, self._body = path, status, body

    def answers(self, handler: _Handler, path: str) -> bool:
        if self._path and path != self._path:
            return False
        handler.set_status(self._status)
        handler.finish(self._body)
        return True


class ThatHangs(Fault):
    """It takes the request and says nothing."""

    def __init__(self, path: str = "") -> None:
        self._path = path

    def answers(self, handler: _Handler, path: str) -> bool:
        if self._path and path != self._path:
            return False
        handler.hanging = True
        return True


class ThatDies(Fault):
    """It takes the question and is killed."""

    def __init__(self, path: str) -> None:
        self._path = path

    def answers(self, handler: _Handler, path: str) -> bool:
        if path != self._path:
            return False
        handler.hanging = True
        handler.op.die()
        return True


class ThatRedirects(Fault):
    def __init__(self, path: str, to: str) -> None:
        self._path, self._to = path, to

    def answers(self, handler: _Handler, path: str) -> bool:
        if path != self._path:
            return False
        handler.redirect(self._to)
        return True


class ThatIsHuge(Fault):
    """So many bytes at one address."""

    def __init__(self, path: str, size: int) -> None:
        self._path, self._size = path, size

    def answers(self, handler: _Handler, path: str) -> bool:
        if path != self._path:
            return False
        handler.finish(b'{"keys": [], "x": "' + b"x" * self._size + b'"}')
        return True


class WithDocument(Fault):
    """Another document."""

    def __init__(self, **changed: Any) -> None:
        self._changed = changed

    def document(self, said: Claims) -> Claims:
        return {name: value for name, value in {**said, **self._changed}.items() if value is not None}


class WithManyKeys(Fault):
    def keys(self, keys: list[Claims]) -> list[Claims]:
        return keys * 1000


class WithClaims(Fault):
    """Other claims in its id tokens; None: left out."""

    def __init__(self, **changed: Any) -> None:
        self._changed = changed

    def claims(self, claims: Claims) -> Claims:
        return {name: value for name, value in {**claims, **self._changed}.items() if value is not None}


class WithOtherTokens(Fault):
    """Something else beside, or instead of, what the token address says; None: left out."""

    def __init__(self, **changed: Any) -> None:
        self._changed = changed

    def tokens(self, said: Claims) -> Claims:
        return {name: value for name, value in {**said, **self._changed}.items() if value is not None}


class WithUserinfo(Fault):
    def __init__(self, **changed: Any) -> None:
        self._changed = changed

    def userinfo(self, said: Claims) -> Claims:
        return {name: value for name, value in {**said, **self._changed}.items() if value is not None}


class WithNoName(Fault):
    """No name in the id token, and none in the user information."""

    def claims(self, claims: Claims) -> Claims:
        return {name: value for name, value in claims.items() if name != "preferred_username"}

    userinfo = claims


class WithRedirect(Fault):
    """Another query in the answer to a login; None: left out."""

    def __init__(self, **changed: str | None) -> None:
        self._changed = changed

    def redirect(self, query: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in {**query, **self._changed}.items() if value is not None}


class SignedWith(Fault):
    """Another key, another algorithm, another id of the key."""

    def __init__(self, key: str = "", algorithm: str = "", kid: str = "") -> None:
        self._key, self._algorithm, self._kid = key, algorithm, kid

    def signed(self, header: Claims, claims: Claims, key: Any) -> str:
        algorithm = self._algorithm or header["alg"]
        used: Any = private_key(self._key, algorithm) if self._key else key
        if algorithm == "none":
            used = None
        if algorithm.startswith("HS"):
            used = SECRET
        return jwt.encode(claims, used, algorithm=algorithm, headers={**header, "alg": algorithm} | self._id())

    def _id(self) -> Claims:
        return {"kid": self._kid} if self._kid else {}


class WithAnotherKeyOfTheSameId(Fault):
    """Its key was made anew, and has the id of the old one."""

    def __init__(self, key: str = "second") -> None:
        self._key = key

    def keys(self, keys: list[Claims]) -> list[Claims]:
        return [{**public_jwk(self._key), "kid": keys[0]["kid"]}, *keys[1:]]

    def signed(self, header: Claims, claims: Claims, key: Any) -> str:
        return super().signed(header, claims, private_key(self._key))


class OidcProvider:
    """One provider with one client."""

    def __init__(
        self, path: str = "", *, algorithm: str = "RS256", key: str = "first", tls: ssl.SSLContext | None = None
    ) -> None:
        self.people: dict[str, Claims] = {}
        self.disabled: set[str] = set()
        self.who = ""
        self.fault = Fault()
        self.asked: Counter[str] = Counter()
        self.queries: list[dict[str, str]] = []
        self.secrets = {SECRET}
        self.ahead = 0.0  # so many seconds is its clock ahead of this machine's
        self.backchannel = ""
        self.key, self.algorithm = key, algorithm
        self.codes: dict[str, Claims] = {}
        self.refresh_tokens: dict[str, Claims] = {}
        self.access_tokens: dict[str, Claims] = {}
        self.rotates, self.is_dead = True, False
        self.own_token = ""
        self.ended: set[str] = set()
        self.given = NotedSet("what a provider gave")
        note("client secret", SECRET)
        self._sockets = bind_sockets(0, "127.0.0.1")
        self._tls = tls
        self.host = f"{'https' if tls else 'http'}://127.0.0.1:{self._sockets[0].getsockname()[1]}"
        self.issuer = self.host + path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    # ------------------------------------------------------------------ what an admin of it does

    def add(self, name: str, sub: str = "", **claims: Any) -> str:
        """A person. Returns its `sub`; a second one of the name is another person."""
        sub = sub or f"u-{secrets.token_hex(4)}"
        self.people[sub] = {"sub": sub, "preferred_username": name, **claims}
        self.who = sub
        return sub

    def sessions_of(self, sub: str) -> list[str]:
        return [each["sid"] for each in self.refresh_tokens.values() if each["sub"] == sub]

    def logout_token(
        self, header: Claims | None = None, *, sign: Callable[..., str] | None = None, **changed: Any
    ) -> str:
        """One as it should be, save for what is changed; None: left out."""
        now = int(time.time() + self.ahead)
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 120, "jti": secrets.token_hex(8)}
        claims |= {"events": {EVENT: {}}} | changed
        claims = {name: value for name, value in claims.items() if value is not None}
        heads = {"alg": self.algorithm, "kid": self.key, "typ": "logout+jwt", **(header or {})}
        token = (sign or Fault().signed)(heads, claims, private_key(self.key, self.algorithm))
        self.given.add(token)
        return token

    def send_logout(self, **claims: Any) -> requests.Response:
        return requests.post(self.backchannel, data={"logout_token": self.logout_token(**claims)}, timeout=patient(30))

    def send_logout_and_die(self, **claims: Any) -> None:
        """It does not live to hear the answer."""
        to = urlsplit(self.backchannel)
        body = urlencode({"logout_token": self.logout_token(**claims)})
        head = f"POST {to.path} HTTP/1.1\r\nHost: {to.netloc}\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection((str(to.hostname), to.port or 80), patient(10)) as connection:
            connection.sendall(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}".encode())

    # ------------------------------------------------------------------ life

    def __enter__(self) -> OidcProvider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patient(10))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._listen()
        self._loop.run_forever()
        self._server.stop()

    def _listen(self) -> None:
        self._server = HTTPServer(Application([(r"/.*", _Handler, {"provider": self})]), ssl_options=self._tls)
        self._server.add_sockets(self._sockets)

    def die(self) -> None:
        """From a request: whoever is connected gets no answer, and nobody can connect. What it knows it keeps."""
        self.is_dead = True
        self._server.stop()
        self._loop.create_task(self._server.close_all_connections())

    def come_back(self) -> None:
        """At the same address."""
        self.is_dead = False
        self._sockets = bind_sockets(int(self.host.rpartition(":")[2]), "127.0.0.1")
        self._loop.call_soon_threadsafe(self._listen)

    # ------------------------------------------------------------------ what it answers

    def document(self) -> Claims:
        at = self.issuer.rstrip("/")
        return self.fault.document(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{at}/authorize",
                "token_endpoint": f"{at}/token",
                "jwks_uri": f"{at}/keys",
                "userinfo_endpoint": f"{at}/userinfo",
                "end_session_endpoint": f"{at}/end_session",
                "authorization_response_iss_parameter_supported": True,
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                "id_token_signing_alg_values_supported": [self.algorithm, "HS256", "none"],
            }
        )

    def keys(self) -> Claims:
        mine = [public_jwk(self.key, self.algorithm), public_jwk("encrypts", use="enc")]
        return {"keys": self.fault.keys(mine)}

    def tokens_for(self, login: Claims, *, refreshed: bool = False) -> Claims:
        access, refresh = secrets.token_hex(16), secrets.token_hex(16)
        now = int(time.time() + self.ahead)
        claims = {**self.people[login["sub"]], "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300}
        claims |= {"sid": login["sid"], "at_hash": _at_hash(self.algorithm, access)}
        if login["nonce"] and not refreshed:
            claims["nonce"] = login["nonce"]
        header = {"alg": self.algorithm, "kid": self.key}
        token = self.fault.signed(header, self.fault.claims(claims), private_key(self.key, self.algorithm))
        self.given |= {access, refresh, token}
        self.access_tokens[access] = login
        self.refresh_tokens[refresh] = login
        said = {"access_token": access, "refresh_token": refresh, "id_token": token, "token_type": "Bearer"}
        return self.fault.tokens({**said, "expires_in": 300, "scope": "openid"})

    def is_out(self, login: Claims) -> bool:
        return login["sub"] in self.disabled or login["sub"] not in self.people or login["sid"] in self.ended


def _at_hash(algorithm: str, token: str) -> str:
    digest = (hashlib.sha512 if algorithm == "EdDSA" else hashlib.sha256)(token.encode()).digest()
    return base64.urlsafe_b64encode(digest[: len(digest) // 2]).decode().rstrip("=")


class _Handler(RequestHandler):
    hanging = False

    def initialize(self, provider: OidcProvider) -> None:
        self.op = provider

    def log_exception(self, *_: Any) -> None:
        """Not in the tests' output."""

    async def prepare(self) -> None:
        path = self.request.path.rpartition("/")[2]
        if "/admin/users/" in self.request.path:
            path = "account"
        self.op.asked[path] += 1
        if self.op.fault.answers(self, path):
            if self.hanging:
                await asyncio.Event().wait()
            return
        await getattr(self, f"answer_{path.replace('-', '_')}", self.send_404)()

    async def send_404(self) -> None:
        self.send_error(404)

    async def answer_openid_configuration(self) -> None:
        self.finish(self.op.document())

    async def answer_keys(self) -> None:
        self.finish(self.op.keys())

    async def answer_authorize(self) -> None:
        asked = {name: self.get_argument(name, "") for name in self.request.arguments}
        self.op.queries.append(asked)
        self.op.given |= {asked[name] for name in ("state", "nonce", "code_challenge") if asked.get(name)}
        sid = self.get_cookie("op-session") or secrets.token_hex(8)
        self.set_cookie("op-session", sid)
        code = secrets.token_hex(16)
        self.op.given.add(code)
        self.op.codes[code] = {"sub": self.op.who, "sid": sid, "nonce": asked.get("nonce", ""), "asked": asked}
        query = self.op.fault.redirect({"code": code, "state": asked["state"], "iss": self.op.issuer})
        self.redirect(f"{asked['redirect_uri']}?{urlencode(query)}")

    async def answer_token(self) -> None:
        body = dict(parse_qsl(self.request.body.decode()))
        self.op.given |= {body["code_verifier"]} if body.get("code_verifier") else set()
        if not self._is_client(body):
            return self._error(401, "invalid_client")
        if body.get("grant_type") == "refresh_token":
            take = self.op.refresh_tokens.pop if self.op.rotates else self.op.refresh_tokens.get
            login = take(body.get("refresh_token", ""), None)
            if login is None or self.op.is_out(login):
                gone = login is not None and login["sub"] in self.op.disabled
                return self._error(400, "invalid_grant", "User disabled" if gone else "")
            return self._finish(self.op.tokens_for(login, refreshed=True))
        if body.get("grant_type") == "client_credentials":
            self.op.own_token = secrets.token_hex(16)
            self.op.given.add(self.op.own_token)
            return self._finish({"access_token": self.op.own_token, "token_type": "Bearer", "expires_in": 60})
        login = self.op.codes.pop(body.get("code", ""), None)
        if login is None or body.get("redirect_uri") != login["asked"]["redirect_uri"] or not _proved(body, login):
            return self._error(400, "invalid_grant")
        return self._finish(self.op.tokens_for(login))

    async def answer_userinfo(self) -> None:
        login = self.op.access_tokens.get(self.request.headers.get("Authorization", "").removeprefix("Bearer "))
        if login is None or self.op.is_out(login):
            return self._error(401, "invalid_token")
        return self._finish(self.op.fault.userinfo({**self.op.people[login["sub"]]}))

    async def answer_account(self) -> None:
        """As Keycloak's administration does."""
        if self.request.headers.get("Authorization") != f"Bearer {self.op.own_token}":
            return self._error(401, "HTTP 401 Unauthorized")
        sub = self.request.path.rpartition("/")[2]
        if sub not in self.op.people:
            self.set_status(404)
            return self._finish({"error": "User not found"})
        return self._finish({"id": sub, "enabled": sub not in self.op.disabled})

    async def answer_end_session(self) -> None:
        asked = {name: self.get_argument(name, "") for name in self.request.arguments}
        self.op.queries.append(asked)
        if not asked.get("id_token_hint"):
            self.finish("<p>Do you want to sign out?</p>")
            return
        sid = self.get_cookie("op-session") or ""
        self.op.ended.add(sid)
        self.clear_cookie("op-session")
        self.redirect(asked["post_logout_redirect_uri"] + "?" + urlencode({"state": asked.get("state", "")}))

    def _is_client(self, body: dict[str, str]) -> bool:
        given = self.request.headers.get("Authorization", "")
        if given.startswith("Basic "):
            # a plus is a plus, as Authlib reads it
            name, _, secret = base64.b64decode(given[6:]).decode().partition(":")
            return unquote(name) == CLIENT and unquote(secret) in self.op.secrets
        return body.get("client_id") == CLIENT and body.get("client_secret") in self.op.secrets

    def _finish(self, said: Claims) -> None:
        self.finish(said)

    def _error(self, status: int, error: str, description: str = "") -> None:
        self.set_status(status)
        self.finish({"error": error, "error_description": description or f"it is {error}"})


def _proved(body: dict[str, str], login: Claims) -> bool:
    digest = hashlib.sha256(body.get("code_verifier", "").encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=") == login["asked"].get("code_challenge")
