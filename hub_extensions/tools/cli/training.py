"""Commands about the times that trainings take."""

from __future__ import annotations

from pathlib import Path

import click

from hub_extensions.tools.cli.terminal import console, refuse


@click.group()
def training() -> None:
    """Training times: how well they follow from the number of steps."""


@training.command("evaluate")
@click.argument("folder", metavar="FOLDER_OR_FILE", type=click.Path(path_type=Path))
def training_evaluate(folder: Path) -> None:
    """Predict measured training times from batch size and epochs, and print how well that works.

    The files are CSV, with or without a header: batch_size, epochs, average_memory_utilization,
    average_gpu_utilization, training_time, test_loss, test_acc. A folder has one for each kind of training, such as
    mnist_classification.csv.
    """
    from hub_extensions.tools.training_evaluation import EvaluationRefused, evaluate  # numpy takes its time to load

    try:
        evaluate(folder, console())
    except EvaluationRefused as refused:
        refuse(str(refused))
