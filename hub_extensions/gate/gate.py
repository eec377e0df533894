"""The gate: answers the checks of proxies (forward auth).

A check is the request by which a proxy asks whether a browser's or program's request may pass to an app. The gate
identifies the caller, and asks the hub if necessary. ``core/sign_on/access.py`` decides. HTTP is in ``server.py`` and
``routes.py``, the sign-in in ``sign_in.py``.
"""

from __future__ import annotations

import hmac
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote

from tornado.httputil import HTTPHeaders, HTTPServerRequest

from hub_extensions.adapters.hub.hub_sign_in import HubSignIn, TokenOwner
from hub_extensions.adapters.provider.assertions import SIGNED_AGAIN_SECONDS, AssertionSigner
from hub_extensions.core.sign_on.access import (
    SAFE_METHODS,
    Passage,
    PassageVerdict,
    PersonFacts,
    RequestFacts,
    SessionLimits,
    SilentRound,
    grants_access,
    is_public,
    judge_session,
    judge_token,
)
from hub_extensions.core.sign_on.apps import App, AppCatalogue
from hub_extensions.core.sign_on.identity_headers import (
    COOKIE,
    METHOD,
    PROXY_SECRET,
    UPGRADE,
    URI,
    CallerIdentity,
    cookies_without,
    headers_of,
)
from hub_extensions.core.sign_on.return_address import origin_of, return_path
from hub_extensions.core.sign_on.sessions import address_of_browser
from hub_extensions.gate.audit_loop import PeriodicAudit
from hub_extensions.gate.hub_answers import HubAnswers, KnownToken
from hub_extensions.gate.sessions import GateSession, GateSessions, cookie_in
from hub_extensions.gate.settings import GateSettings

SECURE_COOKIE, PLAIN_COOKIE = "__Host-gate", "gate-without-https"
"""Names of the session cookie with https and with plain http, where browsers reject ``__Host-`` cookies."""
SECURE_BROWSER, PLAIN_BROWSER = "__Host-gate-browser", "gate-browser-without-https"
OWN_COOKIES = (SECURE_COOKIE, PLAIN_COOKIE, SECURE_BROWSER, PLAIN_BROWSER)
START = "/_gate/start"
UPGRADES = (UPGRADE, "Upgrade", "Sec-WebSocket-Key", "Sec-WebSocket-Version")
"""Headers of a request that opens a WebSocket; one of them is enough."""
_BEARER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/=-]{1,512})")
_Pairs = Sequence[tuple[str, str]]


