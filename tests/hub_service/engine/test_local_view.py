"""What follows from one reading of a machine: whose each device is, and what becomes of each lease. No process runs."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.linux import procfs
from hub_extensions.adapters.linux.procfs import Process
from hub_extensions.core.gpu.devices import Foreign, InventoryReading
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.hub_service.engine.line import local_leases
from hub_extensions.hub_service.engine.line.local_leases import LocalLeases
from tests.fakes.machine import small
from tests.hub_service.engine.room import Room, room

pytestmark = pytest.mark.slow

SMALL = "mig-1g.5gb"
SECOND = timedelta(seconds=1)
ADA, BEN = "MIG-small-0", "MIG-small-1"
"""Whose server has which device."""


def process(pid: int, lease: str | None) -> Process:
    """One with a lease's mark; its start is nobody's, so no signal reaches anybody."""
    return Process(pid, -1, 1, 0, "root", "python", lease, False, None, 0.0, 0)


def machine(r: Room) -> LocalLeases:
    found = r.engine.watcher
    assert isinstance(found, LocalLeases)
    return found


def reading(r: Room, pids: dict[str, tuple[int, ...] | None], *, gone: str = "") -> InventoryReading:
    """Devices that are not in `pids` cannot be read."""
    now = r.hands.wall
    samples = {uuid: DeviceSample(uuid, now, 0.0, 0, each, "nvml") for uuid, each in pids.items()}
    return InventoryReading(now, tuple(d for d in r.gpus.devices if d.uuid != gone), samples)


async def two(r: Room) -> tuple[Lease, Lease]:
    """The leases of two servers whose processes are over."""
    found = []
    for user in ("ada", "ben"):
        await r.ask(user, SMALL)
        lease = next(each for each in r.engine.state.leases.values() if each.user == user)
        found.append(replace(lease, state=LeaseState.RUNNING, pid=2**22 + 7, pid_started=1))
        r.engine.state.leases[lease.id] = found[-1]
    r.engine.state.tickets.clear()
    assert [lease.uuid for lease in found] == [ADA, BEN]
    return found[0], found[1]


@pytest.mark.parametrize(
    ("pids", "adopted", "foreign", "trespassed"),
    [
        ((), "", Foreign.NONE, False),
        (None, "", Foreign.UNKNOWN, False),
        ((11,), "", Foreign.NONE, False),
        ((12,), "", Foreign.SOME, True),
        ((11, 12), "", Foreign.SOME, True),
        ((99,), "", Foreign.SOME, False),
        ((11, 99), "", Foreign.SOME, False),
        ((13,), "", Foreign.SOME, False),
        ((99,), "ada", Foreign.NONE, False),
        ((99,), "ben", Foreign.SOME, False),
    ],
)
async def test_a_device_is_used_by_others_where_the_driver_lists_who_has_no_lease_of_ours(
    tmp_path: Path, pids: tuple[int, ...] | None, adopted: str, foreign: Foreign, trespassed: bool
) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        ada, ben = await two(r)
        for lease in (ada, ben):
            r.engine.state.leases[lease.id] = replace(lease, adopted=lease.user == adopted)
        marked = {ada.id: [process(11, ada.id)], ben.id: [process(12, ben.id)], "gone": [process(13, "gone")]}
        states = machine(r)._states(reading(r, {ADA: pids, BEN: ()}), marked)
        assert (states[ada.device].foreign, states[ben.device].foreign) == (foreign, Foreign.NONE)
        assert machine(r).trespassers == {ada.device: trespassed, ben.device: False}
        assert machine(r)._states(reading(r, {}), {})[ada.device].foreign is Foreign.UNKNOWN


async def test_a_free_device_that_a_server_of_another_uses_is_not_free(tmp_path: Path) -> None:
    """Ada's ``CUDA_VISIBLE_DEVICES=1``: the next in line was given the card that she computed on."""
    async with room(tmp_path, small(0), small(1)) as r:
        ada, ben = await two(r)
        del r.engine.state.leases[ben.id]
        marked = {ada.id: [process(11, ada.id)]}
        states = machine(r)._states(reading(r, {ADA: (11,), BEN: (11,)}), marked)
        assert (states[ada.device].foreign, states[ben.device].foreign) == (Foreign.NONE, Foreign.SOME)


