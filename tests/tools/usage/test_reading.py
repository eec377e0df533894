"""Other schedulers' logs become records, and every mistake a sentence that names file, line and column."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.tools.usage import sacct, swf, trace
from hub_extensions.tools.usage.lines import LONGEST_LINE, read_lines
from hub_extensions.tools.usage.rows import BadFile, How, Notes

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
HEADER = "submit,duration,num_gpu,slices,user,limit"
LONG = "g" * 300
HOW = How("log", "log", OfferId("gpu"), BEGIN, 7, 7, timezone(timedelta(hours=2)))


def read(reader: Callable[..., object], *lines: str, how: How = HOW) -> tuple[list[UsageRecord], Notes]:
    notes = Notes()
    found = reader(enumerate(lines, 1), how, notes)
    return [session.record for session in found], notes  # type: ignore[attr-defined]


def refused(reader: Callable[..., object], *lines: str, how: How = HOW) -> str:
    with pytest.raises(BadFile) as problem:
        read(reader, *lines, how=how)
    return str(problem.value)


def test_a_trace_becomes_records_with_what_it_says_and_nothing_else() -> None:
    (record,), _ = read(trace.sessions, HEADER, "60.5,3600.0,2,3,u7,43200.0")
    assert (record.asked, record.ended - record.began) == (BEGIN + timedelta(seconds=60.5), timedelta(hours=1))
    assert (record.devices, record.share, record.user, record.lifetime_seconds) == (2, 429, "u7", 43200.0)
    assert (record.admitted, record.waited_seconds, record.mean_use_percent, record.keeps) == (None, None, None, None)
    assert (record.source, record.pool, record.end) == ("csv", "gpu", "unknown")


def test_equal_rows_far_apart_are_two_sessions_in_whatever_order() -> None:
    row, others = "5,60,1,7,u1,", [f"{number},60,1,7,u2," for number in range(9, 1, -1)]
    once, twice = (read(trace.sessions, HEADER, row, *others, row, *others)[0] for _ in range(2))
    assert len({record.key for record in once}) == len(once) == 18
    assert [record.key for record in once] == [record.key for record in twice], "the same each time"


def test_equal_rows_of_a_trace_are_two_sessions_and_the_same_two_each_time() -> None:
    lines = (HEADER, "0.0,60.0,1,7,u1,", "0.0,60.0,1,7,u1,", "0.0,61.0,1,7,u1,")
    once, twice = (read(trace.sessions, *lines)[0] for _ in range(2))
    assert len({record.key for record in once}) == 3 and [r.key for r in once] == [r.key for r in twice]
    assert once[0].lifetime_seconds is None


def test_what_is_odd_is_kept_counted_and_said() -> None:
    _, notes = read(trace.sessions, HEADER, "90,60,1,7,a,30", "10,60,1,7,a,60", "50,61,1,7,b,60", "95,1,1,7,b,9")
    assert (notes.over_limit, notes.unsorted) == (2, 2)


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        ("submit,duration,num_gpu,slices,user", "0,1,1,7,a", "log, line 1, column limit: the column is missing."),
        (HEADER.replace("duration", "time"), "0,1,1,7,a,", "line 1, column duration: the column is missing. Is it 't"),
        (f"{HEADER},end_time", "0,1,1,7,a,,x", "line 1, column end_time: no column is known by that name."),
        (f"{HEADER},user", "0,1,1,7,a,,b", "line 1, column user: the column is there twice."),
        (HEADER, "0,-1,1,7,a,", "line 2, column duration: -1 is not a number from 0"),
        (HEADER, "0,nan,1,7,a,", "line 2, column duration: nan is not a number from 0"),
        (HEADER, "0,1e300,1,7,a,", "line 2, column duration: 1e300 is not a number from 0"),
        (HEADER, "0,,1,7,a,", "line 2, column duration: is empty"),
        (HEADER, "soon,1,1,7,a,", "line 2, column submit: 'soon' is not a number"),
        (HEADER, "0,1,0,7,a,", "line 2, column num_gpu: the pool gpu without GPUs"),
        (HEADER, "0,1,1.5,7,a,", "line 2, column num_gpu: 1.5 is not a whole number"),
        (HEADER, "0,1,1,8,a,", "line 2, column slices: 8 slices, and a GPU has 7"),
        (HEADER, f"0,1,1,7,{'x' * 10240},", "line 2, column user: a name of 10,240 characters; 255 are the most"),
        (HEADER, '0,1,1,7,"a', "line 2, column user: a quotation mark is open at the line's end: no name has a line b"),
        (HEADER, '"0,1,1,7,a,', "line 2, column submit: a quotation mark is open at the line's end"),
        ('"submit,duration', "", "line 1: a quotation mark is open at the line's end"),
        (HEADER, "0,1,1000001,7,a,", "line 2, column num_gpu: 1000001 is not a number from 0 to 1e+06"),
        (HEADER, "0,1,1e12,7,a,", "line 2, column num_gpu: 1e12 is not a number from 0 to 1e+06"),
        (HEADER, "0,1,1,0,a,", "line 2, column slices: 0 slices of a GPU: more than 0 are needed"),
        (f"{HEADER},keeps", "0,1,1,7,a,,1e9", "line 2, column keeps: 1e9 is not a number from 0 to 1e+06"),
        (f"{HEADER},ended", "0,1,1,7,a,,9999-12-31T23:59:59-14:00", "line 2, column ended: 9999-12-31T23:59:59-14:00"),
        (f"{HEADER},ended", "0,1,1,7,a,,0001-01-01T00:00:00+14:00", "is not a time from 1970 to 2095"),
        (f"{HEADER},groups", f"0,1,1,7,a,,{'[' * 60000}", "line 2, column groups: is not a list of names"),
        (f"{HEADER},groups", f'0,1,1,7,a,,"[""{LONG}""]"', "line 2, column groups: a name of 300 characters"),
        (f"{HEADER},choice", f"0,1,1,7,a,,{'c' * 501}", "line 2, column choice: a name of 501 characters"),
        (HEADER, "0,1,1,7,a\x0bb,", "line 2, column user: 'a\\x0bb' has a line break"),
        (HEADER, "0,1,1,7,a", "line 2, column limit: 5 fields, and the header names 6"),
        (HEADER, "0,1,1,7,a,,b,c", "line 2, column limit: 8 fields, and the header names 6"),
        (f"{HEADER},ended", "0,1,1,7,a,,2026-01-05T10:00:00", "line 2, column ended: 2026-01-05T10:00:00 is a time"),
        (f"{HEADER},ended", "0,1,1,7,a,,yesterday", "line 2, column ended: 'yesterday' is not a time like"),
        (
            f"{HEADER},admitted,ended",
            "0,1,1,7,a,,2026-01-05T10:00:01Z,2026-01-05T10:00:00Z",
            "line 2, column ended: 2026-01-05T10:00:00+00:00 is before admitted",
        ),
        (f"{HEADER},end", "0,1,1,7,a,,exploded", "line 2, column end: 'exploded' is none of admin, failed,"),
        (f"{HEADER},groups", "0,1,1,7,a,,[1]", "line 2, column groups: is not a list of names"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_trace_is_named(header: str, row: str, said: str) -> None:
    how = How("log", "log", OfferId("gpu"), BEGIN, 7)
    assert said in refused(trace.sessions, header, row, how=how)


def test_what_a_trace_does_not_say_an_admin_is_asked_for() -> None:
    assert "column submit: seconds from a beginning" in refused(
        trace.sessions, HEADER, "0,1,1,7,a,", how=How("log", "log", OfferId("gpu"))
    )
    said = refused(trace.sessions, HEADER, "0,1,1,7,a,", how=How("log", "log"))
    assert said == "log, line 2, column pool: nothing says which GPUs it is about. Name an offer with --pool gpu."
    none = How("log", "log", OfferId("gpu"), BEGIN)
    assert "column slices: of how many a GPU has?" in refused(trace.sessions, HEADER, "0,1,1,7,a,", how=none)
    assert trace.sizes('{"slices_per_gpu": 100, "pools": [{"gpus": 3}]}', none, "log.json").slices_per_gpu == 100
    for text, said in (
        ('{"slices_per_gpu": 7, "pools": [{"gpus": 0}]}', "log.json, column pools: a pool without GPUs"),
        ('{"slices_per_gpu": 0}', "column slices_per_gpu: 0: at least 1"),
        ("[]", "column slices_per_gpu: a trace's description has a whole number there"),
        ("[" * 100_000, "column slices_per_gpu: a trace's description has a whole number there"),
        ('{"slices_per_gpu": 1e999}', "column slices_per_gpu: a trace's description has a whole number there"),
        ("no json", "column slices_per_gpu: a trace's description has a whole number there"),
    ):
        with pytest.raises(BadFile) as problem:
            trace.sizes(text, none, "log.json")
        assert said in str(problem.value)


SACCT = "JobID|Cluster|User|Group|Partition|Submit|Start|End|Timelimit|AllocTRES|State"
JOB = "7|puhti|ada|ml|gpu|2026-01-05T10:00:00|2026-01-05T10:30:00|2026-01-05T12:30:00|1-00:00:00|"
JOB += "cpu=8,gres/gpu:a100=2,gres/gpu=2|CANCELLED by 1000"


def test_slurms_jobs_become_records_and_what_is_no_session_is_counted() -> None:
    (record,), notes = read(
        sacct.sessions,
        SACCT,
        JOB,
        JOB.replace("7|", "7.batch|", 1),
        JOB.replace("7|", "8|", 1).replace("gres/gpu:a100=2,gres/gpu=2", "mem=4G"),
        JOB.replace("7|", "9|", 1).replace("2026-01-05T12:30:00", "Unknown"),
    )
    assert (record.key, record.user, record.devices, record.device_class) == (
        "sacct/puhti/7@20260105T083000Z",
        "ada",
        2,
        "a100",
    )
    assert record.asked == datetime(2026, 1, 5, 8, tzinfo=timezone.utc), "sacct writes no zone: --timezone says it"
    assert (record.waited_seconds, record.held_seconds, record.lifetime_seconds) == (1800.0, 7200.0, 86400.0)
    assert (record.end, record.groups, record.choice, record.source) == ("user", ("ml",), "gpu", "sacct")
    assert notes.left_out == {
        "steps of jobs": 1,
        "jobs without a GPU": 1,
        "jobs that have not run, or run still": 1,
    }


@pytest.mark.parametrize(
    ("state", "end"),
    [("COMPLETED", "user"), ("TIMEOUT", "lifetime"), ("NODE_FAIL", "node-lost"), ("PREEMPTED", "reclaimed"),
     ("OUT_OF_MEMORY", "failed"), ("REVOKED", "unknown")],
)  # fmt: skip
def test_how_a_job_of_slurm_ended(state: str, end: str) -> None:
    (record,), _ = read(sacct.sessions, SACCT, JOB.replace("CANCELLED by 1000", state))
    assert record.end == end


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("T12:30:00", "T10:00:00", "line 2, column End: 2026-01-05T10:00:00+02:00 is before Start"),
        ("1-00:00:00", "a day", "line 2, column Timelimit: 'a day' is not a length"),
        ("|ada|", "|a|da|", "line 2, column State: 12 fields, and the header names 11"),
        ("1-00:00:00", "9" * 400 + "-00:00:00", "line 2, column Timelimit: '9999"),
        ("1-00:00:00", "50000-00:00:00", "line 2, column Timelimit: '50000-00:00:00' is longer than 126 years"),
        ("gres/gpu=2", f"gres/gpu={'9' * 30}", "line 2, column AllocTRES: more than 1,000,000 GPUs"),
        ("gres/gpu=2", "gres/gpu=1000001", "line 2, column AllocTRES: more than 1,000,000 GPUs"),
        ("|ada|", f"|{'a' * 10240}|", "line 2, column User: a name of 10,240 characters"),
        ("2026-01-05T10:00:00", "05.01.2026", "line 2, column Submit: '05.01.2026' is not a time"),
    ],
)
def test_a_mistake_in_slurms_log_is_named(old: str, new: str, said: str) -> None:
    job = JOB.replace(old, new) if old != "|ada|" or "da|" not in new else JOB.replace(old, new) + "|x"
    assert said.replace("12 fields", f"{job.count('|') + 1} fields") in refused(sacct.sessions, SACCT, job)


@pytest.mark.parametrize(
    ("submit", "start", "end", "waited", "held"),
    [
        ("2026-10-24T22:00:00", "2026-10-25T01:00:00", "2026-10-25T06:00:00", 3, 6),
        ("2026-03-29T01:00:00", "2026-03-29T02:00:00", "2026-03-29T06:00:00", 1, 3),
        ("2026-10-25T02:50:00", "2026-10-25T03:50:00", "2026-10-25T03:20:00", 1, 0.5),
        ("2026-10-25T03:50:00", "2026-10-25T03:20:00", "2026-10-25T03:30:00", 0.5, 1 / 6),
        ("2026-10-25T03:10:00", "2026-10-25T03:20:00", "2026-10-25T03:30:00", 1 / 6, 1 / 6),
    ],
)
def test_a_job_of_slurm_over_a_change_of_the_clock(
    submit: str, start: str, end: str, waited: float, held: float
) -> None:
    job = f"7|c|ada|ml|gpu|{submit}|{start}|{end}|1-00:00:00|gres/gpu=1|COMPLETED"
    (record,), _ = read(sacct.sessions, SACCT, job, how=replace(HOW, zone=ZoneInfo("Europe/Helsinki")))
    assert record.waited_seconds == pytest.approx(waited * 3600)
    assert record.held_seconds == record.ran_seconds == pytest.approx(held * 3600)
    assert record.began is not None and record.ended.utcoffset() == timedelta(0)


def test_an_end_before_the_start_is_refused_where_no_hour_is_there_twice() -> None:
    job = JOB.replace("2026-01-05T12:30:00", "2026-01-05T10:20:00")
    how = replace(HOW, zone=ZoneInfo("Europe/Helsinki"))
    assert "End: 2026-01-05T10:20:00+02:00 is before Start" in refused(sacct.sessions, SACCT, job, how=how)


def test_slurms_log_without_a_column_or_a_zone() -> None:
    assert "line 1, column User: the column is missing" in refused(sacct.sessions, SACCT.replace("User", "Who"), JOB)
    said = refused(sacct.sessions, SACCT, JOB, how=How("log", "log"))
    assert "column Submit: 2026-01-05T10:00:00 is a time without a zone" in said
    with_zone = (
        JOB.replace("10:00:00|", "10:00:00+0200|", 1)
        .replace("10:30:00", "10:30:00+0200")
        .replace("12:30:00", "12:30:00Z")
    )
    (record,), _ = read(sacct.sessions, SACCT, with_zone, how=How("log", "log"))
    assert record.waited_seconds == 1800.0


SHORT = "JobID|User|Submit|Start|End|AllocTRES|State"
REQUEUED = (
    "144_2|ue|2026-03-09T17:39:14|2026-03-09T18:41:15|2026-03-09T19:43:18|billing=1,cpu=1,gres/gpu=1,node=1|REQUEUED",
    "144_2|ue|2026-03-09T17:39:14|2026-03-09T19:51:15|2026-03-09T20:51:15|billing=1,cpu=1,gres/gpu=1,node=1|NODE_FAIL",
)


def test_each_run_of_a_requeued_job_is_a_session() -> None:
    first, second = read(sacct.sessions, SHORT, *REQUEUED)[0]
    assert (first.end, second.end) == ("reclaimed", "node-lost")
    assert first.key != second.key and first.asked == second.asked


def test_a_recycled_id_is_another_session_and_the_same_row_is_the_same() -> None:
    again = REQUEUED[1].replace("2026-03-09", "2027-03-09")
    once, twice = (read(sacct.sessions, SHORT, REQUEUED[1], again)[0] for _ in range(2))
    assert len({each.key for each in once}) == 2 and [each.key for each in once] == [each.key for each in twice]


@pytest.mark.parametrize(
    ("tres", "devices", "kind", "pool"),
    [
        ("billing=1,gres/gpu=2", 2, "", "gpu"),
        ("cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G", 2, "a100", "gpu"),
        ("gres/gpu:a100_1g.5gb=1,gres/gpu=1", 1, "a100_1g.5gb", "mig-1g.5gb"),
        ("gres/gpu=2,gres/gpu:1g.5gb=2", 2, "1g.5gb", "mig-1g.5gb"),
        ("gres/gpu:nvidia_a100_3g.20gb=1", 1, "nvidia_a100_3g.20gb", "mig-3g.20gb"),
        ("gres/gpu:nvidia_a100-sxm4-40gb_1g.5gb=1", 1, "nvidia_a100-sxm4-40gb_1g.5gb", "mig-1g.5gb"),
        ("gres/gpu:a100_1g_5gb=1", 1, "a100_1g_5gb", "mig-1g.5gb"),
        ("gres/gpu:h100_1g.10gb+me=1", 1, "h100_1g.10gb+me", "mig-1g.10gb.me"),
        ("gres/gpu:a100-sxm4-40gb=1", 1, "a100-sxm4-40gb", "gpu"),
        ("gres/gpu:a100=1,gres/gpu:a100_1g.5gb=1,gres/gpu=2", 2, "", "gpu"),
        ("gres/gpumem=4G,gres/gpuutil=3,gres/gpu=1", 1, "", "gpu"),
        ("gpu:2", 2, "", "gpu"),
        ("gpu", 1, "", "gpu"),
        ("gpu:a100:2", 2, "a100", "gpu"),
        ("gpu:a100:2(IDX:0-1)", 2, "a100", "gpu"),
        ("gpu:2(S:0-1)", 2, "", "gpu"),
        ("gpu:1g.5gb:2", 2, "1g.5gb", "mig-1g.5gb"),
        ("gres:gpu:v100:4", 4, "v100", "gpu"),
        ("craynetwork:1,gpu:1", 1, "", "gpu"),
        ("gres/gpu:4090=2", 2, "4090", "gpu"),
        ("gpu:4090:2", 2, "4090", "gpu"),
        ("7696487:2", 2, "", "gpu"),
        ("gres/gpu:a100_mig_1g5gb=1", 1, "a100_mig_1g5gb", "mig-1g.5gb"),
        ("gres/gpu:1g.24gb+gfx=1", 1, "1g.24gb+gfx", "mig-1g.24gb.gfx"),
        ("gres/gpu:1g.12gb+me.all=1", 1, "1g.12gb+me.all", "mig-1g.12gb.me.all"),
        ("gres/gpu:2g.24gb-me=1", 1, "2g.24gb-me", "mig-2g.24gb-me"),
        ("gres/gpu:0g.0gb=1", 1, "0g.0gb", "gpu"),
    ],
)
def test_what_a_job_had_is_read_as_each_version_of_slurm_writes_it(
    tres: str, devices: int, kind: str, pool: str
) -> None:
    for how in (HOW, replace(HOW, pool=None)):
        (record,), _ = read(sacct.sessions, SACCT, JOB.replace("cpu=8,gres/gpu:a100=2,gres/gpu=2", tres), how=how)
        assert (record.devices, record.device_class, record.pool, record.offer) == (devices, kind, pool, pool)


@pytest.mark.parametrize(
    "tres", ["", "(null)", "N/A", "billing=1,cpu=1", "gres/gpumem=4G", "gres/gpu=0", "gpu:0", "fpga:1"]
)
def test_a_job_without_a_gpu_is_left_out(tres: str) -> None:
    jobs, notes = read(sacct.sessions, SACCT, JOB.replace("cpu=8,gres/gpu:a100=2,gres/gpu=2", tres))
    assert jobs == [] and notes.left_out == {"jobs without a GPU": 1}


@pytest.mark.parametrize("tres", ["gres/shard=4", "cpu=8,gres/mps=50", "mps:50"])
def test_a_job_with_a_share_of_a_gpu_is_not_called_one_without(tres: str) -> None:
    jobs, notes = read(sacct.sessions, SACCT, JOB.replace("cpu=8,gres/gpu:a100=2,gres/gpu=2", tres))
    assert jobs == [] and notes.left_out == {"jobs with a share of a GPU (shard or mps)": 1}


@pytest.mark.parametrize("state", ["RUNNING", "R", "SUSPENDED", "COMPLETING"])
def test_a_job_that_is_not_over_is_left_out_though_an_end_is_written(state: str) -> None:
    elapsed = (SHORT.replace("End", "Elapsed"), PLAIN.replace("2026-01-05T12:30:00", "02:00:00"))
    for header, row in ((SHORT, PLAIN), elapsed):
        jobs, notes = read(sacct.sessions, header, row.replace("COMPLETED", state))
        assert jobs == [] and notes.left_out == {"jobs that have not run, or run still": 1}


def test_a_name_with_the_separator_in_it_is_named_and_nothing_is_read_in_the_wrong_column() -> None:
    said = refused(sacct.sessions, f"JobName|{SHORT}", f"train|v2|{PLAIN}")
    assert "line 2" in said and "A name with a line break, or a |, does that" in said


def test_a_pool_of_pieces_that_is_named_holds_for_every_kind() -> None:
    job = JOB.replace("a100=2", "a100_1g.5gb=2")
    (record,), _ = read(sacct.sessions, SACCT, job, how=replace(HOW, pool=OfferId("mig-2g.10gb")))
    assert record.pool == "mig-2g.10gb"


PLAIN = "7|ada|2026-01-05T10:00:00|2026-01-05T10:30:00|2026-01-05T12:30:00|gres/gpu=1|COMPLETED"


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (SHORT, PLAIN),
        (f"{SHORT}|", f"{PLAIN}|"),
        (SHORT, f"{PLAIN}|"),
        (SHORT.lower(), PLAIN),
        (SHORT.replace("|", ";"), PLAIN.replace("|", ";")),
        (SHORT.replace("|", "\t"), PLAIN.replace("|", "\t")),
        (SHORT.replace("|", "^"), PLAIN.replace("|", "^")),
        (SHORT.replace("JobID", "JobIDRaw"), PLAIN),
        (SHORT.replace("AllocTRES", "AllocGRES"), PLAIN.replace("gres/gpu=1", "gpu:1")),
        (SHORT.replace("AllocTRES", "ReqGRES"), PLAIN.replace("gres/gpu=1", "gpu:1")),
        (SHORT.replace("AllocTRES", "ReqTRES"), PLAIN),
        (f"{SHORT}|AllocGRES", f"{PLAIN}|gpu:4"),
        (SHORT.replace("End", "Elapsed"), PLAIN.replace("2026-01-05T12:30:00", "02:00:00")),
        (SHORT.replace("End", "Elapsed"), PLAIN.replace("2026-01-05T12:30:00", "0-02:00:00")),
        (SHORT.replace("End", "ElapsedRaw"), PLAIN.replace("2026-01-05T12:30:00", "7200")),
        (f"{SHORT}|Elapsed|Timelimit", f"{PLAIN}|02:00:00|UNLIMITED"),
        (f"{SHORT}|TimelimitRaw", f"{PLAIN}|UNLIMITED"),
        (f"{SHORT}|Timelimit", f"{PLAIN}|Partition_Limit"),
        (SHORT, PLAIN.replace("2026-01-05T10:00:00", "1767600000").replace("2026-01-05T10:30:00", "1767601800")
                     .replace("2026-01-05T12:30:00", "1767609000")),
    ],
)  # fmt: skip
def test_what_sacct_writes_with_other_options_or_in_older_versions_is_read(header: str, row: str) -> None:
    (record,), _ = read(sacct.sessions, header, row)
    assert (record.user, record.devices, record.end, record.held_seconds) == ("ada", 1, "user", 7200.0)
    assert (record.waited_seconds, record.lifetime_seconds) == (1800.0, None)


def test_a_limit_in_minutes_and_a_submit_that_is_not_known() -> None:
    header, row = f"{SHORT}|TimelimitRaw", f"{PLAIN}|90".replace("2026-01-05T10:00:00", "Unknown")
    (record,), _ = read(sacct.sessions, header, row)
    assert (record.lifetime_seconds, record.waited_seconds) == (5400.0, 0.0)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (PLAIN, "leave -n (--noheader) out"),
        ("       JobID      User  Submit    Start      End  AllocTRES ", "table for people, which cuts values off"),
        (SHORT.replace("|", ","), "separated by commas, which AllocTRES has too"),
        ('{"jobs": [', "this is what sacct --json writes"),
        ("JobID|User|Submit|Start|End|State", "column AllocTRES: the column is missing"),
        ("JobID|User|Submit|Start|AllocTRES|State", "column End: the column is missing"),
    ],
)
def test_a_file_of_sacct_that_cannot_be_read_is_named_with_what_to_do(first: str, said: str) -> None:
    assert said in refused(sacct.sessions, first, PLAIN)


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("REQUEUED", "reclaimed"),
        ("PREEMPTED", "reclaimed"),
        ("CANCELLED+", "user"),
        ("OUT_OF_ME+", "failed"),
        ("NODE_FAI+", "node-lost"),
        ("TO", "lifetime"),
        ("NF", "node-lost"),
    ],
)
def test_states_are_known_requeued_short_and_cut_off(state: str, end: str) -> None:
    (record,), _ = read(sacct.sessions, SHORT, PLAIN.replace("COMPLETED", state))
    assert record.end == end


SWF = "1 60 30 600 14 -1 100 14 3600 -1 1 3 4 -1 1 1 -1 -1"


def test_jobs_of_the_standard_workload_format() -> None:
    lines = ("; Version: 2", "; UnixStartTime: 1767225600", "", SWF, SWF.replace("1 60 30 600", "2 60 30 -1", 1))
    how = How("log", "log", processors_per_gpu=7)
    (record,), notes = read(swf.sessions, *lines, how=how)
    assert (record.asked, record.admitted) == (BEGIN + timedelta(seconds=60), BEGIN + timedelta(seconds=90))
    assert (record.devices, record.share, record.user, record.groups) == (2, 1000, "u3", ("g4",))
    assert (record.held_seconds, record.lifetime_seconds, record.end) == (600.0, 3600.0, "user")
    assert notes.left_out == {"jobs that have not run": 1}
    (small,), _ = read(swf.sessions, SWF.replace(" 14 ", " 2 "))
    assert (small.devices, small.share) == (1, 286)
    assert "column submit: seconds from a beginning" in refused(swf.sessions, SWF, how=how)
    assert "line 1, column think: 17 fields" in refused(swf.sessions, SWF[:-3])
    late = "; UnixStartTime: 99999999999999"
    assert "line 1, column UnixStartTime: 99999999999999 is later than 2096" in refused(
        swf.sessions, late, SWF, how=how
    )
    many, one = SWF.replace(" 14 ", " 3999999999 "), replace(HOW, processors_per_gpu=1)
    assert "column processors: more than 1,000,000 GPUs" in refused(swf.sessions, many, how=one)
    huge = SWF.replace(" 14 -1 100 ", " 1050 -1 3900000000 ")
    assert "column memory: 4.19328e+15 bytes in all are more" in refused(swf.sessions, huge)
    far = read(swf.sessions, SWF.replace(" 3 4 ", " 1234567 1234568 "))[0][0]
    assert (far.user, far.groups) == ("u1234567", ("g1234568",)), "each is somebody else"
    assert "column processors: how many of them" in refused(swf.sessions, SWF, how=How("log", "log", begins=BEGIN))
    assert "column run: 'x' is not a number" in refused(swf.sessions, SWF.replace("600", "x"))


def test_lines_are_read_one_by_one_plain_or_packed(tmp_path: Path) -> None:
    plain, packed, bom = tmp_path / "a.csv", tmp_path / "a.csv.gz", tmp_path / "b.csv"
    plain.write_bytes(b"one\r\ntwo")
    packed.write_bytes(gzip.compress(b"one\ntwo\n"))
    bom.write_bytes(b"\xef\xbb\xbfone\ntwo")
    for file in (plain, packed, bom):
        assert list(read_lines(file)) == [(1, "one"), (2, "two")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (gzip.compress(b"a\n" * 5000, mtime=0)[:-9], "the gzip file is broken"),
        (b"\x1f\x8bnot really", "the gzip file is broken"),
        (b"a\n\xff\xfe\n", "line 2: is not text in UTF-8"),
        (HEADER.encode() + b"\n0,1,1,\xff,a,\n", "line 2, column slices: is not text in UTF-8"),
        (HEADER.encode() + b"\n0,1,1,7," + b"x" * LONGEST_LINE, "line 2, column user: a line of more than 64 KiB"),
        (b"a\n" + b"x" * (LONGEST_LINE + 1), "line 2: a line of more than 64 KiB"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "log.csv"
    file.write_bytes(content)
    with pytest.raises(BadFile) as problem:
        list(trace.sessions(read_lines(file), HOW, Notes()) if HEADER.encode() in content else read_lines(file))
    assert str(file) in str(problem.value) and said in str(problem.value)


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("submit", ["{0}", "7"], ids=["sorted", "all of one moment"])
def test_a_file_of_any_size_is_read_in_the_same_memory(tmp_path: Path, submit: str) -> None:
    peaks = []
    for rows in (500, 6_000):
        file = tmp_path / f"{rows}.csv"
        lines = (f"{submit.format(number)},{number},1,7,u{number % 9},\n" for number in range(rows))
        file.write_text(f"{HEADER}\n" + "".join(lines))
        tracemalloc.start()
        count = sum(1 for _ in trace.sessions(read_lines(file), HOW, Notes()))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count == rows
    assert peaks[1] < 1.5 * peaks[0] + 100_000, peaks
