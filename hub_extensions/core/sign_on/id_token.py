"""Check the claims of an id token whose signature is valid (OpenID Connect Core 1.0, sections 3.1.3.7 and 12.2).

At a sign-in the token comes directly from the provider. A wrong time in it means that a clock is off, and the refusal
reports by how much. A token from a refresh contains neither a nonce nor a hash of an access token, and has to name the
same person as before.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta

from hub_extensions.core.sign_on.claims import (
    Claims,
    algorithm_problem,
    audience_of,
    audience_problem,
    clock_refusal,
    issuer_problem,
    quoted,
    text_of,
    time_of,
)
from hub_extensions.core.sign_on.refusal import SignOnRefusal

MAX_TOKEN_BYTES = 64 * 1024
"""Maximum size of an encoded id token in bytes."""

_HASHES = {"256": hashlib.sha256, "384": hashlib.sha384, "512": hashlib.sha512}


@dataclass(frozen=True, slots=True)
class Expected:
    """The values with which the claims of an id token are compared.

    Attributes:
        issuer: the provider's issuer URL.
        client_id: id of our client at the provider.
        algorithms: allowed signature algorithms.
        leeway: how much clocks may differ.
        nonce: the nonce that this sign-in sent; `None` at a refresh, which does not send a nonce.
        access_token: the access token that came with the id token; `None` skips the check of its hash.
        sub: the subject (person) that a refresh has to name; "" at a sign-in, which accepts any.
    """

    issuer: str
    client_id: str
    algorithms: tuple[str, ...]
    leeway: timedelta
    nonce: str | None = None
    access_token: str | None = None
    sub: str = ""


@dataclass(frozen=True, slots=True)
class IdToken:
    """The person who signed in, from a verified id token.

    Attributes:
        iss, sub: issuer and subject, which identify the person.
        sid: id of the session at the provider; "" if the token does not name it.
        claims: all claims of the token.
    """

    iss: str
    sub: str
    sid: str
    claims: Claims


def judge_id_token(header: Claims, claims: Claims, expected: Expected, now: datetime) -> IdToken | SignOnRefusal:
    """Return the person who signed in, or the reason why the token is refused.

    The caller has already verified the token's signature.
    """
    problem = (
        algorithm_problem(header, expected.algorithms)
        or issuer_problem(claims, expected.issuer)
        or audience_problem(claims, expected.client_id)
        or _party_problem(claims, expected.client_id)
        or _time_problem(claims, expected.leeway, now)
        or _nonce_problem(claims, expected.nonce)
        or _hash_problem(header, claims, expected.access_token)
    )
    if problem is not None:
        return problem
    sub = text_of(claims, "sub")
    if not sub:
        return SignOnRefusal("subject", "It does not say who signed in (sub).")
    if expected.sub and not equal_in_constant_time(sub, expected.sub):
        return SignOnRefusal("subject", "It is about somebody else (sub) than the one it was asked for.")
    return IdToken(expected.issuer, sub, text_of(claims, "sid"), claims)


def userinfo_problem(claims: Claims, sub: str) -> SignOnRefusal | None:
    """Check that the user information is about the person `sub`. Return the refusal, or `None` if it is."""
    if not text_of(claims, "sub"):
        return SignOnRefusal("no-subject", "The provider's user information does not say whom it is about (sub).")
    if not equal_in_constant_time(text_of(claims, "sub"), sub):
        return SignOnRefusal("subject", "The provider's user information is about somebody else (sub).")
    return None


def equal_in_constant_time(one: str, other: str) -> bool:
    """Compare two texts in constant time. An empty `one` equals nothing, so that a missing claim never matches."""
    return bool(one) and hmac.compare_digest(one.encode(), other.encode())


def _party_problem(claims: Claims, client_id: str) -> SignOnRefusal | None:
    """Check ``azp``, the client that requested the token. Return the refusal, or `None` if it is our client.

    ``azp`` may be missing if the token has only one audience.
    """
    asked_by = claims.get("azp")
    if asked_by is None and len(audience_of(claims) or ()) == 1:
        return None
    if asked_by != client_id:
        return SignOnRefusal("audience", f"It was made for {quoted(asked_by)} (azp), not for {client_id!r}.")
    return None


def _time_problem(claims: Claims, leeway: timedelta, now: datetime) -> SignOnRefusal | None:
    issued, expires = time_of(claims, "iat"), time_of(claims, "exp")
    if issued is None or expires is None:
        return SignOnRefusal("times", "It does not say when it was issued and until when it is good (iat, exp).")
    if issued > now + leeway:
        return clock_refusal(issued - now, "It is from the future")
    if expires <= now - leeway:
        return clock_refusal(issued - now, "It has expired")
    if "nbf" not in claims:
        return None
    begins = time_of(claims, "nbf")
    if begins is None or begins > now + leeway:
        return clock_refusal((begins or now) - now, "It is not good yet (nbf)")
    return None


def _nonce_problem(claims: Claims, nonce: str | None) -> SignOnRefusal | None:
    if nonce is not None and not equal_in_constant_time(text_of(claims, "nonce"), nonce):
        return SignOnRefusal("nonce", "Its nonce is not the one of this login, or there is none.")
    return None


def _hash_problem(header: Claims, claims: Claims, access_token: str | None) -> SignOnRefusal | None:
    """Check the id token's claim ``at_hash``: the hash of the access token that came with the id token.

    The claim may be missing, because it is optional in the code flow.

    Args:
        access_token: the access token; `None` skips the check.

    Returns:
        The refusal; `None` if the hash is right or missing, or if the check is skipped.
    """
    if access_token is None or "at_hash" not in claims:
        return None
    if not equal_in_constant_time(text_of(claims, "at_hash"), hash_of_token(str(header["alg"]), access_token)):
        return SignOnRefusal("at-hash", "It belongs to another access token (at_hash).")
    return None


def hash_of_token(algorithm: str, token: str) -> str:
    """Return the value of ``at_hash`` for an access token: the first half of its hash, in base64url.

    Args:
        algorithm: the id token's ``alg``, which selects the hash. EdDSA uses SHA-512 (Ed25519).
        token: the access token.
    """
    digest = _HASHES.get(algorithm[-3:], hashlib.sha512)(token.encode()).digest()
    return base64.urlsafe_b64encode(digest[: len(digest) // 2]).decode().rstrip("=")
