"""Simulated means simulated, not random: a layout is checked like a real cut, and use follows the users' kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hub_extensions.adapters.linux.procfs import Process, marked
from hub_extensions.adapters.simulated.gpus import SimulatedGpus, of_service
from hub_extensions.adapters.simulated.layouts import PACKED, LayoutError, load_layout, parse_layout
from hub_extensions.core.gpu.devices import Placement
from tests.patience import until

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
GIB = 2**30
A100 = "product: NVIDIA A100-PCIE-40GB, memory_gib: 40"


def kernel(
    pid: int, device: str, cpu: float, *, rss: int = GIB, lease: str | None = "a", is_kernel: bool = True
) -> Process:
    return Process(pid, 1, 1, 1000, "ada", "python3", lease, is_kernel, "train.ipynb", cpu, rss, device)


class RunningClock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_the_lab_machine_is_as_published() -> None:
    """GPU instance 4 is the 2g.10gb and comes first; 9.75 GiB is the published machine's own figure."""
    devices = load_layout("lab-a100").devices
    assert [(d.gpu_instance_id, d.profile) for d in devices] == [
        (4, "2g.10gb"),
        *((gi, "1g.5gb") for gi in (7, 8, 11, 12, 13)),
    ]
    assert [d.memory_bytes for d in devices] == [round(9.75 * GIB), *[round(4.75 * GIB)] * 5]
    assert [d.sm_count for d in devices] == [28, *[14] * 5]
    assert [d.compute_slices for d in devices] == [2, *[1] * 5]
    assert devices[0].placement == Placement(2, 2)
    assert all(d.simulated and d.usable and d.product == "NVIDIA A100-PCIE-40GB" for d in devices)
    assert len({d.parent_uuid for d in devices}) == 1


@pytest.mark.parametrize("name", PACKED)
def test_every_packed_layout_loads_with_uuids_of_its_own_that_never_change(name: str) -> None:
    first, again = load_layout(name), load_layout(name)
    assert first == again
    uuids = [d.uuid for d in first.devices]
    assert len(set(uuids)) == len(uuids)
    for device in first.devices:
        prefix, _, rest = device.uuid.partition("-")
        assert prefix == ("GPU" if device.profile is None else "MIG")
        assert uuid.UUID(rest).version == 5
    assert first.title


def test_the_uuids_of_a_layout_stay_from_release_to_release() -> None:
    """A lease in the store names a device by its UUID."""
    assert load_layout("lab-a100").devices[0].uuid == "MIG-daccb659-19e7-50ce-b9a9-a08f6ea0312d"


def test_the_other_layouts_have_whole_cards_and_fractions() -> None:
    assert [d.pool for d in load_layout("two-whole").devices] == ["gpu", "gpu"]
    mixed = load_layout("mixed")
    assert [d.pool for d in mixed.devices] == ["gpu", "mig-3g.20gb", "mig-2g.10gb", "mig-1g.10gb"]
    assert mixed.fractions == {"gpu": (0.5,), "mig-3g.20gb": (0.5,)}


def test_a_file_of_ones_own_is_a_layout_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"title: Mine\ngpus:\n  - {{{A100}, mig: [{{profile: 2g.10gb}}, {{profile: 19}}]}}\n")
    layout = load_layout(path)
    assert (layout.name, layout.title) == ("mine", "Mine")
    assert [(d.profile, d.gpu_instance_id) for d in layout.devices] == [("2g.10gb", 0), ("1g.5gb", 1)]
    assert load_layout(str(path)) == layout


