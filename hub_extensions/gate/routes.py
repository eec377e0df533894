"""The gate's own pages: sign in, come back, sign out, what the hub reports, keys, health and metrics.

Not here: checks (``server.py``), and the front page.
"""

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
from hub_extensions.gate.pages import EVERY, JSON, PAGE, RETRY_SECONDS, PageFacts, message, page
from hub_extensions.gate.proxy_secret import knows_secret
from hub_extensions.gate.relay import RelaySocket
from hub_extensions.gate.sessions import COOKIE_LETTERS, cookie_in
from hub_extensions.gate.sign_in import LONGEST, SignInFailed, SignIns

log = logging.getLogger("hub_extensions.gate")

METRICS_SCOPE = "read:metrics"
_STATE_LETTERS = 512


def routes_of(gate: Gate) -> Sequence[Any]:
    """All of them, as tornado takes them."""
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
        (r".*", NoGatePage, about),
    ]


class GatePage(RequestHandler):
    """A page of the gate's own. Its methods are those that a subclass has."""

    def initialize(self, gate: Gate, signatures: Signatures | None = None) -> None:
        """Called by tornado for each request."""
        self.gate, self.signatures = gate, signatures

    def set_default_headers(self) -> None:
        """No answer of ours is kept, sniffed or framed."""
        self.clear_header("Server")
        for name, value in EVERY.items():
            self.set_header(name, value)

    def write_error(self, status_code: int, **_: Any) -> None:
        """What tornado refuses by itself: another method, an address that cannot be read."""
        self.refuse("method" if status_code == 405 else "not-found" if status_code < 500 else "hub-away", status_code)

    def refuse(self, reason: str, status: int, app: str = "") -> None:
        """Finish with a page, or JSON for a program."""
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
        """Of this request, which comes from a browser."""
        get = self.request.headers.get
        sites = (get("Sec-Fetch-Site"), get("Sec-Fetch-Mode"), get("Sec-Fetch-Dest"))
        return RequestFacts(str(self.request.method), False, *sites, get("Origin"), get("Accept", ""))

    @property
    def origin(self) -> str:
        """Of the host that the proxy says this is, if it is one of ours; else the apps' host."""
        scheme = urlsplit(self.gate.settings.origin).scheme
        named = f"{scheme}://{self.request.host}".lower()
        ours = {origin_of(app) for app in self.gate.apps.values()}
        return named if named in ours else self.gate.settings.origin

    @property
    def network(self) -> str:
        """Where the browser is, as the log has it: a network, and no person's address."""
        forwarded = ",".join(self.request.headers.get_list("X-Forwarded-For"))
        found = address_of_browser(self.request.remote_ip or "", forwarded, self.gate.settings.trusted_proxies)
        return short_address(found) or "an unknown address"

    def cookie(self, name: str) -> str:
        """See `cookie_in`."""
        return cookie_in(self.request.headers.get_list("Cookie"), name)

    def give_cookie(self, name: str, value: str, seconds: int | None = None) -> None:
        """Set one for this host alone, and for no script."""
        more: dict[str, Any] = {} if seconds is None else {"max_age": seconds}
        self.set_cookie(name, value, path="/", secure=self.gate.is_secure, httponly=True, samesite="Lax", **more)

    def _finish_with(self, headers: Mapping[str, str], body: bytes) -> None:
        for name, value in headers.items():
            self.set_header(name, value)
        self.finish(body)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """The kind alone: an address, a cookie or a code may be in the rest."""
        log.error("%s failed: %s", type(self).__name__, getattr(typ, "__name__", typ))


class StartPage(GatePage):
    """To the hub, to sign in."""

    async def get(self) -> None:
        """``?app=NAME&next=PATH``."""
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
        self.give_cookie(self.gate.browser_cookie, browser, int(LONGEST.total_seconds()))
        self.redirect(address)


class CallbackPage(GatePage):
    """Back from the hub."""

    async def get(self) -> None:
        """``?code=…&state=…``, or ``?error=…``."""
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
    """Out of everything: the gate forgets the session, and the hub ends its own with all that belongs to it."""

    async def post(self) -> None:
        """From a page of ours only."""
        if self.facts.is_foreign(self.origin):
            self.refuse("foreign-origin", 403)
            return
        try:
            await self._end_here()
        except Exception as problem:  # noqa: BLE001  # the hub ends its own in any case, and reports it
            log.error("a sign-out is not written yet: %s", type(problem).__name__)
        self.clear_cookie(self.gate.cookie_name, path="/", secure=self.gate.is_secure, httponly=True, samesite="Lax")
        self.redirect(self.gate.hub.sign_out_url, status=303)

    async def _end_here(self) -> None:
        session = await self.gate.sessions.find_anywhere(self.cookie(self.gate.cookie_name))
        if session is not None:
            self.gate.answers.forget_programs(session.user)
            await self.gate.sessions.end_of(session.user, {session.hub_session} - {""}, session)


