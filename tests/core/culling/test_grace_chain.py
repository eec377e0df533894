"""How long a pod has to end: what of it is too short, and what makes stops fail."""

from __future__ import annotations

import pytest

from hub_extensions.core.culling.grace_chain import GraceChain, weak_links


@pytest.mark.parametrize(
    ("deletion", "eviction", "slow_stop", "deadline", "weak"),
    [
        (30, None, None, 300, []),
        (30, 30, 10, 300, []),
        (10, None, 59.9, 300, []),
        (None, None, None, 300, [("deletion", False)]),  # KubeSpawner's own second
        (9, None, None, 300, [("deletion", False)]),
        (300, 600, None, 300, [("deletion", True)]),
        (30, 29, None, 300, [("eviction", False)]),
        (30, None, 60, 300, [("slow_stop", True)]),
        (5, 1, 90, 4, [("deletion", False), ("deletion", True), ("eviction", False), ("slow_stop", True)]),
    ],
)
def test_a_weak_link_is_named_and_said_how_to_mend(
    deletion: float | None,
    eviction: float | None,
    slow_stop: float | None,
    deadline: float,
    weak: list[tuple[str, bool]],
) -> None:
    found = [*weak_links(GraceChain(deletion, eviction, slow_stop, deadline))]
    assert [(each.member, each.breaks) for each in found] == weak
    assert all(each.text and each.fix for each in found)
