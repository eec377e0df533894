"""People join while everything is killed at random: what the hub accepted has joined, once, in its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hubs import until
from tests.loop.crowd import Outcome, config_for, kill_service_alone, run
from tests.loop.place import THREE_SMALL, Place, parent_of

pytestmark = [pytest.mark.hub, pytest.mark.timeout(900)]


@pytest.mark.whole
def test_every_accepted_start_joins_whatever_is_killed(tmp_path: Path) -> None:
    place = Place(tmp_path, layout=THREE_SMALL, lab=False)
    with place.open():
        outcome = run(place, people=20, seconds=10, kills=4, seed=41)
    assert len(outcome.accepted) == 20, outcome
    assert (outcome.lost, outcome.again, outcome.inverted, outcome.refused) == ([], [], [], {}), outcome


@pytest.mark.whole
@pytest.mark.hub("5.5")
@pytest.mark.needs("postgresql")
def test_every_accepted_start_joins_with_hub_and_service_on_postgresql(tmp_path: Path, postgresql_url: str) -> None:
    place = Place(tmp_path, layout=THREE_SMALL, lab=False, config=config_for(postgresql_url))
    with place.open():
        outcome = run(place, people=20, seconds=10, kills=4, seed=41, database=postgresql_url)
    assert not list(tmp_path.rglob("*.sqlite")), "it was on PostgreSQL"
    assert len(outcome.kills) == 4, "each fault once, so that what a hub has left is asked for by the next"
    assert len(outcome.accepted) == 20, outcome
    assert (outcome.lost, outcome.again, outcome.inverted, outcome.refused) == ([], [], [], {}), outcome


@pytest.mark.whole
@pytest.mark.hub("6.1")
def test_who_kills_the_service_alone_leaves_the_parent_that_starts_it_again(tmp_path: Path) -> None:
    place, outcome = Place(tmp_path, layout=THREE_SMALL, lab=False), Outcome()
    with place.open():
        service = place.service_pid()
        supervisor = parent_of(service)
        assert kill_service_alone(place, outcome)
        until(lambda: outcome.back_seconds, 60, "it answers again")
        again = place.service_pid()
        assert (again == service, parent_of(again)) == (False, supervisor)
