"""Learns from past uses (one server's time with a GPU) and computes how long users in line are likely to wait.

This is the part of the forecast that needs numpy and the history in memory. It runs in the worker process
(``forecast_worker.py``). Tests and benchmarks may use it in their own process.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence

from hub_extensions.core.forecast.results import ForecastInputs, Given, Stay, WaitForecasts
from hub_extensions.core.forecast.simulate import GivenUp
from hub_extensions.core.forecast.wait_model import WaitModel
from hub_extensions.hub_service.engine.state.errors import CalculationEnded


class ForecastCalculator:
    """Computes the likely waits: the times within which a user in line gets a GPU with 10, 50 and 90 % probability.

    They are called P10, P50 and P90. The calculator simulates the line with a model of how long servers keep their
    GPUs, which learns from past uses (one server's time with a GPU each). `ForecastWorker` has the same methods and
    calls these in its worker process.
    """

    def __init__(self) -> None:
        self._model = WaitModel()
        self._pages: list[bytes] = []
        self._closed = False

    def begin_history(self) -> None:
        """Start to load a history of past uses: `add_page` is called for each of its pages, then `load_history`.

        Pages of an earlier history that was not loaded to its end are discarded.
        """
        self._pages.clear()

    def add_page(self, page: Sequence[Stay]) -> None:
        """Add a page of past uses (one server's time with a GPU) to the history that `load_history` learns from.

        The use that ended last comes first, within and across pages.
        """
        # pickled, 20,000 uses take 1 MiB instead of 8, and the model keeps only a part of them
        self._pages.append(pickle.dumps(page, pickle.HIGHEST_PROTOCOL))

    def load_history(self, joins: Sequence[Given]) -> None:
        """Forget what was learned, then learn from the added pages of past uses and from the errors of past forecasts.

        Args:
            joins: past forecasts that users were given when they joined the line, with the waits that followed.

        Raises:
            CalculationEnded: `close` was called meanwhile.
        """
        model = WaitModel()
        while self._pages:  # the last page first, because the model learns in the order in which uses ended
            if self._closed:
                raise CalculationEnded("the service stops")
            model.learn(reversed(pickle.loads(self._pages.pop())))
        self._model = model
        self._mature(joins)

    def answer(
        self, inputs: ForecastInputs, stays: Sequence[Stay], matured: Sequence[Given], seed: int
    ) -> tuple[WaitForecasts, float]:
        """Learn from the uses and waits that have ended since the last call, then compute the likely waits.

        Args:
            inputs: the line, the leases (servers' rights to their GPUs), and the ends of leases that are known already.
            stays: past uses (one server's time with a GPU) that ended since the last call.
            matured: forecasts whose tickets (places in line) have started since the last call, with the real waits.
            seed: seed of the simulation's random numbers.

        Returns:
            The likely waits, and the seconds of processor time that they took.

        Raises:
            CalculationEnded: `close` was called meanwhile.
        """
        self._model.learn(stays)
        self._mature(matured)
        began = time.thread_time()
        try:
            found = self._model.answer(inputs, seed, lambda: not self._closed)
        except GivenUp:
            raise CalculationEnded("the service stops") from None
        return found, time.thread_time() - began

    def release(self) -> None:
        """Forget the past uses that were learned from, to free the memory.

        The past uses have to be loaded again before the next computation.
        """
        self._model = WaitModel()

    def close(self) -> None:
        """Let a computation that runs in another thread end soon, without a result."""
        self._closed = True

    def _mature(self, given: Sequence[Given]) -> None:
        for each in given:
            joined = each.running.timestamp()
            self._model.matured(each.pool, each.played, each.waited or 0.0, each.at_most, joined)
