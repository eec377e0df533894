"""What doctor says of GPUs that a cluster gives under names of its own."""

from __future__ import annotations

from hub_extensions.tools.doctor.machine import renamed


def test_names_of_the_clusters_own_are_said_with_what_they_are_offered_as() -> None:
    found = [
        *renamed({"nvidia.com/a100": "gpu@a100", "nvidia.com/h100": "gpu"}, {"nvidia.com/a100": 8, "nvidia.com/l4": 2})
    ]
    assert [(each.state, each.text) for each in found] == [
        ("ok", "8 x nvidia.com/a100 is offered as gpu@a100."),
        ("warning", "No node has nvidia.com/h100 now."),
        ("warning", "2 x nvidia.com/l4 is no offer: its name is not known."),
    ]
    assert [*renamed({}, {})] == []
