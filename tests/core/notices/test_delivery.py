"""Notices: who gets one, when it is retried, and when it is dropped."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.culling import CullPolicy, ServerFacts
from hub_extensions.core.notices import (
    LAST_WARNING,
    MAIL,
    STOPS,
    WARNING,
    WEBHOOK,
    Delivery,
    DeliveryAction,
    NoticeConfig,
    Sending,
    address_problem,
    after_failure,
    channels_of,
    judge,
    notice_hint,
    turn_notices,
    warning_channels,
    warning_notices,
)
from hub_extensions.core.notices.delivery import PAUSES
from hub_extensions.core.queue.model import Ticket, WantedOffer

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
SMALL = "mig-1g.5gb"
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
FACTS = ServerFacts("ada", "lab", SMALL, NOON, "l-1")
LIMITS = CullPolicy(enabled=True, unopened=15 * MINUTE, warn=10 * MINUTE)


def ticket(**options: object) -> Ticket:
    return Ticket("t-1", "ada", "lab", (WantedOffer(SMALL, 1),), NOON, options=options)


def made(facts: ServerFacts = FACTS, policy: CullPolicy = LIMITS, **options: object) -> tuple[Delivery, ...]:
    return turn_notices(ticket(**options), facts, "Small", policy, 30 * SECOND, (WEBHOOK, MAIL), id="n-1")


def test_who_asked_for_it_is_told_once_by_each_channel_under_one_id() -> None:
    expected = Delivery(
        "n-1", WEBHOOK, "ready", "ada", "lab", SMALL, "Small", NOON, NOON + 15 * MINUTE, NOON + 30 * SECOND
    )
    assert made(notify_when_ready=True) == (expected, replace(expected, channel=MAIL))


@pytest.mark.parametrize("options", [{}, {"notify_when_ready": False}, {"notify_when_ready": "yes"}])
def test_a_user_who_did_not_ask_gets_no_notice(options: dict[str, object]) -> None:
    assert made(**options) == ()


def test_a_server_without_a_gpu_is_nobodys_turn() -> None:
    assert made(replace(FACTS, lease=None, offer="cpu"), notify_when_ready=True) == ()


@pytest.mark.parametrize(
    ("policy", "until"),
    [
        (replace(LIMITS, enabled=False), None),  # a dry run stops nobody, so nothing is promised
        (replace(LIMITS, unopened=None), None),
        (replace(LIMITS, warn=20 * MINUTE), NOON + 20 * MINUTE),  # no stop comes before its warning
    ],
)
def test_the_end_that_is_named_is_the_one_that_is_enforced(policy: CullPolicy, until: datetime | None) -> None:
    assert {each.open_until for each in made(policy=policy, notify_when_ready=True)} == {until}


@pytest.mark.parametrize(
    ("facts", "after", "verdict"),
    [
        (FACTS, 29, DeliveryAction.LATER),
        (FACTS, 30, DeliveryAction.SEND),
        (None, 0, DeliveryAction.GONE),
        (replace(FACTS, started=NOON + SECOND), 30, DeliveryAction.GONE),  # stopped, and started anew
        (replace(FACTS, opened=NOON + SECOND, opened_known=True), 5, DeliveryAction.SEEN),
        (replace(FACTS, opened_known=True), 30, DeliveryAction.SEND),
    ],
)
def test_the_action_for_a_delivery(facts: ServerFacts | None, after: int, verdict: DeliveryAction) -> None:
    delivery, _ = made(notify_when_ready=True)
    assert judge(delivery, facts, NOON + after * SECOND) is verdict


WARNED = replace(FACTS, warned=NOON, announced=NOON + 10 * MINUTE)


def warnings_of(facts: ServerFacts = WARNED, policy: CullPolicy = LIMITS) -> tuple[Delivery, ...]:
    return warning_notices(facts, "Small", policy, (STOPS, MAIL), NOON, ids=("w-1", "w-2"))


@pytest.mark.parametrize(
    ("warn", "end", "due"),
    [
        (10, 10, {WARNING: 20, LAST_WARNING: 540}),
        (1, 1, {WARNING: 15, LAST_WARNING: 54}),
        (10, 1.1, {LAST_WARNING: 20}),  # a lifetime soon after: no time for two
        (10, 0.1, {LAST_WARNING: 6}),
    ],
)
def test_an_end_is_warned_of_twice_by_each_channel(warn: float, end: float, due: dict[str, float]) -> None:
    facts, policy = replace(WARNED, announced=NOON + end * MINUTE), replace(LIMITS, warn=warn * MINUTE)
    made = warnings_of(facts, policy)
    assert {(each.kind, each.channel): (each.due - NOON).total_seconds() for each in made} == {
        (kind, channel): at for kind, at in due.items() for channel in (STOPS, MAIL)
    }
    assert len({each.key for each in made}) == len(made) and {each.open_until for each in made} == {facts.announced}
    assert warnings_of(FACTS) == ()


@pytest.mark.parametrize(
    ("facts", "after", "verdict"),
    [
        (WARNED, 19, DeliveryAction.LATER),
        (WARNED, 20, DeliveryAction.SEND),
        (replace(WARNED, opened=NOON), 20, DeliveryAction.SEND),  # it was opened, and the page is closed
        (replace(WARNED, reached=("page",)), 1, DeliveryAction.SHOWN),
        (replace(WARNED, reached=(MAIL,)), 20, DeliveryAction.SEND),
        (replace(WARNED, announced=None), 1, DeliveryAction.OFF),
        (replace(WARNED, announced=NOON + 11 * MINUTE), 1, DeliveryAction.OFF),
        (None, 20, DeliveryAction.GONE),
        (replace(WARNED, started=NOON + SECOND), 20, DeliveryAction.GONE),
    ],
)
def test_a_warning_is_for_who_has_no_page_open_and_as_long_as_it_is_true(
    facts: ServerFacts | None, after: int, verdict: DeliveryAction
) -> None:
    assert judge(warnings_of()[0], facts, NOON + after * SECOND) is verdict


def test_warnings_have_a_webhook_of_their_own_and_the_mail_server_of_all() -> None:
    assert warning_channels(NoticeConfig(webhook_url="http://a"), LIMITS) == ()
    assert warning_channels(NoticeConfig(smtp_host="mail"), LIMITS) == (MAIL,)
    both = warning_channels(NoticeConfig(smtp_host="mail"), replace(LIMITS, warning_webhook_url="http://b"))
    assert both == (STOPS, MAIL)


def test_it_is_tried_eight_times_with_pauses_that_grow() -> None:
    delivery: Delivery | None = made(notify_when_ready=True)[0]
    now, pauses = NOON, []
    while delivery is not None:
        last, delivery = delivery, after_failure(delivery, now)
        if delivery is not None:
            pauses.append((delivery.due - now).total_seconds())
            assert replace(delivery, due=last.due, tries=last.tries) == last
            now = delivery.due
    assert pauses == [5, 15, 45, 135, 300, 300, 300] == [pause.total_seconds() for pause in PAUSES]


@pytest.mark.parametrize(
    ("sending", "went", "text"),
    [
        (Sending(), True, "none taken yet"),
        (Sending(NOON), True, "taken last at 2026-11-20T12:00:00+00:00"),
        (Sending(None, NOON, "No."), False, "none taken yet, failed last at 2026-11-20T12:00:00+00:00: No."),
        (Sending(NOON, NOON - MINUTE, "No."), True, "taken last at 2026-11-20T12:00:00+00:00, failed last at "),
        (Sending(NOON, NOON + MINUTE, "No."), False, "taken last at 2026-11-20T12:00:00+00:00, failed last at "),
    ],
)
def test_administrators_see_the_last_result_of_a_channel(sending: Sending, went: bool, text: str) -> None:
    assert sending.went is went
    assert sending.text.startswith(text)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("ada@example.org", ""),
        ("ada.b+gpu_1=x~y-z@mail.example.org", ""),
        ("", "is empty"),
        ("ada", "is no plain"),
        ("ada@example.org,eve@example.net", "is no plain"),
        ("ada eve@example.org", "is no plain"),
        ("ada\n@example.org", "is no plain"),
        ("ada@example.org\n", "is no plain"),
        ("eve%elsewhere@example.org", "is no plain"),
        ("elsewhere!eve@example.org", "is no plain"),
        ("eve@elsewhere@example.org", "is no plain"),
        ("<eve@example.org>", "is no plain"),
        ("åsa@example.org", "is no plain"),
        (".ada@example.org", "is no plain"),
        ("ada@-example.org", "is no plain"),
        (f"{'a' * 64}@example.org", ""),
        (f"{'a' * 65}@example.org", "is too long"),
        (f"ada@{'a.' * 123}aaaa", ""),
        (f"ada@{'a.' * 123}aaaaa", "is too long"),
        (f"ada@{'a.' * 200}org", "is too long"),
    ],
)
def test_an_address_is_one_plain_address(address: str, problem: str) -> None:
    assert address_problem(address).startswith(problem) and bool(problem) == bool(address_problem(address))


@pytest.mark.parametrize(
    ("config", "channels", "words"),
    [
        (NoticeConfig(), (), ""),
        (NoticeConfig(notice_hint="in Mattermost"), (), ""),
        (NoticeConfig(webhook_url="https://chat/x"), (WEBHOOK,), "yes"),
        (NoticeConfig(webhook_url="https://chat/x", notice_hint="in Mattermost"), (WEBHOOK,), "in Mattermost"),
        (NoticeConfig(smtp_host="mail"), (MAIL,), "by e-mail"),
        (NoticeConfig(smtp_host="mail", webhook_url="https://chat/x"), (WEBHOOK, MAIL), "by e-mail"),
    ],
)
def test_without_a_channel_nobody_is_told_and_the_form_does_not_ask(
    config: NoticeConfig, channels: tuple[str, ...], words: str
) -> None:
    assert channels_of(config) == channels
    assert notice_hint(config) == words
