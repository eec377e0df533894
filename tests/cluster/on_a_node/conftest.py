"""The real node, for the tests of this folder: started with the first of them, and gone after the last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import patient

if TYPE_CHECKING:
    from tests.cluster.control_plane import ControlPlane
    from tests.cluster.real_node import RealNode


@pytest.fixture(scope="package")
def real_node(control_plane: ControlPlane, cluster_folder: Path) -> Iterator[RealNode]:
    """A real kubelet on this machine, with slices of one card. Whoever loses a device of it gives it back.

    Of this folder only: other tests count what is in the cluster, and their pods would be placed here. A test that
    wants the machine without it stops it, and its module starts it again (test_real_node.py): no fixture of a longer
    life than a module's may keep its address.
    """
    from tests.cluster.real_node import RealNode

    node = RealNode(control_plane, cluster_folder / "real-node")
    node.start(wait=patient(240))
    try:
        yield node
    finally:
        node.stop()
