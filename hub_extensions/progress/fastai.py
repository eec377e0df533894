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
        self.maybe_inner = False

    def before_fit(self) -> None:  # also called by `validate` and `get_preds`
        self.maybe_inner = self.reported is not None  # a validation inside a fit, or a fit after one that failed

    def before_train(self) -> None:  # not called by `validate` and `get_preds`
        if self.maybe_inner:
            self.reported, self.maybe_inner = None, False
        if self.reported is not None or hasattr(self.learn, "lr_finder"):
            return
        epochs, steps, patience = self.learn.n_epoch, len(self.learn.dls.train), patience_of(self.learn.cbs)
        self.reported = ProgressRun(self.run_name, "fastai", epochs=epochs, epoch_steps=steps, patience=patience)
        self.reported.total, self.reported.start = epochs * steps, self.learn.epoch * steps

    def after_batch(self) -> None:
        if self.reported is not None:
            self.reported.count(self.reported.steps + int(self.learn.training))

    def after_validate(self) -> None:
        if self.reported is not None:
            self.reported.count(self.reported.steps)

    def after_fit(self) -> None:
        if self.maybe_inner:
            self.maybe_inner = False
        elif self.reported is not None:
            self.reported.end()
            self.reported = None
