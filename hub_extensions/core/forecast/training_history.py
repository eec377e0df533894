"""The finished training runs of one user: how long runs of a name usually take, and how good their forecasts were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

from hub_extensions.core.forecast.training import FEWEST, PastForecast

VERSION = 1
MAX_RUNS = 200
SHORTEST_UNNAMED_SECONDS = 60.0  # shorter runs without a name are left out, otherwise short loops push out all others
USUAL_RUNS = 10  # the last runs of a name whose median is the usual length
LEAST_USUAL_RUNS = 2


@dataclass(frozen=True, slots=True)
class PastRun:
    """A training run that was finished.

    Attributes:
        name: name of the workload; "" if the program gave none.
        offer: the offer that the server was started with; "" if it was not known.
        resumed: whether it continued an earlier run, so that its length is not that of a whole run.
        forecasts: what was forecast at some points of the run, before any correction.
    """

    run: str
    name: str
    offer: str
    started: datetime
    seconds: float
    resumed: bool
    forecasts: tuple[PastForecast, ...]


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """The last finished runs of a user, the latest last; at most `MAX_RUNS`."""

    version: int = VERSION
    runs: tuple[PastRun, ...] = ()

    def add(self, run: PastRun) -> TrainingHistory:
        """Return the history with another run. One that it already has is left out, and a short one without a name."""
        is_trifle = not run.name and run.seconds < SHORTEST_UNNAMED_SECONDS
        if is_trifle or any(each.run == run.run for each in self.runs):
            return self
        return replace(self, runs=(*self.runs, run)[-MAX_RUNS:])

    def usual(self, name: str, offer: str) -> tuple[float | None, int]:
        """Return the median length in seconds of the last runs of a name and offer, and their number.

        The length is `None` if there are fewer than `LEAST_USUAL_RUNS`, or without a name.
        """
        alike = [each for each in self.runs if each.name == name and each.offer == offer and not each.resumed]
        lengths = [each.seconds for each in alike[-USUAL_RUNS:]] if name else []
        if len(lengths) < LEAST_USUAL_RUNS:
            return None, len(lengths)
        return median(lengths), len(lengths)

    def past(self, name: str, offer: str) -> Sequence[PastForecast]:
        """Return the forecasts of earlier runs with an offer, the latest last.

        They are those of the runs of a name if there are enough of them to correct an interval, otherwise all.
        """
        runs = [each for each in self.runs if each.offer == offer and each.forecasts]
        named = [each for each in runs if each.name == name]
        chosen = named if name and len(named) >= FEWEST else runs
        return [forecast for each in chosen for forecast in each.forecasts]
