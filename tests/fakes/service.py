"""A small GPU service that keeps a real line: one pool per offer, first come first served, in memory, over HTTP.

Speaks ``core.messages`` on the hub's routes. Runs in a thread of its own, so that tests may block. What it was told
is in `told`. Failure modes are classes of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
from collections.abc import Collection, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from tornado import web
from tornado.escape import utf8
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets

from hub_extensions.adapters.service.signatures import Signatures, SignatureVerdict
from hub_extensions.core.messages import (
    Ask,
    DrainState,
    Ended,
    FailedStart,
    FormState,
    LeaseGrant,
    Notice,
    OfferState,
    Problem,
    ServerState,
    SignedOut,
    Started,
    Stopped,
    TicketStatus,
    UserOverview,
    Wait,
    WithoutSessions,
)
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.failed_starts import failure
from hub_extensions.core.signing import ANSWER_HEADER, SIGN_AGAIN, SignedRequest, hash_of
from hub_extensions.core.text.reasons import Reason
from tests.fakes.reasons import because
from tests.patience import patient
from tests.ports import free_port

GIB = 1024**3
TAKEN_OUT = "An administrator ended it."
SECRET = "a secret between hub and service"
T = TypeVar("T")


def wait(now: bool, reason: str = "") -> Wait:
    return Wait(now, None, None, None, None, because(reason) if reason else None)


def an_offer(id: str, *, free: int | None, total: int | None, gib: float | None = 4.75, **more: Any) -> OfferState:
    facts: dict[str, Any] = {
        "id": OfferId(id),
        "kind": "cpu" if id == "cpu" else "mig",
        "title": "CPU only" if id == "cpu" else "MIG " + id.removeprefix("mig-"),
        "description": "",
        "pool": "" if id == "cpu" else id,
        "share": 0.0 if id == "cpu" else 1.0,
        "isolation": {}
        if id == "cpu"
        else {"memory": "hardware", "fault": "hardware", "compute": "hardware", "access": "by agreement"},
        "memory_bytes": None if gib is None else int(gib * GIB),
        "memory_enforced": True,
        "sm_count": 14,
        "sm_total": 98,
        "product": "A100",
        "simulated": False,
        "free": free,
        "total": total,
        "held": 0,
        "held_by_others": 0,
        "lost": 0,
        "waiting": 0,
        "wait": wait(bool(free) or id == "cpu", "all are in use"),
    }
    return OfferState(**{**facts, **more})


class GpuServiceInATest:
    """`capacity`: offer id -> how many there are. ``with GpuServiceInATest({"mig-1g.5gb": 1}) as service:``"""

    def __init__(self, capacity: dict[str, int], *, groups: dict[str, str] | None = None, port: int = 0) -> None:
        self.capacity = capacity
        self.groups = groups or {}
        self.told: list[object] = []
        self.spoken: list[tuple[str, str | None]] = []
        """Whose page was asked for, and in which language."""
        self.requests: list[int] = []
        """How many asks each request brought."""
        """The other ends of those that brought asks."""
        self.tickets: dict[tuple[str, str], TicketStatus] = {}
        self.held: dict[tuple[str, str], str] = {}
        self.notices: tuple[Notice, ...] = ()
        self.failed: tuple[FailedStart, ...] = ()
        """Starts that failed, of everybody."""
        self.servers: tuple[ServerState, ...] = ()
        self.simulated = False
        self.silent: tuple[OfferId, ...] = ()
        """Offers that a machine has which does not answer."""
        self.disk_full = ""
        """The sentence with which every ask is turned away for now; "" where the disk has room."""
        self.started_seconds = 0.0
        self.stream_seconds = 0.0
        self.signatures = Signatures(SECRET)
        self._mark = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._streams: set[asyncio.Queue[TicketStatus | None]] = set()
        self._port = port or free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: HTTPServer | None = None

    # ------------------------------------------------------------ life

    def __enter__(self) -> GpuServiceInATest:
        self._thread.start()
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patient(5))

    def open(self) -> None:
        """Listen (again, on the same port)."""

        async def listen() -> None:
            sockets = bind_sockets(self._port, "127.0.0.1")
            self._server = HTTPServer(web.Application(self.routes()))
            self._server.add_sockets(sockets)

        self._run(listen())

    def close(self) -> None:
        """Stop listening and end every connection; the line is kept."""

        async def unlisten() -> None:
            if self._server is None:
                return
            self._server.stop()
            for queue in list(self._streams):
                queue.put_nowait(None)
            await asyncio.wait_for(self._server.close_all_connections(), patient(5))
            self._server = None

        self._run(unlisten())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/services/gpu"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(15)

    def routes(self) -> list[tuple[str, type[web.RequestHandler], dict[str, Any]]]:
        prefix, facts = "/services/gpu", {"service": self}
        return [
            (f"{prefix}/health", _Health, facts),
            (f"{prefix}/hub/tickets", _Ask, facts),
            (f"{prefix}/hub/tickets/([^/]+)/(started|ended)", _Tell, facts),
            (f"{prefix}/hub/stopped", _Stopped, facts),
            (f"{prefix}/hub/signed-out", _SignedOut, facts),
            (f"{prefix}/hub/without-session", _WithoutSession, facts),
            (f"{prefix}/hub/form", _Form, facts),
            (f"{prefix}/hub/overview", _Overview, facts),
            (f"{prefix}/hub/events", _Events, facts),
        ]

    # ------------------------------------------------------------ what tests do to it

    def release(self, user: str, server: str = "") -> None:
        """This server's GPU is free again; who waits moves up."""

        async def now() -> None:
            self.held.pop((user, server), None)
            self.decide()

        self._run(now())

    def refuse(self, user: str, reason: str, server: str = "") -> None:
        """Refuse a ticket that waits."""

        async def now() -> None:
            state = self.tickets.pop((user, server))
            self.tell(replace(state, answer="refuse", reason=Reason("group", reason)))
            self.decide()

        self._run(now())

    def take_out(self, user: str, server: str = "", *, unheard: bool = False) -> None:
        """An admin takes a ticket out of the line. `unheard`: nobody is told, as where the message was lost."""

        async def now() -> None:
            state = self.tickets.pop((user, server))
            self.held.pop((user, server), None)
            if not unheard:
                self.tell(replace(state, answer="ended", reason=Reason("left", TAKEN_OUT)))
            self.decide()

        self._run(now())

    def ask_again_unheard(self, user: str, server: str = "") -> None:
        """An earlier ask of this ticket arrives late: another attempt, whose answer nobody reads."""

        async def now() -> None:
            state = self.tickets[user, server]
            self.tickets[user, server] = replace(state, attempt=state.attempt + 1)

        self._run(now())

    def told_of(self, kind: type[T]) -> list[T]:
        return [message for message in list(self.told) if isinstance(message, kind)]

    def overview(self, user: str) -> UserOverview:
        """Of one user."""
        tickets = tuple(each for key, each in self.tickets.items() if key[0] == user)
        servers = tuple(each for each in self.servers if each.user == user)
        failed = tuple(each for each in self.failed if each.user == user)
        return UserOverview(tickets, servers, self.notices, failed)

    # ------------------------------------------------------------ the line

    async def answer_slowly(self) -> None:
        """Overridden by a service that is slow."""

    def ask(self, ask: Ask) -> TicketStatus:
        self.told.append(ask)
        if self.disk_full:
            raise _refused(503, self.disk_full, "", "store-unavailable")
        key = (ask.user, ask.server)
        known = self.tickets.get(key)
        if ask.kept and known is not None:
            return known
        if ask.ticket and (known is None or known.ticket != ask.ticket):
            since = datetime.now(timezone.utc)
            return TicketStatus(
                ask.ticket, 0, *key, "ended", ask.offers, None, 0, 0, since, Reason("left", TAKEN_OUT), None
            )
        for offer in ask.offers:
            if offer != "cpu" and offer not in self.capacity:
                raise _refused(400, f"offer: there is no {offer} here.", "offer", "unknown-offer")
            if offer in self.groups and self.groups[offer] not in ask.groups:
                raise _refused(403, f"offer: {offer} is not for your groups.", "offer", "group")
        others = [held for held in self.held if held[0] == ask.user and held != key]
        if others and "cpu" not in ask.offers:
            text = f"You already hold a GPU in server {others[0][1] or 'default'}. Stop it, or start CPU only."
            raise _refused(409, text, "offer", "own-limit")
        attempt = known.attempt + 1 if known else 1
        ticket = known.ticket if known else f"t{next(self._numbers)}"
        since = known.since if known else datetime.now(timezone.utc)
        self.tickets[key] = TicketStatus(
            ticket, attempt, ask.user, ask.server, "wait", ask.offers, None, 0, 0, since, because(""), None
        )
        self.decide()
        return self.tickets[key]

    def decide(self) -> None:
        """Give what is free to who came first, and tell everybody whose answer changed."""
        ahead: dict[str, int] = {}
        for key, state in list(self.tickets.items()):
            offer = self.held.get(key) or next(
                (o for o in state.offers if o == "cpu" or self.free(o) > ahead.get(o, 0)), ""
            )
            if offer:
                if offer != "cpu":
                    self.held[key] = offer
                fresh = replace(
                    state,
                    answer="admit",
                    offer=offer,
                    position=0,
                    ahead=0,
                    reason=because(""),
                    grant=self.grant(state, offer),
                    simulated=self.simulated and offer != "cpu",
                )
            else:
                first = state.offers[0]
                place = ahead.get(first, 0) + 1
                reason = f"All {self.capacity[first]} are in use; {place - 1} ahead of you."
                free = tuple(
                    an_offer(o, free=self.free(o), total=n)
                    for o, n in self.capacity.items()
                    if self.free(o) and o not in state.offers
                )
                fresh = replace(
                    state,
                    answer="wait",
                    offer=first,
                    position=place,
                    ahead=place - 1,
                    reason=because(reason),
                    wait=wait(False, reason),
                    alternatives=free,
                    simulated=self.simulated,
                )
                for o in state.offers:
                    ahead[o] = ahead.get(o, 0) + 1
            if fresh != state:
                self.tickets[key] = fresh
                self.tell(fresh)

    def free(self, offer: str) -> int:
        return self.capacity[offer] - list(self.held.values()).count(offer)

    def grant(self, state: TicketStatus, offer: str) -> LeaseGrant:
        if offer == "cpu":
            return LeaseGrant("", "cpu", None, 0.0, {"CUDA_VISIBLE_DEVICES": "void", "NVIDIA_VISIBLE_DEVICES": "void"})
        uuid = f"MIG-{state.ticket}"
        env = {
            "CUDA_VISIBLE_DEVICES": uuid,
            "NVIDIA_VISIBLE_DEVICES": uuid,
            "JUPYTERHUB_GPU_LEASE": self.lease_of(state.ticket),
        }
        return LeaseGrant(self.lease_of(state.ticket), offer, uuid, 1.0, env)

    def lease_of(self, ticket: str) -> str:
        """A mark no other service has: a start ends whatever runs under its lease, anywhere on the machine."""
        return f"lease-{self._mark}-{ticket}"

    def tell(self, state: TicketStatus) -> None:
        for queue in self._streams:
            queue.put_nowait(state)

    def started(self, ticket: str, message: Started) -> TicketStatus:
        self.told.append(message)
        key, state = self._find(ticket)
        if message.attempt != state.attempt:
            raise _refused(404, "There is no such ticket any more.", "ticket", "unknown-ticket")
        if message.ready:
            del self.tickets[key]
        return state

    def ended(self, ticket: str, message: Ended) -> None:
        self.told.append(message)
        key, state = self._find(ticket)
        if message.attempt != state.attempt:
            return
        del self.tickets[key]
        self.held.pop(key, None)
        if message.how == "failed":
            self.failed = (*self.failed, self._failed(state, message))
        self.decide()

    def _failed(self, state: TicketStatus, message: Ended) -> FailedStart:
        """As the service keeps it: its first failure leaves the place."""
        offer, now = state.offer or state.offers[0], datetime.now(timezone.utc)
        reason = failure(message.reason, message.message, message.seconds)
        until = now + timedelta(minutes=15)
        return FailedStart(
            now, state.user, state.server, offer, an_offer(offer, free=0, total=1).title, reason, kept_until=until
        )

    def stopped(self, message: Stopped) -> None:
        self.told.append(message)
        key = (message.user, message.server)
        if key in self.held and key not in self.tickets:
            del self.held[key]
            self.decide()

    def form(self, groups: Collection[str], admin: bool, user: str = "") -> FormState:
        """What somebody in `groups` may choose; an admin's view lists every offer, as the service does."""
        listed = {o: n for o, n in self.capacity.items() if admin or self.groups.get(o) in (None, *groups)}
        offers = [an_offer(o, free=self.free(o), total=n, simulated=self.simulated) for o, n in listed.items()]
        waiting = len([s for s in self.tickets.values() if s.answer == "wait"])
        shown = tuple(replace(offer, waiting=waiting) for offer in offers)
        cpu = an_offer("cpu", free=None, total=None, gib=None)
        return FormState(
            (*shown, cpu),
            self.simulated,
            datetime.now(timezone.utc),
            "Stops when idle for 30 min.",
            (),
            self.notices,
            silent=self.silent,
            in_line=tuple(server for owner, server in self.tickets if owner == user),
        )

    def _find(self, ticket: str) -> tuple[tuple[str, str], TicketStatus]:
        for key, state in self.tickets.items():
            if state.ticket == ticket:
                return key, state
        raise _refused(404, "There is no such ticket.", "ticket", "unknown-ticket")


