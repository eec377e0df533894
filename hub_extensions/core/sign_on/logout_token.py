"""What a logout token has to say (OpenID Connect Back-Channel Logout 1.0, section 2.6), once its signature is checked.

=======================  ===========================================================================
what it says             what is asked of it
=======================  ===========================================================================
header ``alg``           on the allow list; never ``none``, never one whose key is the client's secret
header ``typ``           ``logout+jwt``; plain ``JWT`` or none as well, as older providers send it
``iss``                  the provider, letter by letter
``aud``                  we are in it
``iat``                  there, not ahead of our clock, at most a day old
``exp``                  not past; if it is not there, ``iat`` is some minutes old at most
``sub``, ``sid``         at least one, and each a text
``events``               an object in which the logout's name stands for an object
``nonce``                not there, so that no id token serves as a logout token
``jti``                  there; seen before is refused by who remembers it
=======================  ===========================================================================

Not here: keys and signatures (``adapters/provider/oidc.py``), and the sessions that end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hub_extensions.core.sign_on.claims import (
    Claims,
    algorithm_problem,
    audience_problem,
    clock_refusal,
    issuer_problem,
    shown,
    text_of,
    time_of,
)
from hub_extensions.core.sign_on.refusal import SignOnRefusal

EVENT = "http://schemas.openid.net/event/backchannel-logout"
TYPES = ("logout+jwt", "jwt")
OLDEST = timedelta(days=1)
"""A logout token is not taken later; so long its ``jti`` is remembered at most."""
FRESH = timedelta(minutes=5)
"""How long a logout token without ``exp`` is good: Keycloak 22 and 23.0.0 to 23.0.3 and Ory Hydra 2.2 send such."""
LARGEST_BODY = 16 * 1024
"""Bytes of the request that brings one."""


@dataclass(frozen=True, slots=True)
class LogoutToken:
    """Whose sessions end.

    Attributes:
        sub: of whom; "": only the session is named. sid: which session at the provider; "": all of `sub`.
        jti: its own id. until: so long it would be taken again, so its id is remembered.
    """

    iss: str
    sub: str
    sid: str
    jti: str
    until: datetime


def judge_logout_token(
    header: Claims,
    claims: Claims,
    *,
    issuer: str,
    client_id: str,
    algorithms: tuple[str, ...],
    leeway: timedelta,
    now: datetime,
) -> LogoutToken | SignOnRefusal:
    """The sessions that it ends, or why it ends none. Its signature has been checked."""
    problem = (
        algorithm_problem(header, algorithms)
        or _type_problem(header)
        or issuer_problem(claims, issuer)
        or audience_problem(claims, client_id)
        or _event_problem(claims)
    )
    if problem is not None:
        return problem
    issued, expires = time_of(claims, "iat"), time_of(claims, "exp")
    if issued is None:
        return SignOnRefusal("issued-at", "It does not say when it was issued (iat).")
    if expires is None and "exp" not in claims:
        if issued < now - FRESH - leeway:
            return SignOnRefusal("old", "It does not say until when it is good (exp), and is older than 5 minutes.")
        expires = issued + FRESH
    if expires is None:
        return SignOnRefusal("expires", "It does not say until when it is good (exp).")
    if issued > now + leeway:
        return clock_refusal(issued - now, "It is from the future")
    if expires <= now - leeway:
        return clock_refusal(issued - now, "It has expired")
    if issued < now - OLDEST - leeway:
        return SignOnRefusal("old", "It was issued more than a day ago.")
    sub, sid, jti = (text_of(claims, name) for name in ("sub", "sid", "jti"))
    for name, text in (("sub", sub), ("sid", sid)):
        if name in claims and not text:
            return SignOnRefusal("subject", f"Its {name} is no text: {shown(claims[name])}.")
    if not sub and not sid:
        return SignOnRefusal("subject", "It names neither a person (sub) nor a session (sid).")
    if not jti:
        return SignOnRefusal("id", "It has no id of its own (jti).")
    return LogoutToken(issuer, sub, sid, jti, min(expires, issued + OLDEST) + leeway)


def _type_problem(header: Claims) -> SignOnRefusal | None:
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in TYPES:
        return SignOnRefusal("type", f"It is of the type {shown(kind)}, not a logout token.")
    return None


def _event_problem(claims: Claims) -> SignOnRefusal | None:
    events = claims.get("events")
    if not isinstance(events, Mapping) or not isinstance(events.get(EVENT), Mapping):
        return SignOnRefusal("events", "It does not say that somebody signed out (events).")
    if "nonce" in claims:
        return SignOnRefusal("nonce", "It has a nonce, as only an id token has.")
    return None
