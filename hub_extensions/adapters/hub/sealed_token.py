"""Encrypts a hub's token with the session cookie it belongs to, so that it cannot be read without the cookie.

Keys that several gates share are encrypted in the same way, with a secret that only these gates have.
"""

from __future__ import annotations

import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12


def seal(token: str, cookie: str) -> bytes:
    """Encrypt a token of the hub with the session cookie that the token belongs to.

    The cookie has 256 random bits, so a plain hash of it is a good key.
    """
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(_key(cookie)).encrypt(nonce, token.encode(), None)


def unseal(sealed: bytes, cookie: str) -> str | None:
    """Decrypt a token that `seal` encrypted; `None` if it was encrypted with another cookie, or was modified."""
    try:
        return AESGCM(_key(cookie)).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None).decode()
    except (InvalidTag, ValueError):
        return None


def _key(cookie: str) -> bytes:
    return hashlib.sha256(b"gate token\0" + cookie.encode()).digest()