class ServiceThatIsSlow(GpuServiceInATest):
    """Answers, but only after `seconds`."""

    seconds = 60.0

    async def answer_slowly(self) -> None:
        await asyncio.sleep(self.seconds)


class ServiceThatTookTheLeaseBack(GpuServiceInATest):
    """An admin takes each ticket out between its admission and the start of its process."""

    def started(self, ticket: str, message: Started) -> TicketStatus:
        if not message.ready:
            key, _ = self._find(ticket)
            self.tickets.pop(key)
            self.held.pop(key, None)
        return super().started(ticket, message)


class AwayService(GpuServiceInATest):
    """Has an address and nobody behind it, until `open` is called."""

    def __enter__(self) -> GpuServiceInATest:
        super().__enter__()
        self.close()
        return self


def _refused(status: int, text: str, field: str, word: str) -> web.HTTPError:
    error: Any = web.HTTPError(status, text)
    error.problem = Problem(text, field, word)
    return error  # type: ignore[no-any-return]


class _Base(web.RequestHandler):
    def initialize(self, service: GpuServiceInATest) -> None:
        self.service = service

    signed: SignedRequest | None = None

    async def prepare(self) -> None:
        header = self.request.headers.get("Authorization", "")
        judged = self.service.signatures.verify(self.request.method or "", self.request.uri or "", header)
        if (
            judged is None
            or judged.verdict is SignatureVerdict.REPLAYED
            or judged.request.body != hash_of(self.request.body)
        ):
            raise _refused(403, "The hub's signature is wrong.", "Authorization", "signature")
        self.signed = judged.request
        if judged.verdict is SignatureVerdict.AGAIN:
            raise _refused(SIGN_AGAIN, "Sign again.", "Authorization", "sign-again")
        await self.service.answer_slowly()

    def finish(self, chunk: Any = None) -> Any:
        self.sign(utf8(chunk or b""))
        return super().finish(chunk)

    def sign(self, body: bytes) -> None:
        if self.signed is not None:
            proof = self.service.signatures.signed(self.signed, self.get_status(), body)
            self.set_header(ANSWER_HEADER, proof)

    def read(self, kind: type[T], body: bytes | None = None) -> T:
        try:
            return TypeAdapter(kind).validate_json(self.request.body if body is None else body)
        except ValidationError as error:
            raise _refused(400, str(error), "body", "malformed") from error

    def say(self, value: object) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(TypeAdapter(type(value)).dump_json(value))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        problem = getattr(kwargs["exc_info"][1], "problem", Problem("The service failed."))
        self.say(problem)


