"""When a device is free again: when nothing runs on it, and not before.

A lease ends when no process carries its mark and the driver lists no compute process on its device that is not
accounted for by another lease. Left-overs of a stopped server get SIGTERM, after 10 s SIGKILL; what cannot be killed
keeps the device held. No release depends on a message: this looks at the machine itself, again and again.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from hub_extensions.adapters import processes
from hub_extensions.adapters.processes import Process
from hub_extensions.adapters.store import NoticeRow, StoreUnavailable
from hub_extensions.adapters.within import within
from hub_extensions.core.inventory import DeviceState, Foreign, GpusUnavailable, InventoryReading
from hub_extensions.core.line import Lease, LeaseState
from hub_extensions.hub_service.book import Book
from hub_extensions.hub_service.refused import Refused
from hub_extensions.hub_service.telling import server_words
from hub_extensions.hub_service.tickets import Tickets

log = logging.getLogger("hub_extensions.hub_service")

TERM_THEN_KILL_SECONDS = 10.0
QUICK, SLOW = 0.4, 2.0
"""Seconds between looks: while a lease is ending or somebody waits, and otherwise."""


class Gpus(Protocol):
    """The machine's GPUs: ``adapters.nvml.Nvml`` or ``adapters.simulated.SimulatedGpus``. Both block."""

    def read(self, now: datetime) -> InventoryReading:
        """Look at all GPUs now. Raises GpusUnavailable."""

    def close(self) -> None:
        """Let the driver go."""


@dataclass(frozen=True)
class Look:
    """One look at the machine: marked processes first, then the GPUs, so that nothing ends unseen in between."""

    marked: tuple[Process, ...]
    reading: InventoryReading | None
    problem: str


