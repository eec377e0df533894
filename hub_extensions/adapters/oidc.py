"""An OpenID provider: its document, its keys, and the tokens it gives.

Three things can go wrong, and what follows is another each time. `ProviderRefused`: it said no about this person.
`ProviderAway`: it said nothing that can be read, so nobody is signed out. `ProviderUnusable`: it is there, and what an
admin set does not fit it, so nobody is signed out either.

Every answer has an end: in bytes, in seconds, in keys. Nothing is redirected. Nothing here is logged; no error has a
token, a code or a secret in its text. Not here: what a token has to say (``core/sign_on``).
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import jwt
from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse
from tornado.httputil import HTTPInputError, HTTPOutputError
from tornado.simple_httpclient import HTTPTimeoutError, SimpleAsyncHTTPClient

from hub_extensions.adapters.provider_address import address_problem
from hub_extensions.core.sign_on.claims import SIGNING_ALGORITHMS, algorithm_problem, shown
from hub_extensions.core.sign_on.id_token import LARGEST_TOKEN
from hub_extensions.core.sign_on.refusal import SignOnRefusal

DISCOVERY = "/.well-known/openid-configuration"
SECONDS = 10.0
"""For one answer, whole."""
DOCUMENT_BYTES = 512 * 1024
"""The largest answer that is read."""
MOST_KEYS = 100
KEYS_ANEW_SECONDS = 60.0
"""A key that is not known is asked for at most so often."""
FIRST_KEYS_SECONDS = 1.0
"""The same while no key was ever read."""
KEYS_SECONDS = 3600.0
"""So old keys, and a document, are asked for again; what is there stays good while the provider is away."""
SHORTEST_RSA_BITS = 2048

_KINDS = {"RS": ("RSA", None), "PS": ("RSA", None), "ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}
"""How an algorithm's name begins -> the type and curve of its keys."""
_NOT_ABOUT_A_PERSON = {"invalid_client", "unauthorized_client"}


class ProviderRefused(Exception):
    """It said no: this grant, or this access token, is worth nothing any more. `code`: its own word."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


class ProviderAway(Exception):
    """It cannot be reached, or what it answers cannot be read. The text has no secret in it."""


class ProviderUnreachable(ProviderAway):
    """There was no connection, or no answer in time: who asks now waits as long for nothing."""


class ProviderUnusable(Exception):
    """It is there, and does not fit what is set here. `code`: a key of the pages' texts."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """What its document says. An address that it does not name is ""."""

    issuer: str
    authorization: str
    token: str
    keys: str
    userinfo: str
    end_session: str
    names_itself: bool
    """It puts ``iss`` into the answer of a login (RFC 9207)."""
    secret_in_body: bool
    """It does not take the client's secret in a header."""


@dataclass(frozen=True, slots=True)
class ProviderTokens:
    """What it gave. None of them is ever shown."""

    access: str = field(repr=False)
    id_token: str = field(default="", repr=False)
    refresh: str = field(default="", repr=False)
    scope: str = ""


