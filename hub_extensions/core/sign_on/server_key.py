"""The key by which the hub proves itself to a server when it makes it ask again who is signed in.

The hub forgets a server's own token at its restart; this key it computes again, from a secret that outlives a restart.
It is of no use but for that one question at that one server.
Not here: the question (``server_extension/recheck.py``), and who puts it (``authenticator/servers.py``).
"""

from __future__ import annotations

import hashlib
import hmac

VARIABLE = "JUPYTERHUB_GPU_SIGN_ON_KEY"
"""The server finds it here."""


def server_key(hub_secret: bytes, user_id: int, server: str) -> str:
    """Of one server of one user. `hub_secret`: the hub's ``cookie_secret``."""
    return hmac.new(hub_secret, f"sign-on {user_id} {server}".encode(), hashlib.sha256).hexdigest()
