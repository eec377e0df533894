"""A release of values files on the tests' cluster, for as long as a test lasts."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import RESTRICTED, fresh_namespace
from tests.cluster.responder import Responder
from tests.helm_values.release import PRIVILEGED, Release

Released = Callable[..., Release]


@pytest.fixture
def released(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Released]:
    """``released("name", apart=True)``: a release in a namespace of its own; it ends with the test.

    ``restricted=True`` enforces Pod Security *restricted* there; else the namespace lets the chart's own stock
    servers in, which have a privileged init container. What else is given, the release takes.
    """
    with ExitStack() as stack:

        def make(name: str, *, restricted: bool = False, **more: Any) -> Release:
            labels = RESTRICTED if restricted else PRIVILEGED
            namespace = stack.enter_context(fresh_namespace(control_plane, f"{name}-{secrets.token_hex(2)}", labels))
            responder = stack.enter_context(Responder())
            release = Release(control_plane, namespace, tmp_path / "hub", pods_port=responder.port, **more)
            stack.callback(release.close)
            return release

        yield make
