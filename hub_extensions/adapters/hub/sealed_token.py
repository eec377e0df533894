"""A hub's token, sealed by the cookie of the session that it belongs to: without the cookie nobody reads it.

Keys that several gates share are sealed in the same way, by a secret that these alone have.
Not here: where it is kept.
"""

from __future__ import annotations

import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12


def seal(token: str, cookie: str) -> bytes:
    """The token, encrypted. `cookie`: has 256 random bits, so that one hash makes a key of it."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(_key(cookie)).encrypt(nonce, token.encode(), None)


def unseal(sealed: bytes, cookie: str) -> str | None:
    """The token; None: it was sealed by another cookie, or somebody changed it."""
    try:
        return AESGCM(_key(cookie)).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None).decode()
    except (InvalidTag, ValueError):
        return None


def _key(cookie: str) -> bytes:
    return hashlib.sha256(b"gate token\0" + cookie.encode()).digest()
