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

PROGRAM = """\
import sys, time
from hub_extensions.progress import track
for _ in track(range(20), epochs=20, name=sys.argv[1]):
    time.sleep(float(sys.argv[2]))
"""


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
    (server.work / "train.py").write_text(PROGRAM)
    yield server
    server.stop()


def trainings(server: UserServer) -> dict[str, dict[str, Any]]:
    """The trainings that the panel shows, by their names."""
    status, snapshot = server.request("gpu/snapshot")
    assert status == 200
    return {training["name"]: training for training in snapshot["trainings"]}


async def in_a_terminal(server: UserServer, command: str) -> None:
    """Type a command into a new terminal."""
    status, terminal = server.request("api/terminals", "POST")
    assert status == 200, terminal
    url = f"{server.url.replace('http', 'ws', 1)}terminals/websocket/{terminal['name']}"
    await sent(url, ["stdin", f"{command}\r"])


async def in_a_notebook(server: UserServer, code: str) -> None:
    """Run a cell in a new kernel."""
    status, kernel = server.request("api/kernels", "POST")
    assert status == 201, kernel
    header = {"msg_id": "1", "msg_type": "execute_request", "session": "s", "username": "ada", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    url = f"{server.url.replace('http', 'ws', 1)}api/kernels/{kernel['id']}/channels"
    await sent(url, {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content})


async def sent(url: str, message: object) -> None:
    request = HTTPRequest(url, headers={"Authorization": f"token {LOGIN_TOKEN}"}, request_timeout=patient(20))
    connection = await websocket_connect(request)
    await connection.write_message(json.dumps(message))
    await connection.read_message()
    connection.close()


def pid_of(folder: Path, run: str) -> int:
    return int(json.loads((folder / f"{run}.json").read_text())["pid"])


async def test_a_notebook_and_two_programs_are_shown_to_their_ends(server: UserServer, service: PanelService) -> None:
    """One program comes to its end, the other is killed, and so is the notebook's kernel."""
    await in_a_terminal(server, "python3 train.py short 0.02 & python3 train.py '<b>long' 1.0 &")
    cell = PROGRAM.replace("sys.argv[1]", "'notebook'").replace("sys.argv[2]", "0.5")
    await in_a_notebook(server, cell)
    folder = server.directory / "runtime" / "gpu-progress"
    until(lambda: len(list(folder.glob("*.json"))) == 3, 20)
    began = time.monotonic()
    until(lambda: trainings(server).keys() == {"short", "<b>long", "notebook"}, 10)
    assert time.monotonic() - began <= patient(6)
    assert folder.stat().st_mode & 0o777 == 0o700
    async with page_of(server) as page:  # the tab is opened again
        await page.until(lambda: page.snapshot, 6)
        shown = [each for each in page.snapshot["trainings"] if each["state"] == "running"]
    assert {each["name"] for each in shown} >= {"<b>long", "notebook"}
    assert not any(each["outside"] for each in shown)
    until(lambda: trainings(server)["short"]["state"] == "done", 30)
    file = server.directory / "data" / "gpu-training-history.json"
    history = until(lambda: file.exists() and json.loads(file.read_text()), 10)
    assert [run["name"] for run in history["runs"]] == ["short"]
    run = trainings(server)["<b>long"]["run"]
    assert server.request(f"gpu/training-notice?run={run}&on=1", "POST") == (204, "")
    assert trainings(server)["<b>long"]["notify"]
    for name in ("<b>long", "notebook"):
        os.kill(pid_of(folder, trainings(server)[name]["run"]), signal.SIGKILL)
    began = time.monotonic()
    until(lambda: [trainings(server)[name]["state"] for name in ("<b>long", "notebook")] == ["vanished"] * 2, 15)
    assert time.monotonic() - began <= patient(15)
    assert "Traceback" not in server.log.read_text()


@pytest.mark.whole
async def test_the_end_of_a_training_is_reported_to_the_service(server: UserServer, service: PanelService) -> None:
    """Not before one epoch of it is over."""
    await in_a_terminal(server, "python3 train.py told 0.03")
    until(lambda: service.progress, 20)
    first = service.progress[0]
    assert 0 < first["left_seconds"] < 100
    assert 0 < first["spread"] < 1
    until(lambda: service.progress[-1]["left_seconds"] == 0, 60)


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
        ("?run=ffffffffffffffff", 400, ""),
        ("?run=ffffffffffffffff&on=yes", 400, ""),
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
