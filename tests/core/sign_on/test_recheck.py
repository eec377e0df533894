"""Which sessions are checked at the provider, and what a refusal means."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.sign_on import EndCause
from hub_extensions.core.sign_on.recheck import (
    JITTER,
    ProviderHealth,
    ProviderLink,
    RecheckFailure,
    cause_of_error,
    checks_per_second,
    due_links,
    max_concurrent,
    overdue,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
EVERY = timedelta(minutes=5)


def link(session: str, age: timedelta | None) -> ProviderLink:
    return ProviderLink(
        session, 1, "https://login.site.example", "u-1", "s", b"kept", None if age is None else NOW - age
    )


def test_those_to_be_asked_at_once_come_first_then_the_longest_unasked() -> None:
    links = [link("a", timedelta(minutes=6)), link("b", timedelta(minutes=9)), link("c", None), link("d", timedelta(0))]
    assert [each.session for each in due_links(links, EVERY, NOW)] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("ahead_seconds", "is_due"),
    [(10, False), (60, False), (61, True), (3600, True), (86_400 * 30, True)],
)
def test_who_was_asked_about_later_than_now_is_due_as_a_clock_that_was_set_back_has_everybody_so(
    ahead_seconds: int, is_due: bool
) -> None:
    ahead = link("a", -timedelta(seconds=ahead_seconds))
    assert due_links([ahead], EVERY, NOW) == ([ahead] if is_due else [])
    assert overdue([ahead], EVERY, NOW) == timedelta(seconds=ahead_seconds if is_due else 0)
    both = [link("b", EVERY), ahead]
    assert [each.session for each in due_links(both, EVERY, NOW)] == (["a", "b"] if is_due else ["b"])


@pytest.mark.parametrize(
    ("sessions", "every", "questions", "open_at_once"),
    [
        (0, EVERY, 8.0, 5),
        (1_920, EVERY, 8.0, 5),
        (4_800, EVERY, 20.0, 12),
        (9_600, EVERY, 40.0, 24),
        (50_000, EVERY, 40.0, 24),
        (50_000, timedelta(hours=1), pytest.approx(17.36, abs=0.01), 11),
        (50_000, timedelta(0), 8.0, 5),
    ],
)
def test_as_many_are_asked_about_as_there_are_and_no_more_than_a_provider_takes(
    sessions: int, every: timedelta, questions: float, open_at_once: int
) -> None:
    found = checks_per_second(sessions, every)
    assert (found, max_concurrent(found)) == (questions, open_at_once)


@pytest.mark.parametrize(
    ("ages", "every", "late"),
    [
        ((), EVERY, 0),
        ((None,), EVERY, 0),
        ((3, 5), EVERY, 0),
        ((3, 7, None), EVERY, 2),
        ((90,), timedelta(0), 0),
    ],
)
def test_how_late_the_longest_unasked_is(ages: tuple[int | None, ...], every: timedelta, late: int) -> None:
    links = [link("a", None if age is None else timedelta(minutes=age)) for age in ages]
    assert overdue(links, every, NOW) == timedelta(minutes=late)


def test_a_session_without_an_answer_comes_after_all_others_and_ever_more_seldom() -> None:
    links = [link("a", timedelta(minutes=20)), link("b", timedelta(minutes=9)), link("c", timedelta(minutes=8))]
    failed = {"a": RecheckFailure(100.0), "b": RecheckFailure(90.0)}
    assert [each.session for each in due_links(links, EVERY, NOW, failed, 102.0)] == ["c", "b", "a"]
    assert [each.session for each in due_links(links, EVERY, NOW, failed, 101.9)] == ["c", "b"]
    pauses = [RecheckFailure(0.0, times).again_at for times in (1, 2, 3, 7, 5000)]
    assert pauses == [2, 4, 8, 120, 120]


def test_without_an_interval_only_those_are_asked_about_that_have_to_be() -> None:
    links = [link("a", timedelta(days=1)), link("b", None)]
    assert [each.session for each in due_links(links, timedelta(0), NOW)] == ["b"]


def test_sessions_that_began_together_are_not_all_due_together_and_none_is_late() -> None:
    crowd = [link(f"session-{number}", EVERY * (1 - JITTER / 2)) for number in range(200)]
    assert 60 < len(due_links(crowd, EVERY, NOW)) < 140
    assert not due_links([link(each.session, EVERY * (1 - JITTER) * 0.99) for each in crowd], EVERY, NOW)
    assert len(due_links([link(each.session, EVERY) for each in crowd], EVERY, NOW)) == 200


@pytest.mark.parametrize(
    ("questions", "away"),
    [
        # a small letter had an answer, a large one none; below each whether the provider counts as away then
        ("a A B b a", "-+++-"),  # away and back, as soon as nobody is without an answer
        ("A a", "+-"),  # one person's hub
        ("A b c A d A e A", "++------"),  # one session without an answer, ever again: it does not go and come
        ("A B C d A B C d A B C", "+++++++++++"),  # one that has, of four: it is not back by turns
        ("A b A B c d e f", "+++++++-"),  # from two thirds on
        ("A b c A B", "++--+"),  # two others in a row without one: it is away again
    ],
)
def test_a_provider_is_away_or_back_and_not_by_turns(questions: str, away: str) -> None:
    health, failed, told = ProviderHealth(), dict[str, RecheckFailure](), ""
    for question in questions.split():
        session = question.lower()
        if question.isupper():
            times = failed[session].times + 1 if session in failed else 1
            failed[session] = RecheckFailure(0.0, times)
            health = health.after_silence(session, failed)
        else:
            failed.pop(session, None)
            health = health.after_answer(session, failed)
        told += "+" if health.away else "-"
    assert told == away


@pytest.mark.parametrize(
    ("description", "cause"),
    [
        ("The provider says no: 'User disabled'.", EndCause.DISABLED),
        ("The provider says no: 'user not found'.", EndCause.DELETED),
        ("The provider says no: 'The account has been deleted.'.", EndCause.DELETED),
        ("The provider says no: 'AADSTS50034:\nThe user account does not exist'.", EndCause.DELETED),
        ("The provider says no: 'Session not active'.", EndCause.NOT_RENEWED),
        ("The provider says no: 'User session not found'.", EndCause.NOT_RENEWED),
        ("The provider says no: 'session of a user that was deleted'.", EndCause.NOT_RENEWED),
        ("The provider says no: 'Account is temporarily locked'.", EndCause.NOT_RENEWED),
        ("The provider says no: 'User account locked out'.", EndCause.NOT_RENEWED),
        ("The provider says no: 'Stale token'.", EndCause.NOT_RENEWED),
        ("The provider says no: 'invalid_grant'.", EndCause.NOT_RENEWED),
        ("", EndCause.NOT_RENEWED),
        ("AADSTS50057: The user account is disabled. Trace ID: 1f2e", EndCause.DISABLED),
        ("AADSTS500571: The guest user account is disabled.", EndCause.DISABLED),
        (
            "AADSTS50020: User account 'ada@uni.site.example' from identity provider 'https://sts.site.example/00000000"
            "-0000-0000-0000-000000000000/' does not exist in tenant 'uni' and cannot access the application.",
            EndCause.DELETED,
        ),
        ("The refresh_token was generated for a user who doesn't exist anymore.", EndCause.DELETED),
        ("Unknown user", EndCause.DELETED),
        ("Account has been deleted", EndCause.DELETED),
        ("user is blocked", EndCause.DISABLED),
        ("User disabled or deleted", EndCause.DISABLED),
        ("Account temporarily disabled", EndCause.NOT_RENEWED),
        ("Your account has been blocked after multiple consecutive login attempts", EndCause.NOT_RENEWED),
        ("Token revoked, or user disabled", EndCause.NOT_RENEWED),
        ("The service account of client 'hub' is disabled", EndCause.NOT_RENEWED),
        ("The service account user of the client is not found", EndCause.NOT_RENEWED),
        ("The account of this tenant is disabled", EndCause.NOT_RENEWED),
        ("Client disabled", EndCause.NOT_RENEWED),
        ("The user may have been deleted", EndCause.NOT_RENEWED),
        ("Offline user session not found", EndCause.NOT_RENEWED),
        ("The refresh token is invalid or expired.", EndCause.NOT_RENEWED),
    ],
)
def test_a_right_is_lost_only_where_the_provider_says_that_the_account_is(description: str, cause: EndCause) -> None:
    assert cause_of_error(description) is cause
