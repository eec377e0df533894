"""Decide on one machine whether a server is gone and whether its device is free, which ends its lease.

A lease is the right of one server to a share of a device. Its mark is an environment variable with the lease's id,
which all processes of the server inherit. If the service can read the environment of every process that may belong to a
server, the absence of the mark proves that the server has ended. Otherwise a lease ends only if the driver lists no
process on the device, and if the hub reports the server as stopped or its process is known to be dead. If the driver's
list is not available, the spawner's own ``poll()`` has to report the stop.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

FIRST_PERSON = 1000
"""First uid of people's accounts on Debian and Ubuntu."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The GPU service's view of the machine's processes.

    Attributes:
        account: the service's own uid.
        unread: uids of live processes whose environment, and so the mark of a lease, the service may not read.
        hidden: whether processes of other accounts are not visible at all (``hidepid``).
        whole: whether the service sees all processes of the machine; False if it sees only those of a container.
    """

    account: int
    unread: frozenset[int] = frozenset()
    hidden: bool = False
    whole: bool = True


@dataclass(frozen=True, slots=True)
class LeaseSigns:
    """Evidence of whether the server of one lease is still there.

    Attributes:
        process: whether the server's process lives. None if that is not known, or the lease does not name a process.
        has_process: whether the lease names a process.
        marked: whether a process carries the mark (an environment variable with the lease's id).
        marks_are_evidence: whether the absence of the mark proves that no process of the server is left.
        ending: whether the lease is ending already.
        unseen: whether no process of a running lease has been seen for a minute.
        adopted: whether the service found the server already running, so that no process carries this lease's mark. The
            server was started before this product was installed, or during an outage of the service.
        stopped: whether the hub reports this run of the server as stopped.
        polled: whether the spawner's ``poll()``, called after the stop, reports the server as ended.
        on_device: whether the driver lists on the lease's device a process that may be of this server, because it does
            not belong to another lease. True also if the device could not be read. None if the driver's list is not
            available.
        readable: whether the device could be read, or is known to be gone.
    """

    process: bool | None
    has_process: bool
    marked: bool
    marks_are_evidence: bool
    ending: bool
    unseen: bool
    adopted: bool
    stopped: bool
    polled: bool
    on_device: bool | None
    readable: bool


def marks_are_evidence(sight: Sight, accounts: Collection[int], *, seen_here: bool) -> bool:
    """Return whether the absence of a lease's mark proves that its server has ended.

    The mark is an environment variable with the lease's id, which all processes of the server inherit.

    Args:
        sight: which processes the service can see.
        accounts: uids under which the server may run. Empty if they are not known.
        seen_here: whether a process of the server was seen before, so that it does not run in another container.
    """
    if not (seen_here or sight.whole):
        return False
    others = set(accounts) - {sight.account}
    if sight.hidden and (others or not accounts):
        return False
    if accounts:
        return not sight.unread & set(accounts)
    if sight.account == 0:
        return not sight.unread  # if root may not read all, no account is known to be readable
    return all(uid < FIRST_PERSON for uid in sight.unread)


def is_gone(signs: LeaseSigns) -> bool:
    """Return whether no process of the server of a running lease is left. The hub's report is not used."""
    if signs.has_process:
        return signs.process is False
    return signs.marks_are_evidence and not signs.marked and (signs.adopted or signs.unseen)


def is_released(signs: LeaseSigns) -> bool:
    """Return whether it is proved that the device of an ending lease is free, so that the lease can end."""
    if signs.process or signs.marked or not signs.readable or signs.on_device:
        return False
    if signs.marks_are_evidence:
        return True  # the driver may list no processes for this account
    if signs.on_device is None:
        return signs.stopped and signs.polled
    return signs.stopped or signs.process is False


def is_unproved(signs: LeaseSigns, *, listed: bool | None) -> bool:
    """Return whether a lease cannot end by itself because evidence is missing, so that an administrator may release it.

    False if there is a sign of the server's processes, if the absence of the mark is evidence, or if the hub still
    lists the server. For a lease that is not ending, it has to be known that the hub does not list the server.

    Args:
        listed: whether the hub still lists this run of the server. None if that is not known.
    """
    if signs.process or signs.marked or signs.on_device or signs.marks_are_evidence or is_released(signs):
        return False
    return listed is not True if signs.ending else listed is False
