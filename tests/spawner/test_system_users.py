"""Servers of system users: a hub of root with ``GpuLocalSpawner`` and two accounts that every Debian has.

No account is added. The accounts have no home worth the name, which a server that is only a small script needs not.
"""

from __future__ import annotations

import pwd
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from hub_extensions.adapters.linux import procfs
from hub_extensions.core.messages import Started, Stopped
from tests.fakes.service import GpuServiceInATest
from tests.hubs import SINGLEUSER, Hub, until
from tests.patience import patient
from tests.spawner.real_hub import ours

pytestmark = [pytest.mark.hub, pytest.mark.needs("root")]
ONE = "mig-1g.5gb"
LOCAL = """
c.JupyterHub.spawner_class = "hub_extensions.spawner.local.GpuLocalSpawner"
c.JupyterHub.cleanup_servers = False
"""


@pytest.fixture
def service() -> Iterator[GpuServiceInATest]:
    with GpuServiceInATest({ONE: 2}) as running:
        yield running


@pytest.fixture
def command() -> Iterator[list[str]]:
    """The small server where every account reaches it, and a Python that every account may run."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        script = Path(shutil.copy(SINGLEUSER[1], folder))
        script.chmod(0o644)
        yield [python, str(script)]


@pytest.fixture
def hub(tmp_path: Path, service: GpuServiceInATest, command: list[str]) -> Iterator[Hub]:
    with Hub(tmp_path / "hub", ours(service, f"{LOCAL}\nc.Spawner.cmd = {command}")) as running:
        running.add_users("daemon", "nobody")
        yield running


def ids_of(pid: int) -> set[int]:
    """Its real, effective, saved and file system uid."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid:"))
    return {int(number) for number in line.split()[1:]}


def test_a_server_runs_as_its_account_under_its_lease_and_ends_with_its_stop(
    hub: Hub, service: GpuServiceInATest
) -> None:
    """T18: nothing of it is root's, and nothing allows root."""
    account = pwd.getpwnam("nobody")
    hub.spawn("nobody", {"offer": ONE})
    hub.wait_ready("nobody")
    env = hub.environ("nobody")
    assert env["CUDA_VISIBLE_DEVICES"] == env["NVIDIA_VISIBLE_DEVICES"] == "MIG-t1"
    assert env["JUPYTERHUB_GPU_LEASE"] == service.lease_of("t1")
    assert env["HOME"] == account.pw_dir
    started = service.told_of(Started)[0]
    assert started.pid is not None and started.pid_started is not None
    assert ids_of(started.pid) == {account.pw_uid}
    marked = {process.pid: process for process in procfs.marked() if process.lease == service.lease_of("t1")}
    assert marked[started.pid].owner == "nobody"
    answer = requests.get(f"{hub.url}/user/nobody/args", timeout=patient(10)).json()
    assert not [word for word in answer["args"] if "root" in word]
    hub.stop_server("nobody")
    until(lambda: not procfs.alive(started.pid or 0, started.pid_started or 0), what="its process has ended")
    until(lambda: service.told_of(Stopped) == [Stopped("nobody", "", asked=True)], what="the stop was told")


def test_a_restarted_hub_still_knows_the_servers_of_its_accounts(hub: Hub, service: GpuServiceInATest) -> None:
    """T17: by pid and start time, whoever owns the process."""
    for name in ("daemon", "nobody"):
        hub.spawn(name, {"offer": ONE})
        hub.wait_ready(name)
    first, second = (hub.environ(name)["JUPYTERHUB_GPU_LEASE"] for name in ("daemon", "nobody"))
    assert first != second
    hub.kill()
    hub.start()
    until(lambda: hub.ready("daemon") and hub.ready("nobody"), what="both are known")
    hub.stop_server("daemon")
    until(lambda: hub.server("daemon") is None)
    left = {process.owner for process in procfs.marked() if process.lease in (first, second)}
    assert left == {"nobody"}


def test_who_has_no_account_is_told_so_and_holds_no_gpu(hub: Hub, service: GpuServiceInATest) -> None:
    hub.add_users("nobody-of-this-name")
    answer = hub.api("POST", "users/nobody-of-this-name/server", {"offer": ONE})
    assert answer.status_code == 409, answer.text
    assert "you have none there" in answer.json()["message"]
    assert not service.told
