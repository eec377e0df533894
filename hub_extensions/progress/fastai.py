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

    def before_train(self) -> None:  # `validate` and `get_preds` call `before_fit`, but not this
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

    def before_fit(self) -> None:
        self.reported = None  # of a fit that an exception ended

    def after_fit(self) -> None:
        if self.reported is not None:
            self.reported.end()
            self.reported = None
