"""Which tests of a run with several workers stay together: those on the real node, of which a machine has one, and
those in one JupyterLab, which is loaded once.

With ``--dist loadscope`` a worker has all tests of a module; here it has all modules of these folders, too, and the
tests of some long modules are shared out one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/cluster/on_a_node/", "tests/browser/")
EACH_ALONE = (
    "tests/spawner/test_real_hub.py",
    "tests/spawner/test_kube_hub.py",
    "tests/hub_service/test_apart.py",
    "tests/hub_service/test_events.py",
    "tests/tools/test_cli.py",
)
"""Long modules whose tests share nothing: several workers have them."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """pytest-xdist's own, but for that."""
    from xdist.scheduler import LoadScopeScheduling

    if config.getvalue("dist") != "loadscope":
        return None

    class Lanes(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(EACH_ALONE):
                return nodeid
            folder = next(filter(nodeid.startswith, TOGETHER), "")
            return folder or super()._split_scope(nodeid)

    return Lanes(config, log)
