"""Is this an address of a sign-in provider? As text: nobody is asked, and no library of tokens is needed.

Not here: asking one (``oidc.py``).
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|::1)\Z")


def address_problem(address: str) -> str:
    """Why this is no address that a secret is sent to, to stand behind its name; "": it is one."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no address"
    if not host or parts.username or parts.fragment or not address.isprintable() or " " in address:
        return "is no address"
    if parts.scheme == "https" or (parts.scheme == "http" and _LOOPBACK.match(host)):
        return ""
    return "has to begin with https://"


def issuer_wrong(issuer: object) -> str:
    """Why no provider is found by this, to stand behind ``issuer``; "": one may be."""
    if not isinstance(issuer, str) or not issuer:
        return "is not set"
    if problem := address_problem(issuer):
        return f"{problem} (http only on this machine itself)"
    return "has a query, as no issuer has" if "?" in issuer else ""
