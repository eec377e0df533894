"""Lightning: ``Trainer(callbacks=[LightningProgress("mnist")])`` shows the training in the GPU panel."""

from __future__ import annotations

from typing import Any

from hub_extensions.progress.writer import ProgressRun, never_raises, patience_of, whole

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback


@never_raises
class LightningProgress(Callback):  # type: ignore[misc]
    def __init__(self, name: str = "") -> None:
        self.run_name = name

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # after the sanity check
        if not trainer.is_global_zero:
            return
        epochs, steps = whole(trainer.max_epochs), whole(trainer.num_training_batches)  # -1, inf: no end
        totals = [epochs * steps] if epochs is not None and steps is not None else []
        if trainer.max_steps > 0:  # of the optimizer
            totals.append(trainer.max_steps * trainer.accumulate_grad_batches)
        self.run = ProgressRun(
            self.run_name, "lightning", epochs=epochs, epoch_steps=steps, total=min(totals, default=None)
        )
        self.run.patience = patience_of(trainer.callbacks)
        self.run.start = trainer.current_epoch * (steps or 0)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.run.steps == 0:
            self.run.start += batch_idx  # resumed within an epoch
        self.run.count(self.run.steps + 1)

    def on_validation_batch_end(self, *args: Any) -> None:
        self.run.count(self.run.steps)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.run.fail(exception)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.run.end()