class _Health(web.RequestHandler):
    def initialize(self, service: GpuServiceInATest) -> None:
        self.service = service

    def get(self) -> None:
        self.finish({"ready": True})


class _Ask(_Base):
    def post(self) -> None:
        lines = [self.read(Ask, line) for line in self.request.body.splitlines()]
        self.service.requests.append(len(lines))
        states = [self.service.ask(ask) for ask in sorted(lines, key=lambda ask: str(ask.accepted))]
        by_key = {(state.user, state.server): state for state in states}
        answers = [by_key[ask.user, ask.server] for ask in lines]
        self.finish(b"\n".join(TypeAdapter(TicketStatus).dump_json(state) for state in answers))


class _Tell(_Base):
    async def post(self, ticket: str, what: str) -> None:
        if what == "started":
            await asyncio.sleep(self.service.started_seconds)
            self.say(self.service.started(ticket, self.read(Started)))
            return
        self.service.ended(ticket, self.read(Ended))
        self.set_status(204)


class _Stopped(_Base):
    def post(self) -> None:
        self.service.stopped(self.read(Stopped))
        self.set_status(204)


class _SignedOut(_Base):
    def post(self) -> None:
        """Takes nothing over: every stop stays the hub's."""
        self.service.told.append(self.read(SignedOut))
        self.say(DrainState(None))


