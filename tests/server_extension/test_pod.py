"""A real server in a pod's environment, over the fake driver's library: which device its panel shows, and as whose."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from hub_extensions.core.offers.pod_request import Mechanism, PodAsk
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.hub_service.engine.views.presenters import grant
from tests.fakes.nvml import GIB, FakeNvml, lab_machine
from tests.fakes.panel_service import TOKEN, PanelService, a_state
from tests.fakes.user_server import UserServer
from tests.server_extension.live_page import page_of, states_in
from tests.server_extension.test_faults import a_server

pytestmark = pytest.mark.needs("c-compiler")

MIG = "MIG-lab-7"


def one_gpu(folder: Path) -> FakeNvml:
    return FakeNvml(folder).gpu("GPU-a", used=3 * GIB, util=40, cores=6912, cc="8.0").write()


def one_mig_device(folder: Path) -> FakeNvml:
    """Six on the card, one that can be seen."""
    return lab_machine(folder).container_of(MIG).write()


def given(mechanism: Mechanism) -> dict[str, str]:
    """What the service puts into a pod's environment."""
    at = datetime(2026, 11, 23, 9, 0, tzinfo=timezone.utc)
    lease = Lease("l1", "t1", "ada", "", "gpu", "gpu", "", "gpu", 1000, LeaseState.STARTING, at)
    return dict(grant(lease, "gpu", "", None, PodAsk(mechanism)).environment)


def environ_of(
    machine: FakeNvml, library: Path | None, mechanism: Mechanism, visible: str | None = None
) -> dict[str, str]:
    environ = {"FAKE_NVML_STATE": str(machine.path), **given(mechanism)}
    if library is not None:
        environ["LD_LIBRARY_PATH"] = str(library.parent)
    if visible is not None:
        environ["NVIDIA_VISIBLE_DEVICES"] = visible
    return environ


@pytest.mark.whole
@pytest.mark.parametrize(
    ("mechanism", "visible"),
    [
        pytest.param(Mechanism.WHOLE, "GPU-a", id="the plugin names it"),
        pytest.param(Mechanism.WHOLE, "all", id="CDI, and an image that says all", marks=pytest.mark.whole),
        pytest.param(Mechanism.WHOLE, "void", id="CDI, and void", marks=pytest.mark.whole),
        pytest.param(Mechanism.DRA, None, id="DRA, and nothing is said", marks=pytest.mark.whole),
        pytest.param(Mechanism.TIME_SLICING, "GPU-a::2", id="a place on it"),
    ],
)
async def test_a_whole_gpu_is_shown_however_the_pod_was_given_it(
    fake_nvml: Path, tmp_path: Path, mechanism: Mechanism, visible: str | None
) -> None:
    environ = environ_of(one_gpu(tmp_path), fake_nvml, mechanism, visible)
    with a_server(tmp_path / "server", environ) as server:
        async with page_of(server) as page:
            await page.until_state("ok")
            (gpu,) = page.snapshot["gpus"]
        history = server.request("gpu/history")[1]["series"]
    assert (gpu["uuid"], gpu["memory_used_bytes"], gpu["used_percent"]) == ("GPU-a", 3 * GIB, 40.0)
    assert gpu["shared"] is (mechanism is Mechanism.TIME_SLICING)
    assert [series["uuid"] for series in history] == ["GPU-a"]
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("visible", [MIG, *(pytest.param(other, marks=pytest.mark.whole) for other in ("all", None))])
async def test_of_a_cut_gpu_the_one_mig_device_is_shown(fake_nvml: Path, tmp_path: Path, visible: str | None) -> None:
    environ = environ_of(one_mig_device(tmp_path), fake_nvml, Mechanism.MIG, visible)
    with a_server(tmp_path / "server", environ) as server:
        async with page_of(server) as page:
            await page.until_state("ok")
            (gpu,) = page.snapshot["gpus"]
    assert (gpu["uuid"], gpu["profile"], gpu["memory_total_bytes"]) == (MIG, "1g.5gb", 4864 << 20)
    assert (gpu["shared"], gpu["note"]["reason"]) == (False, "use-not-measurable")


async def test_it_stays_as_it_is_when_the_service_answers_without_a_device(fake_nvml: Path, tmp_path: Path) -> None:
    service = PanelService().come()
    service.state = a_state(uuid=None, share=1.0, simulated=False)
    environ = environ_of(one_mig_device(tmp_path), fake_nvml, Mechanism.MIG)
    environ |= {"JUPYTERHUB_GPU_SERVICE_URL": service.url, "JUPYTERHUB_API_TOKEN": TOKEN}
    try:
        with a_server(tmp_path / "server", environ) as server:
            async with page_of(server) as page:
                await page.until(lambda: page.snapshot.get("server"))
                numbers = len(page.numbers())
                await page.until(lambda: len(page.numbers()) >= numbers + 2)
                assert page.snapshot["state"] == "ok"
                assert [(gpu["uuid"], gpu["shared"]) for gpu in page.snapshot["gpus"]] == [(MIG, False)]
    finally:
        service.go()


@pytest.mark.whole
async def test_a_pod_that_sees_no_gpu_says_so_and_is_well_when_one_is_there(fake_nvml: Path, tmp_path: Path) -> None:
    environ = environ_of(lab_machine(tmp_path).container_of().write(), fake_nvml, Mechanism.MIG)
    with a_server(tmp_path / "server", environ) as server:
        async with page_of(server) as page:
            assert "No GPU can be seen in this container" in await page.until_state("detached")
            one_mig_device(tmp_path)
            await page.until_state("ok", 60)
        assert states_in(server.log.read_text()) == ["detached", "ok"]


@pytest.mark.parametrize(
    "visible", ["GPU-a", *(pytest.param(other, marks=pytest.mark.whole) for other in ("all", None))]
)
async def test_a_pod_without_a_driver_says_so_and_goes_on(tmp_path: Path, visible: str | None) -> None:
    with a_server(tmp_path / "server", environ_of(one_gpu(tmp_path), None, Mechanism.WHOLE, visible)) as server:
        async with page_of(server) as page:
            assert "The GPU's driver is not in this container" in await page.until_state("no-library")
        assert server.request("api/status")[0] == 200
        assert states_in(server.log.read_text()) == ["no-library"]
        assert "Traceback" not in server.log.read_text()


def test_a_pod_without_a_gpu_has_none_and_opens_nothing(fake_nvml: Path, tmp_path: Path) -> None:
    """CPU only, on a node whose GPU it could see."""
    machine = one_gpu(tmp_path)
    nothing = dict(grant(None, "cpu", "", None, PodAsk(Mechanism.CPU)).environment)
    environ = {"FAKE_NVML_STATE": str(machine.path), "LD_LIBRARY_PATH": str(fake_nvml.parent), **nothing}
    server = UserServer(tmp_path / "server", environ)
    try:
        snapshot = server.request("gpu/snapshot")[1]
    finally:
        server.stop()
    assert (snapshot["state"], snapshot["gpus"]) == ("no-gpu", [])
    assert machine.calls().total() == 0
