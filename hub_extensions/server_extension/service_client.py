"""This server's client of the GPU service, authenticated by the server's own token.

It reads the server's state (lease and coming stop), sends the server's report (kernels, GPU use), and passes on the
user's requests, such as to keep the server. The service decides everything. While the service does not answer, the last
state is kept, with a reason and since when.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from time import monotonic

from tornado.httpclient import HTTPError, HTTPRequest, HTTPResponse
from tornado.simple_httpclient import HTTPStreamClosedError, HTTPTimeoutError

from hub_extensions.adapters.http_client import HttpClient, http_client
from hub_extensions.core.messages import GiveBack, Problem, Report, ServerState
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.server_extension.before_stop import BeforeStop
from hub_extensions.server_extension.codec import CodecError, decode, encode
from hub_extensions.server_extension.sampler import NOT_UNDER_A_HUB

POLL_SECONDS = 10.0
POLL_WITH_COUNTDOWN_SECONDS = 5.0
POLL_NEAR_THE_END_SECONDS = 2.0
NEAR_THE_END = timedelta(seconds=60)
POLL_STRANGER_SECONDS, POLL_STRANGER_MOST_SECONDS = 60.0, 600.0
"""First and longest interval between requests while something other than the GPU service answers, such as a hub
without the service. The interval doubles each time."""

SAME_TIME = timedelta(seconds=2)
REPORT_EVERY_SECONDS = 30.0
REQUEST_SECONDS = 5.0
MAX_ANSWER_BYTES = 1024 * 1024  # an answer has some kilobytes; a longer one does not come from the service

AWAY = explain("away")
NO_SCOPE = explain("no-scope")
NOT_KNOWN = explain("server-not-known")
UNREADABLE = explain("unreadable")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServiceAddress:
    """The service's address and this server's token; the token is not part of the repr.

    Attributes:
        account: uid of the account under which the service must listen, if the address is on this machine. The token
            is not sent to a program of another account. `None` if the hub does not set it, which allows any account.
    """

    url: str
    token: str
    account: int | None = None

    def __repr__(self) -> str:
        return f"Address(url={self.url!r})"


def address_in(environ: Mapping[str, str]) -> ServiceAddress | None:
    """Return the service's address from this server's environment; `None` outside a hub with GPU offers."""
    url = environ.get("JUPYTERHUB_GPU_SERVICE_URL", "")
    token = environ.get("JUPYTERHUB_API_TOKEN", "")
    if not url or not token:
        return None
    account = environ.get("JUPYTERHUB_GPU_SERVICE_UID", "")
    return ServiceAddress(url.rstrip("/"), token, int(account) if account.isdecimal() else None)


class RequestRefused(Exception):
    """A request to the service failed: it was refused, or the service did not answer.

    Attributes:
        status, problem: HTTP status and explanation for the browser.
        detail: the cause, for the log.
        by_stranger: the answer came from something other than the GPU service.
    """

    def __init__(self, status: int, why: Problem | Reason, detail: str = "", *, by_stranger: bool = False) -> None:
        super().__init__(why.message)
        self.by_stranger = by_stranger
        self.status = status
        self.problem = why if isinstance(why, Problem) else Problem.of(why)
        self.detail = detail or why.message


class ServiceLink:
    """Connects this server with the GPU service: asks periodically for the server's state and sends its report.

    Attributes:
        state: the last state; `None` before the first answer, and outside a hub.
        note: why `state` is missing or old; `None` if the last request succeeded.

    Args:
        address: address of the service; `None` outside a hub, where nothing is ever requested.
        report: returns the report about this server. Its argument is the time of the last delivered report on the
            monotonic clock. This class adds how far the steps before a stop are.
        on_state: called with each new state.
        on_answer: called after each request of the loop, answered or not.
        before_stop: carries out the steps before a stop (interrupt cells, save, hook); `None` for none.
        pace: divides all intervals (for tests).
    """

    def __init__(
        self,
        address: ServiceAddress | None,
        report: Callable[[float], Awaitable[Report]],
        *,
        on_state: Callable[[ServerState], None] = lambda state: None,
        on_answer: Callable[[], None] = lambda: None,
        before_stop: BeforeStop | None = None,
        pace: float = 1.0,
    ) -> None:
        self._address = address
        self._report = report
        self._on_state = on_state
        self._on_answer = on_answer
        self._before_stop = before_stop
        if before_stop is not None:
            before_stop.on_change = self.soon
        self._pace = pace
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._client: HttpClient | None = None
        self._reported: tuple[Report, float] | None = None
        self._made_at = 0.0
        self._saved = False
        self._warned: datetime | None = None
        self._away_since: datetime | None = None
        self._faults: dict[str, str] = {}
        self._strangers = 0
        self._orders = 0
        self.state: ServerState | None = None
        self.note = None if address is not None else NOT_UNDER_A_HUB

    def start(self) -> None:
        """Start to send requests to the GPU service periodically; needs a running event loop."""
        if self._address is None or self._task is not None:
            return
        # a separate client, so that a slow service does not use up the connections of the server
        self._client = http_client(
            max_bytes=MAX_ANSWER_BYTES,
            max_buffered=MAX_ANSWER_BYTES,
            account=self._address.account,
            user_agent="jupyterhub-gpu",
            decompress_response=False,  # the limit has to hold for the unpacked answer
        )
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._before_stop is not None:
            self._before_stop.stop()
        if self._client is not None:
            self._client.close()

    async def keep(self) -> ServerState:
        """Ask the service to postpone the stop of this server, as the user wants, and return the new state.

        Raises:
            RequestRefused: the service refuses, or does not answer (503).
        """
        return await self._order("api/server/keep", "{}")

    async def give_back(self, cpu: bool) -> ServerState:
        """Give this server's GPU back: the server stops, or with `cpu` is started again without a GPU.

        Raises:
            RequestRefused: the service refuses, or does not answer (503).
        """
        state = await self._order("api/server/give-back", encode(GiveBack(cpu)))
        self.soon()
        return state

    async def extend(self) -> ServerState:
        """Ask the service to put off the end of this server's lifetime, and return the new state.

        Raises:
            RequestRefused: the service refuses, or does not answer (503).
        """
        state = await self._order("api/server/extend", "{}")
        self.soon()
        return state

    async def post(self, path: str, message: object) -> None:
        """Send a message to which the service answers with nothing but its acceptance.

        Args:
            path: path below the service's address.
            message: a dataclass of ``core/messages``.

        Raises:
            RequestRefused: the service refuses, or does not answer (503).
        """
        await self._fetch("POST", path, encode(message))

    async def saved(self) -> None:
        """Report to the service at once that a page has saved the open notebooks, so that it can go on with the stop.

        Raises:
            RequestRefused: the service refuses, or does not answer (503).
        """
        self._saved = True
        if self._before_stop is not None:
            self._before_stop.saved()
        await self._post_report()

    def warned(self) -> None:
        """Report at once that a page has shown the warning of the coming stop, so that the user counts as warned."""
        if self.state is not None and self.state.countdown is not None:
            self._warned = self.state.countdown.stops_at
            self.soon()

    def soon(self) -> None:
        """Send the next request to the GPU service now, for example because the panel was opened."""
        self._wake.set()

    def period(self) -> float:
        """Return the seconds until the next request to the GPU service.

        The closer the stop of the server, the fewer.
        """
        state = self.state
        if self._strangers:
            seconds = POLL_STRANGER_SECONDS * 2.0 ** min(self._strangers - 1, 10)
            return min(seconds, POLL_STRANGER_MOST_SECONDS) / self._pace
        if state is None or self.note is not None:
            return POLL_SECONDS / self._pace
        if state.save:
            return POLL_NEAR_THE_END_SECONDS / self._pace
        if state.countdown is None:
            return POLL_SECONDS / self._pace
        if state.countdown.stops_at - datetime.now(timezone.utc) < NEAR_THE_END:
            return POLL_NEAR_THE_END_SECONDS / self._pace
        return POLL_WITH_COUNTDOWN_SECONDS / self._pace

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._poll()
                self._faults.pop("poll", None)
            except RequestRefused as refused:
                self._away(refused)
            except Exception as error:  # noqa: BLE001 - after any error the service is asked again; it is logged and shown
                self._log_fault("poll", error)
                self._away(RequestRefused(503, AWAY, repr(error)))
            self._safely("asked", self._on_answer)
            try:
                await asyncio.wait_for(self._wake.wait(), self.period())
            except asyncio.TimeoutError:
                continue  # the period is over

    async def _poll(self) -> None:
        report = await self._full_report()
        before = self._reported
        if (
            before is None
            or _without_use(before[0]) != _without_use(report)
            or monotonic() - before[1] > REPORT_EVERY_SECONDS / self._pace
        ):
            await self._post_report(report)
            return
        orders = self._orders
        self._take_unless_ordered(await self._ask("GET", "api/server"), orders)

    async def _post_report(self, report: Report | None = None) -> None:
        report = report or await self._full_report()
        made_at, orders = self._made_at, self._orders
        state = await self._ask("POST", "api/server/report", encode(report))
        self._reported = (report, made_at)
        self._take_unless_ordered(state, orders)

    async def _full_report(self) -> Report:
        self._made_at = monotonic()
        report = await self._report(float("-inf") if self._reported is None else self._reported[1])
        stop = self._before_stop
        report = replace(report, saved=self._saved, warned=self._warned)
        if stop is None:
            return report
        report = replace(report, draining=stop.draining, asked=stop.asked)
        return replace(report, hook_ran=stop.hook_ran, has_hook=stop.has_hook)

    async def _order(self, path: str, body: str) -> ServerState:
        """Pass a user's request on to the service, and return the new state that the service answers with."""
        state = await self._ask("POST", path, body)
        self._orders += 1
        self._take(state)
        assert self.state is not None
        return self.state

    def _take_unless_ordered(self, state: ServerState, orders: int) -> None:
        """Use a state from the service, unless the answer to a user's request has brought a newer state in the
        meantime.

        Args:
            orders: number of users' requests that had been answered when the state was requested.
        """
        if orders == self._orders:
            self._take(state)

    def _take(self, state: ServerState) -> None:
        if not state.save:
            self._saved = False  # a later request to save is a new one
        if self.note is not None:
            log.info("The GPU service answers again.")
        steady = _steady(state, self.state)
        if self._before_stop is not None:
            steady = self._before_stop.take(steady)
        self.state, self.note, self._away_since, self._strangers = steady, None, None, 0
        self._safely("told", lambda: self._on_state(steady))

    def _away(self, refused: RequestRefused) -> None:
        self._strangers = self._strangers + 1 if refused.by_stranger else 0
        problem = refused.problem
        note = Reason(problem.reason, problem.message, problem.params)
        if refused.status >= 500 and note != UNREADABLE:
            since = self._away_since = self._away_since or datetime.now(timezone.utc)
            note = explain("away-since", since=since)
        else:
            self._away_since = None  # it answers
        if refused.status == 404:
            self.state = None  # the service knows no such server, so an old state would be wrong
        if note != self.note:
            log.warning("%s (%s)", note.message, refused.detail)
            self.note = note

    def _safely(self, what: str, call: Callable[[], None]) -> None:
        """Call a callback and only log its errors, so that a failure elsewhere does not stop the requests.

        Args:
            what: name of the callback, for the log.
            call: the callback.
        """
        try:
            call()
            self._faults.pop(what, None)
        except Exception as error:  # noqa: BLE001 - logged, once a change
            self._log_fault(what, error)

    def _log_fault(self, what: str, error: Exception) -> None:
        """Log an error with its traceback, unless the last error of `what` was of the same type."""
        kind = type(error).__name__
        if self._faults.get(what) != kind:
            log.exception("The server's end cannot be followed as it should: %r", error)
        self._faults[what] = kind

    async def _ask(self, method: str, path: str, body: str | None = None) -> ServerState:
        """Send one request to the service, and return the state in its answer. Takes the arguments of `_fetch`.

        Raises:
            RequestRefused: the service refuses, does not answer, or its answer cannot be read.
        """
        response = await self._fetch(method, path, body)
        try:
            return decode(ServerState, response.body)
        except CodecError as error:
            raise RequestRefused(502, UNREADABLE, str(error)) from error

    async def _fetch(self, method: str, path: str, body: str | None) -> HTTPResponse:
        """Send one request to the service, and return its answer.

        Args:
            method: HTTP method.
            path: path below the service's address.
            body: JSON; `None` for a request without a body.

        Raises:
            RequestRefused: the service refuses, or does not answer.
        """
        if self._address is None or self._client is None:
            raise RequestRefused(503, NOT_UNDER_A_HUB)
        request = HTTPRequest(
            f"{self._address.url}/{path}",
            method=method,
            body=body,
            headers={"Authorization": f"token {self._address.token}", "Content-Type": "application/json"},
            connect_timeout=REQUEST_SECONDS,
            request_timeout=REQUEST_SECONDS,
            follow_redirects=False,  # the token goes to the service only
        )
        try:
            response = await self._client.fetch(request, raise_error=False)
        except (OSError, HTTPError, HTTPTimeoutError, HTTPStreamClosedError, socket.gaierror) as error:
            raise RequestRefused(503, AWAY, repr(error)) from error
        if response.code not in (200, 204):
            raise RequestRefused(_status(response), _why(response), by_stranger=_is_strangers(response))
        return response


