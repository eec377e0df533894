"""Server extension and service, authorised by the server's own token."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.gpu.samples import Counters, UseSign
from hub_extensions.core.messages.forms import OfferState
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.text.reasons import Reason


@dataclass(frozen=True, slots=True)
class Report:
    """A server's extension about its own server. It can say something of its own server only.

    Attributes:
        used_percent: the highest use of its devices that it measured itself since the report before; None: it measured
            none. A high one protects the server; a low one counts only where nobody else measures, and where the admin
            trusts reports.
        busy_terminals: those in which a program runs; None is not known.
        draining: its stop has begun, and cells, pages or its user's hook are not done; None: it does none of that.
        warned: a page has shown the warning of the stop that was to come then; None: none has.
        hook_ran: in the stop that has begun its user's hook runs, or has run.
        has_hook: its user has one; looked for while a countdown is shown.
        asked: in the stop that has begun its pages were asked to save; None: an extension of before, which says nothing
            of it.
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


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The user of a server gives its GPU back: the server stops. `cpu`: it comes back without a GPU."""

    cpu: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """When a server expects to be done with its GPU, as its own training tells.

    Attributes:
        at: when it was said. left_seconds: from then on. spread: how far off it may be, as a share of that (0: exact).
    """

    at: datetime
    left_seconds: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """The use of a server's device as the service knows it from elsewhere (DCGM through Prometheus, `source` dcgm).

    Attributes:
        uuid: "" where nobody knows it, for a server of a cluster that has one device.
    """

    uuid: str
    at: datetime
    used_percent: float | None
    source: str
    counters: Counters | None = None


@dataclass(frozen=True, slots=True)
class OtherEnd:
    """A cause to stop a server that stands beside the first one.

    Attributes:
        at: when it would stop the server (wall clock). cause: as in `Countdown`.
        ordered_by: ``rules`` (the limits of culling), ``user``, ``administrator``, or ``hub`` (a sign-out).
        withdrawn_by: ``keep`` (the user's), ``undo`` (an administrator's); None: nothing withdraws it.
    """

    at: datetime
    cause: str
    reason: Reason
    ordered_by: str
    withdrawn_by: str | None


@dataclass(frozen=True, slots=True)
class Countdown:
    """When this server stops and why. No countdown, no object.

    Attributes:
        stops_at: wall-clock; cause: ``idle``, ``lifetime``, ``unopened``, ``cpu-idle``,
            ``signed-out``, ``given-back``, ``admin``.
        can_keep: *keep* moves this end.
        last_warning: wall-clock time of the second warning; None: it is not known.
        no_keep: why *keep* does not move this end now, where the policy lets it be moved; None: it does, or never can.
        others: the causes that stand beside this one, the earliest first.
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
    """The *keep* budget: minutes each adds, how many of how many are left in 24 hours.

    Attributes:
        of_server: it puts the lifetime off, and the number is for this run of the server, not for a day.
    """

    minutes: float
    left: int
    of: int
    of_server: bool = False


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the service tells a server's own extension.

    Attributes:
        offer, title, uuid, share: the lease; uuid None for CPU only (share 0), and on a cluster, where nobody knows it.
        memory_bytes: the limit to show (a fraction's share of the device, or the device's).
        lease_state: ``starting``, ``running``, ``ending``, ``lost``, or ``none``.
        warnings: for the user (device lost, somebody else's process on the device).
        ends_at: the end that nothing moves which its user does there: its lifetime's, or an order's; None without one.
        save: save the open notebooks now, the server is about to stop.
        waits: the other offers with their waits.
        rule: when this server stops by itself; None where nothing stops it (a dry run, too).
        figures: use of this server's own device from elsewhere, where the card cannot tell it to the server.
        drain_seconds: how long the user's own hook may run once the stop has begun.
        name: of the offer, plain (``Small GPU``); "": there is none but the title.
        signs: what is known of its use; none where nothing is culled. idle_below_percent: less use than that is idle.
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
