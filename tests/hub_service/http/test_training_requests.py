"""What a server sends of its trainings, to the real service over HTTP: reports, more time, and ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.machine import small
from tests.hub_service.conftest import Running, known_hub, said
from tests.hub_service.engine.room import Room, room, settings
from tests.hub_service.engine.stops.test_culler import one_turn

pytestmark = pytest.mark.programs

HOUR = timedelta(hours=1)
TOKEN = "ada-default"
TESTS = Path(__file__).parents[2]
ROWS = json.loads((TESTS / "fixtures" / "training_reports.json").read_text(encoding="utf-8"))
"""The 16 kinds of wrong or odd reports of a training: to the service, or in the progress file."""


@asynccontextmanager
async def served(path: Path, **changes: object) -> AsyncIterator[tuple[Room, Running]]:
    """A real service over HTTP, with a server of ada that computes on its GPU."""
    policy = replace(settings(path).culling, extend_lifetime=HOUR, max_lifetime_extensions=1)
    async with room(path, small(0), culling=policy, **changes) as r:
        running = Running(r.engine, known_hub())  # type: ignore[arg-type]
        try:
            await r.run("ada", "mig-1g.5gb")
            r.gpus.used["MIG-small-0"] = 90.0
            await one_turn(r)
            yield r, running
        finally:
            await running.stop()


def utc(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize("row", [row for row in ROWS if "report" in row], ids=str)
async def test_a_report_is_refused_by_its_field_or_not_used_or_moves_the_line(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    """Each row about a progress file names the test that tries it. A report never moves the end of its server."""
    async with served(tmp_path) as (r, service):
        before = said(await service.ask("GET", "api/server", TOKEN))
        for _ in range(row.get("times", 1)):
            r.hands.pass_time(timedelta(minutes=1))
            at = r.hands.wall + row.get("hours_ahead", 0) * HOUR
            answer = await service.ask("POST", "api/server/progress", TOKEN, {"at": utc(at), **row["report"]})
            assert answer.code == (400 if "field" in row else 204)
            assert "field" not in row or said(answer)["field"] == row["field"]
        known = r.engine.state.forecasts.ends_of(("ada", ""), r.engine.state.clock.now())
        assert (known is not None) is row.get("known", False)
        assert bool(r.engine.forecaster.question().ends) is row.get("moves", False)
        after = said(await service.ask("GET", "api/server", TOKEN))
        assert after["ends_at"] == before["ends_at"] is not None


@pytest.mark.parametrize("row", [row for row in ROWS if "file" in row], ids=str)
def test_what_a_progress_file_may_hold_has_a_test(row: dict[str, Any]) -> None:
    file, _, name = row["test"].partition("::")
    assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8")


async def test_a_second_report_within_a_second_is_refused_with_the_time_to_wait(tmp_path: Path) -> None:
    async with served(tmp_path) as (r, service):
        body = {"at": utc(r.hands.wall), "left_seconds": 60}
        first = await service.ask("POST", "api/server/progress", TOKEN, body)
        second = await service.ask("POST", "api/server/progress", TOKEN, body)
        assert (first.code, second.code, second.headers["Retry-After"]) == (204, 429, "1")
        assert said(second)["reason"] == "too-often" and "once per second" in said(second)["message"]
        assert (await service.ask("POST", "api/server/report", TOKEN, {"opened": True, "kernels": 1,
                                                                         "busy_kernels": 1})).code == 200  # fmt: skip
        r.hands.pass_time(timedelta(seconds=1))
        assert (await service.ask("POST", "api/server/progress", TOKEN, body)).code == 204


async def test_more_time_is_for_the_server_whose_token_asks_and_answered_with_its_state(tmp_path: Path) -> None:
    async with served(tmp_path) as (r, service):
        state = said(await service.ask("GET", "api/server", TOKEN))
        assert state["extend"] == {"minutes": 60, "left": 1, "of": 1, "of_server": True}
        for token, code in (("ada-token", 403), ("admin-token", 403), ("ada-thesis", 404)):
            assert (await service.ask("POST", "api/server/extend", token, b"")).code == code
        answer = await service.ask("POST", "api/server/extend", TOKEN, b"")
        assert (answer.code, said(answer)["extend"]["left"]) == (200, 0)
        again = await service.ask("POST", "api/server/extend", TOKEN, b"")
        assert (again.code, said(again)["reason"]) == (409, "extend-none-left")
        assert r.engine.state.facts["ada", ""].extensions == 1


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({}, 409, ""),  # no channel reaches her
        ({"run": "4711"}, 400, "run"),
        ({"run": "../../../../etc/p"}, 400, "run"),
        ({"state": "great"}, 400, "state"),
        ({"state": "running"}, 400, "state"),
        ({"started": "2026-01-05T10:00:00"}, 400, "started"),
        ({"ended": "2026-01-05T09:00:00Z"}, 400, "ended"),
        ({"ended": None}, 400, "ended"),
        ({"name": 5}, 400, "name"),
        ({"name": "x" * 70_000}, 413, ""),
        ({"of a later version": True}, 409, ""),
    ],
)
async def test_an_end_of_a_training_is_refused_by_its_field(
    tmp_path: Path, changes: dict[str, Any], code: int, field: str
) -> None:
    async with served(tmp_path) as (_, service):
        body = {"run": "0123456789abcdef", "name": "mnist", "state": "done", "started": "2026-01-05T10:00:00Z",
                "ended": "2026-01-05T11:00:00Z", **changes}  # fmt: skip
        answer = await service.ask("POST", "api/server/training-ended", TOKEN, body)
        assert (answer.code, said(answer)["field"]) == (code, field)


async def test_an_end_of_a_training_is_sent_by_webhook(tmp_path: Path) -> None:
    async with served(tmp_path, webhook_url="http://127.0.0.1:9/") as (r, service):
        body = {"run": "0123456789abcdef", "name": "mnist", "state": "done", "started": "2026-01-05T10:00:00Z",
                "ended": "2026-01-05T11:00:00Z"}  # fmt: skip
        assert said(await service.ask("GET", "api/server", TOKEN))["can_notify"] is True
        for _ in range(2):
            assert (await service.ask("POST", "api/server/training-ended", TOKEN, body)).code == 204
        assert len(r.engine.state.notices.deliveries) == 1
