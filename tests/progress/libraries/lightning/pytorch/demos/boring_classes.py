"""The model that Lightning ships for trials: 64 batches."""

from typing import Any


class BoringModel:
    def __init__(self, batches: int = 64, endless: bool = False, first_batch: int = 0) -> None:
        self.batches, self.endless, self.first_batch = batches, endless, first_batch

    def training_step(self, batch: Any, batch_idx: int) -> None:
        pass
