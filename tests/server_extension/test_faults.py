"""Everything that goes wrong with a GPU, its driver or the way there, on a real server over the fake driver's library.

Each fault: one sentence on the panel, one line in the log a change, and well again without a restart.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.nvml import FakeNvml, lab_machine
from tests.fakes.panel_service import TOKEN, PanelService, a_state
from tests.fakes.user_server import LOGIN_TOKEN, UserServer
from tests.patience import patient
from tests.server_extension.live_page import page_of, states_in

MINE = "MIG-lab-4"
GPU = "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
GIB = 1024**3

pytestmark = pytest.mark.needs("c-compiler")


def environ_of(machine: FakeNvml, library: Path | None, *, uuid: str = MINE, lease: str = "l1") -> dict[str, str]:
    """What a server with this device has in its environment; without a library there is no driver."""
    folder = {} if library is None else {"LD_LIBRARY_PATH": str(library.parent)}
    return {
        "FAKE_NVML_STATE": str(machine.path),
        "JUPYTERHUB_GPU_LEASE": lease,
        "CUDA_VISIBLE_DEVICES": uuid,
        **folder,
    }


@contextmanager
def a_server(folder: Path, environ: dict[str, str], *options: str) -> Iterator[UserServer]:
    server = UserServer(folder, environ, *options)
    try:
        yield server
    finally:
        server.stop()


Change = Callable[[FakeNvml], FakeNvml]


def not_loaded(machine: FakeNvml) -> FakeNvml:
    machine.init = 9
    return machine.reload()


def another_version(machine: FakeNvml) -> FakeNvml:
    machine.init = 18
    return machine.reload()


FAULTS: dict[str, tuple[Change, str, str]] = {
    "driver not loaded": (not_loaded, "driver-not-loaded", "not loaded"),
    "another version": (another_version, "version-mismatch", "updated while it was in use"),
    "no permission": (lambda machine: machine.fails("*", 4), "no-permission", "does not let this account read"),
    "lost": (lambda machine: machine.fails("*", 15), "lost", "fallen off the bus"),
    "detached by cgroups": (lambda machine: machine.fails("*", 17), "detached", "keeps the GPU from this server"),
    "detached, unknown error": (lambda machine: machine.fails("*", 999), "detached", "Unknown Error"),
    "times out": (lambda machine: machine.fails("*", 10), "not-answering", "does not answer in time"),
    "cut anew": (lambda machine: machine.without(MINE), "lost", "gone from the machine"),
}
"""What happens -> how it is done, the state, words of its sentence."""


def well(machine: FakeNvml) -> None:
    """The lab machine as it was, whatever happened to it."""
    aside = machine.folder / "aside"
    aside.mkdir(exist_ok=True)
    fresh = lab_machine(aside)  # which writes: in the machine's own folder a look could fall between two machines
    machine.init, machine.gpus, machine.rows = 0, fresh.gpus, fresh.rows
    machine.write()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    return lab_machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="module")
def server(machine: FakeNvml, fake_nvml: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserServer]:
    with a_server(tmp_path_factory.mktemp("server"), environ_of(machine, fake_nvml)) as server:
        yield server


@pytest.mark.whole
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_while_it_runs_is_a_sentence_and_two_log_lines_and_is_over_without_a_restart(
    machine: FakeNvml, server: UserServer, fault: str
) -> None:
    change, state, words = FAULTS[fault]
    well(machine)
    async with page_of(server) as page:
        await page.until_state("ok")
        before = len(states_in(server.log.read_text()))
        change(machine).write()
        assert words in await page.until_state(state)
        looks = machine.calls().total()
        await page.until(lambda: machine.calls().total() > looks)  # it goes on trying, and says no more
        well(machine)
        await page.until_state("ok")
        assert page.snapshot["gpus"][0]["memory_total_bytes"] == 9984 << 20
        # the page may be told before the line is written
        await page.until(lambda: len(states_in(server.log.read_text())) >= before + 2)
    assert states_in(server.log.read_text())[before:] == [state, "ok"]


@pytest.mark.whole
@pytest.mark.parametrize("fault", ["driver not loaded", "another version", "no permission", "lost"])
async def test_a_fault_at_the_start_is_told_and_is_over_without_a_restart(
    fake_nvml: Path, tmp_path: Path, fault: str
) -> None:
    change, state, words = FAULTS[fault]
    machine = change(lab_machine(tmp_path)).write()
    with a_server(tmp_path / "server", environ_of(machine, fake_nvml)) as server:
        async with page_of(server) as page:
            assert words in await page.until_state(state)
            well(machine)
            await page.until_state("ok")
            await page.until(lambda: len(states_in(server.log.read_text())) >= 2)
        assert states_in(server.log.read_text()) == [state, "ok"]
        assert "Traceback" not in server.log.read_text()


@pytest.mark.whole
async def test_a_machine_without_the_drivers_library_says_so(tmp_path: Path) -> None:
    with a_server(tmp_path / "server", environ_of(lab_machine(tmp_path), None)) as server:
        async with page_of(server, "?every=1") as page:
            assert "No NVIDIA driver was found" in await page.until_state("no-library")
            heard = len(page.messages)
            await page.until(lambda: len(page.messages) > heard)  # a quiet message: some looks later
        assert server.request("gpu/snapshot")[1]["state"] == "no-library"
        assert states_in(server.log.read_text()) == ["no-library"]


@pytest.mark.whole
async def test_a_fault_of_one_number_hides_no_other(machine: FakeNvml, server: UserServer) -> None:
    well(machine)
    async with page_of(server) as page:
        await page.until_state("ok")
        machine.fails("nvmlDeviceGetComputeRunningProcesses_v3", 999, on=MINE).write()
        numbers = len(page.numbers())
        await page.until(lambda: len(page.numbers()) >= numbers + 3)
        assert page.snapshot["state"] == "ok"
        assert page.numbers()[-1]["memory_used_bytes"] == 10 << 20
    well(machine)


@pytest.mark.whole
async def test_a_call_that_hangs_is_told_since_when_and_holds_up_neither_server_nor_shutdown(
    fake_nvml: Path, tmp_path: Path
) -> None:
    """The call never comes back: longer than any minute. The server answers on, and ends as quickly as ever."""
    machine = lab_machine(tmp_path)
    server = UserServer(tmp_path / "server", environ_of(machine, fake_nvml))
    try:
        async with page_of(server) as page:
            await page.until_state("ok")
            machine.hangs().write()
            sentence = await page.until_state("not-answering")
            assert sentence.startswith("The GPU driver is not answering since 20")
            assert page.snapshot["gpus"][0]["memory_used_bytes"] == 10 << 20, "the last numbers stay, with their time"
            for _ in range(5):
                assert server.request("api/status")[0] == 200
            status, history = server.request("gpu/history")
            assert (status, history["series"][0]["memory_bytes"][-1]) == (200, None)
    finally:
        ended = server.stop()
    assert ended, "by itself, though the call is never over"
    assert states_in(server.log.read_text()) == ["ok", "not-answering"]
    assert "Traceback" not in server.log.read_text()


@pytest.mark.whole
async def test_after_a_hang_the_history_has_a_gap(machine: FakeNvml, server: UserServer) -> None:
    well(machine)
    async with page_of(server) as page:
        await page.until_state("ok")
        machine.hangs().write()
        await page.until_state("not-answering")
        well(machine)
        await page.until_state("ok")
    memory = server.request("gpu/history")[1]["series"][0]["memory_bytes"]
    assert memory[-1] is not None
    assert None in memory[-6:]


@pytest.mark.whole
async def test_a_slow_driver_slows_the_looks(machine: FakeNvml, server: UserServer) -> None:
    well(machine)
    async with page_of(server) as page:
        await page.until_state("ok")
        machine.slow(300).write()
        await page.until(lambda: page.snapshot["period_seconds"] > 1.0, 30)
    well(machine)


@pytest.fixture(scope="module")
def large(fake_nvml: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserServer]:
    """A server with 64 GPUs."""
    folder = tmp_path_factory.mktemp("large")
    machine = FakeNvml(folder)
    uuids = [f"GPU-00000000-0000-0000-0000-{number:012d}" for number in range(64)]
    for uuid in uuids:
        machine.gpu(uuid, name="NVIDIA H200", total=139 * GIB, used=70 * GIB, util=51, cores=16896, cc="9.0")
    machine.write()
    with a_server(folder / "server", environ_of(machine, fake_nvml, uuid=",".join(uuids))) as server:
        yield server


@pytest.mark.whole
async def test_sixty_four_gpus_are_read_and_told_each_second(large: UserServer) -> None:
    async with page_of(large) as page:
        await page.until_state("ok")
        await page.until(lambda: len(page.numbers()) >= 3 * 64)
        assert len(page.snapshot["gpus"]) == 64
        await page.until(lambda: page.snapshot["period_seconds"] == 1.0)
    assert large.request("gpu/snapshot")[0] == 200


@pytest.mark.whole
async def test_a_laptop_that_sleeps_is_dropped_and_nothing_is_kept_for_it(large: UserServer) -> None:
    """Its connection stands and nothing is read from it, for an hour or for ever; the others hear on."""
    asleep = open_and_never_read(large)
    try:
        async with page_of(large) as awake:
            deadline = time.monotonic() + patient(120)
            while "has not read for" not in large.log.read_text():
                assert time.monotonic() < deadline, "the sleeper was kept"
                heard = len(awake.messages)
                await awake.until(lambda heard=heard: len(awake.messages) > heard)
            assert not awake.closed
    finally:
        asleep.close()


def open_and_never_read(server: UserServer) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    key = base64.b64encode(os.urandom(16)).decode()
    connection.sendall(
        f"GET /user/ada/gpu/live HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: token {LOGIN_TOKEN}\r\n\r\n".encode()
    )
    return connection


@contextmanager
def a_program(lease: str, notebook: str) -> Iterator[int]:
    """A process of a server's user, as a kernel would start it."""
    environ = {"JUPYTERHUB_GPU_LEASE": lease, "JPY_PARENT_PID": "1", "JPY_SESSION_NAME": notebook}
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.whole
async def test_two_servers_on_one_device_see_their_own_programs_only(fake_nvml: Path, tmp_path: Path) -> None:
    machine = lab_machine(tmp_path)
    with (
        a_server(tmp_path / "ada", environ_of(machine, fake_nvml, lease="lease-ada")) as ada,
        a_server(tmp_path / "bob", environ_of(machine, fake_nvml, lease="lease-bob")) as bob,
        a_program("lease-ada", f"{ada.work}/ada.ipynb") as of_ada,
        a_program("lease-bob", f"{bob.work}/sub/bob.ipynb") as of_bob,
    ):
        machine.process(MINE, of_ada, used=GIB).process(MINE, of_bob, used=2 * GIB).changes(MINE, used=3 * GIB).write()
        assert await holders_of(ada) == ([("ada.ipynb", "ada.ipynb", GIB)], GIB, 3 * GIB)
        assert await holders_of(bob) == ([("bob.ipynb", "sub/bob.ipynb", 2 * GIB)], 2 * GIB, 3 * GIB)
        assert "bob" not in str(ada.request("gpu/snapshot"))


