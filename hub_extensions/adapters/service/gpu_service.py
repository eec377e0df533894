"""The hub's client of the GPU service: requests admission of servers, reports their starts and stops, and receives
changes.

There is one object for each hub process and service. All waiting spawners share one sender of their requests
(``outbox.py``) and one endless stream of changes of tickets (places in the line), which reconnects by itself.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter, ValidationError
from tornado.httpclient import HTTPResponse

from hub_extensions.adapters.http_client import HttpClient
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.adapters.service.change_stream import ChangeStream, open_stream
from hub_extensions.adapters.service.outbox import OnUnanswered, Outbox, Rejected, Unanswered
from hub_extensions.adapters.service.signed_request import fetch_signed, service_client
from hub_extensions.adapters.service.signer import Signer
from hub_extensions.core.messages import (
    Ask,
    DrainState,
    Ended,
    FormState,
    Problem,
    SignedOut,
    Started,
    Stopped,
    TicketStatus,
    UserOverview,
    WithoutSessions,
)
from hub_extensions.core.messages.form_cache import form_for
from hub_extensions.core.sign_on.ended_sessions import EndedSessions

log = logging.getLogger("jupyterhub.gpu")

ASK_SECONDS = 15.0
REPORT_SECONDS = 10.0
FORM_SECONDS = 2.0
OVERVIEW_SECONDS = 1.0
STOP_SECONDS = 1.0
HELD_SECONDS = 30.0  # other code may block the hub's event loop for this long without a request timing out
CACHED_FORMS = 1000
JSON = {"Content-Type": "application/json"}
LISTED_SECONDS = 3.0
"""A new stream begins with every live ticket (a user's place in the line). A ticket that has not been received after
this time does not exist any more.
"""
CANNOT_WRITE = "store-unavailable"  # The reason that the service sends while it cannot write its records
NO_ADDRESS = "its address is not set (c.GpuSpawnerMixin.gpu_service_url)"
BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 3.0)
"""Longest pauses before the stream is reconnected; each is shortened at random."""

T = TypeVar("T")
_READERS: dict[type, TypeAdapter[Any]] = {}


class ServiceAway(Unanswered):
    """The service does not answer, or answers in a form that this version does not know.

    Attributes:
        since: when the service stopped answering (aware UTC).
    """

    def __init__(self, message: str, since: datetime) -> None:
        super().__init__(message)
        self.since = since


class ServiceCannotWrite(ServiceAway):
    """The service answers but cannot write its records now (503).

    Attributes:
        problem: the service's explanation.
    """

    answers = True

    def __init__(self, problem: Problem, since: datetime) -> None:
        super().__init__(problem.message, since)
        self.problem = problem


class ServiceRefused(Rejected):
    """The service refused a request with a status 4xx.

    Attributes:
        status: the status.
        problem: the service's explanation of the error.
    """

    def __init__(self, status: int, problem: Problem) -> None:
        super().__init__(problem.message)
        self.status = status
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Away:
    """An update for waiting spawners: the stream of changes was lost.

    Attributes:
        since: when the service stopped answering (aware UTC).
    """

    since: datetime


@dataclass(frozen=True, slots=True)
class Back:
    """An update for waiting spawners: the stream of changes is connected again, so they should repeat their
    requests.
    """


@dataclass(frozen=True, slots=True)
class TicketList:
    """An update for waiting spawners after the stream of changes was connected: which tickets have not ended.

    Attributes:
        tickets: the ids of all live tickets (places in the line). A ticket that is not among them has ended.
    """

    tickets: Collection[str]


Update = TicketStatus | Away | Back | TicketList


class GpuServiceClient:
    """The hub's client of the GPU service. `gpu_service` makes one per hub process and service.

    Attributes:
        away_since: when the service stopped answering; `None` while it answers.
        going_down: whether the hub is shutting down. It is if the task of the stream was cancelled, and not by `close`.
        titles: the titles of offers (the choices on the spawn form) by id, as the service last reported them.
    """

    def __init__(self, url: str, secret: str | Signer, account: int | None = None) -> None:
        """Create a client; nothing is sent yet.

        Args:
            url: address of the service.
            secret: the secret that the hub shares with the service, or a signer that holds it.
            account: the uid that has to listen at the address, if that is on this machine; `None` to accept any.
        """
        self._url = url.rstrip("/")
        self._signer = secret if isinstance(secret, Signer) else Signer(secret)
        self._account = account
        self._outbox = Outbox(self._send_asks, lambda ask: len(_reader(Ask).dump_json(ask)))
        self._asks, self._reports, self._stops = (service_client(account) for _ in range(3))
        self._waiters: dict[tuple[str, str], list[asyncio.Queue[Update]]] = {}
        self._stream: asyncio.Task[None] | None = None
        self._closed = False
        self.away_since: datetime | None = None
        self.going_down = False
        self.titles: dict[str, str] = {}
        self._forms: dict[frozenset[str], FormState] = {}

    def __repr__(self) -> str:
        return f"<GpuService {self._url}>"

    # ---------------------------------------------------------------- ask and report

    def ask(
        self, ask: Ask, on_unanswered: OnUnanswered = lambda why: None, patience: float | None = 0
    ) -> asyncio.Future[TicketStatus]:
        """Request admission of a server, and repeat the request until there is an answer.

        Each request of the same (user, server) gets the same ticket (place in the line).

        Args:
            ask: the request: user, server and offers.
            on_unanswered: called with a ServiceAway after each attempt without an answer.
            patience: how long the service may be silent, in seconds; 0 for one attempt, `None` for no limit.

        Returns:
            The future answer. It fails with ServiceAway when patience ends, and with ServiceRefused if the service
            refuses.
        """
        return self._outbox.put(ask, ask.accepted or _now(), on_unanswered, patience)

    def withdraw(self, answer: asyncio.Future[TicketStatus]) -> None:
        """Stop waiting for the answer to an `ask`. A request that is already being sent is completed."""
        self._outbox.withdraw(answer)

    async def _send_asks(self, asks: Sequence[Ask]) -> Sequence[TicketStatus]:
        """Send all requests at once, one per line, and return the answers in the same order."""
        lines = b"\n".join(_reader(Ask).dump_json(ask) for ask in asks)
        try:
            response = await self._fetch(self._asks, "POST", "hub/tickets", lines, ASK_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            raise self._lost(f"{type(error).__name__}: {error}") from error
        self._check(response.code, response.body, str(response.code))
        try:
            states = [_reader(TicketStatus).validate_json(line) for line in response.body.split(b"\n") if line]
        except ValidationError as error:
            raise self._lost(f"an answer we cannot read: {error.error_count()} errors") from error
        if len(states) != len(asks):
            raise self._lost(f"{len(states)} answers to {len(asks)} asks")
        return states

    async def started(self, ticket: str, message: Started) -> TicketStatus:
        """Report that the process was started, or that the server is ready. Raises ServiceAway, ServiceRefused.

        Args:
            ticket: id of the ticket (place in the line) with which the server was admitted.
            message: what has happened, and the server's process.
        """
        return await self._send(
            self._reports, "POST", f"hub/tickets/{ticket}/started", TicketStatus, message, REPORT_SECONDS
        )

    async def ended(self, ticket: str, message: Ended) -> None:
        """Report how an attempt to start a server ended. Raises ServiceAway, ServiceRefused.

        Args:
            ticket: id of the ticket (place in the line) of the attempt.
            message: how the attempt ended.
        """
        await self._send(self._reports, "POST", f"hub/tickets/{ticket}/ended", None, message, REPORT_SECONDS)

    async def stopped(self, message: Stopped) -> None:
        """Report that a server was stopped.

        The service also notices the stop by itself. The request uses its own connections and ends within one second, so
        that no stop waits for it.

        Raises:
            ServiceAway, ServiceRefused: the report was not delivered.
        """
        await self._send(self._stops, "POST", "hub/stopped", None, message, STOP_SECONDS)

    async def signed_out(self, message: SignedOut) -> DrainState:
        """Have the service stop a server that holds a lease (a right to a share of a GPU), because its user's session
        ended.

        Returns:
            When the stop begins, and how long it may take.

        Raises:
            ServiceAway, ServiceRefused: the service did not accept the request.
        """
        return await self._send(self._reports, "POST", "hub/signed-out", DrainState, message, REPORT_SECONDS)

    async def without_session(self, message: WithoutSessions) -> None:
        """Report the users who have servers but no session, because it is unknown whether their account still exists.
        Raises ServiceAway, ServiceRefused.
        """
        await self._send(self._reports, "POST", "hub/without-session", None, message, REPORT_SECONDS)

    async def sessions_ended(self, ended: EndedSessions) -> None:
        """Have the GPU service drop the logins that it has cached for these ended sessions."""
        await self._send(self._reports, "POST", "hub/sessions-ended", None, ended, REPORT_SECONDS)

    async def form(
        self,
        user: str,
        server: str,
        groups: tuple[str, ...],
        admin: bool,
        seconds: float = FORM_SECONDS,
        language: str = "",
    ) -> FormState:
        """Return everything that the spawn form needs. Raises ServiceAway, ServiceRefused.

        Args:
            user: name of the user.
            server: name of the server; "" is the default server.
            groups: groups of the user.
            admin: whether the user is an administrator.
            seconds: time limit.
            language: the language of the page; "" if the form is not for a page.
        """
        query = urlencode({"user": user, "server": server, "admin": int(admin), "group": groups}, doseq=True)
        state = await self._send(self._reports, "GET", f"hub/form?{query}", FormState, None, seconds, language)
        self.titles.update((offer.id, offer.plain_name) for offer in state.offers)
        if not admin:
            self._cache(frozenset(groups), state)
        return state

    async def overview(self, user: str, language: str = "") -> UserOverview:
        """Return the user's tickets (places in the line) and servers, within a short time limit because a page waits.
        Raises ServiceAway, ServiceRefused.

        Args:
            language: the language of the page; "" if it is not for a page.
        """
        path = f"hub/overview?{urlencode({'user': user})}"
        return await self._send(self._reports, "GET", path, UserOverview, None, OVERVIEW_SECONDS, language)

    def _cache(self, groups: frozenset[str], state: FormState) -> None:
        self._forms.pop(groups, None)
        self._forms[groups] = state
        if len(self._forms) > CACHED_FORMS:
            del self._forms[next(iter(self._forms))]

    def last_form(self, groups: tuple[str, ...]) -> FormState | None:
        """Return the form that was last received for these groups, with old figures; `None` if none was received.

        The form is shown to a user who opens the start page while the service is away.
        """
        return form_for(groups, self._forms)

    # ---------------------------------------------------------------- follow

    @contextmanager
    def waiting(self, user: str, server: str) -> Iterator[asyncio.Queue[Update]]:
        """Provide a queue of updates for one start of a server while the block runs.

        The updates are changes of the start's ticket (place in the line), and whether the stream of changes is
        connected.
        """
        queue: asyncio.Queue[Update] = asyncio.Queue()
        self._waiters.setdefault((user, server), []).append(queue)
        if self._stream is None or self._stream.done():
            self._stream = asyncio.get_running_loop().create_task(self._follow(), name="gpu-service-changes")
        try:
            yield queue
        finally:
            queues = self._waiters[(user, server)]
            queues.remove(queue)
            if not queues:
                del self._waiters[(user, server)]

    async def close(self) -> None:
        """Close the connections to the GPU service. Only tests need this."""
        self._closed = True
        if self._stream is not None:
            self._stream.cancel()
            await asyncio.gather(self._stream, return_exceptions=True)
        await self._outbox.close()
        for client in (self._asks, self._reports, self._stops):
            client.close()

    async def _follow(self) -> None:
        failures = 0
        try:
            while True:
                try:
                    connected = await self._read_changes(again=failures > 0)
                except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
                    connected = False
                    self._lost(f"{type(error).__name__}: {error}")
                else:
                    self._lost("the connection ended")
                self._publish_to_all(Away(self.away_since or _now()))
                failures = 1 if connected else failures + 1
                pause = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS)) - 1]
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        except asyncio.CancelledError:
            self.going_down = not self._closed
            raise

    async def _read_changes(self, again: bool) -> bool:
        """Read the stream over one connection until it ends.

        Args:
            again: the stream was lost before, so waiting spawners have to repeat their requests.

        Returns:
            True when the service has closed the stream. A connection that fails or breaks raises an error instead.
        """
        if not urlsplit(self._url).hostname:
            raise ValueError(NO_ADDRESS)  # otherwise it would connect to port 80 of this machine
        stream = await open_stream(self._url, "hub/events", self._signer, self._account)
        try:
            self._answered()
            self._outbox.try_now()
            if again:
                self._publish_to_all(Back())
            return await self._read_lines(stream)
        finally:
            stream.close()

    async def _read_lines(self, stream: ChangeStream) -> bool:
        tickets: set[str] = set()
        loop = asyncio.get_running_loop()
        listed = loop.call_later(LISTED_SECONDS, self._publish_to_all, TicketList(tickets))
        try:
            while True:
                line = await stream.line()
                if line is None:
                    return True
                if line:
                    state = _reader(TicketStatus).validate_json(line)
                    if loop.time() < listed.when():
                        tickets.add(state.ticket)
                    self._publish(state)
        finally:
            listed.cancel()

    def _publish(self, state: TicketStatus) -> None:
        self.titles.update((offer.id, offer.plain_name) for offer in state.alternatives)
        for queue in self._waiters.get((state.user, state.server), ()):
            queue.put_nowait(state)

    def _publish_to_all(self, update: Away | Back | TicketList) -> None:
        for queues in self._waiters.values():
            for queue in queues:
                queue.put_nowait(update)

    # ---------------------------------------------------------------- one request

    async def _send(
        self,
        client: HttpClient,
        method: str,
        path: str,
        answer: type[T] | None,
        message: object,
        seconds: float,
        language: str = "",
    ) -> T:
        body = None if message is None else _reader(type(message)).dump_json(message)
        try:
            response = await self._fetch(client, method, path, body, seconds, language)
        except (OSError, asyncio.TimeoutError) as error:
            raise self._lost(f"{type(error).__name__}: {error}") from error
        self._check(response.code, response.body, str(response.error or response.code))
        if answer is None:
            return None  # type: ignore[return-value]
        try:
            return _reader(answer).validate_json(response.body)  # type: ignore[no-any-return]
        except ValidationError as error:
            raise self._lost(f"an answer we cannot read: {error.error_count()} errors") from error

    async def _fetch(
        self, client: HttpClient, method: str, path: str, body: bytes | None, seconds: float, language: str = ""
    ) -> HTTPResponse:
        """Send a request to the service, and return the answer. Raises OSError or TimeoutError.

        The time limit is kept here and not by the HTTP client, for two reasons. The client's time-outs do not cover the
        time in its queue. They do count the time for which other code blocks the event loop.

        Args:
            client: the HTTP client with which the request is sent.
            method: HTTP method.
            path: path below the address of the service.
            body: the request's body; `None` for a request without one.
            seconds: the time limit.
            language: the language of the page for which the request is made; "" without a page.
        """
        if not self._url:
            raise self._lost(NO_ADDRESS)
        headers = {**JSON, "Accept-Language": language} if language else JSON
        longest = seconds + HELD_SECONDS
        url = f"{self._url}/{path}"
        request = fetch_signed(
            client, self._signer, method, url, body, headers, connect_timeout=longest, request_timeout=longest
        )
        return await with_timeout(seconds, request, parts=10)

    def _check(self, code: int, body: bytes, error: str) -> None:
        """Check the status of an answer.

        Args:
            code: HTTP status of the answer.
            body: body of the answer.
            error: the message if the answer does not contain an explanation.

        Raises:
            ServiceCannotWrite: the service cannot write its records now.
            ServiceRefused: the service refuses the request.
            ServiceAway: the answer is not the service's own.
        """
        problem = _problem(body) if code >= 400 else None
        if problem is not None and problem.reason == CANNOT_WRITE:
            self._answered()
            raise ServiceCannotWrite(problem, _now())
        if code >= 400 and (problem is None or code >= 500):
            raise self._lost(problem.message if problem else error)
        self._answered()
        if problem is not None:
            raise ServiceRefused(code, problem)

    def _lost(self, why: str) -> ServiceAway:
        if self.away_since is None:
            self.away_since = _now()
            log.warning("The GPU service at %s is not answering: %s", self._url, why)
        return ServiceAway(why, self.away_since)

    def _answered(self) -> None:
        if self.away_since is not None:
            log.info("The GPU service at %s is answering again", self._url)
        self.away_since = None


_ServiceKey = tuple[str, str, int | None]
_SERVICES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_ServiceKey, GpuServiceClient]] = WeakKeyDictionary()


def gpu_service(url: str, secret: str, account: int | None = None) -> GpuServiceClient:
    """Return the client of the service at this address. All callers in this hub process (in the running loop) share it.

    Args:
        secret: the secret that the hub shares with the service.
        account: the uid that has to listen at the address, if that is on this machine; `None` to accept any.
    """
    services = _SERVICES.setdefault(asyncio.get_running_loop(), {})
    key = (url, secret, account)
    if key not in services:
        services[key] = GpuServiceClient(*key)
    return services[key]


def _reader(kind: type) -> TypeAdapter[Any]:
    if kind not in _READERS:
        _READERS[kind] = TypeAdapter(kind)
    return _READERS[kind]


def _problem(body: bytes) -> Problem | None:
    try:
        return _reader(Problem).validate_json(body)  # type: ignore[no-any-return]
    except ValidationError:
        return None


def _now() -> datetime:
    return datetime.now(timezone.utc)
