"""The course of one server's stop. Every change of its `StopRecord` is an event of this table.

Its causes:

| state     | WARNED    | WITHDRAWN | CALMED    | CLEARED |
| --------- | --------- | --------- | --------- | ------- |
| running   | announced |           |           |         |
| announced | announced | announced |           | running |
| draining  | draining  | announced |           |         |
| asked     | asked     |           |           |         |
| waiting   | waiting   | announced | announced |         |

The stop:

| state     | BEGUN    | INTERRUPTED | ASKED | SILENT | PUT_OFF | STOPPED |
| --------- | -------- | ----------- | ----- | ------ | ------- | ------- |
| running   |          |             |       |        |         | ending  |
| announced | draining |             |       |        |         | ending  |
| draining  | draining | draining    | asked |        | waiting | ending  |
| asked     | asked    | asked       | asked | asked  | waiting | ending  |
| waiting   | draining |             |       |        |         | ending  |
| ending    |          |             |       |        |         | ending  |

After the stop:

| state     | SERVER_BACK | RELEASED  | RETURNED | OVER |
| --------- | ----------- | --------- | -------- | ---- |
| ending    | running     | returning |          | gone |
| returning |             |           | returned | gone |
| returned  |             |           |          | gone |

A record begins when a stop is *announced*: somebody orders it, or its user is warned. The record holds all causes for
which the server will stop. When the last of them is withdrawn, or does not apply any more, the server is *running*
again and has no record. While a stop is *draining*, cells are interrupted, open notebooks are saved, and the user's
hook runs. Then the hub is *asked* to stop the server. A try that failed or was put off *waits* for its pause. After the
hub has stopped the server, the stop is *ending* until it is proved that the device is free, and then *returning* if the
server is to be started again without a GPU.

**The point of no return is the first interrupt of a kernel**, or the request to the hub if no kernel is interrupted:
from then on `refuse_withdrawal` refuses every withdrawal, also while a later try waits. That a server is at work again
is not a withdrawal: until the hub is asked, such a server is not stopped for idleness (PUT_OFF, CALMED).

A stop that is not over by its deadline is reported to administrators in any state (`fault_of`). A step that is not in
the table raises KeyError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.stops.causes import Cause, StopCause, added, stop_of
from hub_extensions.core.stops.drain import DrainSeen
from hub_extensions.core.stops.returns import ServerReturn
from hub_extensions.core.stops.turns import StopPause
from hub_extensions.core.text.reasons import Reason, explain


class StopState(Enum):
    """The state of one server's stop; the module's docstring describes the states."""

    RUNNING = "running"
    """No end is announced."""
    ANNOUNCED = "announced"
    """The user is warned of the stop, or somebody ordered it."""
    DRAINING = "draining"
    """Cells are interrupted, notebooks are saved, and the user's hook runs."""
    ASKED = "asked"
    """The hub was asked to stop the server, or may have been."""
    WAITING = "waiting"
    """A try has failed or was put off; the next one comes after a pause."""
    ENDING = "ending"
    """The hub has stopped the server; it is not proved yet that its device is free."""
    RETURNING = "returning"
    """The server is to be started again without a GPU."""
    RETURNED = "returned"
    """The server runs again without a GPU."""
    GONE = "gone"
    """The stop is over."""


class StopEvent(Enum):
    """An event in the course of a stop, a column of the tables in the module's docstring."""

    WARNED = "warned"
    """The causes of which the user is warned have changed, or their times have."""
    WITHDRAWN = "withdrawn"
    """A person withdrew the last cause that is due: by *Keep* or *Undo*, or an administrator keeps the server."""
    CALMED = "calmed"
    """No cause is due any more, for example because the GPU works again."""
    CLEARED = "cleared"
    """No cause will stop the server any more, or none so soon that the user has to be warned."""
    BEGUN = "begun"
    """A try to stop the server begins with the drain."""
    INTERRUPTED = "interrupted"
    """The server receives the request to interrupt its kernels."""
    ASKED = "asked"
    """The hub is asked to stop the server."""
    SILENT = "silent"
    """The hub gave no answer, so it may have begun the stop."""
    PUT_OFF = "put-off"
    """The hub refused, or the server does not have to be stopped now."""
    STOPPED = "stopped"
    """The server is gone, by the hub's list or by the service's own observation."""
    SERVER_BACK = "server-back"
    """The hub calls the server ready again, and its process or pod is there."""
    RELEASED = "released"
    """The GPU is free, and the server is to come back without one."""
    RETURNED = "returned"
    """The server runs again without a GPU."""
    OVER = "over"
    """Nothing is left to do."""


