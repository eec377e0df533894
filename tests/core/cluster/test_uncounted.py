"""Users are shown what the figures of a cluster do not count."""

from __future__ import annotations

import pytest

from hub_extensions.core.cluster.model import ClusterView
from hub_extensions.core.cluster.pools import caution_of

WRITTEN = "How many GPUs there are is what an administrator wrote down."
OTHERS = "What others in the cluster use is not counted, so fewer may be free."


@pytest.mark.parametrize(
    ("nodes", "own_pods_only", "said"),
    [(True, False, ""), (False, False, WRITTEN), (True, True, OTHERS), (False, True, f"{WRITTEN} {OTHERS}")],
)
def test_users_see_what_is_not_counted(nodes: bool, own_pods_only: bool, said: str) -> None:
    assert caution_of(ClusterView({} if nodes else None, {}, own_pods_only)) == said
