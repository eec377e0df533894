"""When a device is free again: when nothing runs on it, and not before.

A lease ends when no process carries its mark and the driver lists no compute process on its device that is not
accounted for by another lease. Left-overs of a stopped server get SIGTERM, after 10 s SIGKILL; what cannot be killed
keeps the device held. No release depends on a message: this reads the machine itself, again and again.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from hub_extensions.adapters import procfs
from hub_extensions.adapters.jupyterhub_api import HubServer
from hub_extensions.adapters.procfs import Process
from hub_extensions.adapters.timeouts import with_timeout
from hub_extensions.core.gpu.devices import Device, DeviceState, Foreign, GpusUnavailable, InventoryReading
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.lifecycle import LeaseReading
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.core.reasons import Reason, explain
from hub_extensions.hub_service.engine.adoption import adopted_lease
from hub_extensions.hub_service.engine.errors import Refused
from hub_extensions.hub_service.engine.state import State
from hub_extensions.hub_service.engine.transaction import Transaction, Transactions

log = logging.getLogger("hub_extensions.hub_service")

TERM_THEN_KILL_SECONDS = 10.0
UNSEEN_SECONDS = 60.0
"""So long a lease whose server is said to run may be without any process of it."""
QUICK, SLOW = 0.4, 2.0
"""Seconds between two readings: while a lease is ending or somebody waits, and otherwise."""


class Gpus(Protocol):
    """The machine's GPUs: ``adapters.nvml.Nvml`` or ``adapters.simulated.SimulatedGpus``. Both block."""

    def read(self, now: datetime) -> InventoryReading:
        """Read all GPUs now. Raises GpusUnavailable."""

    def close(self) -> None:
        """Let the driver go."""


@dataclass(frozen=True)
class MachineView:
    """The machine as it was read: marked processes first, then the GPUs, so that nothing ends unseen in between."""

    marked: tuple[Process, ...]
    reading: InventoryReading | None
    problem: str


