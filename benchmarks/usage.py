"""A million usage records: how fast they go out and in, in how much memory, and how long one page of the list takes.

Real store, SQLite and (where its programs are) a PostgreSQL of its own; the command is the command, in a process of its
own. A page is what the route does: one read by the store's thread, and its JSON. The floor is ``cp`` for the export.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import sqlalchemy as sa

from benchmarks.figures import latency_row
from hub_extensions.adapters.store import Changes, Store
from hub_extensions.adapters.store.database import make_engine, parse_url
from hub_extensions.adapters.store.usage import USAGE
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.hub_service.http.api.codec import write
from hub_extensions.hub_service.setup.settings import Settings
from tests.adapters.store.conftest import PostgreSQL
from tests.machine_needs import postgresql_programs

BASE, USERS, PAGES = 1000, 200, 200
IMPORTED = 50_000
"""Rows of a trace without keys, all of one moment: each has to be told from all others."""
LAST = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


def main() -> None:
    """Print the figures of each database."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=1_024_000, help="as many, or up to twice as many")
    records = arguments.parse_args().records
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        measure("SQLite", Path(folder) / "sqlite", "", records)
    with own_postgresql() as url:
        if url is None:
            print("PostgreSQL: its programs are not here")
            return
        with tempfile.TemporaryDirectory() as folder:
            measure("PostgreSQL", Path(folder) / "postgresql", url, records)


def measure(name: str, state: Path, url: str, records: int) -> None:
    """Fill a store, export it, read pages of it."""
    state.mkdir()
    settings = Settings(state_dir=str(state), hub_secret="s" * 64, api_token="t" * 64, database_url=url)
    settings.dump(state / "service.json")
    began = time.monotonic()
    records = asyncio.run(fill(settings.store_url, records))
    print(f"{name}: {records:,} records, made in {time.monotonic() - began:.0f} s")
    for words in (["csv"], ["csv", "--anonymize"], ["json"]):
        export(name, state, records, *words)
    asyncio.run(pages(name, settings.store_url, records))
    import_trace(name, state)


async def fill(url: str, records: int) -> int:
    """Some records by the store itself, doubled by the database, each half a while before the other."""
    store = Store.open(url)
    await store.commit(Changes(usage=tuple(record(number) for number in range(BASE))))
    store.close()
    engine = make_engine(parse_url(url))
    count, minutes = BASE, BASE
    while count < records:
        with engine.begin() as connection:
            columns = [earlier(engine.dialect.name, column, minutes) for column in USAGE.columns]
            connection.execute(sa.insert(USAGE).from_select([c.name for c in USAGE.columns], sa.select(*columns)))
        count, minutes = 2 * count, 2 * minutes
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("VACUUM ANALYZE gpu_usage"))
    engine.dispose()
    return count


def earlier(dialect: str, column: sa.Column[object], minutes: int) -> object:
    """A column of a record that is so much older."""
    if column.name == "key":
        return column + f"-{minutes}"
    if not isinstance(getattr(column.type, "impl_instance", None), sa.DateTime):
        return column
    if dialect == "postgresql":
        return sa.type_coerce(column, sa.DateTime) - timedelta(minutes=minutes)
    return sa.func.strftime("%Y-%m-%d %H:%M:%f000", column, f"-{minutes} minutes")


def record(number: int) -> UsageRecord:
    """A use as they are: a user of some, a while, figures."""
    ended = LAST - timedelta(minutes=number)
    begin = ended - timedelta(minutes=30 + number % 400)
    gpu = OfferId("mig-1g.5gb")
    return UsageRecord(
        f"{number:016x}", f"user-{number % USERS}", "", gpu, str(gpu), 1000, ended, "idle", ticket=f"{number:016x}",
        groups=("students", "ml"), choice="profile=torch", device_class="NVIDIA A100-PCIE-40GB",
        node=f"node-{number % 9}", device=f"MIG-{number % 63}", asked=begin, admitted=begin, ready=begin,
        first_used=begin, last_used=ended,
        lifetime_seconds=43200.0, waited_seconds=number % 900 * 1.0, held_seconds=(ended - begin).total_seconds(),
        ran_seconds=(ended - begin).total_seconds() - 9, outage_seconds=0.0, mean_use_percent=number % 100 * 1.0,
        highest_use_percent=99.5, use_measured=0.98, peak_memory_bytes=2**32 + number, memory_measured=0.98, keeps=0,
        warnings=1,
    )  # fmt: skip


