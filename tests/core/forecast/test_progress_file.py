"""Which progress files of a training program are valid, and how their numbers and names are read."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from hub_extensions.core.forecast.progress_file import (
    MAX_BYTES,
    ProgressFileError,
    read_progress_file,
    shown_name,
)

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=timezone.utc)
RUN = "0123456789abcdef"


def a_file(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "version": 1,
        "run": RUN,
        "pid": 4711,
        "born": 123456,
        "name": "mnist",
        "library": "loop",
        "state": "running",
        "started": NOW.timestamp() - 100,
        "at": NOW.timestamp() - 2,
        "steps": 70,
        "start": 0,
        "total": 200,
        "epochs": 2,
        "epoch_steps": 100,
        "patience": None,
        "first": 3.2,
        "group_steps": 32,
        "groups": [12.1, 12.0],
        "rest_steps": 5,
        "rest": 1.9,
    }
    return {name: value for name, value in (fields | changes).items() if value != "absent"}


def read(**changes: Any) -> Any:
    return read_progress_file(json.dumps(a_file(**changes)).encode(), RUN, NOW)


def test_a_valid_file_is_read_as_it_is() -> None:
    found = read()
    assert (found.pid, found.born) == (4711, 123456)
    run = found.run
    assert (run.name, run.library, run.state, run.steps, run.total) == ("mnist", "loop", "running", 70, 200)
    assert (run.groups, run.group_steps, run.rest_steps, run.rest_seconds) == ((12.1, 12.0), 32, 5, 1.9)
    assert (run.at, run.started) == (NOW - timedelta(seconds=2), NOW - timedelta(seconds=100))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"groups": [1.0, 1e308]}, "groups"),
        ({"groups": [-1]}, "groups"),
        ({"groups": ["text"]}, "groups"),
        ({"groups": [True]}, "groups"),
        ({"groups": [None]}, "groups"),
        ({"groups": [float("nan")]}, "groups"),
        ({"groups": [float("inf")]}, "groups"),
        ({"groups": [1.0] * 65}, "groups"),
        ({"groups": {"0": 1}}, "groups"),
        ({"rest": -0.1}, "rest"),
        ({"rest": "1"}, "rest"),
        ({"first": [[]]}, "first"),
        ({"steps": -1}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"steps": True}, "steps"),
        ({"steps": 10**400}, "steps"),
        ({"steps": "absent"}, "steps"),
        ({"start": None}, "start"),
        ({"total": 1e308}, "total"),
        ({"epochs": float("nan")}, "epochs"),
        ({"patience": -3}, "patience"),
        ({"group_steps": 10**30}, "group_steps"),
        ({"at": "today"}, "at"),
        ({"at": 1e300}, "at"),
        ({"started": -1}, "started"),
        ({"started": "absent"}, "started"),
        ({"pid": 0}, "pid"),
        ({"pid": 2**40}, "pid"),
        ({"pid": -1}, "pid"),
        ({"born": 1e300}, "born"),
        ({"name": 7}, "name"),
        ({"name": ["a"]}, "name"),
        ({"state": "vanished"}, "state"),
        ({"state": ["running"]}, "state"),
        ({"state": "absent"}, "state"),
        ({"version": 2}, "version"),
        ({"version": [1]}, "version"),
        ({"run": "fedcba9876543210"}, "run"),
        ({"run": None}, "run"),
    ],
)
def test_a_number_that_cannot_be_true_makes_the_file_invalid(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ProgressFileError, match=f"^{field}: "):
        read(**changes)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b"{",
        b"\xff\xfe\x00",
        b"[" * 4000,
        b'{"steps":' * 400,
        b"9" * 4096,
        b'{"version":1,"groups":[1e99999]}',
    ],
)
def test_what_is_no_progress_file_is_refused(data: bytes) -> None:
    with pytest.raises(ProgressFileError):
        read_progress_file(data, RUN, NOW)


@pytest.mark.parametrize("run", ["", "../../etc/passwd", "0123456789ABCDEF", "0123456789abcde", RUN + "0"])
def test_the_id_of_a_run_is_16_hexadecimal_digits(run: str) -> None:
    with pytest.raises(ProgressFileError, match="run"):
        read_progress_file(json.dumps(a_file(run=run)).encode(), run, NOW)


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({"steps": 5, "total": 3}, None),
        ({"steps": 5, "total": None}, None),
        ({"steps": 5, "total": "absent"}, None),
        ({"steps": 0, "total": 0}, None),
        ({"steps": 0, "total": 3}, 3),
        ({"steps": 3, "total": 3}, 3),
        ({"steps": 2, "start": 2, "total": 3}, None),
        ({"steps": 5.0, "total": 8.0}, 8),
    ],
)
def test_a_total_that_was_passed_is_not_the_end(changes: dict[str, Any], total: int | None) -> None:
    assert read(**changes).run.total == total


def test_a_time_ahead_of_the_clock_counts_as_now_and_no_run_starts_after_its_report() -> None:
    run = read(at=NOW.timestamp() + 3600, started=NOW.timestamp() + 7200).run
    assert (run.started, run.at) == (NOW, NOW)


def test_fields_that_are_not_known_are_skipped_and_those_that_may_be_missing_have_defaults() -> None:
    optional = ("name", "library", "start", "total", "epochs", "epoch_steps", "patience", "first", "born")
    optional += ("group_steps", "groups", "rest_steps", "rest")
    found = read(loss=[{"nested": float("nan")}], **dict.fromkeys(optional, "absent"))
    assert (found.born, found.run.name, found.run.library, found.run.groups) == (None, "", "loop", ())


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("mnist", "mnist"),
        ("", ""),
        ("räksmörgås 学習", "räksmörgås 学習"),
        ("<b>bold</b>", "<b>bold</b>"),
        ("a\u202eb\u2066c\u200fd\u061ce", "abcde"),
        ("a\nb\tc\x00d\x1be\x85f\u2028g", "a b c d e f g"),
        ("\ud800x", "x"),
        ("\u202e" * 100, ""),
        ("x" * 5000, "x" * 80),
        ("x" * 79 + " y", "x" * 79),
    ],
)
def test_a_name_is_cut_and_has_no_control_characters_and_direction_marks(name: str, shown: str) -> None:
    assert shown_name(name) == shown
    assert read(name=name).run.name == shown


def test_a_long_name_is_cut_and_everything_else_has_4_kib() -> None:
    room = MAX_BYTES - len(json.dumps(a_file(name=None, more="")).encode()) + len("null")
    assert read(name="<b>\u202e" * 1250, more="x" * (room - 10)).run.name == ("<b>" * 27)[:80]
    for name in ("mnist", "x" * 5000):
        with pytest.raises(ProgressFileError, match="too long"):
            read(name=name, more="x" * (room + 10))
    with pytest.raises(ProgressFileError, match="too long"):
        read(name="x" * 70_000)
