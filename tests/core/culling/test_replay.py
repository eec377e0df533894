"""Past uses under other limits: the same decisions as the service's, minute by minute."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.culling import Cause, CullPolicy
from hub_extensions.core.culling.replay import MeasuredUse, play, summarized
from hub_extensions.core.offers.offer_id import OfferId

NOON = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
POLICY = CullPolicy(
    idle=20 * MINUTE, warn=5 * MINUTE, lifetime=None, grace=timedelta(0), unopened=30 * MINUTE, keep=30 * MINUTE
)


def use(minutes: str, ended: int = 0, **changes: object) -> MeasuredUse:
    """One letter a minute: ``w`` it works, ``.`` it is idle, ``?`` nobody knows."""
    known = {"w": 80.0, ".": 0.0}
    used = {NOON + at * MINUTE: known[letter] for at, letter in enumerate(minutes) if letter in known}
    made = MeasuredUse(
        "ada", "", OfferId("gpu"), 1000, NOON, NOON + (ended or len(minutes)) * MINUTE, adopted=False, used=used
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("minutes", "stopped", "cause", "came_back"),
    [
        ("w" * 60, None, None, False),
        ("w" + "." * 60, 21, Cause.IDLE, False),  # idle since minute 1
        ("w" + "." * 19 + "w" + "." * 10, None, None, False),  # a break is no end
        ("w" + "." * 25 + "w" + "." * 9, 21, Cause.IDLE, True),
        ("w" + "." * 30 + "w" + "." * 9, 21, Cause.IDLE, True),  # 10 min after it
        ("w" + "." * 31 + "w" + "." * 9, 21, Cause.IDLE, False),
        ("w" + "." * 10 + "???" + "." * 19, None, None, False),  # unknown is never idle
        ("w" + "." * 10 + "?" + "." * 19, 21, Cause.IDLE, False),  # and one look that was missed is no work
        ("?" * 90, None, None, False),
        ("." * 70, 50, Cause.IDLE, False),  # nobody came: first the time to open it, then the idle limit
    ],
)
def test_a_use_ends_when_the_service_would_have_ended_it(
    minutes: str, stopped: int | None, cause: Cause | None, came_back: bool
) -> None:
    played = play(use(minutes), POLICY)
    assert played.stopped == (None if stopped is None else NOON + stopped * MINUTE)
    assert (played.cause, played.came_back) == (cause, came_back)
    assert played.freed == (timedelta(0) if stopped is None else (len(minutes) - stopped) * MINUTE)
    if stopped:
        assert played.warnings == 1


def test_a_countdown_that_work_ended_counts_as_a_warning_and_a_dry_run_plays_as_if_limits_were_on() -> None:
    nearly = play(use("w" + "." * 18 + "w" * 5 + "." * 18), replace(POLICY, enabled=False))
    assert (nearly.stopped, nearly.warnings) == (None, 2)


def test_the_lifetime_ends_work_too_and_an_adopted_use_counts_from_its_own_ready() -> None:
    policy = replace(POLICY, lifetime=60 * MINUTE)
    played = play(use("w" * 90), policy)
    assert (played.stopped, played.cause, played.came_back) == (NOON + 60 * MINUTE, Cause.LIFETIME, True)
    assert play(use("." * 40, adopted=True), POLICY).stopped == NOON + 20 * MINUTE


def test_a_part_of_a_card_frees_its_part_and_the_summary_adds_up() -> None:
    found = summarized(
        play(each, POLICY)
        for each in (
            use("w" + "." * 80, share=250),
            use("w" + "." * 25 + "w" + "." * 9, user="ben"),
            use("w" * 30, user="cem"),
            use("", ended=30, user="dan"),
        )
    )
    assert (found.uses, found.people, found.unmeasured, found.people_warned, found.warnings) == (4, 4, 1, 2, 2)
    assert found.held == (81 * 0.25 + 36 + 30 + 30) * MINUTE
    assert found.stopped[Cause.IDLE] == 2 and found.stopped[Cause.LIFETIME] == 0
    assert found.freed[Cause.IDLE] == (60 * 0.25 + 15) * MINUTE
    assert [each.use.user for each in found.came_back] == ["ben"]
