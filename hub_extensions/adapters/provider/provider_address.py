"""Is this an address of a sign-in provider? As text: nobody is asked, and no library of tokens is needed.

Not here: asking one (``oidc.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

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


def reached_at_wrong(address: str) -> str:
    """Why the hub reaches no provider at this address, to stand behind ``reached_at``; "" if it may.

    Plain http is allowed here: between two pods of a cluster it is the admin's own choice.
    """
    problem = address_problem(address) if address else ""
    if problem == "has to begin with https://" and address.startswith("http://"):
        problem = ""
    return problem or ("has a query" if "?" in address else "")


_PLACE = re.compile(r"\{[A-Za-z0-9_]+\}")


def account_url_wrong(address: str) -> str:
    """Why nobody's record is found by this, to stand behind ``account_url``; "" if it may be, or is not set."""
    if not address:
        return ""
    if not _PLACE.search(address):
        return "has no place for the person: {sub}, or another claim of the id token"
    plain = _PLACE.sub("x", address)
    return "has a brace that belongs to no claim" if "{" in plain or "}" in plain else address_problem(plain)


def account_address(address: str, claims: Mapping[str, object]) -> tuple[str, str]:
    """Return the address of one person's record, and the id in it; two empty texts if a claim is not there."""
    values = {name: claims.get(name[1:-1]) for name in _PLACE.findall(address)}
    if not values or not all(isinstance(each, str) and each for each in values.values()):
        return "", ""
    found = _PLACE.sub(lambda place: quote(str(values[place[0]]), safe=""), address)
    return found, str(values[_PLACE.findall(address)[-1]])


def origin_of(address: str) -> tuple[str, str]:
    """Scheme and host with port, for comparison."""
    parts = urlsplit(address)
    return parts.scheme.lower(), parts.netloc.lower()
