"""Worlds become an interval, and what came true moves it: by tables."""

from __future__ import annotations

import math

import pytest

from hub_extensions.core.queue.interval import (
    SOON,
    Correction,
    Interval,
    Trust,
    corrected,
    limited,
    read,
    surely_better,
    weights,
    with_first,
)

NEVER = math.inf


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
    ("shown", "at_most", "share", "expected"),
    [
        (Interval(10.0, 60.0, 600.0), None, 0.5, (10.0, 60.0, 600.0)),
        (Interval(90.0, 60.0, 600.0), None, 0.5, (60.0, 60.0, 600.0)),
        (Interval(90.0, 60.0, 600.0), 700.0, 0.0, (60.0, 60.0, 600.0)),
        (Interval(10.0, 60.0, 600.0), 100.0, 0.0, (10.0, 60.0, 100.0)),
        (Interval(10.0, 60.0, 600.0), 5.0, 0.5, (5.0, 5.0, 5.0)),
        (Interval(10.0, 60.0, 600.0), 1060.0, 0.05, (10.0, 110.0, 600.0)),
        (Interval(10.0, 60.0, 600.0), 1060.0, 0.2, (10.0, 260.0, 1060.0)),  # more than a tenth lies there
        (Interval(10.0, 60.0, 70.0), 1060.0, 0.05, (10.0, 110.0, 110.0)),
    ],
)
def test_nothing_goes_beyond_what_is_enforced_and_that_has_its_share(
    shown: Interval, at_most: float | None, share: float, expected: tuple[float, float, float]
) -> None:
    made = limited(shown, at_most, Trust(limit=share))
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


def moved(found: Correction, played: Interval = AT_ONCE) -> Interval:
    moves = found.moves()
    assert moves is not None
    return moves.moved(played)


@pytest.mark.parametrize(
    ("count", "low", "middle", "high"),
    [(20, 2.0, 0.0, 17.0), (30, 3.0, 5.0, 26.0), (150, 15.0, 65.0, 134.0)],
)
def test_of_so_many_errors_those_in_the_middle_and_at_both_ends_move_the_next(
    count: int, low: float, middle: float, high: float
) -> None:
    """Of n errors, of twenty that are none, and for P90 of one that is the worst of all. P10: the k-th of n+1."""
    found = errors([in_log(number / 100) for number in range(count, 0, -1)])
    made = moved(found)
    assert (made.p10, made.p50, made.p90) == pytest.approx([in_log(each / 100) for each in (low, middle, high)])


def test_below_twenty_nothing_is_moved_and_only_the_last_count() -> None:
    assert errors([60.0] * 19).moves() is None and errors([60.0] * 20).moves() is not None
    made = moved(errors([in_log(1.0)] * 150 + [in_log(2.0)] * 150))
    assert (made.p10, made.p50, made.p90) == pytest.approx([in_log(2.0)] * 3)


def test_a_move_has_its_measure() -> None:
    assert moved(errors([in_log(9.0)] * 150)).p90 == pytest.approx(in_log(2.5))
    late = [Interval(in_log(9.0), in_log(9.0), in_log(9.0))] * 150
    found = Correction()
    for each in late:
        found.matured(each, 0.0)
    assert moved(found, late[0]).p50 == pytest.approx(in_log(6.5))


def test_errors_of_waits_of_about_this_length_count_most() -> None:
    """Short waits came true as they were played, and long ones were twice as long."""
    found, short, long = Correction(), Interval(30.0, 60.0, 120.0), Interval(3000.0, 6000.0, 12000.0)
    for _ in range(75):
        found.matured(short, 60.0)
        found.matured(long, 12000.0)
    assert moved(found, short).p50 == pytest.approx(60.0)
    assert moved(found, long).p50 == pytest.approx(12000.0, rel=0.03)
    assert moved(found, Interval(0.0, 600.0, 600.0)).p50 == pytest.approx(600.0)
    assert moved(found, Interval(0.0, 4800.0, 4800.0)).p50 > 1.9 * 4800.0