def _steady(state: ServerState, before: ServerState | None) -> ServerState:
    """Return the state with the times of the previous state where they differ by less than `SAME_TIME`.

    The service computes wall-clock times for each answer, so they vary a little. Without this, each answer would look
    like a stop that has moved.

    Args:
        state: the new state.
        before: the previous state; `None` for the first state, which is returned unchanged.
    """
    if before is None:
        return state
    if _same(state.ends_at, before.ends_at):
        state = replace(state, ends_at=before.ends_at)
    now, was = state.countdown, before.countdown
    if now is not None and was is not None and now.cause == was.cause and _same(now.stops_at, was.stops_at):
        last = was.last_warning if _same(now.last_warning, was.last_warning) else now.last_warning
        state = replace(state, countdown=replace(now, stops_at=was.stops_at, last_warning=last))
    return state


def _same(one: datetime | None, other: datetime | None) -> bool:
    return one is not None and other is not None and abs(one - other) < SAME_TIME


def _without_use(report: Report) -> Report:
    """Return the report without the GPU use, to find out whether anything else has changed.

    The use changes all the time, and such a change alone should not cause an early report.
    """
    return replace(report, used_percent=None)


def _status(response: HTTPResponse) -> int:
    if response.code == 599 or response.code < 400:
        return 503  # 599 is tornado's code for "no answer"; the service never redirects
    return response.code


def _is_strangers(response: HTTPResponse) -> bool:
    """Return whether an error answer came from something other than the GPU service.

    That is so if it is a redirect or a page without an explanation in the service's format, such as a hub without the
    service sends.
    """
    if not 300 <= response.code < 500:
        return False
    try:
        decode(Problem, response.body)
    except CodecError:
        return True
    return False


def _why(response: HTTPResponse) -> Problem | Reason:
    if _status(response) == 503:
        return AWAY
    ours = {403: NO_SCOPE, 401: NO_SCOPE, 404: NOT_KNOWN}.get(response.code)
    if ours is not None:
        return ours  # for a server these statuses have a clearer explanation here
    try:
        return decode(Problem, response.body)
    except CodecError:
        return explain("odd-answer", status=str(response.code))
