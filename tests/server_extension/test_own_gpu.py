"""A real server with a simulated GPU and real kernels: who holds the GPU, the metrics, and what loading us costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hub_extensions.adapters.simulated.layouts import load_layout
from hub_extensions.core.gpu.samples import Counters
from hub_extensions.core.messages import GpuReading
from hub_extensions.server_extension.metrics import GpuCollector
from hub_extensions.server_extension.sampler import Sampled
from tests.fakes.gpu_readers import GIB, UUID
from tests.fakes.user_server import LOGIN_TOKEN, UserServer
from tests.patience import patient, until
from tests.server_extension.live_page import Page, page_of

pytestmark = pytest.mark.programs

ROOT = Path(__file__).resolve().parents[2]
MINE = load_layout("lab-a100").devices[0].uuid
SWITCH = "--GpuExtension.metrics=True"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserServer]:
    environ = {
        "JUPYTERHUB_GPU_SIMULATED": "lab-a100",
        "JUPYTERHUB_GPU_LEASE": f"lease-{time.time_ns()}",
        "CUDA_VISIBLE_DEVICES": MINE,
    }
    server = UserServer(tmp_path_factory.mktemp("server"), environ, SWITCH)
    yield server
    server.stop()


def start(server: UserServer, path: str) -> dict[str, Any]:
    """A notebook's session, as JupyterLab starts it."""
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
    request = urllib.request.Request(server.url + "api/sessions", data=json.dumps(body).encode(), method="POST")
    request.add_header("Authorization", f"token {LOGIN_TOKEN}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=patient(60)) as answer:
        session: dict[str, Any] = json.loads(answer.read())
    return session


def names(page: Page) -> list[str]:
    gpus = page.snapshot.get("gpus") or [{}]
    return [holder["name"] for holder in gpus[0].get("holders") or ()]


@pytest.mark.whole
async def test_notebooks_are_named_with_their_kernels_while_they_run(server: UserServer) -> None:
    (server.work / "deep").mkdir(exist_ok=True)
    async with page_of(server) as page:
        await page.until_state("ok")
        assert page.snapshot["gpus"][0]["holders"] == []
        train, eda = start(server, "deep/train.ipynb"), start(server, "eda.ipynb")
        await page.until(lambda: sorted(names(page)) == ["eda.ipynb", "train.ipynb"], 60)
        await page.until(lambda: all(holder["kernel"] for holder in page.snapshot["gpus"][0]["holders"]), 60)
        held = {holder["name"]: holder for holder in page.snapshot["gpus"][0]["holders"]}
        assert held["train.ipynb"]["path"] == "deep/train.ipynb"
        assert held["train.ipynb"]["kernel"] == train["kernel"]["id"]
        assert held["train.ipynb"]["memory_bytes"] > 10 * 1024**2
        server.request(f"api/kernels/{eda['kernel']['id']}", "DELETE")
        await page.until(lambda: names(page) == ["train.ipynb"], 60)
        server.request(f"api/kernels/{train['kernel']['id']}", "DELETE")
        await page.until(lambda: names(page) == [], 60)
    assert "Traceback" not in server.log.read_text()


def test_the_script_of_the_docs_prints_the_device(server: UserServer) -> None:
    """As it stands in docs/howto/scripts.md, with the address and the token that a hub gives to a server."""
    until(lambda: server.request("gpu/snapshot")[1]["gpus"])
    text = (ROOT / "docs" / "howto" / "scripts.md").read_text()
    environ = {"JUPYTERHUB_SERVICE_URL": server.url, "JUPYTERHUB_API_TOKEN": LOGIN_TOKEN, "PATH": os.environ["PATH"]}
    python = text.split("```python\n", 1)[1].split("```", 1)[0]
    done = subprocess.run(
        [sys.executable, "-c", python], capture_output=True, text=True, timeout=patient(60), env=environ
    )
    device = load_layout("lab-a100").devices[0]
    assert done.stdout.startswith(f"{device.product} {device.profile} "), done.stderr
    shell = text.split("```sh\n", 1)[1].split("```", 1)[0]
    address = shell.split('"')[-2].replace("${JUPYTERHUB_SERVICE_URL}", "")
    assert server.request(address)[0] == 200


def metrics_of(server: UserServer) -> dict[str, Any]:
    status, text = server.request("metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    return {family.name: family for family in families if family.name.startswith("jupyterhub_gpu_")}


async def test_prometheus_sees_what_the_panel_sees_where_it_is_wanted(server: UserServer) -> None:
    until(lambda: "jupyterhub_gpu_memory_limit_bytes" in metrics_of(server))
    found = metrics_of(server)
    (limit,) = found["jupyterhub_gpu_memory_limit_bytes"].samples
    assert limit.labels["uuid"] == MINE
    assert limit.value == load_layout("lab-a100").devices[0].memory_bytes
    assert found["jupyterhub_gpu_state"].samples[0].labels == {"state": "ok"}
    assert found["jupyterhub_gpu_sample_age_seconds"].samples[0].value < 30


def test_prometheus_sees_nothing_where_it_is_not_wanted(tmp_path: Path) -> None:
    server = UserServer(tmp_path, {})
    try:
        assert metrics_of(server) == {}
    finally:
        server.stop()


def values(sampled: Sampled) -> dict[str, list[float]]:
    families = GpuCollector(lambda: sampled, lambda: 100.0).collect()
    return {family.name.removeprefix("jupyterhub_gpu_"): [one.value for one in family.samples] for family in families}


def test_what_is_not_known_is_absent_from_the_metrics_and_never_zero() -> None:
    gpu = GpuReading(UUID, "A100", "1g.5gb", None, 5 * GIB, None, "none", datetime.now(timezone.utc))
    unknown = values(Sampled("ok", "", (gpu,), 97.5, 1))
    assert unknown["memory_limit_bytes"] == [5 * GIB]
    assert unknown["sample_age_seconds"] == [2.5]
    assert unknown["utilization_ratio"] == unknown["memory_used_bytes"] == unknown["tensor_active_ratio"] == []
    known = replace(gpu, used_percent=0.0, limit_bytes=GIB, counters=Counters(dram_percent=7.0))
    found = values(Sampled("ok", "", (known,), 97.5, 1))
    assert (found["utilization_ratio"], found["memory_limit_bytes"], found["dram_active_ratio"]) == (
        [0.0],
        [GIB],
        [0.07],
    )
    assert values(Sampled("no-gpu", "This server has no GPU.")) == {"state": [1.0]}


def test_a_limit_is_absent_from_the_metrics_while_it_is_not_known_whether_the_device_is_shared() -> None:
    gpu = GpuReading(UUID, "A100", None, GIB, 5 * GIB, 3.0, "nvml", datetime.now(timezone.utc), shared=True)
    assert values(Sampled("ok", "", (gpu,), 97.5, 1))["memory_limit_bytes"] == []


def test_values_of_a_driver_that_hangs_are_left_out_of_the_metrics_after_three_periods() -> None:
    gpu = GpuReading(UUID, "A100", None, GIB, 5 * GIB, 3.0, "nvml", datetime.now(timezone.utc))
    assert values(Sampled("not-answering", "", (gpu,), 95.0, 1, 2.0))["utilization_ratio"] == [0.03]
    assert set(values(Sampled("not-answering", "", (gpu,), 90.0, 1, 2.0))) == {"state", "sample_age_seconds"}


@pytest.mark.whole
def test_loading_us_costs_a_server_little() -> None:
    """It loads nothing but our own modules and Python's over Jupyter Server's. benchmarks/panel has the seconds."""
    code = (
        "import sys, jupyter_server.serverapp, jupyter_server.extension.application;"
        "before = set(sys.modules); import hub_extensions.server_extension.extension;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=patient(60), cwd=ROOT)
    loaded = done.stdout.split()
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"hub_extensions"}
    assert not any(name.startswith(("hub_extensions.spawner", "hub_extensions.hub_service")) for name in loaded)
