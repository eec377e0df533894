"""Survival curves (Kaplan-Meier) of the uses of a pool and of each offer, without regard to users.

A use that still runs or was ended by a limit is censored: it would have lasted longer. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Places = NDArray[np.int64]
Flags = NDArray[np.bool_]

PRIOR = 100
"""Number of uses that the pool's curve counts for in the curve of each offer."""


@dataclass(frozen=True, slots=True)
class PastUse:
    """A finished use.

    Attributes:
        offer: key of similar uses.
        asked: when it was asked for.
        lasted: how long it held its device.
        at_limit: whether an enforced limit ended it, so it would have lasted longer.
    """

    user: str
    offer: Hashable
    asked: float
    lasted: float
    at_limit: bool = False


class Curve:
    """Lives in ascending order with their probabilities, and precomputed cumulative sums."""

    def __init__(self, lives: FloatArray, masses: FloatArray) -> None:
        self.values, self.masses = lives, masses
        self._sure = np.concatenate((np.zeros(1), masses.cumsum()))

    @property
    def total(self) -> float:
        """The sum of the probabilities."""
        return float(self._sure[-1])

    def up_to(self, ages: FloatArray) -> FloatArray:
        """Return the probabilities that a life is not longer than each age."""
        found: FloatArray = self._sure[self.values.searchsorted(ages, side="right")]
        return found

    def lives(self, points: FloatArray, below: FloatArray) -> FloatArray:
        """Return quantiles of the lives that are longer than an age.

        Args:
            points: from 0 to 1.
            below: the probability of a life up to the age; less than `total`.
        """
        at = self._sure[1:].searchsorted(below + points * (self._sure[-1] - below), side="right")
        found: FloatArray = self.values[np.minimum(at, len(self.values) - 1)]
        return found


class PoolCurves:
    """The curve of a pool, `whole`, and for each offer the mean of its own curve and the pool's.

    The pool's curve is the prior: it counts as `PRIOR` uses beside the offer's own (a Dirichlet process as prior of a
    survival curve: Susarla and Van Ryzin 1976).

    Args:
        running: offer and age of each use that has not ended.
    """

    def __init__(self, ended: Sequence[PastUse], running: Sequence[tuple[Hashable, float]]) -> None:
        self._ended, self._running = ended, running
        self._uses: dict[Hashable, list[PastUse]] = {}
        self._offers: dict[Hashable, Curve] = {}
        self.whole = Curve(*kaplan_meier(ended, [age for _, age in running]))

    def of(self, offer: Hashable) -> Curve:
        """Return the curve of one offer, or the pool's if the offer was never used."""
        if not self._uses:
            for use in self._ended:
                self._uses.setdefault(use.offer, []).append(use)
        uses = self._uses.get(offer)
        if not uses:
            return self.whole
        if offer not in self._offers:
            own = Curve(*kaplan_meier(uses, [age for each, age in self._running if each == offer]))
            share = len(uses) / (len(uses) + PRIOR)
            lives = np.concatenate((own.values, self.whole.values))
            masses = np.concatenate((own.masses * share, self.whole.masses * (1 - share)))
            order = lives.argsort(kind="stable")
            self._offers[offer] = Curve(lives[order], masses[order])
        return self._offers[offer]


def kaplan_meier(ended: Sequence[PastUse], running: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Return lives and the mass of each; uses that still run or were ended by a limit are censored.

    The remaining mass is assigned to the longest life.
    """
    if not ended:
        return np.array([]), np.array([])
    lasted = np.array([use.lasted for use in ended] + list(running))
    over = np.array([not use.at_limit for use in ended] + [False] * len(running))
    order = np.lexsort((~over, lasted))
    lasted, over = lasted[order], over[order]
    at_risk = len(lasted) - np.arange(len(lasted))
    kept: FloatArray = np.cumprod(np.where(over, 1 - 1 / at_risk, 1.0)).astype(np.float64)
    masses: FloatArray = np.concatenate((np.ones(1), kept[:-1])) - kept
    masses[-1] += kept[-1]
    there = masses > 0
    return lasted[there], masses[there]
