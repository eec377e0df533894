"""The cluster of a test run: started once, with the first test that asks for it, and ended with the last.

``tests/conftest.py`` gives these to all tests, so that a run has one cluster. Each worker of a run has one of its own,
and those have nothing in common but the built programs. What they need is imported when one asks.

Tests carry ``needs("cluster")``; those that stop or restart the control plane also ``needs("own-cluster")``, for with
``--cluster=existing`` the cluster of the current KUBECONFIG is used, which is not ours to stop.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cluster.control_plane import ControlPlane
    from tests.cluster.kueue import Kueue
    from tests.cluster.played_nodes import PlayedNodes


@pytest.fixture(scope="session")
def cluster_folder() -> Iterator[Path]:
    """Keys, data and logs of the cluster, deleted at the end; only its owner may read it."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def control_plane(cluster_folder: Path) -> Iterator[ControlPlane]:
    """A running control plane without nodes, or the existing cluster."""
    from tests.cluster.control_plane import ControlPlane

    if os.environ.get("TEST_CLUSTER_EXISTING"):
        kubeconfig = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
        cluster = ControlPlane.existing(kubeconfig, cluster_folder)
    else:
        cluster = ControlPlane().start(cluster_folder / "control-plane")
    with cluster:
        yield cluster


@pytest.fixture(scope="session")
def played_nodes(control_plane: ControlPlane, cluster_folder: Path) -> Iterator[PlayedNodes]:
    """Nodes that are played (kwok). Whoever adds one removes it: all tests of a run have this cluster in common."""
    from tests.cluster.played_nodes import PlayedNodes

    folder = cluster_folder / "played-nodes"
    folder.mkdir()
    with PlayedNodes(control_plane, folder) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def kueue(control_plane: ControlPlane, cluster_folder: Path) -> Iterator[Kueue]:
    """A real Kueue, which sees only namespaces that it made itself. Whoever kills it starts it again."""
    from tests.cluster.kueue import Kueue

    with Kueue(control_plane, cluster_folder / "kueue") as running:
        yield running


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of one test, with Pod Security ``restricted`` enforced; deleted after the test, its pods at once."""
    from tests.cluster.namespaces import fresh_namespace

    with fresh_namespace(control_plane, f"t-{uuid.uuid4().hex[:8]}") as name:
        yield name
