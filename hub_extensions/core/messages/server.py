"""Messages between server extension and service. They are authorised by the server's own token."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.gpu.samples import Counters, UseSign
from hub_extensions.core.messages.forms import OfferState
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.text.reasons import Reason


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a server's extension about its own server.

    Attributes:
        opened: whether somebody has opened the server since its start.
        kernels, busy_kernels: number of kernels, and of busy ones; `None` if not known.
        saved: whether the open notebooks were saved after the last request to do so.
        used_percent: the highest use of the server's devices that the extension measured since its previous report;
            `None` if it measured nothing. A high value protects the server from being stopped as idle. A low value
            counts only if nothing else measures the use and the administrator trusts reports.
        busy_terminals: the number of terminals in which a program runs; `None` if not known.
        draining: whether the server still has to interrupt cells, save open pages or run the user's hook before it may
            be stopped; False if this is finished, `None` if the server is not being stopped.
        warned: the stop time in the warning that a page has shown; `None` if no page has shown one.
        hook_ran: whether the user's hook runs or has run in the current stop.
        has_hook: whether the user has a hook; checked while a countdown is shown.
        asked: whether the server's open pages were asked to save in the current stop; `None` from an older extension,
            which does not report it.
        watched: whether a page of the server is open, so that it shows warnings. False from an older extension.
    """

    opened: bool
    kernels: int | None
    busy_kernels: int | None
    saved: bool = False
    used_percent: float | None = None
    busy_terminals: int | None = None
    draining: bool | None = None
    warned: datetime | None = None
    hook_ran: bool = False
    has_hook: bool = False
    asked: bool | None = None
    watched: bool = False


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The user of a server returns its GPU, so the server stops.

    Attributes:
        cpu: whether the server is started again without a GPU.
    """

    cpu: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """When a server expects to be done with its GPU, as reported by the training program in it.

    Attributes:
        at: when the program reported it.
        left_seconds: the remaining time at `at`.
        spread: the possible error as a share of `left_seconds`; 0 means exact.
    """

    at: datetime
    left_seconds: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainingEnded:
    """A training run in a server has ended, and its user wishes a notice by mail or webhook.

    Attributes:
        run: id of the run, so that there is one notice for each run.
        name: the name that the program gave the run; "" if it gave none.
        state: how it ended: ``done``, ``left``, ``failed`` or ``vanished`` (see `Training.state`).
        started, ended: wall-clock times of its first report and of its end.
    """

    run: str
    name: str
    state: str
    started: datetime
    ended: datetime


@dataclass(frozen=True, slots=True)
class Figures:
    """The use of a server's device as the service knows it from elsewhere (DCGM through Prometheus, `source` ``dcgm``).

    Attributes:
        uuid: UUID of the device; "" if it is not known, for a server of a cluster that has one device.
        used_percent: use of the device, 0 to 100; `None` if it is not known.
        counters: further counters; `None` if none is known.
    """

    uuid: str
    at: datetime
    used_percent: float | None
    source: str
    counters: Counters | None = None


@dataclass(frozen=True, slots=True)
class OtherEnd:
    """A further cause to stop a server, beside the first one.

    Attributes:
        at: when it would stop the server (wall-clock time).
        cause: a code such as ``idle``; `Countdown.cause` lists all codes.
        ordered_by: ``rules`` (the limits of culling), ``user``, ``administrator``, ``hub`` (a sign-out), or ``line``
            (users who wait take a borrowed GPU back).
        withdrawn_by: what can withdraw this cause: ``keep`` (by the user), ``undo`` (by an administrator), ``line``
            (when the GPU is not needed any more); `None` if nothing can.
    """

    at: datetime
    cause: str
    reason: Reason
    ordered_by: str
    withdrawn_by: str | None


@dataclass(frozen=True, slots=True)
class Countdown:
    """When and why this server stops. There is one only if the server is to stop.

    Attributes:
        stops_at: wall-clock time of the stop.
        cause: ``idle``, ``lifetime``, ``unopened``, ``cpu-idle``, ``signed-out``, ``given-back``, ``admin``,
            ``reclaimed``.
        reason: the cause as a sentence.
        can_keep: whether *keep* postpones this end.
        warn: whether the user is warned now.
        last_warning: wall-clock time of the second warning; `None` if it is not known.
        no_keep: why *keep* does not postpone the end now although the policy allows that; `None` if it does, or never
            can.
        others: the further causes that would stop the server, the earliest first.
    """

    stops_at: datetime
    cause: str
    reason: Reason
    can_keep: bool
    warn: bool
    last_warning: datetime | None = None
    no_keep: Reason | None = None
    others: tuple[OtherEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class Keep:
    """The number of times that the user may still press *keep*, which postpones the stop of the server.

    Attributes:
        minutes: the minutes that each *keep* adds.
        left: how many times are left.
        of: how many times the user may press *keep* in all: within 24 hours, or if `of_server` is True, during this
            run of the server.
        of_server: True if each *keep* extends the lifetime of this run of the server; False if it postpones another
            end.
    """

    minutes: float
    left: int
    of: int
    of_server: bool = False


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of a server, as the service reports it to the server's own extension.

    Attributes:
        offer, title, share: the server's offer, its title, and the part of one device (0 for CPU only).
        uuid: UUID of the device; `None` for CPU only, and on a cluster, where the device is not known.
        memory_bytes: the limit to show: a fraction's share of the device, or the whole device; `None` if not known.
        memory_enforced: whether that limit is enforced.
        lease_state: ``starting``, ``running``, ``ending``, ``lost``, or ``none`` for a server without a lease.
        countdown: when and why the server stops; `None` if it does not stop.
        keep: how often the user may still postpone a stop; `None` if *keep* is not offered.
        ends_at: the end that the user cannot postpone, by lifetime or by somebody's order; `None` without one.
        save: whether the open notebooks have to be saved now, because the server is about to stop.
        warnings: warnings for the user, such as a lost device or another process on the device.
        waits: the other offers with their waits, to which the user could change.
        rule: when culling stops this server; `None` if nothing stops it, and in a dry run of culling.
        figures: use of this server's device measured elsewhere; `None` if the server can read it from the card, or if
            it is not known.
        drain_seconds: how long the user's own hook may run once the stop has begun.
        signs: the facts about whether the server is in use; empty if idle servers are not stopped.
        idle_below_percent: GPU use below this value counts as idle.
        name: a plain name of the offer such as ``Small GPU``; "" if there is only the title.
        extend: how often the user may still put off the end of the lifetime, whether or not it is near; `None` if the
            lifetime of this server cannot be extended.
        can_notify: whether a notice to this user can be sent by mail or webhook.
        size: what the user is told about the size of the GPU after the announced stop, such as that a smaller one would
            have been enough, in the language of the user's last page; "" without such a stop.
    """

    user: str
    server: str
    offer: OfferId
    title: str
    uuid: str | None
    share: float
    memory_bytes: int | None
    memory_enforced: bool
    simulated: bool
    lease_state: str
    countdown: Countdown | None
    keep: Keep | None
    ends_at: datetime | None
    save: bool
    warnings: tuple[Reason, ...]
    waits: tuple[OfferState, ...]
    rule: Reason | None = None
    figures: Figures | None = None
    drain_seconds: float = 60.0
    signs: tuple[UseSign, ...] = ()
    idle_below_percent: float = 5.0
    name: str = ""
    extend: Keep | None = None
    can_notify: bool = False
    size: str = ""
