"""Check addresses of a sign-in provider as text, without a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|::1)\Z")


def address_problem(address: str) -> str:
    """Return why a secret may not be sent to this address, as a text that follows the name of a setting.

    "" if it may be sent: the address is https, or http on this machine.
    """
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


def issuer_setting_problem(issuer: object) -> str:
    """Return what is wrong with an issuer, as a text that follows the name ``issuer``; "" if it is usable."""
    if not isinstance(issuer, str) or not issuer:
        return "is not set"
    if problem := address_problem(issuer):
        return f"{problem} (http only on this machine itself)"
    return "has a query, as no issuer has" if "?" in issuer else ""


def connect_url_problem(address: str) -> str:
    """Return what is wrong with an address, as a text that follows the name ``issuer_connect_url``; "" if it is usable.

    Plain http is allowed, because the admin decides about connections between two pods of a cluster.
    """
    problem = address_problem(address) if address else ""
    if problem == "has to begin with https://" and address.startswith("http://"):
        problem = ""
    return problem or ("has a query" if "?" in address else "")


_PLACE = re.compile(r"\{[A-Za-z0-9_]+\}")


def account_url_problem(address: str) -> str:
    """Return what is wrong with an address, as a text that follows the name ``account_url``; "" if it is usable or not
    set.
    """
    if not address:
        return ""
    if not _PLACE.search(address):
        return "has no place for the person: {sub}, or another claim of the id token"
    plain = _PLACE.sub("x", address)
    return "has a brace that belongs to no claim" if "{" in plain or "}" in plain else address_problem(plain)


def account_address(address: str, claims: Mapping[str, object]) -> tuple[str, str]:
    """Return the address of a person's record at the provider's administration API, and the account's id in that
    address.

    Both are "" if a claim is missing.

    Args:
        address: the setting ``account_url``, with names of claims in braces.
        claims: the claims about the person.
    """
    values = {name: claims.get(name[1:-1]) for name in _PLACE.findall(address)}
    if not values or not all(isinstance(each, str) and each for each in values.values()):
        return "", ""
    found = _PLACE.sub(lambda place: quote(str(values[place[0]]), safe=""), address)
    return found, str(values[_PLACE.findall(address)[-1]])


def origin_of(address: str) -> tuple[str, str]:
    """Return scheme and host with port, to compare origins."""
    parts = urlsplit(address)
    return parts.scheme.lower(), parts.netloc.lower()