async def holders_of(server: UserServer) -> tuple[list[tuple[str, str, int | None]], int | None, int | None]:
    """Of a reading in which there is one with memory of its own."""
    async with page_of(server) as page:
        await page.until(
            lambda: (
                page.snapshot.get("gpus")
                and page.snapshot["gpus"][0]["holders"]
                and (page.snapshot["gpus"][0]["memory_used_bytes"] or 0) >= GIB
            )
        )
        gpu: dict[str, Any] = page.snapshot["gpus"][0]
    told = [(holder["name"], holder["path"], holder["memory_bytes"]) for holder in gpu["holders"]]
    return told, gpu["own_memory_bytes"], gpu["memory_used_bytes"]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("wanted", "given"),
    [("abc", 1), ("0", 1), ("-1", 1), ("", 1), ("nan", 1), ("1e9", 60), ("inf", 60), ("5", 5), ("2.5", 2.5)],
)
async def test_a_malformed_wish_for_numbers_is_put_right(
    machine: FakeNvml, server: UserServer, wanted: str, given: float
) -> None:
    well(machine)
    async with page_of(server, f"?every={wanted}") as page:
        # after a slow driver the period is longer until the next look
        await page.until(lambda: page.snapshot.get("period_seconds") == given)


@pytest.mark.whole
async def test_while_the_service_is_away_the_gpu_is_shown_and_it_comes_back(
    fake_nvml: Path, machine: FakeNvml, tmp_path: Path
) -> None:
    well(machine)
    service = PanelService().come()
    service.state = a_state(uuid=MINE, save=True)  # the server asks every 2 s then
    environ = environ_of(machine, fake_nvml)
    environ |= {"JUPYTERHUB_GPU_SERVICE_URL": service.url, "JUPYTERHUB_API_TOKEN": TOKEN}
    try:
        with a_server(tmp_path / "server", environ) as server:
            async with page_of(server) as page:
                await page.until(lambda: page.snapshot.get("server"))
                service.go()
                await page.until(lambda: page.snapshot["service_note"])
                assert page.snapshot["service_note"]["message"].startswith("The GPU service is not answering since 20")
                numbers = len(page.numbers())
                await page.until(lambda: len(page.numbers()) >= numbers + 3)
                service.come()
                await page.until(lambda: not page.snapshot["service_note"])
            log = server.log.read_text()
    finally:
        service.go()
    assert log.count("The GPU service is not answering since") == 1
    assert log.count("The GPU service answers again") == 1


