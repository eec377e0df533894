"""Read the claims of a token that somebody else wrote: a claim of the wrong type counts as missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from hub_extensions.core.sign_on.refusal import SignOnRefusal
from hub_extensions.core.text.wording import about

Claims = Mapping[str, Any]

MAX_SUBJECT_LENGTH = 255
"""Maximum length of ``sub`` (OpenID Connect Core, section 2), and here also of the session id ``sid``."""
SIGNING_ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
"""Algorithms that a provider may sign with. Never add ``none``, or an algorithm whose key is the client's secret."""
NEVER_ALGORITHMS = ("none", "HS")
"""Prefixes of algorithms that are refused whatever a setting allows, because they prove nothing."""

_YEAR_9000 = 221_845_392_000


ABSENT = object()
"""Returned by `claim_at` for a claim that is missing."""


def claim_at(claims: Claims, path: str, default: Any = None) -> Any:
    """Return a claim by its name, or by the dotted path to it in nested objects.

    The name of a claim may itself contain dots, such as ``https://site.example/groups``. At the top and in each object
    on the path, a claim with such a name takes precedence over a path. Names in Keycloak's ``resource_access`` may
    contain dots, because they are ids of clients.

    Args:
        claims: the claims of a token, or the user information.
        path: the name or the path.
        default: what is returned if the claim is missing.
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
    """Return `claims`, overridden by the claims `more` of another document, such as the user information.

    Objects are merged name by name. A claim in `more` without a value (``null`` or "", which OpenID Connect Core 5.3.2
    forbids) overrides nothing.
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
    """Return a claim that is a text; "" if it is missing, is not a text, is not printable or is too long."""
    value = claims.get(name)
    if not isinstance(value, str) or len(value) > MAX_SUBJECT_LENGTH or not value.isprintable():
        return ""
    return value


def time_of(claims: Claims, name: str) -> datetime | None:
    """Return a claim that is a number of seconds since 1970 as a time; `None` if it is missing or anything else."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not 0 <= value < _YEAR_9000:
        return None
    return datetime.fromtimestamp(value, timezone.utc)


def audience_of(claims: Claims) -> tuple[str, ...] | None:
    """Return the audience of a token; `None` if the claim is missing or malformed."""
    value = claims.get("aud")
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return tuple(value)
    return None


def algorithm_problem(header: Claims, algorithms: tuple[str, ...]) -> SignOnRefusal | None:
    """Check that the token's header names an allowed algorithm. Return the refusal, or `None` if it does."""
    name = header.get("alg")
    if not isinstance(name, str) or name.startswith(NEVER_ALGORITHMS) or name not in algorithms:
        return SignOnRefusal("algorithm", f"It is signed with {quoted(name)}, not with one of {', '.join(algorithms)}.")
    return None


def issuer_problem(claims: Claims, issuer: str) -> SignOnRefusal | None:
    """Check that the token's issuer is exactly this provider. Return the refusal, or `None` if it is."""
    if claims.get("iss") != issuer:
        return SignOnRefusal("issuer", f"Its issuer is {quoted(claims.get('iss'))}, not {issuer!r}.")
    return None


def audience_problem(claims: Claims, client_id: str) -> SignOnRefusal | None:
    """Check that our client is in the token's audience. Return the refusal, or `None` if it is."""
    audience = audience_of(claims)
    if audience is None or client_id not in audience:
        return SignOnRefusal("audience", f"It is for {quoted(claims.get('aud'))}, not for {client_id!r}.")
    return None


def clock_refusal(ahead: timedelta, what: str) -> SignOnRefusal:
    """Build the refusal for a token whose time is wrong.

    Args:
        ahead: how far the provider's clock is ahead of ours; negative if it is behind.
        what: what is wrong with the time. The log message begins with this text.
    """
    where = "ahead of" if ahead > timedelta(0) else "behind"
    off = about(abs(ahead).total_seconds())
    sentence = f"{what}: the provider's clock is {off} {where} the hub's, or the token is an old one."
    return SignOnRefusal("clock", sentence, {"off": f"{abs(ahead).total_seconds():g}", "where": where})


def quoted(value: Any) -> str:
    """Return a value that somebody else wrote as a text for the log, which is short, in ASCII and on one line."""
    return ascii(value)[:80]
