"""A server without a GPU is quiet by our own clock too: a proxy that was restarted moves it by nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.culling import RoutesRenewed, ServerFacts, last_used, remember_quiet, routes_renewed
from hub_extensions.core.offers.offer_id import CPU

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


QUIET = {("a", ""): ago(300), ("b", ""): ago(40), ("c", "x"): ago(15)}
RENEWED = RoutesRenewed(ago(20), ago(19.95))


@pytest.mark.parametrize(
    ("quiet", "minutes_ago", "restarted"),
    [
        (3, (1, 1.01, 1.02), True),
        (3, (1, 1.01, 1.2), False),  # twelve seconds apart: people
        (3, (1, 1.01, 15), False),  # one stayed quiet
        (2, (1, 1.01, 1.02), False),  # two may have come back together
        (3, (1, 1.01, None), False),  # the hub says nothing of the third
        (0, (1, 1.01, 1.02), False),
    ],
)
def test_only_what_all_quiet_servers_did_at_once_was_the_proxy(
    quiet: int, minutes_ago: tuple[float | None, ...], restarted: bool
) -> None:
    known = dict(list(QUIET.items())[:quiet])
    activity = {server: ago(at) for server, at in zip(QUIET, minutes_ago, strict=True) if at is not None}
    assert routes_renewed(known, activity) == (RoutesRenewed(ago(1.02), ago(1)) if restarted else None)


def test_the_routes_of_a_thousand_servers_take_longer() -> None:
    quiet = {(f"u{n}", ""): ago(60) for n in range(1000)}
    assert routes_renewed(quiet, {server: ago(1 + n / 5000) for n, server in enumerate(quiet)}) is not None
    assert routes_renewed(quiet, {server: ago(1 + n / 1000) for n, server in enumerate(quiet)}) is None


@pytest.mark.parametrize(
    ("activity", "quiet_since", "renewed", "used"),
    [
        (60, 60, None, 60),
        (70, 60, RENEWED, 60),  # an outage of the hub lies between: it moves no clock back
        (19.97, 60, RENEWED, 60),  # the proxy's own, and nobody has come in a quarter of an hour
        (19.97, 60, None, 19.97),
        (19.97, None, RENEWED, 19.97),  # it was in use until then
        (5, 60, RENEWED, 5),  # its user is there
        (14.97, 60, RoutesRenewed(ago(15), ago(14.95)), 14.97),  # not known yet
    ],
)
def test_a_quiet_server_is_quiet_since_its_user_went(
    activity: float, quiet_since: float | None, renewed: RoutesRenewed | None, used: float
) -> None:
    since = None if quiet_since is None else ago(quiet_since)
    assert last_used(ago(activity), since, renewed, NOW) == ago(used)


@pytest.mark.parametrize(
    ("activity", "quiet_since", "remembered"),
    [
        (None, 60, 60),
        (None, None, None),
        (60, None, 60),
        (9, None, None),
        (60, 60, 60),
        (70, 60, 60),
        (19.97, 60, 60),
        (12, 60, 12),
        (5, 60, None),
    ],
)
def test_it_is_remembered_since_when_a_server_is_quiet(
    activity: float | None, quiet_since: float | None, remembered: float | None
) -> None:
    facts = ServerFacts("ada", "", CPU, ago(600), idle_since=None if quiet_since is None else ago(quiet_since))
    seen = remember_quiet(facts, None if activity is None else ago(activity), RENEWED, NOW)
    assert seen.idle_since == (None if remembered is None else ago(remembered))
