"""``jupyterhub-gpu training evaluate``: how well measured training times follow from the number of steps.

The files are those of the Kyutech thesis on predicting training times: one row for each training, with its batch size,
its epochs and its time. The model is linear: a setup time, and for each step a constant and a share for each sample of
the batch.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

FloatArray = NDArray[np.float64]

COLUMNS = (
    "batch_size", "epochs", "average_memory_utilization", "average_gpu_utilization", "training_time", "test_loss",
    "test_acc",
)  # fmt: skip
"""Columns of a file, in the order in which they are without a header."""
NEEDED = ("batch_size", "epochs", "training_time")
"""Columns that the model uses, and without which a row is refused. Each other value may be missing, such as the mean
use of a MIG device (empty, ``N/A``, ``[N/A]``)."""
MISSING = frozenset({"", "n/a", "[n/a]", "nan", "none"})
SAMPLES = {"mnist": 60_000, "cifar10": 50_000}
"""Training samples of a data set, by the beginning of the file's name; the second if the name says nothing."""
THESIS = {
    "mnist": (0.986, 0.964), "cifar10_deep": (0.991, 0.987), "cifar10": (0.992, 0.990), "all": (0.969, 0.987),
}  # fmt: skip
"""R² of the thesis' two perceptrons (table 1), by the beginning of the file's name."""
LARGEST = 1e9
"""Largest value of a column that the model uses."""
FEWEST_ROWS = 10
SPLITS = 20
"""Number of random divisions into 80 % of the rows, from which the model is fitted, and 20 %, which it is judged by."""
SEED = 20261129
COVERED = 0.8


class EvaluationRefused(Exception):
    """A file cannot be evaluated; the message names the file, the line and the column."""


@dataclass(frozen=True, slots=True)
class TrainingFile:
    """The rows of a file, as arrays with one value for each training.

    Attributes:
        file: where they are from.
        batches: samples of a batch.
        epochs: number of epochs.
        times: seconds that the training took.
    """

    file: Path
    batches: FloatArray
    epochs: FloatArray
    times: FloatArray

    @property
    def steps(self) -> FloatArray:
        """Number of steps of each training: epochs times the batches of an epoch."""
        samples = next(
            (count for name, count in SAMPLES.items() if self.file.stem.startswith(name)), SAMPLES["cifar10"]
        )
        return self.epochs * np.ceil(samples / self.batches)


