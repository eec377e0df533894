"""Reading claims that somebody else wrote: each is of the type that it should have, or it is not there.

Not here: what a claim means (``id_token.py``, ``logout_token.py``, ``identity.py``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from hub_extensions.core.sign_on.refusal import SignOnRefusal
from hub_extensions.core.text.wording import about

Claims = Mapping[str, Any]

LONGEST_SUBJECT = 255
"""OpenID Connect Core, section 2: at most 255 ASCII characters. Of a session's id we take as many."""
SIGNING_ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
"""With which a provider may sign. Nobody is to add ``none``, or one whose key is the client's secret."""
NEVER_ALGORITHMS = ("none", "HS")
"""How the names of algorithms begin that prove nothing, whatever a setting says."""

_YEAR_9000 = 221_845_392_000


ABSENT = object()
"""What `claim_at` returns for a claim that is not there."""


def claim_at(claims: Claims, path: str, default: Any = None) -> Any:
    """Return the claim with this name, or else the one at this dotted path, or else `default`.

    A name that has dots itself, such as ``https://site.example/groups``, comes first; this holds in each object on the
    way, because Keycloak's ``resource_access`` has the clients' ids as names.
    """
    if path in claims:
        return claims[path]
    parts = path.split(".")
    for number in range(1, len(parts)):
        inner = claims.get(".".join(parts[:number]))
        found = claim_at(inner, ".".join(parts[number:]), ABSENT) if isinstance(inner, Mapping) else ABSENT
        if found is not ABSENT:
            return found
    return default


def merged(claims: Claims, more: Claims) -> Claims:
    """Return the claims with those of another document over them.

    Objects are merged name by name. A claim that has no value (``null`` or an empty text, which OpenID Connect Core
    5.3.2 forbids) takes nothing away.
    """
    found = dict(claims)
    for name, value in more.items():
        there = found.get(name)
        if isinstance(there, Mapping) and isinstance(value, Mapping):
            found[name] = merged(there, value)
        elif name not in found or not (value is None or value == ""):
            found[name] = value
    return found


def text_of(claims: Claims, name: str) -> str:
    """A claim that is a text without control characters, and not too long; "": anything else."""
    value = claims.get(name)
    if not isinstance(value, str) or len(value) > LONGEST_SUBJECT or not value.isprintable():
        return ""
    return value


def time_of(claims: Claims, name: str) -> datetime | None:
    """A claim that is a number of seconds since 1970; None: anything else."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not 0 <= value < _YEAR_9000:
        return None
    return datetime.fromtimestamp(value, timezone.utc)


def audience_of(claims: Claims) -> tuple[str, ...] | None:
    """For whom a token is; None: that is not said as it should be."""
    value = claims.get("aud")
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return tuple(value)
    return None


def algorithm_problem(header: Claims, algorithms: tuple[str, ...]) -> SignOnRefusal | None:
    """Whether the header names an algorithm that is taken."""
    name = header.get("alg")
    if not isinstance(name, str) or name.startswith(NEVER_ALGORITHMS) or name not in algorithms:
        return SignOnRefusal("algorithm", f"It is signed with {shown(name)}, not with one of {', '.join(algorithms)}.")
    return None


def issuer_problem(claims: Claims, issuer: str) -> SignOnRefusal | None:
    """Whether it is from this provider, letter by letter."""
    if claims.get("iss") != issuer:
        return SignOnRefusal("issuer", f"Its issuer is {shown(claims.get('iss'))}, not {issuer!r}.")
    return None


def audience_problem(claims: Claims, client_id: str) -> SignOnRefusal | None:
    """Whether it is for us."""
    audience = audience_of(claims)
    if audience is None or client_id not in audience:
        return SignOnRefusal("audience", f"It is for {shown(claims.get('aud'))}, not for {client_id!r}.")
    return None


def clock_refusal(ahead: timedelta, what: str) -> SignOnRefusal:
    """`ahead`: so far the provider's clock is before ours."""
    where = "ahead of" if ahead > timedelta(0) else "behind"
    off = about(abs(ahead).total_seconds())
    sentence = f"{what}: the provider's clock is {off} {where} the hub's, or the token is an old one."
    return SignOnRefusal("clock", sentence, {"off": f"{abs(ahead).total_seconds():g}", "where": where})


def shown(value: Any) -> str:
    """What somebody else wrote, for a log: short, and on one line."""
    return ascii(value)[:80]
