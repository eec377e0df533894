"""The gate's own pages and routes: sign-in, callback, sign-out, reports of the hub, keys, health and metrics."""

from __future__ import annotations

import json
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from tornado.web import RequestHandler

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.adapters.service.signatures import Signatures, SignatureVerdict
from hub_extensions.core.sign_on.access import RequestFacts
from hub_extensions.core.sign_on.audit import AUDIT_PATH
from hub_extensions.core.sign_on.return_address import origin_of
from hub_extensions.core.sign_on.sessions import address_of_browser, short_address
from hub_extensions.core.signing import ANSWER_HEADER, SIGN_AGAIN, hash_of
from hub_extensions.gate.gate import Gate
from hub_extensions.gate.pages import COMMON_HEADERS, JSON, PAGE, RETRY_SECONDS, PageFacts, message, page
from hub_extensions.gate.relay import RelaySocket
from hub_extensions.gate.sessions import COOKIE_LETTERS, cookie_in
from hub_extensions.gate.sign_in import MAX_SIGN_IN, SignInFailed, SignIns

log = logging.getLogger("hub_extensions.gate")

METRICS_SCOPE = "read:metrics"
_STATE_LETTERS = 512


def routes_of(gate: Gate) -> Sequence[Any]:
    """Return the handlers of all routes below ``/_gate/``, and of unknown addresses, as tornado takes them."""
    about: dict[str, Any] = {"gate": gate}
    life = gate.settings.shared_life if gate.sessions.is_shared else ""
    signed = {**about, "signatures": Signatures(gate.settings.ended_secret, life=life)}
    return [
        (r"/_gate/start", StartPage, about),
        (r"/_gate/callback", CallbackPage, about),
        (r"/_gate/sign-out", SignOutPage, about),
        (r"/_gate/ended", EndedRoute, signed),
        (AUDIT_PATH, AuditRoute, {**about, "signatures": Signatures(gate.settings.client_secret, life=life)}),
        (r"/_gate/away/([^/]*)", AwayPage, about),
        (r"/_gate/relay/([^/]+)(?:/.*)?", RelaySocket, about),
        (r"/_gate/jwks.json", KeysRoute, about),
        (r"/_gate/health", GateHealthRoute, about),
        (r"/_gate/metrics", GateMetricsRoute, about),
        (r".*", NotFoundPage, about),
    ]


