"""One start of one server: what was asked, which ticket answers for it, and what its waiting page shows.

A bounded log, one event for each change, followed by any number of browser tabs. A new start has a new one, so no tab
ever sees the events of the run before. Not here: waiting itself (``base.py``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from html import escape
from typing import Any

from hub_extensions.adapters.gpu_service import ServiceAway, ServiceCannotWrite
from hub_extensions.core.cluster.pod_status import PodState
from hub_extensions.core.messages import LeaseGrant, TicketStatus, Wait
from hub_extensions.core.offer_texts import default_title, gives
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.wording import about, ordinal
from hub_extensions.spawner.accepted_starts import AcceptedStart
from hub_extensions.spawner.pages.texts import clock, likely, no_figure, utc

KEPT_START = "Your start is kept and joins the line as soon as it answers, in the order in which starts were accepted."
LOG_EVENTS = 200
"""So many events of one start are kept for tabs that open later; the first (joined) always is."""

HELD = frozenset({"waiting-for-queue", "unscheduled", "outside", "machine-silent", "cluster-away"})
"""Reasons of a pod (`PodState`) that waits for the cluster, and is not being started yet."""

Event = dict[str, Any]


@dataclass(eq=False)
class Start:
    """One start.

    Attributes:
        offers: the validated choice, in the user's order.
        ticket, attempt: as the service last reported; None before it answered.
        grant: the lease, once admitted.
        over: the service knows already that this start ended (it refused, or ended the ticket): report nothing.
        accepted: its record in the hub's database, until the service has answered.
    """

    offers: tuple[OfferId, ...]
    ticket: str | None = None
    attempt: int = 0
    grant: LeaseGrant | None = None
    over: bool = False
    last: TicketStatus | None = None
    accepted: AcceptedStart | None = None
    _first: Event | None = None
    _events: deque[tuple[int, Event]] = field(default_factory=lambda: deque(maxlen=LOG_EVENTS - 1))
    _count: int = 0
    _key: object = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def takes(self, state: TicketStatus) -> bool:
        """Is this about our ticket, and of no attempt before ours? What is taken is remembered.

        Of two asks that crossed, the later attempt is the one that counts.
        """
        if state.ticket == self.ticket and state.attempt < self.attempt:
            return False
        self.ticket, self.attempt, self.last = state.ticket, state.attempt, state
        return True

    @property
    def wants_gpu(self) -> bool:
        """CPU only is not among the acceptable offers."""
        return CPU not in self.offers

    def report(
        self, progress: int, message: str, gpu: Mapping[str, Any], *, html: str = "", key: object = None
    ) -> None:
        """Add an event; nothing happens when `key` (default: the message) is that of the last one."""
        key = message if key is None else key
        if key == self._key:
            return
        self._key = key
        event: Event = {
            "progress": max(progress, self.latest["progress"] if self.latest else 0),  # a bar never goes back
            "message": message,
            "html_message": html or escape(message),
            "gpu": {"at": utc(datetime.now(timezone.utc)), **gpu},
        }
        if self._first is None:
            self._first = event
        else:
            self._events.append((self._count, event))
        self._count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def latest(self) -> Event | None:
        """The last event; None before the first."""
        return self._events[-1][1] if self._events else self._first

    async def follow(self) -> AsyncIterator[Event]:
        """All events so far, then each new one; endless."""
        seen = -1
        while True:
            changed = self._changed
            fresh = [(0, self._first)] if seen < 0 and self._first else []
            for number, event in fresh + [pair for pair in self._events if pair[0] > max(seen, 0)]:
                seen = number
                yield dict(event)
            await changed.wait()


def report_waiting(start: Start, state: TicketStatus, titles: Mapping[str, str]) -> None:
    """The event for a ticket that waits."""
    offer = state.offer or start.offers[0]
    title = titles.get(offer, default_title(offer))
    if state.position > 0:
        text = f"You are {ordinal(state.position)} in line for {title}. {state.reason.message}".strip()
    else:
        text = state.reason.message or f"Waiting for {title}."
    wait = state.wait
    gpu = {
        "state": "waiting",
        "position": state.position,
        "place": ordinal(state.position) if state.position > 0 else "",
        "ahead": state.ahead,
        "offer": offer,
        "offer_title": title,
        "offers": list(state.offers),
        "reason": state.reason.message,
        "why": {"reason": state.reason.reason, "params": dict(state.reason.params)},
        "since": utc(state.since),
        "simulated": state.simulated,
        "wait": None if wait is None else _wait(wait),
        "alternatives": [
            {"offer": other.id, "title": other.title, "gives": gives(other)} for other in state.alternatives
        ],
    }
    start.report(10, text, gpu, key=("waiting", _change(state)))


def report_unanswered(start: Start, why: Exception) -> None:
    """The event for a service that answers nobody, or answers and cannot go on."""
    if isinstance(why, ServiceCannotWrite):
        _report_held_up(start, str(why))
    elif isinstance(why, ServiceAway):
        _report_away(start, why.since)


def _report_away(start: Start, since: datetime) -> None:
    kept = start.ticket is not None
    note = KEPT_START if start.accepted is not None and not kept else ""
    place = " Your place in line is kept." if kept else f" {note}".rstrip()
    html = f'The GPU service is not answering, since <time datetime="{utc(since)}">{clock(since)}</time>.{place}'
    gpu = {"state": "away", "away_since": utc(since), "kept": kept, "offers": list(start.offers), "note": note}
    start.report(5, f"The GPU service is not answering, since {clock(since)}.{place}", gpu, html=html)


def _report_held_up(start: Start, reason: str) -> None:
    """`reason`: the service's own sentence."""
    kept = start.ticket is not None
    start.report(5, reason, {"state": "held-up", "reason": reason, "kept": kept, "offers": list(start.offers)})


