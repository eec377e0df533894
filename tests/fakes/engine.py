"""An engine for tests of the routes: it keeps tickets in memory, admits nobody, and remembers what it was told.

It has the signatures of `hub_service.engine.engine.Engine` (a test compares them), and none of its rules.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

from hub_extensions.adapters.store import JournalFilter, JournalRow
from hub_extensions.core import messages
from hub_extensions.core.culling.sources import text_of
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.overview.cards import Card, emptying
from hub_extensions.core.overview.days import CountedUse, Days, Span, days_of
from hub_extensions.core.overview.health import HealthVerdict
from hub_extensions.core.overview.totals import totals_of
from hub_extensions.core.overview.view import Asked, Overview, PageRows
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.usage.right_size import FittingHours
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.snapshots import HubView
from hub_extensions.hub_service.engine.views.lease_view import LeaseUse
from tests.fakes.reasons import because

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=timezone.utc)
WAS_IDLE = explain("was-to-end")
FULL = messages.Wait(False, None, None, None, 7800.0, because("1 person is ahead of you."))
UNKNOWN = messages.Wait(False, None, None, None, None, because("Not known now."))
NOW = messages.Wait(True, 0.0, 0.0, 0.0, 0.0, None)


def offer(offer_id: str, title: str, free: int | None, wait: messages.Wait) -> messages.OfferState:
    separate = {"memory": "hardware", "fault": "hardware", "compute": "hardware", "access": "by agreement"}
    return messages.OfferState(
        id=offer_id,
        kind="cpu" if offer_id == "cpu" else "mig",
        title=title,
        description="Your own memory and cores.",
        pool="" if offer_id == "cpu" else offer_id,
        share=0.0 if offer_id == "cpu" else 1.0,
        isolation=separate,
        memory_bytes=None if offer_id == "cpu" else 10468982784,
        memory_enforced=True,
        sm_count=28,
        sm_total=98,
        product="NVIDIA A100-PCIE-40GB",
        simulated=offer_id != "cpu",
        free=free,
        total=None if free is None else 5,
        held=3,
        held_by_others=1,
        lost=0,
        waiting=1,
        wait=wait,
    )


def an_overview(*cards: Card, people: tuple[messages.TicketInfo, ...] = (), **changed: object) -> Overview:
    """The admin's page with these cards."""
    plain = Overview(
        at=NOON,
        read=NOON,
        totals=totals_of(cards),
        health=HealthVerdict(()),
        cards=PageRows(cards, len(cards), 1, 1),
        leases={},
        emptying={card.place: emptying(card.holders) for card in cards},
        people=PageRows(people, len(people), 1, 1),
        longest_seconds=max(((NOON - each.since).total_seconds() for each in people), default=None),
        failed=messages.FailedStarts(0, ()),
        simulated=any(card.simulated for card in cards),
    )
    return replace(plain, **changed)  # type: ignore[arg-type]


class OrdersHeard:
    """What admins ordered, as it was said; a card that is called ``refused`` takes none."""

    def __init__(self, told: list[tuple[object, ...]]) -> None:
        self._told = told

    async def drain(self, place: str, why: str, admin: str) -> None:
        if place == "refused":
            raise Refused.because(409, explain("no-such-card"), "place")
        self._told.append(("drain", place, why, admin))

    async def undrain(self, place: str, why: str, admin: str) -> None:
        self._told.append(("undrain", place, why, admin))

    async def stop(self, lease_id: str, minutes: int, why: str, admin: str) -> None:
        self._told.append(("stop", lease_id, minutes, why, admin))

    async def undo_stop(self, lease_id: str, admin: str) -> None:
        self._told.append(("undo-stop", lease_id, admin))

    def may_undo_stop(self, lease_id: str) -> bool:
        stops = [each[0] for each in self._told if each[0] in ("stop", "undo-stop") and each[1] == lease_id]
        return stops[-1:] == ["stop"]

    async def keep(self, lease_id: str, hours: int, why: str, admin: str) -> None:
        self._told.append(("keep", lease_id, hours, why, admin))

    async def write_to(self, place: str, text: str, admin: str) -> int:
        self._told.append(("letter", place, text, admin))
        return 1


