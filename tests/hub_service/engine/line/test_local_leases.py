"""When a device is free again, with real processes: left-overs, daemons, strangers, devices that go away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.linux import procfs
from hub_extensions.adapters.store import Changes, JournalFilter
from hub_extensions.core.gpu.devices import WHOLE, Device, Placement
from hub_extensions.core.messages import Ask, Started, Stopped, TicketStatus
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.overview.view import Asked
from hub_extensions.core.text.reasons import explain
from hub_extensions.hub_service.engine.state.errors import Refused
from tests.fakes.machine import small
from tests.hub_service.engine.room import Room, room
from tests.patience import patient, soon

LIFETIME = timedelta(minutes=30)
"""Of the engine room's limits."""
pytestmark = pytest.mark.programs

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


async def appears(path: Path) -> str:
    return await soon(lambda: read(path), what=f"{path} appears")


async def dies(pid: int, started: int | None) -> None:
    await soon(lambda: not procfs.alive(pid, started or 0), what=f"{pid} dies")


def with_mark(r: Room, state: TicketStatus, code: str, *arguments: str) -> subprocess.Popen[bytes]:
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
    await r.engine.stopped(Stopped(user, ""))


async def test_a_nohup_child_gets_sigterm_and_its_device_is_given_on(tmp_path: Path) -> None:
    """T17: a nohup/setsid child survives its server and keeps the GPU's memory."""
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        left = with_mark(r, state, "import signal, time; signal.signal(signal.SIGHUP, signal.SIG_IGN); time.sleep(60)")
        await r.ask("ben", "mig-1g.5gb")
        await stop(r, "ada", server)
        await r.engine.watcher.refresh()
        assert r.positions() == {"ben": 1}, "not given while the left-over lives"
        assert left.wait(timeout=patient(5)) == -signal.SIGTERM
        await r.engine.watcher.refresh()
        assert r.positions() == {"ben": 0}


