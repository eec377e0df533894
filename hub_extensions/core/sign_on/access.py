"""May this request pass to an app? From facts of the request, of the app, and of whoever sends it.

Only what is known opens: an answer of the hub that is old, or none, opens nothing. Sign-in is offered to who opens a
page, and to nobody else: a script that is led to a sign-in page would read it as its answer.
Not here: asking the hub, and what an answer looks like (``gate/``); the headers that the app gets
(``identity_headers.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.sign_on.apps import App, address_of, is_plain

EVERY_APP = "access:services"
OF_SERVER = "access:servers!server="
"""A token with such a scope is a server's own: code in a notebook has it."""
ROUND_AGAIN = timedelta(minutes=1)
"""A sign-in without a question, to hear of new rights, is made for one app so often at most; once more with each new
group, for it may be what brings the right."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = frozenset({"same-origin", "none"})
_PAGES = frozenset({"document", "iframe", "frame", ""})
_FRAMES = frozenset({"iframe", "frame", "object", "embed"})


class Passage(Enum):
    """What becomes of a request."""

    PASS = 200
    SIGN_IN = 302
    """To the hub, and back to where it wanted to go."""
    SILENT_ROUND = 303
    """The same for somebody who is signed in: his token may be older than his right."""
    REFUSE = 401
    FORBID = 403
    AWAY = 503


@dataclass(frozen=True, slots=True)
class PassageVerdict:
    """What becomes of a request, and why. `reason`: a key of `REASONS`; "": it passes."""

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
"""For people; pages show them in the reader's language."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What is known of a request. None: the header was not sent.

    Attributes:
        site, mode, dest: the headers ``Sec-Fetch-…``, which no page's script can set.
        upgrade: it wants to become a WebSocket, or something else.
        by_script: it says so itself (``X-Requested-With``).
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
        """Somebody opens a page by it, so he may be led to the sign-in."""
        if self.method != "GET" or self.upgrade or self.by_script:
            return False
        if self.mode is not None:
            return self.mode == "navigate" and (self.dest or "") in _PAGES
        return "text/html" in self.accept

    def is_foreign(self, app_origin: str) -> bool:
        """It changes something, or opens a WebSocket, for a page of another address; so does what cannot be told."""
        if self.method in SAFE_METHODS and not self.upgrade:
            return False
        if self.site is not None:
            return self.site not in _OWN_SITES
        return self.origin != app_origin

    @property
    def is_framed(self) -> bool:
        """A page of another address shows it inside itself, where clicks are not what they seem to be."""
        return self.dest in _FRAMES and self.site is not None and self.site not in _OWN_SITES


@dataclass(frozen=True, slots=True)
class SilentRound:
    """A sign-in without a question: when it was made for an app, and which groups the person had then."""

    made: datetime
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PersonFacts:
    """Who sends a request: the session of a browser, or a program's token.

    Attributes:
        scopes: as the hub said last; None: it has not, or so long ago that it counts no more.
        kind: ``user`` or ``service``. groups: of the hub.
        is_over: the session has reached a limit, or the hub does not know its token any more.
        away: the hub does not answer since then; None: it does.
        last_round: for this app; None: there was none.
    """

    scopes: frozenset[str] | None
    kind: str = "user"
    groups: tuple[str, ...] = ()
    is_over: bool = False
    away: datetime | None = None
    last_round: SilentRound | None = None


def is_public(request: RequestFacts, app: App, uri: str) -> bool:
    """Anybody may read this without a sign-in, as the catalogue says. A path that can be read as another one is not.

    `uri`: as the proxy had it of the browser.
    """
    path, place = uri.partition("?")[0], address_of(app.where)
    if request.method not in ("GET", "HEAD") or request.upgrade or place is None or not is_plain(path):
        return False
    named = [place.path.rstrip("/") + each for each in app.public]
    return any(path == each or (each.endswith("/") and path.startswith(each)) for each in named)


def judge_session(
    request: RequestFacts, app: App, origin: str, who: PersonFacts | None, now: datetime
) -> PassageVerdict:
    """What becomes of a browser's request. `who`: None, it has no session. `origin`: of the app's public address."""
    if who is None or who.is_over:
        reason = "sign-in" if who is None else "session-over"
        return PassageVerdict(Passage.SIGN_IN if request.wants_page else Passage.REFUSE, reason)
    if request.is_foreign(origin):
        return PassageVerdict(Passage.FORBID, "foreign-origin")
    if request.is_framed:
        return PassageVerdict(Passage.FORBID, "foreign-frame")
    if who.scopes is None:
        return PassageVerdict(Passage.AWAY, "hub-away")
    if who.kind != "user":
        return PassageVerdict(Passage.REFUSE, "token-of-service")
    if opens(app, who.scopes):
        return PassageVerdict(Passage.PASS)
    again = request.wants_page and _may_have_changed(who, now)
    return PassageVerdict(Passage.SILENT_ROUND if again else Passage.FORBID, "not-allowed")


def _may_have_changed(who: PersonFacts, now: datetime) -> bool:
    """The person may have rights that the session's token does not: it keeps those of when it was made."""
    last = who.last_round
    return last is None or now - last.made >= ROUND_AGAIN or not set(who.groups) <= set(last.groups)


def judge_token(app: App, who: PersonFacts | None) -> PassageVerdict:
    """What becomes of a program's request, which brings a token of the hub in its header. `who`: None, nobody's."""
    if who is None:
        return PassageVerdict(Passage.REFUSE, "token-unknown")
    if who.scopes is None:
        return PassageVerdict(Passage.AWAY, "hub-away")
    if who.kind != "user":
        return PassageVerdict(Passage.REFUSE, "token-of-service")
    if not app.servers and any(scope.startswith(OF_SERVER) for scope in who.scopes):
        return PassageVerdict(Passage.REFUSE, "token-of-server")
    # the hub gives a server's token the scopes of the role `server` that its owner has: his groups alone open nothing
    return (
        PassageVerdict(Passage.PASS)
        if opens(app, who.scopes)
        else PassageVerdict(Passage.FORBID, "token-without-scope")
    )


def opens(app: App, scopes: frozenset[str]) -> bool:
    """These scopes open the app."""
    return app.scope in scopes or EVERY_APP in scopes


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """When a session ends by itself. `idle`: None, it does not for lack of use."""

    idle: timedelta | None
    lifetime: timedelta

    def passed(self, begun: datetime, last_use: datetime, now: datetime) -> bool:
        """A session that began and was used then is over. A clock that was set back makes none longer than a life."""
        idle = self.idle is not None and now - last_use >= self.idle
        return idle or abs(now - begun) >= self.lifetime