_RUNNING, _ANNOUNCED, _DRAINING, _ASKED = StopState.RUNNING, StopState.ANNOUNCED, StopState.DRAINING, StopState.ASKED
_WAITING, _ENDING, _RETURNING, _RETURNED = (
    StopState.WAITING,
    StopState.ENDING,
    StopState.RETURNING,
    StopState.RETURNED,
)
STOPS: Mapping[tuple[StopState, StopEvent], StopState] = {
    (_RUNNING, StopEvent.WARNED): _ANNOUNCED,
    (_RUNNING, StopEvent.STOPPED): _ENDING,
    (_ANNOUNCED, StopEvent.WARNED): _ANNOUNCED,
    (_ANNOUNCED, StopEvent.WITHDRAWN): _ANNOUNCED,
    (_ANNOUNCED, StopEvent.CLEARED): _RUNNING,
    (_ANNOUNCED, StopEvent.BEGUN): _DRAINING,
    (_ANNOUNCED, StopEvent.STOPPED): _ENDING,
    (_DRAINING, StopEvent.WARNED): _DRAINING,
    (_DRAINING, StopEvent.WITHDRAWN): _ANNOUNCED,
    (_DRAINING, StopEvent.BEGUN): _DRAINING,
    (_DRAINING, StopEvent.INTERRUPTED): _DRAINING,
    (_DRAINING, StopEvent.ASKED): _ASKED,
    (_DRAINING, StopEvent.PUT_OFF): _WAITING,
    (_DRAINING, StopEvent.STOPPED): _ENDING,
    (_ASKED, StopEvent.WARNED): _ASKED,
    (_ASKED, StopEvent.BEGUN): _ASKED,
    (_ASKED, StopEvent.INTERRUPTED): _ASKED,
    (_ASKED, StopEvent.ASKED): _ASKED,
    (_ASKED, StopEvent.SILENT): _ASKED,
    (_ASKED, StopEvent.PUT_OFF): _WAITING,
    (_ASKED, StopEvent.STOPPED): _ENDING,
    (_WAITING, StopEvent.WARNED): _WAITING,
    (_WAITING, StopEvent.WITHDRAWN): _ANNOUNCED,
    (_WAITING, StopEvent.CALMED): _ANNOUNCED,
    (_WAITING, StopEvent.BEGUN): _DRAINING,
    (_WAITING, StopEvent.STOPPED): _ENDING,
    (_ENDING, StopEvent.STOPPED): _ENDING,
    (_ENDING, StopEvent.SERVER_BACK): _RUNNING,
    (_ENDING, StopEvent.RELEASED): _RETURNING,
    (_ENDING, StopEvent.OVER): StopState.GONE,
    (_RETURNING, StopEvent.RETURNED): _RETURNED,
    (_RETURNING, StopEvent.OVER): StopState.GONE,
    (_RETURNED, StopEvent.OVER): StopState.GONE,
}
"""(state, event) -> next state: the tables in the module's docstring."""
NO_RECORD = frozenset({_RUNNING, StopState.GONE})
"""States without a `StopRecord`."""
SAME_END = timedelta(seconds=60)
"""If an end moves by less than this, it counts as the same end, as in ``labextension/src/end.ts``."""
StopKey = tuple[str, str, str]
"""(user, server, lease id), which identifies one run of a server. The lease id is "" for a run without a GPU."""