async def test_a_device_that_is_gone_is_kept_as_long_as_a_lease_names_it(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        ada, ben = await two(r)
        states = machine(r)._states(reading(r, {}, gone=ADA), {})
        assert {device: each.present for device, each in states.items()} == {ada.device: False, ben.device: True}
        r.engine.state.leases[ada.id] = replace(ada, device="never seen")
        assert set(machine(r)._states(reading(r, {}, gone=ADA), {})) == {ben.device}


@pytest.mark.parametrize(
    ("pids", "used"),
    [
        ({ADA: ()}, False),
        ({}, True),
        ({ADA: None}, False),
        ({ADA: (11,)}, True),
        ({ADA: (12,)}, False),  # it is Ben's, of another device
        ({ADA: (99,)}, True),
        ({ADA: (14,)}, False),
    ],
)
async def test_a_device_is_in_use_by_whom_no_other_lease_accounts_for(
    tmp_path: Path, pids: dict[str, tuple[int, ...] | None], used: bool
) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        ada, ben = await two(r)
        sharer = replace(ada, id="sharer")
        r.engine.state.leases["sharer"] = sharer
        machine(r).leftovers = {
            ada.id: (process(11, ada.id),), ben.id: (process(12, ben.id),), "sharer": (process(14, "sharer"),),
            "gone": (process(11, "gone"),),
        }  # fmt: skip
        assert machine(r)._in_use(ada, reading(r, pids)) is used
        assert machine(r)._in_use(ada, reading(r, pids, gone=ADA)) is False


@pytest.mark.whole
@pytest.mark.parametrize(
    ("changes", "marked", "pids", "after"),
    [
        ({}, False, {ADA: ()}, LeaseState.ENDED),
        ({}, True, {ADA: ()}, LeaseState.ENDING),
        ({}, False, {ADA: (99,)}, LeaseState.ENDING),
        ({}, False, None, LeaseState.ENDING),
        ({"pid": os.getpid()}, False, {ADA: ()}, LeaseState.RUNNING),
        ({"pid": os.getpid(), "state": LeaseState.ENDING}, True, {ADA: ()}, LeaseState.ENDING),
        ({"pid": None}, False, {ADA: ()}, LeaseState.RUNNING),
        ({"pid": None, "adopted": True}, False, {ADA: ()}, LeaseState.ENDED),
        ({"pid": None, "adopted": True}, True, {ADA: ()}, LeaseState.RUNNING),
        ({"pid": None, "state": LeaseState.ENDING}, False, {ADA: ()}, LeaseState.ENDED),
        ({"pid": None, "state": LeaseState.ENDING}, True, {ADA: ()}, LeaseState.ENDING),
        ({"pid": None, "state": LeaseState.ENDING}, False, None, LeaseState.ENDING),
        ({"state": LeaseState.STARTING}, False, {ADA: ()}, LeaseState.ENDING),
        ({"state": LeaseState.STARTING, "ticket": "lives"}, False, {ADA: ()}, LeaseState.STARTING),
        ({"device": "gone", "pid": os.getpid()}, False, {ADA: ()}, LeaseState.LOST),
        ({"device": "gone", "pid": os.getpid()}, False, None, LeaseState.RUNNING),
        ({"state": LeaseState.LOST, "pid": os.getpid()}, False, {ADA: ()}, LeaseState.RUNNING),
    ],
)
async def test_what_becomes_of_a_lease(
    tmp_path: Path,
    changes: dict[str, object],
    marked: bool,
    pids: dict[str, tuple[int, ...] | None] | None,
    after: LeaseState,
) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        ada, _ = await two(r)
        await r.ask("cid", SMALL)
        if "ticket" in changes:
            changes = {**changes, "ticket": next(iter(r.engine.state.tickets))}
        lease = replace(ada, **changes)  # type: ignore[arg-type]
        if lease.pid == os.getpid():
            lease = replace(lease, pid_started=procfs.start_time(os.getpid()))
        r.engine.state.leases[ada.id] = lease
        seen = None if pids is None else reading(r, pids)
        found = machine(r)._after(lease, [process(11, ada.id)] if marked else [], seen)
        assert found.state is after
        assert machine(r).has_started(lease) is (lease.pid == os.getpid())
        machine(r).leftovers = {ada.id: (process(11, ada.id),)}
        assert machine(r).has_started(lease)


async def test_left_overs_get_sigterm_once_and_sigkill_after_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(local_leases.procfs, "send_signal", lambda pid, started, number: sent.append(number))
    async with room(tmp_path, small(0), small(1)) as r:
        ada, _ = await two(r)
        ending, left = replace(ada, state=LeaseState.ENDING), [process(11, ada.id), process(12, ada.id)]
        for seconds, numbers in (
            (0.0, [signal.SIGTERM] * 2), (9.9, []), (0.1, [signal.SIGKILL] * 2), (0.0, [signal.SIGKILL] * 2),
        ):  # fmt: skip
            sent.clear()
            r.hands.pass_time(seconds * SECOND)
            machine(r)._after(ending, left, reading(r, {ADA: ()}))
            assert sent == numbers
        sent.clear()
        assert machine(r)._after(ending, [], reading(r, {ADA: ()})).state is LeaseState.ENDED
        machine(r)._after(ending, left, reading(r, {ADA: ()}))
        assert sent == [signal.SIGTERM] * 2, "another time anew"


@pytest.mark.parametrize(
    ("visible", "found"),
    [(None, None), ("", None), (ADA, ADA), (f" {BEN} ,{ADA}", BEN), ("MIG-other", None), (f"MIG-other,{ADA}", None)],
)
async def test_a_server_is_on_the_first_device_of_its_environment(
    tmp_path: Path, visible: str | None, found: str | None
) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        device = machine(r)._named(visible)
        assert (device and device.uuid) == found
        states = r.engine.state.devices
        r.engine.state.devices = {name: replace(each, present=False) for name, each in states.items()}
        assert machine(r)._named(visible) is None


async def test_a_server_is_on_the_device_on_which_the_driver_lists_it_or_what_it_started(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        r.gpus.pids = {ADA: None, BEN: (os.getpid(),)}
        await r.engine.watcher.refresh()
        for pid, found in ((os.getpid(), BEN), (os.getppid(), BEN if os.getppid() > 1 else None), (2**22 + 7, None)):
            device = machine(r)._used_below(pid)
            assert (device and device.uuid) == found
        r.engine.state.samples = {}
        assert machine(r)._used_below(os.getpid()) is None


def test_everything_descends_from_the_first_process_so_that_says_nothing() -> None:
    assert local_leases._descends(os.getpid(), os.getpid())
    assert not local_leases._descends(os.getpid(), 1) or os.getpid() == 1
    assert not local_leases._descends(os.getpid(), 2**22 + 7)
    assert not local_leases._descends(2**22 + 7, os.getpid())


async def test_the_journal_says_why_a_lease_changed(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        ada, _ = await two(r)
        found = {
            state: local_leases._cause(replace(ada, pid=7), replace(ada, state=state))
            for state in (LeaseState.ENDING, LeaseState.ENDED, LeaseState.LOST, LeaseState.RUNNING)
        }
        assert found == {
            LeaseState.ENDING: ("its server is gone", "no process 7"),
            LeaseState.ENDED: (
                f"device {ADA} is free", "no process with its mark, and the driver lists none on the device",
            ),
            LeaseState.LOST: (f"device {ADA} is gone", "the driver does not list it"),
            LeaseState.RUNNING: (f"device {ADA} is back", "the driver lists it again"),
        }  # fmt: skip
        unknown = local_leases._cause(replace(ada, pid=None), replace(ada, state=LeaseState.ENDING))
        assert unknown == ("its server is gone", "no process with its mark")
