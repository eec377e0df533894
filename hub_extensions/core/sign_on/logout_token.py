"""Check the claims of a logout token whose signature is valid (OpenID Connect Back-Channel Logout 1.0, section 2.6).

=======================  ===========================================================================
part                     requirement
=======================  ===========================================================================
header ``alg``           in the allow list; never ``none``, never one whose key is the client's secret
header ``typ``           ``logout+jwt``; ``JWT`` or missing is accepted too, for older providers
``iss``                  exactly the provider
``aud``                  contains our client
``iat``                  present, not in the future, at most a day old
``exp``                  not in the past; if it is missing, ``iat`` is at most some minutes old
``sub``, ``sid``         at least one, and each a text
``events``               an object in which the name of the logout event maps to an object
``nonce``                missing, so that no id token is accepted as a logout token
``jti``                  present; the caller refuses one that was used before
=======================  ===========================================================================
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
    quoted,
    text_of,
    time_of,
)
from hub_extensions.core.sign_on.refusal import SignOnRefusal

EVENT = "http://schemas.openid.net/event/backchannel-logout"
TYPES = ("logout+jwt", "jwt")
OLDEST = timedelta(days=1)
"""Maximum age of a logout token, and so the longest time for which its ``jti`` is remembered."""
FRESH = timedelta(minutes=5)
"""Validity of a logout token without ``exp``, as sent by Keycloak 22 and 23.0.0 to 23.0.3 and Ory Hydra 2.2."""
MAX_BODY_BYTES = 16 * 1024
"""Maximum size in bytes of the request that delivers the token."""


@dataclass(frozen=True, slots=True)
class LogoutToken:
    """A verified request of the provider to end sessions.

    Attributes:
        iss: the provider.
        sub: the person at the provider; "" if only the session is named.
        sid: the session at the provider; "" for all sessions of `sub`.
        jti: the token's id.
        until: when the token becomes invalid; its id is remembered until then, so that it is not accepted twice.
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
    """Return the sessions to end, or the reason why the token is refused.

    The caller has already verified the token's signature.

    Args:
        header, claims: header and claims of the token.
        issuer: the provider's issuer URL.
        client_id: id of our client at the provider.
        algorithms: allowed signature algorithms.
        leeway: how much clocks may differ.
    """
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
            return SignOnRefusal("subject", f"Its {name} is no text: {quoted(claims[name])}.")
    if not sub and not sid:
        return SignOnRefusal("subject", "It names neither a person (sub) nor a session (sid).")
    if not jti:
        return SignOnRefusal("id", "It has no id of its own (jti).")
    return LogoutToken(issuer, sub, sid, jti, min(expires, issued + OLDEST) + leeway)


def _type_problem(header: Claims) -> SignOnRefusal | None:
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in TYPES:
        return SignOnRefusal("type", f"It is of the type {quoted(kind)}, not a logout token.")
    return None


def _event_problem(claims: Claims) -> SignOnRefusal | None:
    events = claims.get("events")
    if not isinstance(events, Mapping) or not isinstance(events.get(EVENT), Mapping):
        return SignOnRefusal("events", "It does not say that somebody signed out (events).")
    if "nonce" in claims:
        return SignOnRefusal("nonce", "It has a nonce, as only an id token has.")
    return None
