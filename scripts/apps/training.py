"""Writes the TensorBoard logs of three small trainings, of which TensorBoard draws the curves.

    python training.py FOLDER

A logistic regression by gradient descent, with three learning rates; NumPy alone, no TensorFlow.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

RATES = (0.02, 0.1, 0.5)
STEPS = 200


def train(folder: Path, rate: float, inputs: np.ndarray, wanted: np.ndarray) -> None:
    """One training; its loss and its share of right answers go into ``folder``."""
    weights = np.zeros(inputs.shape[1])
    writer = EventFileWriter(str(folder))
    began = time.time() - STEPS  # as if a step took a second
    for step in range(STEPS):
        chance = 1 / (1 + np.exp(-inputs @ weights))
        loss = -np.mean(wanted * np.log(chance + 1e-9) + (1 - wanted) * np.log(1 - chance + 1e-9))
        right = np.mean((chance > 0.5) == wanted)
        values = [
            Summary.Value(tag="loss", simple_value=loss),
            Summary.Value(tag="share of right answers", simple_value=right),
        ]
        writer.add_event(Event(wall_time=began + step, step=step, summary=Summary(value=values)))
        weights -= rate * inputs.T @ (chance - wanted) / len(wanted)
    writer.close()


def main(folder: Path) -> None:
    """The same data for each rate; what an earlier start wrote is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    random = np.random.default_rng(7)
    inputs = random.normal(size=(600, 20))
    wanted = (inputs @ random.normal(size=20) + random.normal(size=600) > 0).astype(float)
    for rate in RATES:
        train(folder / f"learning-rate-{rate}", rate, inputs, wanted)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
