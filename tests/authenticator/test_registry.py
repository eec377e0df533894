"""Sessions in memory: found by cookie, used by browsers and by servers' questions, written once a minute."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from hub_extensions.adapters.store.sign_on import METADATA, SignOnStore
from hub_extensions.authenticator.registry import ENDED_KEPT, SessionRegistry
from hub_extensions.core.sign_on import EndCause, SignOnConfig

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


class FullDisk(SignOnStore):
    """A store whose database takes nothing while `full`."""

    full = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self.full:
            raise OSError("no space left on device")
        with super().transaction():
            yield


@pytest.fixture
def store() -> Iterator[FullDisk]:
    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
    METADATA.create_all(engine)
    with Session(engine) as db:
        yield FullDisk(db)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(store: FullDisk, clock: Clock) -> SessionRegistry:
    return SessionRegistry(store, SignOnConfig(), clock)


def begun(registry: SessionRegistry, user_id: int = 1) -> str:
    """A new session, written; its cookie."""
    session, cookie = registry.begin(user_id, "Mozilla/5.0 (X11; Linux) Firefox/128.0", "192.0.2.7")
    with registry.store.transaction():
        registry.store.put([session])
    registry.put(session)
    return cookie


def test_a_session_is_found_by_its_cookie_alone_which_is_kept_nowhere(registry: SessionRegistry) -> None:
    cookie = begun(registry)
    session = registry.living(cookie)
    assert session is not None
    assert session.token_hash == hashlib.sha256(cookie.encode()).hexdigest()
    assert len(cookie) == 43, "256 bits"
    assert cookie not in repr(session)
    for wrong in (None, "", session.id, session.token_hash, session.hub_session, cookie[:-1], cookie + "\udc80"):
        assert registry.living(wrong) is None
    assert (session.browser, session.address) == ("Firefox on Linux", "192.0.2.0/24")


def test_a_use_is_written_with_the_next_minute_and_outlives_a_full_disk(
    registry: SessionRegistry, store: FullDisk, clock: Clock
) -> None:
    cookie = begun(registry)
    session = registry.living(cookie)
    assert session is not None
    clock.now += MINUTE
    registry.use(session)
    assert store.sessions()[0].last_use == NOW
    store.full = True
    with pytest.raises(OSError, match="no space"):
        registry.note_uses()
    store.full = False
    registry.note_uses()
    assert SessionRegistry(store, SignOnConfig(), clock).living(cookie) == replace(session, last_use=clock.now)


def test_a_servers_question_about_a_token_is_use_unless_it_was_told_to_ask(
    registry: SessionRegistry, clock: Clock
) -> None:
    cookie = begun(registry)
    session = registry.living(cookie)
    assert session is not None
    clock.now += MINUTE
    registry.be_quiet(1, timedelta(seconds=5))
    registry.use_by_token(session.hub_session)
    assert registry.living(cookie) == session
    clock.now += timedelta(seconds=5)
    registry.use_by_token(session.hub_session)
    found = registry.living(cookie)
    assert found is not None and found.last_use == clock.now
    for unknown in (None, "", "of-before"):
        registry.use_by_token(unknown)


def test_an_ended_session_is_remembered_for_who_comes_back_and_then_forgotten(
    registry: SessionRegistry, store: FullDisk, clock: Clock
) -> None:
    cookie, other = begun(registry), begun(registry)
    session = registry.living(cookie)
    assert session is not None
    ended = replace(session, ended=NOW, cause=EndCause.BY_ADMIN.value, by="root-admin")
    with store.transaction():
        store.put([ended])
    registry.put(ended)
    assert registry.living(cookie) is None
    assert registry.ended(cookie) == ended
    assert [each.id for each in registry.ended_recently()] == [session.id]
    assert len(registry.of_user(1)) == 1
    registry.use_by_token(session.hub_session)
    assert registry.living(cookie) is None, "a late question does not bring it back"
    assert SessionRegistry(store, SignOnConfig(), clock).ended(cookie) == ended
    clock.now += ENDED_KEPT + MINUTE
    assert registry.over_limits() == [(registry.living(other), EndCause.IDLE)]
    registry.forget_ended()
    assert registry.ended(cookie) is None
    assert len(store.sessions()) == 1


def test_a_hub_that_starts_knows_whose_sessions_ended_last(
    store: FullDisk, clock: Clock, registry: SessionRegistry
) -> None:
    assert registry.ended_before_start() == set()
    for user_id, minutes in ((1, 0), (2, 11), (3, 20)):
        begun(registry, user_id)
        [session] = registry.of_user(user_id)
        store.put([replace(session, ended=NOW + minutes * MINUTE, cause=EndCause.BY_OWNER.value)])
    begun(registry, 4)
    clock.now += 1000 * MINUTE
    assert SessionRegistry(store, SignOnConfig(), clock).ended_before_start() == {2, 3}
