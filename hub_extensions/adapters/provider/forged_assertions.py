"""Assertions that no app may accept, for the audit and the tests: forged ones, and real ones that are old or not for
the app.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from hub_extensions.adapters.provider.assertions import AssertionKey
from hub_extensions.core.sign_on.audit import CANARY


def forged_assertions(app: str, issuer: str, kid: str) -> Iterator[tuple[str, str]]:
    """Yield a description and an assertion for each forgery: unsigned, or signed with a key that is not the gate's.

    Args:
        app: name of the app for which the assertions claim to be.
        issuer: address of the apps' host.
        kid: id of the gate's signing key, which the forged assertions name.
    """
    now, name = int(time.time()), issuer.rstrip("/")
    fresh: dict[str, Any] = {"iss": name, "aud": app, "sub": CANARY, "groups": ["admins"], "iat": now, "exp": now + 60}
    old, other = {**fresh, "iat": now - 9000, "exp": now - 8940}, {**fresh, "aud": "another"}
    key = ec.generate_private_key(ec.SECP256R1())
    yield from forged_tokens(fresh, kid, key)
    yield "old", jwt.encode(old, key, "ES256", {"kid": kid})
    yield "of another app", jwt.encode(other, key, "ES256", {"kid": kid})


def forged_tokens(
    claims: dict[str, Any], kid: str, key: ec.EllipticCurvePrivateKey | None = None
) -> Iterator[tuple[str, str]]:
    """Yield a description and a token for each way to forge a token without the secret key of its signer.

    Args:
        claims: the claims of the token.
        kid: id of the signer's key, which the forged tokens name.
        key: the key with which a signature is forged; `None` for a new one.
    """
    yield "alg none", jwt.encode(claims, "", "none")
    forger = key or ec.generate_private_key(ec.SECP256R1())
    yield "the gate's key id, another key", jwt.encode(claims, forger, "ES256", {"kid": kid})
    yield "HS256", jwt.encode(claims, secrets.token_bytes(32), "HS256", {"kid": kid})


def true_assertions(app: str, issuer: str, key: AssertionKey) -> Iterator[tuple[str, str]]:
    """Yield a description and an assertion, signed with the gate's key, that the app has to refuse.

    One assertion is for another app, and one has expired.

    Args:
        app: name of the app that has to refuse the assertions.
        issuer: address of the apps' host.
        key: the gate's signing key.
    """
    now, name = int(time.time()), issuer.rstrip("/")
    said: dict[str, Any] = {"iss": name, "sub": CANARY, "groups": ["admins"]}
    for way, aud, at in (("for another app", f"not-{app}", now), ("an old one", app, now - 9000)):
        claims = {**said, "aud": aud, "iat": at, "exp": at + 60}
        yield f"the gate's own: {way}", jwt.encode(claims, key.private, "ES256", {"kid": key.kid})
