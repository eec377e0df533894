"""The gate hears of each end: at once, and where it was away as soon as it answers; an end never waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from hub_extensions.authenticator import gate_caller
from hub_extensions.authenticator.gate_caller import GateCaller
from hub_extensions.core.sign_on import EndCause, SignOnConfig
from hub_extensions.core.sign_on.ended_sessions import EndedSessions, session_hash
from hub_extensions.core.sign_on.gate_config import GateAddress
from tests.fakes.gate_of_ends import SECRET, GateOfEnds
from tests.patience import patient, soon

pytestmark = pytest.mark.programs  # JupyterHub starts one while it is imported


class HubLog:
    """What the hub has logged."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def info(self, text: str, *args: object) -> None:
        self.written.append(text % args)

    warning = exception = info


@pytest.fixture
async def gate(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GateOfEnds]:
    monkeypatch.setattr(gate_caller, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(gate_caller, "LONGEST_PAUSE", 0.02)
    made = GateOfEnds()
    yield made
    made.stop()


def a_caller(gate: GateOfEnds, log: HubLog | None = None, secret: str = SECRET) -> GateCaller:
    return GateCaller(GateAddress(gate.url, secret), log or HubLog())


async def test_a_gate_that_was_away_hears_everything_once_it_answers(gate: GateOfEnds) -> None:
    log = HubLog()
    caller = a_caller(gate, log)
    known = [caller.report(each) for each in (EndedSessions("ada", ("1", "2")), EndedSessions("bob"))]
    await soon(lambda: log.written)
    gate.answers = [500, 404]
    gate.start()
    assert await asyncio.wait_for(asyncio.gather(*known), patient(20)) == [True, True]
    heard = sorted(gate.heard, key=lambda each: each["user"])
    assert heard == [{"user": "ada", "sessions": ["1", "2"]}, {"user": "bob", "sessions": None}]
    await soon(lambda: len(log.written) == 2)
    assert "nobody answers" in log.written[0], "one line for an absence, and one for its end"


@pytest.mark.parametrize("closes", [True, False], ids=["closes", "is silent"])
async def test_a_gate_that_takes_a_report_and_does_not_answer_hears_it_later(
    gate: GateOfEnds, monkeypatch: pytest.MonkeyPatch, closes: bool
) -> None:
    monkeypatch.setattr(gate_caller, "ANSWER_SECONDS", 0.1)
    taken: list[asyncio.StreamWriter] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)
        await reader.read(1)
        if closes:
            writer.close()

    dumb = await asyncio.start_server(take, "127.0.0.1", int(gate.url.rpartition(":")[2]))
    log = HubLog()
    known = a_caller(gate, log).report(EndedSessions("ada"))
    await soon(lambda: log.written)
    monkeypatch.setattr(gate_caller, "ANSWER_SECONDS", patient(20))
    dumb.close()
    for writer in taken:
        writer.close()
    gate.start()
    assert await asyncio.wait_for(known, patient(20)) and gate.heard == [{"user": "ada", "sessions": None}]


async def test_what_waits_is_one_report_a_person_and_the_last_end_goes_first(gate: GateOfEnds) -> None:
    log = HubLog()
    caller = a_caller(gate, log)
    reports = [EndedSessions("ada", ("1",)), EndedSessions("bob", ("1",)), EndedSessions("ada", ("1", "2"))]
    reports += [EndedSessions("bob"), EndedSessions("cy", ("3",))]
    known = [caller.report(each) for each in reports]
    gate.start()
    assert await asyncio.wait_for(asyncio.gather(*known), patient(20)) == [True] * 5
    assert [(each["user"], each["sessions"]) for each in gate.heard] == [
        *(("cy", ["3"]), ("bob", None), ("ada", ["1", "2"]))
    ]


async def test_who_has_not_the_secret_is_not_taken_for_the_gate(gate: GateOfEnds) -> None:
    gate.start()
    log = HubLog()
    known = a_caller(gate, log, secret="another").report(EndedSessions("ada"))
    await soon(lambda: gate.strangers > 2)
    assert not known.done() and not gate.heard and "did not prove" in log.written[0]


@pytest.fixture
def db() -> Iterator[Session]:
    from jupyterhub import orm

    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
    orm.Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(orm.User(name="ada"))
        session.commit()
        yield session


async def a_sign_on(db: Session, gate: GateOfEnds, *, has_started: bool) -> Any:
    from jupyterhub import orm

    from hub_extensions.authenticator.sign_on import HubSignOn

    user = db.query(orm.User).one()
    users = {user: SimpleNamespace(id=user.id, name="ada", spawners={}, orm_spawners={}, orm_user=user)}
    started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if has_started:
        started.set_result(None)
    app = SimpleNamespace(db=db, log=HubLog(), users=users, _start_future=started)
    return HubSignOn(app, SignOnConfig(), lambda: datetime.now(timezone.utc), GateAddress(gate.url, SECRET))


async def test_an_end_is_reported_after_its_commit_and_again_by_the_next_life_of_the_hub(
    gate: GateOfEnds, db: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hub_extensions.authenticator.session_ender as ending

    monkeypatch.setattr(ending, "GATE_SECONDS", 0.1)
    before = asyncio.all_tasks()
    sign_on = await a_sign_on(db, gate, has_started=False)
    sessions = [sign_on.registry.begin(1, "", "")[0] for _ in range(3)]
    with sign_on.registry.store.transaction():
        sign_on.registry.store.put(sessions)
    for each in sessions:
        sign_on.registry.put(each)
    hashes = [session_hash(each.hub_session) for each in sessions]
    away = await asyncio.wait_for(sign_on.ender.end(1, sessions[:1], EndCause.BY_OWNER), patient(20))
    assert away.gate_told is False, "an end does not wait for a gate that is away"
    monkeypatch.setattr(ending, "GATE_SECONDS", patient(20))
    gate.start()
    told = await asyncio.wait_for(sign_on.ender.end(1, sessions[1:], EndCause.BY_OWNER), patient(20))
    assert told.gate_told is True
    *earlier, last = gate.heard
    assert last == {"user": "ada", "sessions": None}
    assert earlier in ([], [{"user": "ada", "sessions": hashes[:1]}]), "two that wait are one report"
    assert not any(each.hub_session in str(gate.heard) for each in sessions)
    for task in asyncio.all_tasks() - before:  # kill -9
        task.cancel()
    gate.heard.clear()
    await a_sign_on(db, gate, has_started=True)
    await soon(lambda: [(each["user"], sorted(each["sessions"])) for each in gate.heard] == [("ada", sorted(hashes))])
    for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
        task.cancel()


async def test_without_a_gate_the_report_says_so(db: Session) -> None:
    from jupyterhub import orm

    from hub_extensions.authenticator.registry import SessionRegistry
    from hub_extensions.authenticator.session_ender import SessionEnder

    def now() -> datetime:
        return datetime.now(timezone.utc)

    user = db.query(orm.User).one()
    users = {user: SimpleNamespace(id=1, name="ada", spawners={}, orm_spawners={}, orm_user=user)}
    app = SimpleNamespace(db=db, log=HubLog(), users=users)
    from hub_extensions.adapters.store.sign_on import SignOnStore

    registry = SessionRegistry(SignOnStore.opened(db), SignOnConfig(), now)
    before = asyncio.all_tasks()
    report = await SessionEnder(app, registry, SignOnConfig(), now, lambda _: None).end(1, [], EndCause.BY_ADMIN)
    assert report.gate_told is None
    for task in asyncio.all_tasks() - before:
        task.cancel()
