"""The headers by which apps are told who is calling, and all spellings under which a stranger might send them.

Not here: the signed statement (``adapters/provider/assertions.py``), and the proxies' configuration that clears them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hub_extensions.core.sign_on.apps import HeaderFamily

ASSERTION = "X-Sign-On-Assertion"

PROXY_SECRET = "X-Gate-Proxy"
"""With it a proxy asks: who knows the secret may."""
METHOD, URI, UPGRADE = "X-Gate-Method", "X-Gate-Uri", "X-Gate-Upgrade"
"""What the browser asked for, as the proxy saw it."""
TO_THE_GATE = (PROXY_SECRET, METHOD, URI, UPGRADE)
"""Between proxy and gate only: no app and no browser sees or sends one."""
SIGN_IN = "X-Gate-Sign-In"
"""With a 401 to a page: where its reader signs in."""
COOKIE = "Cookie"
"""With a 200: the browser's cookies without the gate's own (``app_cookies.py``). The proxy gives the app these."""

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
"""Family -> what is said -> header. Names: oauth2-proxy (set-xauthrequest, pass-user-headers), Authelia, Grafana."""

FOREIGN = ("X-Auth-Request-Access-Token", "X-Forwarded-Access-Token", "Gap-Auth", "X-Pomerium-Jwt-Assertion")
"""Never sent by the gate, and believed by some apps: cleared too."""


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """Who is calling. "" is unknown, and is sent as an empty header."""

    user: str
    groups: tuple[str, ...] = ()
    email: str = ""
    name: str = ""


def all_names() -> tuple[str, ...]:
    """Every header that says who somebody is, whatever the app's family."""
    named = [header for family in FAMILIES.values() for header in family.values()]
    return (*named, *FOREIGN, ASSERTION)


def copied_names() -> tuple[str, ...]:
    """What a proxy takes over from the gate's 200, in place of what the browser sent."""
    return (*all_names(), COOKIE)


def headers_of(identity: CallerIdentity, family: HeaderFamily | None, assertion: str) -> Mapping[str, str]:
    """All identity headers: those of the app's family filled, all others empty, so that a proxy that copies clears."""
    found = dict.fromkeys(all_names(), "")
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
    """The text in UTF-8, as headers are written; "" where a proxy or an app would read another one."""
    if text != text.strip() or any(letter < " " or letter == "\x7f" for letter in text):
        return ""
    return text.encode("utf-8", "replace").decode("latin-1")


def spellings(name: str) -> Iterator[str]:
    """A header's name as frameworks may read it as the same: with ``_`` and ``.`` for ``-``, and in any case."""
    for mark in "-_.":
        spelled = name.replace("-", mark)
        yield from dict.fromkeys((spelled, spelled.lower(), spelled.upper()))
