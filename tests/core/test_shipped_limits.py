"""The defaults and ranges in the code are those in the reference, under the same names."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

import pytest

from hub_extensions.core import signing
from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.cluster.pod_status import IMAGE_AFTER, MOST_RESTARTS, OUTSIDE_AFTER
from hub_extensions.core.cluster.pools import AHEAD, SLUG_LENGTH
from hub_extensions.core.culling import DAY, SHOWN_AFTER, CullPolicy, evidence
from hub_extensions.core.forecast import curves, durations, episodes, inputs, progress, results, simulate, wait_model
from hub_extensions.core.gpu import dcgm
from hub_extensions.core.notices import NoticeConfig, delivery
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.user_options import MOST_OFFERS
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.queue.wait_bound import RELEASE_ALLOWANCE, START_ALLOWANCE
from hub_extensions.core.service import ServiceConfig
from hub_extensions.core.settings import settings_in
from hub_extensions.core.sign_on import SignOnConfig, claims, events, id_token, identity, logout_token, recheck
from hub_extensions.core.sign_on.gate_config import GateConfig
from hub_extensions.core.stops import turns
from hub_extensions.core.text import translation
from hub_extensions.core.tokens import SHORTEST_TOKEN
from hub_extensions.core.usage import course, measurement
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
        extend_lifetime=hour,
        max_lifetime_extensions=0,
        unopened=15 * minute,
        holds_memory=None,
        never_used=None,
        after_run=0 * minute,
        contended_idle=None,
        cpu_idle=12 * hour,
        trust_reports=False,
        drain=minute,
        stop_deadline=5 * minute,
        restart_on_cpu=False,
        warning_webhook_url="",
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
                        "lifetime_hours", "grace_minutes", "unopened_minutes", "cpu_idle_minutes", "cpu_lifetime_hours",
                        "extend_lifetime_hours", "max_lifetime_extensions", "holds_memory_minutes",
                        "never_used_minutes", "after_run_minutes", "contended_idle_minutes", "drain_seconds",
                        "stop_deadline_minutes",
                    ),
                    (0, None),
                ),
                "idle_below_percent": (0, 100),
                **dict.fromkeys(("concurrent_stop_limit", "stops_per_minute"), (1, None)),
            },
        ),
        (OfferConfig, {}),
        (ClusterConfig, dict.fromkeys(("capacity", "orphaned_pod_minutes", "unschedulable_seconds"), (0, None))),
        (ServiceConfig, {"port": (1, 65535)}),
        (
            GateConfig,
            {
                "port": (1, 65535),
                "cache_seconds": (0, 60),
                "assertion_seconds": (40, 600),
                "audit_minutes": (0, None),
                **dict.fromkeys(("idle_hours", "lifetime_hours"), (0.1, None)),
            },
        ),
        (NoticeConfig, {"smtp_port": (1, 65535), "delay_seconds": (0, 3600)}),
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
        (evidence.SAME_CLOCK, timedelta(minutes=1)),
        (turns.LONGEST_WISH, timedelta(hours=1)),
        (dcgm.FRESH, timedelta(minutes=1)),
        (tuple(pause.total_seconds() for pause in delivery.PAUSES), (5, 15, 45, 135, 300, 300, 300)),
        ((signing.SIGN_AGAIN, signing.WINDOW, signing.SAME_CLOCK), (401, timedelta(minutes=5), timedelta(minutes=1))),
        (translation.LONGEST_HEADER, 200),
        ((claims.MAX_SUBJECT_LENGTH, identity.MAX_NAME_LENGTH, identity.MAX_GROUPS), (255, 255, 2000)),
        (events.SESSION_LETTERS, 8),
        (id_token.MAX_TOKEN_BYTES, 65_536),
        ((logout_token.OLDEST, logout_token.MAX_BODY_BYTES), (timedelta(days=1), 16_384)),
        (recheck.MIN_CONCURRENT, 5),
        ((course.CHOICE_LENGTH, measurement.LASTS), (500, 30.0)),
        ((progress.LONGEST, progress.AHEAD), (timedelta(days=30), timedelta(minutes=1))),
        (progress.OVERDUE, timedelta(minutes=10)),
    ],
)
def test_the_limits_that_no_setting_moves(limit: object, value: object) -> None:
    assert limit == value


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        (durations.OF_A_USER, 40),
        ((durations.OF_THE_POOL, durations.OF_THE_CURVE, curves.PRIOR), (1000, 4000, 100)),
        (durations.OF_AN_OFFER, 50),
        (durations.SIBLINGS, 8),
        (len(durations.FADING), 48),
        (durations.FORGET, 0.005),
        ((simulate.DRAWS, simulate.FEWEST_DRAWS, simulate.LIVES), (200, 64, 30_000)),
        ((episodes.EPISODES, episodes.IN_ONE, episodes.FEWEST_EPISODES), (50, 1000, 8)),
        ((episodes.RULES, episodes.MOST_SHIFT), (episodes.Rules(0.2, 20, 0.1, 2, 8), 2.5)),
        (durations.TOLERANCE, 0.3),
        ((inputs.MAX_TICKETS, wait_model.STARTS, wait_model.MAX_KEYS), (1000, 50, 1000)),
        ((results.FEW, results.PEOPLE), (20, 3)),
        ((results.LAST, results.COVERED, results.VALID), (2000, (0.80, 0.97), timedelta(minutes=2))),
    ],
)
def test_the_wait_forecast_has_the_figures_that_it_was_measured_with(figure: object, value: object) -> None:
    """Another one wants a backtest first: the accuracy that the documentation names was found with these."""
    assert figure == value


@pytest.mark.parametrize(
    ("section", "secrets"),
    [
        (NoticeConfig, {"webhook_url", "webhook_token", "smtp_password"}),
        (ServiceConfig, {"database_url", "shared_secret", "metrics_token", "prometheus_token"}),
        *((section, set[str]()) for section in (QueueLimits, OfferConfig, ClusterConfig, SignOnConfig)),
        (CullPolicy, {"warning_webhook_url"}),
    ],
)
def test_a_secret_is_in_no_log(section: type, secrets: set[str]) -> None:
    assert {field.name for field in fields(section) if not field.repr} == secrets


def test_a_token_that_others_made_may_be_of_any_length() -> None:
    found = {name: each.token for name, each in {**settings_in(NoticeConfig), **settings_in(ServiceConfig)}.items()}
    assert {name: token for name, token in found.items() if token is not None} == {
        "webhook_token": 0,
        "prometheus_token": 0,
        "shared_secret": 16,
        "metrics_token": 16,
    }
