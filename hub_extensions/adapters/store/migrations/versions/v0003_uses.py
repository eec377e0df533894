"""Records that teach: one row a use with how it ended, what was measured and by whom; and uses that are not over.

What the journal of before knows goes into the rows that it is about. Durations of those rows are by the wall clock,
since nothing tells how long hub and service were away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MANY = 1000
_SAMPLE_SECONDS = 10.0
_ON_DEVICE = re.compile(r"^device (?P<last>\S+) is free$| on (?P<first>\S+)$")
_CULLED = (
    ("Idle for", "idle"),
    ("No activity", "idle"),
    ("Nobody has opened", "unopened"),
    ("The time limit", "lifetime"),
)
_TICKET_ENDS = {"failed": "failed", "refused": "failed", "left": "left", "abandoned": "left"}


def upgrade() -> None:
    """Make the new tables, and carry the rows over."""
    for index in ("gpu_usage_by_time", "gpu_usage_by_user", "gpu_samples_by_time"):
        op.drop_index(index)
    op.rename_table("gpu_usage", "gpu_usage_before")
    op.rename_table("gpu_samples", "gpu_samples_before")
    op.add_column("gpu_tickets", sa.Column("asked", sa.DateTime))
    for name in ("actor", "evidence"):
        op.add_column("gpu_journal", sa.Column(name, sa.Text, nullable=False, server_default=""))
    _tables()
    connection = op.get_bind()
    known = _journal(connection)
    _asked(connection, known)
    _usage(connection, known)
    _open(connection, known)
    _samples(connection)
    op.drop_table("gpu_usage_before")
    op.drop_table("gpu_samples_before")


def _tables() -> None:
    text = {name: sa.Column(name, sa.Text, nullable=False) for name in (
        "user", "server", "offer", "pool", "ticket", "groups", "choice", "device_class", "node", "device", "end",
        "source",
    )}  # fmt: skip
    time = {name: sa.Column(name, sa.DateTime) for name in ("asked", "admitted", "ready", "first_used", "last_used")}
    number = {name: sa.Column(name, sa.Double) for name in (
        "lifetime_seconds", "waited_seconds", "held_seconds", "ran_seconds", "outage_seconds", "mean_use_percent",
        "highest_use_percent", "use_measured", "memory_measured",
    )}  # fmt: skip
    op.create_table(
        "gpu_usage",
        sa.Column("key", sa.Text, primary_key=True),
        *text.values(),
        sa.Column("share", sa.Integer, nullable=False),
        sa.Column("devices", sa.Integer, nullable=False),
        *time.values(),
        sa.Column("began", sa.DateTime, nullable=False, comment="the first of these that is known"),
        sa.Column("ended", sa.DateTime, nullable=False),
        *number.values(),
        sa.Column("peak_memory_bytes", sa.BigInteger),
        sa.Column("adopted", sa.Boolean, nullable=False),
        sa.Column("keeps", sa.Integer),
        sa.Column("warnings", sa.Integer),
        sa.Column("batch", sa.BigInteger, comment="the import it came with; none: our own"),
    )
    op.create_index("gpu_usage_by_end", "gpu_usage", ["ended", "key"])
    op.create_index("gpu_usage_by_user", "gpu_usage", ["user", "ended", "key"])
    op.create_index("gpu_usage_by_begin", "gpu_usage", ["began", "key"])
    op.create_index("gpu_usage_by_batch", "gpu_usage", ["batch"])
    op.create_table(
        "gpu_open_uses", sa.Column("key", sa.Text, primary_key=True), sa.Column("use", sa.Text, nullable=False)
    )
    op.create_table(
        "gpu_imports",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False, comment="of the file's contents and how it was read"),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("done", sa.Boolean, nullable=False),
    )
    op.create_table(
        "gpu_samples",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("at", sa.DateTime, primary_key=True),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("used_percent", sa.Double),
        sa.Column("highest_percent", sa.Double),
        sa.Column("memory_bytes", sa.BigInteger),
        sa.Column("measured_seconds", sa.Double, nullable=False),
    )
    op.create_index("gpu_samples_by_time", "gpu_samples", ["at"])


# ------------------------------------------------------------------ what the journal of before knows


class _Story:
    """What the journal says of one lease. No dataclass: alembic loads a step without a place among the modules."""

    def __init__(self) -> None:
        self.ticket = ""
        self.admitted: datetime | None = None
        self.device = ""
        self.adopted = False
        self.keeps = 0
        self.end = "unknown"


class _Journal:
    """What it says of leases, and of tickets: when they joined and were ready, and how they ended."""

    def __init__(self) -> None:
        self.leases: dict[str, _Story] = {}
        self.joined: dict[str, datetime] = {}
        self.ready: dict[str, datetime] = {}
        self.ticket_ends: dict[str, str] = {}

    def end_of(self, story: _Story) -> str:
        return self.ticket_ends.get(story.ticket, "unknown") if story.end == "unknown" else story.end


def _table(name: str, *columns: str, **typed: Any) -> Any:
    return sa.table(name, *(sa.column(each) for each in columns), *(sa.column(n, kind) for n, kind in typed.items()))


def _journal(connection: Any) -> _Journal:
    rows = _table("gpu_journal", "kind", "ticket", "lease", "text", id=sa.BigInteger, at=sa.DateTime)
    known = _Journal()
    for row in connection.execute(sa.select(rows).order_by(rows.c.id)):
        if row.ticket and row.kind == "joined":
            known.joined.setdefault(row.ticket, row.at)
        if row.ticket and row.kind == "ready":
            known.ready[row.ticket] = row.at
        if row.ticket and row.kind in _TICKET_ENDS:
            known.ticket_ends[row.ticket] = _TICKET_ENDS[row.kind]
        if row.lease:
            _tell(known.leases.setdefault(row.lease, _Story()), row)
    return known


def _tell(story: _Story, row: Any) -> None:
    story.ticket = row.ticket or story.ticket
    named = _ON_DEVICE.search(row.text)
    if row.kind in ("admitted", "ended") and named:
        story.device = named["first"] or named["last"]
    if row.kind == "admitted":
        story.admitted = row.at
    story.adopted = story.adopted or row.kind == "adopted"
    story.keeps += row.kind == "kept"
    if row.kind == "culled":
        story.end = next((end for begin, end in _CULLED if row.text.startswith(begin)), "idle")
    elif row.kind == "stopped" and story.end in ("unknown", "lost"):
        story.end = "user" if row.text == "the hub stopped its server" else "failed"
    elif row.kind == "lost":
        story.end = "node-lost" if "node" in row.text else "lost"
    elif row.kind == "running" and story.end in ("lost", "node-lost"):
        story.end = "unknown"  # it came back


# ------------------------------------------------------------------ rows of before


def _asked(connection: Any, known: _Journal) -> None:
    tickets = _table("gpu_tickets", "id", asked=sa.DateTime)
    rows = [{"of": ticket, "at": at} for ticket, at in known.joined.items()]
    if rows:
        found = sa.update(tickets).where(tickets.c.id == sa.bindparam("of")).values(asked=sa.bindparam("at"))
        connection.execute(found, rows)


def _usage(connection: Any, known: _Journal) -> None:
    before = _table(
        "gpu_usage_before", "lease", "user", "server", "offer", "pool", "share", "end", "waited_seconds",
        "peak_memory_bytes", "mean_use_percent",
        joined=sa.DateTime, admitted=sa.DateTime, ready=sa.DateTime, ended=sa.DateTime,
    )  # fmt: skip
    names = [column.name for column in _new_columns()]
    after = sa.table("gpu_usage", *_new_columns())
    tickets = _tickets(connection)
    nobody = 0
    rows: list[dict[str, Any]] = []
    for row in connection.execute(sa.select(before).order_by(before.c.ended, before.c.lease)).mappings().all():
        story = known.leases.get(row["lease"])
        values = dict.fromkeys(names) | _values(dict(row), story, known, tickets)
        if not row["user"]:
            nobody += 1
            values["user"] = f"deleted/{nobody}"
        if values["device"] and row["share"] == 1000:
            values |= _measured(connection, values)
        rows.append(values)
    for first in range(0, len(rows), _MANY):
        connection.execute(sa.insert(after), rows[first : first + _MANY])
    if nobody:
        meta = _table("gpu_meta", "name", "value")
        connection.execute(sa.insert(meta).values(name="deleted-users", value=str(nobody)))


def _new_columns() -> list[Any]:
    typed = {"adopted": sa.Boolean, **dict.fromkeys(
        ("asked", "admitted", "ready", "first_used", "last_used", "began", "ended"), sa.DateTime
    )}  # fmt: skip
    plain = (
        "key", "user", "server", "offer", "pool", "share", "devices", "ticket", "groups", "choice", "device_class",
        "node", "device", "end", "lifetime_seconds", "waited_seconds", "held_seconds", "ran_seconds", "outage_seconds",
        "mean_use_percent", "highest_use_percent", "use_measured", "peak_memory_bytes", "memory_measured", "keeps",
        "warnings", "source", "batch",
    )  # fmt: skip
    return [*(sa.column(name) for name in plain), *(sa.column(name, kind) for name, kind in typed.items())]


def _tickets(connection: Any) -> dict[str, tuple[str, str]]:
    """Ticket -> (groups, choice), of those that are still stored."""
    rows = _table("gpu_tickets", "id", "groups", "options")
    return {row.id: (row.groups, _choice(row.options)) for row in connection.execute(sa.select(rows))}


def _choice(options: str) -> str:
    kept = sorted(json.loads(options or "{}").items())
    return " ".join(
        f"{name}={value}"
        for name, value in kept
        if name not in ("offer", "offers") and isinstance(value, str | int | float)
    )[:500]


def _values(
    row: Mapping[str, Any], story: _Story | None, known: _Journal, tickets: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    told = story or _Story()
    asked = row["joined"] or known.joined.get(told.ticket)
    admitted = told.admitted or row["admitted"]
    ready = known.ready.get(told.ticket) or row["ready"] if row["ready"] else None
    groups, choice = tickets.get(told.ticket, ("[]", ""))
    waited = row["waited_seconds"]
    if waited is None and asked is not None:
        waited = _seconds(asked, admitted)
    return {
        "key": row["lease"],
        **{name: row[name] for name in ("user", "server", "offer", "pool", "share", "ended")},
        "devices": 1,
        "ticket": told.ticket,
        "groups": groups if row["user"] else "[]",
        "choice": choice,
        "device_class": "",
        "node": "",
        "device": told.device,
        "asked": asked,
        "admitted": admitted,
        "ready": ready,
        "began": asked or admitted,
        "end": known.end_of(told) if row["end"] == "released" else row["end"],
        "adopted": told.adopted,
        "waited_seconds": waited,
        "held_seconds": _seconds(admitted, row["ended"]),
        "ran_seconds": _seconds(ready, row["ended"]) if ready else None,
        "mean_use_percent": row["mean_use_percent"],
        "peak_memory_bytes": row["peak_memory_bytes"],
        "keeps": told.keeps if told.admitted or told.adopted else None,
        "source": "own",
    }


def _seconds(begin: datetime, end: datetime) -> float:
    return max(0.0, (end - begin) / timedelta(seconds=1))


def _measured(connection: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """What the samples of its device say of its time, where the row itself says nothing."""
    kept = _table("gpu_samples_before", "uuid", "used_percent", "memory_used_bytes", at=sa.DateTime)
    begin = values["ready"] or values["admitted"]
    inside = sa.and_(kept.c.uuid == values["device"], kept.c.at >= begin, kept.c.at <= values["ended"])
    used, memory = kept.c.used_percent, kept.c.memory_used_bytes
    sums = (sa.func.avg(used), sa.func.max(used), sa.func.count(used), sa.func.max(memory), sa.func.count(memory))
    mean, highest, uses, peak, memories = connection.execute(sa.select(*sums).where(inside)).one()
    ran = values["ran_seconds"]
    found: dict[str, Any] = {"highest_use_percent": highest}
    if values["mean_use_percent"] is None:
        found["mean_use_percent"] = mean
    if values["peak_memory_bytes"] is None:
        found["peak_memory_bytes"] = peak
    for name, count in (("use_measured", uses), ("memory_measured", memories)):
        found[name] = min(1.0, count * _SAMPLE_SECONDS / ran) if ran else None
    return found


def _open(connection: Any, known: _Journal) -> None:
    """Leases that have not ended are uses that are not over."""
    leases = _table(
        "gpu_leases", "id", "ticket", "user", "server", "offer", "pool", "share", "uuid", "state",
        since=sa.DateTime, ready_at=sa.DateTime, adopted=sa.Boolean,
    )  # fmt: skip
    tickets = _tickets(connection)
    rows = [
        {"key": row["id"], "use": json.dumps(dict(_open_use(row, known, tickets)))}
        for row in connection.execute(sa.select(leases)).mappings()
    ]
    if rows:
        connection.execute(sa.insert(_table("gpu_open_uses", "key", "use")), rows)


def _open_use(row: Any, known: _Journal, tickets: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    story = known.leases.get(row["id"], _Story())
    groups, choice = tickets.get(row["ticket"], ("[]", ""))
    asked, ready = known.joined.get(row["ticket"]), known.ready.get(row["ticket"]) or row["ready_at"]
    admitted = story.admitted or row["since"]
    yield "key", row["id"]
    yield from ((name, row[name]) for name in ("user", "server", "offer", "pool", "share", "ticket"))
    yield from (("adopted", bool(row["adopted"])), ("device", row["uuid"]), ("choice", choice))
    yield "groups", json.loads(groups)
    yield "end", known.end_of(story) if row["state"] == "ending" else None
    yield from (("admitted", _iso(admitted)), ("begun", _iso(row["since"])), ("keeps", story.keeps))
    if asked is not None:
        yield from (("asked", _iso(asked)), ("waited_seconds", _seconds(asked, admitted)))
    if row["ready_at"] is not None:
        yield from (("ready", _iso(ready)), ("ready_at", _iso(row["ready_at"])))


def _iso(at: datetime) -> str:
    return f"{at.isoformat()}+00:00"


def _samples(connection: Any) -> None:
    """By the device as before: of which use they were is not said there. They go after 30 days."""
    connection.execute(
        sa.text(
            'INSERT INTO gpu_samples ("key", at, device, source, used_percent, highest_percent, memory_bytes, '
            "measured_seconds) SELECT 'device/' || uuid, at, uuid, source, used_percent, used_percent, "
            "memory_used_bytes, CASE WHEN used_percent IS NULL THEN 0 ELSE 10 END FROM gpu_samples_before"
        )
    )
