"""The two forecasts that need no line: a start now, and an unknown wait. ``test_admission.py`` has the others."""

from __future__ import annotations

from datetime import timedelta

from hub_extensions.core.queue.wait_bound import starts_now, unknown
from hub_extensions.core.text.reasons import explain


def test_what_starts_now_waits_for_no_time_at_all() -> None:
    found = starts_now(explain("one-free"))
    assert found.now and {found.p10, found.p50, found.p90, found.at_most} == {timedelta(0)}


def test_of_what_is_not_known_no_figure_is_told() -> None:
    found = unknown(explain("no-limit"))
    assert not found.now and {found.p10, found.p50, found.p90, found.at_most} == {None}
