"""Keras: ``model.fit(…, callbacks=[KerasProgress("mnist")])`` shows the training in the GPU panel."""

from __future__ import annotations

from typing import Any

from hub_extensions.progress.writer import ProgressRun, calling_callbacks, never_raises, patience_of

try:
    from keras.callbacks import Callback
except ImportError:
    from tensorflow.keras.callbacks import Callback


@never_raises
class KerasProgress(Callback):  # type: ignore[misc]
    async_safe = True  # else Keras would wait for each step because of this callback

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.run_name = name

    def on_train_begin(self, logs: Any = None) -> None:
        epochs, steps = self.params.get("epochs"), self.params.get("steps")
        patience = patience_of(calling_callbacks())
        self.run = ProgressRun(self.run_name, "keras", epochs=epochs, epoch_steps=steps, patience=patience)
        self.run.total = epochs * steps if epochs and steps else None
        self.initial_epoch: int | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.before = self.run.steps
        if self.initial_epoch is None:
            self.initial_epoch = epoch
            self.run.start = epoch * (self.run.epoch_steps or 0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        steps = self.params.get("steps") or batch + 1  # with `steps_per_execution` the last number may be too large
        self.run.count(self.before + min(batch + 1, steps))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.run.epoch_steps = steps = self.run.steps - self.before  # `steps` was unknown, or wrong
        self.run.start, self.run.total = (self.initial_epoch or 0) * steps, self.run.epochs * steps

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.run.count(self.run.steps)

    def on_train_end(self, logs: Any = None) -> None:
        self.run.end()
