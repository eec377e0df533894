"""What a report of a training does for its own user: an early warning, more time, and a notice at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.core.messages import Progress, ServerState, TrainingEnded
from hub_extensions.core.notices import STOPS
from hub_extensions.core.stops import by_admin
from hub_extensions.hub_service.engine.state.errors import Refused
from tests.fakes.machine import small
from tests.fakes.mail_server import MailServerAsTold
from tests.fakes.webhook import WebhookAsTold
from tests.hub_service.engine.room import Room, room, settings
from tests.hub_service.engine.stops.test_culler import MINUTE, OPEN, minutes, one_turn

pytestmark = pytest.mark.programs

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
RUN = "0123456789abcdef"


@pytest.fixture
def webhook() -> Iterator[WebhookAsTold]:
    receiver = WebhookAsTold()
    yield receiver
    receiver.close()


@pytest.fixture
def mail() -> Iterator[MailServerAsTold]:
    server = MailServerAsTold()
    yield server
    server.close()


def limits(path: Path, **changes: Any) -> dict[str, Any]:
    """A lifetime of 30 minutes, which can be put off by an hour, once."""
    policy = replace(settings(path).culling, extend_lifetime=HOUR, max_lifetime_extensions=1)
    return {"culling": replace(policy, **changes), "public_url": "https://hub.example.org/"}


def by_mail(mail: MailServerAsTold, to: str = "{{ user }}@example.org") -> dict[str, Any]:
    return {
        "smtp_host": "127.0.0.1", "smtp_port": mail.port, "smtp_security": "none",
        "mail_from": "GPUs <gpu@example.org>", "mail_to": to,
    }  # fmt: skip


async def trains(r: Room, left: float, spread: float = 0.0) -> None:
    r.hands.pass_time(SECOND)
    assert await r.engine.progress("ada", "", Progress(r.hands.wall, left, spread))


async def runs(r: Room) -> None:
    """Her server computes on its GPU."""
    await r.run("ada", "mig-1g.5gb")
    r.gpus.used["MIG-small-0"] = 90.0
    await one_turn(r)


def server(r: Room) -> ServerState:
    state = r.engine.server_state("ada", "")
    assert state is not None
    return state


def warnings(r: Room) -> list[str]:
    return [each.reason for each in server(r).warnings]


async def sent(r: Room) -> None:
    for channel in r.engine.notifier.channels:
        await r.engine.notifier.send_due(channel)


# ------------------------------------------------------------------ before the end of the server


async def test_a_training_that_will_not_be_done_in_time_is_warned_of_when_that_is_known(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path)) as r:
        await runs(r)
        await trains(r, 1500.0, 0.1)
        assert warnings(r) == []
        await trains(r, 2400.0, 0.1)
        (warning,) = server(r).warnings
        ends = (r.hands.wall + 2400 * SECOND).isoformat().replace("+00:00", "Z")
        started = r.engine.state.facts["ada", ""].started
        stops = (started + 30 * MINUTE).isoformat().replace("+00:00", "Z")
        assert dict(warning.params) == {"ends": ends, "stops": stops}
        after = await r.engine.extend("ada", "")
        assert after.warnings == () and after.extend is not None and after.extend.left == 0
        await trains(r, 3 * 3600.0, 0.1)
        assert warnings(r) == ["training-too-long"]
        await trains(r, 0.0)
        assert warnings(r) == [], "it has ended"


@pytest.mark.parametrize(
    ("changes", "warned"),
    [({"enabled": False}, []), ({"lifetime": None}, []), ({}, ["training-too-long"])],
)
async def test_without_an_end_of_the_server_there_is_nothing_to_warn_of(
    tmp_path: Path, changes: dict[str, Any], warned: list[str]
) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path, **changes)) as r:
        await runs(r)
        await trains(r, 30 * 86400.0)
        assert warnings(r) == warned


async def test_reports_delay_no_stop(tmp_path: Path) -> None:
    """Says 30 days left: culling is as without it."""
    async with room(tmp_path, small(0), **limits(tmp_path)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        for _ in range(2):
            await minutes(r, 1)
            await trains(r, 30 * 86400.0)
        countdown = server(r).countdown
        assert countdown is not None and countdown.cause == "idle" and countdown.stops_at <= r.hands.wall + MINUTE
        assert [(each.kind, each.decides) for each in server(r).signs][-1] == ("training", False)


@pytest.mark.parametrize(("counts", "used"), [(False, False), (True, True)])
async def test_a_report_is_evidence_like_a_busy_kernel_if_the_administrator_says_so(
    tmp_path: Path, counts: bool, used: bool
) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path, count_progress=counts)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await trains(r, 600.0)
        evidence = r.engine.stop_runner.evidence(r.engine.state.facts["ada", ""])
        assert (evidence.busy_kernels, evidence.used) == (int(counts), used)
        signs = {each.kind: (each.value, each.decides) for each in server(r).signs}
        assert signs["training"] == ("busy", counts) and signs["kernels"] == ("idle", False)
        r.hands.pass_time(601 * SECOND)
        await one_turn(r)
        evidence = r.engine.stop_runner.evidence(r.engine.state.facts["ada", ""])
        assert (evidence.busy_kernels, evidence.used) == (0, False), "it is too old"
        assert "training" not in {each.kind for each in server(r).signs}


async def test_more_time_is_to_be_had_from_the_panel_long_before_the_end(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path)) as r:
        await runs(r)
        found = server(r)
        assert found.countdown is None and found.extend is not None
        assert (found.extend.minutes, found.extend.left, found.extend.of, found.extend.of_server) == (60, 1, 1, True)
        after = await r.engine.extend("ada", "")
        assert after.extend is not None and after.extend.left == 0
        facts = r.engine.state.facts["ada", ""]
        assert facts.ends_at == facts.started + 90 * MINUTE and facts.extensions == 1
        rows = [row for row in await r.engine.store.journal() if row.kind == "extended"]
        assert [(row.user, row.actor) for row in rows] == [("ada", "user")]
        with pytest.raises(Refused) as refused:
            await r.engine.extend("ada", "")
        assert (refused.value.status, refused.value.reason) == (409, "extend-none-left")
        with pytest.raises(Refused) as refused:
            await r.engine.extend("ada", "other")
        assert refused.value.status == 404


async def test_more_time_is_for_a_gpu_that_is_used(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        with pytest.raises(Refused) as refused:
            await r.engine.extend("ada", "")
        assert (refused.value.status, refused.value.reason) == (409, "extend-idle")
        await r.run("ben", "cpu")
        state = r.engine.server_state("ben", "")
        assert state is not None and state.extend is None
        assert r.engine.state.facts["ada", ""].extensions == 0


async def test_who_has_no_page_open_is_written_to_once_in_a_run_of_the_server(
    tmp_path: Path, webhook: WebhookAsTold, mail: MailServerAsTold
) -> None:
    made = limits(tmp_path, warning_webhook_url=webhook.url) | by_mail(mail)
    async with room(tmp_path, small(0), **made) as r:
        await runs(r)
        await r.engine.note_language("ada", "fi-FI")
        await trains(r, 7200.0, 0.1)
        await sent(r)
        assert webhook.taken == [], "an open page could still show it"
        r.hands.pass_time(20 * SECOND)
        await sent(r)
        (told,) = webhook.taken
        assert (told["kind"], told["user"], told["training_state"]) == ("training-too-long", "ada", "")
        assert str(told["subject"]) == "Your server stops before your training is done"
        assert "You can ask for more time" in str(told["text"]) and "2026-01-05 14:00 UTC" in str(told["text"])
        (message,) = [each for _, each in mail.messages]
        assert message["Subject"] == "Palvelimesi pysähtyy ennen kuin koulutuksesi on valmis"
        rows = sorted(row.text for row in await r.engine.store.journal() if row.kind == "told")
        assert rows == ["training-too-long by mail", f"training-too-long by {STOPS}"]
        await trains(r, 9000.0)
        r.hands.pass_time(30 * HOUR / 60)
        await sent(r)
        hub, hands, child = r.hub, r.hands, r.children.pop()
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands, **made) as r:
            await trains(r, 9000.0)
            r.hands.pass_time(30 * SECOND)
            await sent(r)
            assert len(webhook.taken) == len(mail.messages) == 1
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("how", ["watched", "extended", "withdrawn", "gone"])
async def test_a_warning_that_is_shown_or_not_true_any_more_is_not_sent(
    tmp_path: Path, webhook: WebhookAsTold, how: str
) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path, warning_webhook_url=webhook.url)) as r:
        await runs(r)
        await trains(r, 3600.0)
        if how == "extended":
            await r.engine.extend("ada", "")
        elif how == "withdrawn":
            await trains(r, 0.0)
        elif how == "gone":
            facts = r.engine.state.facts["ada", ""]
            r.engine.state.facts["ada", ""] = replace(facts, started=facts.started + SECOND)
        r.hands.pass_time(20 * SECOND)
        await r.engine.report("ada", "", replace(OPEN, watched=how == "watched"))
        await sent(r)
        assert webhook.taken == [] and r.engine.state.notices.deliveries == {}


async def test_an_order_to_stop_is_the_end_that_a_training_is_warned_of(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path)) as r:
        await runs(r)
        await trains(r, 1200.0)
        assert warnings(r) == []
        lease = next(iter(r.engine.state.leases.values()))
        await r.engine.admin_orders.stop(lease.id, 15, "maintenance", "root")
        assert by_admin(r.hands.wall, "").cause in {each.cause for each in r.engine.state.orders_of(
            r.engine.state.facts["ada", ""])}  # fmt: skip
        assert "training-too-long" in warnings(r)


async def test_administrators_see_the_end_of_a_training_among_the_evidence(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path)) as r:
        await runs(r)
        before = (await r.engine.culling()).servers[0].evidence
        await trains(r, 600.0)
        (found,) = (await r.engine.culling()).servers
        at = (r.hands.wall + 600 * SECOND).isoformat().replace("+00:00", "Z")
        assert found.evidence == f"{before}, its training is said to end at {at}"


# ------------------------------------------------------------------ whose reports are trusted


async def test_two_missed_ends_are_remembered_over_a_restart_for_thirty_days(tmp_path: Path) -> None:
    made = limits(tmp_path, lifetime=None)
    async with room(tmp_path, small(0), **made) as r:
        await runs(r)
        for _ in range(2):
            await trains(r, 3600.0)
            r.hands.pass_time(2 * MINUTE)
            await trains(r, 0.0)
        assert r.engine.distrusted() == 1
        hub, hands, child = r.hub, r.hands, r.children.pop()
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands, **made) as r:
            await trains(r, 3600.0, 0.2)
            assert r.engine.distrusted() == 1 and r.engine.forecaster.question().ends == {}
            r.hands.pass_time(timedelta(days=30))
            async with r.engine.queue.transaction() as transaction:
                await r.engine._forget_trainings(transaction)
            assert r.engine.state.forecasts.missed == {} and r.engine.distrusted() == 0
            await trains(r, 3600.0, 0.2)
            assert len(r.engine.forecaster.question().ends) == 1
    finally:
        child.kill()
        child.wait()


async def test_who_is_not_trusted_is_warned_as_before(tmp_path: Path, webhook: WebhookAsTold) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path, warning_webhook_url=webhook.url)) as r:
        await runs(r)
        for _ in range(2):
            await trains(r, 1200.0)
            r.hands.pass_time(2 * MINUTE)
            await trains(r, 0.0)
        assert r.engine.distrusted() == 1
        await trains(r, 7200.0, 0.2)
        assert r.engine.forecaster.question().ends == {}, "the line hears nothing"
        assert warnings(r) == ["training-too-long"]
        ends = (r.hands.wall + 7200 * SECOND).isoformat().replace("+00:00", "Z")
        (found,) = (await r.engine.culling()).servers
        assert found.evidence.endswith(f"its training is said to end at {ends}")
        r.hands.pass_time(20 * SECOND)
        await sent(r)
        assert [told["kind"] for told in webhook.taken] == ["training-too-long"]


@pytest.mark.parametrize(
    ("how", "left", "missed"),
    [("", 1200.0, 1), ("too long", 3600.0, 0), ("warned", 1200.0, 0), ("ordered", 1200.0, 0)],
)
async def test_a_training_that_ends_with_its_server_was_not_reported_wrongly(
    tmp_path: Path, how: str, left: float, missed: int
) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path)) as r:
        await runs(r)
        await trains(r, left, 0.1)
        r.hands.pass_time(2 * MINUTE)
        facts = r.engine.state.facts["ada", ""]
        if how == "warned":
            r.engine.state.facts["ada", ""] = replace(facts, warned=r.engine.state.clock.now())
        if how == "ordered":
            await r.engine.admin_orders.stop(next(iter(r.engine.state.leases)), 5, "maintenance", "root")
            await one_turn(r)
        await trains(r, 0.0)
        assert len(r.engine.state.forecasts.missed.get("ada", ())) == missed


async def test_what_is_known_of_a_deleted_users_trainings_is_forgotten(tmp_path: Path, webhook: WebhookAsTold) -> None:
    made = limits(tmp_path, lifetime=None) | {"webhook_url": webhook.url}
    async with room(tmp_path, small(0), **made) as r:
        await runs(r)
        for _ in range(2):
            await trains(r, 3600.0)
            r.hands.pass_time(2 * MINUTE)
            await trains(r, 0.0)
        await r.engine.training_ended("ada", "", ended_now(r))
        assert r.engine.state.notices.trainings and r.engine.state.forecasts.missed
        r.children[0].kill()
        r.children[0].wait()
        await r.engine.watcher.refresh()
        r.hub.known = ("ben",)
        await r.engine._forget_deleted_users()
        assert r.engine.state.notices.trainings == () and r.engine.state.forecasts.missed == {}
        assert not any("ada" in str(value) for value in (await r.engine.store.load()).meta.values())


async def test_a_server_reports_once_per_second(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path)) as r:
        await runs(r)
        answers = []
        for _ in range(10):
            r.hands.pass_time(0.25 * SECOND)
            try:
                await r.engine.progress("ada", "", Progress(r.hands.wall, 60.0))
                answers.append(204)
            except Refused as refused:
                answers.append(refused.status)
                assert refused.again_after == SECOND
        assert answers == [204, 429, 429, 429, 204, 429, 429, 429, 204, 429]
        assert not await r.engine.progress("ben", "", Progress(r.hands.wall, 60.0)), "another server, without a GPU"
        r.hands.pass_time(SECOND)
        assert not await r.engine.progress("ada", "", Progress(r.hands.wall + HOUR, 60.0))
        r.hands.pass_time(SECOND)
        assert not await r.engine.progress("ada", "", Progress(r.hands.wall - HOUR, 60.0))
        counts = {label: count for (kind, label), count in r.engine.state.counts.items() if kind == "progress"}
        assert counts == {"accepted": 3, "too-often": 7, "no-gpu": 1, "ahead": 1, "before-start": 1}


# ------------------------------------------------------------------ at the end of a training


def ended_now(r: Room, run: str = RUN, took: timedelta = HOUR, **changes: Any) -> TrainingEnded:
    made = TrainingEnded(run, "mnist", "done", r.hands.wall - took, r.hands.wall)
    return replace(made, **changes)


async def test_the_end_of_a_training_is_sent_once_over_retries_and_a_restart(
    tmp_path: Path, webhook: WebhookAsTold, mail: MailServerAsTold
) -> None:
    made = limits(tmp_path) | by_mail(mail) | {"webhook_url": webhook.url}
    async with room(tmp_path, small(0), **made) as r:
        await runs(r)
        await r.engine.note_language("ada", "ja-JP")
        assert server(r).can_notify
        report = ended_now(r, name="mnist\n<b>\u202e", state="failed")
        await r.engine.training_ended("ada", "", report)
        await r.engine.training_ended("ada", "", report)
        await sent(r)
        await r.engine.training_ended("ada", "", report)
        hub, hands, child = r.hub, r.hands, r.children.pop()
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands, **made) as r:
            await r.engine.training_ended("ada", "", report)
            await sent(r)
            (told,) = webhook.taken
            assert (told["kind"], told["training"], told["training_state"]) == ("training-ended", "mnist <b>", "failed")
            assert told["subject"] == "Your training has failed: mnist <b>"
            assert str(told["text"]).splitlines()[1] == "It took 1 h, until 2026-01-05 12:00 UTC."
            (message,) = [each for _, each in mail.messages]
            assert message["Subject"] == "学習が失敗しました: mnist <b>" and message.get_content_type() == "text/plain"
    finally:
        child.kill()
        child.wait()


async def test_the_end_of_a_training_is_sent_although_its_server_has_ended_too(
    tmp_path: Path, webhook: WebhookAsTold
) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path), webhook_url=webhook.url) as r:
        await runs(r)
        await r.engine.training_ended("ada", "", ended_now(r))
        del r.engine.state.facts["ada", ""]
        await sent(r)
        assert [each["kind"] for each in webhook.taken] == ["training-ended"]


@pytest.mark.parametrize(
    ("changes", "server_name", "status", "reason"),
    [
        ({"took": timedelta(minutes=10)}, "", None, ""),
        ({"took": timedelta(minutes=10) - SECOND}, "", 409, "training-too-short"),
        ({"ended": 2 * MINUTE}, "", 400, "bad-input"),
        ({"took": timedelta(days=60), "ended": -timedelta(days=31)}, "", 400, "bad-input"),
        ({}, "other", 404, "unknown-server"),
    ],
)
async def test_which_ends_are_not_sent(
    tmp_path: Path, webhook: WebhookAsTold, changes: dict[str, Any], server_name: str, status: int | None, reason: str
) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path), webhook_url=webhook.url) as r:
        await runs(r)
        if "ended" in changes:
            changes = {**changes, "ended": r.hands.wall + changes["ended"]}
        try:
            await r.engine.training_ended("ada", server_name, ended_now(r, **changes))
        except Refused as refused:
            assert (refused.status, refused.reason) == (status, reason)
        else:
            assert status is None
        await sent(r)
        assert len(webhook.taken) == (status is None)


async def test_a_server_has_six_ends_sent_in_an_hour(tmp_path: Path, webhook: WebhookAsTold) -> None:
    async with room(tmp_path, small(0), **limits(tmp_path), webhook_url=webhook.url) as r:
        await runs(r)
        for number in range(6):
            await r.engine.training_ended("ada", "", ended_now(r, f"{number:016x}"))
        with pytest.raises(Refused) as refused:
            await r.engine.training_ended("ada", "", ended_now(r))
        assert (refused.value.status, refused.value.again_after) == (429, HOUR)
        await r.engine.training_ended("ada", "", ended_now(r, f"{5:016x}"))
        r.hands.pass_time(HOUR)
        await r.engine.training_ended("ada", "", ended_now(r))


@pytest.mark.parametrize(
    ("channels", "can"),
    [
        ({}, False),
        ({"webhook_url": "http://127.0.0.1:9/"}, True),
        ({"mail_to": "{{ user }}@example.org"}, True),
        ({"mail_to": "{% if user == 'ben' %}ben@example.org{% else %}{{ user }}@{% endif %}"}, False),
    ],
)
async def test_a_user_whom_no_channel_reaches_cannot_wish_for_a_notice(
    tmp_path: Path, mail: MailServerAsTold, channels: dict[str, Any], can: bool
) -> None:
    made = limits(tmp_path) | (by_mail(mail) if "mail_to" in channels else {}) | channels
    if not can and "mail_to" in channels:
        made["mail_to"] = "{% if user == 'eve' %}{{ user }}@{% else %}{{ user }}@example.org{% endif %}"
    async with room(tmp_path, small(0), **made) as r:
        user = "eve" if not can else "ada"
        await r.run(user, "cpu")
        state = r.engine.server_state(user, "")
        assert state is not None and state.can_notify is can
        if not can:
            with pytest.raises(Refused) as refused:
                await r.engine.training_ended(user, "", ended_now(r))
            assert (refused.value.status, refused.value.reason) == (409, "no-notices")