class Releases:
    """Looks at the machine and ends leases whose device is really free.

    Attributes:
        leftovers: lease id -> its processes still there, for the admin's page.
    """

    def __init__(self, book: Book, tickets: Tickets, gpus: Gpus) -> None:
        self.book = book
        self.tickets = tickets
        self.gpus = gpus
        self.leftovers: dict[str, tuple[Process, ...]] = {}
        self.trespassers: dict[str, bool] = {}
        self.problem = ""
        self.sampled: asyncio.Event = asyncio.Event()
        self._ending_since: dict[str, float] = {}
        self._soon = asyncio.Event()
        tickets.before_a_restart_of(self.clear_a_dead_start)

    async def keep_looking(self) -> None:
        """Look until cancelled, quickly while somebody waits for an end."""
        while True:
            await self.look()
            busy = any(lease.state is LeaseState.ENDING for lease in self.book.leases.values())
            wait = QUICK if busy or self.book.waiting() else SLOW
            try:
                await within(wait, self._soon.wait())
            except asyncio.TimeoutError:
                continue
            finally:
                self._soon.clear()

    def look_soon(self) -> None:
        """Somebody expects a change: do not wait for the next turn."""
        self._soon.set()

    async def look(self) -> None:
        """Look once, take it in, end what has ended, and admit whoever can go on."""
        look = await asyncio.get_running_loop().run_in_executor(None, self._look)
        async with self.tickets.lock:
            try:
                await self._take_in(look)
                await self.tickets.round()
            except (StoreUnavailable, Refused) as problem:
                log.debug("nothing is released: %s", problem)

    def _look(self) -> Look:
        marked = processes.marked()
        try:
            reading = self.gpus.read(self.book.clock.utc_now())
        except GpusUnavailable as problem:
            return Look(marked, None, problem.sentence)
        return Look(marked, reading, "")

    # -------------------------------------------------------------- taking in

    async def _take_in(self, look: Look) -> None:
        by_lease: dict[str, list[Process]] = {}
        for process in look.marked:
            if process.lease is not None:
                by_lease.setdefault(process.lease, []).append(process)
        self.leftovers = {lease: tuple(found) for lease, found in by_lease.items()}
        if look.problem != self.problem:
            self.problem = look.problem
            log.warning("GPUs: %s", look.problem or "can be read again")
        self.book.problem = look.problem
        if look.reading is not None:
            self.book.see(look.reading, self._states(look.reading, by_lease))
            self.sampled.set()
        changed, rows, notices, usage = [], [], [], []
        for lease in tuple(self.book.leases.values()):
            after = self._after(lease, by_lease.get(lease.id, []), look.reading)
            if after is lease:
                continue
            changed.append(after)
            rows.append(self.tickets.journal_of_lease(after.state.value, lease, _words(lease, after)))
            if after.state is LeaseState.LOST:
                text = f"The GPU of {server_words(lease.server)} is gone from the machine. Save your work and stop it."
                notices.append(NoticeRow(self.book.clock.utc_now(), lease.user, lease.server, text))
            if after.state is LeaseState.ENDED:
                usage.append(self.tickets.usage_record(lease, "released"))
        if changed:
            await self.book.write_leases(changed, rows, notices, usage)

    def _states(self, reading: InventoryReading, by_lease: dict[str, list[Process]]) -> dict[str, DeviceState]:
        """Every device with who else uses it; a device that is gone stays, not present, as long as a lease names it."""
        ours = {process.pid for lease, found in by_lease.items() if lease in self.book.leases for process in found}
        known_leases = {process.pid: lease for lease, found in by_lease.items() for process in found}
        states: dict[str, DeviceState] = {}
        trespassers: dict[str, bool] = {}
        for device in reading.devices:
            sample = reading.samples.get(device.uuid)
            pids = sample.pids if sample is not None else None
            adopted = any(lease.adopted and lease.device == device.identity for lease in self.book.leases.values())
            if pids is None:
                foreign = Foreign.UNKNOWN
            elif adopted or not set(pids) - ours:
                foreign = Foreign.NONE
            else:
                foreign = Foreign.SOME
            trespassers[device.identity] = any(
                pid in known_leases and not self._leased_here(known_leases[pid], device.identity) for pid in pids or ()
            )
            states[device.identity] = DeviceState(device, foreign)
        for lease in self.book.leases.values():
            if lease.device not in states and lease.device in self.book.devices:
                states[lease.device] = replace(self.book.devices[lease.device], present=False)
        self.trespassers = trespassers
        return states

    def _leased_here(self, lease_id: str, device: str) -> bool:
        lease = self.book.leases.get(lease_id)
        return lease is None or lease.device == device

    def _after(self, lease: Lease, marked: Sequence[Process], reading: InventoryReading | None) -> Lease:
        """The lease as it is after this look (the same object when nothing changed)."""
        if lease.state is LeaseState.STARTING:
            # its ticket decides: ready, failed, left or abandoned; without one nobody does
            return lease if lease.ticket in self.book.tickets else replace(lease, state=LeaseState.ENDING)
        if reading is not None and lease.state is LeaseState.RUNNING and self._is_gone(lease, reading):
            return replace(lease, state=LeaseState.LOST)
        if reading is not None and lease.state is LeaseState.LOST and not self._is_gone(lease, reading):
            lease = replace(lease, state=LeaseState.RUNNING)
        server_lives = lease.pid is not None and processes.alive(lease.pid, lease.pid_started or 0)
        if lease.state in (LeaseState.RUNNING, LeaseState.LOST):
            if server_lives or (lease.pid is None and (marked or not lease.adopted)):
                return lease
            lease = replace(lease, state=LeaseState.ENDING)
        if server_lives:
            return lease  # the hub is stopping it, gracefully
        if marked:
            self._end_leftovers(lease, marked)
            return lease
        if reading is None or self._in_use(lease, reading):
            return lease
        self._ending_since.pop(lease.id, None)
        return replace(lease, state=LeaseState.ENDED)

    def _is_gone(self, lease: Lease, reading: InventoryReading) -> bool:
        return all(device.identity != lease.device for device in reading.devices)

    def _in_use(self, lease: Lease, reading: InventoryReading) -> bool:
        """Does the driver list a compute process on the device that no other lease accounts for?"""
        if self._is_gone(lease, reading):
            return False
        sample = reading.samples.get(lease.uuid)
        if sample is None:
            return True  # it could not be read: not known to be free
        if sample.pids is None:
            return False  # the driver lists none for us; the marks have to do
        others = {
            process.pid
            for other, found in self.leftovers.items()
            if other != lease.id and (held := self.book.leases.get(other)) is not None and held.device == lease.device
            for process in found
        }
        return bool(set(sample.pids) - others)

    # -------------------------------------------------------------- left-overs

    def _end_leftovers(self, lease: Lease, marked: Sequence[Process]) -> None:
        now = self.book.clock.elapsed()  # the machine's clock: a hub that is away saves nobody from a signal
        first = lease.id not in self._ending_since
        kill = now - self._ending_since.setdefault(lease.id, now) >= TERM_THEN_KILL_SECONDS
        if not kill and not first:
            return  # SIGTERM was sent; they have 10 s
        for process in marked:
            processes.send_signal(process.pid, process.started, signal.SIGKILL if kill else signal.SIGTERM)
        if first:
            log.info("%d left-over process(es) get SIGTERM", len(marked), extra={"lease": lease.id})

    async def clear_a_dead_start(self, lease: Lease) -> None:
        """End what a start left behind that the hub no longer knows (it was killed in the middle of it)."""
        if lease.state is not LeaseState.STARTING:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 6
        signum = signal.SIGTERM
        while found := [p for p in await loop.run_in_executor(None, processes.marked) if p.lease == lease.id]:
            for process in found:
                processes.send_signal(process.pid, process.started, signum)
            if loop.time() > deadline:
                log.error("left-overs of a dead start cannot be ended", extra={"lease": lease.id})
                return
            signum = signal.SIGKILL if loop.time() > deadline - 4 else signal.SIGTERM
            await asyncio.sleep(0.2)


def _words(before: Lease, after: Lease) -> str:
    if after.state is LeaseState.ENDING:
        return "its server is gone"
    if after.state is LeaseState.ENDED:
        return f"device {before.uuid} is free"
    if after.state is LeaseState.LOST:
        return f"device {before.uuid} is gone"
    return f"device {before.uuid} is back"
