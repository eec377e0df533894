from typing import Any


class Callback:
    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *args: None
        raise AttributeError(name)


class EarlyStopping(Callback):
    def __init__(self, monitor: str, patience: int = 3, stop_after: int = 10**9) -> None:
        self.patience, self.stop_after = patience, stop_after

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        trainer.should_stop = not trainer.sanity_checking and trainer.current_epoch + 1 >= self.stop_after
