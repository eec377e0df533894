"""Decide whether a request may pass to an app, from facts about the request, the app and the sender.

A proxy asks the gate about each request. The gate lets a request pass only if the hub has recently reported that its
sender has the right. Only page loads are redirected to the sign-in, because a script would take the sign-in page for
the app's answer. A silent sign-in repeats the sign-in without asking the user anything; it brings the current rights.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.sign_on.apps import App, address_of, is_plain

EVERY_APP = "access:services"
OF_SERVER = "access:servers!server="
"""Prefix of a scope that only a server's own token has; code in a notebook can read that token."""
ROUND_AGAIN = timedelta(minutes=1)
"""Minimum time between two silent sign-ins of a user for one app. A new group of the user allows another one at once,
because it may bring the right."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = frozenset({"same-origin", "none"})
_PAGES = frozenset({"document", "iframe", "frame", ""})
_FRAMES = frozenset({"iframe", "frame", "object", "embed"})


class Passage(Enum):
    """The gate's decision about a request; the value is the HTTP status of its answer to the proxy."""

    PASS = 200
    SIGN_IN = 302
    """Redirect to the hub's sign-in, and afterwards back to the page."""
    SILENT_ROUND = 303
    """Repeat the sign-in of a user who is signed in, because the token may be older than the user's right."""
    REFUSE = 401
    FORBID = 403
    AWAY = 503


@dataclass(frozen=True, slots=True)
class PassageVerdict:
    """The gate's decision about a request, with the reason.

    Attributes:
        reason: a key of `REASONS`; "" if the request passes.
    """

    passage: Passage
    reason: str = ""


REASONS = {
    "unknown-app": "There is no app of this name.",
    "foreign-origin": "This request came from a page of another address, so it was not passed on.",
    "foreign-frame": "This app is not shown inside a page of another address. Open it in a tab of its own.",
    "sign-in": "Sign in to open this app.",
    "session-over": "Your session has ended. Sign in again.",
    "token-unknown": "The hub does not know this token.",
    "token-of-service": "This is the token of a service. Use a token of a person.",
    "token-of-server": "This app takes no tokens of servers. Use a token of your own, from the hub's page of tokens.",
    "token-without-scope": "This token has no right to this app.",
    "not-allowed": "Your account has no right to open this app.",
    "hub-away": "The hub does not answer, so nobody's rights are known. You stay signed in.",
    "many-unknown-tokens": "Too many unknown tokens are being checked, so this one was not. Try again in some seconds.",
}
"""English sentences for users; pages translate them."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The parts of a request on which the decision depends. `None` means that the header was not sent.

    Attributes:
        upgrade: whether the request asks for another protocol, such as WebSocket.
        site, mode, dest: the ``Sec-Fetch-*`` headers, which scripts of a page cannot set.
        origin, accept: the headers ``Origin`` and ``Accept``.
        by_script: whether the request has the header ``X-Requested-With``.
    """

    method: str
    upgrade: bool = False
    site: str | None = None
    mode: str | None = None
    dest: str | None = None
    origin: str | None = None
    accept: str = ""
    by_script: bool = False

    @property
    def wants_page(self) -> bool:
        """Whether the request loads a page, so that it may be redirected to the sign-in."""
        if self.method != "GET" or self.upgrade or self.by_script:
            return False
        if self.mode is not None:
            return self.mode == "navigate" and (self.dest or "") in _PAGES
        return "text/html" in self.accept

    def is_cross_origin(self, app_origin: str) -> bool:
        """Return whether this request changes something or opens a WebSocket, and comes from a page of another origin.

        A request whose origin is unknown counts as coming from another origin.

        Args:
            app_origin: the origin of the app's public address, such as ``https://apps.example.org``.
        """
        if self.method in SAFE_METHODS and not self.upgrade:
            return False
        if self.site is not None:
            return self.site not in _OWN_SITES
        return self.origin != app_origin

    @property
    def is_framed(self) -> bool:
        """Whether a page of another site loads this page in an HTML frame, where clicks can be hijacked."""
        return self.dest in _FRAMES and self.site is not None and self.site not in _OWN_SITES


