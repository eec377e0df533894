"""The callbacks of the stand-in: as in Keras 3, a callback does not know the list that it is in."""

from __future__ import annotations

from typing import Any


class Callback:
    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.model: Any = None

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params

    def set_model(self, model: Any) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


class CallbackList:
    def __init__(self, callbacks: Any, model: Any, **params: Any) -> None:
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            callback.set_model(model)
            callback.set_params(params)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> None:
            for callback in self.callbacks:
                getattr(callback, name)(*args)

        return call


class EarlyStopping(Callback):
    def __init__(self, monitor: str = "val_loss", patience: int = 0) -> None:
        super().__init__()
        self.monitor, self.patience, self.best, self.wait = monitor, patience, float("inf"), 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.wait += 1
        if logs[self.monitor] < self.best:
            self.best, self.wait = logs[self.monitor], 0
        elif self.wait >= self.patience:
            self.model.stop_training = True


class ReduceLROnPlateau(Callback):
    def __init__(self, patience: int = 10) -> None:
        super().__init__()
        self.patience = patience
