"""``%%gpu_progress`` reports the outermost tqdm bar of a cell, and a cell that fails ends the runs that it began."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from hub_extensions import progress
from hub_extensions.progress import writer
from tests.progress.files import read_run, read_runs

pytestmark = [pytest.mark.usefixtures("libraries"), pytest.mark.slow]
Cell = Callable[[str], Any]


@pytest.fixture
def cell(shell: InteractiveShell) -> Cell:
    """Run a cell, and give back the exception that ended it."""
    return lambda code: shell.run_cell(code, store_history=True).error_in_exec


def bars(folder: Path) -> list[tuple[Any, ...]]:
    fields = ("state", "steps", "start", "total", "epochs", "epoch_steps")
    return [tuple(run[field] for field in fields) for run in read_runs(folder)]


@pytest.mark.parametrize("module", ["tqdm", "tqdm.notebook", "tqdm.auto"])
def test_the_bar_of_a_cell(folder: Path, cell: Cell, module: str) -> None:
    cell(f"%%gpu_progress my digits\nfrom {module} import tqdm\nseen = [i for i in tqdm(range(1000))]")
    assert bars(folder) == [("done", 1000, 0, 1000, None, 1000)]
    assert (read_run(folder)["name"], read_run(folder)["library"]) == ("my digits", "tqdm")
    assert not cell("assert seen == list(range(1000))")


def test_tqdm_is_as_before_after_the_cell(cell: Cell, shell: InteractiveShell) -> None:
    from tqdm.std import tqdm

    before = [tqdm.__init__, tqdm.update, tqdm.close]
    cell("%%gpu_progress\nfrom tqdm import trange\nfor i in trange(3): pass\n1 / 0")
    assert [tqdm.__init__, tqdm.update, tqdm.close] == before


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("for e in trange(4):\n  for b in trange(10): pass", [("done", 4, 0, 4, None, 4)]),
        ("for e in tqdm(iter(range(4))):\n  for b in trange(10): pass", [("done", 40, 0, None, None, 10)]),
        ("for e in range(4):\n  for b in trange(10): pass", [("done", 40, 0, None, None, 10)]),
        ("bar = tqdm(total=10)\nfor i in range(5): bar.update(2)\nbar.close()", [("done", 10, 0, 10, None, 10)]),
        ("for i in tqdm(range(6), initial=4, total=10): pass", [("done", 6, 4, 10, None, 10)]),
        ("for i in tqdm(range(6), disable=True): pass", []),
        (
            "for i in trange(3): pass\nfor i in trange(50): pass",
            [("done", 3, 0, 3, None, 3), ("done", 50, 0, 50, None, 50)],
        ),
        (
            "for e in range(4):\n  for b in trange(10): pass\n  for v in trange(3): pass",
            [
                ("done", 10, 0, 10, None, 10),
                ("done", 3, 0, 3, None, 3),
                ("done", 30, 0, None, None, 10),  # the bars come again: the epochs of a training
            ],
        ),
        ("for i in trange(10):\n  if i == 5: break", [("done", 5, 0, 10, None, 10)]),
        ("'no bar'", []),
    ],
)
def test_which_bar_it_is(folder: Path, cell: Cell, code: str, found: list[tuple[Any, ...]]) -> None:
    assert not cell("from tqdm import tqdm, trange")
    assert not cell(f"%%gpu_progress\n{code}")
    assert bars(folder) == found


def test_the_epochs_can_be_given(folder: Path, cell: Cell) -> None:
    cell(
        "%%gpu_progress mnist epochs=4\nfrom tqdm import trange\n"
        "for e in range(4):\n  for b in trange(10): pass\n  for v in trange(3): pass"
    )
    assert bars(folder) == [("done", 40, 0, 40, 4, 10)]
    assert read_run(folder)["name"] == "mnist"


@pytest.mark.parametrize(("problem", "state"), [("ValueError", "failed"), ("KeyboardInterrupt", "left")])
def test_an_exception_in_the_cell_is_the_cells(folder: Path, cell: Cell, problem: str, state: str) -> None:
    found = cell(f"%%gpu_progress\nfrom tqdm import trange\nfor i in trange(10):\n  if i == 5: raise {problem}('mine')")
    assert (type(found).__name__, found.args) == (problem, ("mine",))
    assert bars(folder) == [(state, 5, 0, 10, None, 10)]


def test_the_last_value_of_the_cell_is_displayed(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    cell("%%gpu_progress\nnumber = 6\n%xmode Minimal\nnumber * 7")
    assert "42" in capsys.readouterr().out


def test_without_tqdm_there_is_a_sentence_and_the_cell_runs(
    cell: Cell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.std", None)  # type: ignore[arg-type]
    assert not cell("%%gpu_progress\nran = 1")
    assert "tqdm is not installed" in capsys.readouterr().out
    assert not cell("assert ran == 1")


AWAITED = "import asyncio\nfrom tqdm import trange\nfor i in trange(3): await asyncio.sleep(0)\n'%d' % (40 + i)"


def test_a_cell_that_awaits_runs_and_a_sentence_says_why_it_is_not_shown(
    folder: Path, cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not cell(f"%%gpu_progress mnist\n{AWAITED}")
    printed = capsys.readouterr().out
    assert "'42'" in printed
    assert "await" in printed
    assert bars(folder) == []
    assert not cell("%%gpu_progress\nasync def step(): await asyncio.sleep(0)\nfor i in trange(3): pass")
    assert "await" not in capsys.readouterr().out
    assert bars(folder) == [("done", 3, 0, 3, None, 3)]


def test_a_cell_that_is_not_python_fails_as_before(shell: InteractiveShell) -> None:
    result = shell.run_cell("%%gpu_progress\nawait 1 +")
    assert isinstance(result.error_in_exec, SyntaxError)


@pytest.mark.parametrize(("problem", "state"), [("MemoryError", "failed"), ("KeyboardInterrupt", "left")])
def test_a_cell_that_fails_ends_the_run_of_a_library(folder: Path, cell: Cell, problem: str, state: str) -> None:
    cell("import keras; from hub_extensions.progress.keras import KerasProgress")
    cell(f"class Data:\n  def __iter__(self): raise {problem}()")
    model = "keras.Sequential(); model.compile()"
    assert cell(f"model = {model}\nmodel.fit(Data(), callbacks=[KerasProgress()])") is not None
    assert [run["state"] for run in read_runs(folder)] == [state]


def test_a_cell_that_fails_leaves_the_runs_of_others(folder: Path, cell: Cell) -> None:
    cell("from hub_extensions.progress import track\nsteps = iter(track(range(10))); next(steps)")
    cell("1 / 0")
    assert read_run(folder)["state"] == "running"
    cell("rest = list(steps)")
    assert read_run(folder)["state"] == "done"


def test_a_loop_that_a_cell_leaves_by_an_exception_is_over(folder: Path, cell: Cell) -> None:
    cell("from hub_extensions.progress import track\nfor step in track(range(10)):\n  1 / 0")
    assert read_run(folder)["state"] == "left"


def test_the_magic_is_part_of_the_package() -> None:
    assert set(progress.__all__) >= {"track", "load_ipython_extension"}
    assert writer.track is progress.track
