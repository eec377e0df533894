"""What ends together with a session, as tables."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.sign_on import (
    EndCause,
    ServerFact,
    SignOnConfig,
    SignOnEvent,
    SignOnSession,
    StopOrder,
    plan_end,
)
from hub_extensions.core.sign_on.session_end import TokenFact, server_scopes, server_token

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
LATER = NOW + timedelta(minutes=10)
CPU, GPU, WAITING = ServerFact(""), ServerFact("train", has_lease=True), ServerFact("next", waits=True)
SERVERS = (CPU, GPU, WAITING)


def a_session(name: str) -> SignOnSession:
    return SignOnSession(name, "hash", "hub", 1, "Firefox on Linux", "192.0.2.0/24", NOW, NOW)


A, B = a_session("a"), a_session("b")


@pytest.mark.parametrize(
    ("policy", "stops"),
    [
        ("keep", []),
        ("stop", [("", NOW), ("train", NOW)]),
        ("stop-gpu", [("train", NOW)]),
        ("drain", [("", LATER), ("train", LATER)]),
    ],
)
@pytest.mark.parametrize("cause", [EndCause.SIGN_OUT, EndCause.BY_OWNER])
def test_at_the_sign_out_from_the_last_session_servers_follow_the_setting_and_places_in_line_stay(
    policy: str, stops: list[tuple[str, datetime]], cause: EndCause
) -> None:
    config = SignOnConfig(servers_at_sign_out=policy)  # type: ignore[arg-type]
    plan = plan_end([A], [A], SERVERS, config, cause, NOW)
    assert [(order.server, order.at) for order in plan.stops] == stops
    assert plan.is_last
    assert set(plan.kept) == {each.name for each in SERVERS} - {name for name, _ in stops}


@pytest.mark.parametrize(
    ("policy", "stops"),
    [
        ("keep", [("next", NOW)]),
        ("stop", [("next", NOW), ("", NOW), ("train", NOW)]),
        ("stop-gpu", [("next", NOW), ("train", NOW)]),
        ("drain", [("next", NOW), ("", LATER), ("train", LATER)]),
    ],
)
def test_with_a_lost_right_the_place_in_line_ends_too_and_one_session_is_enough(
    policy: str, stops: list[tuple[str, datetime]]
) -> None:
    config = SignOnConfig(servers_at_revocation=policy)  # type: ignore[arg-type]
    plan = plan_end([A], [A, B], SERVERS, config, EndCause.BY_ADMIN, NOW, lost_right=True)
    assert plan.stops == tuple(StopOrder(name, at) for name, at in stops)
    assert plan.tokens == "all"


@pytest.mark.parametrize(
    ("cause", "living"),
    [
        (EndCause.SIGN_OUT, [A, B]),
        (EndCause.BY_OWNER, [A, B]),
        (EndCause.BY_ADMIN, [A]),
        (EndCause.IDLE, [A]),
        (EndCause.LIFETIME, [A]),
        (EndCause.NUMBER, [A, B]),
        (EndCause.REPLACED, [A]),
    ],
)
def test_servers_run_on_while_a_session_is_left_and_for_every_limit(
    cause: EndCause, living: list[SignOnSession]
) -> None:
    config = SignOnConfig(servers_at_sign_out="stop", tokens_at_sign_out="all")
    plan = plan_end([A], living, SERVERS, config, cause, NOW)
    assert plan.stops == ()
    assert plan.tokens == "session"
    assert plan.is_last == (len(living) == 1)


def test_all_of_the_persons_tokens_end_at_the_last_sign_out_where_it_is_set() -> None:
    config = SignOnConfig(tokens_at_sign_out="all")
    assert plan_end([A, B], [A, B], (), config, EndCause.BY_OWNER, NOW).tokens == "all"
    assert plan_end([A, B], [A, B], (), SignOnConfig(), EndCause.BY_OWNER, NOW).tokens == "session"


def test_nobody_signed_in_and_a_right_lost_stops_servers_all_the_same() -> None:
    plan = plan_end([], [], [GPU], SignOnConfig(), EndCause.BY_ADMIN, NOW, lost_right=True)
    assert plan.stops == (StopOrder("train", LATER),)
    assert plan.is_last


def a_token(id: int, note: str = "Server at /user/ada/", minutes: float = -1, **changed: object) -> TokenFact:
    scopes = frozenset({"access:servers!server=ada/", "users:activity!user"})
    made = TokenFact(id, note, None, scopes, NOW + timedelta(minutes=minutes))
    return replace(made, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ([], None),
        ([a_token(1)], 1),
        ([a_token(1, "Server at /user/ada/train/")], None),
        ([a_token(1, session="a browser")], None),
        ([a_token(1, scopes=frozenset({"access:servers!server=ada/", "tokens!user=ada"}))], None),
        ([a_token(1, scopes=frozenset({"access:servers"}))], None),
        ([a_token(1, minutes=-60), a_token(2)], 2),
        ([a_token(1), a_token(2, minutes=1)], 1),
    ],
)
def test_a_servers_own_token_is_found_again_and_a_note_alone_makes_none(
    tokens: list[TokenFact], found: int | None
) -> None:
    token = server_token(tokens, "/user/ada/", NOW)
    assert (None if token is None else token.id) == found


def test_of_tokens_of_one_moment_the_later_number_is_the_servers_and_without_a_start_the_last() -> None:
    found = server_token([a_token(3), a_token(9), a_token(5)], "/user/ada/", NOW)
    assert found is not None and found.id == 9
    found = server_token([a_token(9), a_token(3, minutes=5)], "/user/ada/", None)
    assert found is not None and found.id == 3
    assert server_token([a_token(1, minutes=0)], "/user/ada/", NOW) is not None


@pytest.mark.parametrize(
    ("scopes", "known"),
    [
        ({"access:services!service=gpu"}, True),
        ({"read:users:name!user=ada"}, True),
        ({"shares!server=ada/"}, True),
        ({"read:users:name!user=ben"}, False),
        ({"shares!server=ada/train"}, False),
        ({"shares"}, False),
        ({"access:services"}, False),
        ({"tokens!user=ada"}, False),
    ],
)
def test_a_token_with_the_scopes_that_an_admin_gives_to_servers_is_a_servers_own(scopes: set[str], known: bool) -> None:
    role = ["users:activity!user", "access:servers!server", "access:services!service=gpu"]
    allowed = server_scopes([*role, "read:users:name!user", "shares!server"], "ada", "")
    scopes |= {"access:servers!server=ada/", "users:activity!user=ada"}
    token = server_token([a_token(1, scopes=frozenset(scopes))], "/user/ada/", NOW, allowed)
    assert (token is not None) is known


def test_an_event_is_one_line_whatever_its_names_hold() -> None:
    event = SignOnEvent(NOW, "ended", "ada\n\u2028", session="0123abcd", by="root\r", cause="by-admin", tokens=2)
    line = event.as_json()
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["user"] == "ada\n\u2028"
    assert json.loads(line)["time"] == "2026-11-24T12:00:00.000+00:00"