@dataclass(frozen=True, slots=True)
class StopRecord:
    """The stop of one run of a server, from the first warning until nothing of the server is left.

    The record is stored at every step. A hook is a program of the user that runs before a stop.

    Attributes:
        lease: id of the server's lease (its right to a device); "" without a GPU.
        run: when the server was ready (`ServerFacts.started`), which distinguishes this run from others; `None` if the
            service did not begin the stop.
        causes: the causes of which the user is warned, first the one that stops the server; empty if the service did
            not begin the stop. Once the drain (the time to save and to run the user's hook) has begun, they are those
            for which the server is stopped.
        grounds: the evidence when the hub was asked, for the audit.
        began: when the present try began; `None` while no try is under way.
        interrupted: when the server first received the request to interrupt its kernels; `None` before.
        asked: when the hub was last asked to stop the server; `None` before.
        since: when the server was found stopped; `None` before.
        seen: what the server has reported during the present drain.
        pause: the pause before the next try. `None` if no try has failed or was put off.
        alarmed: whether administrators have been shown that this stop has failed.
        back: how the server is started again without a GPU. `None` if it does not come back.
    """

    user: str
    server: str
    lease: str
    state: StopState
    run: datetime | None = None
    causes: tuple[StopCause, ...] = ()
    grounds: tuple[Reason, ...] = ()
    began: datetime | None = None
    interrupted: datetime | None = None
    asked: datetime | None = None
    since: datetime | None = None
    seen: DrainSeen = field(default_factory=DrainSeen)
    pause: StopPause | None = None
    alarmed: bool = False
    back: ServerReturn | None = None

    @property
    def key(self) -> StopKey:
        """The key under which the record of a stop is stored: user, server and lease."""
        return self.user, self.server, self.lease

    @property
    def cause(self) -> Cause | None:
        """The cause that stops the server; `None` if it is not known."""
        return self.causes[0].cause if self.causes else None

    @property
    def why(self) -> Reason | None:
        """The sentence that explains to the server's user why it stops. `None` if the cause is not known."""
        return self.causes[0].reason if self.causes else None

    @property
    def orders(self) -> tuple[StopCause, ...]:
        """Those causes of the stop that somebody ordered, such as an administrator."""
        return tuple(each for each in self.causes if each.stands)

    @property
    def delayed_since(self) -> datetime | None:
        """The time from which the deadline of the stop is counted; `None` if the stop is not delayed.

        While the stop is *ending*, this is when the server was found stopped. Before that, it is when the first of the
        failed tries failed. `None` if no try has failed, or if the last try was put off without asking the hub.
        """
        if self.state is _ENDING:
            return self.since
        return self.pause.since if self.pause is not None and self.pause.why else None

    @property
    def begun(self) -> bool:
        """Whether the stop is being carried out: the drain has begun, or the hub was asked to stop the server.

        During the drain, cells are interrupted, notebooks are saved, and the user's hook runs. If this is True and the
        server has ended, it has ended because of this stop.
        """
        return self.state in (_DRAINING, _ASKED)


def with_earlier(record: StopRecord, earlier: Mapping[StopKey, StopRecord]) -> StopRecord:
    """Return a record with the orders that an earlier version of this product stored in a record of their own.

    Args:
        record: the record to complete.
        earlier: the records of orders from that version.
    """
    apart = earlier.get(record.key)
    if apart is None or apart.run != record.run:
        return record
    orders = {each.cause: each for each in apart.causes}
    known = [orders.pop(each.cause, each) for each in record.causes]
    return replace(record, causes=(*known, *orders.values()))


def refuse_withdrawal(record: StopRecord | None) -> Reason | None:
    """Return why a cause cannot be withdrawn any more; `None` if it can.

    Args:
        record: the record of the server's stop; `None` if its user is not warned of any.
    """
    if record is None or ((record.state, StopEvent.WITHDRAWN) in STOPS and record.interrupted is None):
        return None
    return explain("keep-stopping")


def running(key: StopKey, run: datetime) -> StopRecord:
    """Return the record of a server whose user is not warned of a stop, as the beginning of a stop. It is not stored.

    Args:
        key: key of the record.
        run: when the server was ready (`ServerFacts.started`), which distinguishes this run from others.
    """
    return StopRecord(*key, state=_RUNNING, run=run)


def order(record: StopRecord, new: StopCause, now: datetime) -> StopRecord:
    """Add an order to the causes of a stop.

    Return the same record if the order changes nothing. This is so if an earlier order of the same kind remains
    (`added`), or if an administrator orders a stop when another order stops the server at the same time or before.

    Args:
        record: the record of the stop.
        new: the order.
        now: the present time.
    """
    after = added(record.causes, replace(new, warned=now))
    stop = stop_of(after, now)
    return record if after is record.causes or stop is None else _warned(record, stop.causes)