class EngineInMemory:
    """Tickets wait for ever; `told` is everything it was told; `servers` are the servers it knows."""

    read_only = ""

    def __init__(self) -> None:
        self.queue: dict[str, messages.TicketStatus] = {}
        self.ended_by: list[str] = []
        self.failed: tuple[messages.FailedStart, ...] = ()
        self.notices: tuple[messages.Notice, ...] = ()
        self.servers: dict[tuple[str, str], messages.ServerState] = {}
        self.held: list[messages.LeaseInfo] = []
        self.cluster_info: messages.ClusterInfo | None = None
        self.forecast = messages.ForecastReport((), None, None, None)
        self.told: list[tuple[object, ...]] = []
        self.is_ready = True
        self.policy_problem = ""
        self.as_of: datetime | None = NOON
        self.offers = (
            offer("mig-2g.10gb", "MIG 2g.10gb <b>", 0, FULL),
            offer("mig-1g.5gb", "MIG 1g.5gb", 2, NOW),
            offer(
                "gpu-0.5",
                "Half of a GPU",
                None,
                messages.Wait(False, None, None, None, None, because("Not known now.")),
            ),
            offer("cpu", "CPU only", None, NOW),
        )
        counts = {("admitted", "mig-1g.5gb"): 4, ("refused", "line-full"): 2}
        culls = {("idle", "classes"): 3, ("lifetime", ""): 1}
        self.state = SimpleNamespace(counts=counts, culls=culls, last_admission_seconds=0.012, hub_view=HubView())
        self.languages: dict[str, str] = {}
        self.culling_view = messages.CullingView(NOON, (), ())
        self.admin_orders = OrdersHeard(self.told)
        self.view = an_overview()
        self.past: tuple[CountedUse, ...] = ()
        self.fitting: tuple[FittingHours, ...] = ()
        self.rows: tuple[JournalRow, ...] = ()
        self.uses: tuple[messages.UsageRecord, ...] = (
            messages.UsageRecord("l1", "ben", "", OfferId("gpu"), "gpu", 1000, NOON, "idle"),
        )
        self._queues: list[asyncio.Queue[messages.TicketStatus]] = []

    @property
    def readers(self) -> int:
        return len(self._queues)

    def forecasts(self) -> messages.ForecastReport:
        return self.forecast

    def distrusted(self) -> int:
        return 0

    def cluster(self) -> messages.ClusterInfo | None:
        return self.cluster_info

    async def give_up(self, lease: str, admin: str, why: str = "") -> None:
        self.told.append(("give-up", lease, admin, *filter(None, [why])))

    async def culling(self) -> messages.CullingView:
        return self.culling_view

    def failed_stops(self) -> tuple[messages.FailedStop, ...]:
        return self.culling_view.failed_stops

    async def journal(self, which: JournalFilter, most: int) -> tuple[JournalRow, ...]:
        self.told.append(("journal", which.user, which.kinds, most, which.codes))
        return tuple(each for each in self.rows if which.user in (None, each.user) and each.kind in which.kinds)[:most]

    async def usage(self, user: str | None, before: str | None) -> messages.UsagePage:
        self.told.append(("usage", user, before))
        if before not in (None, "next-page"):
            raise ValueError(before)
        uses = tuple(replace(each, user=user or each.user) for each in self.uses)
        return messages.UsagePage(uses, "next-page" if before is None else None)

    def publish(self, state: messages.TicketStatus) -> None:
        for queue in self._queues:
            queue.put_nowait(state)

    async def ask(self, ask: messages.Ask) -> messages.TicketStatus:
        self.told.append(("ask", ask))
        ticket = f"t{len(self.queue) + 1}"
        state = messages.TicketStatus(
            ticket, 1, ask.user, ask.server, "wait", ask.offers, None, len(self.queue) + 1, len(self.queue), NOON,
            Reason("behind", "1 person is ahead of you.", {"ahead": 1.0}), FULL,
        )  # fmt: skip
        self.queue[ticket] = state
        self.publish(state)
        return state

    async def ask_all(self, asks: Sequence[messages.Ask]) -> tuple[messages.TicketStatus, ...]:
        return tuple([await self.ask(ask) for ask in asks])

    def admit(self, ticket: str) -> None:
        """It is this ticket's turn."""
        self.queue[ticket] = replace(self.queue[ticket], answer="admit", position=0, ahead=0)

    async def started(self, ticket: str, report: messages.Started) -> messages.TicketStatus:
        self.told.append(("started", ticket, report))
        return self._ticket(ticket)

    async def ended(self, ticket: str, report: messages.Ended) -> None:
        self.told.append(("ended", ticket, report))

    async def stopped(self, report: messages.Stopped) -> None:
        self.told.append(("stopped", report))

    async def signed_out(self, report: messages.SignedOut) -> messages.DrainState:
        self.told.append(("signed-out", report))
        return messages.DrainState(report.left_seconds)

    async def without_session(self, reported: messages.WithoutSessions) -> None:
        self.told.append(("without-session", reported))

    async def changes(self) -> AsyncIterator[messages.TicketStatus]:
        queue: asyncio.Queue[messages.TicketStatus] = asyncio.Queue()
        for state in self.queue.values():
            queue.put_nowait(state)
        self._queues.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._queues.remove(queue)

    async def note_language(self, user: str, language: str) -> None:
        self.languages[user] = language

    def form(self, user: str, server: str, groups: Sequence[str], admin: bool) -> messages.FormState:
        self.told.append(("form", user, server, tuple(groups), admin))
        names = tuple(name for owner, name in self.servers if owner == user)
        notices = (messages.Notice(NOON, "old", WAS_IDLE.message, (WAS_IDLE,)), *self.notices) if user == "ada" else ()
        culling = "Stops when idle for 30 min."
        return messages.FormState(self.offers, True, self.as_of, culling, names, notices, failed=self.failed)

    def owner_of(self, ticket: str) -> tuple[str, str] | None:
        found = self.queue.get(ticket)
        return None if found is None else (found.user, found.server)

    def tickets(self, user: str) -> tuple[messages.TicketInfo, ...]:
        return tuple(each for each in self._tickets() if each.user == user)

    async def all_tickets(self) -> tuple[messages.TicketInfo, ...]:
        return self._tickets()

    def _tickets(self) -> tuple[messages.TicketInfo, ...]:
        return tuple(
            messages.TicketInfo(
                t.ticket,
                t.user,
                t.server,
                "admitted" if t.answer == "admit" else "waiting",
                t.offers,
                t.position,
                t.since,
                t.reason,
                f"/jh/user/{t.user}/",
            )
            for t in self.queue.values()
        )

    def queue_figures(self) -> messages.QueueFigures:
        states: dict[str, int] = {}
        since: dict[str, datetime] = {}
        for each in self._tickets():
            states[each.state] = states.get(each.state, 0) + 1
            if each.state == "waiting":
                since[each.offers[0]] = min(each.since, since.get(each.offers[0], each.since))
        return messages.QueueFigures(states, since)

    async def leave(self, ticket: str, user: str | None, admin: str = "", why: str = "") -> None:
        state = self._ticket(ticket)
        if user is not None and state.user != user:
            raise Refused(404, "There is no such ticket of yours.", "ticket", "unknown-ticket")
        if state.answer == "admit":
            raise Refused(409, "Its server is starting. Stop the server instead.", "ticket", "starting")
        del self.queue[ticket]
        self.ended_by.append("" if user is not None else ": ".join(filter(None, [admin, why])))

    async def state_for_server(self, user: str, server: str) -> messages.ServerState | None:
        return self.servers.get((user, server))

    def servers_of(self, user: str) -> tuple[messages.ServerState, ...]:
        return tuple(state for (owner, _), state in self.servers.items() if owner == user)

    async def report(self, user: str, server: str, report: messages.Report) -> messages.ServerState:
        self.told.append(("report", user, server, report))
        return self._server(user, server)

    def lease_states(self) -> Mapping[str, int]:
        return Counter(each.state for each in self.held)

    def lease_uses(self) -> Iterator[LeaseUse]:
        running = [each for each in self.held if each.state == "running"]
        return (LeaseUse(each.offer, each.last_use_percent, each.use_source) for each in running)

    async def progress(self, user: str, server: str, report: messages.Progress) -> bool:
        self.told.append(("progress", user, server, report))
        return True

    async def keep(self, user: str, server: str) -> messages.ServerState:
        self.told.append(("keep", user, server))
        return self._server(user, server)

    async def extend(self, user: str, server: str) -> messages.ServerState:
        self.told.append(("extend", user, server))
        return self._server(user, server)

    async def training_ended(self, user: str, server: str, report: messages.TrainingEnded) -> None:
        self.told.append(("training-ended", user, server, report))

    async def give_back(self, user: str, server: str, cpu: bool) -> messages.ServerState:
        self.told.append(("give-back", user, server, cpu))
        return self._server(user, server)

    async def admin_overview(self, asked: Asked) -> Overview:
        self.told.append(("overview", asked))
        return self.view

    async def days(self, span: Span) -> Days:
        return days_of(self.past, span, NOON)

    async def fitting_hours(self) -> tuple[FittingHours, ...]:
        return self.fitting

    def counted_fitting_hours(self) -> tuple[FittingHours, ...]:
        return self.fitting

    async def leases(self) -> tuple[messages.LeaseInfo, ...]:
        return tuple(self.held)

    def health(self) -> messages.Health:
        figures = "answers, with figures of 2 of 2 devices"
        evidence = messages.OfferEvidence(
            OfferId("mig-1g.5gb"),
            "dcgm",
            2,
            1,
            12.0,
            datetime.now(timezone.utc),
            "pod-not-named",
            text_of("pod-not-named"),
        )
        health = messages.Health(self.is_ready, "ok", "answers", 1.5, "1.2.3", figures, True, evidence=(evidence,))
        if self.policy_problem:
            return replace(health, policy_file=self.policy_problem, policy_file_valid=False)
        return health

    def run_server(self, user: str, server: str, **changed: object) -> None:
        """A server on a GPU, with its lease."""
        stops = NOON + timedelta(minutes=9)
        countdown = messages.Countdown(stops, "idle", because("Idle for 21 min."), True, True)
        state = messages.ServerState(
            user, server, "mig-1g.5gb", "MIG 1g.5gb", f"MIG-{user}", 1.0, 5100273664, True, True, "running",
            countdown, messages.Keep(30.0, 1, 2), NOON + timedelta(hours=8), False, (), (),
        )  # fmt: skip
        self.servers[(user, server)] = replace(state, **changed)  # type: ignore[arg-type]
        self.held.append(
            messages.LeaseInfo(
                f"lease-{user}",
                user,
                server,
                "mig-1g.5gb",
                f"MIG-{user}",
                "1g.5gb",
                1.0,
                "running",
                NOON,
                NOON,
                4711,
                3.0,
                stops,
                "Idle for 21 min.",
                False,
                ("python train.py (pid 4712, ada)",),
                "dcgm",
            )
        )

    def _ticket(self, ticket: str) -> messages.TicketStatus:
        if ticket not in self.queue:
            raise Refused(404, "There is no such ticket any more.", "ticket", "unknown-ticket")
        return self.queue[ticket]

    def _server(self, user: str, server: str) -> messages.ServerState:
        if (user, server) not in self.servers:
            raise Refused(404, "This server is not known to the GPU service yet.", "server", "unknown-server")
        return self.servers[(user, server)]


class DeskThatFails(EngineInMemory):
    """Our own fault, with a secret in its words."""

    def form(self, user: str, server: str, groups: Sequence[str], admin: bool) -> messages.FormState:
        raise ValueError("a mistake near hub-secret-hub-secret")
