"""When a device is free again, with real processes: left-overs, daemons, strangers, devices that go away."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hub_extensions.adapters import processes
from hub_extensions.adapters.store import Changes
from hub_extensions.core.messages import Stopped, TicketState
from tests.fakes.machine import small
from tests.hub_service.desk_room import Room, room

DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(60)
"""
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").write("up")
time.sleep(60)
"""


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def appears(path: Path, seconds: float = 10.0) -> str:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (said := read(path)):
        assert loop.time() < deadline, f"{path} did not appear"
        await asyncio.sleep(0.02)
    return said


async def dies(pid: int, started: int | None, seconds: float = 5.0) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while processes.alive(pid, started or 0):
        assert loop.time() < deadline, f"{pid} still lives"
        await asyncio.sleep(0.02)


def with_mark(r: Room, state: TicketState, code: str, *arguments: str) -> subprocess.Popen[bytes]:
    assert state.grant is not None
    child = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env={**os.environ, **state.grant.environment}, start_new_session=True
    )
    r.children.append(child)
    return child


def started_before(r: Room, device: str, **environment: str) -> subprocess.Popen[bytes]:
    """A server of a hub without us: no mark, but a device in its environment."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": device, **environment},
    )
    r.children.append(child)
    return child


async def stop(r: Room, user: str, child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    r.hub.running.pop((user, ""), None)
    await r.desk.stopped(Stopped(user, ""))


async def test_a_nohup_child_gets_sigterm_and_its_device_is_given_on(tmp_path: Path) -> None:
    """T17: a nohup/setsid child survives its server and keeps the GPU's memory."""
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        left = with_mark(r, state, "import signal, time; signal.signal(signal.SIGHUP, signal.SIG_IGN); time.sleep(60)")
        await r.ask("ben", "mig-1g.5gb")
        await stop(r, "ada", server)
        await r.desk.releases.look()
        assert r.positions() == {"ben": 1}, "not given while the left-over lives"
        assert left.wait(timeout=5) == -signal.SIGTERM
        await r.desk.releases.look()
        assert r.positions() == {"ben": 0}


async def test_a_double_forked_daemon_holds_the_device_until_it_is_ended(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        note = tmp_path / "daemon"
        with_mark(r, state, DAEMON, str(note))
        pid = int(await appears(note))
        started = processes.start_time(pid)
        await r.ask("ben", "mig-1g.5gb")
        await stop(r, "ada", server)
        await r.desk.releases.look()
        assert r.positions() == {"ben": 1}
        await dies(pid, started)
        await r.desk.releases.look()
        assert r.positions() == {"ben": 0}


async def test_what_ignores_sigterm_is_killed_after_10_s_and_shown_to_admins_meanwhile(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        note = tmp_path / "stubborn"
        left = with_mark(r, state, STUBBORN, str(note))
        await appears(note)
        await stop(r, "ada", server)
        await r.desk.releases.look()
        (lease,) = r.desk.leases()
        assert lease.state == "ending" and f"pid {left.pid}" in lease.processes[0]
        r.hands.pass_time(timedelta(seconds=9))
        await r.desk.releases.look()
        assert left.poll() is None
        r.hands.pass_time(timedelta(seconds=2))
        await r.desk.releases.look()
        assert left.wait(timeout=5) == -signal.SIGKILL
        await r.desk.releases.look()
        assert r.desk.leases() == ()


async def test_a_hub_that_is_away_saves_no_left_over_from_being_killed(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        note = tmp_path / "stubborn"
        left = with_mark(r, state, STUBBORN, str(note))
        await appears(note)
        await stop(r, "ada", server)
        r.hub.away = "no answer"
        await r.desk.reconciler.reconcile()
        await r.desk.releases.look()
        r.hands.pass_time(timedelta(seconds=11))
        await r.desk.releases.look()
        assert left.wait(timeout=5) == -signal.SIGKILL


async def test_a_mark_of_a_lease_that_is_none_is_a_foreign_process(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        forged = started_before(r, "MIG-small-0", JUPYTERHUB_GPU_LEASE="no-lease-of-ours")
        r.gpus.pids["MIG-small-0"] = (forged.pid,)
        await r.desk.releases.look()
        offer = next(o for o in r.desk.form("ada", "", (), False).offers if o.id == "mig-1g.5gb")
        assert (offer.free, offer.held_by_others) == (0, 1)


async def test_a_stop_that_the_hub_takes_back_leaves_the_server_its_device(tmp_path: Path) -> None:
    """The hub accepted a stop, failed at it, and says the server is ready: it is no server without a GPU."""
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        await r.desk.stopped(Stopped("ada", ""))
        assert [lease.state for lease in r.desk.leases()] == ["ending"]
        r.hands.pass_time(timedelta(seconds=1))
        r.hub.run("ada", pid=server.pid)
        await r.desk.reconciler.reconcile()
        assert [lease.state for lease in r.desk.leases()] == ["running"]
        assert r.desk.book.facts[("ada", "")].lease == r.desk.leases()[0].lease


async def test_a_process_that_lost_its_mark_holds_the_device_as_long_as_the_driver_lists_it(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        r.gpus.pids["MIG-small-0"] = (4242,)
        await stop(r, "ada", server)
        await r.desk.releases.look()
        assert [lease.state for lease in r.desk.leases()] == ["ending"]
        r.gpus.pids["MIG-small-0"] = ()
        await r.desk.releases.look()
        assert r.desk.leases() == ()


async def test_a_foreign_process_makes_the_device_held_by_others_without_a_name(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        r.gpus.pids["MIG-small-0"] = (1,)
        await r.desk.releases.look()
        offer = next(o for o in r.desk.form("ada", "", (), False).offers if o.id == "mig-1g.5gb")
        assert (offer.free, offer.total, offer.held_by_others) == (1, 2, 1)
        state = await r.ask("ada", "mig-1g.5gb")
        assert state.grant is not None and state.grant.uuid == "MIG-small-1"
        waiting = await r.ask("ben", "mig-1g.5gb")
        assert "1 of them by programs that this hub did not start" in waiting.reason


async def test_a_reused_pid_is_not_the_server(tmp_path: Path) -> None:
    """T17: after a restart a pid alone is not the server: another process may have it."""
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        server.kill()
        server.wait()
        lease = r.desk.book.lease_of("ada", "")
        assert lease is not None and state.grant is not None
        other = replace(lease, pid=os.getpid(), pid_started=(processes.start_time(os.getpid()) or 0) - 1)
        await r.desk.book.write(Changes(leases=(other,)))
        await r.desk.releases.look()
        assert r.desk.leases() == ()


async def test_a_server_that_crashes_by_itself_frees_its_device_without_a_word_from_the_hub(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        server.kill()
        server.wait()
        await r.desk.releases.look()
        assert r.desk.leases() == ()


async def test_a_lease_whose_device_is_gone_is_lost_and_free_again_only_as_the_same_device(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        device = r.gpus.devices.pop()
        await r.desk.releases.look()
        assert [lease.state for lease in r.desk.leases()] == ["lost"]
        assert "gone from the machine" in r.desk.form("ada", "", (), False).notices[0].text
        state = r.desk.server_state("ada", "")
        assert state is not None and "gone" in state.warnings[0]
        r.gpus.devices.append(replace(device, gpu_instance_id=99))
        await r.desk.releases.look()
        assert [lease.state for lease in r.desk.leases()] == ["lost"], (
            "the same UUID in another place is another device"
        )
        r.gpus.devices[:] = [device]
        await r.desk.releases.look()
        assert [lease.state for lease in r.desk.leases()] == ["running"]


async def test_gpus_that_cannot_be_read_are_unknown_and_nobody_is_admitted(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        r.gpus.gone = "the driver does not answer"
        r.hands.pass_time(timedelta(minutes=2))
        await r.desk.releases.look()
        offer = next(o for o in r.desk.form("ada", "", (), False).offers if o.id == "mig-1g.5gb")
        assert offer.free is None and offer.total is None
        waiting = await r.ask("ada", "mig-1g.5gb")
        assert waiting.answer == "wait" and waiting.reason_word == "unknown-inventory"
        cpu = await r.ask("ben", "cpu")
        assert cpu.answer == "admit"
        r.gpus.gone = ""
        await r.desk.releases.look()
        assert r.positions()["ada"] == 0


async def test_a_dead_start_is_cleared_before_its_ticket_is_admitted_again(tmp_path: Path) -> None:
    """The hub was killed between the start of the process and remembering it."""
    async with room(tmp_path, small(0)) as r:
        state = await r.ask("ada", "mig-1g.5gb")
        orphan = r.process(state)
        again = await r.ask("ada", "mig-1g.5gb")
        assert again.answer == "admit" and again.grant is not None and state.grant is not None
        assert again.grant.lease == state.grant.lease
        assert orphan.wait(timeout=5) in (-signal.SIGTERM, -signal.SIGKILL)


async def test_a_server_that_ran_before_is_adopted_and_its_device_held(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        old = started_before(r, "MIG-small-0")
        r.hub.run("ada", pid=old.pid)
        await appears_in_proc(old.pid)
        await r.desk.reconciler.reconcile()
        (lease,) = r.desk.leases()
        assert (lease.user, lease.uuid, lease.adopted) == ("ada", "MIG-small-0", True)
        state = await r.ask("ben", "mig-1g.5gb")
        assert state.grant is not None and state.grant.uuid == "MIG-small-1"
        assert r.desk.server_state("ada", "").countdown is None  # type: ignore[union-attr]
        old.kill()
        old.wait()
        await r.desk.releases.look()
        assert [lease.user for lease in r.desk.leases()] == ["ben"]


async def appears_in_proc(pid: int) -> None:
    """The child has become its own program (before that it still shows its parent's environment)."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 5
    while (found := processes.describe(pid)) is None or found.device != "MIG-small-0":
        assert loop.time() < deadline
        await asyncio.sleep(0.02)


async def test_an_adopted_server_holds_the_device_on_which_the_driver_lists_one_of_its_processes(
    tmp_path: Path,
) -> None:
    """No word in its environment: the driver's list, and whose child it is, say it. It may begin so later."""
    note = tmp_path / "child"
    async with room(tmp_path, small(0), small(1)) as r:
        old = a_parent(r, note)
        child = int(await appears(note))
        r.hub.run("ada", pid=old.pid)
        await r.desk.reconciler.reconcile()
        assert r.desk.leases() == ()
        assert r.desk.book.facts[("ada", "")].offer == "cpu"
        r.gpus.pids["MIG-small-1"] = (child,)
        await r.desk.releases.look()
        r.hands.pass_time(timedelta(seconds=30))
        await r.desk.reconciler.reconcile()
        (lease,) = r.desk.leases()
        assert (lease.user, lease.uuid, lease.adopted) == ("ada", "MIG-small-1", True)
        await r.desk.releases.look()
        offer = next(o for o in r.desk.form("ben", "", (), False).offers if o.id == "mig-1g.5gb")
        os.kill(child, signal.SIGKILL)
        assert (offer.free, offer.held, offer.held_by_others) == (1, 1, 0)


def a_parent(r: Room, note: Path) -> subprocess.Popen[bytes]:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(note)])
    r.children.append(child)
    return child
