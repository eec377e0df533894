"""The lines that the how-to tells people to write: each runs as it stands there, and its training is reported."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.progress.files import read_runs

pytestmark = pytest.mark.usefixtures("libraries")

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "training.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CALLS = re.findall(r"`(track\([^`]*\))`", PAGE)
GIVEN = """
from hub_extensions.progress import track
loader, stream = range(400), iter(range(50))
train = validate = lambda *data: None
"""
"""What a reader has before the first line."""
AROUND = {
    "KerasProgress": (
        "import keras; model = keras.Sequential(); x = y = [0] * 100; model.compile(optimizer='adam', loss='mse')",
        "",
    ),
    "LightningProgress": (
        "from lightning.pytorch import Trainer; from lightning.pytorch.demos.boring_classes import BoringModel",
        "trainer.fit(BoringModel())",
    ),
    "TransformersProgress": (
        "from transformers import Trainer, TrainingArguments; arguments = TrainingArguments(); model, data = 0, [{}]",
        "trainer.train()",
    ),
    "FastaiProgress": (
        "from fastai.callback import core; dls = model = None; Learner = lambda dls, model, cbs: core.Learner(cbs)",
        "learn.fit(3)",
    ),
    "%load_ext": ("", "%%gpu_progress\nfrom tqdm import tqdm\nlist(tqdm(loader))"),
}
"""A word of a block -> what a reader of that block has before, and what is run after it."""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.run_cell("%load_ext hub_extensions.progress")
    shell.run_cell(GIVEN)
    yield shell
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_each_block_reports_a_training_that_is_done(number: int, shell: InteractiveShell, folder: Path) -> None:
    block = BLOCKS[number]
    before, after = next((around for word, around in AROUND.items() if word in block), ("", ""))
    for code in (before, block, after):
        shell.run_cell(code).raise_error()
    run = read_runs(folder)[-1]
    assert (run["state"], run["steps"] + run["start"]) == ("done", run["total"])


@pytest.mark.parametrize("call", CALLS)
def test_each_call_reports_a_training_that_is_done(call: str, shell: InteractiveShell, folder: Path) -> None:
    shell.run_cell(f"steps = len(list({call}))").raise_error()
    (run,) = read_runs(folder)
    assert run["state"] == "done" and run["steps"] == shell.user_ns["steps"] > 0


def test_there_is_a_line_for_each_hook() -> None:
    hooks = {file.stem for file in (Path(__file__).parents[2] / "hub_extensions" / "progress").glob("*.py")} - {
        "__init__",
        "writer",
        "tqdm",
    }
    assert {name for name in hooks if f"hub_extensions.progress.{name} import" in PAGE} == hooks
    assert len(CALLS) >= 3
