"""Databases for the store's tests, and a PostgreSQL of their own that they may stop and start."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.own_postgresql import PostgreSQL, own_server


@pytest.fixture(scope="module")
def own_postgresql() -> Iterator[PostgreSQL]:
    """A server that a test may stop and start. The test carries ``needs("postgresql")``."""
    with own_server() as server:
        yield server


@pytest.fixture
def own_postgresql_url(own_postgresql: PostgreSQL) -> str:
    """A new, empty database of that server."""
    return own_postgresql.create(f"t{uuid.uuid4().hex}")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/gpu.sqlite"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def url(request: pytest.FixtureRequest) -> str:
    """A new, empty database of each kind."""
    return str(request.getfixturevalue(f"{request.param}_url"))
