"""Starts that the hub accepted while the service was away, or in a life before this one: they join as accepted."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hub_extensions.core.messages import Ask
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from tests.fakes.machine import small
from tests.hub_service.engine.room import room

SMALL = OfferId("mig-1g.5gb")
NOON = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)


def accepted(user: str, second: int, *, kept: bool = False, groups: tuple[str, ...] = ()) -> Ask:
    at = NOON + timedelta(seconds=second)
    return Ask(user, "", (SMALL,), {"offer": SMALL}, groups=groups, accepted=at, kept=kept)


async def test_asks_of_one_request_join_in_the_order_of_acceptance(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        asks = [accepted("cem", 3), accepted("ada", 1), Ask("dan", "", (SMALL,)), accepted("ben", 2)]
        answers = await r.engine.ask_all(asks)
        assert [(state.user, state.answer) for state in answers][:2] == [("cem", "wait"), ("ada", "admit")]
        assert r.positions() == {"ada": 0, "ben": 1, "cem": 2, "dan": 3}
        assert {state.user: state.position for state in answers} == {"ada": 0, "ben": 1, "cem": 2, "dan": 3}


async def test_a_kept_start_is_started_by_the_service(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        await r.engine.ask_all([accepted("ada", 1, kept=True)])
        await r.engine.reconciler.reconcile()
        await r.engine.reconciler._starting
        assert ("ada", "", {"offer": SMALL}) in r.hub.started


@pytest.mark.programs
async def test_a_kept_start_changes_no_ticket_and_no_server_that_is_there(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state, _ = await r.run("ada", SMALL)
        waits = await r.ask("ben", SMALL)
        ada, ben = await r.engine.ask_all([accepted("ada", 1, kept=True), accepted("ben", 2, kept=True)])
        assert ada.answer == "ended" and (ben.ticket, ben.attempt) == (waits.ticket, waits.attempt)
        assert [lease.state.value for lease in r.engine.state.leases.values()] == ["running"]
        assert state.grant is not None


async def test_a_kept_start_that_is_refused_leaves_its_reason_for_its_user(tmp_path: Path) -> None:
    offers = OfferConfig(groups={SMALL: ("staff",)})
    async with room(tmp_path, small(0), offers=offers) as r:
        (state,) = await r.engine.ask_all([accepted("ada", 1, kept=True)])
        assert state.answer == "refuse"
        notices = [notice.text for notice in r.engine.form("ada", "", (), False).notices]
        assert notices == [state.reason.message]
