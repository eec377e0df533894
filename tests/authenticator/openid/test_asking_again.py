"""The loop that asks the provider again: one session without an answer, and a database that takes nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from hub_extensions.adapters.provider.oidc import ProviderAway, ProviderRefused, ProviderTokens
from hub_extensions.adapters.store.sign_on import METADATA, SignOnStore
from hub_extensions.adapters.store.sign_on_provider import ProviderStore
from hub_extensions.authenticator.registry import SessionRegistry
from hub_extensions.core.sign_on import EndCause, SignOnConfig
from hub_extensions.core.sign_on.recheck import MIN_CONCURRENT, ProviderLink
from tests.patience import patient

pytestmark = pytest.mark.programs  # JupyterHub starts one while it is imported


class FullDisk(SignOnStore):
    """A store whose database takes nothing while `full`; it cannot even be read."""

    full = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.fail()
        with super().transaction():
            yield

    def fail(self) -> None:
        if self.full:
            raise OperationalError("select", {}, OSError("database is locked"))


class FullLinks(ProviderStore):
    """Reads as little as `disk` does."""

    disk: FullDisk

    def links(self) -> list[ProviderLink]:
        if hasattr(self, "disk"):
            self.disk.fail()
        return super().links()


class RotatingProvider:
    """A refresh token is good once; about `silent` nothing is answered. `refused`: why none is good any more.

    What it says of `unclear` cannot be used. `refused_for`: about whom alone it says no; none: about everybody.
    Until `answers` is set it hangs.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.good: dict[str, int] = {}
        self.silent: set[str] = set()
        self.unclear: set[str] = set()
        self.refused, self.refused_for = "", ""
        self.at_once, self.most_at_once = 0, 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def refresh(self, token: str) -> ProviderTokens:
        session, _, number = token.partition(":")
        self.asked[session] += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)  # an answer takes its time
        await self.answers.wait()
        self.at_once -= 1
        if session in self.silent:
            raise ProviderAway("interaction_required")
        if self.refused and self.refused_for in ("", session):
            raise ProviderRefused("invalid_grant", self.refused)
        assert self.good.setdefault(session, 0) == int(number), "an old refresh token ends the session at the provider"
        self.good[session] += 1
        return ProviderTokens("access", "", f"{session}:{self.good[session]}")


class Place:
    """The loop with what it needs of a hub."""

    def __init__(self, sessions: int) -> None:
        from jupyterhub import orm

        from hub_extensions.authenticator.openid.links import ProviderLinks

        engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
        orm.Base.metadata.create_all(engine)
        METADATA.create_all(engine)
        self.db = sa.orm.Session(engine)
        self.db.add(orm.User(name="ada"))
        self.db.commit()
        self.disk = FullDisk(self.db)
        self.provider = RotatingProvider()
        registry = SessionRegistry(self.disk, SignOnConfig(), self.now)
        self.links = ProviderLinks(FullLinks(self.db))
        self.links.store.disk = self.disk  # type: ignore[attr-defined]
        self.names: list[str] = []
        for _ in range(sessions):
            session, _cookie = registry.begin(1, "", "")
            registry.put(session)
            self.names.append(session.id)
        self.ends: list[tuple[EndCause, bool]] = []
        self.unknown: list[bool] = []
        ender = SimpleNamespace(end=self.end, note_known=lambda *_: None)
        self.sign_on = SimpleNamespace(
            registry=registry, config=SignOnConfig(), ender=ender, is_unknown=lambda _: any(self.unknown)
        )
        self.errors: list[str] = []
        self.warnings: list[str] = []
        log = SimpleNamespace(exception=self.errors.append, info=lambda *_: None)
        log.warning = lambda text, *_: self.warnings.append(text)
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        started.set_result(None)
        self.app = SimpleNamespace(db=self.db, log=log, users=_Users(), _start_future=started)
        self.events: list[str] = []

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def end(self, _: int, __: object, cause: EndCause, *, lost_right: bool, account_unknown: bool) -> None:
        self.ends.append((cause, lost_right))
        self.unknown.append(account_unknown)

    async def add_links(self) -> None:
        from hub_extensions.authenticator.openid.links import KeptTokens, encrypted

        long_ago = self.now() - timedelta(days=1)
        with self.disk.transaction():
            for name in self.names:
                kept = await encrypted(KeptTokens(f"{name}:0"))
                self.links.put([ProviderLink(name, 1, "https://op.example", "u-1", "", kept, long_ago)])

    async def userinfo_claims(self, tokens: ProviderTokens, sub: str) -> dict[str, str]:
        from hub_extensions.authenticator.openid.failure import SignOnFailed

        if tokens.refresh.partition(":")[0] in self.provider.unclear:
            raise SignOnFailed("clock", "its clock is 5 min ahead")
        return {"sub": sub}

    async def apply_claims(self, *_: object) -> bool:
        return True

    def record(self, kind: str) -> None:
        self.events.append(kind)

    sign_on_now = now
    account_url, account_scope = "", ""