@pytest.mark.parametrize(
    ("joined", "times"),
    [
        ([6000.0 * at for at in range(50)], 1.0),  # each waits alone
        ([60.0 * at for at in range(50)], 1.3),  # all wait at once
        ([6000.0 * (at // 25) for at in range(50)], 1.3),  # two waited one after the other
        ([6000.0 * (at // 5) for at in range(50)], 1.0),  # ten did
        ([3000.0 * at for at in range(50)], 1.0),  # each overlaps with the next: every other is counted
    ],
)
def test_as_long_as_few_waits_were_over_before_the_next_p90_is_longer_by_the_tolerance(
    joined: list[float], times: float
) -> None:
    """Everybody waited exactly as long as was played: of how many that have no moment in common?"""
    found, played = Correction(), Interval(3000.0, 6000.0, 6000.0)
    for at in joined:
        found.matured(played, 6000.0, None, at)
    made = moved(found, played)
    assert made.p90 + 60 == pytest.approx(times * (6000.0 + 60)) and made.p50 == pytest.approx(6000.0)


@pytest.mark.parametrize(("limit", "share"), [(0.0, 0.9), (0.05, 0.9 / 0.95), (0.09, 0.9 / 0.91), (0.2, 0.9)])
def test_what_is_believed_to_lie_at_the_limit_lies_beyond_the_play(limit: float, share: float) -> None:
    """Above a tenth the limit itself is P90, and the play's own is what it always was."""
    assert Trust(limit=limit).share == pytest.approx(share)


def test_p90_is_moved_by_larger_errors_where_some_of_the_waits_lie_at_the_limit() -> None:
    found, plain = Correction(), Correction()
    for at in range(60):
        found.matured(AT_ONCE, in_log(at / 40), at_most=in_log(1.5))
        plain.matured(AT_ONCE, in_log(at / 40))
    assert 0.05 < found.trust.limit < 0.1
    assert moved(found).p90 > moved(plain).p90 == pytest.approx(in_log(1.3))
    assert moved(found).p50 == moved(plain).p50


def test_the_median_is_of_both_plays_and_the_ends_are_of_the_first() -> None:
    made = read([10.0, 20.0, 30.0, 40.0, 50.0], [60.0] * 6)
    assert made is not None and (made.p10, made.p50, made.p90) == pytest.approx((14.0, 60.0, 60.0))
    made = read([60.0] * 6, [10.0, 20.0, 30.0, 40.0, 50.0, 50.0, 50.0])
    assert made is not None and (made.p10, made.p50, made.p90) == pytest.approx((50.0, 50.0, 60.0))
    assert read([10.0] * 9, [NEVER] * 9) is None


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([(0.0, 0.0)], [0.5, 0.5]),
        ([(3.0, 3.0)] * 9, [0.5, 0.5]),
        ([(0.0, 1.0)], [0.9133, 0.0867]),
        ([(0.0, 7.0)], [0.9133, 0.0867]),  # of losses the worst is the unit
        ([(0.0, 1.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)], [0.7645, 0.2355]),
        ([(0.0, 1.0, 1.0)], [0.9065, 0.0468, 0.0468]),
    ],
)
def test_experts_are_believed_by_what_they_lost(losses: list[tuple[float, ...]], expected: list[float]) -> None:
    assert weights(losses) == pytest.approx(expected, abs=1e-4)


def trusted(count: int, played: Interval, waited: float, limit: float | None, joined: float = math.inf) -> Trust:
    found = Correction()
    for _ in range(count):
        found.matured(played, waited, limit, joined)
    return found.trust


QUICK = Interval(200.0, 300.0, 400.0)


@pytest.mark.parametrize(
    ("count", "waited", "limit", "low", "high"),
    [
        (20, 3600.0, 3600.0, 0.9, 1.0),  # everybody stays to the limit, and the play expects less
        (19, 3600.0, 3600.0, 0.0, 0.0),  # too little came true yet
        (20, 300.0, 3600.0, 0.0, 0.02),  # the play is right
        (20, 300.0, None, 0.0, 0.0),  # nothing is enforced
    ],
)
def test_what_is_enforced_is_believed_as_far_as_it_foretold(
    count: int, waited: float, limit: float | None, low: float, high: float
) -> None:
    found = trusted(count, QUICK, waited, limit)
    assert low <= found.limit <= high and found.by_limit is (low > 0.1)


def test_a_moved_play_is_judged_by_what_was_known_when_it_was_said() -> None:
    assert trusted(60, QUICK, 1200.0, None, joined=0.0).moved == 0.5
    assert trusted(60, QUICK, 1200.0, None).moved > 0.9
    assert trusted(60, QUICK, 300.0, None).moved == 0.5


def test_the_median_lies_between_the_play_and_the_moved_play() -> None:
    found = Correction()
    for _ in range(60):
        found.matured(QUICK, 1200.0)
    play, other = QUICK.p50, moved(found, QUICK).p50
    for share in (0.0, 0.25, 1.0):
        made = corrected(QUICK, found.moves(), None, Trust(moved=share))
        assert made.p50 == pytest.approx((1 - share) * play + share * other) and made.p50 <= made.p90
    assert corrected(QUICK, None) == QUICK
    assert corrected(Interval(5.0, 4.0, 3.0), None) == Interval(4.0, 4.0, 4.0)


def test_a_limit_counts_once_enough_waits_had_one() -> None:
    found = Correction()
    for _ in range(150):  # in a dry run nothing is enforced
        found.matured(Interval(60.0, 600.0, 1800.0), 600.0)
    for waits in range(1, 21):
        found.matured(Interval(60.0, 600.0, 1800.0), 3600.0, at_most=3600.0)
        assert (found.trust.limit > 0) == (waits == 20)


HOUR = 3600.0


def behind(pairs: int, *, known: bool = False) -> Correction:
    """So many times somebody joins behind one who has waited 1 or 10 hours by then, and waits twice as long himself.

    `known`: the play knows it, too.
    """
    found = Correction()
    for number in range(pairs):
        ahead, joined = (HOUR, 10 * HOUR)[number % 2], number * 1000 * HOUR
        for at, waited in ((0.0, 1.5 * ahead), (ahead, 2 * ahead)):
            middle = waited if known else 3 * HOUR
            found.matured(Interval(middle / 2, middle, middle), waited, joined=joined + at)
    return found


@pytest.mark.parametrize(
    ("pairs", "known", "hours"),
    [
        (39, False, None),  # 20 teach how far off it is, and of the rest too few tell whether it is better
        (41, False, 10.0),  # the play knows neither the short waits nor the long ones
        (60, True, None),
    ],
)
def test_p90_follows_the_first_in_line_where_that_is_surely_better(
    pairs: int, known: bool, hours: float | None
) -> None:
    found = behind(pairs, known=known).p90_behind(5 * HOUR)
    assert found == (hours and pytest.approx(hours * HOUR, rel=0.01))


@pytest.mark.parametrize(("pairs", "known", "helps"), [(19, False, False), (20, False, True), (60, True, False)])
def test_the_first_in_line_helps_where_the_play_does_not_know_what_he_tells(
    pairs: int, known: bool, helps: bool
) -> None:
    """Waits of 2 and 20 hours behind one who has waited 1 and 10: 3 hours are always told, or what is true."""
    assert behind(pairs, known=known).first_helps is helps


@pytest.mark.parametrize(
    ("first", "waited", "told"),
    [
        (7200.0, 0.0, 60 * (math.sqrt(11 * 121) - 1)),  # at the join both count alike, in log time
        (7200.0, 3600.0, 60 * (11**0.75 * 61**0.25 - 1)),  # half of the way: a quarter, and of what is left
        (7200.0, 7200.0, 600.0),  # as long as the first: the play knows better
        (7200.0, 9000.0, 600.0),
        (0.0, 0.0, 600.0),
        (60.0, 0.0, 60 * (math.sqrt(11 * 2) - 1)),  # the ends give way
    ],
)
def test_the_median_of_the_play_and_the_first_in_line(first: float, waited: float, told: float) -> None:
    found = with_first(Interval(500.0, 600.0, 700.0, (0.1, 0.2, 0.3)), first, waited)
    assert (found.p10, found.p50, found.p90) == pytest.approx((min(500.0, told), told, max(700.0, told)))
    assert found.within == (0.1, 0.2, 0.3)


IN_A_ROW = [1.0] * 30 + [-0.3] * 50
IN_TURN = [1.0, 1.0, 1.0, -0.3, -0.3, -0.3, -0.3, -0.3] * 10


@pytest.mark.parametrize(
    ("gains", "sure"),
    [
        ([1.0] * 19, False),
        ([1.0] * 20, True),
        ([0.0] * 40, False),
        ([-1.0] * 40, False),
        ([1.0, -1.0] * 40, False),
        (IN_TURN, True),
        (IN_A_ROW, False),  # the same gains, but of one good time
    ],
)
def test_one_good_time_is_not_surely_better(gains: list[float], sure: bool) -> None:
    assert surely_better(gains) is sure


def test_without_a_moment_of_the_join_nobody_was_first() -> None:
    found = Correction()
    for hours in (1.0, 10.0) * 30:
        found.matured(AT_ONCE, hours * HOUR)
    assert found.p90_behind(HOUR) is None


@pytest.mark.parametrize(
    ("p90", "most", "told"), [(500.0, 1060.0, 500.0), (5.0, 1060.0, 260.0), (5000.0, 1060.0, 1060.0)]
)
def test_where_the_first_in_line_tells_p90_the_limit_only_ends_it(p90: float, most: float, told: float) -> None:
    made = limited(Interval(10.0, 60.0, p90), most, Trust(limit=0.2, first=True))
    assert (made.p10, made.p50, made.p90) == pytest.approx((10.0, 260.0, told))