class GatePage(RequestHandler):
    """Base class of the handlers of the gate's own pages and routes, with their headers, refusals and cookies."""

    def initialize(self, gate: Gate, signatures: Signatures | None = None) -> None:
        self.gate, self.signatures = gate, signatures

    def set_default_headers(self) -> None:
        """Set headers that forbid caching, content sniffing and referrers."""
        self.clear_header("Server")
        for name, value in COMMON_HEADERS.items():
            self.set_header(name, value)

    def write_error(self, status_code: int, **_: Any) -> None:
        """Answer a request that tornado refuses, such as one with a wrong method, like the gate's own refusals."""
        self.refuse("method" if status_code == 405 else "not-found" if status_code < 500 else "hub-away", status_code)

    def refuse(self, reason: str, status: int, app: str = "") -> None:
        """Finish the request with a refusal: a page if the request loads a page, otherwise JSON.

        Args:
            reason: key of the text in `REASONS` or `FAILURE_TEXTS`.
            status: HTTP status of the answer.
            app: title of the app that the refusal is about; "" if it is about none.
        """
        self.set_status(status)
        if status == 503:
            self.set_header("Retry-After", RETRY_SECONDS)
        since = self.gate.answers.away_since
        if self.facts.wants_page:
            front = f"{self.gate.settings.origin}/" if self.gate.settings.portal else ""
            t = catalogue_for(self.request.headers.get("Accept-Language", ""))
            self._finish_with(PAGE, page(reason, PageFacts(app, self.gate.settings.contact, since, front), t))
        else:
            self._finish_with(JSON, message(reason, status, since))

    @property
    def facts(self) -> RequestFacts:
        """Facts about this request: its method, its origin, and what the browser loads.

        A check comes from a proxy; this request comes from the browser, for one of the gate's own pages.
        """
        get = self.request.headers.get
        sites = (get("Sec-Fetch-Site"), get("Sec-Fetch-Mode"), get("Sec-Fetch-Dest"))
        return RequestFacts(str(self.request.method), False, *sites, get("Origin"), get("Accept", ""))

    @property
    def origin(self) -> str:
        """The origin (scheme and host) under which the browser sent the request.

        If the request's host is not that of an app, this is the origin of the apps' common host.
        """
        scheme = urlsplit(self.gate.settings.origin).scheme
        named = f"{scheme}://{self.request.host}".lower()
        ours = {origin_of(app) for app in self.gate.apps.values()}
        return named if named in ours else self.gate.settings.origin

    @property
    def network(self) -> str:
        """The network of the browser's address, for the log. The whole address would identify a person."""
        forwarded = ",".join(self.request.headers.get_list("X-Forwarded-For"))
        found = address_of_browser(self.request.remote_ip or "", forwarded, self.gate.settings.trusted_proxies)
        return short_address(found) or "an unknown address"

    def cookie(self, name: str) -> str:
        """Return the value of a cookie of the gate; "" if it is missing or malformed (see `cookie_in`)."""
        return cookie_in(self.request.headers.get_list("Cookie"), name)

    def give_cookie(self, name: str, value: str, seconds: int | None = None) -> None:
        """Set a cookie for this host only, which scripts cannot read.

        Args:
            name: name of the cookie.
            value: its value.
            seconds: how long the browser keeps it; `None` until the browser is closed.
        """
        more: dict[str, Any] = {} if seconds is None else {"max_age": seconds}
        self.set_cookie(name, value, path="/", secure=self.gate.is_secure, httponly=True, samesite="Lax", **more)

    def _finish_with(self, headers: Mapping[str, str], body: bytes) -> None:
        for name, value in headers.items():
            self.set_header(name, value)
        self.finish(body)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log only the type of the exception: its text may contain an address, a cookie or a code."""
        log.error("%s failed: %s", type(self).__name__, getattr(typ, "__name__", typ))


class StartPage(GatePage):
    """Handler of ``/_gate/start?app=NAME&next=PATH``: begins a sign-in and redirects to the hub."""

    async def get(self) -> None:
        browser = self.cookie(self.gate.browser_cookie)
        if len(browser) != COOKIE_LETTERS:
            browser = secrets.token_urlsafe(32)
        try:
            address = await SignIns(self.gate).begin(
                self.get_query_argument("app", ""), self.get_query_argument("next", "", strip=False), browser
            )
        except SignInFailed as problem:
            self.refuse(problem.reason, problem.status)
            return
        self.give_cookie(self.gate.browser_cookie, browser, int(MAX_SIGN_IN.total_seconds()))
        self.redirect(address)


class CallbackPage(GatePage):
    """Handler of ``/_gate/callback``, to which the browser returns from the hub.

    The address has ``code`` and ``state`` in its query, or ``error`` if the hub refused the sign-in. The handler
    completes the sign-in and redirects to the app.
    """

    async def get(self) -> None:
        state = self.get_query_argument("state", "")
        if self.get_query_argument("error", ""):
            self.refuse("hub-refused", 403)
            return
        if not 0 < len(state) <= _STATE_LETTERS:
            self.refuse("sign-in-over", 400)
            return
        before = await self.gate.sessions.find_anywhere(self.cookie(self.gate.cookie_name))
        try:
            done = await SignIns(self.gate).finish(
                self.get_query_argument("code", ""),
                state,
                self.cookie(self.gate.browser_cookie),
                self.origin,
                before,
            )
        except SignInFailed as problem:
            log.info("a sign-in failed (%s), from %s", problem.reason, self.network)
            self.refuse(problem.reason, problem.status)
            return
        if done.cookie:
            log.info("%r signed in, from %s", done.user, self.network)
            self.give_cookie(self.gate.cookie_name, done.cookie)
        self.redirect(done.address)


class SignOutPage(GatePage):
    """Handler that ends the session at the gate, then redirects to the hub's sign-out, which ends everything else."""

    async def post(self) -> None:
        """Sign the user of this browser out. Requests from pages of other origins are refused."""
        if self.facts.is_cross_origin(self.origin):
            self.refuse("foreign-origin", 403)
            return
        try:
            await self._end_here()
        except Exception as problem:  # noqa: BLE001  # the hub ends its own session in any case, and reports it
            log.error("a sign-out is not written yet: %s", type(problem).__name__)
        self.clear_cookie(self.gate.cookie_name, path="/", secure=self.gate.is_secure, httponly=True, samesite="Lax")
        self.redirect(self.gate.hub.sign_out_url, status=303)

    async def _end_here(self) -> None:
        session = await self.gate.sessions.find_anywhere(self.cookie(self.gate.cookie_name))
        if session is not None:
            self.gate.answers.invalidate_user(session.user)
            await self.gate.sessions.end_of(session.user, {session.hub_session} - {""}, session)


