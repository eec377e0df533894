"""What the tests of the gate share: a hub that it can ask, and a gate before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.gate_hub import GateHub
from tests.gate.gate_browser import BOARD, MLFLOW, Standing, a_gate


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
