"""Survival curves (Kaplan-Meier) of how long GPUs are held, for a pool and for each offer, without regard to users.

A use is one server's time with a GPU; its length is called its life. A use that still runs, or that a limit ended, is
censored: its full life is longer than what was observed. Times are seconds.
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
        user: name of the user.
        offer: key that similar uses have in common (`kind_of_use`).
        asked: when the user asked for the server, in seconds of the wall clock.
        lasted: seconds for which the server held its device.
        at_limit: whether an enforced limit ended the use, so that it would have lasted longer.
    """

    user: str
    offer: Hashable
    asked: float
    lasted: float
    at_limit: bool = False


class Curve:
    """A survival curve: possible lives (lengths of a use) in ascending order, each with its probability.

    Attributes:
        values: the lives in seconds.
        masses: the probability of each.
    """

    def __init__(self, lives: FloatArray, masses: FloatArray) -> None:
        self.values, self.masses = lives, masses
        self._sure = np.concatenate((np.zeros(1), masses.cumsum()))

    @property
    def total(self) -> float:
        """The sum of the probabilities of all lives (lengths of a use): 1, or 0 if the curve is empty."""
        return float(self._sure[-1])

    def up_to(self, ages: FloatArray) -> FloatArray:
        """Return the probability of a life (length of a use) up to each of these ages.

        Args:
            ages: seconds.
        """
        found: FloatArray = self._sure[self.values.searchsorted(ages, side="right")]
        return found

    def lives(self, points: FloatArray, below: FloatArray) -> FloatArray:
        """Return lives (lengths of a use), each of which is longer than a given age.

        Each life is picked by its rank among all lives that are longer than the age.

        Args:
            points: the rank of each life to return, from 0 (the shortest) to 1 (the longest).
            below: for each life to return, the age, given as the probability of a life up to that age (`up_to`). It has
                to be less than `total`.
        """
        at = self._sure[1:].searchsorted(below + points * (self._sure[-1] - below), side="right")
        found: FloatArray = self.values[np.minimum(at, len(self.values) - 1)]
        return found


class PoolCurves:
    """The survival curve of a pool (`whole`), and a curve for each offer.

    An offer's curve is the weighted mean of the curve of its own uses and the pool's curve. The pool's curve is the
    prior: it has the weight of `PRIOR` uses (a Dirichlet process as prior of a survival curve: Susarla and Van Ryzin
    1976).

    Args:
        ended: finished uses of the pool.
        running: (offer, seconds so far) of each use that still goes on.
    """

    def __init__(self, ended: Sequence[PastUse], running: Sequence[tuple[Hashable, float]]) -> None:
        self._ended, self._running = ended, running
        self._uses: dict[Hashable, list[PastUse]] = {}
        self._offers: dict[Hashable, Curve] = {}
        self.whole = Curve(*kaplan_meier(ended, [age for _, age in running]))

    def of(self, offer: Hashable) -> Curve:
        """Return the survival curve of one offer, or that of the whole pool if no use of the offer has finished."""
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
    """Return the Kaplan-Meier estimate: possible lives (lengths of a use) in ascending order, and their probabilities.

    Uses that still go on, or that a limit ended, are censored (known to last at least so long). The probabilities add
    up to 1: what remains for lives above the longest length seen, finished or not, is added to that length. Both arrays
    are empty if no use has finished.

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
