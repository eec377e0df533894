"""The limits that the rules have of themselves are those an admin reads in the reference, and sets by the same name."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.cluster.pod_status import IMAGE_AFTER, MOST_RESTARTS, OUTSIDE_AFTER
from hub_extensions.core.cluster.pools import AHEAD, SLUG_LENGTH
from hub_extensions.core.culling import DAY, SHOWN_AFTER, CullPolicy
from hub_extensions.core.notices import NoticeConfig
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.user_options import MOST_OFFERS
from hub_extensions.core.queue.forecast import RELEASE_ALLOWANCE, START_ALLOWANCE
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.service import ServiceConfig
from hub_extensions.core.settings import settings_in
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.tokens import SHORTEST_TOKEN
from hub_extensions.spawner.config.traits import (
    GpuCluster,
    GpuCulling,
    GpuNotices,
    GpuOffers,
    GpuQueue,
    GpuService,
    SignOn,
)


@pytest.mark.parametrize(
    ("section", "limits"),
    [
        (GpuQueue, QueueLimits()),
        (GpuCulling, CullPolicy()),
        (GpuOffers, OfferConfig()),
        (GpuCluster, ClusterConfig()),
        (GpuService, ServiceConfig()),
        (GpuNotices, NoticeConfig()),
        (SignOn, SignOnConfig()),
    ],
)
def test_without_a_configuration_the_rules_have_the_limits_of_the_reference(section: type, limits: object) -> None:
    assert section().build() == limits


def test_what_holds_where_an_admin_says_nothing() -> None:
    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    assert QueueLimits() == QueueLimits(500, 24 * hour, 64, 1, 1, 2 * minute)
    assert CullPolicy() == CullPolicy(
        enabled=False,
        idle=30 * minute,
        idle_by_offer={},
        idle_below_percent=5.0,
        warn=10 * minute,
        keep=30 * minute,
        keeps_per_day=2,
        lifetime=12 * hour,
        grace=10 * minute,
        unopened=15 * minute,
        cpu_idle=12 * hour,
    )
    assert (ClusterConfig().forgotten_after, ClusterConfig().outside_after) == (5 * minute, 30 * timedelta(seconds=1))


@pytest.mark.parametrize(
    ("section", "bounds"),
    [
        (
            QueueLimits,
            {
                **dict.fromkeys(("max_waiting", "max_starting", "abandon_seconds"), (1, None)),
                **dict.fromkeys(("gpu_leases_per_user", "tickets_per_user"), (1, None)),
                "max_wait_hours": (0, None),
            },
        ),
        (
            CullPolicy,
            {
                **dict.fromkeys(
                    (
                        "idle_minutes", "idle_minutes_by_offer", "warn_minutes", "keep_minutes", "keeps_per_day",
                        "lifetime_hours", "grace_minutes", "unopened_minutes", "cpu_idle_minutes",
                    ),
                    (0, None),
                ),
                "idle_below_percent": (0, 100),
            },
        ),
        (OfferConfig, {}),
        (ClusterConfig, dict.fromkeys(("capacity", "forgotten_minutes", "outside_seconds"), (0, None))),
        (ServiceConfig, {"port": (1, 65535)}),
        (NoticeConfig, {"smtp_port": (1, 65535), "after_seconds": (0, 3600)}),
    ],
)  # fmt: skip
def test_a_setting_takes_what_its_unit_allows_and_no_less(
    section: type, bounds: dict[str, tuple[float, float | None]]
) -> None:
    found = {each.name: (each.least, each.most) for each in settings_in(section).values()}
    assert {name: pair for name, pair in found.items() if pair != (None, None)} == bounds


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