@dataclass(frozen=True, slots=True)
class SilentRound:
    """The last silent sign-in (one that asks the user nothing) for an app.

    Attributes:
        made: when it happened.
        groups: the person's groups at that time.
    """

    made: datetime
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PersonFacts:
    """The sender of a request: known by the gate's session if a browser sent it, by its token if a program sent it.

    Attributes:
        scopes: the sender's scopes, as last reported by the hub. `None` if the hub has not reported any recently
            enough.
        kind: ``user`` or ``service``.
        groups: the person's groups at the hub.
        is_over: whether the session has passed a limit, or the hub no longer knows its token.
        away: since when the hub does not answer; `None` if it answers.
        last_round: the last silent sign-in for this app; `None` before the first one.
    """

    scopes: frozenset[str] | None
    kind: str = "user"
    groups: tuple[str, ...] = ()
    is_over: bool = False
    away: datetime | None = None
    last_round: SilentRound | None = None


def is_public(request: RequestFacts, app: App, uri: str) -> bool:
    """Return whether the catalogue of apps lets anybody read this path without a sign-in.

    A path that programs may interpret differently is never public.

    Args:
        uri: path and query, as the proxy received them from the browser.
    """
    path, place = uri.partition("?")[0], address_of(app.where)
    if request.method not in ("GET", "HEAD") or request.upgrade or place is None or not is_plain(path):
        return False
    named = [place.path.rstrip("/") + each for each in app.public]
    return any(path == each or (each.endswith("/") and path.startswith(each)) for each in named)


def judge_session(
    request: RequestFacts, app: App, origin: str, who: PersonFacts | None, now: datetime
) -> PassageVerdict:
    """Decide about a request of a browser.

    Args:
        origin: the origin of the app's public address.
        who: the sender, known by the session cookie; `None` if the browser sent no valid cookie.
    """
    if who is None or who.is_over:
        reason = "sign-in" if who is None else "session-over"
        return PassageVerdict(Passage.SIGN_IN if request.wants_page else Passage.REFUSE, reason)
    if request.is_cross_origin(origin):
        return PassageVerdict(Passage.FORBID, "foreign-origin")
    if request.is_framed:
        return PassageVerdict(Passage.FORBID, "foreign-frame")
    if who.scopes is None:
        return PassageVerdict(Passage.AWAY, "hub-away")
    if who.kind != "user":
        return PassageVerdict(Passage.REFUSE, "token-of-service")
    if grants_access(app, who.scopes):
        return PassageVerdict(Passage.PASS)
    again = request.wants_page and _may_have_changed(who, now)
    return PassageVerdict(Passage.SILENT_ROUND if again else Passage.FORBID, "not-allowed")


def _may_have_changed(who: PersonFacts, now: datetime) -> bool:
    """Return whether the person may have got rights since the session's token was issued.

    The scopes of a token are set when it is issued, so a right that the person got later is missing.
    """
    last = who.last_round
    return last is None or now - last.made >= ROUND_AGAIN or not set(who.groups) <= set(last.groups)


def judge_token(app: App, who: PersonFacts | None) -> PassageVerdict:
    """Decide about a request that a program sends with a token of the hub.

    Args:
        who: the owner of the token; `None` if the hub does not know the token.
    """
    if who is None:
        return PassageVerdict(Passage.REFUSE, "token-unknown")
    if who.scopes is None:
        return PassageVerdict(Passage.AWAY, "hub-away")
    if who.kind != "user":
        return PassageVerdict(Passage.REFUSE, "token-of-service")
    if not app.servers and any(scope.startswith(OF_SERVER) for scope in who.scopes):
        return PassageVerdict(Passage.REFUSE, "token-of-server")
    # a server's token has those scopes of the role `server` that its owner has, so groups alone do not open an app
    return (
        PassageVerdict(Passage.PASS)
        if grants_access(app, who.scopes)
        else PassageVerdict(Passage.FORBID, "token-without-scope")
    )


def grants_access(app: App, scopes: frozenset[str]) -> bool:
    return app.scope in scopes or EVERY_APP in scopes


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of a session of the gate.

    Attributes:
        idle: time without a request after which a session ends; `None` if unused sessions do not end.
        lifetime: longest time that a session lasts.
    """

    idle: timedelta | None
    lifetime: timedelta

    def passed(self, begun: datetime, last_use: datetime, now: datetime) -> bool:
        """Return whether a session that began at `begun` and was last used at `last_use` is over.

        Setting the clock back does not extend a session beyond its lifetime.
        """
        idle = self.idle is not None and now - last_use >= self.idle
        return idle or abs(now - begun) >= self.lifetime
