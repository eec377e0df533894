"""Whether a server on one machine is gone, and whether its device is free: on what evidence a lease ends.

Each server's processes carry the mark of its lease. That none does is evidence only where the marks of the accounts
under which this hub starts servers can be read. Elsewhere nothing follows from their absence, however long it lasts:
then a lease ends when the hub says that the server stopped, or when its process is known to be dead, and the driver
lists no process on the device. Where the driver's list says nothing, the spawner's own poll has to say it.
Not here: how it is read (``adapters/linux/procfs.py``, ``adapters/nvml``), and who is told.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

FIRST_PERSON = 1000
"""Debian and Ubuntu number people's accounts from here."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a process may see of the others of its machine.

    Attributes:
        account: its own uid. unread: the accounts of live processes whose marks it may not read.
        hidden: processes of other accounts are not shown at all (``hidepid``).
        whole: it sees all processes of the machine, not those of a container alone.
    """

    account: int
    unread: frozenset[int] = frozenset()
    hidden: bool = False
    whole: bool = True


@dataclass(frozen=True, slots=True)
class LeaseSigns:
    """What is known of one lease. None: it is not known.

    Attributes:
        process: the process of its server is there; False: it is known to be dead; None also where the lease has none.
        marked: a process carries its mark. marks_are_evidence: that none does is evidence.
        ending: the lease is ending already. unseen: for a minute nothing of a running one has been there.
        stopped: the hub says that this run of the server has stopped; after its spawner's own poll, where `polled`.
        on_device: the driver lists a process on its device that no other lease accounts for; None: its list says
            nothing. readable: the device could be read, or is known to be gone.
        adopted: it ran before this product, so nothing of it carries a mark.
        has_process: the lease names a process.
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
    """Is it evidence that no process carries the mark of a lease?

    Args:
        accounts: those under which its server runs, or would run; none: they are not known.
        seen_here: a process of it was seen before, so it is not in another container.
    """
    if not (seen_here or sight.whole):
        return False
    others = set(accounts) - {sight.account}
    if sight.hidden and (others or not accounts):
        return False
    if accounts:
        return not sight.unread & set(accounts)
    if sight.account == 0:
        return not sight.unread  # root that may not read all: no account is known to be readable
    return all(uid < FIRST_PERSON for uid in sight.unread)


def is_gone(signs: LeaseSigns) -> bool:
    """Nothing of the server of a running lease is left, whatever the hub says."""
    if signs.process:
        return False
    if signs.has_process:
        return signs.process is False
    return signs.marks_are_evidence and not signs.marked and (signs.adopted or signs.unseen)


def is_released(signs: LeaseSigns) -> bool:
    """The device of an ending lease is free: the proof."""
    if signs.process or signs.marked or not signs.readable or signs.on_device:
        return False
    if signs.marks_are_evidence:
        return True  # the driver may list none for us: the marks have to do
    if signs.on_device is None:
        return signs.stopped and signs.polled
    return signs.stopped or signs.process is False


def is_unproved(signs: LeaseSigns, *, listed: bool | None) -> bool:
    """It does not end by itself because evidence is lacking, so an admin may release it; nothing of it is known.

    Args:
        listed: the hub has this run of the server; None: not known.
    """
    if signs.process or signs.marked or signs.on_device or signs.marks_are_evidence or is_released(signs):
        return False
    return listed is not True if signs.ending else listed is False
