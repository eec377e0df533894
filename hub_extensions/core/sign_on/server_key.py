"""The key with which the hub authenticates at a user's server, to make it check its signed-in users at the hub again.

The hub no longer has a server's own token after a restart, but can compute this key again from its cookie secret. The
key is valid only for this kind of request at this one server.
"""

from __future__ import annotations

import hashlib
import hmac

VARIABLE = "JUPYTERHUB_GPU_SIGN_ON_KEY"
"""Environment variable of the server that contains the key."""


def server_key(hub_secret: bytes, user_id: int, server: str) -> str:
    """Return the key of one server of one user.

    Args:
        hub_secret: the hub's ``cookie_secret``.
        user_id: the hub's id of the user.
        server: name of the server.
    """
    return hmac.new(hub_secret, f"sign-on {user_id} {server}".encode(), hashlib.sha256).hexdigest()
