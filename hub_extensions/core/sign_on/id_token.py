"""What an id token has to say (OpenID Connect Core 1.0, sections 3.1.3.7 and 12.2), after its signature was checked.

At a login it comes from the provider itself a moment ago, so a time that does not fit is a clock that is off, and the
refusal says by how much. One from a refresh has no nonce and no hash of an access token, and is of the same person.
Not here: keys and signatures (``adapters/provider/oidc.py``), and who that person is here (``identity.py``).
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
    shown,
    text_of,
    time_of,
)
from hub_extensions.core.sign_on.refusal import SignOnRefusal

LARGEST_TOKEN = 64 * 1024
"""Bytes of an id token as it is sent."""

_HASHES = {"256": hashlib.sha256, "384": hashlib.sha384, "512": hashlib.sha512}


@dataclass(frozen=True, slots=True)
class Expected:
    """What we know before we read it.

    Attributes:
        nonce: what we sent at the login's begin; None: a refresh, for which nothing was sent.
        access_token: what came with it; None: nothing that it would have a hash of.
        sub: whose it has to be; "": a login, nobody's yet.
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
    """Who signed in. `sid`: which session at the provider; "": it does not say."""

    iss: str
    sub: str
    sid: str
    claims: Claims


def judge_id_token(header: Claims, claims: Claims, expected: Expected, now: datetime) -> IdToken | SignOnRefusal:
    """Who signed in, or why we do not believe it. Its signature has been checked."""
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
    if expected.sub and not same(sub, expected.sub):
        return SignOnRefusal("subject", "It is about somebody else (sub) than the one it was asked for.")
    return IdToken(expected.issuer, sub, text_of(claims, "sid"), claims)


def userinfo_problem(claims: Claims, sub: str) -> SignOnRefusal | None:
    """Whether what the provider says about a person is about this one."""
    if not text_of(claims, "sub"):
        return SignOnRefusal("no-subject", "The provider's user information does not say whom it is about (sub).")
    if not same(text_of(claims, "sub"), sub):
        return SignOnRefusal("subject", "The provider's user information is about somebody else (sub).")
    return None


def same(one: str, other: str) -> bool:
    """Compared without telling by the time how much of it is right. Nothing is the same as nothing."""
    return bool(one) and hmac.compare_digest(one.encode(), other.encode())


def _party_problem(claims: Claims, client_id: str) -> SignOnRefusal | None:
    """``azp`` says who asked for it; with several audiences it has to."""
    asked_by = claims.get("azp")
    if asked_by is None and len(audience_of(claims) or ()) == 1:
        return None
    if asked_by != client_id:
        return SignOnRefusal("audience", f"It was made for {shown(asked_by)} (azp), not for {client_id!r}.")
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
    if nonce is not None and not same(text_of(claims, "nonce"), nonce):
        return SignOnRefusal("nonce", "Its nonce is not the one of this login, or there is none.")
    return None


def _hash_problem(header: Claims, claims: Claims, access_token: str | None) -> SignOnRefusal | None:
    """``at_hash`` need not be there with a code; where it is, it fits the access token."""
    if access_token is None or "at_hash" not in claims:
        return None
    if not same(text_of(claims, "at_hash"), hash_of_token(str(header["alg"]), access_token)):
        return SignOnRefusal("at-hash", "It belongs to another access token (at_hash).")
    return None


def hash_of_token(algorithm: str, token: str) -> str:
    """``at_hash``: the first half of the hash with which the algorithm signs. That of EdDSA is SHA-512 (Ed25519)."""
    digest = _HASHES.get(algorithm[-3:], hashlib.sha512)(token.encode()).digest()
    return base64.urlsafe_b64encode(digest[: len(digest) // 2]).decode().rstrip("=")
