"""A stand-in for transformers 5: `Trainer.train` calls the callbacks as the real one does."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any


class TrainerCallback:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda args, state, control, **kwargs: None
        raise AttributeError(name)


class EarlyStoppingCallback(TrainerCallback):
    def __init__(self, early_stopping_patience: int = 1, stop_after: int = 10**9) -> None:
        self.early_stopping_patience, self.stop_after = early_stopping_patience, stop_after

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step >= self.stop_after


class CallbackHandler:
    def __init__(self, callbacks: Any) -> None:
        self.callbacks = list(callbacks)

    def call_event(self, event: str, args: Any, state: Any, control: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(args, state, control, model=None)


class TrainingArguments:
    def __init__(
        self, output_dir: str = "", *, num_train_epochs: float = 3.0, max_steps: int = -1, **given: Any
    ) -> None:
        self.num_train_epochs, self.max_steps = num_train_epochs, max_steps
        self.per_device_train_batch_size = given.get("per_device_train_batch_size", 8)
        self.evaluates = given.get("eval_strategy", "no") != "no"


class BertConfig:
    def __init__(self, **kwargs: Any) -> None:
        pass


class BertForSequenceClassification:
    def __init__(self, config: Any) -> None:
        pass


class Trainer:
    """Trains nothing. ``at_step`` of the model, if there is one, is called with the number of each step."""

    def __init__(
        self,
        model: Any = None,
        args: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        callbacks: Any = (),
    ) -> None:
        self.model, self.args, self.data = model, args, train_dataset
        self.callback_handler = CallbackHandler(callbacks)

    def train(self, resume_from_checkpoint: int = 0) -> None:
        each = math.ceil(len(self.data) / self.args.per_device_train_batch_size)
        steps = self.args.max_steps if self.args.max_steps > 0 else math.ceil(each * self.args.num_train_epochs)
        epochs = math.ceil(steps / each)
        control = SimpleNamespace(should_training_stop=False)
        state = SimpleNamespace(
            global_step=resume_from_checkpoint, max_steps=steps, num_train_epochs=epochs, is_world_process_zero=True
        )

        def call(event: str) -> None:
            self.callback_handler.call_event(event, self.args, state, control)

        call("on_train_begin")
        while state.global_step < steps and not control.should_training_stop:
            call("on_step_begin")
            getattr(self.model, "at_step", lambda step: None)(state.global_step + 1)
            state.global_step += 1
            call("on_step_end")
            if state.global_step % each == 0:
                call("on_epoch_end")
                if self.args.evaluates:
                    call("on_prediction_step")
                    call("on_evaluate")
        call("on_train_end")
