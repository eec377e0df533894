"""The course of a use, as a table: the record has what each event noted, by the right clock."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core import usage
from hub_extensions.core.culling import Cause, ServerFacts
from hub_extensions.core.messages.usage import UsageRecord
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import Lease, LeaseState, Ticket, TicketEnd, WantedOffer
from hub_extensions.core.usage import Figure, Moment, Use, UseEnd, end_of_stop, end_of_ticket
from hub_extensions.core.usage.measurement import LASTS, Sums, minute_of, with_figure

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
BEHIND = timedelta(hours=5)
"""What outages before have put the running clock behind."""
GPU = OfferId("mig-1g.5gb")


def moment(minutes: float, outage: float = 0.0) -> Moment:
    """A moment so many minutes of running time after noon. `outage`: minutes in which the running clock was paused."""
    return Moment(NOON + timedelta(minutes=minutes + outage), NOON - BEHIND + timedelta(minutes=minutes))


TICKET = Ticket("t1", "ada", "lab", (WantedOffer(GPU, 1),), moment(0).running, groups=("ml", "thesis"), asked=NOON,
                options={"offers": [GPU], "profile": "torch", "image": "cu12", "cores": 4, "secret": {"a": 1}},
                )  # fmt: skip
LEASE = Lease("l1", "t1", "ada", "lab", GPU, "MIG-1|1g.5gb|7|", "MIG-1", GPU, 1000, LeaseState.STARTING,
              moment(10).running)  # fmt: skip


def test_moments_are_utc_and_durations_running_time_with_an_outage_in_the_wait_and_one_in_the_use() -> None:
    use = usage.admitted(TICKET, LEASE, moment(10, outage=30))
    use = usage.ready(use, moment(12, outage=30), timedelta(hours=12))
    record = usage.ended(use, UseEnd.USER, moment(72, outage=90))
    assert (record.asked, record.admitted, record.ready, record.ended) == (
        NOON,
        NOON + timedelta(minutes=40),
        NOON + timedelta(minutes=42),
        NOON + timedelta(minutes=162),
    )
    assert (record.waited_seconds, record.held_seconds, record.ran_seconds) == (600.0, 62 * 60.0, 3600.0)
    assert record.outage_seconds == 3600.0, "the one inside the use; that of the wait is none of it"
    assert (record.key, record.ticket, record.groups, record.device) == ("l1", "t1", ("ml", "thesis"), "MIG-1")
    assert record.choice == "cores=4 image=cu12 profile=torch"
    assert (record.lifetime_seconds, record.adopted, record.end) == (43200.0, False, "user")


def test_a_start_that_never_was_ready_is_no_use_of_a_gpu() -> None:
    record = usage.ended(usage.admitted(TICKET, LEASE, moment(10)), UseEnd.FAILED, moment(13))
    assert (record.ready, record.ran_seconds, record.held_seconds, record.end) == (None, None, 180.0, "failed")
    assert (record.mean_use_percent, record.use_measured, record.lifetime_seconds) == (None, None, None)


def test_of_what_ended_in_the_moment_it_was_ready_nothing_was_measured() -> None:
    use = usage.ready(usage.admitted(TICKET, LEASE, moment(10)), moment(11), None)
    record = usage.ended(use, UseEnd.USER, moment(11))
    assert (record.ran_seconds, record.use_measured, record.memory_measured) == (0.0, None, None)


def test_a_server_without_a_gpu_has_a_row_of_its_own() -> None:
    ticket = replace(TICKET, wanted_offers=(WantedOffer(CPU, 1),), options={"offers": ["cpu"]})
    use = usage.ready(usage.admitted(ticket, None, moment(0)), moment(1), timedelta(hours=12))
    record = usage.ended(use, UseEnd.IDLE, moment(61))
    assert (record.key, record.offer, record.pool, record.share, record.devices) == ("t1", "cpu", "cpu", 0, 0)
    assert (record.ran_seconds, record.end, record.lifetime_seconds) == (3600.0, "idle", None)
    assert (record.use_measured, record.memory_measured, record.choice) == (None, None, "")


def test_an_adopted_server_begins_when_it_was_found() -> None:
    lease = replace(LEASE, adopted=True, ready_at=LEASE.since, ticket="")
    use = usage.adopted("l1", "ada", "lab", lease, moment(10), BEHIND)
    record = usage.ended(use, None, moment(20))
    assert (record.adopted, record.asked, record.waited_seconds, record.end) == (True, None, None, "unknown")
    assert (record.admitted, record.ran_seconds, record.outage_seconds) == (NOON + timedelta(minutes=10), 600.0, 0.0)


@pytest.mark.parametrize(
    ("figures", "mean", "highest", "share", "peak"),
    [
        ([(None, None)] * 5, None, None, 0.0, None),
        ([(0.0, 0)] * 5, 0.0, 0.0, 1.0, 0),
        ([(40.0, 5), (80.0, 9), (None, None), (60.0, 7), (60.0, None)], 200 / 3, 80.0, 0.75, 9),
    ],
    ids=["nothing is measured", "zero is measured", "a part is measured"],
)
def test_what_was_measured_is_told_with_the_part_of_the_time_that_it_was_measured_for(
    figures: list[tuple[float | None, int | None]],
    mean: float | None,
    highest: float | None,
    share: float,
    peak: int | None,
) -> None:
    """A figure every 15 s; the first stands for no time yet."""
    use = usage.ready(usage.admitted(TICKET, LEASE, moment(0)), moment(0), None)
    for number, (used, memory) in enumerate(figures):
        use = usage.measured(use, Figure(used, memory, "nvml"), moment(number / 4), 5.0)
    record = usage.ended(use, None, moment(1))
    assert record.mean_use_percent == (mean if mean is None else pytest.approx(mean))
    assert (record.highest_use_percent, record.use_measured, record.peak_memory_bytes) == (highest, share, peak)


def test_first_and_last_use_are_of_the_gpu_and_a_gap_in_the_figures_counts_for_nothing() -> None:
    use = usage.ready(usage.admitted(TICKET, LEASE, moment(0)), moment(0), None)
    for minutes, used in ((1.0, 2.0), (2.0, 50.0), (3.0, 5.0), (60.0, 4.9)):
        use = usage.measured(use, Figure(used, None, "dcgm"), moment(minutes), 5.0)
    assert (use.first_used, use.last_used) == (moment(2).utc, moment(3).utc)
    assert use.sums.use_seconds == 3 * LASTS


def test_keeps_and_warnings_are_counted_once_each() -> None:
    use = usage.admitted(TICKET, LEASE, moment(0))
    facts = ServerFacts("ada", "lab", GPU, NOON)
    warned = replace(facts, warned=NOON)
    kept = replace(facts, keeps=(NOON,))
    again = replace(kept, warned=NOON + timedelta(hours=1), keeps=(NOON,))
    steps = [
        (None, facts),
        (facts, warned),
        (warned, warned),
        (warned, kept),
        (kept, again),
        (again, replace(again, keeps=())),
        (replace(again, keeps=(NOON - timedelta(days=1), NOON)), again),  # the older one counts no more
    ]
    for before, after in steps:
        use = usage.count_keeps_and_warnings(use, before, after)
    assert (use.keeps, use.warnings) == (1, 2)


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ([UseEnd.UNKNOWN, UseEnd.USER], "user"),
        ([UseEnd.IDLE, UseEnd.USER], "idle"),
        ([UseEnd.ADMIN, UseEnd.NODE_LOST], "admin"),
        ([None], "unknown"),
    ],
)
def test_what_was_known_first_of_an_end_stays(told: list[UseEnd | None], end: str) -> None:
    use = usage.admitted(TICKET, LEASE, moment(0))
    for each in told:
        use = usage.ending(use, each)
    assert usage.ended(use, UseEnd.UNKNOWN, moment(1)).end == end
    assert usage.resumed(use).end is None


def test_every_way_to_end_has_a_word() -> None:
    assert {end: usage.ends.end_of_ticket(end) for end in TicketEnd if end_of_ticket(end) is None} == {
        TicketEnd.READY: None
    }
    assert {cause: usage.end_of_cull(cause).value for cause in Cause} == {
        Cause.IDLE: "idle",
        Cause.CPU_IDLE: "idle",
        Cause.UNOPENED: "unopened",
        Cause.LIFETIME: "lifetime",
        Cause.SIGNED_OUT: "signed-out",
        Cause.GIVEN_BACK: "user",
        Cause.RECLAIMED: "reclaimed",
        Cause.ADMIN: "admin",
    }
    told = {
        reason: end_of_stop(reason, asked=False).value
        for reason in ("", "ended", "gone", "crashed", "node-lost", "reclaimed")
    }
    assert told == {"": "unknown", "ended": "unknown", "gone": "unknown", "crashed": "failed", "node-lost": "node-lost",
                    "reclaimed": "reclaimed"}  # fmt: skip
    assert end_of_stop("", asked=True) is UseEnd.USER
    assert end_of_stop("", asked=True, closing=True) is UseEnd.HUB_STOPPED
    assert end_of_stop("crashed", asked=True, closing=True) is UseEnd.FAILED, "it had ended before"


@given(
    st.lists(
        st.tuples(
            st.none() | st.floats(0, 100), st.none() | st.integers(0, 2**40), st.floats(-5, 300, allow_subnormal=False)
        ),
        max_size=30,
    )
)
def test_a_minute_never_says_more_than_was_measured(figures: list[tuple[float | None, int | None, float]]) -> None:
    sums = Sums()
    for used, memory, seconds in figures:
        sums = with_figure(sums, Figure(used, memory, "gpm"), seconds)
    row = minute_of("l1", "", NOON + timedelta(seconds=7), sums, "gpm")
    known = [used for used, _, seconds in figures if used is not None and seconds > 0]
    assert (row.used_percent is None) == (row.highest_percent is None) == (not known)
    assert row.source == ("gpm" if known else "none") and row.at == NOON
    if row.used_percent is not None and row.highest_percent is not None:
        assert min(known) - 1e-9 <= row.used_percent <= row.highest_percent + 1e-9 and row.highest_percent == max(known)


def test_a_use_has_every_field_of_its_record_of_the_same_type_and_default() -> None:
    """Only what an imported record may lack is optional there."""
    kept, recorded = get_type_hints(Use), get_type_hints(UsageRecord)
    names = {each.name for each in fields(UsageRecord)}
    assert {name for name in names if not hasattr(Use, name)} == {"source"}
    assert kept.keys() - names == {"begun", "ready_at", "free_when_asked", "measured_at", "sums", "over"}
    shared = [each for each in fields(Use) if each.name in names - {"end"}]
    assert [each.name for each in shared if recorded[each.name] not in (kept[each.name], kept[each.name] | None)] == []
    defaults = {each.name: each.default for each in fields(UsageRecord)}
    other = {each.name for each in shared if each.default != defaults[each.name]}
    assert other == {"admitted", "keeps", "warnings"}