class SignedIdentity(NamedTuple):
    """The headers that identify the caller to an app. They are cached until their assertion has to be signed again.

    Attributes:
        until: time on the monotonic clock at which they have to be signed again.
        keys: value of `Gate.times_rotated` when they were signed; if it has changed since, they are not used.
        groups: the user's groups when they were signed; if these have changed, the headers are not used.
        headers: names and values of the headers.
    """

    until: float
    keys: int
    groups: tuple[str, ...]
    headers: _Pairs


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A check: the request by which a proxy asks whether a browser's or program's request may pass to an app.

    Attributes:
        app: the requested app; `None` if the catalogue lacks it.
        headers: headers of the check. Most are those of the browser or program, others are added by the proxy.
        method: HTTP method of the check, which may differ from that of the request that is checked.
        tail: rest of the path after the app's name.
        is_use: whether the request counts as a use of its session, so that the idle limit starts again.
        peer: address from which the check came, which is the proxy's.
    """

    app: App | None
    headers: HTTPHeaders
    method: str
    tail: str = ""
    is_use: bool = True
    peer: str = ""

    @property
    def facts(self) -> RequestFacts:
        """Facts about the request that is checked: its method, its origin, and what the browser loads.

        If the headers name several methods, one that may change something is used. Whether a WebSocket is opened is
        seen from several headers, because Traefik removes ``Upgrade`` from its check.
        """
        get = self.headers.get
        named = [each.upper() for each in (get(METHOD), get("X-Forwarded-Method"), self.method) if each]
        method = next((each for each in named if each not in SAFE_METHODS), named[0])
        return RequestFacts(
            method,
            any(get(name) for name in UPGRADES),
            get("Sec-Fetch-Site"),
            get("Sec-Fetch-Mode"),
            get("Sec-Fetch-Dest"),
            get("Origin"),
            get("Accept", ""),
            bool(get("X-Requested-With")),
        )

    @property
    def uri(self) -> str:
        """Path and query of the request that is checked, as the proxy reports them."""
        return self.headers.get(URI) or self.headers.get("X-Forwarded-Uri") or self.tail


class CheckAnswer(NamedTuple):
    """The gate's answer to a check (a proxy's question whether a request may pass to an app).

    Attributes:
        verdict: whether the request may pass, and why not.
        app: the requested app; `None` if the catalogue lacks it.
        identity: headers for the app that identify the caller; empty if the request may not pass.
        sign_in: address of the sign-in to which the browser is redirected; "" without a redirect.
        wants_page: whether the request loads a page, so that a refusal is shown as a page.
    """

    verdict: PassageVerdict
    app: App | None
    identity: _Pairs = ()
    sign_in: str = ""
    wants_page: bool = False


class Gate:
    """A running gate: what it knows, and its decisions about requests. `open_gate` makes it.

    Args:
        settings: the settings of the gate.
        sessions: the sessions of browsers.
        hub: the hub's API and OAuth, to sign users in and to ask about tokens.
        signer: signs assertions (the tokens that identify a caller to an app).
        now: returns the gate's time.

    Attributes:
        apps: name of an app -> the app.
        answers: what the hub reported about tokens.
        passages: how often each decision was made, for the metrics.
        times_rotated: how often the keys have changed that sign assertions.
        audits: the periodic audit (a test whether apps are open to strangers); `None` if this gate makes no audits.
    """

    def __init__(
        self,
        settings: GateSettings,
        sessions: GateSessions,
        hub: HubSignIn,
        signer: AssertionSigner,
        now: Callable[[], datetime],
    ) -> None:
        self.settings, self.sessions, self.hub, self.signer, self.now = settings, sessions, hub, signer, now
        self.answers = HubAnswers(hub, settings.cache.total_seconds(), now)
        self.passages: Counter[Passage] = Counter()
        self.times_rotated = 0
        self.audits: PeriodicAudit | None = None
        self.is_secure = settings.origin.startswith("https://")
        self.cookie_name = SECURE_COOKIE if self.is_secure else PLAIN_COOKIE
        self.browser_cookie = SECURE_BROWSER if self.is_secure else PLAIN_BROWSER
        self.apps: Mapping[str, App] = {}
        self._origins: Mapping[str, str] = {}
        self.use_catalogue(settings.catalogue)

    def is_from_proxy(self, headers: HTTPHeaders) -> bool:
        """Return whether a request contains the secret that only the proxy knows. Compares in constant time."""
        sent, expected = headers.get_list(PROXY_SECRET), self.settings.proxy_secret
        return bool(expected) and len(sent) == 1 and hmac.compare_digest(sent[0].encode(), expected.encode())

    def use_catalogue(self, apps: AppCatalogue) -> None:
        """Replace the apps of the gate by those of this catalogue."""
        self.apps = {app.name: app for app in apps}
        self._origins = {app.name: origin_of(app) for app in apps}

    def refresh_keys(self) -> None:
        """Read the keys again that sign assertions (the tokens that identify a caller to an app).

        If they have changed, cached assertions are no longer sent, because another key has signed them.
        """
        if self.signer.refresh():
            self.times_rotated += 1

    async def session_of(self, request: HTTPServerRequest) -> GateSession | None:
        """Return the session of a browser that loads one of the gate's own pages; `None` without a valid session.

        The hub is asked if its last answer is too old. While it does not answer, the last known session is returned:
        `answers.away_since` is then set, and `apps_open_to` returns no app for the session.
        """
        session = await self.sessions.find_anywhere(cookie_in(request.headers.get_list("Cookie"), self.cookie_name))
        if session is None or session.is_over:
            return None
        answered = await self.answers.refresh(session.known)
        session.answered = session.known.times_ended if answered else None
        return None if await self._is_over(session) else session

    def apps_open_to(self, session: GateSession) -> AppCatalogue:
        """Return the apps that the session may open; empty without a recent answer of the hub."""
        owner = session.known.owner
        has_answered = session.answered == session.known.times_ended
        if owner is None or session.is_over or not (has_answered or self.answers.is_fresh(session.known)):
            return ()
        return tuple(app for app in self.apps.values() if grants_access(app, owner.scopes))

    def token_of(self, session: GateSession) -> str:
        """Return the session's token for requests to the hub in the user's name.

        Callers must send it only to the hub and the GPU service.
        """
        return session.known.token

    def session_now(self, request: CheckedRequest) -> GateSession | None:
        """Return the session of the browser whose request is checked, without asking the hub or the database.

        `None` if the request has a program's token, or a cookie that this gate does not know.
        """
        if _bearer(request.headers) is not None:
            return None
        return self.sessions.find(cookie_in(request.headers.get_list("Cookie"), self.cookie_name))

    def answer_now(self, request: CheckedRequest) -> CheckAnswer | None:
        """Return the answer to a check, or `None` if the hub has to be asked for it.

        A check is a proxy's question whether a request may pass to an app. After `None`, the caller has to await
        `answer`.
        """
        app = request.app
        if app is None:
            return self._refused(request, PassageVerdict(Passage.FORBID, "unknown-app"))
        if app.public and is_public(request.facts, app, request.uri):
            return self._answer_public(request, app)
        if "Authorization" in request.headers and _bearer(request.headers) is not None:
            return None
        cookie = cookie_in(request.headers.get_list("Cookie"), self.cookie_name)
        session = self.sessions.find(cookie)
        if session is None or session.is_over:
            shared = bool(cookie) and self.sessions.is_shared
            return None if shared else self._judge(request, app, session)
        if self.answers.is_fresh(session.known) and not session.known.is_void:
            return self._judge(request, app, session)
        return None

    async def answer(self, request: CheckedRequest) -> CheckAnswer:
        """Return the answer to a check (a proxy's question whether a request may pass to an app).

        If the hub's last answer about the token is too old, the hub is asked again.
        """
        app = request.app
        if app is None:
            return self._refused(request, PassageVerdict(Passage.FORBID, "unknown-app"))
        token = _bearer(request.headers)
        if token is not None:
            return await self._answer_program(request, app, token)
        session = await self.sessions.find_anywhere(cookie_in(request.headers.get_list("Cookie"), self.cookie_name))
        if session is None or session.is_over:
            return self._judge(request, app, session)
        answered = await self.answers.refresh(session.known)
        await self._is_over(session)
        return self._judge(request, app, session, answered)

    async def _is_over(self, session: GateSession) -> bool:
        """Return whether the session is over. End it if its token became invalid or now belongs to another user."""
        owner = session.known.owner
        if not session.is_over and (session.known.is_void or (owner is not None and owner.name != session.user)):
            await self.sessions.end([session])
        return session.is_over

    def _judge(
        self, request: CheckedRequest, app: App, session: GateSession | None, answered: bool = True
    ) -> CheckAnswer:
        facts, now, who = request.facts, self.now(), None
        owner = session.known.owner if session is not None else None
        if session is not None:
            last = session.rounds.get(app.name) if session.rounds else None
            who = _facts_of(owner if answered else None, self.answers.away_since, session.is_over, last)
        verdict = judge_session(facts, app, self._origins[app.name], who, now)
        if verdict.passage is not Passage.PASS or session is None or owner is None:
            return self._refused(request, verdict, facts)
        if request.is_use:
            session.last_use = now
        return self._passed(request, verdict, owner, session.known.identities)

    async def _answer_program(self, request: CheckedRequest, app: App, token: str) -> CheckAnswer:
        forwarded = ",".join(request.headers.get_list("X-Forwarded-For"))
        address = address_of_browser(request.peer, forwarded, self.settings.trusted_proxies)
        known = await self.answers.check_token(token, address) if token else KnownToken("")
        if known is None:
            return self._refused(request, PassageVerdict(Passage.AWAY, "many-unknown-tokens"))
        if known.has_failed:
            return self._refused(request, PassageVerdict(Passage.AWAY, "hub-away"))
        owner = known.owner if not known.is_void else None
        verdict = judge_token(app, None if owner is None else _facts_of(owner))
        if verdict.passage is not Passage.PASS or owner is None:
            return self._refused(request, verdict)
        return self._passed(request, verdict, owner, known.identities)

    def _answer_public(self, request: CheckedRequest, app: App) -> CheckAnswer:
        """Return the answer that lets a request for a public path pass, without headers that identify the caller.

        Args:
            request: the check.
            app: the requested app.
        """
        self.passages[Passage.PASS] += 1
        headers = headers_of(CallerIdentity(""), app.header_family, "")
        return CheckAnswer(PassageVerdict(Passage.PASS), app, (*headers.items(), (COOKIE, _cookies_for(request))))

    def _refused(
        self, request: CheckedRequest, verdict: PassageVerdict, facts: RequestFacts | None = None
    ) -> CheckAnswer:
        self.passages[verdict.passage] += 1
        sign_in, app = "", request.app
        if app is not None and verdict.passage in (Passage.SIGN_IN, Passage.SILENT_ROUND):
            path = quote(return_path(app, request.uri), safe="/")
            sign_in = f"{self._origins[app.name]}{START}?app={app.name}&next={path}"
        wants_page = (facts or request.facts).wants_page
        return CheckAnswer(verdict, app, sign_in=sign_in, wants_page=wants_page)

    def _passed(
        self, request: CheckedRequest, verdict: PassageVerdict, owner: TokenOwner, identities: dict[str, SignedIdentity]
    ) -> CheckAnswer:
        self.passages[verdict.passage] += 1
        app, now = request.app, time.monotonic()
        assert app is not None
        passport, signed_for = identities.get(app.name), (self.times_rotated, owner.groups)
        if passport is None or passport.until <= now or (passport.keys, passport.groups) != signed_for:
            identity = CallerIdentity(owner.name, owner.groups)
            headers = headers_of(identity, app.header_family, self.signer.sign(identity, app.name))
            passport = SignedIdentity(now + SIGNED_AGAIN_SECONDS, *signed_for, tuple(headers.items()))
            identities[app.name] = passport
        return CheckAnswer(verdict, app, (*passport.headers, (COOKIE, _cookies_for(request))))


def _cookies_for(request: CheckedRequest) -> str:
    """Return the Cookie header for the app: the cookies of the checked request without those of the gate."""
    return cookies_without("; ".join(request.headers.get_list("Cookie")), OWN_COOKIES)


def session_limits(settings: GateSettings) -> SessionLimits:
    """Return how long a session may be unused, and how long it may last, from the settings."""
    return SessionLimits(settings.idle, settings.lifetime)


def _bearer(headers: HTTPHeaders) -> str | None:
    """Return the token of a program's request, from its header ``Authorization``.

    "" if the token is malformed. `None` if the header is missing or has another scheme, which is meant for the app.
    """
    sent = headers.get("Authorization", "")
    if sent[:6].lower() != "bearer":
        return None
    found = _BEARER.fullmatch(sent)
    return found[1] if found is not None else ""


def _facts_of(
    owner: TokenOwner | None,
    away: datetime | None = None,
    is_over: bool = False,
    last_round: SilentRound | None = None,
) -> PersonFacts:
    if owner is None:
        return PersonFacts(None, is_over=is_over, away=away, last_round=last_round)
    return PersonFacts(owner.scopes, owner.kind, owner.groups, is_over, away, last_round)
