"""Messages with offers and waits, for the spawn form and the API."""

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
    """A wait forecast. Durations are in seconds; `None` means not known.

    Attributes:
        now: whether the server starts at once.
        p10_seconds, p50_seconds, p90_seconds: the wait is shorter than this with a probability of 10, 50 and 90 %.
        at_most_seconds: the longest wait that enforced limits allow, which users see as "at most …"; `None` without
            such a limit.
        reason: why the wait is this long; `None` if there is nothing to explain.
        as_of: when the three quantiles were computed; `None` if they are not known or need no computation.
        soon: the probability of a start within 15 min, 1 h and 4 h, in steps of 0.05; empty if not known.
        note: ``few-data``: too few uses have ended to estimate quantiles. ``rough``: there were few busy times so far,
            or the quantiles were often wrong recently. "" otherwise.
        wide: whether P90 is more than three times P10. If so, both are rounded to coarse steps, and texts add
            "roughly".
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
    """The part of an offer that administrators have closed for new starts.

    Attributes:
        count: the number of closed devices.
        all: whether every device is closed.
        since: time of the oldest order; `None` if the devices were closed outside this service.
        why: text of that order; "" if the devices were closed outside this service.
    """

    count: int
    all: bool
    since: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class OfferState:
    """One offer as the form shows it. A user receives only offers that the user's groups may choose.

    Attributes:
        name: a plain name such as ``Small GPU``; "" if there is only the title.
        share: the part of one device, 0 to 1; 0 for CPU only.
        isolation: how the offer's device is separated from other servers. The keys ``memory``, ``fault`` and
            ``compute`` have ``hardware``, ``soft``, ``none`` or ``unknown``. The key ``access`` has ``enforced``, ``by
            agreement`` or ``none needed``: whether a process is kept from devices that are not its own.
        memory_bytes, sm_count, sm_total: memory, SMs (streaming multiprocessors), and SMs of the whole card; `None` if
            not known.
        free, total: number of free devices and of all devices; `None` if not known.
        held: number of devices, or shares of devices, that servers of this hub have.
        held_by_others: number of devices used by programs that this hub did not start.
        lost: number of devices that disappeared from the machine while a server had them.
        waiting: number of users in line for the offer.
        wait: the wait of a user who joins the line now.
        queue: the system that keeps the line, if that is not this service (``Kueue``, ``KAI``); the position in it is
            then not known. "" if this service keeps the line.
        closed: the part that administrators have closed; `None` if nothing is closed.
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
        """The name of the offer that users read first: `name` if there is one, otherwise the title."""
        return self.name or self.title


@dataclass(frozen=True, slots=True)
class Notice:
    """A message shown to the user at the next page: why a server was stopped, or why a ticket ended.

    Attributes:
        at: when it happened.
        server: name of the server; "" for the default server.
        reasons: the content of `text` with codes, for translation; if empty, `text` is shown as it is.
    """

    at: datetime
    server: str
    text: str
    reasons: tuple[Reason, ...] = ()

    def in_language(self, t: Catalogue) -> Pieces:
        """Return the notice in the language of the catalogue, as far as it is translated."""
        return in_pieces(self.reasons, t) or plain_pieces(self.text, t)


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A start of a server that was admitted (its turn in line had come) but failed.

    Attributes:
        at: when it failed.
        user: name of the server's owner; `None` if the reader is neither the owner nor an administrator.
        offer: the offer that the server was admitted to; ``cpu`` without a GPU.
        title: the administrator's title of that offer.
        reason: what happened.
        then: further explanation, and what to do; may be empty.
        cause: the cause as a label of the metric; "" if not known.
        before: how many starts of this server had failed in a row before this one.
        kept_until: until when the user's place in line is kept; `None` if it is not kept.
        log: the last lines of the server's log, for administrators; "" if not known or not for the reader.
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
        """Why the start failed: what happened, followed by the further explanation."""
        return (self.reason, *self.then)


@dataclass(frozen=True, slots=True)
class FormState:
    """Everything that the spawn form of one user needs.

    Attributes:
        simulated: whether the GPUs are simulated, which the form has to show.
        as_of: when the GPUs or the cluster were read; `None` if they were not read yet.
        culling: a sentence about when culling stops servers; "" in a dry run of culling, in which no server is stopped.
        rule: `culling` as a reason with a code; `None` if `culling` is "", or from an older service.
        gpu_servers: names of the user's servers that hold a GPU now; "" is the default server.
        in_line: names of the user's servers that wait in line or are being started.
        last_offers: the offers the user chose last, if they still exist; the form preselects them.
        default_offer: the administrator's preselection for users who have not chosen before; `None` without one.
        caution: a sentence about what the figures do not include; "" if they include everything.
        silent: offers some of whose devices are on a node of the cluster that does not answer.
        peak_memory_bytes: the highest GPU memory in any of the user's last three uses; `None` if not known.
        failed: the last failed start of each of the user's servers that has not been ready since.
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
