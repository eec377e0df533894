"""A service that is upgraded together with a restart of its machine: the line of before goes on by the rules of now."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hub_extensions.adapters.store import Changes
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import LeaseState
from hub_extensions.core.stops import Cause, StopState
from hub_extensions.core.text.reasons import explain
from hub_extensions.hub_service.engine.state.meta import read_stops, write_stops
from tests.adapters.store.filled_store import write_filled_store
from tests.fakes.empty_store import open_store
from tests.fakes.machine import HubAsTold, large, small
from tests.hub_service.engine.room import room, settings


@pytest.mark.slow
async def test_who_was_in_line_under_the_last_release_keeps_place_promise_and_options(tmp_path: Path) -> None:
    write_filled_store(settings(tmp_path).store_url)
    hub = HubAsTold()
    async with room(tmp_path, small(0), large(), hub=hub) as r:
        state = r.engine.state
        await r.engine.reconciler.reconcile()
        for _ in range(20):
            await asyncio.sleep(0)
        leases = {each.user: (each.state, each.uuid) for each in state.leases.values() if each.uuid}
        assert leases == {
            "ada": (LeaseState.STARTING, "MIG-small-0"),  # promised then
            "Åsa": (LeaseState.STARTING, "MIG-large-0"),  # before kim, whose place for it is a later one
        }
        assert r.positions() == {"ada": 0, "joe": 0, "Åsa": 0, "kim": 1}
        assert hub.started == [
            ("ada", "", {"offers": ["mig-1g.5gb"]}),
            ("joe", "", {"offer": "cpu"}),
            ("Åsa", "näyte", {"offer": "mig-2g.10gb"}),
            ("kim", "", {"offers": ["mig-1g.5gb", "mig-2g.10gb"], "profile": "torch", "n": [1, None, True]}),
        ]
        records = {record.key: record for record in (await state.store.usage()).uses}
        ends = {records[f"l-{number}"].user: records[f"l-{number}"].end for number in (1, 2, 3, 4)}
        assert ends == {"bea": "hub-stopped", "cid": "lifetime", "dan": "hub-stopped", "eve": "failed"}, "none is there"
        assert (records["l-1"].ticket, records["l-1"].keeps, records["l-3"].adopted) == ("t-1", 1, True)


NOON = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
EARLIER_STOPS = """[
{"user":"cid","server":"","lease":"l3","state":"draining","run":"2026-01-05T12:00:00Z","cause":"idle","why":{"reason":
"idle","message":"Idle for 31 min.","params":{"idle":1860.0},"log_message":""},"grounds":[],"began":
"2026-01-05T12:03:00Z","interrupted":null,"asked":null,"since":null,"seen":{"pages":{"asked":null,"saved":null},
"at_work":false,"hook_ended":null},"pause":null,"alarmed":false,"back":null},
{"user":"ben","server":"","lease":"l2","state":"draining","run":"2026-01-05T12:00:00Z","cause":"given-back","why":
{"reason":"given-back-for-cpu","message":"You gave its GPU back. It starts again without one.","params":{},
"log_message":""},"grounds":[],"began":"2026-01-05T12:03:00Z","interrupted":null,"asked":null,"since":null,"seen":
{"pages":{"asked":null,"saved":null},"at_work":false,"hook_ended":null},"pause":null,"alarmed":false,"back":null},
{"user":"dan","server":"","lease":"l4","state":"ending","run":"2026-01-05T12:00:00Z","cause":"lifetime","why":{"reason":
"lifetime","message":"The time limit of 1 h ends.","params":{"limit":3600.0},"log_message":""},"grounds":[],"began":
null,"interrupted":null,"asked":null,"since":"2026-01-05T12:04:00Z","seen":{"pages":{"asked":null,"saved":null},
"at_work":false,"hook_ended":null},"pause":null,"alarmed":false,"back":null}]"""
EARLIER_ORDERS = {
    "ada": (
        "2026-01-05 12:10:00.000000",
        '[["2026-01-05T12:15:00+00:00", "stopped-by-admin", "an exam: room 3"], '
        '["2026-01-05T12:10:00+00:00", "account-disabled", ""]]',
    ),
    "ben": ("2026-01-05 12:02:00.000000", "given-back-for-cpu"),
    "eve": ("2026-01-05 12:09:00.000000", "stopped-by-admin: the course: begins"),
}
"""Rows as the version wrote them that kept orders beside the facts and only the first cause with a stop."""


def test_a_stop_that_another_version_wrote_in_another_way_hides_no_other() -> None:
    known = read_stops(EARLIER_STOPS)
    assert [each.user for each in known] == ["cid", "ben", "dan"]
    later = write_stops(known).replace('"idle","at"', '"budget","at"')
    assert [each.user for each in read_stops(later)] == ["ben", "dan"]
    strange = write_stops(known).replace('"code":"idle"', '"code":"of a later version"')
    assert read_stops(strange)[0].why == explain("was-to-end")
    assert read_stops(write_stops(known)) == known
    assert [read_stops(each) for each in ("", "{", "null", "[1]", '{"a": 1}', '[{"why": 3}]')] == [()] * 6


async def test_orders_and_stops_of_the_version_before_stand_and_go_on(tmp_path: Path) -> None:
    url = settings(tmp_path).store_url
    store, names = open_store(url), {"ada": "l1", "ben": "l2", "cid": "l3", "eve": "l5"}
    facts = (ServerFacts(user, "", OfferId("mig-1g.5gb"), NOON, held) for user, held in names.items())
    await store.commit(Changes(facts=tuple(facts), meta={"stops": EARLIER_STOPS, "clock": NOON.isoformat()}))
    store.close()
    path = tmp_path / "gpu.sqlite"
    with closing(sqlite3.connect(path)) as file, file:
        for user, row in EARLIER_ORDERS.items():
            file.execute('UPDATE gpu_server_facts SET drain_at=?, drain_orders=? WHERE "user"=?', (*row, user))
    async with room(tmp_path, small(0)) as r:
        stops = {stop.user: stop for stop in r.engine.state.stops.values()}
        states = {user: (stop.state, stop.began) for user, stop in stops.items()}
        assert states == {
            "ada": (StopState.ANNOUNCED, None),
            "ben": (StopState.DRAINING, NOON + 3 * MINUTE),
            "cid": (StopState.DRAINING, NOON + 3 * MINUTE),
            "dan": (StopState.ENDING, None),
            "eve": (StopState.ANNOUNCED, None),
        }
        causes = {user: [(each.cause, each.at, each.stands) for each in stop.causes] for user, stop in stops.items()}
        assert causes == {
            "ada": [(Cause.SIGNED_OUT, NOON + 10 * MINUTE, True), (Cause.ADMIN, NOON + 15 * MINUTE, True)],
            "ben": [(Cause.GIVEN_BACK, NOON + 2 * MINUTE, True)],
            "cid": [(Cause.IDLE, NOON + 3 * MINUTE, False)],
            "dan": [(Cause.LIFETIME, NOON + 4 * MINUTE, False)],
            "eve": [(Cause.ADMIN, NOON + 9 * MINUTE, True)],
        }
        said = {user: stop.why.message if stop.why else "" for user, stop in stops.items()}
        assert said == {
            "ada": "Your account is disabled.",
            "ben": "You gave its GPU back. It starts again without one.",
            "cid": "Idle for 31 min.",
            "dan": "The time limit of 1 h ends.",
            "eve": "An administrator stops it: the course: begins",
        }
        before = r.engine.state.stops
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT drain_at, drain_orders FROM gpu_server_facts WHERE drain_at IS NOT NULL").fetchall()
        assert rows == [], "an order that is withdrawn later must not come back"
    async with room(tmp_path, small(0)) as r:
        assert r.engine.state.stops == before
