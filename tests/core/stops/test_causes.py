"""The causes of one stop: which counts, which are said beside it, and what withdraws which."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import permutations

import pytest

from hub_extensions.core.stops import (
    Cause,
    Orderer,
    Stop,
    StopCause,
    Withdrawal,
    added,
    by_admin,
    by_hub,
    reclaim,
    stop_of,
    without,
)

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=timezone.utc)
WARN = timedelta(minutes=10)


def minute(value: float) -> datetime:
    return NOON + timedelta(minutes=value)


def cause(kind: Cause, at: float, shown: bool = True) -> StopCause:
    return StopCause(kind, minute(at), shown, "given-back")


def stop(*causes: StopCause, use_known: bool = True, now: float = 0) -> Stop:
    found = stop_of(causes, minute(now), use_known)
    assert found is not None
    return found


IDLE, ADMIN, LIFETIME = cause(Cause.IDLE, 28), cause(Cause.ADMIN, 5), cause(Cause.LIFETIME, 90, shown=False)


def test_the_earliest_cause_counts_and_the_others_stand_beside_it_in_whatever_order_they_came() -> None:
    for causes in permutations((IDLE, ADMIN, LIFETIME)):
        found = stop(*causes)
        assert (found.at, found.first, found.others) == (minute(5), ADMIN, (IDLE, LIFETIME))
    assert stop_of((), NOON) is None


@pytest.mark.parametrize(
    ("causes", "latest"),
    [
        ((IDLE,), None),
        ((IDLE, LIFETIME), 90),
        ((IDLE, LIFETIME, ADMIN), 5),
        ((cause(Cause.IDLE, 3), ADMIN, LIFETIME), 5),
        ((cause(Cause.UNOPENED, 3), cause(Cause.SIGNED_OUT, 60)), 60),
        ((cause(Cause.CPU_IDLE, 3),), None),
    ],
)
def test_at_the_latest_is_the_earliest_end_that_its_user_cannot_move(
    causes: tuple[StopCause, ...], latest: float | None
) -> None:
    assert stop(*causes).latest == (None if latest is None else minute(latest))


def test_an_idle_end_that_is_due_while_the_use_is_not_known_holds_up_no_other() -> None:
    idle = cause(Cause.IDLE, 1)
    assert stop(idle, ADMIN, now=6).first is idle
    assert stop(idle, ADMIN, now=6, use_known=False).first is ADMIN
    assert stop(idle, ADMIN, now=2, use_known=False).first is idle, "the order is not due yet"
    assert stop(cause(Cause.IDLE, 5), cause(Cause.LIFETIME, 5)).first.cause is Cause.LIFETIME


def test_what_is_neither_ordered_nor_counted_down_nor_near_is_not_said_beside_the_first() -> None:
    far, near = cause(Cause.LIFETIME, 90, shown=False), cause(Cause.UNOPENED, 9, shown=False)
    assert [each.cause for each in stop(ADMIN, IDLE, far, near).seen(NOON, WARN)] == [Cause.UNOPENED, Cause.IDLE]


@pytest.mark.parametrize(
    ("kind", "orderer", "withdrawal"),
    [
        (Cause.IDLE, Orderer.RULES, Withdrawal.KEEP),
        (Cause.UNOPENED, Orderer.RULES, Withdrawal.KEEP),
        (Cause.CPU_IDLE, Orderer.RULES, None),
        (Cause.LIFETIME, Orderer.RULES, None),
        (Cause.ADMIN, Orderer.ADMIN, Withdrawal.UNDO),
        (Cause.GIVEN_BACK, Orderer.USER, None),
        (Cause.SIGNED_OUT, Orderer.HUB, None),
        (Cause.RECLAIMED, Orderer.LINE, Withdrawal.LINE),
    ],
)
def test_who_ordered_a_stop_and_what_withdraws_it(kind: Cause, orderer: Orderer, withdrawal: Withdrawal | None) -> None:
    assert (cause(kind, 1).ordered_by, cause(kind, 1).withdrawn_by) == (orderer, withdrawal)
    kept = stop(cause(kind, 1)).after_keep(minute(31))
    assert kept == minute(31 if withdrawal is Withdrawal.KEEP else 1)


def test_a_keep_moves_what_it_withdraws_and_the_end_is_what_is_left() -> None:
    assert stop(cause(Cause.IDLE, 3), cause(Cause.UNOPENED, 4), ADMIN).after_keep(minute(33)) == minute(5)
    assert stop(cause(Cause.IDLE, 3), cause(Cause.UNOPENED, 4), LIFETIME).after_keep(minute(33)) == minute(33)


def test_of_each_kind_one_order_stands_and_one_that_changes_nothing_is_none() -> None:
    admin, sign_out = by_admin(minute(15), "an exam"), by_hub(minute(10), "disabled")
    both = added(added((), admin), sign_out)
    assert both == (admin, sign_out)
    assert added(both, by_hub(minute(5), "disabled")) is both, "the same again moves nothing"
    assert added(both, by_hub(minute(20), "by-admin")) is both
    assert added(both, sooner := by_hub(minute(5), "by-admin")) == (admin, sooner)
    assert added((sign_out,), admin) == (sign_out,), "it would come after the other one"
    assert added((IDLE,), admin) == (IDLE, admin), "an idle end may go away, and the order stands"
    assert added(both, sooner := by_admin(minute(1), "")) == (sign_out, sooner)
    assert without(both, Withdrawal.UNDO) == (sign_out,)
    assert without(both, Withdrawal.KEEP) is both
    assert without((IDLE, sign_out), Withdrawal.KEEP) == (IDLE, sign_out), "evidence is found again"


def test_an_order_says_its_reason_to_the_servers_user() -> None:
    assert by_admin(NOON, "").reason.message == "An administrator stops it."
    assert by_admin(NOON, "an exam").reason.message == "An administrator stops it: an exam"
    assert by_hub(NOON, "disabled").reason.message == "Your account is disabled."
    assert reclaim(NOON, WARN, NOON).reason.message == "Its GPU was borrowed and is taken back."


def test_a_reclaim_gives_its_own_warning_and_only_the_line_takes_it_back() -> None:
    reclaimed = reclaim(NOON, WARN, NOON)
    assert reclaimed.shown and reclaimed.stands, "a countdown shows it, and it is valid until it is withdrawn"
    assert reclaimed.at == minute(10), "it is wanted at once, and its user is warned first"
    assert reclaim(minute(30), WARN, NOON).at == minute(30)
    admin = by_admin(minute(20), "")
    both = added(added((), admin), reclaimed)
    assert stop(*both).first is reclaimed, "a later cause shortens the countdown"
    assert stop(*added((admin,), reclaim(NOON, WARN, minute(15)))).at == minute(20), "never below its own warning"
    assert without(both, Withdrawal.LINE) == (admin,)
    for other in (Withdrawal.UNDO, Withdrawal.KEEP):
        assert reclaimed in without(both, other)
    assert stop(reclaimed, IDLE).after_keep(minute(58)) == reclaimed.at
    assert stop(reclaimed, LIFETIME).latest == reclaimed.at