@dataclass(frozen=True, slots=True)
class PredictionScore:
    """How well left-out trainings were predicted.

    Attributes:
        predicted: number of predictions.
        r2: share of the variance of the times that is explained; `None` if all times are equal.
        mape: mean error as a share of the time.
        covered: share of the times within the 80 % interval.
    """

    predicted: int
    r2: float | None
    mape: float
    covered: float


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions of left-out trainings, as arrays with one value for each.

    Attributes:
        epochs: epochs of the training.
        times: its time in seconds.
        predicted: the predicted time in seconds.
        widths: half width of the 80 % interval, as a share of the time.
    """

    epochs: FloatArray
    times: FloatArray
    predicted: FloatArray
    widths: FloatArray

    def score(self, epochs: float | None = None) -> PredictionScore:
        """Return how good they are, for all trainings or for those of one number of epochs."""
        chosen = np.ones(len(self.times), dtype=bool) if epochs is None else self.epochs == epochs
        times = self.times[chosen]
        errors = times - self.predicted[chosen]
        spread, off = float(((times - times.mean()) ** 2).sum()), np.abs(errors) / times
        r2 = 1 - float((errors**2).sum()) / spread if spread > 0 else None
        return PredictionScore(len(times), r2, float(off.mean()), float((off <= self.widths[chosen]).mean()))


def evaluate(path: Path, console: Console) -> None:
    """Read a file or a folder of files, and print how well the model predicts left-out trainings.

    Raises:
        EvaluationRefused: there is no file, or one has a mistake.
    """
    files = [(trainings, predictions(trainings)) for trainings in read(path)]
    console.print(
        f"80 % of the rows predict the others, {SPLITS} times, seed {SEED}. thesis: R² of its two perceptrons."
    )
    table = Table("file", "epochs", "predicted", "R²", "MAPE", "80 % covers", "thesis R²", box=None, pad_edge=False)
    for trainings, found in files:
        name = trainings.file.stem
        _add(table, name, found, next((start for start in THESIS if name.startswith(start)), None))
    kinds = [found for trainings, found in files if not trainings.file.stem.startswith("all")]
    if len(kinds) > 1:
        _add(table, "all, each by its own file", _joined(kinds), "all")
    console.print(table)
    if any(trainings.file.stem.startswith("all") for trainings, _ in files):
        console.print("A file of all trainings does not say which row is of which kind, so one line is fitted to all.")


def _add(table: Table, name: str, found: Predictions, thesis: str | None) -> None:
    """Add a row for all trainings of a file, and one for each number of epochs."""
    told = "-" if thesis is None else " / ".join(f"{figure:.3f}" for figure in THESIS[thesis])
    for epochs in (None, *map(float, np.unique(found.epochs))):
        score = found.score(epochs)
        table.add_row(
            name if epochs is None else "",
            "all" if epochs is None else f"{epochs:g}",
            str(score.predicted),
            "-" if score.r2 is None else f"{score.r2:.3f}",
            f"{score.mape:.1%}",
            f"{score.covered:.2f}",
            told if epochs is None else "",
        )


def predictions(trainings: TrainingFile) -> Predictions:
    """Fit the model to 80 % of the trainings and predict the others, `SPLITS` times."""
    steps, times, epochs = trainings.steps, trainings.times, trainings.epochs
    features = np.stack([np.ones_like(steps), steps, steps * trainings.batches], axis=1)
    rng, found = np.random.default_rng(SEED), list[Predictions]()
    for _ in range(SPLITS):
        order = rng.permutation(len(times))
        asked, taught = order[: len(order) // 5], order[len(order) // 5 :]
        weights = np.linalg.lstsq(features[taught], times[taught], rcond=None)[0]
        errors = np.sort(np.abs(times[taught] - features[taught] @ weights) / times[taught])
        width = errors[min(math.ceil(COVERED * (len(errors) + 1)), len(errors)) - 1]
        found.append(Predictions(epochs[asked], times[asked], features[asked] @ weights, np.full(len(asked), width)))
    return _joined(found)


def _joined(some: Sequence[Predictions]) -> Predictions:
    return Predictions(
        np.concatenate([each.epochs for each in some]),
        np.concatenate([each.times for each in some]),
        np.concatenate([each.predicted for each in some]),
        np.concatenate([each.widths for each in some]),
    )


def read(path: Path) -> list[TrainingFile]:
    """Return the trainings of a file, or of each ``*.csv`` and ``*_classification`` file of a folder.

    Raises:
        EvaluationRefused: there is no file, or one has a mistake.
    """
    files = sorted({*path.glob("*.csv"), *path.glob("*_classification")}) if path.is_dir() else [path]
    if not files:
        raise EvaluationRefused(f"{path} has no file *.csv.")
    return [_read(file) for file in files]


def _read(file: Path) -> TrainingFile:
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            rows = csv.reader(text, strict=True)
            lines = [(rows.line_num, row) for row in rows if any(cell.strip() for cell in row)]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise EvaluationRefused(f"{file}: {problem}.") from None
    except OSError as problem:
        raise EvaluationRefused(f"{file} cannot be read: {problem.strerror}.") from None
    columns: Sequence[str] = COLUMNS
    if lines and not _is_number(lines[0][1][0]):
        line, header = lines.pop(0)
        columns = ["epochs" if name.strip() == "epoch" else name.strip() for name in header]
        missing = [name for name in NEEDED if name not in columns]
        if missing:
            raise EvaluationRefused(f"{file}, line {line}: there is no column {missing[0]}.")
    found = [_row(f"{file}, line {line}", row, columns) for line, row in lines]
    if len(found) < FEWEST_ROWS:
        raise EvaluationRefused(f"{file}: {len(found)} trainings; at least {FEWEST_ROWS} are needed.")
    return TrainingFile(file, *(np.array([row[name] for row in found]) for name in NEEDED))


def _row(where: str, row: Sequence[str], columns: Sequence[str]) -> dict[str, float]:
    """Return column -> value of a row; NaN where a value is missing."""
    if len(row) != len(columns):
        raise EvaluationRefused(f"{where}: {len(row)} fields instead of {len(columns)}.")
    found: dict[str, float] = {}
    for name, cell in zip(columns, map(str.strip, row), strict=True):
        if name not in COLUMNS:
            continue
        if cell.lower() in MISSING and name not in NEEDED:
            found[name] = math.nan
            continue
        if not _is_number(cell):
            raise EvaluationRefused(f"{where}, column {name}: {cell[:40]!r} is no number.")
        found[name] = float(cell)
        if name in NEEDED and not 0 < found[name] <= LARGEST:
            raise EvaluationRefused(f"{where}, column {name}: {cell[:40]} is not above 0 and at most {LARGEST:g}.")
    return found


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
