"""How long a server whose stop has begun is waited for."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.gpu.samples import DeviceSample, ServerReport
from hub_extensions.core.stops import (
    DrainSeen,
    awaits_sample,
    begins_before,
    is_after_hook,
    may_be_work,
    may_stop_now,
)

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
WALL = NOW
SECOND = timedelta(seconds=1)
NONE = DrainSeen()


@pytest.mark.parametrize(
    ("reported", "draining", "saved", "waited", "drained"),
    [
        (None, None, False, 0, True),  # nobody is there
        (1, None, False, 9.9, False),  # an extension of before, whose pages may be saving
        (1, None, False, 10, True),
        (1, None, True, 3.9, False),  # other pages, from then on
        (1, None, True, 4, True),
        (-1, None, True, 3, False),  # "saved" of an earlier stop
        (-1, True, False, 12.9, False),  # so is "draining": it may not have heard of this one
        (-1, True, False, 13, True),
        (1, True, False, 59, False),  # cells, or the user's hook
        (1, True, True, 59, False),
        (1, True, False, 60, True),  # never longer
        (1, False, True, 4, True),
        (8, False, True, 10.9, False),
        (8, False, True, 11, True),
        (1, False, False, 9, False),
        (1, False, False, 10, True),
    ],
)
def test_a_stop_waits_for_cells_pages_and_hook_and_for_no_more(
    reported: float | None, draining: bool | None, saved: bool, waited: float, drained: bool
) -> None:
    began = NOW - waited * SECOND
    said = ServerReport(NOW, True, 1, 0, saved=saved, draining=draining)
    report = None if reported is None else (said, began + reported * SECOND)
    seen = NONE if report is None or report[1] < began else NONE.after(*report, WALL)
    assert may_stop_now(report, began, NOW, 60 * SECOND, seen) is drained


@pytest.mark.parametrize(
    ("reports", "waited", "drained"),
    [
        ([(11, False, None), (12, True, True), (13, False, True)], 21.9, False),  # heard late: its 10 s begin then
        ([(11, False, None), (12, True, True), (13, False, True)], 22, True),
        ([(2, True, False), (7, True, True), (8, False, True)], 16.9, False),  # cells were interrupted first
        ([(2, True, False), (7, True, True), (8, False, True)], 17, True),
        ([(2, False, False)], 12, False),  # it may not have heard yet
        ([(2, False, False)], 13, True),  # nobody to ask
        ([(55, False, True)], 60, True),  # never longer than it may take
    ],
)
def test_a_page_has_its_time_from_when_it_was_asked(
    reports: list[tuple[float, bool, bool | None]], waited: float, drained: bool
) -> None:
    """`reports`: after how many seconds, whether it drains, whether its pages were asked."""
    seen = DrainSeen()
    for after, draining, asked in reports:
        said = ServerReport(NOW, True, 1, 0, draining=draining, asked=asked)
        seen, last = seen.after(said, NOW + after * SECOND, WALL), (said, NOW + after * SECOND)
    assert may_stop_now(last, NOW, NOW + waited * SECOND, 60 * SECOND, seen) is drained


@pytest.mark.parametrize(
    ("report", "drain", "before"),
    [
        (None, 60, 0),  # nobody saves
        (ServerReport(NOW, True, 1, 0), 60, 13),  # its cells are interrupted, and its pages save
        (ServerReport(NOW, False, None, None), 60, 13),
        (ServerReport(NOW, True, 1, 0), 5, 13),
        (ServerReport(NOW, True, 1, 0, has_hook=True), 60, 60),
        (ServerReport(NOW, True, 1, 0, has_hook=True), 5, 13),
    ],
)
def test_a_stop_by_order_begins_as_long_before_its_time_as_saving_may_take(
    report: ServerReport | None, drain: float, before: float
) -> None:
    lead = begins_before(report, drain * SECOND)
    assert lead == before * SECOND
    for heard in (None if report is None else (report, NOW - SECOND), report and (report, NOW + SECOND)):
        assert may_stop_now(heard, NOW, NOW + lead, drain * SECOND, NONE), "also where its server hears nothing of it"


def test_the_time_of_other_pages_counts_from_the_first_that_has_saved() -> None:
    said = ServerReport(NOW, True, 1, 0, saved=True, draining=False, asked=True)
    seen = NONE.after(said, NOW + 12 * SECOND, WALL).after(said, NOW + 14 * SECOND, WALL)
    for waited, stops in ((14.9, False), (15, True)):
        assert may_stop_now((said, NOW + 14 * SECOND), NOW, NOW + waited * SECOND, 60 * SECOND, seen) is stops


def test_a_short_drain_still_lets_pages_save() -> None:
    said = (ServerReport(NOW, True, 1, 0, draining=True), NOW)
    assert not may_stop_now(said, NOW, NOW + 9 * SECOND, 5 * SECOND, NONE)
    assert may_stop_now(said, NOW, NOW + 10 * SECOND, 5 * SECOND, NONE)


@pytest.mark.parametrize(
    ("reported", "hook_ran", "kernels", "terminals", "work"),
    [
        (1, True, 0, 0, False),  # its own hook, and nothing else that could be it
        (1, False, 0, 0, True),  # no hook: somebody uses the GPU
        (1, True, 1, 0, True),  # a cell
        (1, True, 0, 1, True),  # a program in a terminal
        (1, True, None, 0, True),  # the kernels cannot be listed
        (1, True, 0, None, True),  # nor the terminals
        (-1, True, 0, 0, True),  # the hook of an earlier stop
        (None, True, 0, 0, True),  # it reports nothing
    ],
)
def test_the_hooks_own_use_of_the_gpu_is_no_work_and_what_is_not_known_may_be(
    reported: float | None, hook_ran: bool, kernels: int | None, terminals: int | None, work: bool
) -> None:
    said = ServerReport(NOW, True, 1, kernels, busy_terminals=terminals, hook_ran=hook_ran)
    report = None if reported is None else (said, NOW + reported * SECOND)
    assert may_be_work(report, NOW) is work


@pytest.mark.parametrize(
    ("source", "read", "ended", "after", "waits"),
    [
        ("nvml", 1, 10, True, False),
        ("nvml", 5, 10, False, True),  # it may be of the hook's last second
        ("gpm", 8, 9, False, True),
        ("simulated", 8, 9, False, True),
        ("dcgm", 0, 9, False, False),  # of some time before
        ("report", 0, 9, False, False),
        ("none", 0, 9, False, False),
        ("nvml", 20, 20, False, False),  # the card says nothing
        ("nvml", 0, None, False, False),  # it goes on, or there is none
        ("nvml", 8, -1, False, False),  # the clock was set back
        (None, 0, 9, False, False),
    ],
)
def test_what_the_card_shows_a_while_after_a_hook_is_not_the_hooks(
    source: str | None, read: float, ended: float | None, after: bool, waits: bool
) -> None:
    """`read`, `ended`: seconds ago."""
    sample = None if source is None else DeviceSample("GPU-0", NOW - read * SECOND, 80.0, None, None, source)
    since = None if ended is None else NOW - ended * SECOND
    assert (is_after_hook(sample, since), awaits_sample(sample, since, NOW)) == (after, waits)
