"""A stand-in for Keras 3: `Model.fit` calls the callbacks in the order and with the values of the real one."""

from __future__ import annotations

import math
from typing import Any

from . import layers as layers
from .callbacks import CallbackList


class Sequential:
    """Fits nothing. The loss of each validation can be given as ``losses``."""

    def __init__(self, parts: Any = (), losses: Any = ()) -> None:
        self.losses, self.stop_training = list(losses), False

    def compile(self, *args: Any, steps_per_execution: int = 1, **kwargs: Any) -> None:
        self.steps_per_execution = steps_per_execution

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        initial_epoch: int = 0,
        validation_data: Any = None,
        validation_split: float = 0,
        callbacks: Any = (),
        verbose: Any = "auto",
    ) -> Any:
        # as in keras.src.backend.*.trainer: `steps` is None where the data has no length
        steps = None if y is None else math.ceil(len(x) * (1 - validation_split) / batch_size)
        called = CallbackList(callbacks, model=self, epochs=epochs, steps=steps, verbose=verbose)
        self.stop_training = False
        called.on_train_begin()
        for epoch in range(initial_epoch, epochs):
            called.on_epoch_begin(epoch)
            batches = len(list(x)) if steps is None else steps
            for begin in range(0, batches, self.steps_per_execution):
                called.on_train_batch_begin(begin)
                called.on_train_batch_end(begin + self.steps_per_execution - 1, {"loss": 1.0})
            logs = {"loss": 1.0}
            if validation_data is not None or validation_split:
                called.on_test_begin()
                called.on_test_batch_begin(0)
                called.on_test_batch_end(0, {})
                called.on_test_end({})
                logs["val_loss"] = self.losses.pop(0) if self.losses else 1.0
            called.on_epoch_end(epoch, logs)
            if self.stop_training:
                break
        called.on_train_end(logs)
        return called


Model = Sequential


def Input(shape: Any) -> None:  # noqa: N802
    return None
