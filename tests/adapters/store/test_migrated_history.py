"""What the journal and the samples of before know of a use goes into its record, and into those that are not over."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import sqlalchemy as sa

from hub_extensions.adapters.store import Store
from hub_extensions.adapters.store.database import make_engine, parse_url
from tests.adapters.store.release import write_release

START = datetime(2026, 11, 10, 9, tzinfo=timezone.utc)


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def sql(minutes: float) -> str:
    return f"'{at(minutes).replace(tzinfo=None).isoformat(sep=' ')}.000000'"


def story(number: int, *rows: tuple[float, str, str], adopted: bool = False) -> list[str]:
    """The journal of one lease, and its record, as 0.1.0 wrote them."""
    begin, over = ('INSERT INTO gpu_journal (at, kind, ticket, lease, "user", server, "text") VALUES (', ")")
    ticket = "NULL" if adopted else f"'u-{number}'"
    known = [] if adopted else [
        f"{begin}{sql(0)}, 'joined', {ticket}, NULL, 'ned', '', 'gpu'{over}",
        f"{begin}{sql(10)}, 'admitted', {ticket}, 'm-{number}', 'ned', '', 'gpu on GPU-{number}'{over}",
    ]  # fmt: skip
    for minutes, kind, text in rows:
        lease = "NULL" if kind in ("ready", "failed", "left") else f"'m-{number}'"
        known.append(f"{begin}{sql(minutes)}, '{kind}', {ticket}, {lease}, 'ned', '', '{text}'{over}")
    user = "" if number > 6 else "ned"
    ready = "NULL" if any(kind in ("failed", "left") for _, kind, _ in rows) else sql(20)
    known.append(
        'INSERT INTO gpu_usage (lease, "user", server, offer, pool, share, admitted, ready, ended, "end") VALUES '
        f"('m-{number}', '{user}', '', 'gpu', 'gpu', 1000, {sql(10)}, {ready}, {sql(80)}, 'released')"
    )
    return known


STORIES = (
    story(
        1, (20, "ready", "gpu"), (79, "stopped", "the hub stopped its server"), (80, "ended", "device GPU-1 is free")
    ),
    story(
        2,
        (20, "ready", "gpu"),
        (30, "kept", "kept until x"),
        (79, "culled", "Idle for 21 min."),
        (79, "stopped", "the hub stopped its server"),
    ),
    story(3, (20, "ready", "gpu"), (79, "culled", "Nobody has opened it since it started 15 min ago.")),
    story(
        4,
        (20, "ready", "gpu"),
        (40, "lost", "device GPU-4 is gone"),
        (50, "running", "device GPU-4 is back"),
        (60, "lost", "device GPU-4 is gone"),
    ),
    story(5, (15, "failed", "start failed: no such image")),
    story(6, (20, "adopted", "a server that was started before, on GPU-6"), adopted=True),
    story(7, (20, "ready", "gpu"), (79, "stopped", "It used more memory than it may.")),
    story(8, (20, "ready", "gpu")),
)


async def test_the_journal_of_before_is_in_the_records_of_now(url: str) -> None:
    write_release(url)
    engine = make_engine(parse_url(url))
    with engine.begin() as connection:
        for statement in (each for shown in STORIES for each in shown):
            connection.execute(sa.text(statement))
        for minute in range(20, 50):
            values = (
                f"('GPU-1', {sql(minute)}, {minute}.0, {minute}, 'nvml'), ('GPU-9', {sql(minute)}, 99.0, 1, 'nvml')"
            )
            connection.execute(
                sa.text(f"INSERT INTO gpu_samples (uuid, at, used_percent, memory_used_bytes, source) VALUES {values}")
            )
    engine.dispose()
    store = Store.open(url)
    found = {record.key: record for record in (await store.usage()).uses if record.key.startswith("m-")}
    uses = (await store.load()).uses
    store.close()
    assert [found[f"m-{number}"].end for number in range(1, 9)] == [
        "user", "idle", "unopened", "lost", "failed", "unknown", "failed", "unknown",
    ]  # fmt: skip
    first = found["m-1"]
    assert (first.asked, first.admitted, first.ready, first.ended) == (at(0), at(10), at(20), at(80))
    assert (first.waited_seconds, first.held_seconds, first.ran_seconds) == (600.0, 4200.0, 3600.0)
    assert first.outage_seconds is None, "nothing tells how long hub and service were away"
    assert (first.mean_use_percent, first.highest_use_percent, first.peak_memory_bytes) == (34.5, 49.0, 49)
    assert first.use_measured == 300 / 3600 and first.device == "GPU-1"
    assert (found["m-2"].keeps, found["m-2"].mean_use_percent, found["m-2"].use_measured) == (1, None, 0.0)
    assert (found["m-5"].ready, found["m-5"].ran_seconds, found["m-5"].waited_seconds) == (None, None, 600.0)
    assert (found["m-6"].adopted, found["m-6"].asked, found["m-6"].keeps) == (True, None, 0)
    assert len({found["m-7"].user, found["m-8"].user}) == 2, "two deleted ones are not one person"
    assert {use.key: use.asked for use in uses}["l-1"] == datetime(2026, 11, 20, 9, 1, 0, 250000, tzinfo=timezone.utc)
