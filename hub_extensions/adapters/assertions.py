"""What the gate states to an app about who is calling: a signed token (JWT, ES256) that any library of tokens checks.

An assertion is for one app and about a minute long. The keys are files of the state folder (mode 0600). Two are
published: the one that signs, and the next one, which so is known to apps that ask for the list once an hour before it
signs anything. A key that signed before is published no more: nothing that it signed is good for longer than a minute.
Not here: which header carries it (``core/sign_on/identity_headers.py``), and who is calling.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hub_extensions.adapters.settings_file import write_private
from hub_extensions.core.sign_on.identity_headers import CallerIdentity

ALGORITHM = "ES256"
KEY_LIFE = timedelta(days=30)
SIGNED_AGAIN_SECONDS = 30.0
"""An assertion is given out for so long after it was signed."""
PUBLISHED = 2
_FILES = "assertion-key-*.pem"


@dataclass(frozen=True, slots=True)
class AssertionKey:
    """A key. `made`: by its file, in seconds since 1970. `public`: as it is published."""

    kid: str
    made: float
    private: ec.EllipticCurvePrivateKey
    public: Mapping[str, Any]


class AssertionSigner:
    """Signs assertions.

    Args:
        folder: where the keys are. issuer: the apps' host, as the apps know it. life: of an assertion.
    """

    def __init__(self, folder: Path, issuer: str, life: timedelta) -> None:
        self._folder, self._issuer, self._life = folder, issuer, life
        self._keys: list[AssertionKey] = []
        self.refresh()

    def refresh(self) -> bool:
        """Read the keys, which ``jupyterhub-gpu gate rotate`` may have changed; make one where none is young enough.

        True: others sign, or are published, than before.
        """
        found = sorted((_read(path) for path in self._folder.glob(_FILES)), key=lambda key: (key.made, key.kid))
        if not found or time.time() - found[-1].made >= KEY_LIFE.total_seconds():
            found.append(rotate(self._folder))
        if len(found) < PUBLISHED:
            found.append(rotate(self._folder))
        changed = [key.kid for key in self._keys] != [key.kid for key in found[-PUBLISHED:]]
        self._keys = found[-PUBLISHED:]
        return changed

    def published(self) -> Mapping[str, Any]:
        """The list of public keys (JWKS), the one that signs first."""
        return {"keys": [dict(key.public) for key in self._keys]}

    def sign(self, identity: CallerIdentity, app: str) -> str:
        """The assertion about this person for this app."""
        key, now = self._keys[0], int(time.time())
        claims = {
            "iss": self._issuer,
            "aud": app,
            "sub": identity.user,
            "groups": list(identity.groups),
            "iat": now,
            "exp": now + int(self._life.total_seconds()),
        }
        return jwt.encode(claims, key.private, ALGORITHM, {"kid": key.kid})


def signing_key(folder: Path) -> AssertionKey | None:
    """The key that signs now, for who may read it; None: there is none, or it is not for this reader."""
    try:
        return next((_read(path) for path in sorted(folder.glob(_FILES))[-PUBLISHED:]), None)
    except (OSError, ValueError):
        return None


def rotate(folder: Path) -> AssertionKey:
    """Make a key that is the next one; the one that was to be next signs, and the one that signed is gone."""
    private = ec.generate_private_key(ec.SECP256R1())
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    # the name is the time, so that two made in one tick of the file system's clock are in order too
    path = folder / f"assertion-key-{time.time_ns():020d}.pem"
    write_private(path, text)
    for old in sorted(folder.glob(_FILES))[:-PUBLISHED]:
        old.unlink(missing_ok=True)
    return _read(path)


def _read(path: Path) -> AssertionKey:
    private = serialization.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} is no key of this product's")
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(private.public_key()))
    # the thumbprint of RFC 7638: the same key has the same id everywhere
    thumb = json.dumps({name: public[name] for name in ("crv", "kty", "x", "y")}, separators=(",", ":"))
    kid = sha256(thumb.encode()).hexdigest()[:16]
    made = int(path.stem.rpartition("-")[2]) / 1e9
    return AssertionKey(kid, made, private, {**public, "kid": kid, "use": "sig", "alg": ALGORITHM})
