"""The limits that the rules have of themselves are those an admin reads in the reference, and sets by the same name."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.cluster.pod_status import IMAGE_AFTER, MOST_RESTARTS, OUTSIDE_AFTER
from hub_extensions.core.cluster.pools import AHEAD, SLUG_LENGTH
from hub_extensions.core.culling import DAY, SHOWN_AFTER, CullPolicy
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.user_options import MOST_OFFERS
from hub_extensions.core.queue.forecast import RELEASE_ALLOWANCE, START_ALLOWANCE
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.service import ServiceConfig
from hub_extensions.core.tokens import SHORTEST_TOKEN
from hub_extensions.spawner.config.traits import GpuCluster, GpuCulling, GpuOffers, GpuQueue, GpuService


@pytest.mark.parametrize(
    ("section", "limits"),
    [
        (GpuQueue, QueueLimits()),
        (GpuCulling, CullPolicy()),
        (GpuOffers, OfferConfig()),
        (GpuCluster, ClusterConfig()),
        (GpuService, ServiceConfig()),
    ],
)
def test_without_a_configuration_the_rules_have_the_limits_of_the_reference(section: type, limits: object) -> None:
    assert section().build() == limits


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        (OUTSIDE_AFTER, timedelta(seconds=30)),
        (IMAGE_AFTER, timedelta(seconds=60)),
        (MOST_RESTARTS, 2),
        (START_ALLOWANCE, timedelta(minutes=3)),
        (RELEASE_ALLOWANCE, timedelta(minutes=1)),
        (DAY, timedelta(days=1)),
        (SHOWN_AFTER, timedelta(minutes=1)),
        (MOST_OFFERS, 8),
        (SHORTEST_TOKEN, 16),
        (SLUG_LENGTH, 48),
        (AHEAD, 100),
    ],
)
def test_the_limits_that_no_setting_moves(limit: object, value: object) -> None:
    assert limit == value
