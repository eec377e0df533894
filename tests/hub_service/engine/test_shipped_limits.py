"""The times and numbers of the engine that no setting moves."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.sign_on.config import SignOnConfig
from hub_extensions.core.sign_on.gate_config import GateConfig
from hub_extensions.core.stops import drain
from hub_extensions.hub_service.engine import engine
from hub_extensions.hub_service.engine.forecasts import forecast_state, forecaster
from hub_extensions.hub_service.engine.line import (
    cluster_leases,
    forgotten_pods,
    local_leases,
    orphans,
    reconcile,
    rights,
    tickets,
)
from hub_extensions.hub_service.engine.state import inventory
from hub_extensions.hub_service.engine.stops import dcgm, runner, server_evidence
from hub_extensions.hub_service.engine.uses import notifier, usage, user_notices
from hub_extensions.hub_service.engine.views import queue_view

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ((cluster_leases.GONE_FOR, cluster_leases.SETTLES), (1.0, 30 * SECOND)),
        ((runner.EVERY, runner.EVERY_IN_RETURNS, drain.SAVING, drain.OTHER_PAGES), (5.0, 2.0, 10 * SECOND, 3 * SECOND)),
        ((server_evidence.REPORTS_LAST, server_evidence.SAMPLES_LAST), (45 * SECOND, 30 * SECOND)),
        ((dcgm.EVERY, dcgm.KINDS_EVERY), (10.0, 60.0)),
        (engine.PRUNE_EVERY, 21_600.0),
        ((forecaster.SEED, forecaster.PAUSE, forecaster.EVERY), (1, 1.0, 30.0)),
        ((forecaster.AT_ONCE, forecaster.GIVEN_AT_ONCE, forecast_state.UNREAD), (1000, 200, 20_000)),
        (forgotten_pods.REMOVE_AGAIN, 60.0),
        ((local_leases.TERM_THEN_KILL_SECONDS, local_leases.UNSEEN_SECONDS), (10.0, 60.0)),
        ((notifier.AT_ONCE, notifier.VERSION), (4, 1)),
        ((orphans.PROVED_SECONDS, orphans.TERM_THEN_KILL_SECONDS), (60.0, 10.0)),
        (queue_view.MOST_SOONER, 2),
        ((reconcile.EVERY, reconcile.MISSING), (30.0, 60 * SECOND)),
        ((reconcile.AT_A_TIME, reconcile.SHORT_OUTAGE), (5, 15 * SECOND)),
        ((rights.LAST, rights.KEPT, rights.ANSWER_WITHIN), (30 * SECOND, 1000, 3.0)),
        ((inventory.INVENTORY_GOES_STALE, user_notices.NOTICES_LAST), (60 * SECOND, 24 * HOUR)),
        (tickets.SLICE, 50),
        (usage.LATE_REPORT, 60 * SECOND),
    ],
)
def test_the_times_and_numbers_of_the_engine_that_no_setting_moves(limit: object, value: object) -> None:
    assert limit == value


def test_what_stops_servers_or_opens_a_door_is_off_until_it_is_asked_for() -> None:
    assert [each().enabled for each in (CullPolicy, GateConfig, SignOnConfig)] == [False] * 3
