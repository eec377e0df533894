"""Worlds become an interval, and what came true moves it: by tables."""

from __future__ import annotations

import math

import pytest

from hub_extensions.core.queue.interval import SOON, Correction, Interval, corrected, limited, read

NEVER = math.inf
SHOWN = Interval(60.0, 120.0, 240.0)


@pytest.mark.parametrize(
    ("starts", "found"),
    [
        ([5.0], (5.0, 5.0, 5.0)),
        ([100.0, 0.0], (10.0, 50.0, 90.0)),
        ([0.0] * 19 + [NEVER], (0.0, 0.0, 0.0)),
        ([0.0] * 9 + [NEVER], None),
        ([0.0] * 8 + [NEVER] * 2, None),
        ([], None),
    ],
)
def test_quantiles_lie_between_two_worlds(starts: list[float], found: tuple[float, float, float] | None) -> None:
    made = read(starts)
    assert (made and (made.p10, made.p50, made.p90)) == (found and pytest.approx(found))


def test_who_starts_at_the_last_moment_of_a_quarter_starts_within_it() -> None:
    made = read([SOON[0], SOON[0] + 1, SOON[1], SOON[2] + 1])
    assert made is not None and made.within == (0.25, 0.75, 0.75)


@pytest.mark.parametrize(
    ("shown", "at_most", "by_limit", "expected"),
    [
        (Interval(10.0, 60.0, 600.0), None, False, (10.0, 60.0, 600.0)),
        (Interval(90.0, 60.0, 600.0), None, True, (60.0, 60.0, 600.0)),
        (Interval(90.0, 60.0, 600.0), 700.0, False, (60.0, 60.0, 600.0)),
        (Interval(10.0, 60.0, 600.0), 100.0, False, (10.0, 60.0, 100.0)),
        (Interval(10.0, 60.0, 600.0), 5.0, False, (5.0, 5.0, 5.0)),
        (Interval(10.0, 60.0, 600.0), 900.0, True, (10.0, 60.0, 900.0)),
    ],
)
def test_nothing_goes_beyond_what_is_enforced(
    shown: Interval, at_most: float | None, by_limit: bool, expected: tuple[float, float, float]
) -> None:
    made = limited(shown, at_most, by_limit)
    assert (made.p10, made.p50, made.p90) == expected


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        (None, (60.0, 120.0, 240.0)),
        ((0.0, 0.0), (60.0, 120.0, 240.0)),
        ((math.log(1.5), math.log(2)), (120.0, 120.0, 540.0)),  # 1 and 4 min are 2 and 5 in log1p
        ((-math.log(1.5), -math.log(2)), (20.0, 120.0, 120.0)),
        ((-9.0, 9.0), (0.0, 120.0, 60 * (5 * math.exp(2.5) - 1))),
    ],
)
def test_the_ends_are_moved_in_log_time_and_not_without_measure(
    moves: tuple[float, float] | None, expected: tuple[float, float, float]
) -> None:
    made = corrected(SHOWN, moves)
    assert (made.p10, made.p50, made.p90) == pytest.approx(expected)


AT_ONCE = Interval(0.0, 0.0, 0.0)


def errors(waited: list[float]) -> Correction:
    """Where nothing was expected, log1p of the minutes that somebody waited is the error."""
    found = Correction()
    for each in waited:
        found.matured(AT_ONCE, each)
    return found


def in_log(error: float) -> float:
    return 60 * math.expm1(error)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(20, 2.0, 19.0), (29, 3.0, 27.0), (30, 3.0, 28.0), (150, 15.0, 136.0)],
)
def test_of_so_many_errors_those_at_both_ends_move_the_next(count: int, low: float, high: float) -> None:
    """The k-th smallest error of n, as conformal prediction asks for: ceil(0.9 (n + 1)), and the same from above."""
    found = errors([in_log(number / 100) for number in range(count, 0, -1)])
    assert found.moves() == pytest.approx((low / 100, high / 100))


def test_below_twenty_nothing_is_moved_and_only_the_last_count() -> None:
    assert errors([60.0] * 19).moves() is None and errors([60.0] * 20).moves() is not None
    assert errors([in_log(1.0)] * 150 + [in_log(2.0)] * 150).moves() == pytest.approx((2.0, 2.0))


def test_who_waits_longer_than_he_was_told_is_an_error_already() -> None:
    found = errors([in_log(1.0)] * 20)
    late = (AT_ONCE, in_log(3.0))
    assert found.moves([late]) == pytest.approx((1.0, 1.0))
    assert found.moves([late] * 2) == pytest.approx((1.0, 3.0))
    assert found.moves([(Interval(0.0, 0.0, in_log(2.5)), in_log(3.0))] * 9) == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize(
    ("p90", "waited", "limit", "expected"),
    [
        (200.0, 300.0, 400.0, True),  # 90 off, or 10
        (200.0, 300.0, 1150.0, True),  # 90 off, or 85
        (200.0, 300.0, 1250.0, False),  # 90 off, or 95
        (3600.0, 3600.0, 3600.0, False),  # neither is better
        (3599.99, 3600.0, 3600.0, True),
    ],
)
def test_the_better_of_two_is_shown(p90: float, waited: float, limit: float, expected: bool) -> None:
    found = Correction()
    for _ in range(20):
        found.matured(Interval(10.0, 20.0, p90), waited, limit)
    assert found.by_limit is expected
