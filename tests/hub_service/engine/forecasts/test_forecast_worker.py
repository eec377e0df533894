"""The worker process of the forecast: what it has of its service, and what happens when either of the two ends."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hub_extensions.hub_service.engine.forecasts import forecaster as forecasting
from hub_extensions.hub_service.engine.forecasts.forecast_worker import ForecastWorker
from tests.fakes.machine import small
from tests.hub_service.engine.forecasts.test_forecaster import SMALL, computed, note, offered, shown, with_past
from tests.hub_service.engine.room import Room, room
from tests.patience import patient, soon, until

pytestmark = pytest.mark.programs


@pytest.fixture
async def r(tmp_path: Path) -> AsyncIterator[Room]:
    """One small GPU, which ada holds; ben waits behind her. The likely waits are computed in a worker process."""
    async with room(tmp_path, small(0), calculator=ForecastWorker()) as r:
        await r.engine.reconciler.reconcile()
        await with_past(r)
        await r.run("ada", SMALL)
        await r.ask("ben", SMALL)
        yield r


def worker_of(r: Room) -> int:
    assert isinstance(r.engine.forecaster.calculator, ForecastWorker)
    pid = r.engine.forecaster.calculator.pid
    assert pid is not None
    return pid


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_it_computes_what_the_service_itself_would(r: Room, tmp_path: Path) -> None:
    await computed(r)
    in_process = tmp_path / "in-process"
    in_process.mkdir()
    async with room(in_process, small(0)) as other:
        await other.engine.reconciler.reconcile()
        await with_past(other)
        await other.run("ada", SMALL)
        await other.ask("ben", SMALL)
        await computed(other)
        assert shown(r, "ben") == shown(other, "ben") and offered(r) == offered(other)
    assert shown(r, "ben").p90_seconds is not None
    # numpy's own values would load numpy into the service
    assert b"numpy" not in pickle.dumps(r.engine.state.forecasts.waits)


@pytest.mark.whole
async def test_after_a_kill_another_process_loads_the_history_and_nothing_else_is_disturbed(
    r: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasting, "PAUSE", 0.01)
    monkeypatch.setattr(forecasting, "IMPORTS_EVERY", 0.1)
    task = asyncio.ensure_future(r.engine.forecaster.run())
    await soon(lambda: r.engine.state.forecasts.waits)
    killed, wait = worker_of(r), shown(r, "ben")
    os.kill(killed, signal.SIGKILL)
    assert shown(r, "ben") == wait, "the last answer is shown meanwhile"
    await r.ask("cid", SMALL)
    await soon(lambda: len(r.engine.state.forecasts.waits.tickets) == 2)  # type: ignore[union-attr]
    assert worker_of(r) != killed and not task.done()
    assert shown(r, "ben").p90_seconds == wait.p90_seconds and note(r) == "rough"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.whole
async def test_one_that_hangs_is_ended_and_the_wait_is_unknown_until_another_has_answered(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), calculator=ForecastWorker(limit_seconds=patient(1))) as r:
        await r.engine.reconciler.reconcile()
        await with_past(r)
        await r.run("ada", SMALL)
        await r.engine.forecaster.refresh()
        hung = worker_of(r)
        os.kill(hung, signal.SIGSTOP)
        await r.engine.forecaster.compute()
        assert not is_alive(hung)
        assert offered(r).p90_seconds is None and not offered(r).now
        await computed(r)
        assert offered(r).p90_seconds is not None and worker_of(r) != hung


async def test_a_stop_of_the_service_does_not_wait_for_an_answer(r: Room) -> None:
    await r.engine.forecaster.refresh()
    pid = worker_of(r)
    os.kill(pid, signal.SIGSTOP)
    task = asyncio.ensure_future(r.engine.forecaster.compute())
    await asyncio.sleep(0.1)
    assert not task.done()
    await r.engine.stop()
    await asyncio.wait_for(task, patient(1))
    assert not is_alive(pid)


@pytest.mark.whole
async def test_while_nobody_holds_or_waits_for_a_gpu_its_memory_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasting, "PAUSE", 0.01)
    monkeypatch.setattr(forecasting, "IDLE", 0.2)
    calculator = ForecastWorker()
    async with room(tmp_path, small(0), calculator=calculator) as r:
        await r.engine.reconciler.reconcile()
        await with_past(r)
        task = asyncio.ensure_future(r.engine.forecaster.run())
        await soon(lambda: r.engine.state.forecasts.waits)
        await soon(lambda: calculator.pid is None)
        assert r.engine.forecasts().pools[0].finished_uses == 24, "what was learned is still reported"
        await r.run("ada", SMALL)
        await r.ask("ben", SMALL)
        await soon(lambda: "p90" if shown(r, "ben").p90_seconds is not None else None)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


SERVICE = """
import os, socket, sys, time
from hub_extensions.hub_service.engine.forecasts.forecast_worker import ForecastWorker
listening = socket.create_server(("127.0.0.1", 0))
listening.set_inheritable(True)
worker = ForecastWorker()
worker.begin_history()
print(worker.pid, "numpy" in sys.modules, flush=True)
time.sleep(60)
"""


@pytest.mark.whole
@pytest.mark.parametrize("hangs", [False, True])
def test_it_has_no_socket_and_no_secret_of_the_service_and_ends_with_a_killed_one(tmp_path: Path, hangs: bool) -> None:
    secrets = {"JUPYTERHUB_API_TOKEN": "hidden", "GPU_SERVICE_SECRET": "hidden", "HOME": "/hidden"}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **secrets}
    command = [sys.executable, "-c", SERVICE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=tmp_path) as service:
        assert service.stdout is not None
        pid, numpy = service.stdout.readline().decode().split()
        assert is_alive(int(pid)) and numpy == "False"
        proc = Path("/proc") / pid
        assert b"hidden" not in proc.joinpath("environ").read_bytes() + proc.joinpath("cmdline").read_bytes()
        opened = [os.readlink(each) for each in proc.joinpath("fd").iterdir()]
        assert opened and not [each for each in opened if each.startswith("socket:")]
        assert proc.joinpath("oom_score_adj").read_text().strip() == "500"
        if hangs:
            os.kill(int(pid), signal.SIGSTOP)
        service.kill()
    until(lambda: not is_alive(int(pid)))
