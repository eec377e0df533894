"""fastai: ``Learner(…, cbs=FastaiProgress("pets"))`` shows the training in the GPU panel."""

from __future__ import annotations

from fastai.callback.core import Callback

from hub_extensions.progress.writer import ProgressRun, never_raises, patience_of


@never_raises
class FastaiProgress(Callback):  # type: ignore[misc]
    order = 60  # after the Recorder

    def __init__(self, name: str = "") -> None:
        self.run_name = name
        self.reported: ProgressRun | None = None  # `run` and `progress` are names of fastai

    def before_fit(self) -> None:
        self.reported = None
        if hasattr(self.learn, "lr_finder") or hasattr(self, "gather_preds"):
            return  # no training: `lr_find` and `get_preds` call the same hooks
        epochs, steps = self.learn.n_epoch, len(self.learn.dls.train)
        self.reported = ProgressRun(self.run_name, "fastai", total=epochs * steps, epochs=epochs, epoch_steps=steps)
        self.reported.patience = patience_of(self.learn.cbs)

    def after_batch(self) -> None:
        run = self.reported
        if run is not None and run.steps == 0:
            run.start = self.learn.epoch * run.epoch_steps  # `start_epoch` of a fit
        if run is not None:
            run.count(run.steps + int(self.learn.training))

    def after_validate(self) -> None:
        if self.reported is not None:
            self.reported.count(self.reported.steps)

    def after_fit(self) -> None:
        if self.reported is not None:
            self.reported.end()