@pytest.mark.parametrize(
    ("text", "field", "right"),
    [
        ("gpus: [", "mine.yaml", "is not YAML"),
        ("[]", "mine.yaml", "a mapping with title"),
        ("title: T\ngpus: []", "gpus", "at least one GPU"),
        ("gpus: [{A100}]", "title", "a text"),
        ("title: T\ngpus: [{A100}]\ncolour: red", "colour", "Known are title"),
        ("title: T\ngpus: [{memory_gib: 40}]", "gpus[0].product", "a text"),
        ("title: T\ngpus: [{product: X}]", "gpus[0].memory_gib", "a number of GiB above 0"),
        ("title: T\ngpus: [{product: X, memory_gib: -1}]", "gpus[0].memory_gib", "a number of GiB above 0"),
        ("title: T\ngpus: [{product: X, memory_gib: .nan}]", "gpus[0].memory_gib", "a number of GiB above 0"),
        ("title: T\ngpus: [{product: X, memory_gib: 4, memory: 4}]", "gpus[0].memory", "not known here"),
        ("title: T\ngpus: [{product: X, memory_gib: 4, mig: [{profile: 1g.5gb}]}]", "gpus[0].mig", "nothing is known"),
        ("title: T\ngpus: [{A100, mig: [{profile: 1g.6gb}]}]", "gpus[0].mig[0].profile", "has 1g.5gb"),
        ("title: T\ngpus: [{A100, mig: [{profile: small}]}]", "gpus[0].mig[0].profile", "is no MIG profile"),
        ("title: T\ngpus: [{A100, mig: [{profile: 99}]}]", "gpus[0].mig[0].profile", "has 1g.5gb"),
        ("title: T\ngpus: [{A100, mig: [{}]}]", "gpus[0].mig[0].profile", "a text"),
        ("title: T\ngpus: [{A100, mig: {profile: 1g.5gb}}]", "gpus[0].mig", "a list"),
        ("title: T\ngpus: [{A100}]\nfractions: {gpu: [1.5]}", "fractions.gpu", "above 0 and below 1"),
        ("title: T\ngpus: [{A100}]\nfractions: {mig-1g.5gb: [0.5]}", "fractions.mig-1g.5gb", "Known are gpu"),
    ],
)
def test_a_mistake_names_the_file_the_field_and_what_is_right(text: str, field: str, right: str) -> None:
    with pytest.raises(LayoutError) as error:
        parse_layout(text.replace("A100", A100, 1), "mine")
    assert str(error.value).startswith("mine.yaml")
    assert field in str(error.value)
    assert right in str(error.value)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ("{profile: 2g.10gb, start: 1}", "2g.10gb cannot start at 1"),
        ("{profile: 2g.10gb, start: 2}, {profile: 1g.5gb, start: 3}", "overlap"),
        (", ".join(["{profile: 1g.5gb}"] * 6 + ["{profile: 2g.10gb}"]), "2g.10gb does not fit"),
        ("{profile: 1g.5gb, start: 0}, {profile: 1g.5gb}", "for all of them, or for none"),
        ("{profile: 1g.5gb, gpu_instance: 7}, {profile: 1g.5gb, gpu_instance: 7}", "the same gpu_instance"),
        ("{profile: 1g.5gb, gpu_instance: -1}", "a whole number, 0 or more"),
    ],
)
def test_a_cut_that_no_card_allows_is_refused(parts: str, reason: str) -> None:
    with pytest.raises(LayoutError) as error:
        parse_layout(f"title: T\ngpus: [{{{A100}, mig: [{parts}]}}]", "mine")
    assert reason in str(error.value)


def test_a_layout_that_is_not_there_says_which_there_are() -> None:
    with pytest.raises(LayoutError) as error:
        load_layout("lab-a1000")
    assert "lab-a100, two-whole, mixed" in str(error.value)


def test_use_is_the_processor_time_of_the_kernels_on_the_device() -> None:
    layout, clock = load_layout("lab-a100"), RunningClock()
    mine, other = layout.devices[1].uuid, layout.devices[2].uuid
    running = [kernel(1, mine, 5.0), kernel(2, mine, 0.0, rss=2 * GIB)]
    gpus = SimulatedGpus(layout, lambda: running, clock=clock)
    first = gpus.read(NOW).samples
    assert first[mine].used_percent is None, "nothing to compare with yet"
    assert first[other].used_percent == 0.0, "nothing runs there"
    clock.seconds += 10
    running = [kernel(1, mine, 8.0), kernel(2, mine, 1.0, rss=2 * GIB), kernel(3, mine, 0.5)]
    sample = gpus.read(NOW).samples[mine]
    assert sample.used_percent == pytest.approx(45.0)
    assert sample.memory_used_bytes == 4 * GIB
    assert (sample.pids, sample.source, sample.at) == ((1, 2, 3), "simulated", NOW)


def test_use_ends_at_100_percent_and_memory_at_what_the_device_has() -> None:
    layout, clock = load_layout("lab-a100"), RunningClock()
    mine = layout.devices[1].uuid
    running: list[Process] = []
    gpus = SimulatedGpus(layout, lambda: running, clock=clock)
    gpus.read(NOW)
    clock.seconds += 1
    running = [kernel(1, mine, 8.0, rss=64 * GIB)]
    sample = gpus.read(NOW).samples[mine]
    assert (sample.used_percent, sample.memory_used_bytes) == (100.0, round(4.75 * GIB))


def test_only_kernels_with_a_lease_count(tmp_path: Path) -> None:
    """The server itself, the panel and a stranger's process are not work on the GPU."""
    layout, clock = load_layout("two-whole"), RunningClock()
    mine = layout.devices[0].uuid
    running = [kernel(1, mine, 5.0, is_kernel=False), kernel(2, mine, 5.0, lease=None), kernel(3, "void", 5.0)]
    gpus = SimulatedGpus(layout, lambda: running, clock=clock)
    for _ in range(2):
        clock.seconds += 1
        sample = gpus.read(NOW).samples[mine]
        assert (sample.used_percent, sample.memory_used_bytes, sample.pids) == (0.0, 0, ())


