"""Every code that the driver's library names has a state and a sentence, wherever it comes up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pynvml
import pytest

from hub_extensions.adapters.nvml.states import MEANINGS, Scope, meaning_of
from hub_extensions.core.gpu.devices import GpusUnavailable, InventoryReading
from tests.fakes.nvml import GIB, FakeNvml, ReaderProcess, library_folder

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
NAMED = {name: getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")}
STATES = {"no-library", "driver-not-loaded", "version-mismatch", "lost", "detached", "no-permission"}
STATES |= {"not-answering", "unknown"}
METRICS = {
    "memory_used_bytes": "nvmlDeviceGetMemoryInfo_v2",
    "used_percent": "nvmlDeviceGetUtilizationRates",
    "pids": "nvmlDeviceGetComputeRunningProcesses_v3",
}
HAS_AN_OLDER_FORM = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
HAS_AN_OLDER_FORM |= {pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library_folder(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path).gpu("GPU-a", used=3 * GIB, util=40, cores=6912, cc="8.0").write()


@pytest.fixture
def looking(machine: FakeNvml, library: Path) -> Iterator[ReaderProcess]:
    with ReaderProcess(machine, library, ("GPU-a",)) as reader:
        yield reader


def test_every_code_that_pynvml_names_has_a_meaning_of_its_own() -> None:
    """When this fails, a newer nvidia-ml-py names a code: say in adapters/nvml/states.py what it means to a person."""
    assert len(NAMED) >= 31
    assert {name for name, code in NAMED.items() if code not in MEANINGS} == set()


@pytest.mark.parametrize("code", sorted(MEANINGS))
def test_a_meaning_is_a_known_state_and_says_what_is_wrong_and_what_to_do(code: int) -> None:
    meaning = MEANINGS[code]
    assert meaning.state in STATES
    assert meaning.reason.message.endswith(".")
    assert meaning.reason.message.count(". ") >= 1 or "," in meaning.reason.message or ":" in meaning.reason.message
    assert not {"please", "!", "NVML", "culled"} & set(meaning.reason.message.replace("!", " ! ").split())


def test_a_code_that_nobody_named_yet_is_unknown_and_names_itself() -> None:
    assert meaning_of(4711).state == "unknown"
    assert "4711" in meaning_of(4711).reason.message


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("LIBRARY_NOT_FOUND", "no-library"),
        ("DRIVER_NOT_LOADED", "driver-not-loaded"),
        ("LIB_RM_VERSION_MISMATCH", "version-mismatch"),
        ("GPU_IS_LOST", "lost"),
        ("RESET_REQUIRED", "lost"),
        ("UNKNOWN", "detached"),
        ("OPERATING_SYSTEM", "detached"),
        ("NO_PERMISSION", "no-permission"),
        ("TIMEOUT", "not-answering"),
        ("NOT_SUPPORTED", "unknown"),
    ],
)
def test_the_states_are_the_ones_people_know(name: str, word: str) -> None:
    assert meaning_of(NAMED[f"NVML_ERROR_{name}"]).state == word


@pytest.mark.needs("c-compiler")
def test_each_code_at_the_opening_of_the_driver_gives_its_state(machine: FakeNvml, looking: ReaderProcess) -> None:
    for code in NAMED.values():
        machine.init = code
        machine.write()
        assert told(looking) == meaning_of(code).state, code
    machine.init = 0
    machine.write()
    assert set(looking.read(NOW).samples) == {"GPU-a"}, "found again without a restart"


@pytest.mark.needs("c-compiler")
def test_each_code_at_the_device_gives_its_state_or_says_that_it_is_gone(
    machine: FakeNvml, looking: ReaderProcess
) -> None:
    gone = {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT}
    for code in NAMED.values():
        machine.recovers().fails("nvmlDeviceGetHandleByUUID", code).fails("nvmlDeviceGetHandleByIndex_v2", code).write()
        if code in gone:
            reading = looking.read(NOW)
            assert (reading.devices, len(reading.problems)) == ((), 1), code
        else:
            assert told(looking) == meaning_of(code).state, code
    machine.recovers().write()
    assert set(looking.read(NOW).samples) == {"GPU-a"}


@pytest.mark.needs("c-compiler")
@pytest.mark.parametrize("figure", METRICS)
def test_each_code_at_one_figure_is_unknown_for_that_figure_unless_it_says_more(
    machine: FakeNvml, looking: ReaderProcess, figure: str
) -> None:
    for code in NAMED.values():
        machine.recovers().fails(METRICS[figure], code)
        if code in HAS_AN_OLDER_FORM and figure != "used_percent":
            machine.fails(METRICS[figure].replace("_v2", "").replace("_v3", "_v2"), code)
        machine.write()
        if meaning_of(code).scope is not Scope.CALL:
            assert told(looking) == meaning_of(code).state, code
            continue
        sample = sample_of(looking.read(NOW))
        assert [name for name in METRICS if sample[name] is None] == [figure], code


@pytest.mark.needs("c-compiler")
@pytest.mark.parametrize("code", [99, 998])
def test_a_code_from_a_newer_driver_is_unknown_not_a_crash(
    machine: FakeNvml, looking: ReaderProcess, code: int
) -> None:
    machine.fails("nvmlDeviceGetHandleByUUID", code).write()
    assert told(looking) == "unknown"


def told(looking: ReaderProcess) -> str:
    with pytest.raises(GpusUnavailable) as problem:
        looking.read(NOW)
    assert problem.value.reason.message
    return problem.value.state


def sample_of(reading: InventoryReading) -> dict[str, object]:
    return {name: getattr(reading.samples["GPU-a"], name) for name in METRICS}
