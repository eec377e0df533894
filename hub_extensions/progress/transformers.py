"""transformers: ``Trainer(…, callbacks=[TransformersProgress("bert")])`` shows the training in the GPU panel."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from hub_extensions.progress.writer import ProgressRun, calling_callbacks, never_raises, patience_of, whole


@never_raises
class TransformersProgress(TrainerCallback):  # type: ignore[misc]
    def __init__(self, name: str = "") -> None:
        self.run_name = name

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        self.start = state.global_step  # not 0 where a checkpoint is resumed
        patience = patience_of(calling_callbacks())
        self.run = ProgressRun(
            self.run_name, "transformers", total=state.max_steps, start=self.start, patience=patience
        )
        self.run.epochs = epochs = whole(state.num_train_epochs)
        self.run.epoch_steps = state.max_steps // epochs if epochs else None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.run.count(state.global_step - self.start)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.run.count(self.run.steps)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.run.count(self.run.steps)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.run.end()
