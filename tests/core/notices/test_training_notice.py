"""Notices about a training: how its name is shown, which one is sent once, and which are remembered."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.messages import TrainingEnded
from hub_extensions.core.notices import (
    TRAINING_TOO_LONG,
    ended,
    is_repeat,
    remembered,
    training_deliveries,
    wait_before,
)
from hub_extensions.core.offers.offer_id import OfferId

NOON = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
REPORT = TrainingEnded("0123456789abcdef", "mnist", "done", NOON - HOUR, NOON)
DONE = ended(REPORT, ("ada", ""), NOON, id="n1")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("mnist", "mnist"),
        ("", ""),
        ("  two\n\tlines\r\n", "two lines"),
        ("<b>bold</b>", "<b>bold</b>"),
        ("a\u202eb\u2066c\u200fd\x07e\x00", "abcd e"),
        ("x" * 5000, "x" * 80),
        ("\ud800a", "a"),
        ("学習 koulutus 🙂", "学習 koulutus 🙂"),
    ],
)
def test_the_name_of_a_run_is_one_short_line_that_turns_no_sentence_around(name: str, shown: str) -> None:
    assert ended(replace(REPORT, name=name), ("ada", ""), NOON, id="n1").name == shown


def test_a_run_is_told_of_once() -> None:
    assert is_repeat((DONE,), replace(DONE, id="n2", at=NOON + HOUR, state="failed"))
    others = ({"run": "f" * 16}, {"user": "ben"}, {"server": "two"}, {"kind": TRAINING_TOO_LONG})
    assert not any(is_repeat((DONE,), replace(DONE, **each)) for each in others)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ago", "wait"), [([], 0), ([59] * 5, 0), ([61] + [10] * 5, 0), ([59, *[10] * 5], 1)])
def test_a_server_gets_six_notices_an_hour(ago: list[int], wait: int) -> None:
    sent = [replace(DONE, run=str(number), at=NOON - each * MINUTE) for number, each in enumerate(ago)]
    assert wait_before(sent, ("ada", ""), NOON) == wait * MINUTE
    assert wait_before(sent, ("ada", "two"), NOON) == timedelta(0)


def test_a_sent_notice_is_remembered_for_a_day_and_of_a_running_server_while_it_runs() -> None:
    old = replace(DONE, at=NOON - 24 * HOUR)
    of_a_run = replace(old, kind=TRAINING_TOO_LONG, run="2026-10-01T00:00:00+00:00")
    assert remembered((old, of_a_run, DONE), {("ada", "", of_a_run.run)}, NOON) == (of_a_run, DONE)
    assert remembered((old, of_a_run, DONE), (), NOON) == (DONE,)


def test_an_end_is_sent_at_once_and_a_warning_after_the_pages_could_show_it() -> None:
    about = (OfferId("gpu"), "Whole GPU", NOON - HOUR, ("mail", "webhook"), NOON)
    made = training_deliveries(DONE, *about)
    assert [(each.channel, each.kind, each.due) for each in made] == [
        ("mail", "training-ended", NOON),
        ("webhook", "training-ended", NOON),
    ]
    (warning, _) = training_deliveries(replace(DONE, kind=TRAINING_TOO_LONG), *about)
    assert warning.due == NOON + timedelta(seconds=20)