class SignedRoute(GatePage, ABC):
    """Base class of routes for requests that the hub or the audit signs with a shared secret.

    The answers are signed too. A request without a valid signature gets 404.
    """

    async def post(self) -> None:
        header = self.request.headers.get("Authorization", "")
        judged = self.signatures.verify("POST", self.request.uri or "", header) if self.signatures else None
        if judged is None:
            self.refuse("not-found", 404)
            return
        if judged.verdict is SignatureVerdict.AGAIN:
            self._signed(judged.request, SIGN_AGAIN, {})
        elif judged.verdict is SignatureVerdict.REPLAYED or hash_of(self.request.body) != judged.request.body:
            self._signed(judged.request, 403, {})
        else:
            self._signed(judged.request, *await self.answer(self.request.body))

    @abstractmethod
    async def answer(self, body: bytes) -> tuple[int, Mapping[str, object]]:
        """Return HTTP status and content of the answer to a request with a valid signature. Each route implements it.

        Args:
            body: body of the request.
        """

    def _signed(self, request: Any, status: int, content: Mapping[str, object]) -> None:
        assert self.signatures is not None
        body = json.dumps(content).encode()
        self.set_status(status)
        self.set_header(ANSWER_HEADER, self.signatures.signed(request, status, body))
        self._finish_with(JSON, body)


class EndedRoute(SignedRoute):
    """Route by which the hub reports ended sessions of a user.

    The request is ``{"user": NAME, "sessions": [ID, …]}``, with ``null`` instead of the list for all sessions.
    """

    async def answer(self, body: bytes) -> tuple[int, Mapping[str, object]]:
        user, of_hub = _ended_in(body)
        if not user:
            return 400, {"message": "user has to be a name, sessions a list of texts or null"}
        self.gate.answers.invalidate_user(user)
        try:
            count = await self.gate.sessions.end_of(user, of_hub)
        except Exception as problem:  # noqa: BLE001  # the hub reports it again
            log.error("an end is not written yet: %s", type(problem).__name__)
            return 503, {"message": "the sessions are over, and their rows still there"}
        log.info("the hub reported an end: %d sessions are over", count)
        return 200, {"ended": count}


class AuditRoute(SignedRoute):
    """Route by which the audit (a test whether apps are open to strangers) gets a session for one of its accounts.

    The session is the same as if the account had signed in. The request is ``{"token": TOKEN, "expired": false}``.
    Tokens of other users are refused. If `expired` is true, the session has already passed its limits.
    """

    async def answer(self, body: bytes) -> tuple[int, Mapping[str, object]]:
        try:
            sent = json.loads(body)
            cookie = await SignIns(self.gate).for_audit(str(sent["token"]), expired=sent.get("expired") is True)
        except (ValueError, TypeError, KeyError, AttributeError):
            return 400, {"message": "token has to be a text"}
        except SignInFailed as problem:
            return problem.status, {"message": problem.reason}
        return 200, {"cookie": cookie}


