"""A stand-in for Lightning 2: `Trainer.fit` calls the callbacks in the order and with the values of the real one."""

from __future__ import annotations

from typing import Any


class Trainer:
    """Fits nothing; a module says how many batches it has and where it raises an exception."""

    is_global_zero = True
    sanity_checking = False
    current_epoch = 0

    def __init__(
        self,
        *,
        max_epochs: int | None = None,
        max_steps: int = -1,
        accumulate_grad_batches: int = 1,
        callbacks: Any = (),
        **kwargs: Any,
    ) -> None:
        self.max_epochs = 1000 if max_epochs is None and max_steps == -1 else (-1 if max_epochs is None else max_epochs)
        self.max_steps, self.accumulate_grad_batches = max_steps, accumulate_grad_batches
        self.callbacks, self.should_stop, self.global_step = list(callbacks), False, 0
        self.num_training_batches: Any = 0  # known before `on_train_start`

    def call(self, name: str, module: Any, *args: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, name)(self, module, *args)

    def validate(self, module: Any) -> None:
        self.call("on_validation_start", module)
        self.call("on_validation_batch_end", module, None, None, 0)
        self.call("on_validation_end", module)

    def fit(self, module: Any) -> None:
        batches = module.batches
        self.num_training_batches = float("inf") if module.endless else batches
        self.sanity_checking = True
        self.validate(module)
        self.sanity_checking = False
        try:
            self.call("on_train_start", module)
            while not self.over():
                for batch in range(module.first_batch, batches):
                    if self.over():
                        break
                    module.training_step(None, batch)
                    self.global_step += (batch + 1) % self.accumulate_grad_batches == 0
                    self.call("on_train_batch_end", module, None, None, batch)
                module.first_batch = 0
                self.validate(module)
                self.current_epoch += 1
            self.call("on_train_end", module)
        except BaseException as problem:
            self.call("on_exception", module, problem)
            if not isinstance(problem, KeyboardInterrupt):  # which Lightning takes for a wish to stop
                raise

    def over(self) -> bool:
        by_steps = 0 <= self.max_steps <= self.global_step
        return self.should_stop or by_steps or 0 <= self.max_epochs <= self.current_epoch
