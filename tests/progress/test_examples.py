"""The example notebooks run as they are, and *Test my GPU* says in words what it found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.machine_needs import missing
from tests.patience import patient
from tests.progress.files import read_runs

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
RUNS: dict[str, list[tuple[int, int, int | None]]] = {  # steps, start, total
    "fastai": [(30, 0, 30)],
    "keras": [(36, 0, 36)],
    "lightning": [(192, 0, 192)],
    "loop": [(150, 0, 150), (150, 0, 150), (50, 100, 150)],
    "tqdm": [(100, 0, 100), (150, 0, 150)],
    "transformers": [(24, 0, 24)],
}
"""What the example reports with the stand-ins, and with the real library as well."""


def cells(name: str, kind: str = "code") -> list[str]:
    book = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert book["nbformat"] == 4
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == kind]


@pytest.mark.slow
@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("name", RUNS)
def test_an_example_runs_and_is_shown(
    name: str, folder: Path, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    for code in cells(name):
        shell.run_cell(code, store_history=True).raise_error()
    runs = read_runs(folder)
    assert [(run["steps"], run["start"], run["total"]) for run in runs] == RUNS[name]
    assert {(run["library"], run["name"], run["state"]) for run in runs} == {(name, "example", "done")}


def test_each_example_is_tried_and_carries_no_output() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == {*RUNS, "test-my-gpu"}
    for path in EXAMPLES.glob("*.ipynb"):
        book = json.loads(path.read_text(encoding="utf-8"))
        assert [cell.get("outputs", []) for cell in book["cells"] if cell.get("outputs")] == []
        assert cells(path.stem, "markdown")[0].startswith("# ")


@pytest.fixture(scope="session")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fake CUDA driver."""
    if reason := missing("c-compiler"):
        pytest.skip(reason)
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    library = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    source = ROOT / "tests" / "fakes" / "cuda_driver.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True, timeout=patient(60))
    return library.parent


def test_my_gpu(tmp_path: Path, **variables: Any) -> str:
    """Return what the notebook prints, after a tenth of a second instead of ten."""
    [code] = cells("test-my-gpu")
    (tmp_path / "cell.py").write_text(code.replace("SECONDS = 10\n", "SECONDS = 0.1\n"))
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    done = subprocess.run(
        [sys.executable, tmp_path / "cell.py"], env=environment, capture_output=True, text=True, timeout=patient(30)
    )
    assert done.stderr == ""
    return done.stdout


test_my_gpu.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.programs
@pytest.mark.needs("c-compiler")
@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("", "Your GPU computes: Fake GPU 1g.10gb, 10 GiB, with the CUDA driver: 262,144 numbers went through"),
        ("none", "No GPU was found: the CUDA driver: the NVIDIA driver sees no device.\nDid you start this server"),
        (
            "fails",
            "Your GPU does not compute with the CUDA driver: RuntimeError: "
            "cuLaunchKernel answers CUDA_ERROR_LAUNCH_FAILED (719)\n",
        ),
        ("lies", "Your GPU does not compute with the CUDA driver: ArithmeticError: a number is wrong\n"),
    ],
)
def test_my_gpu_with_the_driver_alone(cuda: Path, tmp_path: Path, fault: str, sentence: str) -> None:
    assert test_my_gpu(tmp_path, LD_LIBRARY_PATH=cuda, FAKE_CUDA=fault).startswith(sentence)


@pytest.mark.programs
@pytest.mark.needs("c-compiler")
def test_a_library_that_cannot_use_the_gpu_is_named(cuda: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("class cuda:\n    is_available = staticmethod(lambda: False)\n")
    printed = test_my_gpu(tmp_path, LD_LIBRARY_PATH=cuda).splitlines()
    assert printed[0].startswith("Your GPU computes: Fake GPU 1g.10gb")
    assert printed[1:] == ["It was not found by all that is installed here: PyTorch: it sees no GPU."]


TORCH = """
class cuda:
    is_available = staticmethod(lambda: True)
    get_device_name = staticmethod(lambda index: "NVIDIA Test")
class Matrix:
    def __init__(self, value): self.value = value
    def __matmul__(self, other): return Matrix(2048 * self.value * other.value * {error})
    def __getitem__(self, at): return self.value
def rand(*size, device): return Matrix(0.5)
"""


@pytest.mark.programs
@pytest.mark.parametrize(("error", "sentence"), [(1, "Your GPU computes: NVIDIA Test, with PyTorch: "), (2, "")])
def test_my_gpu_with_a_library(tmp_path: Path, error: float, sentence: str) -> None:
    (tmp_path / "torch.py").write_text(TORCH.format(error=error))
    printed = test_my_gpu(tmp_path)
    expected = (
        sentence or "Your GPU does not compute with PyTorch: ArithmeticError: a product is 1024.0 instead of 512.0"
    )
    assert printed.startswith(expected)
