"""The progress of one start: a bounded list of events that the waiting page shows, in any number of browser tabs.

Each start has its own list, so that no tab sees the events of an earlier start. Tabs may use different languages, so
each event has its texts in every language.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from html import escape
from typing import Any

from hub_extensions.adapters.files.catalogues import catalogues
from hub_extensions.adapters.service.gpu_service import ServiceAway, ServiceCannotWrite
from hub_extensions.core.cluster.pod_status import PodState
from hub_extensions.core.messages import LeaseGrant, Problem, TicketStatus
from hub_extensions.core.messages.offer_texts import (
    MIG,
    age_step,
    at_most_text,
    default_title,
    gives,
    likely_text,
    plain_name,
    range_text,
    when_text,
)
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.offers.user_options import UserOptions
from hub_extensions.core.text.reasons import Reason, as_text, translated
from hub_extensions.core.text.translation import ENGLISH, Catalogue, halves
from hub_extensions.core.text.wording import ordinal
from hub_extensions.spawner.accepted_starts import AcceptedStart
from hub_extensions.spawner.pages.texts import clock, utc

KEPT_START = "Your start is kept and joins the line as soon as it answers, in the order in which starts were accepted."
SILENT = "The GPU service is not answering, since %1."
LOG_EVENTS = 200  # events of one start that are kept for tabs that open later, including the first one

HELD = frozenset({"waiting-for-queue", "unscheduled", "outside", "machine-silent", "cluster-away"})
"""Reasons (`PodState.reason`) of a pod that still waits for a place in the cluster; otherwise it is starting."""

ProgressEvent = dict[str, Any]
Texts = Callable[[Catalogue], dict[str, Any]]
"""A function that returns the texts of an event in the language of a catalogue. It must return a ``message``."""


@dataclass(eq=False)
class Start:
    """One start of a server, with the events that its waiting page shows. Each call of ``Spawner.start`` makes one.

    Attributes:
        options: what the user chose, validated.
        ticket: id of the user's place in the line; None before the GPU service's first answer.
        attempt: the service's number of this try to start the server; a ticket can have several. 0 before the answer.
        grant: the lease and what it gives the server; None before admission.
        over: the service already knows that this start has ended, so its end is not reported again.
        last: the last status of the ticket; None before the first answer.
        accepted: the start's record in the hub's database; None if the hub keeps none.
        begun: when the launch of the server began; None while the start waits in line.
        reported: the request that reports the end of the start to the service; None as long as no report was sent.
    """

    options: UserOptions
    ticket: str | None = None
    attempt: int = 0
    grant: LeaseGrant | None = None
    over: bool = False
    last: TicketStatus | None = None
    accepted: AcceptedStart | None = None
    begun: datetime | None = None
    reported: asyncio.Future[Any] | None = None
    _first: ProgressEvent | None = None
    _events: deque[tuple[int, ProgressEvent]] = field(default_factory=lambda: deque(maxlen=LOG_EVENTS - 1))
    _count: int = 0
    _key: object = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def takes(self, state: TicketStatus) -> bool:
        """Store a status of the ticket and return True.

        A status of an earlier attempt (try to start the server) with the same ticket is ignored, and False is returned:
        it comes from a request that was overtaken by a later one.
        """
        if state.ticket == self.ticket and state.attempt < self.attempt:
            return False
        self.ticket, self.attempt, self.last = state.ticket, state.attempt, state
        return True

    @property
    def offers(self) -> tuple[OfferId, ...]:
        """The offers that the user accepts, the preferred one first."""
        return self.options.offers

    @property
    def wants_gpu(self) -> bool:
        """Whether the user accepts only offers with a GPU, so that the server cannot start without the GPU service."""
        return CPU not in self.offers

    @property
    def offer(self) -> OfferId:
        """The offer that the start was admitted to; CPU only without a lease."""
        return self.grant.offer if self.grant is not None else CPU

    def report(
        self, progress: int, gpu: Mapping[str, Any], texts: Texts, *, html: str = "", key: object = None
    ) -> None:
        """Add an event for the waiting page, unless its key is the same as that of the last event.

        Args:
            progress: percent of the progress bar, which never goes back.
            gpu: values for the waiting page that do not depend on the language.
            texts: returns the texts in the language of a catalogue. English texts are stored beside the values of
                `gpu`, those of the other languages under the key ``said``.
            html: the message as HTML; "" if it is the same as the message.
            key: identifies the event, so that it is not repeated; None to use the English message.
        """
        english = texts(ENGLISH)
        message = english["message"]
        key = message if key is None else key
        if key == self._key:
            return
        self._key = key
        said = {language: texts(t) for language, t in catalogues().items()}
        event: ProgressEvent = {
            "progress": max(progress, self.latest["progress"] if self.latest else 0),
            "message": message,
            "html_message": html or escape(message),
            "gpu": {"at": utc(datetime.now(timezone.utc)), **gpu, **english, "said": said},
        }
        if self._first is None:
            self._first = event
        else:
            self._events.append((self._count, event))
        self._count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def latest(self) -> ProgressEvent | None:
        """The last event of this start; None before the first one."""
        return self._events[-1][1] if self._events else self._first

    async def follow(self) -> AsyncIterator[ProgressEvent]:
        """Yield all events of this start so far, then each new one, without end."""
        seen = -1
        while True:
            changed = self._changed
            fresh = [(0, self._first)] if seen < 0 and self._first else []
            for number, event in fresh + [pair for pair in self._events if pair[0] > max(seen, 0)]:
                seen = number
                yield dict(event)
            await changed.wait()


def report_waiting(start: Start, state: TicketStatus, titles: Mapping[str, str]) -> None:
    """Add the event for a ticket that waits in line: position, expected wait, and why it waits.

    Args:
        start: the start, whose waiting page shows the event.
        state: the status of the ticket (the user's place in line).
        titles: offer id -> the administrator's title.
    """
    offer, wait = state.offer or start.offers[0], state.wait
    gpu = {
        "state": "waiting",
        "position": state.position,
        "ahead": state.ahead,
        "offer": offer,
        "offers": list(state.offers),
        "why": {"reason": state.reason.reason, "params": dict(state.reason.params)},
        "since": utc(state.since),
        "simulated": state.simulated,
        "wait": None if wait is None else {**asdict(wait), "as_of": "" if wait.as_of is None else utc(wait.as_of)},
    }

    def texts(t: Catalogue) -> dict[str, Any]:
        title, reason = t(titles.get(offer, default_title(offer))), translated(state.reason, t)
        place = ordinal(state.position, t) if state.position > 0 else ""
        headline = t("You are %1 in line for %2", place, title) if place else ""
        return {
            "message": f"{headline}. {reason}".strip() if place else reason or t("Waiting for %1.", title),
            "headline": headline,
            "place": place,
            "offer_title": title,
            "profile": _profile(offer, title),
            "reason": reason,
            "likely": "" if wait is None else range_text(wait, t),
            "at_most": "" if wait is None else at_most_text(wait, t),
            "alternatives": [
                {
                    "offer": other.id,
                    "title": plain_name(other, t),
                    "gives": gives(other, t),
                    "when": when_text(other.wait, t),
                    "now": other.wait.now,
                }
                for other in state.alternatives
            ],
        }

    start.report(10, gpu, texts, key=("waiting", _change(state)))


def report_unanswered(start: Start, why: Exception) -> None:
    """Add the event for a request of this start that failed.

    Args:
        why: a `ServiceAway`: the GPU service does not answer, or it answers that it cannot write to its database. For
            any other exception, no event is added.
    """
    if isinstance(why, ServiceCannotWrite):
        _report_held_up(start, why.problem)
    elif isinstance(why, ServiceAway):
        _report_away(start, why.since)


def _report_away(start: Start, since: datetime) -> None:
    kept = start.ticket is not None
    owed = start.accepted is not None and not kept
    gpu = {"state": "away", "away_since": utc(since), "kept": kept, "offers": list(start.offers)}

    def after(t: Catalogue) -> str:
        return t("Your place in line is kept.") if kept else t(KEPT_START) if owed else ""

    def texts(t: Catalogue) -> dict[str, Any]:
        return {
            "message": f"{t(SILENT, clock(since))} {after(t)}".rstrip(),
            "away": halves(t(SILENT)),
            "note": "" if kept else after(t),
        }

    html = f'{SILENT.replace("%1", f"""<time datetime="{utc(since)}">{clock(since)}</time>""")} {after(ENGLISH)}'
    start.report(5, gpu, texts, html=html.rstrip())


def _report_held_up(start: Start, problem: Problem) -> None:
    """Add the event for a service that answers but cannot write to its database now.

    Args:
        start: the start that waits for the service.
        problem: the service's answer. If it has no reason that can be translated, its English text is shown in every
            language.
    """
    gpu = {"state": "held-up", "kept": start.ticket is not None, "offers": list(start.offers)}
    reason = Reason(problem.reason, problem.message, problem.params)

    def texts(t: Catalogue) -> dict[str, Any]:
        said = translated(reason, t)
        return {"message": said, "reason": said}

    start.report(5, gpu, texts)


def report_starting(start: Start, titles: Mapping[str, str]) -> None:
    """Add the event for a start that has been admitted: its server is now launched.

    Args:
        start: the start, whose waiting page shows the event.
        titles: offer id -> the administrator's title.
    """
    offer, start.begun = start.offer, start.begun or datetime.now(timezone.utc)
    gpu = {
        "state": "starting",
        "offer": offer,
        "offers": list(start.offers),
        "simulated": offer != CPU and start.last is not None and start.last.simulated,
        **_steps(start),
    }

    def texts(t: Catalogue) -> dict[str, Any]:
        title = t(titles.get(offer, default_title(offer)))
        return {"message": _starts(offer, title, t), "offer_title": title, "profile": _profile(offer, title)}

    start.report(60, gpu, texts)


def _profile(offer: OfferId, title: str) -> str:
    """Return the MIG profile of an offer, such as ``MIG 1g.5gb``, to be shown beside a title that does not name it.

    "" if the title is that profile, or for offers without MIG.
    """
    own = default_title(offer)
    return own if own.startswith(MIG) and own != title else ""


def _steps(start: Start) -> dict[str, Any]:
    """Return when the launch of a start began and how many seconds a launch usually takes, for the waiting page.

    Each is None if it is not known.
    """
    usual = start.last.usual_start_seconds if start.last is not None else None
    return {"since": None if start.begun is None else utc(start.begun), "usual_seconds": usual}


def _starts(offer: OfferId, title: str, t: Catalogue) -> str:
    return t("Your server is starting.") if offer == CPU else t("Your server is starting: %1.", title)


def report_pod(start: Start, state: PodState, titles: Mapping[str, str]) -> None:
    """Add the event for the pod of an admitted start: it waits for a place in the cluster, or is starting.

    Args:
        start: the start, whose waiting page shows the event.
        state: what is known of the pod; a state without reasons adds no event.
        titles: offer id -> the administrator's title.
    """
    if not state.reasons:
        return
    offer, held = start.offer, state.reason in HELD
    gpu = {
        "state": "held" if held else "starting",
        "why": {"reason": state.reason, "params": {}},
        "offer": offer,
        "offers": list(start.offers),
        "simulated": False,
        **_steps(start),
    }

    def texts(t: Catalogue) -> dict[str, Any]:
        title = t(titles.get(offer, default_title(offer)))
        waits = t("Waiting for a place in the cluster.") if offer == CPU else t("Waiting for %1.", title)
        return {
            "message": waits if held else _starts(offer, title, t),
            "reason": as_text(state.reasons, t=t),
            "offer_title": title,
        }

    html = f"{escape(texts(ENGLISH)['message'])} {escape(state.message)}"
    start.report(40 if held else 70, gpu, texts, html=html, key=("pod", state.reason, state.message))


def report_cluster_away(start: Start, reasons: tuple[Reason, ...], titles: Mapping[str, str]) -> None:
    """Add the event for a cluster that does not accept the server now, so that the start is retried.

    Args:
        start: the start, whose waiting page shows the event.
        reasons: the sentences for the user.
        titles: offer id -> the administrator's title.
    """
    report_pod(start, PodState("cluster-away", reasons), titles)


def _change(state: TicketStatus) -> tuple[object, ...]:
    """Return a value that identifies what a page shows about a waiting ticket.

    A new forecast changes the value only if the shown range changes, so that pages get no equal events.
    """
    wait = state.wait
    shown = None
    if wait is not None:
        shown = likely_text(wait), wait.note, wait.at_most_seconds is not None, wait.reason, age_step(wait)
    return (
        state.ticket,
        state.position,
        state.ahead,
        state.offer,
        state.offers,
        state.reason,
        shown,
        tuple((other.id, when_text(other.wait)) for other in state.alternatives),
    )
