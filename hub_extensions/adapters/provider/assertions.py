"""The gate's assertions, which identify the caller to an app: signed tokens (JWT, ES256) that any JWT library can
verify.

An assertion is for one app and valid for about a minute. The keys are files of the state folder (mode 0600), or sealed
rows of the database that several gates share. Two keys are published: the one that signs, and the next one. Apps
that fetch the list once an hour therefore know the next key before it signs. A previous key is not published, because
everything that it signed has expired within a minute.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hub_extensions.adapters.files.settings_file import write_private
from hub_extensions.adapters.hub.sealed_token import seal, unseal
from hub_extensions.adapters.store.gate import GateStore
from hub_extensions.core.sign_on.identity_headers import CallerIdentity

ALGORITHM = "ES256"
KEY_LIFE = timedelta(days=30)
SIGNED_AGAIN_SECONDS = 30.0
"""Time for which a signed assertion is reused."""
PUBLISHED = 2
_FILES = "assertion-key-*.pem"


@dataclass(frozen=True, slots=True)
class AssertionKey:
    """A key with which the gate signs assertions.

    Attributes:
        kid: id of the key, which each assertion names.
        made: creation time in seconds since 1970.
        private: the secret part of the key.
        public: the published part of the key (JWK).
    """

    kid: str
    made: float
    private: ec.EllipticCurvePrivateKey
    public: Mapping[str, Any]


class AssertionKeys(Protocol):
    """The store of the gate's signing keys: files (`KeyFolder`) or a shared database (`SharedKeys`)."""

    def all(self) -> list[AssertionKey]:
        """Return the keys with which the gate signs assertions, the oldest first.

        Assertions are the tokens that identify a caller to an app.
        """
        ...

    def add(self, name: str, text: str) -> None:
        """Store a new signing key, and delete old keys so that only the newest `PUBLISHED` ones are left.

        Args:
            name: time of creation in nanoseconds since 1970, as 20 digits. It is the name of the key.
            text: the key in PEM.
        """
        ...


class KeyFolder:
    """The gate's signing keys in files that only the gate's account can read.

    Args:
        folder: the state folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[AssertionKey]:
        return [_read(path.stem.rpartition("-")[2], path.read_bytes()) for path in sorted(self._folder.glob(_FILES))]

    def add(self, name: str, text: str) -> None:
        write_private(self._folder / f"assertion-key-{name}.pem", text)
        for old in sorted(self._folder.glob(_FILES))[:-PUBLISHED]:
            old.unlink(missing_ok=True)


class SharedKeys:
    """The gate's signing keys in the database that several gates share.

    Args:
        store: the gate's database.
        secret: encrypts the keys; only these gates have it.
    """

    def __init__(self, store: GateStore, secret: str) -> None:
        self._store, self._secret = store, f"assertion keys\0{secret}"
        self._newest, self._known = "", [""]

    def all(self) -> list[AssertionKey]:
        """Return the gate's signing keys that its secret can decrypt, the oldest first."""
        rows = self._store.keys()
        found = [(name, unseal(sealed, self._secret)) for name, sealed in rows.items()]
        self._newest = max(rows, default="")
        self._known = [name for name, text in found if text is not None]
        return [_read(name, text.encode()) for name, text in found if text is not None]

    def add(self, name: str, text: str) -> None:
        """Store a new signing key, unless another gate has added a key since this gate last called `all`.

        Of the keys that the last call of `all` returned, only the newest `PUBLISHED` - 1 are kept. All other keys are
        deleted.

        Args:
            name: time of creation in nanoseconds since 1970, as 20 digits. It is the name of the key. If it is not
                later than the newest stored key, it is replaced by the next higher number.
            text: the key in PEM.
        """
        kept = self._known[-(PUBLISHED - 1) :]
        name = f"{max(int(name), int(self._newest or 0) + 1):020d}"  # the clocks of two machines may differ
        self._store.put_key(name, seal(text, self._secret), self._newest, kept)


class AssertionSigner:
    """Signs the gate's assertions, which identify a caller to an app.

    Args:
        keys: storage of the keys.
        issuer: the address of the apps' host, as the apps know it.
        life: how long an assertion is valid.
    """

    def __init__(self, keys: AssertionKeys, issuer: str, life: timedelta) -> None:
        self._kept, self._issuer, self._life = keys, issuer, life
        self._keys: list[AssertionKey] = []
        self.refresh()

    def refresh(self) -> bool:
        """Read the keys, which ``jupyterhub-gpu gate rotate`` may have changed. Make a new key if all are too old.

        Returns:
            Whether the signing key or the published keys have changed.
        """
        found = self._kept.all()
        if not found or time.time() - found[-1].made >= KEY_LIFE.total_seconds():
            found = rotate(self._kept)
        if len(found) < PUBLISHED:
            found = rotate(self._kept)
        changed = [key.kid for key in self._keys] != [key.kid for key in found]
        self._keys = found
        return changed

    @property
    def key(self) -> AssertionKey:
        """Return the key that signs assertions (the tokens that identify a caller to an app) now."""
        return self._keys[0]

    def published(self) -> Mapping[str, Any]:
        """Return the keys that apps may use to verify the gate's assertions (JWKS), the signing key first."""
        return {"keys": [dict(key.public) for key in self._keys]}

    def sign(self, identity: CallerIdentity, app: str) -> str:
        """Return an assertion: a signed token that identifies the caller to the app `app`."""
        key, now = self.key, int(time.time())
        claims = {
            "iss": self._issuer,
            "aud": app,
            "sub": identity.user,
            "groups": list(identity.groups),
            "iat": now,
            "exp": now + int(self._life.total_seconds()),
        }
        return jwt.encode(claims, key.private, ALGORITHM, {"kid": key.kid})


def signing_key(keys: AssertionKeys) -> AssertionKey | None:
    """Return the key that signs now; `None` before the first key, or if the keys cannot be read."""
    try:
        return next(iter(keys.all()[-PUBLISHED:]), None)
    except (OSError, ValueError):
        return None


def rotate(keys: AssertionKeys) -> list[AssertionKey]:
    """Create and publish a further key, and let the next key sign.

    The key that was published as the next one signs from now on. The key that signed until now is deleted.

    Returns:
        The keys that are published now.
    """
    keys.all()
    private = ec.generate_private_key(ec.SECP256R1())
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    # the name is the time in nanoseconds, so that the order does not depend on the file system's clock
    keys.add(f"{time.time_ns():020d}", text)
    return keys.all()[-PUBLISHED:]


def _read(name: str, text: bytes) -> AssertionKey:
    private = serialization.load_pem_private_key(text, None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError(f"the key {name} is none of this product's")
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(private.public_key()))
    # the thumbprint of RFC 7638: the same key has the same id everywhere
    thumb = json.dumps({name: public[name] for name in ("crv", "kty", "x", "y")}, separators=(",", ":"))
    kid = sha256(thumb.encode()).hexdigest()[:16]
    return AssertionKey(kid, int(name) / 1e9, private, {**public, "kid": kid, "use": "sig", "alg": ALGORITHM})