def announce(record: StopRecord, causes: tuple[StopCause, ...]) -> StopRecord:
    """Record the causes of which the user is warned now. Return the same record if nothing has changed.

    Args:
        causes: at least one cause, first the one that stops the server. If the user was warned of a cause before, the
            time of that warning stays.
    """
    if _same_ends(record.causes, causes):
        return record
    since = {(each.cause, each.code): each.warned for each in record.causes}
    kept = (replace(each, warned=since.get((each.cause, each.code), each.warned)) for each in causes)
    return _warned(record, tuple(kept))


def calm(record: StopRecord) -> StopRecord:
    """Record that no cause is due any more. The next stop begins without a pause and can be withdrawn."""
    return _as_announced(record, StopEvent.CALMED)


def withdraw(record: StopRecord, causes: tuple[StopCause, ...]) -> StopRecord | None:
    """Return the record of a stop after a person has withdrawn a cause. `None` if no cause is left.

    Args:
        record: the record before.
        causes: the causes that are left and of which the user is warned, first the one that stops the server.
    """
    after = _as_announced(record, StopEvent.WITHDRAWN)
    if causes:
        return announce(after, causes)
    clear(after)
    return None


def clear(record: StopRecord) -> None:
    """Check that the record may be deleted, because no cause is left. The caller deletes it.

    Raises:
        KeyError: the state does not allow it.
    """
    _moved(record, StopEvent.CLEARED)


def begin(record: StopRecord, causes: tuple[StopCause, ...], now: datetime) -> StopRecord:
    """Begin the drain of a server (interrupt, save, run the user's hook), for the first time or again.

    A hook is a program of the user that runs before a stop.

    Args:
        causes: the causes of the stop, first the one that stops the server. Empty if they are not known yet, as after a
            restart of the service; then the causes of the record stay.
    """
    causes = tuple(map(_written, causes)) or record.causes
    return replace(_moved(record, StopEvent.BEGUN), causes=causes, began=now, seen=DrainSeen())


def interrupt(record: StopRecord, now: datetime) -> StopRecord:
    """Record that the server receives the request to interrupt its kernels. The stop cannot be withdrawn any more."""
    return replace(_moved(record, StopEvent.INTERRUPTED), interrupted=record.interrupted or now)


def ask(
    record: StopRecord,
    causes: tuple[StopCause, ...],
    grounds: tuple[Reason, ...],
    back: ServerReturn | None,
    now: datetime,
) -> StopRecord:
    """Record that the hub is asked to stop the server.

    The record is stored before the request is sent, so that nothing is lost if the service is killed in between.

    Args:
        causes: the causes of the stop, first the one that stops the server. If empty, the causes of the record stay.
        grounds: the evidence on which the stop is based, for the audit.
        back: how the server is started again without a GPU; `None` if it does not come back.
    """
    causes = tuple(map(_written, causes)) or record.causes
    return replace(_moved(record, StopEvent.ASKED), causes=causes, grounds=grounds, back=back, asked=now)


def put_off(record: StopRecord, pause: StopPause) -> StopRecord:
    """Record that the server is not stopped for now. Of this try, only the pause before the next one is kept.

    Args:
        record: the record of the stop.
        pause: the pause before the next try.
    """
    after = _moved(record, StopEvent.PUT_OFF)
    return replace(after, began=None, asked=None, back=None, pause=pause, seen=DrainSeen())


def fall_silent(record: StopRecord, pause: StopPause) -> StopRecord:
    """Record that the hub did not answer the request to stop the server.

    The hub may have begun the stop, so the next try first checks the server.

    Args:
        record: the record of the stop.
        pause: the pause before the next try.
    """
    return replace(_moved(record, StopEvent.SILENT), began=None, pause=pause, seen=DrainSeen())


def stop(record: StopRecord, now: datetime) -> StopRecord | None:
    """Record that the server is gone. Return `None` for a server without a GPU, which has no device to release."""
    after = _moved(record, StopEvent.STOPPED)
    if not record.lease:
        return None
    return replace(after, since=now, began=None, pause=None, alarmed=False, seen=DrainSeen())


