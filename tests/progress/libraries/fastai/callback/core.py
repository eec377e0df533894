"""A stand-in for the callbacks and the learner of fastai 2, with the events and the order of the real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class CancelFitException(Exception):
    pass


class Callback:
    order, learn = 0, None

    def __call__(self, event: str) -> None:
        getattr(self, event, lambda: None)()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self.__dict__.get("learn") is None:
            raise AttributeError(name)
        return getattr(self.learn, name)  # as fastai does


class LRFinder(Callback):
    pass


class EarlyStoppingCallback(Callback):
    order = 60

    def __init__(self, patience: int = 1, stop_after: int = 10**9) -> None:
        self.patience, self.stop_after = patience, stop_after

    def after_epoch(self) -> None:
        if self.epoch + 1 >= self.stop_after:
            raise CancelFitException


class Learner:
    def __init__(self, cbs: Any = (), batches: int = 5, at_batch: Any = lambda batch: None) -> None:
        self.cbs = list(cbs) if isinstance(cbs, (list, tuple)) else [cbs]
        self.dls = SimpleNamespace(train=range(batches), valid=range(2))
        self.at_batch, self.training, self.epoch, self.n_epoch = at_batch, False, 0, 0

    def call(self, event: str) -> None:
        for callback in sorted(self.cbs, key=lambda callback: callback.order):
            callback.learn = self
            callback(event)

    def batches(self, data: Any, *, training: bool) -> None:
        self.training = training
        for batch in data:
            self.call("before_batch")
            self.at_batch(batch)
            self.call("after_batch")

    def fit(self, n_epoch: int, start_epoch: int = 0) -> None:
        self.n_epoch = n_epoch
        try:
            self.call("before_fit")
            for self.epoch in range(start_epoch, n_epoch):
                self.call("before_epoch")
                self.call("before_train")
                self.batches(self.dls.train, training=True)
                self.call("after_train")
                self.call("before_validate")
                self.batches(self.dls.valid, training=False)
                self.call("after_validate")
                self.call("after_epoch")
        except CancelFitException:
            self.call("after_cancel_fit")
        self.call("after_fit")

    def validate(self) -> None:
        self.call("before_fit")  # as fastai does
        self.call("before_epoch")
        self.batches(self.dls.valid, training=False)
        self.call("after_epoch")
        self.call("after_fit")

    def lr_find(self) -> None:
        self.lr_finder = LRFinder()
        try:
            self.fit(1)
        finally:
            del self.lr_finder