class _WithoutSession(_Base):
    def post(self) -> None:
        self.service.told.append(self.read(WithoutSessions))
        self.set_status(204)
        self.finish()


class _Form(_Base):
    def get(self) -> None:
        groups = self.get_query_arguments("group")
        admin = self.get_query_argument("admin", "0") == "1"
        self.service.spoken.append((self.get_query_argument("user"), self.request.headers.get("Accept-Language")))
        self.say(self.service.form(groups, admin, self.get_query_argument("user", "")))


class _Overview(_Base):
    def get(self) -> None:
        self.service.spoken.append((self.get_query_argument("user"), self.request.headers.get("Accept-Language")))
        self.say(self.service.overview(self.get_query_argument("user")))


class _Events(_Base):
    async def get(self) -> None:
        await asyncio.sleep(self.service.stream_seconds)
        queue: asyncio.Queue[TicketStatus | None] = asyncio.Queue()
        for state in self.service.tickets.values():
            queue.put_nowait(state)
        self.service._streams.add(queue)
        assert self.signed is not None
        self.sign(b"")
        try:
            for number in itertools.count():
                line = b""
                try:
                    state = await asyncio.wait_for(queue.get(), patient(5))
                except asyncio.TimeoutError:
                    pass
                else:
                    if state is None:
                        return
                    line = TypeAdapter(TicketStatus).dump_json(state)
                self.write(self.service.signatures.signed_line(self.signed, number, line) + b"\n")
                await self.flush()
        except StreamClosedError:
            return  # the hub went away
        finally:
            self.service._streams.discard(queue)