class Provider:
    """One provider, as one client sees it."""

    def __init__(
        self,
        issuer: str,
        client_id: str,
        secrets: Sequence[str],
        *,
        algorithms: tuple[str, ...] = SIGNING_ALGORITHMS,
        ca_file: str = "",
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`secrets`: the client's; two of them while it is changed. `ca_file`: whose certificates; "": the system's."""
        self.issuer = issuer
        self.client_id = client_id
        self._secrets = list(secrets)
        self._algorithms = algorithms
        self._ca_file = ca_file
        self._seconds = seconds
        self._clock = clock
        self._metadata: ProviderMetadata | None = None
        self._metadata_at = 0.0
        self._keys: list[Mapping[str, Any]] = []
        self._keys_at: float | None = None
        self._asked_keys_at: float | None = None
        self._asking = asyncio.Lock()
        self._client: SimpleAsyncHTTPClient | None = None
        self._tls: ssl.SSLContext | None = None

    # ------------------------------------------------------------------ what it says of itself

    async def metadata(self) -> ProviderMetadata:
        """Its document. Raises ProviderAway and ProviderUnusable; while it is away, the last one is good."""
        if self._metadata is not None and self._clock() - self._metadata_at < KEYS_SECONDS:
            return self._metadata
        # a slash at the issuer's end is not doubled, and stays a part of its name (OpenID Connect Discovery, 4.1)
        try:
            document = await self._document(self.issuer.rstrip("/") + DISCOVERY)
            self._metadata = self._read_metadata(document)
            self._metadata_at = self._clock()
        except ProviderAway:
            if self._metadata is None:
                raise
            self._metadata_at = (
                self._clock() - KEYS_SECONDS + KEYS_ANEW_SECONDS
            )  # so that not everybody waits for it anew
        return self._metadata

    def _read_metadata(self, document: Mapping[str, Any]) -> ProviderMetadata:
        issuer = document.get("issuer")
        if issuer != self.issuer:
            raise ProviderUnusable(
                "other-issuer", f"The provider's document names the issuer {shown(issuer)}, not {self.issuer!r}."
            )
        methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return ProviderMetadata(
            issuer=self.issuer,
            authorization=self._address(document, "authorization_endpoint"),
            token=self._address(document, "token_endpoint"),
            keys=self._address(document, "jwks_uri"),
            userinfo=self._address(document, "userinfo_endpoint", needed=False),
            end_session=self._address(document, "end_session_endpoint", needed=False),
            names_itself=document.get("authorization_response_iss_parameter_supported") is True,
            secret_in_body=isinstance(methods, list) and "client_secret_basic" not in methods,
        )

    def _address(self, document: Mapping[str, Any], name: str, *, needed: bool = True) -> str:
        value = document.get(name)
        if value is None and not needed:
            return ""
        problem = address_problem(value) if isinstance(value, str) else "is not there"
        if problem:
            raise ProviderUnusable("bad-document", f"The provider's document: {name} {problem}.")
        return str(value)

    # ------------------------------------------------------------------ tokens

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> ProviderTokens:
        """The tokens for a login's code. Raises ProviderRefused, ProviderAway, ProviderUnusable."""
        grant = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        return await self._tokens({**grant, "code_verifier": verifier})

    async def refresh(self, refresh_token: str) -> ProviderTokens:
        """New tokens for a session's refresh token, which stays good where no new one comes. Raises as `exchange`."""
        return await self._tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})

    async def userinfo(self, access_token: str) -> Mapping[str, Any]:
        """What it says of a person now; nothing where it has no such address. Raises as `exchange`."""
        address = (await self.metadata()).userinfo
        if not address:
            return {}
        answer = await self._fetch(address, headers={"Authorization": f"Bearer {access_token}"})
        if answer.code == 401:
            raise ProviderRefused("invalid_token", "The provider does not take the access token any more.")
        if answer.code != 200:
            raise ProviderAway(f"The provider's user information answers with {answer.code}.")
        return _object(answer.body)

    async def _tokens(self, grant: Mapping[str, str]) -> ProviderTokens:
        metadata = await self.metadata()
        for secret in self._secrets[:-1]:
            try:
                return await self._tokens_with(secret, grant, metadata)
            except ProviderUnusable as problem:
                if problem.code != "client-unknown":
                    raise
        return await self._tokens_with(self._secrets[-1], grant, metadata)

    async def _tokens_with(self, secret: str, grant: Mapping[str, str], metadata: ProviderMetadata) -> ProviderTokens:
        headers, body = {"Content-Type": "application/x-www-form-urlencoded"}, dict(grant)
        if metadata.secret_in_body:
            body |= {"client_id": self.client_id, "client_secret": secret}
        else:
            # RFC 6749, 2.3.1; a space is %20, as some read no other
            pair = ":".join(quote(each, safe="") for each in (self.client_id, secret))
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        answer = await self._fetch(metadata.token, headers=headers, body=urlencode(body))
        if answer.code == 200:
            return _tokens_of(_object(answer.body))
        raise _no_tokens(answer)

    # ------------------------------------------------------------------ signatures

    async def verified(self, token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | SignOnRefusal:
        """Header and claims of a token that this provider signed, or why it did not. Raises as `metadata`.

        What the claims say has not been looked at.
        """
        if len(token) > LARGEST_TOKEN:
            return SignOnRefusal("size", f"The token is too large: {len(token)} bytes.")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, UnicodeError):
            return SignOnRefusal("no-token", "It is no signed token.")
        problem = algorithm_problem(header, self._algorithms)
        if problem is not None:
            return problem
        if "crit" in header:
            return SignOnRefusal("no-token", "Its header asks for something that is not known here (crit).")
        keys = await self._keys_for(header)
        if not keys:
            return SignOnRefusal(
                "key", f"It is signed with a key that the provider does not name: {shown(header.get('kid'))}."
            )
        for key in keys:
            claims = _claims_of(token, key, str(header["alg"]))
            if claims is not None:
                return header, claims
        return SignOnRefusal("signature", "Its signature is not the provider's.")

    async def _keys_for(self, header: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Those that may have signed it: with the same id; without an id, all that fit the algorithm."""
        if self._keys_at is None or self._clock() - self._keys_at >= KEYS_SECONDS:
            await self._ask_keys(since=self._keys_at)
        found = self._known_keys(header)
        if not found and await self._ask_keys(since=self._keys_at):
            found = self._known_keys(header)
        return found

    def _known_keys(self, header: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        fitting = [key for key in self._keys if _fits(key, str(header["alg"]))]
        kid = header.get("kid")
        if kid is None:
            return fitting if len(fitting) == 1 else ()
        return [key for key in fitting if key.get("kid") == kid]

    async def _ask_keys(self, since: float | None) -> bool:
        """Ask for them, at most once a minute, however many wait. Returns whether they are newer than `since`."""
        async with self._asking:
            if self._keys_at != since:
                return True  # somebody else has asked meanwhile
            last = self._asked_keys_at
            pause = FIRST_KEYS_SECONDS if self._keys_at is None else KEYS_ANEW_SECONDS
            if last is not None and self._clock() - last < pause:
                if self._keys_at is None:
                    raise ProviderAway("The provider's keys could not be read a moment ago.")
                return False
            self._asked_keys_at = self._clock()
            try:
                document = await self._document((await self.metadata()).keys)
                self._keys = _read_keys(document)
                self._keys_at = self._asked_keys_at
            except (ProviderAway, ProviderUnusable):
                if self._keys_at is None:
                    raise
                return False  # those that are there stay good
        return True

    # ------------------------------------------------------------------ HTTP

    async def _document(self, address: str) -> Mapping[str, Any]:
        answer = await self._fetch(address)
        if 300 <= answer.code < 400:
            raise ProviderUnusable("redirects", f"{address} redirects, which is not followed: set where it leads to.")
        if answer.code == 404 and address.endswith(DISCOVERY):
            raise ProviderUnusable("no-document", f"{address} is not there: the issuer is another.")
        if answer.code != 200:
            raise ProviderAway(f"{address} answers with {answer.code}.")
        return _object(answer.body)

    async def _fetch(self, address: str, *, headers: Mapping[str, str] = {}, body: str | None = None) -> HTTPResponse:
        host = urlsplit(address).hostname
        try:
            request = HTTPRequest(
                address,
                method="GET" if body is None else "POST",
                headers={"Accept": "application/json", "User-Agent": "jupyterhub-gpu", **headers},
                body=body,
                connect_timeout=self._seconds,
                request_timeout=self._seconds,
                follow_redirects=False,
                decompress_response=False,
                ssl_options=self._trusted(),
            )
            return await self._open().fetch(request, raise_error=False)
        except (HTTPClientError, HTTPInputError, HTTPOutputError, OSError, ValueError, asyncio.TimeoutError) as error:
            kind = ProviderUnreachable if _is_unreachable(error) else ProviderAway
            raise kind(f"{host} does not answer ({self._why(error)}).") from error

    def _open(self) -> SimpleAsyncHTTPClient:
        # not AsyncHTTPClient, which a hub may have set to curl: that one has no limit of an answer's size
        if self._client is None:
            self._client = SimpleAsyncHTTPClient(force_instance=True, max_clients=32, max_body_size=DOCUMENT_BYTES)
        return self._client

    def _trusted(self) -> ssl.SSLContext | None:
        if self._ca_file and self._tls is None:
            self._tls = ssl.create_default_context(cafile=self._ca_file)
        return self._tls

    def _why(self, error: Exception) -> str:
        if isinstance(error, asyncio.TimeoutError) or "Timeout" in str(error):
            return f"nothing within {self._seconds:g} s"
        return getattr(error, "strerror", None) or str(error)[:200] or type(error).__name__

    def close(self) -> None:
        """Close the connections. Can be called twice."""
        if self._client is not None:
            self._client.close()
            self._client = None


def ca_file_wrong(path: str) -> str:
    """Why this is no file of certificates, to stand behind ``ca_file``; "": it is one, or none is set."""
    try:
        if path:
            ssl.create_default_context(cafile=path)
    except OSError as problem:  # what ssl cannot read is one, too
        return f"{path!r} is no file with certificates that can be read here ({problem.strerror or problem})"
    return ""


def _is_unreachable(error: Exception) -> bool:
    """A connection that broke says nothing of the next one."""
    broke = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
    return isinstance(error, (HTTPTimeoutError, asyncio.TimeoutError, OSError)) and not isinstance(error, broke)


def _no_tokens(answer: HTTPResponse) -> Exception:
    """What an answer without tokens means."""
    try:
        answered = _object(answer.body)
    except ProviderAway:
        answered = {}
    error = answered.get("error")
    if 400 <= answer.code < 500 and error == "invalid_grant":
        return ProviderRefused(
            "invalid_grant", f"The provider says no: {shown(answered.get('error_description', error))}."
        )
    # a 401 here is about the client, whatever its words (RFC 6749, 5.2): some say "access_denied" for a wrong secret
    if answer.code == 401 or (400 <= answer.code < 500 and error in _NOT_ABOUT_A_PERSON):
        why = shown(error) if error else "401"
        return ProviderUnusable("client-unknown", f"The provider does not take client_id and client_secret ({why}).")
    return ProviderAway(f"The provider's token address answers with {answer.code} ({shown(error)}).")


def _tokens_of(answered: Mapping[str, Any]) -> ProviderTokens:
    texts = {name: answered.get(name) or "" for name in ("access_token", "id_token", "refresh_token", "scope")}
    if not texts["access_token"] or not all(isinstance(text, str) for text in texts.values()):
        raise ProviderAway("The provider's tokens cannot be read.")
    return ProviderTokens(texts["access_token"], texts["id_token"], texts["refresh_token"], texts["scope"])


def _object(body: bytes | None) -> Mapping[str, Any]:
    try:
        found = json.loads(body or b"")
    except (ValueError, RecursionError):
        raise ProviderAway("The provider's answer is no JSON.") from None
    if not isinstance(found, dict):
        raise ProviderAway("The provider's answer is no JSON object.")
    return found


def _read_keys(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    keys = document.get("keys")
    if not isinstance(keys, list):
        raise ProviderAway("The provider's keys cannot be read.")
    if len(keys) > MOST_KEYS:
        raise ProviderAway(f"The provider has {len(keys)} keys; at most {MOST_KEYS} are read.")
    return [key for key in keys if isinstance(key, dict) and key.get("use", "sig") == "sig"]


def _fits(key: Mapping[str, Any], algorithm: str) -> bool:
    """Whether a key is of this algorithm; one of the client's secret fits none."""
    kind, curve = _KINDS.get(algorithm) or _KINDS.get(algorithm[:2]) or ("", None)
    named = key.get("alg", algorithm)
    return key.get("kty") == kind and named == algorithm and (curve is None or key.get("crv") == curve)


def _claims_of(token: str, key: Mapping[str, Any], algorithm: str) -> Mapping[str, Any] | None:
    """What it says, where this key signed it."""
    try:
        ready = jwt.PyJWK({**key}, algorithm=algorithm).key
        if getattr(ready, "key_size", SHORTEST_RSA_BITS) < SHORTEST_RSA_BITS and key.get("kty") == "RSA":
            return None
        claims = json.loads(jwt.PyJWS().decode(token, ready, algorithms=[algorithm]))
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None
