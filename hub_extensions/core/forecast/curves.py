"""Survival curves (Kaplan-Meier) of how long GPUs are held, for a pool and for each offer, without regard to users.

A use is one server's time with a GPU; its length is called its life. A use that still runs, or that a limit ended, is
censored: it would have lasted longer than is known. Times are seconds.
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
"""Weight of the pool's curve in the curve of each offer, as a number of uses."""


@dataclass(frozen=True, slots=True)
class PastUse:
    """A finished use: one server's time with a GPU.

    Attributes:
        offer: key that similar uses have in common (`kind_of_use`).
        asked: when the user asked for it, seconds by the wall clock.
        lasted: how long the server held its device.
        at_limit: whether an enforced limit ended the use, so that it would have lasted longer.
    """

    user: str
    offer: Hashable
    asked: float
    lasted: float
    at_limit: bool = False


class Curve:
    """A survival curve: possible lives (lengths of a use) in ascending order, each with its probability.

    Cumulative sums of the probabilities are computed once.
    """

    def __init__(self, lives: FloatArray, masses: FloatArray) -> None:
        self.values, self.masses = lives, masses
        self._sure = np.concatenate((np.zeros(1), masses.cumsum()))

    @property
    def total(self) -> float:
        """The sum of the probabilities of all lives."""
        return float(self._sure[-1])

    def up_to(self, ages: FloatArray) -> FloatArray:
        """Return, for each age in seconds, the probability that a life is not longer."""
        found: FloatArray = self._sure[self.values.searchsorted(ages, side="right")]
        return found

    def lives(self, points: FloatArray, below: FloatArray) -> FloatArray:
        """Return quantiles of the remaining lives, for uses that have reached an age already.

        Args:
            points: the ranks of the quantiles, from 0 to 1.
            below: the probability of a life up to the age, from `up_to`; less than `total`.
        """
        at = self._sure[1:].searchsorted(below + points * (self._sure[-1] - below), side="right")
        found: FloatArray = self.values[np.minimum(at, len(self.values) - 1)]
        return found


class PoolCurves:
    """The survival curve of a pool (`whole`), and one for each offer: the weighted mean of its own and the pool's.

    The pool's curve is the prior. It has the weight of `PRIOR` uses beside the offer's own uses (a Dirichlet process as
    prior of a survival curve: Susarla and Van Ryzin 1976).

    Args:
        ended: finished uses.
        running: (offer, seconds so far) of each use that still goes on.
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
    """Return the Kaplan-Meier estimate: possible lives in ascending order, and the probability of each.

    Uses that still go on, or that a limit ended, are censored. The probability of lives longer than all known ones is
    added to that of the longest life.

    Args:
        ended: finished uses.
        running: seconds so far of each use that still goes on.
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