def test_each_kernel_is_named_with_its_memory() -> None:
    layout = load_layout("two-whole")
    mine, other = (device.uuid for device in layout.devices)
    running = [kernel(7, mine, 0.0, rss=2 * GIB), kernel(3, mine, 0.0), kernel(5, other, 0.0)]
    samples = SimulatedGpus(layout, lambda: running, clock=RunningClock()).read(NOW).samples
    assert samples[mine].memory_by_pid == {3: GIB, 7: 2 * GIB}
    assert samples[mine].memory_used_bytes == 3 * GIB
    assert samples[other].memory_by_pid == {5: GIB}
    assert samples[mine].counters is None, "what nobody counts is not known"


def test_kernels_with_more_memory_than_the_device_fill_it_in_their_proportion() -> None:
    layout = load_layout("lab-a100")
    device = layout.devices[1]
    running = [kernel(1, device.uuid, 0.0, rss=6 * GIB), kernel(2, device.uuid, 0.0, rss=2 * GIB)]
    sample = SimulatedGpus(layout, lambda: running, clock=RunningClock()).read(NOW).samples[device.uuid]
    full = device.memory_bytes or 0
    assert sample.memory_used_bytes == pytest.approx(full, abs=1)
    assert sample.memory_by_pid == {1: full * 3 // 4, 2: full // 4}


def test_two_looks_at_once_give_the_same_use() -> None:
    layout, clock = load_layout("two-whole"), RunningClock()
    mine = layout.devices[0].uuid
    running: list[Process] = []
    gpus = SimulatedGpus(layout, lambda: running, clock=clock)
    gpus.read(NOW)
    clock.seconds += 2
    running = [kernel(1, mine, 1.0)]
    assert gpus.read(NOW).samples[mine].used_percent == pytest.approx(50.0)
    clock.seconds += 0.01
    assert gpus.read(NOW).samples[mine].used_percent == pytest.approx(50.0)


def test_a_kernel_whose_pid_was_used_again_is_another_kernel() -> None:
    layout, clock = load_layout("two-whole"), RunningClock()
    mine = layout.devices[0].uuid
    running = [kernel(1, mine, 50.0)]
    gpus = SimulatedGpus(layout, lambda: running, clock=clock)
    gpus.read(NOW)
    clock.seconds += 2
    running = [Process(1, 2, 1, 1000, "ada", "python3", "a", True, None, 1.0, GIB, mine)]
    assert gpus.read(NOW).samples[mine].used_percent == pytest.approx(50.0)


@pytest.mark.programs
def test_a_real_kernel_that_computes_moves_the_use_and_an_idle_one_does_not() -> None:
    layout = load_layout("lab-a100")
    busy_on, idle_on = layout.devices[0].uuid, layout.devices[1].uuid
    lease = f"lease-{uuid.uuid4().hex}"
    mark = {"JUPYTERHUB_GPU_LEASE": lease, "JPY_PARENT_PID": "1", "PATH": os.environ["PATH"]}
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], env={**mark, "CUDA_VISIBLE_DEVICES": busy_on})
    idle = subprocess.Popen(["sleep", "60"], env={**mark, "CUDA_VISIBLE_DEVICES": idle_on})
    try:
        gpus = SimulatedGpus(layout, lambda: [p for p in marked() if p.lease == lease])
        samples = gpus.read(NOW).samples

        def busy_is_seen() -> bool:
            nonlocal samples
            time.sleep(0.2)  # what is measured is the time between two looks
            samples = gpus.read(NOW).samples
            return (samples[busy_on].used_percent or 0) > 20

        until(busy_is_seen, what=lambda: str(samples))
        assert (samples[idle_on].used_percent or 0) < 5
        assert samples[busy_on].pids == (busy.pid,)
        assert (samples[busy_on].memory_used_bytes or 0) > 0
    finally:
        for child in (busy, idle):
            child.kill()
            child.wait()


@pytest.mark.programs
def test_importing_it_loads_no_yaml() -> None:
    code = "import sys, hub_extensions.adapters.simulated.gpus; print('yaml' in sys.modules)"
    root = str(Path(__file__).parents[3])
    seen = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": root}
    )
    assert seen.stdout.strip() == "False"


def test_another_installations_kernels_do_nothing_on_our_devices() -> None:
    """Every installation of a machine makes up the same devices."""
    layout = load_layout("lab-a100")
    mine = layout.devices[0].uuid
    ours, others, nobodys = "http://127.0.0.1:1/services/gpu", "http://127.0.0.1:2/services/gpu", None
    running = [
        Process(pid, 2, 1, 1000, "ada", "python3", "a", True, None, 1.0, GIB, mine, None, service)
        for pid, service in enumerate((ours, others, nobodys), start=1)
    ]
    for url, pids in ((ours, (1,)), (others, (2,)), ("", (3,))):
        reading = SimulatedGpus(layout, of_service(url, lambda: running)).read(NOW)
        assert reading.samples[mine].pids == pids
