"""A stop has failed once its time is over, and why; before, and where nobody can tell, it has not."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.stops import TO_DO, StopFault, StopPause, StopRecord, StopState, fault_of, pause_after

NOON = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("minutes", "released", "listed", "fault"),
    [
        (4.9, False, True, None),
        (5, False, True, StopFault.REFUSED),
        (5, False, None, StopFault.REFUSED),
        (4.9, True, False, None),
        (5, True, True, StopFault.HANGS),
        (5, True, False, StopFault.ALIVE),
        (600, True, None, None),  # what the hub has is not known
    ],
)
def test_a_stop_has_failed_once_its_time_is_over(
    minutes: float, released: bool, listed: bool | None, fault: StopFault | None
) -> None:
    refused = StopRecord("ada", "", "l1", StopState.WAITING, pause=StopPause(1, NOON, NOON, "500: locked"))
    stopped = StopRecord("ada", "", "l1", StopState.ENDING, since=NOON)
    record = stopped if released else refused
    assert fault_of(record, listed, 5 * MINUTE, NOON + minutes * MINUTE) is fault


def test_a_stop_that_was_only_put_off_has_not_failed() -> None:
    record = StopRecord("ada", "", "l1", StopState.WAITING, pause=StopPause(1, NOON, NOON))
    assert fault_of(record, True, 5 * MINUTE, NOON + 600 * MINUTE) is None


def test_an_admin_reads_what_to_do_about_each() -> None:
    assert set(TO_DO) == set(StopFault) and all(TO_DO.values())


def test_failures_in_a_row_count_from_the_first_and_what_was_only_put_off_is_none() -> None:
    put_off = pause_after(None, NOON)
    first = pause_after(put_off, NOON + MINUTE, why="500: locked")
    again = pause_after(first, NOON + 2 * MINUTE, why="429: too many")
    assert (put_off.why, first.since, again.since) == ("", NOON + MINUTE, NOON + MINUTE)
    assert (again.failures, again.why) == (3, "429: too many")