class AwayPage(GatePage):
    """Handler of ``/_gate/away/NAME``, which a proxy shows if an app does not answer."""

    def get(self, name: str) -> None:
        """Show the page about the app with this name, whatever the method of the request.

        The app's title is shown only if the request has the proxy's secret, because strangers must not learn which apps
        exist.
        """
        app = self.gate.apps.get(name) if self.gate.is_from_proxy(self.request.headers) else None
        self.refuse("app-away", 502, app.title if app is not None else "")

    post = put = patch = delete = options = head = get


class KeysRoute(GatePage):
    """Handler of ``/_gate/jwks.json``: the public keys with which apps verify the gate's assertions.

    An assertion is a signed token that identifies the caller to an app.
    """

    def get(self) -> None:
        self.set_header("Cache-Control", "public, max-age=300")
        self._finish_with(JSON, json.dumps(self.gate.signer.published()).encode())


class GateHealthRoute(GatePage):
    """Handler of ``/_gate/health``, which shows that the gate answers, and whether the hub answers the gate."""

    def get(self) -> None:
        since = self.gate.answers.away_since
        self._finish_with(JSON, json.dumps({"status": "ok" if since is None else "hub-away"}).encode())


class GateMetricsRoute(GatePage):
    """Handler of ``/_gate/metrics`` for Prometheus. The request needs a token with the hub's scope ``read:metrics``."""

    async def get(self) -> None:
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        known = await self.gate.answers.check_token(token) if scheme.lower() == "bearer" and token else None
        if known is None or known.owner is None or METRICS_SCOPE not in known.owner.scopes:
            self.refuse("token-without-scope", 403)
            return
        registry = CollectorRegistry()
        registry.register(_GateNumbers(self.gate))
        self._finish_with({"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}, generate_latest(registry))


class NotFoundPage(GatePage):
    """Handler of all other addresses, which answers 404."""

    def prepare(self) -> None:
        self.refuse("not-found", 404)


class _GateNumbers(Collector):
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def collect(self) -> Any:
        checks = CounterMetricFamily(
            "jupyterhub_gate_checks", "Checks of proxies, by what became of the request.", labels=["answer"]
        )
        for passage, count in self._gate.passages.items():
            checks.add_metric([passage.name.lower().replace("_", "-")], count)
        yield checks
        calls = self._gate.answers.calls
        yield CounterMetricFamily("jupyterhub_gate_hub_requests", "Questions to the hub about tokens.", value=calls)
        count = len(self._gate.sessions)
        yield GaugeMetricFamily("jupyterhub_gate_sessions", "Sessions of browsers at the gate.", value=count)
        failures = None if self._gate.audits is None else self._gate.audits.failures
        if failures is not None:  # without an audit the metric is missing: 0 would mean that nothing is open
            text = "What the gate's last audit found open."
            yield GaugeMetricFamily("jupyterhub_gate_audit_failures", text, value=failures)


def _ended_in(body: bytes) -> tuple[str, frozenset[str] | None]:
    """Parse the hub's report of ended sessions.

    Returns:
        The user's name, "" if the report is malformed; and the hub's ids of the sessions, `None` for all of the user.
    """
    try:
        found = json.loads(body)
        user, of_hub = found["user"], found.get("sessions")
    except (ValueError, TypeError, KeyError, AttributeError):
        return "", None
    texts = of_hub is None or (isinstance(of_hub, list) and all(isinstance(each, str) for each in of_hub))
    if not isinstance(user, str) or not texts:
        return "", None
    return user, None if of_hub is None else frozenset(of_hub)