class _Users:
    def __getitem__(self, user: Any) -> Any:
        return user


def at_any_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for between two questions; no more than five are open all the same."""
    monkeypatch.setattr("hub_extensions.authenticator.openid.recheck.checks_per_second", lambda *_: 1e9)
    monkeypatch.setattr("hub_extensions.authenticator.openid.recheck.max_concurrent", lambda _: MIN_CONCURRENT)


@asynccontextmanager
async def asking(sessions: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Place, Any]]:
    from jupyterhub.crypto import CryptKeeper

    from hub_extensions.authenticator.openid.recheck import ProviderRecheck

    monkeypatch.setenv("JUPYTERHUB_CRYPT_KEY", "0123456789abcdef" * 4)
    CryptKeeper.clear_instance()
    place = Place(sessions)
    await place.add_links()
    before = asyncio.all_tasks()
    recheck = ProviderRecheck(place, place.app)
    try:
        yield place, recheck
    finally:
        for task in asyncio.all_tasks() - before:
            task.cancel()
        CryptKeeper.clear_instance()


async def until(holds: Callable[[], object]) -> None:
    async def wait() -> None:
        while not holds():  # noqa: ASYNC110  another task changes it
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), patient(15))


@pytest.mark.whole
async def test_a_session_without_an_answer_keeps_nobody_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking(3, monkeypatch) as (place, recheck):
        silent, *others = place.names
        place.provider.silent.add(silent)
        await until(lambda: all(place.provider.asked[each] for each in others))
        await until(lambda: recheck.away_since is None and place.provider.asked[silent])
        assert place.links.of_session(silent) is not None, "nobody is signed out for it"


async def test_a_request_has_a_session_asked_about_that_was_asked_about_before_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with asking(1, monkeypatch) as (place, recheck):
        (name,) = place.names
        await until(lambda: place.provider.asked[name] and not recheck._asking)
        await recheck.check_user(1)
        assert place.provider.asked[name] == 1, "it was just now"
        recheck._work.cancel()
        place.sign_on_now = lambda: datetime.now(timezone.utc) - timedelta(hours=1)  # type: ignore[method-assign]
        await recheck.check_user(1)
        assert place.provider.asked[name] == 2


@pytest.mark.parametrize("refused", ["", "User disabled"])
async def test_a_request_does_not_wait_for_a_provider_that_hangs_and_its_answer_counts_when_it_comes(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    from hub_extensions.authenticator.openid.recheck import REQUEST_WAIT_SECONDS

    assert REQUEST_WAIT_SECONDS == 2
    monkeypatch.setattr("hub_extensions.authenticator.openid.recheck.REQUEST_WAIT_SECONDS", 0.05)
    async with asking(1, monkeypatch) as (place, recheck):
        (name,) = place.names
        place.provider.answers.clear()
        place.provider.refused = refused
        for _ in range(2):  # the second one waits for the same question
            await asyncio.wait_for(recheck.check_user(1), patient(5))
        assert place.provider.asked[name] == 1 and name in recheck._asking
        assert place.ends == []
        place.provider.answers.set()
        await until(lambda: not recheck._asking)
        assert place.ends == ([(EndCause.DISABLED, True)] if refused else [])
        lately = place.now() - timedelta(hours=1)
        assert [each.checked > lately for each in place.links.all() if each.checked] == ([] if refused else [True])
        assert place.provider.asked[name] == 1


async def test_a_provider_that_answers_what_cannot_be_used_still_says_who_is_disabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with asking(40, monkeypatch) as (place, recheck):
        monkeypatch.setattr("hub_extensions.authenticator.openid.recheck.TICK_SECONDS", 0.01)
        at_any_pace(monkeypatch)
        *unclear, disabled = place.names
        place.provider.unclear |= set(unclear)
        place.provider.refused, place.provider.refused_for = "'User disabled'", disabled
        await until(lambda: place.ends)
        assert place.ends == [(EndCause.DISABLED, True)]
        assert recheck.away_since is not None, "one answer of forty"
        assert len(place.provider.asked) == 40 and set(place.provider.asked.values()) == {1}


async def test_a_provider_that_was_silent_for_long_is_seen_to_be_back_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each session waits two minutes after many questions without an answer; one is asked about all the same."""
    from hub_extensions.authenticator.openid import recheck as asks

    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(asks, "TICK_SECONDS", 0.01)
    at_any_pace(monkeypatch)
    monkeypatch.setattr(asks, "time", SimpleNamespace(monotonic=lambda: clock.now))
    async with asking(1, monkeypatch) as (place, recheck):
        (name,) = place.names
        place.provider.silent.add(name)
        for times in range(1, 12):  # half an hour, as fast as it asks
            await until(lambda times=times: place.provider.asked[name] >= times)
            clock.now += asks.PAUSES_SECONDS[-1]
        await until(lambda: place.provider.asked[name] >= 12)
        assert recheck.away_since is not None
        place.provider.silent.clear()
        clock.now += asks.PROBE_SECONDS
        await until(lambda: recheck.away_since is None)
        assert place.events == ["provider-away", "provider-back"]


