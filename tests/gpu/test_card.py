"""On a real card: the product says what nvidia-smi says, counts what the card counts, and costs next to nothing.

Run with ``./scripts/test --gpu tests/gpu``. Nothing is set or cut; one small program runs on the first device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path

import pytest

from hub_extensions.adapters.nvml.reader import Nvml
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.gpu.samples import DeviceSample
from tests.gpu.programs import cost_of, named_by_a_server, working
from tests.gpu.smi import MIB, ask, differences
from tests.patience import patient

pytestmark = pytest.mark.needs("gpu")

HELD_MIB = 512
LOOKS_EVERY, LOOKS_IN_A_MINUTE = 2.0, 30


def now() -> datetime:
    return datetime.now(timezone.utc)


@pytest.fixture(scope="module")
def uuids() -> tuple[str, ...]:
    """What servers can be given on this machine."""
    reader = Nvml()
    found = tuple(device.uuid for device in reader.read(now()).devices if device.usable)
    reader.close()
    assert found, "the product finds no device"
    return found


@pytest.fixture
def own(uuids: tuple[str, ...]) -> Iterator[Nvml]:
    reader = Nvml(uuids)
    yield reader
    reader.close()


def sample_when(reader: Nvml, uuid: str, right: Callable[[DeviceSample], bool]) -> DeviceSample:
    """Look twice a second until the sample is right, 20 s at most; the last one in any case."""
    deadline = time.monotonic() + patient(20)
    while True:
        sample = reader.read(now()).samples[uuid]
        if right(sample) or time.monotonic() > deadline:
            return sample
        time.sleep(0.5)


def test_the_service_reads_what_nvidia_smi_prints() -> None:
    reader = Nvml()
    try:
        reading, said = reader.read(now()), ask()
    finally:
        reader.close()
    assert differences(reading, said) == []
    assert {device.uuid for device in reading.devices if device.usable} == set(said)


def test_a_server_reads_of_its_own_devices_what_nvidia_smi_prints(own: Nvml, uuids: tuple[str, ...]) -> None:
    reading, said = own.read(now()), ask()
    assert differences(reading, said) == []
    assert tuple(device.uuid for device in reading.devices) == uuids
    assert reading.problems == ()
    for device in reading.devices:
        assert device.sm_count, f"{device.product}: how many multiprocessors is not known"


def test_a_program_on_the_gpu_is_listed_with_its_memory(own: Nvml, uuids: tuple[str, ...]) -> None:
    before = own.read(now()).samples[uuids[0]]
    with working(HELD_MIB, {"CUDA_VISIBLE_DEVICES": uuids[0]}) as pid:
        sample = own.read(now()).samples[uuids[0]]
    assert (sample.memory_used_bytes or 0) - (before.memory_used_bytes or 0) >= HELD_MIB * MIB
    if sample.pids is None:
        return  # a container in which the driver lists the machine's own pids: then nobody is named
    assert pid in sample.pids
    assert HELD_MIB * MIB <= sample.memory_by_pid[pid] <= (sample.memory_used_bytes or 0)


async def test_a_notebooks_training_is_named_in_its_servers_panel(uuids: tuple[str, ...], tmp_path: Path) -> None:
    memory = await named_by_a_server(uuids[0], tmp_path, HELD_MIB)
    assert memory is None or memory >= HELD_MIB * MIB, "not known is allowed: a container may hide the amounts"


def test_use_goes_up_with_a_program_and_down_without(own: Nvml, uuids: tuple[str, ...]) -> None:
    with working(HELD_MIB, {"CUDA_VISIBLE_DEVICES": uuids[0]}):
        busy = sample_when(own, uuids[0], lambda sample: sample.source == "none" or (sample.used_percent or 0) > 20)
    if busy.source == "none":
        assert uuids[0].startswith("MIG-"), "a whole GPU always tells its use"
        assert busy.used_percent is None
        return
    high = busy.used_percent
    assert high is not None and 20 < high <= 100
    idle = sample_when(own, uuids[0], lambda sample: sample.used_percent is not None and sample.used_percent < high)
    assert idle.used_percent is not None and idle.used_percent < high


@pytest.mark.parametrize(("works", "rests"), [(0.3, 1.7), (1.0, 6.0)], ids=["as our looks come", "seldom"])
def test_short_and_rhythmic_work_is_not_called_idle(
    own: Nvml, uuids: tuple[str, ...], works: float, rests: float
) -> None:
    """The highest of the looks between two decisions, as the culler takes it: of which would have stopped it, none.

    A limit of a minute is as good as any: whoever has none of the readings above the threshold for so long is idle.
    """
    looks: list[float | None] = []
    with working(HELD_MIB, {"CUDA_VISIBLE_DEVICES": uuids[0]}, "rhythm", str(works), str(rests)):
        for _ in range(LOOKS_IN_A_MINUTE):
            looks.append(own.read(now()).samples[uuids[0]].used_percent)
            time.sleep(LOOKS_EVERY)
    print(f"works {works} s, rests {rests} s: {looks}")
    known = [look for look in looks if look is not None]
    if not known:
        assert uuids[0].startswith("MIG-"), "a whole GPU always tells its use"
        return
    third = len(known) // 3
    highest = [max(known[part * third :][:third]) for part in range(3)]
    assert min(highest) >= CullPolicy().idle_below_percent, f"for 20 s it looked idle: {looks}"


def test_the_counters_are_there_on_a_card_that_has_them_and_only_there(
    own: Nvml, uuids: tuple[str, ...], record_property: Callable[[str, object], None]
) -> None:
    with working(HELD_MIB, {"CUDA_VISIBLE_DEVICES": uuids[0]}):
        own.read(now())
        sample = sample_when(own, uuids[0], lambda sample: sample.counters is not None)
    supported = card_counts(uuids[0])
    record_property("gpm", f"supported: {supported}, {sample}")
    print(f"GPM supported: {supported}; {sample.source} {sample.used_percent} {sample.counters}")
    if not supported:
        assert sample.counters is None
        return
    assert sample.counters is not None, "the card has GPM, and this account may not read it"
    figures = (sample.counters.sm_percent, sample.counters.tensor_percent, sample.counters.dram_percent)
    assert all(figure is None or 0 <= figure <= 100 for figure in figures)
    assert (sample.counters.sm_percent or 0) > 0 or (sample.counters.dram_percent or 0) > 0


def test_looking_each_second_takes_less_than_a_hundredth_of_a_core(uuids: tuple[str, ...]) -> None:
    cost = cost_of(200, uuids)
    print(f"{cost['looks']} looks at {len(uuids)} devices: {cost}")
    assert cost["cpu_seconds"] / cost["looks"] < 0.01
    assert cost["samples"] == 200 * len(uuids)


def card_counts(uuid: str) -> bool:
    """Does the driver itself say that this device's card has GPM?"""
    pynvml = import_module("pynvml")
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        if uuid.startswith("MIG-"):
            handle = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        return bool(pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
    except pynvml.NVMLError:
        return False
    finally:
        pynvml.nvmlShutdown()
