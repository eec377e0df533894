"""People join while everything is killed at random: what the hub accepted has joined, once, in its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loop.crowd import run
from tests.loop.place import THREE_SMALL, Place

pytestmark = [pytest.mark.hub, pytest.mark.timeout(900)]


@pytest.mark.whole
def test_every_accepted_start_joins_whatever_is_killed(tmp_path: Path) -> None:
    place = Place(tmp_path, layout=THREE_SMALL, lab=False)
    with place.open():
        outcome = run(place, people=20, seconds=10, kills=4, seed=7)
    assert len(outcome.accepted) == 20, outcome
    assert (outcome.lost, outcome.again, outcome.inverted, outcome.refused) == ([], [], [], {}), outcome