@pytest.mark.whole
async def test_before_the_service_has_answered_no_memory_of_others_is_in_the_history(
    fake_nvml: Path, tmp_path: Path
) -> None:
    """Then it turns out that nobody shares the device, and the open page gets the line anew."""
    machine = lab_machine(tmp_path).changes(MINE, used=GIB).write()
    service = PanelService().come()
    service.state = None
    environ = environ_of(machine, fake_nvml)
    environ |= {"JUPYTERHUB_GPU_SERVICE_URL": service.url, "JUPYTERHUB_API_TOKEN": TOKEN}
    try:
        with a_server(tmp_path / "server", environ) as server:
            async with page_of(server) as page:
                await page.until(lambda: len(page.numbers()) >= 2)
                assert page.snapshot["gpus"][0]["shared"] is True
                assert GIB not in server.request("gpu/history")[1]["series"][0]["memory_bytes"]
                service.state = a_state(uuid=MINE, share=1.0)
                await page.until(lambda: page.snapshot["gpus"][0]["shared"] is False, 30)
                anew = [message["history"] for message in page.messages if message["history"]][-1]
                assert set(anew[0]["memory_bytes"]) == {GIB}
    finally:
        service.go()


@pytest.mark.whole
async def test_a_foreign_page_and_a_stranger_get_no_history(server: UserServer) -> None:
    assert server.request("gpu/history", token=None)[0] in (302, 403)
    assert server.request("gpu/history")[0] == 200


@pytest.mark.whole
async def test_twenty_pages_cost_the_driver_what_one_does(machine: FakeNvml, server: UserServer) -> None:
    well(machine)

    async def calls_in_three_seconds(pages: int) -> int:
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(page_of(server)) for _ in range(pages)]
            await asyncio.gather(*(page.until_state("ok") for page in opened))
            before, first = machine.calls().total(), len(opened[0].numbers())
            await opened[0].until(lambda: len(opened[0].numbers()) >= first + 3)
            return machine.calls().total() - before

    one, many = await calls_in_three_seconds(1), await calls_in_three_seconds(20)
    print(f"driver calls in three looks: {one} with one page, {many} with twenty")
    assert many <= one * 1.5 + 5