class SignedRoute(GatePage, ABC):
    """A request that is signed with a secret, and so is its answer. To everybody else nothing is there."""

    async def post(self) -> None:
        """See the class."""
        header = self.request.headers.get("Authorization", "")
        judged = self.signatures.judge("POST", self.request.uri or "", header) if self.signatures else None
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
        """Status and content."""

    def _signed(self, request: Any, status: int, content: Mapping[str, object]) -> None:
        assert self.signatures is not None
        body = json.dumps(content).encode()
        self.set_status(status)
        self.set_header(ANSWER_HEADER, self.signatures.signed(request, status, body))
        self._finish_with(JSON, body)


class EndedRoute(SignedRoute):
    """The hub reports that sessions ended: ``{"user": NAME, "sessions": [ID, …] or null for all}``."""

    async def answer(self, body: bytes) -> tuple[int, Mapping[str, object]]:
        """See the class."""
        user, of_hub = _ended_in(body)
        if not user:
            return 400, {"message": "user has to be a name, sessions a list of texts or null"}
        self.gate.answers.forget_programs(user)
        try:
            count = await self.gate.sessions.end_of(user, of_hub)
        except Exception as problem:  # noqa: BLE001  # the hub reports it again
            log.error("an end is not written yet: %s", type(problem).__name__)
            return 503, {"message": "the sessions are over, and their rows still there"}
        log.info("the hub reported an end: %d sessions are over", count)
        return 200, {"ended": count}


class AuditRoute(SignedRoute):
    """An audit's account gets a session, as if it had signed in: ``{"token": TOKEN, "expired": false}``.

    Nobody else's token does. `expired`: as if it had signed in so long ago that the session is over.
    """

    async def answer(self, body: bytes) -> tuple[int, Mapping[str, object]]:
        """See the class."""
        try:
            sent = json.loads(body)
            cookie = await SignIns(self.gate).for_audit(str(sent["token"]), expired=sent.get("expired") is True)
        except (ValueError, TypeError, KeyError, AttributeError):
            return 400, {"message": "token has to be a text"}
        except SignInFailed as problem:
            return problem.status, {"message": problem.reason}
        return 200, {"cookie": cookie}


class AwayPage(GatePage):
    """For proxies: the app does not answer."""

    def get(self, name: str) -> None:
        """Whatever the browser's method was. The app's title is for a proxy, and not for a neighbour of the gate."""
        app = self.gate.apps.get(name) if knows_secret(self.gate, self.request.headers) else None
        self.refuse("app-away", 502, app.title if app is not None else "")

    post = put = patch = delete = options = head = get


class KeysRoute(GatePage):
    """The public keys with which apps check assertions."""

    def get(self) -> None:
        """See the class."""
        self.set_header("Cache-Control", "public, max-age=300")
        self._finish_with(JSON, json.dumps(self.gate.signer.published()).encode())


class GateHealthRoute(GatePage):
    """It answers; and whether the hub does."""

    def get(self) -> None:
        """See the class."""
        since = self.gate.answers.away_since
        self._finish_with(JSON, json.dumps({"status": "ok" if since is None else "hub-away"}).encode())


class GateMetricsRoute(GatePage):
    """Numbers for Prometheus, for a token with the hub's right to read metrics."""

    async def get(self) -> None:
        """See the class."""
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        known = await self.gate.answers.of_program(token) if scheme.lower() == "bearer" and token else None
        if known is None or known.owner is None or METRICS_SCOPE not in known.owner.scopes:
            self.refuse("token-without-scope", 403)
            return
        registry = CollectorRegistry()
        registry.register(_GateNumbers(self.gate))
        self._finish_with({"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}, generate_latest(registry))


class NoGatePage(GatePage):
    """Every other address."""

    def prepare(self) -> None:
        """See the class."""
        self.refuse("not-found", 404)


class _GateNumbers(Collector):
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def collect(self) -> Any:
        checks = CounterMetricFamily(
            "jupyterhub_gpu_gate_checks", "Checks of proxies, by what became of the request.", labels=["answer"]
        )
        for passage, count in self._gate.passages.items():
            checks.add_metric([passage.name.lower().replace("_", "-")], count)
        yield checks
        calls = self._gate.answers.calls
        yield CounterMetricFamily("jupyterhub_gpu_gate_hub_calls", "Questions to the hub about tokens.", value=calls)
        count = len(self._gate.sessions)
        yield GaugeMetricFamily("jupyterhub_gpu_gate_sessions", "Sessions of browsers at the gate.", value=count)
        failures = None if self._gate.audits is None else self._gate.audits.failures
        if failures is not None:  # without an audit nothing is said: 0 would mean that nothing is open
            text = "What the gate's last audit found open."
            yield GaugeMetricFamily("jupyterhub_gpu_audit_failures", text, value=failures)


def _ended_in(body: bytes) -> tuple[str, frozenset[str] | None]:
    """Whose sessions ended, and which; "": it cannot be read."""
    try:
        found = json.loads(body)
        user, of_hub = found["user"], found.get("sessions")
    except (ValueError, TypeError, KeyError, AttributeError):
        return "", None
    texts = of_hub is None or (isinstance(of_hub, list) and all(isinstance(each, str) for each in of_hub))
    if not isinstance(user, str) or not texts:
        return "", None
    return user, None if of_hub is None else frozenset(of_hub)
