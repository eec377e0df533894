"""Leases (servers' rights to their GPUs) on one machine: a device is free again when no process of its server is left.

The processes of a server carry the mark of its lease: the lease's id in their environment. A lease ends when no process
carries its mark and the driver lists no compute process on its device, apart from processes of other leases. If marks
cannot be read, the lease ends by the hub's report together with the driver's list (``core/queue/release.py``), or by an
administrator's order. Remaining processes of a stopped server get SIGTERM, and SIGKILL after 10 s; a process that
cannot be killed keeps the device held. No lease ends because of a message alone: the machine is read periodically.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from hub_extensions.adapters.hub.jupyterhub_api import HubServer
from hub_extensions.adapters.linux import procfs
from hub_extensions.adapters.linux.procfs import Process
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.adapters.nvml.processes import sees_all_processes
from hub_extensions.adapters.store import Changes
from hub_extensions.core.gpu.devices import Device, DeviceState, Foreign, GpusUnavailable, InventoryReading
from hub_extensions.core.queue import lifecycle, release
from hub_extensions.core.queue.lifecycle import Event, LeaseReading
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.core.queue.release import LeaseSigns, Sight
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.usage import UseEnd
from hub_extensions.hub_service.engine.line.leases import adopted_lease
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transaction, Transactions, possible

log = logging.getLogger("hub_extensions.hub_service")

TERM_THEN_KILL_SECONDS = 10.0
UNSEEN_SECONDS = 60.0
"""A running lease without a process ends after this many seconds, if the marks of processes can be read.