def stop_by_others(key: StopKey, now: datetime) -> StopRecord:
    """Return the record of a server that its user or the hub has stopped.

    The record lasts until it is proved that the server's device is free.
    """
    return StopRecord(*key, state=STOPS[_RUNNING, StopEvent.STOPPED], since=now)


def release(record: StopRecord) -> StopRecord | None:
    """Record that the server's device is free. Return `None` if the server does not come back without a GPU."""
    if record.back is None:
        _moved(record, StopEvent.OVER)
        return None
    return replace(_moved(record, StopEvent.RELEASED), pause=None, alarmed=False)


def return_as(record: StopRecord, back: ServerReturn | None) -> StopRecord | None:
    """Record the next step of a server's return (its restart without a GPU). Return `None` if nothing is left to do.

    Args:
        record: the record of the stop of the server's earlier run.
        back: the state of the return; `None` if the server does not come back after all.
    """
    after = replace(record, back=back)
    if back is None and record.state in (_RETURNING, _RETURNED):
        _moved(record, StopEvent.OVER)
        return None
    if back is None:
        return after
    return _moved(after, StopEvent.RETURNED) if back.run is not None and record.state is _RETURNING else after


def resume(record: StopRecord) -> None:
    """Check that the record may be deleted, because the hub reports the server as ready again. The caller deletes it.

    Raises:
        KeyError: the state does not allow it.
    """
    _moved(record, StopEvent.SERVER_BACK)


def _warned(record: StopRecord, causes: tuple[StopCause, ...]) -> StopRecord:
    return replace(_moved(record, StopEvent.WARNED), causes=tuple(map(_written, causes)))


def _as_announced(record: StopRecord, event: StopEvent) -> StopRecord:
    after = _moved(record, event)
    return StopRecord(*after.key, state=after.state, run=after.run, causes=after.causes)


def _same_ends(before: tuple[StopCause, ...], after: tuple[StopCause, ...]) -> bool:
    """Return whether two lists of causes are the same, with times that differ by less than `SAME_END`."""
    return len(before) == len(after) and all(
        (old.cause, old.code, old.stands) == (new.cause, new.code, new.stands) and abs(old.at - new.at) < SAME_END
        for old, new in zip(before, after, strict=True)
    )


def _written(cause: StopCause) -> StopCause:
    """Return the cause with its reason's parameters as they are stored: texts and numbers, no durations or times."""
    return replace(cause, params=cause.reason.params)


def _moved(record: StopRecord, event: StopEvent) -> StopRecord:
    return replace(record, state=STOPS[record.state, event])


# ------------------------------------------------------------------ stops that do not end


class StopFault(Enum):
    """Why a stop has passed its deadline; also the label `reason` of the metric."""

    REFUSED = "refused"
    """The hub refuses the stop, or does not answer, again and again."""
    HANGS = "hangs"
    """The hub is still stopping the server."""
    ALIVE = "alive"
    """The hub reports the server as stopped, but its process or pod is still there."""


TO_DO: Mapping[StopFault, str] = {
    StopFault.REFUSED: "See the hub's log for why. The GPU service's role needs delete:servers.",
    StopFault.HANGS: "See the hub's log for what its spawner waits for. The GPU stays held until the hub is done.",
    StopFault.ALIVE: "End it by hand if it stays: a process that no signal ends waits for its disk or driver, a pod "
    "for its node or a finalizer. The GPU is given to nobody until it is gone.",
}
"""Fault -> the advice for an administrator."""


def fault_of(record: StopRecord, listed: bool | None, deadline: timedelta, now: datetime) -> StopFault | None:
    """Return why a stop has passed its deadline; `None` if it has not, or if it cannot be known now why.

    Args:
        record: the record of the stop.
        listed: whether the hub still lists this very run of the server; `None` if the hub's list is not known now.
        deadline: how long a stop may take after its first failed try, or after the hub has reported it as done.
    """
    since = record.delayed_since
    if since is None or now - since < deadline:
        return None
    if record.state is not _ENDING:
        return StopFault.REFUSED
    return None if listed is None else StopFault.HANGS if listed else StopFault.ALIVE
