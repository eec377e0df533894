"""What the tests of the gate share: a hub that it can ask, and a gate before it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hub_extensions.adapters.files.json_log import hide_malformed_headers
from tests import secret_notes
from tests.fakes.gate_hub import GateHub
from tests.gate.gate_browser import BOARD, MLFLOW, Standing, a_gate


@pytest.fixture(scope="session", autouse=True)
def _secrets_are_noted() -> None:
    """Gates, and hubs for them, run in the tests' own process."""
    secret_notes.watch()


@pytest.fixture(autouse=True)
def _gates_log_all(caplog: pytest.LogCaptureFixture) -> None:
    """What they log at their most is searched for secrets when the run is over."""
    hide_malformed_headers()
    caplog.set_level(logging.DEBUG, "hub_extensions")
    caplog.set_level(logging.DEBUG, "tornado")


@pytest.fixture
async def hub() -> AsyncIterator[GateHub]:
    async with GateHub() as hub:
        hub.add_user("ada", MLFLOW.scope, BOARD.scope, groups=("lab",))
        hub.add_user("ben", groups=("guests",))
        yield hub


@pytest.fixture
async def standing(tmp_path: Path, hub: GateHub) -> AsyncIterator[Standing]:
    async with a_gate(tmp_path / "gate", hub) as standing:
        yield standing
