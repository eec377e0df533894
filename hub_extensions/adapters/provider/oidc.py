"""Client of an OpenID provider: its discovery document, its keys and its tokens.

Errors have three kinds with different consequences. `ProviderRefused`: it refused this person. `ProviderAway`: it gave
no usable answer, so nobody is signed out. `ProviderUnusable`: it answers, but the hub's settings do not fit it, so
nobody is signed out either.

Each answer is limited in bytes, seconds and keys. Redirects are not followed. Nothing is logged here, and no error
message contains a token, a code or a secret. ``core/sign_on`` checks the claims.
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
from tornado.simple_httpclient import HTTPTimeoutError

from hub_extensions.adapters.http_client import HttpClient, http_client
from hub_extensions.adapters.provider.provider_address import address_problem, origin_of
from hub_extensions.core.sign_on.answers import (
    About,
    Account,
    account_of_record,
    judge_token_error,
    judge_userinfo_error,
    refusal_sentence,
)
from hub_extensions.core.sign_on.claims import SIGNING_ALGORITHMS, algorithm_problem, quoted
from hub_extensions.core.sign_on.id_token import MAX_TOKEN_BYTES
from hub_extensions.core.sign_on.refusal import SignOnRefusal

DISCOVERY = "/.well-known/openid-configuration"
SECONDS = 10.0
"""Time limit of a complete answer."""
DOCUMENT_BYTES = 512 * 1024
"""Maximum size of an answer."""
MAX_KEYS = 100
KEY_RETRY_SECONDS = 60.0
"""Minimum time between two requests for the keys because of an unknown key."""
FIRST_KEYS_SECONDS = 1.0
"""Minimum time between two requests for the keys while no keys have been read yet."""
KEYS_SECONDS = 3600.0
"""Age at which keys and document are fetched again. While the provider is away, the old ones stay valid."""
MIN_RSA_BITS = 2048
OWN_TOKEN_SECONDS = 45.0
"""Time for which a token of our own client is reused. Keycloak's tokens live at least 60 s."""

_KINDS = {"RS": ("RSA", None), "PS": ("RSA", None), "ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519")}
"""Prefix of a signing algorithm's name -> type and curve that its keys must have."""


class ProviderRefused(Exception):
    """The provider refused this grant or this access token.

    Attributes:
        code: the provider's error code, or `MUST_ACT` if the person has to act at the provider, such as sign in again
            or change a password.
        description: the provider's complete error description, or the message of this exception.
    """

    def __init__(self, code: str, why: str, description: str = "") -> None:
        super().__init__(why)
        self.code = code
        self.description = description or why


class ProviderAway(Exception):
    """The provider cannot be reached, or its answer cannot be read. The message contains no secret."""


class ProviderUnreachable(ProviderAway):
    """The provider could not be connected or did not answer in time. Another request now would fail in the same way."""


class ProviderUnusable(Exception):
    """The provider answers but does not fit the hub's settings.

    Attributes:
        code: what does not fit; a key of `FAILURES`, which has the texts for users.
    """

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """The content of the provider's discovery document. An address is "" if the document does not contain the address.

    Attributes:
        authorization: address to which browsers are sent to sign in.
        token: address at which codes and refresh tokens are redeemed.
        keys: address of the signing keys (JWKS).
        userinfo: address of the userinfo endpoint.
        end_session: address to which browsers are sent to sign out.
    """

    issuer: str
    authorization: str
    token: str
    keys: str
    userinfo: str
    end_session: str
    names_itself: bool
    """The provider adds ``iss`` to the callback of a sign-in (RFC 9207)."""
    secret_in_body: bool
    """The provider accepts the client's secret in the body only, not in a header."""