async def test_while_it_is_away_another_is_asked_about_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So one of whom it never says anything does not hide that it is back."""
    from hub_extensions.authenticator.openid import recheck as asks

    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(asks, "TICK_SECONDS", 0.01)
    at_any_pace(monkeypatch)
    monkeypatch.setattr(asks, "time", SimpleNamespace(monotonic=lambda: clock.now))
    async with asking(2, monkeypatch) as (place, _):
        place.provider.silent |= set(place.names)
        for times in range(1, 12):
            await until(lambda times=times: sum(place.provider.asked.values()) >= times)
            clock.now += asks.PAUSES_SECONDS[-1]
        await until(lambda: sum(place.provider.asked.values()) >= 12)
        before = dict(place.provider.asked)
        for times in (1, 2):
            clock.now += asks.PROBE_SECONDS
            await until(lambda times=times: sum(place.provider.asked.values()) == sum(before.values()) + times)
        assert {name: place.provider.asked[name] - before[name] for name in place.names} == dict.fromkeys(
            place.names, 1
        )


@pytest.mark.parametrize(
    ("why", "cause", "lost_right"),
    [
        ("Session not active", EndCause.NOT_RENEWED, False),  # as Keycloak says it of a deleted account, too
        ("User disabled", EndCause.DISABLED, True),
        ("The user does not exist", EndCause.DELETED, True),
    ],
)
async def test_why_the_provider_says_no_is_the_cause_where_it_says_it(
    monkeypatch: pytest.MonkeyPatch, why: str, cause: EndCause, lost_right: bool
) -> None:
    async with asking(1, monkeypatch) as (place, _):
        place.provider.refused = f"The provider says no: {why!r}."
        await until(lambda: place.ends)
        assert place.ends == [(cause, lost_right)]
        assert place.unknown == [cause is EndCause.NOT_RENEWED], "then nobody knows whether the account is there"


async def test_sessions_whose_tokens_cannot_be_read_with_the_hubs_key_end_and_the_log_has_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from jupyterhub.crypto import CryptKeeper

    async with asking(3, monkeypatch) as (place, _):
        monkeypatch.setenv("JUPYTERHUB_CRYPT_KEY", "fedcba9876543210" * 4)
        CryptKeeper.clear_instance()
        await until(lambda: not place.links.all())
        assert place.ends == [(EndCause.NOT_RENEWED, False)] * 3
        assert place.unknown == [False] * 3, "the hub's own key says nothing of an account"
        assert not place.provider.asked and not place.errors
        (warning,) = place.warnings
        assert "JUPYTERHUB_CRYPT_KEY='NEW;OLD'" in warning


@pytest.mark.parametrize("kept", ["old-beside-new", "none-given"])
async def test_a_session_stays_with_its_old_key_beside_the_new_one_and_without_a_refresh_token(
    monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    from jupyterhub.crypto import CryptKeeper

    from hub_extensions.authenticator.openid.links import KeptTokens, encrypted

    async with asking(1, monkeypatch) as (place, recheck):
        recheck._work.cancel()
        (name,) = place.names
        if kept == "none-given":
            (link,) = place.links.all()
            with place.disk.transaction():
                place.links.put([replace(link, encrypted_tokens=await encrypted(KeptTokens()))])
        else:
            monkeypatch.setenv("JUPYTERHUB_CRYPT_KEY", "fedcba9876543210" * 4 + ";" + "0123456789abcdef" * 4)
            CryptKeeper.clear_instance()
        await recheck.check_user(1)
        assert place.provider.asked[name] == (1 if kept == "old-beside-new" else 0)
        assert place.ends == [] and place.warnings == []
        link_now = place.links.of_session(name)
        assert link_now is not None and link_now.checked is not None
        assert link_now.checked > place.now() - timedelta(hours=1)


@pytest.mark.whole
async def test_a_database_that_takes_nothing_loses_no_refresh_token_and_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with asking(1, monkeypatch) as (place, _):
        (name,) = place.names
        place.disk.full = True
        await until(lambda: place.links.unwritten() and len(place.errors) >= 4)
        place.disk.full = False
        await until(lambda: place.links.unwritten() == [])
        await until(lambda: place.links.of_session(name).checked > place.now() - timedelta(hours=1))  # type: ignore[union-attr]
        link = place.links.of_session(name)
        assert link is not None and link.encrypted_tokens is None, "tokens are in the database alone"
        kept = await place.links.tokens_of(link)
        assert kept is not None and kept.refresh == f"{name}:{place.provider.good[name]}"


async def test_between_many_who_are_due_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand sessions are asked about in five minutes only where each second has its eight questions."""
    from hub_extensions.authenticator.openid import recheck

    monkeypatch.setattr(recheck, "TICK_SECONDS", 3600.0)
    at_any_pace(monkeypatch)
    async with asking(90, monkeypatch) as (place, _):
        place.provider.answers.clear()  # until as many wait as may, however slow the machine is
        await until(lambda: place.provider.at_once == MIN_CONCURRENT)
        place.provider.answers.set()
        await until(lambda: len(place.provider.asked) == 90)
        assert set(place.provider.asked.values()) == {1}
        assert place.provider.most_at_once == MIN_CONCURRENT == 5


async def test_where_eight_in_a_second_are_too_few_more_are_asked_about_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """8 a second are 2,400 sessions in five minutes; nobody was told that the last of more were asked about late."""
    monkeypatch.setattr("hub_extensions.authenticator.openid.recheck.TICK_SECONDS", 3600.0)
    monkeypatch.setattr("hub_extensions.authenticator.openid.recheck.checks_per_second", lambda *_: 40.0)
    async with asking(30, monkeypatch) as (place, recheck):
        assert recheck._apart == 1 / 8
        await until(lambda: len(place.provider.asked) == 30)
        assert recheck._apart == 1 / 40 and recheck._most == 24
