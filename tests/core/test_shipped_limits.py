"""The limits that the rules have of themselves are those an admin reads in the reference, and sets by the same name."""

from __future__ import annotations

import pytest

from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.spawner.config.traits import GpuCluster, GpuCulling, GpuOffers, GpuQueue


@pytest.mark.parametrize(
    ("section", "limits"),
    [
        (GpuQueue, QueueLimits()),
        (GpuCulling, CullPolicy()),
        (GpuOffers, OfferConfig()),
        (GpuCluster, ClusterConfig()),
    ],
)
def test_without_a_configuration_the_rules_have_the_limits_of_the_reference(section: type, limits: object) -> None:
    assert section().build() == limits
