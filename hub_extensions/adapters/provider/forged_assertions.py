"""Assertions that no app may believe, for an audit to send: forged ones, and true ones that are old or another's.

Not here: the gate's own (``assertions.py``).
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
    """Statements that whoever is somebody else: without a signature, and with one by a key that is not the gate's."""
    now, name = int(time.time()), issuer.rstrip("/")
    fresh: dict[str, Any] = {"iss": name, "aud": app, "sub": CANARY, "groups": ["admins"], "iat": now, "exp": now + 60}
    old, other = {**fresh, "iat": now - 9000, "exp": now - 8940}, {**fresh, "aud": "another"}
    key, header = ec.generate_private_key(ec.SECP256R1()), {"kid": kid}
    yield "alg none", jwt.encode(fresh, "", "none")
    yield "the gate's key id, another key", jwt.encode(fresh, key, "ES256", header)
    yield "old", jwt.encode(old, key, "ES256", header)
    yield "HS256", jwt.encode(fresh, secrets.token_bytes(32), "HS256", header)
    yield "of another app", jwt.encode(other, key, "ES256", header)


def true_assertions(app: str, issuer: str, key: AssertionKey) -> Iterator[tuple[str, str]]:
    """Signed by the gate's own key, and yet not for this app, or not for this time."""
    now, name = int(time.time()), issuer.rstrip("/")
    said: dict[str, Any] = {"iss": name, "sub": CANARY, "groups": ["admins"]}
    for way, aud, at in (("for another app", f"not-{app}", now), ("an old one", app, now - 9000)):
        claims = {**said, "aud": aud, "iat": at, "exp": at + 60}
        yield f"the gate's own: {way}", jwt.encode(claims, key.private, "ES256", {"kid": key.kid})
