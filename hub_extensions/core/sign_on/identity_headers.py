"""The headers that an app behind the gate receives: the caller's identity, and cookies without the gate's own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from hub_extensions.core.sign_on.apps import HeaderFamily

ASSERTION = "X-Sign-On-Assertion"

PROXY_SECRET = "X-Gate-Proxy"
"""Header with the secret that proves to the gate that a request comes from the proxy."""
METHOD, URI, UPGRADE = "X-Gate-Method", "X-Gate-Uri", "X-Gate-Upgrade"
"""Headers in which the proxy gives the gate the browser's method, path with query, and ``Upgrade``."""
TO_THE_GATE = (PROXY_SECRET, METHOD, URI, UPGRADE)
"""Headers between proxy and gate. Apps and browsers never get them, and the proxy removes them from a browser's
request."""
SIGN_IN = "X-Gate-Sign-In"
"""Address of the sign-in; sent with a 401 to a page load."""
COOKIE = "Cookie"
"""Sent with a 200: the browser's cookies without the gate's own (`cookies_without`). The proxy sends these to the app.
"""

FAMILIES: Mapping[HeaderFamily, Mapping[str, str]] = {
    "X-Auth-Request": {
        "user": "X-Auth-Request-User",
        "groups": "X-Auth-Request-Groups",
        "email": "X-Auth-Request-Email",
        "name": "X-Auth-Request-Preferred-Username",
    },
    "Remote": {"user": "Remote-User", "groups": "Remote-Groups", "email": "Remote-Email", "name": "Remote-Name"},
    "X-Forwarded": {
        "user": "X-Forwarded-User",
        "groups": "X-Forwarded-Groups",
        "email": "X-Forwarded-Email",
        "name": "X-Forwarded-Preferred-Username",
    },
    "X-WEBAUTH": {
        "user": "X-WEBAUTH-USER",
        "groups": "X-WEBAUTH-GROUPS",
        "email": "X-WEBAUTH-EMAIL",
        "name": "X-WEBAUTH-NAME",
    },
}
"""Family of identity headers -> value -> name of the header. An app reads one family. The names are those of
oauth2-proxy (set-xauthrequest, pass-user-headers), Authelia and Grafana."""

FOREIGN = ("X-Auth-Request-Access-Token", "X-Forwarded-Access-Token", "Gap-Auth", "X-Pomerium-Jwt-Assertion")
"""Headers that the gate never sends but some apps trust; they are cleared as well."""


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """The caller of an app, for the identity headers.

    An unknown value is "" and is sent as an empty header, which clears a header that the browser forged.
    """

    user: str
    groups: tuple[str, ...] = ()
    email: str = ""
    name: str = ""


def identity_header_names() -> tuple[str, ...]:
    """Return the names of all headers that can identify a caller to an app.

    These are the headers of all families (`FAMILIES`; each app reads the headers of one family), the header of the
    assertion (a signed token that names the caller), and headers that the gate never sends but some apps trust.
    """
    named = [header for family in FAMILIES.values() for header in family.values()]
    return (*named, *FOREIGN, ASSERTION)


def copied_header_names() -> tuple[str, ...]:
    """Return the names of the headers that the proxy copies from the gate's answer into the request to the app.

    The proxy does so if the gate answers 200. The copies replace headers of the same names that the browser sent.
    """
    return (*identity_header_names(), COOKIE)


def headers_of(identity: CallerIdentity, family: HeaderFamily | None, assertion: str) -> Mapping[str, str]:
    """Return all identity headers for one app.

    Headers that the app does not read are returned with an empty value. A proxy that copies all returned headers thus
    clears forged ones.

    Args:
        family: key of `FAMILIES`, which has the names of the headers that the app reads; `None` if it only reads the
            assertion.
        assertion: signed token that identifies the caller; "" for none.
    """
    found = dict.fromkeys(identity_header_names(), "")
    if family is not None:
        values = {
            "user": _sendable(identity.user),
            "groups": ",".join(group for group in map(_sendable, identity.groups) if group and "," not in group),
            "email": _sendable(identity.email),
            "name": _sendable(identity.name),
        }
        found.update({header: values[what] for what, header in FAMILIES[family].items()})
    return {**found, ASSERTION: assertion}


def _sendable(text: str) -> str:
    """Return a text as the value of a header that sends it in UTF-8 (each byte as one Latin-1 character).

    "" if a proxy or an app could read the text differently: with control characters, or spaces at its ends.
    """
    if text != text.strip() or any(letter < " " or letter == "\x7f" for letter in text):
        return ""
    return text.encode("utf-8", "replace").decode("latin-1")


def spellings(name: str) -> Iterator[str]:
    """Yield a header's name in each form that a framework may read as the same name.

    These have ``-``, ``_`` or ``.`` between the words, in the given case, in lower case and in upper case.
    """
    for mark in "-_.":
        spelled = name.replace("-", mark)
        yield from dict.fromkeys((spelled, spelled.lower(), spelled.upper()))


_AROUND = " \t\r\n\0"


def cookies_without(header: str, names: Collection[str]) -> str:
    """Return the ``Cookie`` header without the cookies of these names.

    A cookie is removed if any parser might read its name as one of these: in quotes, in another case, with control
    characters around it, or after a comma, which some programs take for a separator. All other cookies stay unchanged.
    """
    unwanted = {name.casefold() for name in names}
    pairs = [pair.strip(" \t") for pair in header.split(";") if pair.strip(" \t")]
    return "; ".join(pair for pair in pairs if not _possible_names(pair) & unwanted)


def _possible_names(pair: str) -> set[str]:
    """Return each name by which a parser may read this cookie: the name before ``=``, and the names after commas."""
    return {part.partition("=")[0].strip(_AROUND).strip('"').strip(_AROUND).casefold() for part in pair.split(",")}
