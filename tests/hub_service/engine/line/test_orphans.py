"""A server without a GPU that its hub never noted is ended, by proof: real processes, a hub as told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.linux.server_processes import HUB_MARK
from hub_extensions.hub_service.engine.line.orphans import PROVED_SECONDS
from tests.hub_service.engine.room import Room, room
from tests.patience import until
from tests.ports import free_port

pytestmark = pytest.mark.programs
SERVER = """
import signal, socket, sys, time
if sys.argv[2:]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    print("listening", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    children: list[subprocess.Popen[bytes]] = []
    yield children
    for child in children:
        child.kill()
        child.communicate()


def server(r: Room, started: list[subprocess.Popen[bytes]], *deaf: str) -> subprocess.Popen[bytes]:
    """As the hub started it, seconds before its end."""
    port = free_port()
    environment = {
        **os.environ,
        HUB_MARK: r.engine.orphans.mark,
        "JUPYTERHUB_USER": "ada",
        "JUPYTERHUB_SERVER_NAME": "",
        "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}/user/ada/",
    }
    child = subprocess.Popen([sys.executable, "-c", SERVER, str(port), *deaf], env=environment, stdout=subprocess.PIPE)
    started.append(child)
    assert child.stdout is not None and child.stdout.readline() == b"listening\n"
    return child


async def pass_seconds(r: Room, *seconds: float) -> None:
    """With a list of the hub and a look after each."""
    for each in seconds:
        r.hands.pass_time(timedelta(seconds=each))
        await r.engine.reconciler.reconcile()
        await r.engine.orphans.refresh()


async def test_a_server_that_the_hub_lacks_for_a_minute_is_ended(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    async with room(tmp_path) as r:
        child = server(r, started)
        await pass_seconds(r, 1, PROVED_SECONDS - 1)
        assert child.poll() is None
        await pass_seconds(r, 1)
        until(lambda: child.poll() is not None)
        assert r.engine.state.counts[("servers", "orphan-ended")] == 1
        await pass_seconds(r, 1)
        assert r.engine.state.counts[("servers", "orphan-ended")] == 1
        (row,) = [row for row in await r.engine.store.journal() if row.kind == "orphan-ended"]
        seen = f"the hub's lists have lacked it for 60 s, pid {child.pid}"
        assert (row.user, row.actor, row.evidence) == ("ada", "service", seen)


async def test_one_that_does_not_hear_is_killed_10_s_later(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    async with room(tmp_path) as r:
        child = server(r, started, "deaf")
        await pass_seconds(r, 1, PROVED_SECONDS, 9)
        assert child.poll() is None
        await pass_seconds(r, 1)
        until(lambda: child.poll() is not None)
        assert child.returncode == -9


async def test_in_doubt_it_runs_on(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    async with room(tmp_path) as r:
        child = server(r, started)
        r.hub.run("ada", pid=child.pid)
        await pass_seconds(r, 1, 600)
        r.hub.running.clear()
        await pass_seconds(r, 1, PROVED_SECONDS - 1)
        r.hub.away = "down"
        await pass_seconds(r, 1, 600)
        r.hub.away = ""
        await pass_seconds(r, 1, PROVED_SECONDS - 1)
        for _ in range(3):
            r.hands.pass_time(timedelta(seconds=30))
            await r.engine.orphans.refresh()  # without a new list of the hub
        r.hub.run("ada", ready=False)
        await pass_seconds(r, 1, 600)
        r.hub.running.clear()
        r.engine.state.touch("ada", "")
        await r.engine.orphans.refresh()
        assert child.poll() is None
        assert ("servers", "orphan-ended") not in r.engine.state.counts