class LocalLeases:
    """Reads the machine and ends leases whose device is really free.

    Attributes:
        leftovers: lease id -> its processes still there, for the admin's page.
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
        self._soon = asyncio.Event()

    async def run(self) -> None:
        """Refresh until cancelled, quickly while somebody waits for an end."""
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
        """Somebody expects a change: do not wait for the next turn."""
        self._soon.set()

    async def refresh(self) -> None:
        """Read the machine once, take it in, end what has ended, and admit whoever can go on."""
        view = await asyncio.get_running_loop().run_in_executor(None, self._read)
        try:
            async with self.transaction(admit=True) as transaction:
                await self._take_in(view, transaction)
        except Refused as problem:
            log.debug("nothing is released: %s", problem)

    def _read(self) -> MachineView:
        marked = procfs.marked()
        try:
            reading = self.gpus.read(self.state.clock.utc_now())
        except GpusUnavailable as problem:
            return MachineView(marked, None, problem.reason.message)
        return MachineView(marked, reading, "")

    # -------------------------------------------------------------- taking in

    async def _take_in(self, view: MachineView, transaction: Transaction) -> None:
        by_lease: dict[str, list[Process]] = {}
        for process in view.marked:
            if process.lease is not None:
                by_lease.setdefault(process.lease, []).append(process)
        self.leftovers = {lease: tuple(found) for lease, found in by_lease.items()}
        if view.problem != self.problem:
            self.problem = view.problem
            log.warning("GPUs: %s", view.problem or "can be read again")
        self.state.problem = view.problem
        reading = None if view.reading is None else self._as_leased(view.reading)
        if reading is not None:
            self.state.see(reading, self._states(reading, by_lease))
            self.sampled.set()
        await transaction.refresh_leases(
            lambda lease: self._after(lease, by_lease.get(lease.id, []), reading), _cause, _notice_of_loss
        )

    def _as_leased(self, reading: InventoryReading) -> InventoryReading:
        """Its devices under the identity that their leases name: the first reading of all may have missed a part."""
        names = {lease.uuid: lease.device for lease in self.state.leases.values() if lease.uuid}
        devices = tuple(device.under(names.get(device.uuid, device.identity)) for device in reading.devices)
        return replace(reading, devices=devices)

    def _states(self, reading: InventoryReading, by_lease: dict[str, list[Process]]) -> dict[str, DeviceState]:
        """Every device with who else uses it; a device that is gone stays, not present, as long as a lease names it."""
        ours: dict[str, set[int]] = {}
        for held in self.state.leases.values():
            ours.setdefault(held.device, set()).update(process.pid for process in by_lease.get(held.id, ()))
        known_leases = {process.pid: lease for lease, found in by_lease.items() for process in found}
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
            trespassers[device.identity] = any(
                pid in known_leases and not self._leased_here(known_leases[pid], device.identity) for pid in pids or ()
            )
            states[device.identity] = DeviceState(device, foreign)
        for lease in self.state.leases.values():
            if lease.device not in states and lease.device in self.state.devices:
                states[lease.device] = replace(self.state.devices[lease.device], present=False)
        self.trespassers = trespassers
        return states

    def _leased_here(self, lease_id: str, device: str) -> bool:
        lease = self.state.leases.get(lease_id)
        return lease is None or lease.device == device

    def _after(self, lease: Lease, marked: Sequence[Process], reading: InventoryReading | None) -> Lease:
        """The lease as it is after this reading (the same object when nothing changed)."""
        lives = self.lives(lease)
        known = lease.pid is not None or lease.adopted or self._unseen(lease, marked)
        gone = not lives and known and (lease.pid is not None or not marked)
        over = gone or (not lives and lease.state is LeaseState.ENDING)
        seen = LeaseReading(
            ticket_lives=lease.ticket in self.state.tickets,
            device=None if reading is None else not self._is_gone(lease, reading),
            server_gone=gone,
            released=over and not marked and reading is not None and not self._in_use(lease, reading),
        )
        after = lifecycle.refresh(lease, seen)
        if after.state is not LeaseState.ENDING:  # over, or back: its next end begins with SIGTERM
            self._ending_since.pop(lease.id, None)
        elif marked and not lives:  # else the hub is stopping it, gracefully
            self._end_leftovers(lease, marked)
        return after

    def _unseen(self, lease: Lease, marked: Sequence[Process]) -> bool:
        """It is said to run, and for a minute nothing of it has been there."""
        now = self.state.clock.elapsed()
        if marked or lease.state is not LeaseState.RUNNING:
            self._unseen_since.pop(lease.id, None)
            return False
        return now - self._unseen_since.setdefault(lease.id, now) >= UNSEEN_SECONDS

    def _is_gone(self, lease: Lease, reading: InventoryReading) -> bool:
        return all(device.identity != lease.device for device in reading.devices)

    def _in_use(self, lease: Lease, reading: InventoryReading) -> bool:
        """Does the driver list a compute process on the device that no other lease accounts for?"""
        if self._is_gone(lease, reading):
            return False
        sample = reading.samples.get(lease.uuid)
        if sample is None:
            return True  # it could not be read: not known to be free
        return bool(self._not_others(lease, sample.pids or ()))  # the driver may list none for us: the marks have to do

    def _not_others(self, lease: Lease, pids: Iterable[int]) -> set[int]:
        """Of the processes that the driver lists on the lease's device those that no other lease accounts for.

        One of a lease elsewhere holds nobody's lease: its device is then used by others.
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
        """The device a server that we did not start is on: by its environment, or by the driver's process list."""
        if server.pid is None:
            return None
        process = procfs.describe(server.pid)
        if process is None:
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
        """The device that the driver lists this process or a descendant of it on."""
        for state in self.state.devices.values():
            sample = self.state.samples.get(state.device.uuid)
            for user in sample.pids or () if sample else ():
                if _descends(user, pid):
                    return state.device
        return None

    def is_stopping(self, server: HubServer) -> bool:
        """A process that is being stopped is not told from one that runs."""
        return False

    def lives(self, lease: Lease) -> bool:
        """Its process is there."""
        return lease.pid is not None and procfs.alive(lease.pid, lease.pid_started or 0)

    def has_started(self, lease: Lease) -> bool:
        """Its process is there, or one that carries its mark."""
        return self.lives(lease) or lease.id in self.leftovers

    def forget_hub_state(self) -> None:
        """Processes are read all the same."""

    # -------------------------------------------------------------- left-overs

    def _end_leftovers(self, lease: Lease, marked: Sequence[Process]) -> None:
        now = self.state.clock.elapsed()  # the machine's clock: a hub that is away saves nobody from a signal
        first = lease.id not in self._ending_since
        kill = now - self._ending_since.setdefault(lease.id, now) >= TERM_THEN_KILL_SECONDS
        if not kill and not first:
            return  # SIGTERM was sent; they have 10 s
        for process in marked:
            procfs.send_signal(process.pid, process.started, signal.SIGKILL if kill else signal.SIGTERM)
        if first:
            log.info("%d left-over process(es) get SIGTERM", len(marked), extra={"lease": lease.id})

    def what_is_left(self, lease: Lease) -> str:
        """Its processes, by their pids."""
        return ", ".join(f"{each.command} (pid {each.pid}, {each.owner})" for each in self.processes(lease))

    def processes(self, lease: Lease) -> tuple[Process, ...]:
        """What holds a lease whose server ends: what carries its mark, or else what the driver lists on its device.

        A process may have lost the mark (``env -u``): it is named, and not ended, for whose it is nobody knows.
        """
        left, sample = self._left(lease), self.state.samples.get(lease.uuid)
        if left or lease.state is not LeaseState.ENDING or sample is None:
            return left
        pids = sorted(self._not_others(lease, sample.pids or ()))
        return tuple(found for pid in pids if (found := procfs.describe(pid)) is not None)

    async def end_again(self, lease: Lease) -> None:
        """SIGTERM at first, then SIGKILL; an adopted server carries no mark, and is known by its pid."""
        left = self._left(lease)
        if left:
            self._end_leftovers(lease, left)

    def _left(self, lease: Lease) -> tuple[Process, ...]:
        own = procfs.describe(lease.pid) if lease.pid is not None and self.lives(lease) else None
        return self.leftovers.get(lease.id) or (() if own is None else (own,))

    async def clear_dead_start(self, lease: Lease) -> None:
        """End what a start left behind that the hub no longer knows (it was killed in the middle of it)."""
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


def _notice_of_loss(lease: Lease) -> Reason:
    return explain("gpu-gone-from-machine", server=lease.server)


def _cause(before: Lease, after: Lease) -> tuple[str, str]:
    """Why a lease changed, and on what evidence."""
    if after.state is LeaseState.ENDING:
        return "its server is gone", f"no process {before.pid}" if before.pid else "no process with its mark"
    if after.state is LeaseState.ENDED:
        return f"device {before.uuid} is free", "no process with its mark, and the driver lists none on the device"
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