def report_starting(start: Start, titles: Mapping[str, str]) -> None:
    """The event for an admitted start."""
    offer = start.grant.offer if start.grant else CPU
    title = titles.get(offer, default_title(offer))
    text = "Your server is starting." if offer == CPU else f"Your server is starting on {title}."
    gpu = {
        "state": "starting",
        "offer": offer,
        "offer_title": title,
        "offers": list(start.offers),
        "simulated": offer != CPU and start.last is not None and start.last.simulated,
    }
    start.report(60, text, gpu)


def report_pod(start: Start, state: PodState, titles: Mapping[str, str]) -> None:
    """The event for an admitted start whose pod is on its way: held by the cluster, or being started."""
    if not state.message:
        return
    offer = start.grant.offer if start.grant else CPU
    title = titles.get(offer, default_title(offer))
    held = state.reason in HELD
    text = f"Waiting for {title}." if offer != CPU else "Waiting for a place in the cluster."
    if not held:
        text = "Your server is starting." if offer == CPU else f"Your server is starting on {title}."
    gpu = {
        "state": "held" if held else "starting",
        "reason": state.message,
        "why": {"reason": state.reason, "params": {}},
        "offer": offer,
        "offer_title": title,
        "offers": list(start.offers),
        "simulated": False,
    }
    html = f"{escape(text)} {escape(state.message)}"
    start.report(40 if held else 70, text, gpu, html=html, key=("pod", state.reason, state.message))


def report_cluster_away(start: Start, reason: str, titles: Mapping[str, str]) -> None:
    """The event for a cluster that does not take the server now; the start is tried again. `reason`: a sentence."""
    report_pod(start, PodState("cluster-away", reason), titles)


def _wait(wait: Wait) -> dict[str, Any]:
    texts = {"likely": likely(wait), "at_most": "", "no_figure": no_figure(wait)}
    if wait.at_most_seconds is not None:
        texts["at_most"] = f"at most {about(wait.at_most_seconds)}"
    return {**asdict(wait), "words": texts}


def _change(state: TicketStatus) -> tuple[object, ...]:
    """What makes a new event. A forecast that only moved with the clock does not."""
    wait = state.wait
    figures = None if wait is None else (likely(wait) != "", wait.at_most_seconds is not None, wait.reason)
    return (
        state.ticket,
        state.position,
        state.ahead,
        state.offer,
        state.offers,
        state.reason,
        figures,
        tuple(other.id for other in state.alternatives),
    )