If a lease has seemed to be over for this long without proof, administrators are notified."""
QUICK, SLOW = 0.4, 2.0
"""Seconds between two readings: while a lease is ending or somebody waits, and at other times."""


class Gpus(Protocol):
    """The machine's GPUs: ``adapters.nvml.Nvml`` or ``adapters.simulated.SimulatedGpus``.

    The methods block the calling thread.
    """

    def read(self, now: datetime) -> InventoryReading:
        """Read all GPUs now.

        Raises:
            GpusUnavailable: the driver cannot be used.
        """

    def close(self) -> None:
        """Close the driver of the GPUs."""


@dataclass(frozen=True)
class MachineView:
    """The state of the machine that one round has read: first the processes, then the GPUs.

    In this order no end of a process is missed in between.

    Attributes:
        marked: processes that carry the mark of a lease (its id in their environment).
        sight: which processes of other accounts could not be read.
        reading: devices and measurements. `None` if the GPUs could not be read.
        problem: why the GPUs could not be read; "" if they were read.
    """

    marked: tuple[Process, ...]
    sight: Sight
    reading: InventoryReading | None
    problem: str


class LocalLeases:
    """Reads the processes and GPUs of one machine, and ends leases (servers' rights to a GPU) whose device is free.

    Args:
        state: the state of the line, of servers and of devices.
        transaction: changes the state.
        gpus: reads the machine's GPUs.

    Attributes:
        leftovers: lease id -> the live processes that carry its mark (the lease's id in their environment).
        trespassers: `Device.identity` (the key by which leases name a device) -> whether a server uses this device
            although its lease is of another device.
        unproved: lease id -> why its end cannot be proved, for leases that seem to be over.
    """

    def __init__(self, state: State, transaction: Transactions, gpus: Gpus) -> None:
        self.state = state
        self.transaction = transaction
        self.gpus = gpus
        self.leftovers: dict[str, tuple[Process, ...]] = {}
        self.trespassers: dict[str, bool] = {}
        self.problem = ""
        self.sampled: asyncio.Event = asyncio.Event()
        self._ending_since: dict[str, float] = {}
        self._unseen_since: dict[str, float] = {}
        self._over_since: dict[str, float] = {}
        self.unproved: dict[str, Reason] = {}
        self._sight = Sight(os.geteuid())
        self._accounts: dict[str, frozenset[int]] = {}
        self._stopped: dict[str, bool | None] = {}
        self._reading: InventoryReading | None = None
        self._soon = asyncio.Event()

    async def run(self) -> None:
        """Call `refresh` every 2 s until cancelled.

        It is called more often while a lease (right to a GPU) is ending or users wait in line.
        """
        while True:
            await self.refresh()
            busy = any(lease.state is LeaseState.ENDING for lease in self.state.leases.values())
            wait = QUICK if busy or self.state.waiting() else SLOW
            try:
                await with_timeout(wait, self._soon.wait())
            except asyncio.TimeoutError:
                continue
            finally:
                self._soon.clear()

    def refresh_soon(self) -> None:
        """Have `run` call `refresh` at once, because a lease (right to a GPU) is expected to change."""
        self._soon.set()

    async def refresh(self) -> None:
        """Read the machine once, end leases that are over, and admit tickets (places in line) that can start.

        A lease is a server's right to its GPU. It is over when it is proved that no process of the server uses the GPU
        any more.
        """
        view = await asyncio.get_running_loop().run_in_executor(None, self._read)
        try:
            async with self.transaction(admit=True) as transaction:
                await self._take_in(view, transaction)
        except Refused as problem:
            log.debug("nothing is released: %s", problem)

    def _read(self) -> MachineView:
        scan = procfs.scan()
        sight = Sight(os.geteuid(), scan.unread, scan.hidden, sees_all_processes())
        try:
            reading = self.gpus.read(self.state.clock.utc_now())
        except GpusUnavailable as problem:
            return MachineView(scan.marked, sight, None, problem.reason.message)
        return MachineView(scan.marked, sight, reading, "")

    # -------------------------------------------------------------- taking in

    async def _take_in(self, view: MachineView, transaction: Transaction) -> None:
        by_lease: dict[str, list[Process]] = {}
        for process in view.marked:
            if process.lease is not None:
                by_lease.setdefault(process.lease, []).append(process)
        self.leftovers = {lease: tuple(found) for lease, found in by_lease.items()}
        self._sight = view.sight
        if view.problem != self.problem:
            self.problem = view.problem
            log.warning("GPUs: %s", view.problem or "can be read again")
        transaction.state.note_inventory_problem(view.problem)
        reading = None if view.reading is None else self._as_leased(view.reading)
        if reading is not None:
            transaction.state.take_reading(reading, self._states(reading, by_lease))
            self.sampled.set()
        self._reading = reading
        self._remember()
        await transaction.refresh_leases(
            lambda lease: self._after(lease, by_lease.get(lease.id, []), reading),
            lambda before, now: _cause(before, now, marks_are_evidence=self._marks_are_evidence(before)),
            lambda lease: explain("gpu-gone-from-machine", server=lease.server),
        )

    def _remember(self) -> None:
        """Record under which accounts the servers of leases (rights to GPUs) run, and forget that for ended leases."""
        leases = self.state.leases
        for each in (self._unseen_since, self._over_since, self._stopped, self._accounts, self.unproved):
            for gone in each.keys() - leases.keys():
                del each[gone]
        for lease in leases.values():
            found = {process.uid for process in self.leftovers.get(lease.id, ())}
            if lease.pid is not None and self.lives(lease):
                found |= {uid for uid in (procfs.account(lease.pid),) if uid is not None}
            if found:
                self._accounts[lease.id] = self._accounts.get(lease.id, frozenset()) | found

    def _as_leased(self, reading: InventoryReading) -> InventoryReading:
        """Return a reading in which each leased device has the `Device.identity` that its lease names.

        A lease is a server's right to a device. Device and lease are matched by the device's UUID. The identity is made
        from several values of the device. If a value was missing when the lease was made, the driver may now give the
        same device another identity.

        Args:
            reading: the devices and measurements that the driver has just reported.
        """
        names = {lease.uuid: lease.device for lease in self.state.leases.values() if lease.uuid}
        devices = tuple(device.under(names.get(device.uuid, device.identity)) for device in reading.devices)
        return replace(reading, devices=devices)

    def _states(self, reading: InventoryReading, by_lease: dict[str, list[Process]]) -> dict[str, DeviceState]:
        """Return every device by its `Device.identity`, and whether processes use it that this hub did not start.

        A device that has disappeared is kept, as not present, while a lease (a server's right to a GPU) names it.

        Args:
            reading: the devices and measurements that the driver has just reported.
            by_lease: lease id -> the processes that carry its mark (the lease's id in their environment).
        """
        ours: dict[str, set[int]] = {}
        for lease in self.state.leases.values():
            ours.setdefault(lease.device, set()).update(process.pid for process in by_lease.get(lease.id, ()))
        known_leases = {process.pid: key for key, found in by_lease.items() for process in found}
        states: dict[str, DeviceState] = {}
        trespassers: dict[str, bool] = {}
        for device in reading.devices:
            sample = reading.samples.get(device.uuid)
            pids = sample.pids if sample is not None else None
            adopted = any(lease.adopted and lease.device == device.identity for lease in self.state.leases.values())
            if pids is None:
                foreign = Foreign.UNKNOWN
            elif adopted or not set(pids) - ours.get(device.identity, set()):
                foreign = Foreign.NONE
            else:
                foreign = Foreign.SOME
            # leases of the processes on the device, without those that have ended
            held = (self.state.leases.get(known_leases.get(pid, "")) for pid in pids or ())
            trespassers[device.identity] = any(each is not None and each.device != device.identity for each in held)
            states[device.identity] = DeviceState(device, foreign)
        for lease in self.state.leases.values():
            if lease.device not in states and lease.device in self.state.devices:
                states[lease.device] = replace(self.state.devices[lease.device], present=False)
        self.trespassers = trespassers
        return states

    def _after(self, lease: Lease, marked: Sequence[Process], reading: InventoryReading | None) -> Lease:
        """Return the lease as it is after the machine was read; the same object if nothing changed.

        Args:
            lease: the server's right to its GPU, as it was before.
            marked: the processes that carry its mark (its id in their environment).
            reading: the GPUs. `None` if they could not be read.
        """
        signs = self._signs(lease, marked, reading)
        seen = LeaseReading(
            ticket_lives=lease.ticket in self.state.tickets,
            device=None if reading is None else not self._is_gone(lease, reading),
            server_gone=release.is_gone(signs),
            released=release.is_released(signs),
        )
        after = lifecycle.refresh(lease, seen)
        self._note_unproved(after, signs)
        if after.state is not LeaseState.ENDING:  # ended, or running again: its next end begins with SIGTERM
            self._ending_since.pop(lease.id, None)
        elif marked and not signs.process:  # otherwise the hub is still stopping the server
            self._end_leftovers(lease, marked)
        return after

    def _signs(self, lease: Lease, marked: Sequence[Process], reading: InventoryReading | None) -> LeaseSigns:
        """Return the evidence about whether the server of a lease has ended and its device is free.

        Args:
            lease: the server's right to its GPU.
            marked: the processes that carry its mark (its id in their environment).
            reading: the GPUs. `None` if they could not be read.
        """
        tell = self._marks_are_evidence(lease)
        ending = lease.state is LeaseState.ENDING
        stopped, polled = self._reported_stopped(lease) if ending else (False, False)
        gone = reading is not None and self._is_gone(lease, reading)
        sample = None if reading is None else reading.samples.get(lease.uuid)
        in_use = sample is not None and reading is not None and self._in_use(lease, reading)
        lists = sample is not None and sample.pids is not None and self._sight.whole
        return LeaseSigns(
            process=self._process(lease),
            has_process=lease.pid is not None,
            marked=bool(marked),
            marks_are_evidence=tell,
            ending=ending,
            unseen=self._unseen(lease, bool(marked) or not tell),
            adopted=lease.adopted,
            stopped=stopped,
            polled=polled,
            # in a container the driver may list no processes at all
            on_device=True if in_use else False if gone or lists else None,
            readable=reading is not None and (gone or sample is not None),
        )

    def _process(self, lease: Lease) -> bool | None:
        """Return whether the process of the server of a lease (right to a GPU) lives. `None` if that is unknown.

        It is unknown if the lease names no process, or if the service runs in a container and has never seen the
        process.
        """
        found = None if lease.pid is None else procfs.liveness(lease.pid, lease.pid_started or 0)
        return None if found is False and not (self._sight.whole or lease.id in self._accounts) else found

    def _marks_are_evidence(self, lease: Lease) -> bool:
        """Return whether the marks (lease ids in the environment) of a server's processes can be read.

        That depends on the accounts under which the processes run. If marks can be read and no process carries one, the
        processes have ended.
        """
        seen, own = self._accounts.get(lease.id), self._sight.account
        accounts = seen or frozenset({own} if own != 0 else ())  # without root, servers run under the own account
        if not seen and (own == 0 or lease.pid is None):
            with suppress(KeyError, ValueError):  # the name may have no account here
                accounts = frozenset({pwd.getpwnam(lease.user).pw_uid})
        return release.marks_are_evidence(self._sight, accounts, seen_here=seen is not None)

    def hear_stop(self, user: str, server: str, polled: bool | None) -> None:
        """Record that the hub reports a server as stopped.

        The report is used if the marks of processes (lease ids in their environment) cannot be read.

        Args:
            user, server: name of the user and of the server.
            polled: whether the spawner's poll after the stop found the server ended. `None` if the hub did not poll.
        """
        for lease in self.state.leases.values():
            if (lease.user, lease.server) == (user, server) and lease.state is not LeaseState.STARTING:
                self._stopped[lease.id] = polled

    def _reported_stopped(self, lease: Lease) -> tuple[bool, bool]:
        """Return whether the hub reports a lease's server as stopped, and whether the spawner's own poll confirms that.

        A lease is a server's right to its GPU. Both are also true if the server is missing in a list that the hub sent
        after the lease seemed to be over, because the hub does not list servers whose spawner's poll reports them as
        ended. Both are false if the poll after the stop found the server running.
        """
        since = self._over_since.setdefault(lease.id, self.state.clock.elapsed())
        hub, polled = self.state.hub_view, self._stopped.get(lease.id)
        if polled is False:
            return False, False  # a stop that failed: it runs on, and the hub has forgotten it
        listed = hub.read_at > since and self.state.lists(lease) is False
        return listed or lease.id in self._stopped, listed or polled is True

    def _note_unproved(self, lease: Lease, signs: LeaseSigns) -> None:
        """Record for administrators that a lease has seemed to be over for a minute, although nothing proves it.

        If the lease no longer seems to be over, or its end is proved, an earlier record about it is removed.

        Args:
            lease: the server's right to its GPU.
            signs: the evidence about its server and its device.
        """
        if lease.state not in (LeaseState.ENDING, LeaseState.RUNNING, LeaseState.LOST):
            self._over_since.pop(lease.id, None)
        elif release.is_unproved(signs, listed=self.state.lists(lease)):
            since = self._over_since.setdefault(lease.id, self.state.clock.elapsed())
            if self.state.clock.elapsed() - since >= UNSEEN_SECONDS:
                if lease.id not in self.unproved:
                    log.warning("a lease seems to be over, and nothing proves it", extra={"lease": lease.id})
                lacking = "unproved-device" if signs.stopped else "unproved-hub"
                lacking = lacking if signs.ending else "unproved-running"
                self.unproved[lease.id] = explain(lacking if signs.readable else "unproved-unread")
            return
        elif lease.state is not LeaseState.ENDING:
            self._over_since.pop(lease.id, None)
            self._stopped.pop(lease.id, None)
        self.unproved.pop(lease.id, None)

    async def give_up(self, lease_id: str, admin: str, why: str) -> None:
        """End a lease (right to a GPU) without proof: an administrator confirms that nothing of its server is left.

        Args:
            lease_id: the lease.
            admin: name of the administrator, for the journal (the log of decisions).
            why: the administrator's reason, for the journal.

        Raises:
            Refused: 404 if the lease does not exist or ends by itself; 400 if no reason is given.
        """
        async with self.transaction(admit=True) as transaction:
            lease = self.state.leases.get(lease_id)
            if lease is None:
                raise Refused.because(404, explain("unknown-lease"), "lease")
            seems = lease.id in self.unproved and release.is_unproved(
                self._signs(lease, self.leftovers.get(lease.id, ()), self._reading), listed=self.state.lists(lease)
            )
            if not seems:
                raise Refused.because(404, explain("local"), "lease")
            if not why:
                raise Refused.because(400, explain("reason-needed"), "why")
            ending = lease if lease.state is LeaseState.ENDING else possible(lifecycle.move(lease, Event.SERVER_GONE))
            ended = possible(lifecycle.move(ending, Event.RELEASED))
            order, ground = explain("released-by-admin", device=lease.uuid, why=why), self.unproved[lease.id]
            row = transaction.lease_row(
                "given-up", lease, order.message, actor=f"admin {admin}", evidence=ground.message
            )
            use, key = self.state.uses.get(lease.id), (lease.user, lease.server)
            facts = self.state.facts.get(key)
            await transaction.write(
                Changes(
                    leases=(ended,),
                    gone_facts=(key,) if facts is not None and facts.lease == lease.id else (),
                    uses=() if use is None else (replace(use, end=UseEnd.ADMIN),),
                    journal=(replace(row, reasons=(order,), grounds=(ground,)),),
                )
            )
        self.refresh_soon()

    def _unseen(self, lease: Lease, there: bool) -> bool:
        """Return whether a running lease has had no process for `UNSEEN_SECONDS` (a minute).

        Args:
            lease: the server's right to its GPU.
            there: whether a process of its server is there now, or may be there.
        """
        now = self.state.clock.elapsed()
        if there or lease.state is not LeaseState.RUNNING:
            self._unseen_since.pop(lease.id, None)
            return False
        return now - self._unseen_since.setdefault(lease.id, now) >= UNSEEN_SECONDS

    def _is_gone(self, lease: Lease, reading: InventoryReading) -> bool:
        return all(device.identity != lease.device for device in reading.devices)

    def _in_use(self, lease: Lease, reading: InventoryReading) -> bool:
        """Return whether the driver lists a compute process on the lease's device, apart from those of other leases.

        True if the device was not measured, because it is not known to be free.

        Args:
            lease: a server's right to the device.
            reading: the devices and measurements that the driver has just reported.
        """
        if self._is_gone(lease, reading):
            return False
        sample = reading.samples.get(lease.uuid)
        if sample is None:
            return True  # it could not be read, so it is not known to be free
        return bool(self._not_others(lease, sample.pids or ()))  # the driver may list no processes for this account

    def _not_others(self, lease: Lease, pids: Iterable[int]) -> set[int]:
        """Return those processes that do not carry the mark of another lease (its id in their environment).

        A process of another lease on this lease's device does not keep this lease from ending. The device then counts
        as used by others.

        Args:
            lease: a server's right to the device.
            pids: ids of the processes that the driver lists on the device.
        """
        others = {
            process.pid
            for other, found in self.leftovers.items()
            if other != lease.id and other in self.state.leases
            for process in found
        }
        return set(pids) - others

    # -------------------------------------------------------------- servers that ran before

    def lease_of_unknown_server(self, server: HubServer, now: datetime) -> Lease | None:
        """Create the lease (right to a GPU) of a running server that the state does not know.

        The device is found in the environment of the server's process, or by the driver's list of processes.

        Args:
            server: the server, as the hub lists it.
            now: by the running clock, which stands still while the hub is away.

        Returns:
            `None` if the server uses no device, or a device that has a lease already.
        """
        if server.pid is None:
            return None
        process = procfs.describe(server.pid)
        if process is None or not self.may_be(server):
            return None
        device = self._named(process.device) or self._used_below(server.pid)
        if device is None or any(lease.device == device.identity for lease in self.state.leases.values()):
            return None
        return adopted_lease(server, device, now, self.state.end_of, process.started)

    def _named(self, visible: str | None) -> Device | None:
        if not visible:
            return None
        first = visible.split(",")[0].strip()
        return next((s.device for s in self.state.devices.values() if s.device.uuid == first and s.present), None)

    def _used_below(self, pid: int) -> Device | None:
        """Return the device on which the driver lists this process or one of its descendants. `None` if it lists none.

        Args:
            pid: id of the process.
        """
        for state in self.state.devices.values():
            sample = self.state.samples.get(state.device.uuid)
            for user in sample.pids or () if sample else ():
                if _descends(user, pid):
                    return state.device
        return None

    def may_be(self, server: HubServer) -> bool:
        """Return whether the process that the hub lists for a server exists and belongs to its user's server.

        Also True if the hub lists no process, or if the service runs in a container that hides the process.
        """
        if server.pid is None or not (self._sight.whole or procfs.start_time(server.pid) is not None):
            return True
        there = procfs.start_time(server.pid)
        if procfs.liveness(server.pid, there or 0) is False:
            return False
        return procfs.environment(server.pid).get("JUPYTERHUB_USER", server.user) == server.user

    def is_stopping(self, server: HubServer) -> bool:
        """Return False, because a process that is being stopped looks like one that runs."""
        return False

    def lives(self, lease: Lease) -> bool:
        """Whether the process of the server of this lease (right to a GPU) lives."""
        return lease.pid is not None and procfs.alive(lease.pid, lease.pid_started or 0)

    def has_started(self, lease: Lease) -> bool:
        """Whether the server's process, or one that carries the lease's mark (its id in the environment), lives."""
        return self.lives(lease) or lease.id in self.leftovers

    def forget_hub_state(self) -> None:
        """Do nothing when the hub does not answer any more, because processes are read from the machine."""

    # -------------------------------------------------------------- left-overs

    def _end_leftovers(self, lease: Lease, marked: Sequence[Process]) -> None:
        if self.state.store.read_only:
            return
        now = self.state.clock.elapsed()  # the machine's clock: signals do not wait for a hub that is away
        first = lease.id not in self._ending_since
        kill = now - self._ending_since.setdefault(lease.id, now) >= TERM_THEN_KILL_SECONDS
        if not kill and not first:
            return  # SIGTERM was sent; they have 10 s
        for process in marked:
            procfs.send_signal(process.pid, process.started, signal.SIGKILL if kill else signal.SIGTERM)
        if first:
            log.info("%d left-over process(es) get SIGTERM", len(marked), extra={"lease": lease.id})

    def what_is_left(self, lease: Lease) -> str:
        """Return command, pid and account of the processes left of the server of this lease (right to a GPU).

        "" if no process is left.
        """
        return ", ".join(f"{each.command} (pid {each.pid}, {each.owner})" for each in self.processes(lease))

    def processes(self, lease: Lease) -> tuple[Process, ...]:
        """Return the processes that hold an ending lease (right to a GPU).

        These processes carry the mark of the lease (its id in their environment). If no process carries the mark, those
        processes are returned that the driver lists on the lease's device. A process without the mark is returned here
        but not ended, because it is not known to which server the process belongs. The mark is lost by ``env -u``.
        """
        left, sample = self._left(lease), self.state.samples.get(lease.uuid)
        if left or lease.state is not LeaseState.ENDING or sample is None:
            return left
        pids = sorted(self._not_others(lease, sample.pids or ()))
        return tuple(found for pid in pids if (found := procfs.describe(pid)) is not None)

    async def end_again(self, lease: Lease) -> None:
        """End the processes left of a lease's server by SIGTERM, and by SIGKILL if they still run after 10 s.

        A lease is a server's right to its GPU. Its processes are found by the mark (the lease's id in their
        environment). An adopted server, which the service found already running, does not carry the mark of its lease
        and is found by its pid.
        """
        left = self._left(lease)
        if left:
            self._end_leftovers(lease, left)

    def _left(self, lease: Lease) -> tuple[Process, ...]:
        own = procfs.describe(lease.pid) if lease.pid is not None and self.lives(lease) else None
        return self.leftovers.get(lease.id) or (() if own is None else (own,))

    async def clear_dead_start(self, lease: Lease) -> None:
        """End the processes of a start that the hub no longer knows, because the hub was killed during it."""
        if lease.state is not LeaseState.STARTING:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 6
        signum = signal.SIGTERM
        while found := [p for p in await loop.run_in_executor(None, procfs.marked) if p.lease == lease.id]:
            for process in found:
                procfs.send_signal(process.pid, process.started, signum)
            if loop.time() > deadline:
                log.error("left-overs of a dead start cannot be ended", extra={"lease": lease.id})
                return
            signum = signal.SIGKILL if loop.time() > deadline - 4 else signal.SIGTERM
            await asyncio.sleep(0.2)


def _cause(before: Lease, after: Lease, *, marks_are_evidence: bool = True) -> tuple[str, str]:
    """Return why a lease has changed its state, and the evidence, for the journal (the log of decisions).

    Args:
        before: the server's right to its GPU, as it was before the machine was read.
        after: the same lease afterwards.
        marks_are_evidence: whether the marks (lease ids in the environment) of its server's processes can be read.
    """
    if after.state is LeaseState.ENDING:
        return "its server is gone", f"no process {before.pid}" if before.pid else "no process with its mark"
    if after.state is LeaseState.ENDED:
        none = "and the driver lists none on the device" if marks_are_evidence else "and none is known on the device"
        over = "no process with its mark" if marks_are_evidence else "marks cannot be read, but its server is over"
        return f"device {before.uuid} is free", f"{over}, {none}"
    if after.state is LeaseState.LOST:
        return f"device {before.uuid} is gone", "the driver does not list it"
    return f"device {before.uuid} is back", "the driver lists it again"


def _descends(pid: int, ancestor: int) -> bool:
    while pid != ancestor:
        process = procfs.describe(pid)
        if process is None or process.ppid <= 1:
            return False
        pid = process.ppid
    return True
