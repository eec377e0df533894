"""A machine and a hub as plain values a test sets: GPUs, processes on them, users and servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from hub_extensions.adapters.hub.jupyterhub_api import HubAway, HubServer, HubUser, StopAnswer, StopRefused
from hub_extensions.adapters.store import Changes, StoreUnavailable
from hub_extensions.core.gpu.devices import Device, GpusUnavailable, InventoryReading
from hub_extensions.core.gpu.samples import DeviceSample
from tests.fakes.reasons import because

GIB = 1 << 30


def small(n: int) -> Device:
    """A 1g.5gb of the published LAB machine."""
    return Device(
        f"MIG-small-{n}", "NVIDIA A100-PCIE-40GB", profile="1g.5gb", gpu_instance_id=7 + n, memory_bytes=GIB * 19 // 4
    )


def large(n: int = 0) -> Device:
    return Device(
        f"MIG-large-{n}", "NVIDIA A100-PCIE-40GB", profile="2g.10gb", gpu_instance_id=4 + n, memory_bytes=GIB * 39 // 4
    )


class GpusAsTold:
    """Lists the devices it was told, with the processes and the use it was told.

    `gone` makes all of it unreadable; of a device in `unread` it knows no more than that it is there.
    """

    def __init__(self, *devices: Device) -> None:
        self.devices = list(devices)
        self.pids: dict[str, tuple[int, ...] | None] = {}
        self.used: dict[str, float | None] = {}
        self.unread: set[str] = set()
        self.gone = ""

    def read(self, now: datetime) -> InventoryReading:
        if self.gone:
            raise GpusUnavailable("lost", because(self.gone))
        samples = {
            device.uuid: DeviceSample(
                device.uuid,
                now,
                used := self.used.get(device.uuid, 0.0),
                0,
                self.pids.get(device.uuid, ()),
                "none" if used is None else "nvml",
            )
            for device in self.devices
            if device.uuid not in self.unread
        }
        return InventoryReading(now, tuple(self.devices), samples)

    def close(self) -> None:
        """Nothing to let go."""


class HubAsTold:
    """A hub whose users and servers a test sets; it remembers what it was asked to start and stop."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, str], HubServer] = {}
        self.groups: dict[str, tuple[str, ...]] = {}
        self.deleted: set[str] = set()
        self.away = ""
        self.clock_ahead: timedelta | None = timedelta(0)
        self.refuses_stops: StopRefused | None = None
        self.known: tuple[str, ...] = ()
        self.started: list[tuple[str, str, Mapping[str, object]]] = []
        self.stopped: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.token_name = "a1"

    async def own_token(self) -> str:
        self._answers()
        return self.token_name

    def run(self, user: str, server: str = "", *, ready: bool = True, pid: int | None = None) -> None:
        now = datetime.now(timezone.utc)
        pending, groups = None if ready else "spawn", self.groups.get(user, ())
        self.running[(user, server)] = HubServer(user, server, ready, pending, now, now, groups=groups, pid=pid)

    def was_active(self, user: str, ago: timedelta, server: str = "") -> None:
        at = datetime.now(timezone.utc) - ago
        self.running[(user, server)] = replace(self.running[(user, server)], last_activity=at)

    def _answers(self) -> None:
        if self.away:
            raise HubAway(self.away)

    async def up(self) -> bool:
        return not self.away

    async def servers(self) -> tuple[HubServer, ...]:
        self._answers()
        return tuple(self.running.values())

    async def server(self, user: str, server: str) -> HubServer | None:
        self._answers()
        return self.running.get((user, server))

    async def user(self, name: str) -> HubUser | None:
        self._answers()
        return None if name in self.deleted else HubUser(name, False, self.groups.get(name, ()))

    async def users(self) -> tuple[HubUser, ...]:
        self._answers()
        return tuple(HubUser(name, False, ()) for name in self.known)

    async def start(self, user: str, server: str, options: Mapping[str, object], *, returns: bool = False) -> bool:
        self._answers()
        there = self.running.get((user, server))
        if there is not None and there.pending == "spawn":
            return False
        self.started.append((user, server, options))
        self.run(user, server, ready=False)
        return True

    async def stop(self, user: str, server: str) -> StopAnswer:
        self._answers()
        if self.refuses_stops is not None:
            self.refused.append((user, server))
            raise self.refuses_stops
        there = self.running.get((user, server))
        if there is None or there.pending == "stop":
            return StopAnswer.OVER
        self.stopped.append((user, server))
        del self.running[user, server]
        return StopAnswer.ASKED


class StoreThatIsFull:
    """Takes nothing any more."""

    state = "the disk is full"

    async def commit(self, changes: Changes) -> None:
        raise StoreUnavailable("The disk is full.")
