"""Simulated starts become an interval, and nothing that is shown exceeds a limit: by tables."""

from __future__ import annotations

import math

import pytest

from hub_extensions.core.forecast.interval import SOON, Interval, limited, loss_90, quantiles, widened, with_first

NEVER = math.inf


@pytest.mark.parametrize(
    ("starts", "found"),
    [
        ([5.0], (5.0, 5.0, 5.0)),
        ([100.0, 0.0], (10.0, 50.0, 90.0)),
        ([100.0 * n for n in range(11)], (100.0, 500.0, 900.0)),
        ([0.0] * 19 + [NEVER], (0.0, 0.0, 0.0)),
        ([0.0] * 9 + [NEVER], None),
        ([0.0] * 8 + [NEVER] * 2, None),
        ([], None),
    ],
)
def test_quantiles_lie_between_two_starts(starts: list[float], found: tuple[float, float, float] | None) -> None:
    made = quantiles(starts)
    assert (made and (made.p10, made.p50, made.p90)) == (found and pytest.approx(found))


def test_a_start_at_the_last_moment_of_a_quarter_of_an_hour_is_within_it() -> None:
    made = quantiles([SOON[0], SOON[0] + 1, SOON[1], SOON[2] + 1])
    assert made is not None and made.within == (0.25, 0.75, 0.75)


def test_all_quantiles_are_of_both_simulations() -> None:
    assert quantiles([10.0, 20.0, 30.0], [60.0, 70.0, 80.0]) == quantiles([10.0, 20.0, 30.0, 60.0, 70.0, 80.0])
    assert quantiles([10.0] * 9, [NEVER] * 9) is None


@pytest.mark.parametrize(
    ("shown", "at_most", "limit_is_p90", "expected"),
    [
        (Interval(10.0, 60.0, 600.0), None, False, (10.0, 60.0, 600.0)),
        (Interval(10.0, 60.0, 600.0), None, True, (10.0, 60.0, 600.0)),  # nothing is enforced
        (Interval(10.0, 60.0, 600.0), 700.0, False, (10.0, 60.0, 600.0)),
        (Interval(10.0, 60.0, 600.0), 700.0, True, (10.0, 60.0, 700.0)),
        (Interval(10.0, 60.0, 600.0), 100.0, False, (10.0, 60.0, 100.0)),
        (Interval(10.0, 60.0, 600.0), 5.0, False, (5.0, 5.0, 5.0)),
        (Interval(10.0, 60.0, 600.0), 5.0, True, (5.0, 5.0, 5.0)),
    ],
)
def test_nothing_exceeds_the_limit_and_the_limit_is_never_the_middle(
    shown: Interval, at_most: float | None, limit_is_p90: bool, expected: tuple[float, float, float]
) -> None:
    made = limited(shown, at_most, limit_is_p90)
    assert (made.p10, made.p50, made.p90) == expected


def test_both_ends_move_outwards_in_log_time_and_the_middle_stays() -> None:
    made = widened(Interval(60.0, 180.0, 420.0), math.log(2))
    assert (made.p10, made.p50, made.p90) == pytest.approx((0.0, 180.0, 900.0))


@pytest.mark.parametrize(("p90", "waited", "loss"), [(60.0, 180.0, 0.9), (180.0, 60.0, 0.1), (60.0, 60.0, 0.0)])
def test_a_wait_beyond_p90_costs_nine_times_as_much(p90: float, waited: float, loss: float) -> None:
    assert loss_90(p90, waited) == pytest.approx(loss * math.log(2))


@pytest.mark.parametrize(
    ("first", "waited", "told"),
    [
        (7200.0, 0.0, 60 * (math.sqrt(11 * 121) - 1)),  # at the join both count alike, in log time
        (7200.0, 3600.0, 60 * (11**0.75 * 61**0.25 - 1)),  # half of the way: a quarter, and of what is left
        (7200.0, 7200.0, 600.0),  # as long as the first: the simulation knows better
        (7200.0, 9000.0, 600.0),
        (0.0, 0.0, 600.0),
        (60.0, 0.0, 60 * (math.sqrt(11 * 2) - 1)),  # the ends give way
    ],
)
def test_the_mean_of_the_median_and_the_first_in_line(first: float, waited: float, told: float) -> None:
    found = with_first(Interval(500.0, 600.0, 700.0, (0.1, 0.2, 0.3)), first, waited)
    assert (found.p10, found.p50, found.p90) == pytest.approx((min(500.0, told), told, max(700.0, told)))
    assert found.within == (0.1, 0.2, 0.3)