def export(name: str, state: Path, records: int, kind: str, *more: str) -> None:
    """By the command; rows a second of the whole command, and the most memory that it had."""
    out = state / f"out.{kind}"
    command = [sys.executable, "-m", "hub_extensions.tools.cli", "usage", "export", "--state-dir", str(state)]
    took, used = timed([*command, "--output", str(out), "--format", kind, *more])
    cpu = used.ru_utime + used.ru_stime
    began = time.monotonic()
    shutil.copyfile(out, state / "copy")
    copied = time.monotonic() - began
    what = f"{name}, export {kind} {' '.join(more)}"
    print(
        f"{what:<44} {records / took:>9,.0f} rows/s ({took:.1f} s, {cpu:.1f} s of a processor; "
        f"cp of its {out.stat().st_size / 1e6:,.0f} MB {copied:.1f} s)   memory {used.ru_maxrss / 1024:.0f} MB"
    )
    for each in (out, state / "copy"):
        each.unlink()


def import_trace(name: str, state: Path) -> None:
    """By the command, into the store with all the records."""
    trace = state / "trace.csv"
    rows = (f"0,{60 + number % 5000},1,7,u{number % USERS},\n" for number in range(IMPORTED))
    trace.write_text("submit,duration,num_gpu,slices,user,limit\n" + "".join(rows))
    words = ["--pool", "gpu", "--start-time", "2020-01-01T00:00:00Z", "--slices-per-gpu", "7"]
    command = [sys.executable, "-m", "hub_extensions.tools.cli", "usage", "import", str(trace), *words]
    took, used = timed([*command, "--state-dir", str(state)])
    what = f"{name}, import of {IMPORTED:,} rows of one moment"
    cpu = used.ru_utime + used.ru_stime
    print(
        f"{what:<44} {IMPORTED / took:>9,.0f} rows/s ({took:.1f} s, {cpu:.1f} s of a processor)   "
        f"memory {used.ru_maxrss / 1024:.0f} MB"
    )


def timed(command: list[str]) -> tuple[float, resource.struct_rusage]:
    """Seconds that a command took, and what it used."""
    began = time.monotonic()
    started = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(started.pid, 0)
    assert status == 0, status
    return time.monotonic() - began, used


async def pages(name: str, url: str, records: int) -> None:
    """Pages from anywhere in the list: of all, and of one user."""
    store, chance = Store.open(url), random.Random(7)
    for whose, user in (("all", None), ("one user's", "user-7")):
        taken, processor = [], []
        for _ in range(PAGES):
            at = LAST - timedelta(minutes=chance.uniform(0, records * 0.95))
            began, worked = time.monotonic(), time.process_time()
            page = await store.usage(user, f"{at.isoformat()},~")
            write(page)
            taken.append(time.monotonic() - began)
            processor.append(time.process_time() - worked)
            assert len(page.uses) == 1000 or user is not None, len(page.uses)
        print(latency_row(f"{name}, a page of {whose}", taken))
        print(latency_row("    of a processor", processor))
    store.close()


@contextmanager
def own_postgresql() -> Iterator[str | None]:
    """A database of a server of our own; None: there is none."""
    programs = postgresql_programs()
    if programs is None:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="gpu-bench-"))
    server = PostgreSQL(programs, folder)
    server.start()
    try:
        yield server.create("bench")
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
