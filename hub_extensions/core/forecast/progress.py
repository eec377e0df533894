"""Decide which reports of a training program about its remaining time count, and whose reports are trusted.

A report moves the wait forecast of others. A user whose reported ends were `MISSES` times wrong by more than `FACTOR`
is not trusted for `DISTRUST`: the wait forecast is computed without these reports, and nothing else changes. A report
never delays a stop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from hub_extensions.core.messages.server import Progress

LONGEST = timedelta(days=30)
"""Longest remaining time that a report may give."""
AHEAD = timedelta(minutes=1)
"""Longest time by which the clock of a server, and so its report, may be ahead."""
OVERDUE = timedelta(minutes=10)
"""Time after the reported end from which the report is ignored, because it was wrong."""
AT_WORK = timedelta(minutes=10)
"""Time for which a report counts as a sign of work. A step of a training may take so long, and a server extension
reports within seconds that a program has ended."""
NO_INFORMATION = 1.0
"""Spread from which a report is not used for the wait forecast."""
WIDE = 0.5
"""Spread from which an end may come much earlier than reported, as of a program that stops when it does not improve."""
FACTOR = 2.0
"""An end is missed if the real time left is longer than the reported one by more than this factor, or shorter."""
SLACK = timedelta(minutes=1)
"""An end that is wrong by at most this time is not missed. Reports come every 30 s, and short times left are rough."""
MISSES = 2
"""Number of missed ends after which a user's reports are not trusted."""
DISTRUST = timedelta(days=30)
"""Time for which a missed end is remembered, and for which reports are not trusted after the last one."""

ACCEPTED, OLDER, AHEAD_OF_US, BEFORE_START, IMPOSSIBLE = "accepted", "older", "ahead", "before-start", "impossible"
"""What became of a report, as the metric says it."""


def outcome(before: Progress | None, report: Progress, now: datetime, started: datetime) -> str:
    """Return `ACCEPTED` if a report is used, otherwise the code of the reason why the earlier report stays in use.

    Args:
        before: the report that was used until now. `None` for the first report.
        report: the new report.
        now: wall-clock time.
        started: wall-clock time at which the server was ready.
    """
    if (
        report.at.tzinfo is None
        or not 0 <= report.left_seconds <= LONGEST.total_seconds()
        or not 0 <= report.spread <= 1
    ):
        return IMPOSSIBLE
    if report.at > now + AHEAD:
        return AHEAD_OF_US
    if report.at < started:
        return BEFORE_START
    return OLDER if before is not None and report.at < before.at else ACCEPTED


# ------------------------------------------------------------------ trust


def is_missed(claim: Progress, now: datetime, *, ended: bool) -> bool:
    """Return whether a reported end was wrong by more than `FACTOR`.

    An early end is not missed if the report had a spread of at least `WIDE`, because it was reported as the latest end.

    Args:
        claim: the report of the time left.
        now: wall-clock time.
        ended: whether the program ended now. `False` if it goes on.
    """
    if claim.spread >= NO_INFORMATION:
        return False
    real, slack = (now - claim.at).total_seconds(), SLACK.total_seconds()
    if real > FACTOR * claim.left_seconds + slack:
        return True
    return ended and claim.spread < WIDE and real < claim.left_seconds / FACTOR - slack


def judged(claim: Progress | None, report: Progress, now: datetime) -> tuple[Progress | None, bool]:
    """Judge an earlier reported end by a new report.

    The first report of a run is judged until its end, so that a report which always repeats the same time left is seen
    to be wrong. A later report replaces it if it corrects it in time: its end comes so much earlier that the first
    report would be missed. A report with the spread `NO_INFORMATION` withdraws it, because the end is not known any
    more or the program was interrupted. Then it is missed only if its end is already too late.

    Args:
        claim: the report that is judged. `None` without an earlier one.
        report: the new report. A time left of 0 means that the program has ended.
        now: wall-clock time.

    Returns:
        The report that is judged next, `None` without one, and whether the end that `claim` reported was missed.
    """
    is_withdrawn, ended = report.spread >= NO_INFORMATION, report.left_seconds == 0
    missed = claim is not None and is_missed(claim, now, ended=ended and not is_withdrawn)
    if ended or is_withdrawn:
        return None, missed
    if claim is None or missed:
        return report, missed
    corrects = (now - claim.at).total_seconds() + report.left_seconds < claim.left_seconds / FACTOR
    return (report if corrects else claim), False


def is_trusted(missed: Sequence[datetime], now: datetime) -> bool:
    """Return whether a user's reports are trusted.

    Args:
        missed: wall-clock times at which ends were missed, the oldest first (`with_missed`).
        now: wall-clock time.
    """
    return len(missed) < MISSES or now - missed[-1] >= DISTRUST


def with_missed(missed: Sequence[datetime], now: datetime) -> tuple[datetime, ...]:
    """Return the times of missed ends with a new one, without those that do not count any more."""
    return (*(at for at in missed if now - at < DISTRUST), now)[-MISSES:]


def still_remembered(missed: Sequence[datetime], now: datetime) -> bool:
    """Return whether the missed ends of a user still have to be kept, the oldest first."""
    return bool(missed) and now - missed[-1] < DISTRUST


# ------------------------------------------------------------------ what a report says


def is_end_known(report: Progress) -> bool:
    """Return whether a report says when the server will be done with its GPU.

    It does not if the program has ended, because the server goes on, and if its spread is too large.
    """
    return report.left_seconds > 0 and report.spread < NO_INFORMATION


def is_at_work(report: Progress, now: datetime) -> bool:
    """Return whether a report shows that a program trains now.

    Args:
        report: the last report of a server.
        now: wall-clock time.
    """
    return report.left_seconds > 0 and now - report.at <= AT_WORK


def is_too_long(report: Progress, ends: datetime, stops: datetime) -> bool:
    """Return whether a server stops before its training is done, even if the training ends early.

    Args:
        report: the last report of the server.
        ends: likely end of the training.
        stops: when the server stops whatever its user does, on the same clock.
    """
    early = timedelta(seconds=report.left_seconds * (1 - math.exp(-report.spread)))
    return is_end_known(report) and ends - early > stops
