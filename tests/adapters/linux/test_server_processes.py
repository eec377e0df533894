"""A server is found by its hub's mark and by the port it listens at; what it has started is none. Real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hub_extensions.adapters.linux import procfs
from hub_extensions.adapters.linux.server_processes import HUB_MARK, mark_of, servers
from hub_extensions.core.culling.orphans import ServerProcess
from tests.patience import until
from tests.ports import free_port

pytestmark = pytest.mark.programs
SERVER = """
import os, socket, subprocess, sys, time
port = int(os.environ["PORT"])
with socket.create_server(("127.0.0.1", port)):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    print(child.pid, flush=True)
    time.sleep(60)
"""
MARK = mark_of("a secret of this test")


@contextmanager
def server(listens_at: int, **changes: str) -> Iterator[tuple[int, int]]:
    """A process that listens at a port, and one that it has started."""
    environment = {
        **os.environ,
        "PORT": str(listens_at),
        HUB_MARK: MARK,
        "JUPYTERHUB_USER": "ada",
        "JUPYTERHUB_SERVER_NAME": "lab",
        "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{listens_at}/user/ada/lab/",
        **changes,
    }
    process = subprocess.Popen([sys.executable, "-c", SERVER], env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        yield process.pid, child
        os.kill(child, 9)
    finally:
        process.kill()
        process.communicate()


def test_the_one_that_listens_is_the_server_and_what_it_started_is_not() -> None:
    with server(free_port()) as (pid, child):
        until(lambda: procfs.environment(child).get(HUB_MARK) == MARK)
        (found,) = servers(MARK)
        started = procfs.start_time(pid)
        assert started is not None
        assert found == ServerProcess(pid, started, found.ancestors, "ada", "lab")
        assert os.getpid() in found.ancestors and child not in found.ancestors
    assert servers(MARK) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {HUB_MARK: mark_of("another hub's")},
        {"JUPYTERHUB_GPU_LEASE": "l1"},  # is found by its lease
        {"JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:1/user/ada/lab/"},
        {"JUPYTERHUB_SERVICE_URL": "http://127.0.0.1:99999999/"},
        {"JUPYTERHUB_SERVICE_URL": ""},
    ],
)
def test_what_leaves_a_doubt_is_no_server_of_this_hub(changes: dict[str, str]) -> None:
    with server(free_port(), **changes):
        assert servers(MARK) == ()


def test_a_mark_tells_hubs_apart_and_not_their_secret() -> None:
    assert mark_of("one") == mark_of("one") != mark_of("two")
    assert "one" not in mark_of("one")
    assert (mark_of(""), servers("")) == ("", ())
