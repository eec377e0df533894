"""When a lease ends: as the limits give it, as its user was shown, and as its server will."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.culling.lease_end import enforced_end, limit_end, shown_end
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.core.stops import StopCause, by_hub
from tests.core.culling.test_decision import FACTS, ON, minute

STARTING = Lease(
    "l1", "t1", "ada", "", OfferId("mig-1g.5gb"), "d1", "d1", "mig-1g.5gb", 1000, LeaseState.STARTING, minute(0)
)
HOUR = timedelta(hours=1)
SIGNED_OUT = by_hub(minute(90), "sign-out")


@pytest.mark.parametrize(
    ("lease", "longest", "end"),
    [
        (STARTING, None, None),
        (STARTING, HOUR, minute(65)),
        (replace(STARTING, state=LeaseState.RUNNING, ready_at=minute(2)), HOUR, minute(62)),
    ],
    ids=["no limit", "it may take its time to start", "it runs"],
)
def test_the_lifetime_begins_when_the_server_is_ready(
    lease: Lease, longest: timedelta | None, end: datetime | None
) -> None:
    assert limit_end(lease, longest, timedelta(minutes=5)) == end


@pytest.mark.parametrize(
    ("ends_at", "facts", "end"),
    [
        (None, replace(FACTS, ends_at=minute(60)), None),
        (minute(60), None, minute(60)),
        (minute(60), FACTS, minute(60)),
        (minute(60), replace(FACTS, ends_at=minute(70)), minute(70)),
        (minute(60), replace(FACTS, ends_at=minute(70), promised=minute(80)), minute(80)),
        (minute(60), replace(FACTS, ends_at=minute(50), promised=minute(55)), minute(60)),
    ],
    ids=["no limit", "not ready", "nothing shown", "shown later", "promised later", "shown sooner"],
)
def test_no_end_comes_before_the_one_that_its_user_was_shown(
    ends_at: datetime | None, facts: ServerFacts | None, end: datetime | None
) -> None:
    assert shown_end(ends_at, facts) == end


@pytest.mark.parametrize(
    ("ends_at", "server", "end"),
    [
        (None, FACTS, None),
        (minute(720), FACTS, minute(720)),
        (minute(720), SIGNED_OUT, minute(90)),
        (None, SIGNED_OUT, minute(90)),
        (minute(80), SIGNED_OUT, minute(80)),
        (minute(720), replace(FACTS, ends_at=minute(750)), minute(750)),
        (minute(720), replace(FACTS, promised=minute(730)), minute(730)),
    ],
    ids=["no limit", "far away", "drained", "drained, no limit", "drained after its end", "shown later", "promised"],
)
def test_others_are_told_the_end_that_the_server_really_has(
    ends_at: datetime | None, server: ServerFacts | StopCause, end: datetime | None
) -> None:
    facts, orders = (server, ()) if isinstance(server, ServerFacts) else (FACTS, (server,))
    assert enforced_end(ends_at, facts, orders, ON, minute(60)) == end


def test_an_end_that_is_due_comes_after_its_warning() -> None:
    late = enforced_end(minute(720), FACTS, (), ON, minute(719))
    assert late == minute(719) + ON.warn, "nobody has been warned yet"
