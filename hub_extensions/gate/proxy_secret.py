"""Whether a proxy sent a request: by the secret that it alone brings."""

from __future__ import annotations

import hmac

from tornado.httputil import HTTPHeaders

from hub_extensions.core.sign_on.identity_headers import PROXY_SECRET
from hub_extensions.gate.gate import Gate


def is_from_proxy(gate: Gate, headers: HTTPHeaders) -> bool:
    """A proxy sent this; in constant time."""
    sent = headers.get_list(PROXY_SECRET)
    expected = gate.settings.proxy_secret
    return bool(expected) and len(sent) == 1 and hmac.compare_digest(sent[0].encode(), expected.encode())
