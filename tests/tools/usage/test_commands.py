"""``jupyterhub-gpu usage`` and ``audit``: out and in again, on SQLite; the streams of PostgreSQL are proved below."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result

from hub_extensions.adapters.store import Changes, JournalRow, Store
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.usage import Minute
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.cli import main

pytestmark = pytest.mark.slow

NOON = datetime(2026, 11, 20, 12, 0, 0, 250000, tzinfo=timezone.utc)
TRACE = "submit,duration,num_gpu,slices,user,limit\n0.0,600.0,1,1,u1,3600\n30.0,4000,1,7,u2,3600\n5,60,2,7,u1,\n"
KEYED = "submit,duration,num_gpu,slices,user,limit,key\n"
MANY = "".join(f"{number},1,1,7,u{number},\n" for number in range(900))
FIRST = UsageRecord(
    "l1", "ada", "=lab, 1", OfferId("mig-1g.5gb"), "mig-1g.5gb", 1000, NOON + timedelta(hours=1), "idle", ticket="t1",
    groups=("ml", "Å"), choice="profile=torch", asked=NOON, admitted=NOON + timedelta(seconds=90),
    ready=NOON + timedelta(seconds=100), held_seconds=3510.0, ran_seconds=3500.0, waited_seconds=90.0,
    lifetime_seconds=43200.0, mean_use_percent=12.5, use_measured=0.9, peak_memory_bytes=2**33, keeps=1, warnings=2,
    smaller_would_do="none",
)  # fmt: skip
SECOND = UsageRecord("l2", "ben", "", OfferId("cpu"), "cpu", 0, NOON + timedelta(hours=2), "user", devices=0,
                     asked=NOON + timedelta(minutes=1), admitted=NOON + timedelta(minutes=1), held_seconds=60.0,
                     adopted=True)  # fmt: skip
AT = datetime(2026, 11, 20, 12, 2, tzinfo=timezone.utc)
MINUTES = (
    Minute("l2", AT + timedelta(minutes=1), "", "dcgm", 99.0, 100.0, None, 60.0),
    Minute("l1", AT, "MIG-1", "gpm", 12.5, 40.0, 2**33, 60.0),
    Minute("l1", AT + timedelta(minutes=1), "MIG-1", "none", None, None, None, 0.0),
)
WRITTEN = """\
submit,duration,num_gpu,slices,user,limit,key,server,offer,pool,ended,end,ticket,groups,choice,device_class,node,\
device,asked,admitted,ready,first_used,last_used,adopted,waited_seconds,ran_seconds,outage_seconds,mean_use_percent,\
highest_use_percent,use_measured,peak_memory_bytes,memory_measured,keeps,warnings,source,\
smaller_would_do,advice
0.0,3510.0,1,1000,ada,43200.0,l1,"=lab, 1",mig-1g.5gb,mig-1g.5gb,2026-11-20T13:00:00.250000+00:00,idle,t1,\
"[""ml"",""\\u00c5""]",profile=torch,,,,2026-11-20T12:00:00.250000+00:00,2026-11-20T12:01:30.250000+00:00,\
2026-11-20T12:01:40.250000+00:00,,,0,90.0,3500.0,,12.5,,0.9,8589934592,,1,2,own,none,
60.0,60.0,0,0,ben,,l2,,cpu,cpu,2026-11-20T14:00:00.250000+00:00,user,,[],,,,,2026-11-20T12:01:00.250000+00:00,\
2026-11-20T12:01:00.250000+00:00,,,,1,,,,,,,,,,,own,,
"""
"""The two as CSV: spreadsheets and scripts of sites read this."""
T = TypeVar("T")


def run(state: Path, *words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, [*words, "--state-dir", str(state)], catch_exceptions=False)


def made(folder: Path, url: str = "") -> Path:
    """A state folder whose store has two records and a journal, as a service leaves it."""
    folder.mkdir(exist_ok=True)
    settings = Settings(state_dir=str(folder), hub_secret="s" * 64, api_token="t" * 64, database_url=url)
    settings.dump(folder / "service.json")
    rows = (
        JournalRow(NOON, "joined", "t1", None, "ada", "", "gpu", "user"),
        JournalRow(
            NOON + timedelta(hours=1), "culled", None, "l1", "ada", "", "Idle for 21 min.", "service", "use 0 %"
        ),
        JournalRow(NOON + timedelta(hours=2), "joined", "t2", None, "ben", "", "cpu", "user"),
    )
    store = Store.open(settings.store_url)
    asyncio.run(store.commit(Changes(usage=(FIRST, SECOND), journal=rows, samples=MINUTES)))
    store.close()
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return made(tmp_path / "state")


def stored(state: Path, ask: Callable[[Store], object]) -> object:
    store = Store.open(Settings.load(state / "service.json").store_url)
    try:
        return asyncio.run(ask(store))  # type: ignore[arg-type]
    finally:
        store.close()


def records(state: Path) -> dict[str, UsageRecord]:
    return {record.key: record for record in stored(state, lambda store: store.usage()).uses}  # type: ignore[attr-defined]


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def check_export(state: Path, out: Path) -> None:
    done = run(state, "usage", "export", "--output", str(out))
    assert (done.exit_code, done.output) == (0, f"2 uses were written to {out}.\n")
    assert out.stat().st_mode & 0o777 == 0o600
    first, second = table(out.read_text())
    assert [first[name] for name in ("submit", "duration", "num_gpu", "slices", "user", "limit")] == [
        "0.0", "3510.0", "1", "1000", "ada", "43200.0",
    ]  # fmt: skip
    assert (first["server"], first["asked"], first["groups"]) == (
        "=lab, 1",
        "2026-11-20T12:00:00.250000+00:00",
        '["ml","\\u00c5"]',
    )
    assert (first["peak_memory_bytes"], first["highest_use_percent"], first["adopted"]) == (str(2**33), "", "0")
    assert (second["submit"], second["num_gpu"], second["slices"], second["limit"]) == ("60.0", "0", "0", "")
    assert out.read_text() == WRITTEN
    about = json.loads(out.with_suffix(".json").read_text())
    assert about["slices_per_gpu"] == 1000
    assert about["pools"] == [{"pool": "mig-1g.5gb", "gpus": 1, "policy": "strict"}], "CPU only has no devices"
    sheet = run(state, "usage", "export", "--output", "-", "--anonymize").stdout
    assert [row["user"] for row in table(sheet)] == ["u0000", "u0001"]
    assert "ada" not in sheet and "ben" not in sheet and "lab" not in sheet
    assert [(row["choice"], row["ticket"], row["key"]) for row in table(sheet)] == [
        ("c0001", "", "r0000000"),
        ("", "", "r0000001"),
    ], "a typed name of an image can be a person's, and a ticket leads to the journal"
    assert "torch" not in sheet
    listed = json.loads(run(state, "usage", "export", "--output", "-", "--format", "json").stdout)
    assert (listed[0]["groups"], listed[1]["adopted"], listed[1]["limit"]) == (["ml", "Å"], True, None)
    rows = table(WRITTEN)
    assert [list(each) for each in listed] == [list(row) for row in rows], "the same columns in the same order"
    assert [_as_text(each) for each in listed] == rows, "and the same values"


def _as_text(listed: dict[str, object]) -> dict[str, str]:
    """A record of the JSON as one of the CSV."""
    special = {"groups": json.dumps(listed["groups"], separators=(",", ":")), "adopted": int(bool(listed["adopted"]))}
    return {name: "" if value is None else str(value) for name, value in (listed | special).items()}


def check_journal(state: Path) -> None:
    everything = table(run(state, "audit").stdout)
    assert [(row["kind"], row["actor"], row["user"], row["evidence"]) for row in everything] == [
        ("joined", "user", "ada", ""),
        ("culled", "service", "ada", "use 0 %"),
        ("joined", "user", "ben", ""),
    ]
    assert everything[1]["at"] == "2026-11-20T13:00:00.250000+00:00"
    one = table(run(state, "audit", "--kind", "joined", "--user", "ada").stdout)
    assert [row["ticket"] for row in one] == ["t1"]
    late = run(state, "audit", "--since", "2026-11-20T14:00:00+01:00", "--until", "2026-11-20T15:00:00+01:00").stdout
    assert [row["kind"] for row in table(late)] == ["culled"]


def check_samples(state: Path, out: Path) -> None:
    done = run(state, "usage", "samples", "--output", str(out))
    assert (done.exit_code, done.output) == (0, f"3 minutes were written to {out}.\n")
    assert out.stat().st_mode & 0o777 == 0o600
    rows = table(out.read_text())
    assert [(row["key"], row["at"], row["used_percent"]) for row in rows] == [
        ("l1", "2026-11-20T12:02:00.000000+00:00", "12.5"),
        ("l1", "2026-11-20T12:03:00.000000+00:00", ""),
        ("l2", "2026-11-20T12:03:00.000000+00:00", "99.0"),
    ], "what nobody measured is empty"
    assert (rows[0]["device"], rows[0]["source"], rows[0]["memory_bytes"]) == ("MIG-1", "gpm", str(2**33))
    late = run(state, "usage", "samples", "--output", "-", "--since", "2026-11-20T12:03:00Z").stdout
    assert [row["key"] for row in table(late)] == ["l1", "l2"]
    early = run(state, "usage", "samples", "--output", "-", "--until", "2026-11-20T12:03:00Z").stdout
    assert [row["key"] for row in table(early)] == ["l1"]


def test_what_was_measured_goes_out_by_the_minute(state: Path, tmp_path: Path) -> None:
    check_samples(state, tmp_path / "samples.csv")


@pytest.mark.slow
def test_what_goes_out_is_what_is_stored_and_comes_in_once(state: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "history.csv"
    check_export(state, out)
    check_journal(state)
    back = run(state, "usage", "import", str(out))
    assert "0 sessions" in back.output and "2 were here already" in back.output, "they are this service's own"
    other = made(tmp_path / "other")
    asyncio.run(_emptied(other))
    assert run(other, "usage", "import", str(out)).exit_code == 0
    found = records(other)
    assert found["csv/history/l1"].source == "csv" and found["csv/history/l2"].devices == 0
    for mine, theirs in ((FIRST, found["csv/history/l1"]), (SECOND, found["csv/history/l2"])):
        same = [name for name in UsageRecord.__dataclass_fields__ if name not in ("key", "source")]
        assert [getattr(theirs, name) for name in same] == [getattr(mine, name) for name in same]


def test_an_export_of_before_right_sizing_comes_in_with_that_unknown(tmp_path: Path) -> None:
    state, file = made(tmp_path / "state"), tmp_path / "older.csv"
    older = (
        WRITTEN.replace(",smaller_would_do,advice", "").replace(",own,none,\n", ",own\n").replace(",own,,\n", ",own\n")
    )
    file.write_text(older)
    asyncio.run(_emptied(state))
    assert run(state, "usage", "import", str(file)).exit_code == 0
    assert {(each.smaller_would_do, each.advice) for each in records(state).values()} == {(None, "")}
    for column, value in (("smaller_would_do", "tiny"), ("advice", "shout")):
        file.write_text(WRITTEN.replace(",own,none,\n", f",own,{'tiny,' if value == 'tiny' else ',shout'}\n"))
        wrong = run(state, "usage", "import", str(file))
        assert wrong.exit_code == 2 and f"line 2, column {column}: " in wrong.output and value in wrong.output


def test_an_export_destroys_neither_records_nor_another_files_description(state: Path, tmp_path: Path) -> None:
    trace, beside, records_only = (tmp_path / name for name in ("history.csv", "history.json", "records.json"))
    for _ in range(2):  # each over itself
        assert run(state, "usage", "export", "--output", str(trace)).exit_code == 0
        assert run(state, "usage", "export", "--output", str(records_only)).exit_code == 0
    description = beside.read_text()
    over = run(state, "usage", "export", "--output", str(beside))
    assert over.exit_code == 1 and f"{beside} is the description of an export as CSV" in over.output
    assert beside.read_text() == description
    for other in (records_only.read_text(), '{"slices_per_gpu": 7}', "no json", "[\n]\n"):
        beside.write_text(other)
        trace.write_text("as it was")
        over = run(state, "usage", "export", "--output", str(trace))
        assert over.exit_code == 1 and f"{beside} is where the description of {trace} goes" in over.output
        assert (trace.read_text(), beside.read_text()) == ("as it was", other)


async def _emptied(state: Path) -> None:
    store = Store.open(Settings.load(state / "service.json").store_url)
    await store.prune(NOON + timedelta(days=400))
    store.close()


def test_twice_the_same_trace_is_once_and_a_user_of_that_name_does_not_see_it(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "log.csv.gz"
    file.write_bytes(gzip.compress(TRACE.encode()))
    (tmp_path / "log.json").write_text('{"slices_per_gpu": 7, "pools": [{"gpus": 2, "policy": "strict"}]}')
    words = ("usage", "import", str(file), "--pool", "gpu", "--start-time", "2020-01-01T00:00:00Z")
    first = run(state, *words)
    assert first.exit_code == 0 and first.output.splitlines() == [
        f"3 sessions of {file} were imported as log.",
        "1 lasted longer than their limit. They were kept as they are.",
        "1 began before the one above them. The history is in order of time all the same.",
    ]
    before = records(state)
    again = run(state, *words)
    assert again.exit_code == 0 and "was imported as log" in again.output and "Nothing changed" in again.output
    renamed = tmp_path / "other.csv.gz"
    renamed.write_bytes(file.read_bytes())
    assert (
        "was imported as log" in run(state, "usage", "import", str(renamed), *words[3:], "--slices-per-gpu", "7").output
    )
    assert records(state) == before and len(before) == 5
    assert sorted(record.source for record in before.values()) == ["csv", "csv", "csv", "own", "own"]
    grown = tmp_path / "log.csv"
    grown.write_text(TRACE + "90,1,1,7,ada,\n")
    assert "1 sessions" in run(state, "usage", "import", str(grown), *words[3:]).output
    mine = stored(state, lambda store: store.usage("ada"))
    assert [record.key for record in mine.uses] == ["l1"]  # type: ignore[attr-defined]
    stored(state, lambda store: store.prune(datetime.now(timezone.utc)))
    kept = [record for record in records(state).values() if record.source == "csv"]
    assert len(kept) == 4, "of 2020, and imported today: kept for 12 months from now"


@pytest.mark.whole
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("submit,duration,num_gpu,slices,user,limit\n", "it has no session to import"),
        (TRACE.replace("duration", "length"), "line 1, column duration: the column is missing"),
        (TRACE + "x" * 401 + "\n", "line 5, column duration: 1 fields, and the header names 6"),
        (f"{TRACE}{MANY}9,-1,1,7,u1,", "line 905, column duration"),
        (f"{KEYED}0,1,1,7,a,,k\n1,1,1,7,b,,k\n", "line 3, column key: k is the key of line 2 too"),
        (
            f"{KEYED}0,1,1,7,a,,k\n{''.join(f'1,1,1,7,b,,k{n}' + chr(10) for n in range(500))}1,1,1,7,b,,k\n",
            "line 503, column key: k is the key of an earlier line too",
        ),
    ],
)  # fmt: skip
def test_a_file_with_a_mistake_is_not_imported_at_all(state: Path, tmp_path: Path, text: str, said: str) -> None:
    before = records(state)
    file = tmp_path / "log.csv"
    file.write_text(text)
    words = ("--pool", "gpu", "--start-time", "2020-01-01T00:00:00Z", "--slices-per-gpu", "7")
    done = run(state, "usage", "import", str(file), *words)
    assert done.exit_code == 2 and said in done.output and str(file) in done.output, done.output
    assert done.output.endswith("Nothing was imported.\n")
    assert records(state) == before


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("audit", "--since", "2026-11-20"), "--since: 2026-11-20 is a time without a zone", 2),
        (("audit", "--until", "soon"), "--until: 'soon' is not a time like", 2),
        (("usage", "import", "x.csv", "--timezone", "Europe/Nowhere"), "--timezone: no time zone is known as", 2),
        (("usage", "import", "x.csv", "--pool", "half"), "--pool: ", 2),
        (("usage", "import", "x.csv", "--start-time", "9999-12-31T00:00:00Z"), "is not a time from 1970 to 2095", 2),
        (("usage", "samples", "--output", "-", "--since", "soon"), "--since: 'soon' is not a time like", 2),
        (("usage", "import", "/no/such.csv"), "/no/such.csv: it cannot be read", 2),
        (("usage", "export", "--output", "/no/such/file.csv"), "That could not be written", 1),
    ],
)
def test_an_option_that_cannot_be_is_named(state: Path, words: tuple[str, ...], said: str, code: int) -> None:
    done = run(state, *words)
    assert done.exit_code == code and said in done.output, done.output


def test_a_store_that_is_not_there_or_is_older_is_left_alone(state: Path, tmp_path: Path) -> None:
    assert run(tmp_path, "usage", "export", "--output", "-").exit_code == 2
    (state / "gpu.sqlite").unlink()
    gone = run(state, "usage", "export", "--output", "-")
    assert gone.exit_code == 1 and "has not been started yet" in gone.output
    assert not (state / "gpu.sqlite").exists()
    url = Settings.load(state / "service.json").store_url
    Store.open(url).close()
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE gpu_alembic_version SET version_num = '0001'")
    older = run(state, "usage", "export", "--output", "-")
    assert older.exit_code == 1 and "has schema 0001, and this version works with" in older.output


def test_an_export_holds_no_service_up(state: Path, tmp_path: Path) -> None:
    from hub_extensions.adapters.store.archive import Archive

    url = Settings.load(state / "service.json").store_url
    with Archive.open(url, reading=True) as archive:
        pieces = archive.uses()
        next(pieces)
        stored(state, lambda store: store.commit(Changes(journal=(JournalRow(NOON, "x", None, None, None, None, ""),))))
        assert list(pieces) == []


@pytest.mark.needs("postgresql")
def test_postgresql_says_the_same(tmp_path: Path, postgresql_url: str) -> None:
    state = made(tmp_path / "state", postgresql_url)
    check_export(state, tmp_path / "history.csv")
    check_samples(state, tmp_path / "samples.csv")
    check_journal(state)
    file = tmp_path / "log.csv"
    file.write_text(TRACE)
    words = ("--pool", "gpu", "--start-time", "2020-01-01T00:00:00Z", "--slices-per-gpu", "7")
    for said in ("3 sessions", "was imported as log"):
        assert said in run(state, "usage", "import", str(file), *words).output