async def test_a_double_forked_daemon_holds_the_device_until_it_is_ended(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        note = tmp_path / "daemon"
        with_mark(r, state, DAEMON, str(note))
        pid = int(await appears(note))
        started = procfs.start_time(pid)
        await r.ask("ben", "mig-1g.5gb")
        await stop(r, "ada", server)
        await r.engine.watcher.refresh()
        assert r.positions() == {"ben": 1}
        await dies(pid, started)
        await r.engine.watcher.refresh()
        assert r.positions() == {"ben": 0}


async def test_a_process_without_its_mark_that_holds_the_device_is_named_and_runs_on(tmp_path: Path) -> None:
    """``env -u JUPYTERHUB_GPU_LEASE`` kept a GPU for ever, and nobody was told who held it."""
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        unmarked = started_before(r, "MIG-small-0")
        r.gpus.pids["MIG-small-0"] = (unmarked.pid,)
        await stop(r, "ada", server)
        await r.engine.watcher.refresh()
        (lease,) = await r.engine.leases()
        assert lease.state == "ending" and f"(pid {unmarked.pid}, " in lease.processes[0]
        r.hands.pass_time(timedelta(seconds=30))
        await r.engine.watcher.refresh()
        assert unmarked.poll() is None, "whose it is nobody knows"
        r.gpus.pids["MIG-small-0"] = ()
        await r.engine.watcher.refresh()
        assert (await r.engine.leases()) == ()


async def test_what_ignores_sigterm_is_killed_after_10_s_and_shown_to_admins_meanwhile(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        note = tmp_path / "stubborn"
        left = with_mark(r, state, STUBBORN, str(note))
        await appears(note)
        await stop(r, "ada", server)
        await r.engine.watcher.refresh()
        (lease,) = await r.engine.leases()
        assert lease.state == "ending" and f"pid {left.pid}" in lease.processes[0]
        r.hands.pass_time(timedelta(seconds=9))
        await r.engine.watcher.refresh()
        assert left.poll() is None
        r.hands.pass_time(timedelta(seconds=2))
        await r.engine.watcher.refresh()
        assert left.wait(timeout=patient(5)) == -signal.SIGKILL
        await r.engine.watcher.refresh()
        assert (await r.engine.leases()) == ()


async def test_a_hub_that_is_away_saves_no_left_over_from_being_killed(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        note = tmp_path / "stubborn"
        left = with_mark(r, state, STUBBORN, str(note))
        await appears(note)
        await stop(r, "ada", server)
        r.hub.away = "no answer"
        await r.engine.reconciler.reconcile()
        await r.engine.watcher.refresh()
        r.hands.pass_time(timedelta(seconds=11))
        await r.engine.watcher.refresh()
        assert left.wait(timeout=patient(5)) == -signal.SIGKILL


async def test_a_mark_of_a_lease_that_is_none_is_a_foreign_process(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        forged = started_before(r, "MIG-small-0", JUPYTERHUB_GPU_LEASE="no-lease-of-ours")
        r.gpus.pids["MIG-small-0"] = (forged.pid,)
        await r.engine.watcher.refresh()
        offer = next(o for o in r.engine.form("ada", "", (), False).offers if o.id == "mig-1g.5gb")
        assert (offer.free, offer.held_by_others) == (0, 1)


async def test_a_stop_that_the_hub_takes_back_leaves_the_server_its_device(tmp_path: Path) -> None:
    """The hub accepted a stop, failed at it, and says the server is ready: it is no server without a GPU."""
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        await r.engine.stopped(Stopped("ada", ""))
        assert [lease.state for lease in await r.engine.leases()] == ["ending"]
        r.hands.pass_time(timedelta(seconds=1))
        r.hub.run("ada", pid=server.pid)
        await r.engine.reconciler.reconcile()
        assert [lease.state for lease in await r.engine.leases()] == ["running"]
        assert r.engine.state.facts[("ada", "")].lease == (await r.engine.leases())[0].lease


async def test_a_stop_after_one_that_was_taken_back_asks_its_left_overs_before_it_kills_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        left, sent = with_mark(r, state, "import time; time.sleep(60)"), list[int]()
        monkeypatch.setattr(procfs, "send_signal", lambda pid, started, signum: sent.append(signum))
        await r.engine.watcher.refresh()
        await r.engine.stopped(Stopped("ada", ""))
        await r.engine.watcher.end_again(r.engine.state.leases[(await r.engine.leases())[0].lease])
        assert set(sent) == {signal.SIGTERM}
        r.hands.pass_time(timedelta(seconds=11))
        r.hub.run("ada", pid=server.pid)
        await r.engine.reconciler.reconcile()
        await r.engine.watcher.refresh()
        assert [lease.state for lease in await r.engine.leases()] == ["running"]
        sent.clear()
        await stop(r, "ada", server)
        await r.engine.watcher.refresh()
        assert sent == [signal.SIGTERM] and left.poll() is None


async def test_a_process_that_lost_its_mark_holds_the_device_as_long_as_the_driver_lists_it(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        r.gpus.pids["MIG-small-0"] = (4242,)
        await stop(r, "ada", server)
        await r.engine.watcher.refresh()
        assert [lease.state for lease in await r.engine.leases()] == ["ending"]
        r.gpus.pids["MIG-small-0"] = ()
        await r.engine.watcher.refresh()
        assert (await r.engine.leases()) == ()


async def test_a_foreign_process_makes_the_device_held_by_others_without_a_name(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        r.gpus.pids["MIG-small-0"] = (1,)
        await r.engine.watcher.refresh()
        offer = next(o for o in r.engine.form("ada", "", (), False).offers if o.id == "mig-1g.5gb")
        assert (offer.free, offer.total, offer.held_by_others) == (1, 2, 1)
        state = await r.ask("ada", "mig-1g.5gb")
        assert state.grant is not None and state.grant.uuid == "MIG-small-1"
        waiting = await r.ask("ben", "mig-1g.5gb")
        assert "1 of them by programs that this hub did not start" in waiting.reason.message


async def test_a_reused_pid_is_not_the_server(tmp_path: Path) -> None:
    """T17: after a restart a pid alone is not the server: another process may have it."""
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        server.kill()
        server.wait()
        lease = r.engine.state.lease_of("ada", "")
        assert lease is not None and state.grant is not None
        other = replace(lease, pid=os.getpid(), pid_started=(procfs.start_time(os.getpid()) or 0) - 1)
        await r.engine.state.commit(Changes(leases=(other,)))
        await r.engine.watcher.refresh()
        assert (await r.engine.leases()) == ()


async def test_a_server_that_crashes_by_itself_frees_its_device_without_a_word_from_the_hub(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        server.kill()
        server.wait()
        await r.engine.watcher.refresh()
        assert (await r.engine.leases()) == ()


async def test_a_lease_whose_device_is_gone_is_lost_and_free_again_only_as_the_same_device(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        device = r.gpus.devices.pop()
        await r.engine.watcher.refresh()
        assert [(lease.state, lease.profile) for lease in await r.engine.leases()] == [("lost", "1g.5gb")]
        assert "gone from the machine" in r.engine.form("ada", "", (), False).notices[0].text
        state = r.engine.server_state("ada", "")
        assert state is not None and state.warnings == (explain("gpu-lost"),)
        r.gpus.devices.append(replace(device, gpu_instance_id=99))
        await r.engine.watcher.refresh()
        assert [lease.state for lease in await r.engine.leases()] == ["lost"], (
            "the same UUID in another place is another device"
        )
        r.gpus.devices[:] = [device]
        await r.engine.watcher.refresh()
        assert [lease.state for lease in await r.engine.leases()] == ["running"]


@pytest.mark.parametrize("first", [None, 7])
async def test_a_lease_keeps_its_device_where_a_reading_lacks_the_instance(tmp_path: Path, first: int | None) -> None:
    whole = replace(small(0), placement=Placement(3, 1))
    less = replace(whole, gpu_instance_id=None, placement=None)
    async with room(tmp_path, less if first is None else whole) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.devices[:] = [whole if first is None else less]
        r.engine.state.devices = {}  # as after a start anew
        await r.engine.watcher.refresh()
        assert [lease.state for lease in await r.engine.leases()] == ["running"]
        assert [state.present for state in r.engine.state.devices.values()] == [True]
        assert (await r.ask("ben", "mig-1g.5gb")).grant is None


async def test_gpus_that_cannot_be_read_are_unknown_and_nobody_is_admitted(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        r.gpus.gone = "the driver does not answer"
        r.hands.pass_time(timedelta(minutes=2))
        await r.engine.watcher.refresh()
        offer = next(o for o in r.engine.form("ada", "", (), False).offers if o.id == "mig-1g.5gb")
        assert offer.free is None and offer.total is None
        waiting = await r.ask("ada", "mig-1g.5gb")
        assert waiting.answer == "wait" and waiting.reason.reason == "unknown-inventory"
        cpu = await r.ask("ben", "cpu")
        assert cpu.answer == "admit"
        r.gpus.gone = ""
        await r.engine.watcher.refresh()
        assert r.positions()["ada"] == 0


async def test_a_dead_start_is_cleared_before_its_ticket_is_admitted_again(tmp_path: Path) -> None:
    """The hub was killed between the start of the process and remembering it."""
    async with room(tmp_path, small(0)) as r:
        state = await r.ask("ada", "mig-1g.5gb")
        orphan = r.process(state)
        again = await r.ask("ada", "mig-1g.5gb")
        assert again.answer == "admit" and again.grant is not None and state.grant is not None
        assert again.grant.lease == state.grant.lease
        assert orphan.wait(timeout=patient(5)) in (-signal.SIGTERM, -signal.SIGKILL)


async def test_a_server_that_ran_before_is_adopted_and_its_device_held(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        old = started_before(r, "MIG-small-0")
        r.hub.run("ada", pid=old.pid)
        await appears_in_proc(old.pid)
        await r.engine.reconciler.reconcile()
        (lease,) = await r.engine.leases()
        assert (lease.user, lease.uuid, lease.adopted) == ("ada", "MIG-small-0", True)
        state = await r.ask("ben", "mig-1g.5gb")
        assert state.grant is not None and state.grant.uuid == "MIG-small-1"
        assert r.engine.server_state("ada", "").countdown is None  # type: ignore[union-attr]
        old.kill()
        old.wait()
        await r.engine.watcher.refresh()
        assert [lease.user for lease in await r.engine.leases()] == ["ben"]


async def appears_in_proc(pid: int) -> None:
    """The child has become its own program (before that it still shows its parent's environment)."""
    await soon(lambda: (found := procfs.describe(pid)) is not None and found.device == "MIG-small-0")


async def test_an_adopted_server_holds_the_device_on_which_the_driver_lists_one_of_its_processes(
    tmp_path: Path,
) -> None:
    """No word in its environment: the driver's list, and whose child it is, say it. It may begin so later."""
    note = tmp_path / "child"
    async with room(tmp_path, small(0), small(1)) as r:
        old = a_parent(r, note)
        child = int(await appears(note))
        r.hub.run("ada", pid=old.pid)
        await r.engine.reconciler.reconcile()
        assert (await r.engine.leases()) == ()
        assert r.engine.state.facts[("ada", "")].offer == "cpu"
        r.gpus.pids["MIG-small-1"] = (child,)
        await r.engine.watcher.refresh()
        r.hands.pass_time(timedelta(seconds=30))
        await r.engine.reconciler.reconcile()
        (lease,) = await r.engine.leases()
        assert (lease.user, lease.uuid, lease.adopted) == ("ada", "MIG-small-1", True)
        await r.engine.watcher.refresh()
        offer = next(o for o in r.engine.form("ben", "", (), False).offers if o.id == "mig-1g.5gb")
        assert (offer.free, offer.held, offer.held_by_others) == (1, 1, 0)
        r.gpus.pids["MIG-small-0"] = (os.getpid(),)
        await r.engine.watcher.refresh()
        offer = next(o for o in r.engine.form("ben", "", (), False).offers if o.id == "mig-1g.5gb")
        os.kill(child, signal.SIGKILL)
        assert (offer.free, offer.held, offer.held_by_others) == (0, 1, 1), "of the other device it says nothing"


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


async def test_a_device_that_cannot_be_read_is_not_known_to_be_free(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        r.gpus.unread = {"MIG-small-0"}
        await stop(r, "ada", server)
        for gone in ("", "the driver does not answer", ""):
            r.gpus.gone = gone
            await r.engine.watcher.refresh()
            assert [lease.state for lease in await r.engine.leases()] == ["ending"]
        r.gpus.unread = set()
        r.gpus.pids["MIG-small-0"] = None
        await r.engine.watcher.refresh()
        assert (await r.engine.leases()) == (), "a driver that lists no processes leaves it to the marks"


@pytest.mark.parametrize(
    ("adopted", "marked", "after"),
    [(False, False, "running"), (False, True, "running"), (True, False, "ended"), (True, True, "running")],
)
async def test_a_server_without_a_pid_holds_its_device_by_its_marks_or_until_the_hub_has_none(
    tmp_path: Path, adopted: bool, marked: bool, after: str
) -> None:
    """An adopted one has no marks of ours: where its pid is not known, nothing says that it is there."""
    async with room(tmp_path, small(0)) as r:
        state = await r.ask("ada", "mig-1g.5gb")
        await r.engine.started(state.ticket, Started(state.attempt, ready=True))
        if marked:
            await appears_marked(r.process(state).pid)
        (lease,) = r.engine.state.leases.values()
        await r.engine.state.commit(Changes(leases=(replace(lease, adopted=adopted),)))
        await r.engine.watcher.refresh()
        assert [lease.state for lease in await r.engine.leases()] == ([] if after == "ended" else [after])
        for seconds, listed, state in ((1, True, "running"), (1, False, "running"), (60, False, "ending")):
            r.hub.run("ada") if listed else r.hub.running.clear()
            r.hands.pass_time(timedelta(seconds=seconds))
            await r.engine.reconciler.reconcile()
            assert [lease.state for lease in await r.engine.leases()] == ([] if after == "ended" else [state])


async def test_a_lease_that_runs_without_any_process_for_a_minute_ends(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state = await r.ask("ada", "mig-1g.5gb")
        await r.engine.started(state.ticket, Started(state.attempt, ready=True))
        for seconds, states in ((0, ["running"]), (59.9, ["running"]), (0.1, [])):
            r.hands.pass_time(timedelta(seconds=seconds))
            await r.engine.watcher.refresh()
            assert [lease.state for lease in await r.engine.leases()] == states


async def test_a_process_that_was_there_in_between_begins_the_minute_anew(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state = await r.ask("ada", "mig-1g.5gb")
        await r.engine.started(state.ticket, Started(state.attempt, ready=True))
        await r.engine.watcher.refresh()
        process = r.process(state)
        await appears_marked(process.pid)
        r.hands.pass_time(timedelta(seconds=59))
        await r.engine.watcher.refresh()
        process.kill()
        process.wait()
        for seconds, states in ((1, ["running"]), (59, ["running"]), (1, [])):
            r.hands.pass_time(timedelta(seconds=seconds))
            await r.engine.watcher.refresh()
            assert [lease.state for lease in await r.engine.leases()] == states


async def unreadable(r: Room, user: str = "root") -> TicketStatus:
    """A server whose process is not known, of an account into whose processes this one may not look: root's."""
    state = await r.ask(user, "mig-1g.5gb")
    await r.engine.started(state.ticket, Started(state.attempt, ready=True))
    r.hub.run(user)
    await r.engine.watcher.refresh()
    return state


async def states(r: Room, *, seconds: float = 0) -> list[str]:
    r.hands.pass_time(timedelta(seconds=seconds))
    await r.engine.watcher.refresh()
    return [lease.state for lease in await r.engine.leases()]


@pytest.mark.needs("plain-user")
async def test_a_lease_whose_marks_cannot_be_read_does_not_end_for_want_of_them(tmp_path: Path) -> None:
    """Its MIG device was given to the next person after a minute, while its server computed on it."""
    async with room(tmp_path, small(0)) as r:
        await unreadable(r)
        await r.ask("ben", "mig-1g.5gb")
        for _ in range(4):
            assert await states(r, seconds=31) == ["running"]
        assert r.positions() == {"ben": 1}
        r.hub.running.pop(("root", ""))
        await r.engine.stopped(Stopped("root", ""))
        r.gpus.pids["MIG-small-0"] = (4242,)
        assert await states(r, seconds=600) == ["ending"], "the driver lists a process"
        r.gpus.pids["MIG-small-0"] = ()
        await states(r)
        assert r.positions() == {"ben": 0}, "the hub says that it stopped, and the driver lists none"


@pytest.mark.needs("plain-user")
async def test_without_the_drivers_list_the_spawners_poll_ends_a_lease_whose_marks_cannot_be_read(
    tmp_path: Path,
) -> None:
    async with room(tmp_path, small(0), small(1), small(2)) as r:
        r.gpus.pids = dict.fromkeys(f"MIG-small-{n}" for n in range(3))
        for user, polled in (("root", True), ("daemon", False), ("bin", None)):
            await unreadable(r, user)
            lease = r.engine.state.lease_of(user, "")
            assert lease is not None
            await r.engine.state.commit(Changes(leases=(replace(lease, user="root", server=user),)))
            await r.engine.stopped(Stopped("root", user, polled=polled))
        r.hub.running.clear()
        await r.engine.watcher.refresh()
        assert [lease.server for lease in await r.engine.leases()] == ["daemon", "bin"]
        r.hands.pass_time(timedelta(seconds=1))
        r.hub.away = "no answer"
        await r.engine.reconciler.reconcile()
        await r.engine.watcher.refresh()
        assert [lease.server for lease in await r.engine.leases()] == ["daemon", "bin"], (
            "a hub that is away proves nothing"
        )
        r.hub.away = ""
        await r.engine.reconciler.reconcile()
        await r.engine.watcher.refresh()
        assert [lease.server for lease in await r.engine.leases()] == ["daemon"], "the other's stop has failed"


@pytest.mark.whole
@pytest.mark.needs("plain-user")
@pytest.mark.parametrize("broken", ["driver", "device", "list"])
async def test_an_admin_releases_with_a_reason_a_lease_of_whose_end_there_is_no_proof(
    tmp_path: Path, broken: str
) -> None:
    """And no other: neither one whose server runs, nor one on whose device the driver lists a process."""
    async with room(tmp_path, small(0)) as r:
        await unreadable(r)
        (lease,) = r.engine.state.leases
        with pytest.raises(Refused):
            await r.engine.give_up(lease, "ina", "it is over")
        await r.engine.stopped(Stopped("root", "", polled=None))
        r.hub.running.clear()
        r.hub.away = "no answer"
        await r.engine.reconciler.reconcile()
        r.gpus.gone = "the driver does not answer" if broken == "driver" else ""
        r.gpus.unread = {"MIG-small-0"} if broken == "device" else set()
        r.gpus.pids["MIG-small-0"] = None
        assert await states(r) == await states(r, seconds=30) == ["ending"]
        assert r.engine.watcher.unproved == {}
        assert await states(r, seconds=31) == ["ending"]
        overview = await r.engine.admin_overview(Asked())
        assert [each.reason for each in overview.unproved.values()] == [
            "unproved-device" if broken == "list" else "unproved-unread"
        ]
        assert "health-unproved" in {each.reason for each in overview.health.findings}
        with pytest.raises(Refused) as refused:
            await r.engine.give_up(lease, "ina")
        assert refused.value.reason == "reason-needed"
        await r.engine.give_up(lease, "ina", "nothing of it runs")
        assert (await r.engine.leases()) == () and r.engine.watcher.unproved.keys() <= {lease}
        (row, *_) = await r.engine.journal(JournalFilter(kinds=("given-up",)), 5)
        assert (row.actor, row.reasons[0].params["why"]) == ("admin ina", "nothing of it runs")
        assert [record.end for record in (await r.engine.usage(None, None)).uses] == ["admin"]


@pytest.mark.needs("plain-user")
async def test_a_restart_of_the_service_ends_no_lease_whose_marks_cannot_be_read(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await unreadable(r)
        hub, hands = r.hub, r.hands
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        assert await states(r) == await states(r, seconds=90) == ["running"]
        await r.engine.reconciler.reconcile()
        assert await states(r, seconds=90) == ["running"]
        hub.running.clear()
        for seconds, then in ((1, ["running"]), (61, [])):
            r.hands.pass_time(timedelta(seconds=seconds))
            await r.engine.reconciler.reconcile()
            assert await states(r) == then, "the hub's lists lack it, and the driver lists none"


@pytest.mark.parametrize("how", ["dead", "another's"])
async def test_a_pid_that_is_not_alive_or_anothers_is_not_adopted(tmp_path: Path, how: str) -> None:
    async with room(tmp_path, small(0)) as r:
        old = started_before(r, "MIG-small-0", **({"JUPYTERHUB_USER": "ben"} if how != "dead" else {}))
        await appears_in_proc(old.pid)
        if how == "dead":
            old.kill()
            old.wait()
        r.hub.run("ada", pid=old.pid)
        await r.engine.reconciler.reconcile()
        assert (await r.engine.leases()) == () and r.engine.state.facts == {}


async def test_a_server_whose_pid_the_hub_does_not_tell_is_adopted_without_a_device(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        r.gpus.pids["MIG-small-0"] = (os.getpid(),)
        await r.engine.watcher.refresh()
        r.hub.run("ada")
        await r.engine.reconciler.reconcile()
        assert (await r.engine.leases()) == ()
        assert r.engine.state.facts[("ada", "")].offer == "cpu"


async def appears_marked(pid: int) -> None:
    """The child has become its own program, with the mark of its lease."""
    await soon(lambda: (found := procfs.describe(pid)) is not None and found.lease is not None, 5)


async def test_a_server_that_the_hub_forgot_and_that_runs_keeps_its_device(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        r.hub.running.clear()
        for alive in (True, False):
            r.hands.pass_time(timedelta(minutes=1))
            await r.engine.reconciler.reconcile()
            await r.engine.watcher.refresh()
            assert [lease.state for lease in await r.engine.leases()] == (["running"] if alive else [])
            assert (("ada", "") in r.engine.state.facts) is alive
            server.kill()
            server.wait()


@pytest.mark.parametrize("where", ["own card", "other card"])
async def test_on_a_shared_card_only_the_processes_of_its_other_leases_are_accounted_for(
    tmp_path: Path, where: str
) -> None:
    cards = [Device(f"GPU-{n}", "NVIDIA A100-PCIE-40GB") for n in range(2)]
    async with room(tmp_path, *cards, offers=OfferConfig(fractions={"gpu": (0.5,)})) as r:
        _, ada = await r.run("ada", "gpu-0.5")
        other, server = await r.run("ben", "gpu-0.5" if where == "own card" else "gpu")
        await appears_marked(server.pid)
        r.gpus.pids["GPU-0"] = (server.pid,)
        await stop(r, "ada", ada)
        await r.engine.watcher.refresh()
        assert other.grant is not None and other.grant.uuid == ("GPU-0" if where == "own card" else "GPU-1")
        states = {lease.user: lease.state for lease in await r.engine.leases()}
        assert states == {"ben": "running"}
        await r.ask("cleo", "gpu-0.5")
        assert r.positions()["cleo"] == (0 if where == "own card" else 1), "who computes on another's card keeps it"
        assert [bool(r.engine.watcher.trespassers[card.identity]) for card in cards] == [where != "own card", False]
        state = r.engine.server_state("ben", "")
        assert state is not None and state.warnings == ()


async def test_a_stopped_server_whose_device_is_gone_holds_nothing(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        r.gpus.devices.clear()
        await stop(r, "ada", server)
        await r.engine.watcher.refresh()
        assert (await r.engine.leases()) == ()


async def test_a_server_that_is_gone_with_its_device_is_told_of_no_lost_device(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        r.gpus.devices.clear()
        server.kill()
        server.wait()
        await r.engine.watcher.refresh()
        assert (await r.engine.leases()) == () and r.engine.form("ada", "", (), False).notices == ()
        assert [record.end for record in (await r.engine.usage(None, None)).uses] == ["hub-stopped"]


async def test_the_processes_of_a_lease_are_left_overs_only_when_its_server_has_ended(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, server = await r.run("ada", "mig-1g.5gb")
        await appears_marked(server.pid)
        for state, shown in (("running", 0), ("ending", 1)):
            await r.engine.watcher.refresh()
            (lease,) = await r.engine.leases()
            assert (lease.state, len(lease.processes)) == (state, shown)
            await r.engine.stopped(Stopped("ada", ""))


async def test_an_adopted_lease_is_one_of_a_whole_device_whose_lifetime_begins_now(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        old = started_before(r, "MIG-small-0")
        r.hub.run("ada", pid=old.pid)
        await appears_in_proc(old.pid)
        await r.engine.reconciler.reconcile()
        (lease,) = r.engine.state.leases.values()
        now = r.engine.state.clock.now()
        assert (lease.share, lease.since, lease.ready_at, lease.ends_at) == (WHOLE, now, now, now + LIFETIME)
        assert (lease.pid, lease.pid_started) == (old.pid, procfs.start_time(old.pid))


async def test_a_device_that_is_leased_is_not_adopted_by_another_server_that_names_it(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        eve = started_before(r, "MIG-small-0")
        r.hub.run("eve", pid=eve.pid)
        await appears_in_proc(eve.pid)
        await r.engine.reconciler.reconcile()
        assert [lease.user for lease in await r.engine.leases()] == ["ada"]
        assert r.engine.state.facts[("eve", "")].offer == "cpu"


async def test_a_start_that_looks_after_its_place_ends_none_of_its_own_processes(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        child = r.process(ada)
        await appears_marked(child.pid)
        again = await r.engine.ask(Ask("ada", "", ("mig-1g.5gb",), ticket=ada.ticket))
        assert (again.answer, again.attempt) == ("admit", ada.attempt)
        assert child.poll() is None


async def test_a_server_of_ours_on_cpu_only_is_given_no_device_for_using_one(tmp_path: Path) -> None:
    """It is shown as a program of others: only what ran before this product holds what it uses."""
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", "cpu")
        r.gpus.pids["MIG-small-0"] = (child.pid,)
        await r.engine.watcher.refresh()
        r.hands.pass_time(timedelta(seconds=30))
        await r.engine.reconciler.reconcile()
        assert (await r.engine.leases()) == ()
        assert r.engine.state.facts[("ada", "")].offer == "cpu"