@dataclass(frozen=True, slots=True)
class ProviderTokens:
    """The tokens that the provider issued for one session. They are not shown in logs.

    Attributes:
        access: the access token.
        id_token: "" if the provider issued none.
        refresh: the refresh token; "" if the provider issued none.
        scope: the granted scopes, separated by spaces; "" if the provider did not name them.
    """

    access: str = field(repr=False)
    id_token: str = field(default="", repr=False)
    refresh: str = field(default="", repr=False)
    scope: str = ""


class Provider:
    """Client of one OpenID provider, for sign-ins and re-checks of sessions."""

    def __init__(
        self,
        issuer: str,
        client_id: str,
        secrets: Sequence[str],
        *,
        algorithms: tuple[str, ...] = SIGNING_ALGORITHMS,
        ca_file: str = "",
        issuer_connect_url: str = "",
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Store the settings; no request is made yet.

        Args:
            issuer: the provider's issuer, exactly as in its discovery document.
            client_id: the id under which the provider knows the hub.
            secrets: the client's secret; two while it is being changed.
            algorithms: accepted signature algorithms of tokens.
            ca_file: file with certificates of the authorities to trust; "" for those of the system.
            issuer_connect_url: address at which the hub reaches what browsers reach at `issuer`; "" for the same one.
            seconds: time limit of an answer.
            clock: a monotonic clock in seconds.
        """
        self.issuer = issuer
        self._connect_url = issuer_connect_url.rstrip("/")
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
        self._keys_tried_at: float | None = None
        self._keys_lock = asyncio.Lock()
        self._own_token, self._own_token_until = "", 0.0
        self._client: HttpClient | None = None
        self._tls: ssl.SSLContext | None = None

    # ------------------------------------------------------------------ discovery document

    async def metadata(self) -> ProviderMetadata:
        """Return the discovery document. While the provider is away, the last document that was read is returned.

        Raises:
            ProviderAway: the document cannot be read, and none was read before.
            ProviderUnusable: the document does not fit the hub's settings.
        """
        if self._metadata is not None and self._clock() - self._metadata_at < KEYS_SECONDS:
            return self._metadata
        # a trailing slash of the issuer is not doubled, and remains part of the issuer (OpenID Connect Discovery, 4.1)
        try:
            document = await self._document((self._connect_url or self.issuer.rstrip("/")) + DISCOVERY)
            self._metadata = self._read_metadata(document)
            self._metadata_at = self._clock()
        except ProviderAway:
            if self._metadata is None:
                raise
            # try again after a pause, so that not each request waits for the provider
            self._metadata_at = self._clock() - KEYS_SECONDS + KEY_RETRY_SECONDS
        return self._metadata

    def _read_metadata(self, document: Mapping[str, Any]) -> ProviderMetadata:
        issuer = document.get("issuer")
        if issuer != self.issuer:
            raise ProviderUnusable(
                "other-issuer", f"The provider's document names the issuer {quoted(issuer)}, not {self.issuer!r}."
            )
        methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return ProviderMetadata(
            issuer=self.issuer,
            authorization=self._address(document, "authorization_endpoint"),
            token=self._address(document, "token_endpoint", asked_by_hub=True),
            keys=self._address(document, "jwks_uri", asked_by_hub=True),
            userinfo=self._address(document, "userinfo_endpoint", needed=False, asked_by_hub=True),
            end_session=self._address(document, "end_session_endpoint", needed=False),
            names_itself=document.get("authorization_response_iss_parameter_supported") is True,
            secret_in_body=isinstance(methods, list) and "client_secret_basic" not in methods,
        )

    def _address(
        self, document: Mapping[str, Any], name: str, *, needed: bool = True, asked_by_hub: bool = False
    ) -> str:
        value = document.get(name)
        if value is None and not needed:
            return ""
        if asked_by_hub and isinstance(value, str):
            value = self.inner_address(value)
            if self._connect_url and origin_of(value) == origin_of(self._connect_url):
                return value  # chosen by the admin, even without TLS
        problem = address_problem(value) if isinstance(value, str) else "is not there"
        if problem:
            raise ProviderUnusable("bad-document", f"The provider's document: {name} {problem}.")
        return str(value)

    def inner_address(self, address: str) -> str:
        """Return the address at which the hub reaches an address of the provider. Addresses on the issuer's host are
        replaced by those at `issuer_connect_url`, if it is set.
        """
        if not self._connect_url or origin_of(address) != origin_of(self.issuer):
            return address
        public, inner = urlsplit(self.issuer).path.rstrip("/"), urlsplit(self._connect_url)
        path = urlsplit(address).path
        if path == public or path.startswith(f"{public}/"):
            path = inner.path + path[len(public) :]
        return urlsplit(address)._replace(scheme=inner.scheme, netloc=inner.netloc, path=path).geturl()

    # ------------------------------------------------------------------ tokens

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> ProviderTokens:
        """Redeem a code. Raises ProviderRefused, ProviderAway, ProviderUnusable.

        Args:
            code: the authorization code that the browser brought back.
            verifier: the PKCE verifier of this sign-in.
            redirect_uri: the callback address of this sign-in.
        """
        grant = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        return await self._tokens({**grant, "code_verifier": verifier})

    async def refresh(self, refresh_token: str) -> ProviderTokens:
        """Renew a session's tokens. If the answer contains no new refresh token, the old one stays valid.

        Raises ProviderRefused, ProviderAway, ProviderUnusable.
        """
        return await self._tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})

    async def userinfo(self, access_token: str) -> Mapping[str, Any]:
        """Return the claims of the provider's userinfo endpoint; {} if the provider does not have that endpoint.

        Raises ProviderRefused, ProviderAway, ProviderUnusable.
        """
        address = (await self.metadata()).userinfo
        if not address:
            return {}
        answer = await self._fetch(address, headers={"Authorization": f"Bearer {access_token}"})
        if answer.code == 200:
            return _json_object(answer.body)
        no = judge_userinfo_error(answer.code, _json_of(answer), answer.headers.get("WWW-Authenticate", ""))
        if no.about is About.CLIENT:
            raise ProviderUnusable(
                "client-unknown", f"The user information does not take client_id ({quoted(no.code)})."
            )
        if no.about is About.PERSON:
            why = f"The provider does not take the access token any more ({quoted(no.description or no.code)})."
            raise ProviderRefused(no.code, why, no.description)
        raise ProviderAway(f"The provider's user information answers with {answer.code} ({quoted(no.code)}).")

    async def account(self, address: str, account: str, scope: str) -> Account | None:
        """Ask the provider's administration API about an account.

        Args:
            address: URL of this account's record.
            account: the account's id there.
            scope: scope of our client's own token (``client_credentials``) for the request; "" for none.

        Returns:
            The account's state: there, disabled or gone. `None` if the API could not be asked, or if its answer does
            not show the state of this account.
        """
        try:
            if self._clock() >= self._own_token_until:
                grant = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
                self._own_token = (await self._tokens(grant)).access
                self._own_token_until = self._clock() + OWN_TOKEN_SECONDS
            answer = await self._fetch(
                self.inner_address(address), headers={"Authorization": f"Bearer {self._own_token}"}
            )
        except (ProviderAway, ProviderRefused, ProviderUnusable):
            return None
        if answer.code == 401:
            self._own_token_until = 0.0
        try:
            record = json.loads(answer.body or b"")
        except (ValueError, RecursionError):
            record = None
        return account_of_record(answer.code, record, account)

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
            # RFC 6749, 2.3.1; a space is %20, because some providers do not decode "+"
            pair = ":".join(quote(each, safe="") for each in (self.client_id, secret))
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        answer = await self._fetch(metadata.token, headers=headers, body=urlencode(body))
        if answer.code == 200 and "error" not in (answered := _json_object(answer.body)):
            return _tokens_of(answered)
        raise _token_error(answer)  # GitHub's errors come with 200

    # ------------------------------------------------------------------ signatures

    async def verified(self, token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | SignOnRefusal:
        """Verify the signature of a token. Its claims are not checked yet.

        Returns:
            Header and claims of the token, or why the token is refused.

        Raises:
            ProviderAway, ProviderUnusable: the provider's keys cannot be read.
        """
        if len(token) > MAX_TOKEN_BYTES:
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
                "key", f"It is signed with a key that the provider does not name: {quoted(header.get('kid'))}."
            )
        claims = _signed_by(keys, token, header)
        if claims is None and await self._fetch_keys(since=self._keys_at):
            # a provider may have made another key with the same id
            claims = _signed_by(self._known_keys(header), token, header)
        if claims is None:
            return SignOnRefusal("signature", "Its signature is not the provider's.")
        return header, claims

    async def _keys_for(self, header: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Return the provider's keys that may have signed a token.

        Args:
            header: header of the token. If it names a key id, only that key is returned; otherwise the only key of the
                token's algorithm.
        """
        if self._keys_at is None or self._clock() - self._keys_at >= KEYS_SECONDS:
            await self._fetch_keys(since=self._keys_at)
        found = self._known_keys(header)
        if not found and await self._fetch_keys(since=self._keys_at):
            found = self._known_keys(header)
        return found

    def _known_keys(self, header: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        fitting = [key for key in self._keys if _fits(key, str(header["alg"]))]
        kid = header.get("kid")
        if kid is None:
            return fitting if len(fitting) == 1 else ()
        return [key for key in fitting if key.get("kid") == kid]

    async def _fetch_keys(self, since: float | None) -> bool:
        """Fetch the provider's keys again, at most once a minute.

        Args:
            since: when the keys that the caller knows were fetched; `None` if none were fetched yet.

        Returns:
            Whether there are newer keys than those that the caller knows.
        """
        async with self._keys_lock:
            if self._keys_at != since:
                return True  # another task has fetched them in the meantime
            last = self._keys_tried_at
            pause = FIRST_KEYS_SECONDS if self._keys_at is None else KEY_RETRY_SECONDS
            if last is not None and self._clock() - last < pause:
                if self._keys_at is None:
                    raise ProviderAway("The provider's keys could not be read a moment ago.")
                return False
            self._keys_tried_at = self._clock()
            try:
                document = await self._document((await self.metadata()).keys)
                self._keys = _read_keys(document)
                self._keys_at = self._keys_tried_at
            except (ProviderAway, ProviderUnusable):
                if self._keys_at is None:
                    raise
                return False  # the known keys stay valid
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
        return _json_object(answer.body)

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
                ssl_options=self._ssl_context(),
            )
            return await self._http().fetch(request, raise_error=False)
        except (HTTPClientError, HTTPInputError, HTTPOutputError, OSError, ValueError, asyncio.TimeoutError) as error:
            kind = ProviderUnreachable if _is_unreachable(error) else ProviderAway
            raise kind(f"{host} does not answer ({self._reason(error)}).") from error

    def _http(self) -> HttpClient:
        if self._client is None:
            self._client = http_client(at_once=32, max_bytes=DOCUMENT_BYTES)
        return self._client

    def _ssl_context(self) -> ssl.SSLContext | None:
        if self._ca_file and self._tls is None:
            self._tls = ssl.create_default_context(cafile=self._ca_file)
        return self._tls

    def _reason(self, error: Exception) -> str:
        if isinstance(error, asyncio.TimeoutError) or "Timeout" in str(error):
            return f"nothing within {self._seconds:g} s"
        return getattr(error, "strerror", None) or str(error)[:200] or type(error).__name__

    def close(self) -> None:
        """Close the connections to the OpenID provider. Can be called twice."""
        if self._client is not None:
            self._client.close()
            self._client = None


def ca_file_problem(path: str) -> str:
    """Return what is wrong with a file of certificates, as a text that follows the name ``ca_file``; "" if it is usable
    or not set.
    """
    try:
        if path:
            ssl.create_default_context(cafile=path)
    except OSError as problem:  # includes ssl.SSLError
        return f"{path!r} is no file with certificates that can be read here ({problem.strerror or problem})"
    return ""


def _is_unreachable(error: Exception) -> bool:
    """Return whether an error shows that another request would fail in the same way now.

    That is so if the provider could not be connected or did not answer in time. A connection that broke does not count.
    """
    broke = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
    return isinstance(error, (HTTPTimeoutError, asyncio.TimeoutError, OSError)) and not isinstance(error, broke)


def _json_of(answer: HTTPResponse) -> Mapping[str, Any]:
    """Return the JSON object of an answer; {} if it has another body."""
    try:
        return _json_object(answer.body)
    except ProviderAway:
        return {}


def _token_error(answer: HTTPResponse) -> Exception:
    """Return the exception for an answer in which the provider issued no tokens.

    The exception shows whether the provider refuses the person, refuses the hub as its client, or is away.
    """
    no = judge_token_error(answer.code, _json_of(answer))
    if no.about is About.PERSON:
        return ProviderRefused(no.code, refusal_sentence(no), no.description)
    if no.about is About.CLIENT:
        why = quoted(no.code) if no.code else "401"
        return ProviderUnusable("client-unknown", f"The provider does not take client_id and client_secret ({why}).")
    return ProviderAway(f"The provider's token address answers with {answer.code} ({quoted(no.code or None)}).")


def _tokens_of(answered: Mapping[str, Any]) -> ProviderTokens:
    texts = {name: answered.get(name) or "" for name in ("access_token", "id_token", "refresh_token", "scope")}
    if not texts["access_token"] or not all(isinstance(text, str) for text in texts.values()):
        raise ProviderAway("The provider's tokens cannot be read.")
    return ProviderTokens(texts["access_token"], texts["id_token"], texts["refresh_token"], texts["scope"])


def _json_object(body: bytes | None) -> Mapping[str, Any]:
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
    if len(keys) > MAX_KEYS:
        raise ProviderAway(f"The provider has {len(keys)} keys; at most {MAX_KEYS} are read.")
    return [key for key in keys if isinstance(key, dict) and key.get("use", "sig") == "sig"]


def _fits(key: Mapping[str, Any], algorithm: str) -> bool:
    """Return whether a key can be used with this algorithm. A symmetric key is never used."""
    kind, curve = _KINDS.get(algorithm) or _KINDS.get(algorithm[:2]) or ("", None)
    named = key.get("alg", algorithm)
    return key.get("kty") == kind and named == algorithm and (curve is None or key.get("crv") == curve)


def claims_of_token(token: str) -> Mapping[str, Any]:
    """Return the claims of a token without verifying it, because it was verified when it arrived; {} if it cannot be
    read.
    """
    try:
        return dict(jwt.decode(token, options={"verify_signature": False}))
    except (jwt.PyJWTError, ValueError, RecursionError):
        return {}


def _signed_by(keys: Sequence[Mapping[str, Any]], token: str, header: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the claims of a token that one of these keys signed; `None` if none of them did.

    Args:
        keys: the keys (JWK).
        token: the token.
        header: the header of the token, which names the algorithm.
    """
    found = (_claims_of(token, key, str(header["alg"])) for key in keys)
    return next((claims for claims in found if claims is not None), None)


def _claims_of(token: str, key: Mapping[str, Any], algorithm: str) -> Mapping[str, Any] | None:
    """Return the claims of a token if this key signed it, otherwise `None`."""
    try:
        ready = jwt.PyJWK({**key}, algorithm=algorithm).key
        if getattr(ready, "key_size", MIN_RSA_BITS) < MIN_RSA_BITS and key.get("kty") == "RSA":
            return None
        claims = json.loads(jwt.PyJWS().decode(token, ready, algorithms=[algorithm]))
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None
