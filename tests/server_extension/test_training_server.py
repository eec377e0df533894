"""A real Jupyter server and real programs in it: their trainings in the panel, in the service, and after their end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from tests.fakes.panel_service import TOKEN, PanelService, a_state
from tests.fakes.user_server import LOGIN_TOKEN, UserServer
from tests.patience import patient, until
from tests.server_extension.live_page import page_of

pytestmark = pytest.mark.programs

WRITER = """\
import json, os, sys, time
folder, run, seconds = os.environ["JUPYTERHUB_GPU_PROGRESS"], sys.argv[1], float(sys.argv[2])
started, steps = time.time(), 0
while True:
    steps += 20
    state = "running" if steps < 400 else "done"
    born = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
    fields = {
        "version": 1, "run": run, "pid": os.getpid(), "born": born, "name": "mnist <b>", "library": "loop",
        "state": state, "started": started, "at": time.time(), "steps": steps, "start": 0, "total": 400,
        "epochs": 20, "epoch_steps": 20, "patience": None, "first": 0.1, "group_steps": 1,
        "groups": [seconds] * min(64, steps - 1), "rest_steps": 0, "rest": 0.0,
    }
    with open(f"{folder}/.{run}.tmp", "w") as file:
        json.dump(fields, file)
    os.replace(f"{folder}/.{run}.tmp", f"{folder}/{run}.json")
    if state == "done":
        break
    time.sleep(seconds * 20)
"""
"""A program that reports 400 steps of so many seconds, in an order that any language could write."""


@pytest.fixture(scope="module")
def service() -> Iterator[PanelService]:
    service = PanelService().come()
    service.state = a_state(can_notify=True)
    yield service
    service.go()


@pytest.fixture(scope="module")
def server(service: PanelService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserServer]:
    environ = {"JUPYTERHUB_GPU_SERVICE_URL": service.url, "JUPYTERHUB_API_TOKEN": TOKEN}
    server = UserServer(tmp_path_factory.mktemp("server"), environ)
    (server.work / "writer.py").write_text(WRITER)
    yield server
    server.stop()


def trainings(server: UserServer) -> dict[str, dict[str, Any]]:
    status, snapshot = server.request("gpu/snapshot")
    assert status == 200
    return {training["run"]: training for training in snapshot["trainings"]}


async def in_a_terminal(server: UserServer, command: str) -> None:
    """Type a command into a new terminal."""
    status, terminal = server.request("api/terminals", "POST")
    assert status == 200, terminal
    url = f"{server.url.replace('http', 'ws', 1)}terminals/websocket/{terminal['name']}"
    request = HTTPRequest(url, headers={"Authorization": f"token {LOGIN_TOKEN}"}, request_timeout=patient(20))
    connection = await websocket_connect(request)
    await connection.write_message(json.dumps(["stdin", f"{command}\r"]))
    await connection.read_message()
    connection.close()


async def test_a_program_in_a_terminal_is_shown_to_the_end_and_killed_ones_have_vanished(
    server: UserServer, service: PanelService
) -> None:
    done, killed = "1" * 16, "2" * 16
    await in_a_terminal(server, f"python3 writer.py {done} 0.02 & python3 writer.py {killed} 1.0 &")
    folder = server.directory / "runtime" / "gpu-progress"
    until((folder / f"{killed}.json").exists, 20)
    began = time.monotonic()
    until(lambda: killed in trainings(server), 15)
    print(f"shown after {time.monotonic() - began:.1f} s")
    assert folder.stat().st_mode & 0o777 == 0o700
    async with page_of(server) as page:  # the tab is opened again
        await page.until(lambda: page.snapshot, 6)
        (training,) = [each for each in page.snapshot["trainings"] if each["run"] == killed]
    assert (training["name"], training["state"], training["outside"]) == ("mnist <b>", "running", False)
    assert training["epoch"] == training["steps"] // 20 + 1
    until(lambda: trainings(server)[done]["state"] == "done", 30)
    history = json.loads((server.directory / "data" / "gpu-training-history.json").read_text())
    assert [run["run"] for run in history["runs"]] == [done]
    assert trainings(server)[killed]["state"] == "running"
    until(lambda: service.progress, 20)
    assert server.request(f"gpu/training-notice?run={killed}&on=1", "POST") == (204, "")
    assert trainings(server)[killed]["notify"]
    pid = json.loads((folder / f"{killed}.json").read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    until(lambda: trainings(server)[killed]["state"] == "vanished", 15)
    print(f"vanished after {time.monotonic() - began:.1f} s")
    until(lambda: service.progress[-1]["left_seconds"] == 0, 20)
    assert "Traceback" not in server.log.read_text()


def test_kernels_know_the_folder(server: UserServer, tmp_path: Path) -> None:
    status, kernel = server.request("api/kernels", "POST")
    assert status == 201, kernel
    expected = f"JUPYTERHUB_GPU_PROGRESS={server.directory / 'runtime' / 'gpu-progress'}".encode()
    found = [
        environ
        for process in Path("/proc").iterdir()
        if process.name.isdigit() and kernel["id"].encode() in _read(process / "cmdline")
        for environ in _read(process / "environ").split(b"\0")
        if environ.startswith(b"JUPYTERHUB_GPU_PROGRESS=")
    ]
    assert found == [expected]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("?run=ffffffffffffffff&on=1", 404, "unknown-training"),
        ("?on=1", 404, "unknown-training"),
        ("?run=1111111111111111", 400, ""),
        ("?run=1111111111111111&on=yes", 400, ""),
        ("", 400, ""),
    ],
)
def test_a_notice_for_what_does_not_run_is_refused(server: UserServer, query: str, status: int, said: str) -> None:
    found, body = server.request(f"gpu/training-notice{query}", "POST")
    assert (found, body["reason"]) == (status, said)
    assert body["message"]


def test_more_time_is_asked_of_the_service(server: UserServer, service: PanelService) -> None:
    status, state = server.request("gpu/extend", "POST")
    assert (status, state["title"], service.extends) == (200, "MIG 1g.5gb", 1)
    service.refuse = (409, {"message": "No.", "field": "", "reason": "extend-none-left", "params": {}})
    try:
        status, problem = server.request("gpu/extend", "POST")
    finally:
        service.refuse = None
    assert (status, problem["reason"]) == (409, "extend-none-left")
