"""When a session ends and how it is shown, as tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.sign_on import (
    EndCause,
    SignOnConfig,
    SignOnSession,
    address_of_browser,
    browser_name,
    end_sentence,
    limit_passed,
    return_problem,
    short_address,
    surplus_sessions,
)

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
CHROME = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/130.0.0.0 Safari/537.36"
SAFARI = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 Version/17.5 Safari/604.1"


def a_session(name: str = "a", begun: datetime = NOW, used: datetime | None = None) -> SignOnSession:
    return SignOnSession(name, "hash", "hub", 1, "Firefox on Linux", "192.0.2.0/24", begun, used or begun)


@pytest.mark.parametrize(
    ("begun", "used", "config", "cause"),
    [
        (1 * HOUR, 0 * HOUR, SignOnConfig(), None),
        (30 * HOUR, 23.99 * HOUR, SignOnConfig(), None),
        (30 * HOUR, 24 * HOUR, SignOnConfig(), EndCause.IDLE),
        (336 * HOUR, 0 * HOUR, SignOnConfig(), EndCause.LIFETIME),
        (336 * HOUR, 30 * HOUR, SignOnConfig(), EndCause.LIFETIME),
        (9000 * HOUR, 8000 * HOUR, SignOnConfig(idle=None, lifetime=None), None),
        (9000 * HOUR, 0 * HOUR, SignOnConfig(lifetime=None), None),
        (30 * HOUR, 30 * HOUR, SignOnConfig(idle=None), None),
        # a clock that was set back ends nobody's session
        (-HOUR, -HOUR, SignOnConfig(), None),
    ],
)
def test_a_session_ends_at_the_limit_and_not_before(
    begun: timedelta, used: timedelta, config: SignOnConfig, cause: EndCause | None
) -> None:
    assert limit_passed(a_session(begun=NOW - begun, used=NOW - used), config, NOW) is cause


@pytest.mark.parametrize(
    ("unused", "problem"),
    [
        ([], "You were signed out."),
        ([1 * HOUR], ""),
        ([24 * HOUR], "You were signed out."),
        ([24 * HOUR, 23 * HOUR], ""),
    ],
)
def test_a_server_comes_back_unasked_for_who_has_a_session(unused: list[timedelta], problem: str) -> None:
    sessions = [a_session(str(each), NOW - 30 * HOUR, NOW - each) for each in unused]
    assert return_problem(sessions, SignOnConfig(), NOW) == problem


@pytest.mark.parametrize(("most", "gone"), [(None, []), (3, []), (2, ["old"]), (1, ["old", "middle"])])
def test_of_too_many_sessions_the_oldest_end(most: int | None, gone: list[str]) -> None:
    sessions = [a_session("new"), a_session("old", NOW - 3 * HOUR, NOW), a_session("middle", NOW - HOUR)]
    assert [each.id for each in surplus_sessions(sessions, SignOnConfig(max_sessions=most))] == gone


@given(st.integers(0, 12), st.integers(1, 12))
def test_never_more_sessions_are_left_than_allowed_and_never_fewer_than_possible(have: int, most: int) -> None:
    sessions = [a_session(str(number), NOW - number * HOUR) for number in range(have)]
    gone = surplus_sessions(sessions, SignOnConfig(max_sessions=most))
    assert have - len(gone) == min(have, most)


@pytest.mark.parametrize(
    ("address", "short"),
    [
        ("192.0.2.77", "192.0.2.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1::/48"),
        ("::ffff:192.0.2.77", "192.0.2.0/24"),
        ("fe80::1%eth0", "fe80::/48"),
        ("", ""),
        ("unix:", ""),
        ("192.0.2.77, 10.0.0.1", ""),
    ],
)
def test_an_address_is_kept_as_its_network(address: str, short: str) -> None:
    assert short_address(address) == short


@pytest.mark.parametrize(
    ("peer", "forwarded", "trusted", "found"),
    [
        ("10.0.0.7", "192.0.2.9", (), "10.0.0.7"),
        ("10.0.0.7", "192.0.2.9", ("10.0.0.0/8",), "192.0.2.9"),
        ("10.0.0.7", "192.0.2.9", ("10.0.0.7",), "192.0.2.9"),
        ("198.51.100.1", "192.0.2.9", ("10.0.0.0/8",), "198.51.100.1"),  # nobody's word but a proxy's
        ("10.0.0.7", "203.0.113.5, 192.0.2.9", ("10.0.0.0/8",), "192.0.2.9"),  # the first is the browser's own word
        ("10.0.0.7", "192.0.2.9, 10.1.1.1", ("10.0.0.0/8",), "192.0.2.9"),
        ("::1", " 2001:db8::1 ", ("::1/128",), "2001:db8::1"),
        ("10.0.0.7", "x\r\ny", ("10.0.0.0/8",), "x\r\ny"),  # which is no address, and logged as none
        ("10.0.0.7", "", ("10.0.0.0/8",), ""),
    ],
)
def test_where_a_browser_is_is_what_trusted_proxies_say(
    peer: str, forwarded: str, trusted: tuple[str, ...], found: str
) -> None:
    assert address_of_browser(peer, forwarded, trusted) == found


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        (CHROME, "Chrome on Windows"),
        (SAFARI, "Safari on iPhone"),
        (f"{CHROME} Edg/130.0.0.0", "Edge on Windows"),
        ("Mozilla/5.0 (X11; Linux x86_64)", "A browser on Linux"),
        ("python-requests/2.32", "Another program"),
        ("", "Another program"),
        ("<script>Firefox/1</script>" * 90_000, "Firefox"),
        (" " * 504 + "Firefox/", "Firefox"),
        (" " * 505 + "Firefox/", "Another program"),
    ],
)
def test_a_browser_is_named_as_its_owner_knows_it(header: str, words: str) -> None:
    assert browser_name(header) == words


@given(st.text())
def test_nothing_of_the_header_itself_is_shown(header: str) -> None:
    assert browser_name(header).replace(" ", "").isalpha()


def test_every_cause_has_a_sentence_of_its_own() -> None:
    sentences = [end_sentence(cause.value) for cause in EndCause]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)
    assert end_sentence("of a later version") == "This session ended."
    assert replace(a_session(), cause="idle").cause in {cause.value for cause in EndCause}
