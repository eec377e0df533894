"""Shown to users, on the form and by the API: offers and waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.text.reasons import Reason
from hub_extensions.core.text.sentence_pieces import Pieces, in_pieces, plain_pieces
from hub_extensions.core.text.translation import Catalogue


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait forecast on the wire. Seconds; None is not known.

    Attributes:
        reason: why this long; None: nothing is to be said.
        as_of: when the quantiles were computed; None: they are not known, or follow from now.
        soon: the probability to start within 15 min, 1 h and 4 h, in steps of 0.05; empty: not known.
        note: ``few-data``: too few uses have ended to know the quantiles; ``rough``: there were few busy times yet, or
            the quantiles missed often of late.
        wide: P90 is more than three times P10; both are rounded to coarse steps, and texts say "roughly".
    """

    now: bool
    p10_seconds: float | None
    p50_seconds: float | None
    p90_seconds: float | None
    at_most_seconds: float | None
    reason: Reason | None
    as_of: datetime | None = None
    soon: tuple[float, ...] = ()
    note: str = ""
    wide: bool = False


@dataclass(frozen=True, slots=True)
class OfferClosing:
    """What administrators have closed of an offer: nothing new starts there.

    Attributes:
        count: how many devices. all: none is left that is open.
        since, why: of the oldest order, in the administrator's words; None and "" where somebody closed it elsewhere.
    """

    count: int
    all: bool
    since: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class OfferState:
    """One offer as the form shows it.

    `isolation` has the keys memory, fault, compute, access; `share` is 0 to 1 of one device (0: CPU only).
    `free`, `total` None: not known. Only what is for one of the user's groups is listed at all.
    `queue`: whose line it waits in where that is not ours (``Kueue``, ``KAI``): no place in it is known here.
    `name`: plain (``Small GPU``); "": there is none but the title.
    `closed`: what administrators have closed of it; None: nothing.
    """

    id: OfferId
    kind: str
    title: str
    description: str
    pool: str
    share: float
    isolation: Mapping[str, str]
    memory_bytes: int | None
    memory_enforced: bool
    sm_count: int | None
    sm_total: int | None
    product: str
    simulated: bool
    free: int | None
    total: int | None
    held: int
    held_by_others: int
    lost: int
    waiting: int
    wait: Wait
    queue: str = ""
    name: str = ""
    closed: OfferClosing | None = None

    @property
    def plain_name(self) -> str:
        """What users read first."""
        return self.name or self.title


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user is told at the next page: why a server was stopped, why a ticket ended.

    `reasons`: what `text` says, for readers of other languages; none: it is shown as it stands.
    """

    at: datetime
    server: str
    text: str
    reasons: tuple[Reason, ...] = ()

    def in_language(self, t: Catalogue) -> Pieces:
        """What it says, in the language of a catalogue where that is to be had."""
        return in_pieces(self.reasons, t) or plain_pieces(self.text, t)


@dataclass(frozen=True, slots=True)
class FailedStart:
    """An admitted start that failed.

    Attributes:
        user: None for anybody but its owner and admins.
        offer: that it was admitted to; ``cpu``: without a GPU. title: of it, in the admin's words.
        reason: what happened. then: what more is said of it, and what to do.
        cause: a word for it, as the metric has it; "": not known.
        before: how many starts of this server had failed in a row before this one.
        kept_until: its user's place is kept until then; None: it is not.
        log: the last lines of the server's log, for admins; "": not known, or not the reader's.
    """

    at: datetime
    user: str | None
    server: str
    offer: OfferId
    title: str
    reason: Reason
    cause: str = ""
    before: int = 0
    kept_until: datetime | None = None
    log: str = ""
    then: tuple[Reason, ...] = ()

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """All that is said of it."""
        return (self.reason, *self.then)


@dataclass(frozen=True, slots=True)
class FormState:
    """Everything the spawn form needs, for one user, in one answer.

    Attributes:
        as_of: when the inventory was read; None: never yet.
        culling: sentence about when servers stop ("" in a dry run).
        gpu_servers: the user's servers that hold a GPU now (names; "" is the default server).
        last_offers: offer ids the user chose last, if they still exist (for preselection).
        caution: what the figures do not count, one sentence; "" where they count everything.
        in_line: the user's servers that have a live ticket: they wait, or are being started.
        silent: offers that a machine of the cluster has which does not answer.
        default_offer: what the admin has preselected for whoever has not chosen before; None: nothing.
        rule: what `culling` says, as a reason; None: "", or an older service.
        peak_memory_bytes: the most GPU memory that one of the user's last three uses held; None: not known.
        failed: the user's last starts that failed, one a server, and after which none was ready.
    """

    offers: tuple[OfferState, ...]
    simulated: bool
    as_of: datetime | None
    culling: str
    gpu_servers: tuple[str, ...]
    notices: tuple[Notice, ...] = ()
    last_offers: tuple[OfferId, ...] = ()
    caution: str = ""
    in_line: tuple[str, ...] = ()
    silent: tuple[OfferId, ...] = ()
    default_offer: OfferId | None = None
    rule: Reason | None = None
    peak_memory_bytes: int | None = None
    failed: tuple[FailedStart, ...] = ()
