"""``jupyterhub-gpu training evaluate``: the thesis' files are read, predicted, and a bad row is named."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hub_extensions.tools.cli import main

HEADER = "batch_size,epoch,average_memory_utilization,average_gpu_utilization,training_time,test_loss,test_acc"


def rows(samples: int, noise: float = 0.03, use: str = "") -> list[str]:
    """284 trainings, as in the thesis: a setup, and steps that take longer with larger batches."""
    rng = random.Random(samples)
    return [
        f"{batch},{epochs},{use or rng.random()},{use or rng.random()},{seconds * rng.gauss(1, noise)},0.1,0.9"
        for batch in range(100, 801, 10)
        for epochs in (10, 20, 30, 40)
        for seconds in [12 + epochs * -(-samples // batch) * (0.003 + 5e-6 * batch)]
    ]


def evaluate(path: Path) -> Result:
    return CliRunner().invoke(main, ["training", "evaluate", str(path)], catch_exceptions=False)


def figures(output: str, name: str) -> list[tuple[float, float, float]]:
    """R², MAPE in percent and coverage of a file: first of all trainings, then for each number of epochs."""
    found, here = [], False
    for line in output.splitlines():
        here = line.startswith(name) or (here and line.startswith(" "))
        if here and (match := re.search(r"(-?\d\.\d{3}) +([\d.]+)% +(\d\.\d\d)", line)):
            found.append((float(match[1]), float(match[2]), float(match[3])))
    return found


def test_a_folder_of_the_thesis_files_is_predicted_as_well_as_there(tmp_path: Path) -> None:
    (tmp_path / "mnist_classification.csv").write_text("\n".join([HEADER, *rows(60_000)]))
    (tmp_path / "cifar10_deep_classification").write_text("\n".join(rows(50_000, use="[N/A]")) + "\n\n")
    found = evaluate(tmp_path)
    assert found.exit_code == 0 and "seed 20261129" in found.output
    assert "0.986 / 0.964" in found.output and "0.991 / 0.987" in found.output and "0.969 / 0.987" in found.output
    for name in ("mnist_classification", "cifar10_deep_classification", "all, each by its own file"):
        of_all, *by_epochs = figures(found.output, name)
        assert of_all[0] > 0.98 and of_all[1] < 3 and 0.75 < of_all[2] < 0.88
        assert len(by_epochs) == 4 and all(r2 > 0.9 and mape < 4 for r2, mape, _ in by_epochs)


def test_linear_times_are_predicted_exactly(tmp_path: Path) -> None:
    file = tmp_path / "cifar10_classification.csv"
    file.write_text("\n".join(rows(50_000, noise=0.0)))
    assert all(r2 == 1.0 and mape == 0.0 for r2, mape, _ in figures(evaluate(file).output, file.stem))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("100,10,1,1,abc,0,0", "line 3, column training_time: 'abc'"),
        ("100,10,1,1,,0,0", "line 3, column training_time: ''"),
        ("100,10,1,1,nan,0,0", "line 3, column training_time: 'nan'"),
        ("0,10,1,1,5,0,0", "line 3, column batch_size: 0 is not above 0"),
        ("100,-1,1,1,5,0,0", "line 3, column epochs: -1 is not above 0"),
        ("100,10,1,1,1e300,0,0", "line 3, column training_time: 1e300"),
        ("100,10,1,high,5,0,0", "line 3, column average_gpu_utilization: 'high'"),
        ("100,10,1,1,5,0", "line 3: 6 fields instead of 7"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_column(tmp_path: Path, line: str, names: str) -> None:
    file = tmp_path / "mnist_classification.csv"
    good = rows(60_000)
    file.write_text("\n".join([HEADER, good[0], line, *good[1:]]))
    found = evaluate(file)
    assert found.exit_code == 2 and f"{file}, {names}" in found.output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "0 trainings; at least 10 are needed"),
        ("batch_size,epoch\n1,2\n", "line 1: there is no column training_time"),
        ("\n".join(rows(60_000)[:9]), "9 trainings; at least 10"),
        ('"', "unexpected end of data"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "mnist_classification.csv").write_text(text)
    found = evaluate(tmp_path)
    assert found.exit_code == 2 and problem in found.output


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    assert evaluate(tmp_path).exit_code == 2 and "has no file *.csv" in evaluate(tmp_path).output
    assert "cannot be read" in evaluate(tmp_path / "none.csv").output


def test_equal_times_have_no_share_that_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "mnist_classification.csv"
    file.write_text("100,10,1,1,5,0,0\n" * 20)
    found = evaluate(file)
    assert found.exit_code == 0 and "nan" not in found.output and " - " in found.output
