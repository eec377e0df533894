"""The minute's work on sessions goes on after a database that took nothing; and who signs out by which handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from hub_extensions.core.sign_on import EndCause, SignOnConfig
from hub_extensions.core.sign_on.server_key import VARIABLE
from hub_extensions.core.signing import request_of
from tests.patience import patient

pytestmark = pytest.mark.programs  # JupyterHub starts one while it is imported


class LockedSession(Session):
    """The hub's database session, where nothing goes while it is `locked`."""

    locked = False

    def connection(self, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return super().connection(*args, **kwargs)

    def query(self, *args: Any, **kwargs: Any) -> Any:
        self._check()
        return super().query(*args, **kwargs)

    def rollback(self) -> None:
        self._check()
        super().rollback()

    def _check(self) -> None:
        if self.locked:
            raise OperationalError("select", {}, OSError("database is locked"))


async def until(holds: Callable[[], object]) -> None:
    async def wait() -> None:
        while not holds():  # noqa: ASYNC110  another task changes it
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), patient(10))


async def test_a_locked_database_stops_neither_the_minutes_work_nor_what_an_earlier_hub_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from jupyterhub import orm

    import hub_extensions.authenticator.sign_on as running

    monkeypatch.setattr(running, "MINUTE_SECONDS", 0.02)
    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
    orm.Base.metadata.create_all(engine)
    with LockedSession(engine) as db:
        user = orm.User(name="ada")
        db.add(user)
        db.commit()
        errors: list[str] = []
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        users = {user: SimpleNamespace(id=1, name="ada", spawners={}, orm_spawners={}, orm_user=user)}
        log = SimpleNamespace(exception=errors.append, info=lambda *_: None)
        app = SimpleNamespace(db=db, log=log, users=users, _start_future=started)
        ahead = timedelta(0)
        before = asyncio.all_tasks()
        sign_on = running.HubSignOn(
            app, SignOnConfig(idle=timedelta(hours=1)), lambda: datetime.now(timezone.utc) + ahead
        )
        session, cookie = sign_on.registry.begin(1, "", "")
        with sign_on.registry.store.transaction():
            sign_on.registry.store.put([session])
        sign_on.registry.put(session)
        ahead = timedelta(hours=2)
        db.locked = True
        started.set_result(None)
        await until(lambda: len(errors) >= 6)
        assert sign_on.registry.living(cookie) is not None
        db.locked = False
        await until(lambda: sign_on.registry.ended(cookie) is not None)
        ended = sign_on.registry.ended(cookie)
        assert ended is not None
        assert ended.cause == EndCause.IDLE.value
        for task in asyncio.all_tasks() - before:
            task.cancel()


async def test_a_server_whose_token_the_hub_has_forgotten_is_asked_by_the_key_that_it_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from traitlets.config import Config

    from hub_extensions.authenticator import session_ender
    from hub_extensions.authenticator.hub_setup import add_sign_on

    c = Config()
    add_sign_on(c, SignOnConfig(enabled=True), [])
    user = SimpleNamespace(id=7, settings={"cookie_secret": b"of the hub"})
    spawner = SimpleNamespace(api_token="", name="train", user=user, active=True, ready=True)
    given = c.Spawner.environment[VARIABLE](spawner)

    busy = ["hangs up", "is not up to it"]
    heard: list[int] = []

    class Asked(RequestHandler):
        def post(self) -> None:
            header = self.request.headers["Authorization"]
            trouble = busy.pop(0) if busy else ""
            if trouble == "hangs up":
                self.request.connection.stream.close()  # type: ignore[union-attr]
                return
            known = request_of(given, "POST", str(self.request.uri), header) is not None
            self.set_status(503 if trouble else 204 if known else 403)
            heard.append(self.get_status())

    socket, port = bind_unused_port()
    server = HTTPServer(Application([(".*", Asked)]))
    server.add_socket(socket)
    spawner.server = SimpleNamespace(url=f"http://127.0.0.1:{port}/user/ada/train/")
    user.spawners = {"train": spawner}
    # one that gives no answer is told again, behind the report; one that refuses is not
    monkeypatch.setattr(session_ender, "REPORTED_AGAIN_SECONDS", (0.0, 0.0))
    app = SimpleNamespace(internal_ssl=False, cookie_secret=b"of the hub")
    quiet: list[int] = []
    registry = SimpleNamespace(be_quiet=lambda user_id, _: quiet.append(user_id))
    ender = session_ender.SessionEnder(
        app, registry, SignOnConfig(), lambda: datetime.now(timezone.utc), lambda _: None
    )
    monkeypatch.setattr(ender, "_user", lambda _: user)
    assert await ender._ask_servers(user) == ()
    await until(lambda: heard == [503, 204])
    assert (await ender._ask_servers(user), quiet) == (("train",), [7, 7])
    app.cookie_secret = b"another"
    assert await ender._ask_servers(user) == ()
    assert (heard, ender._running) == ([503, 204, 204, 403], set())
    server.stop()


@pytest.mark.parametrize("kind", ["LogoutHandler", "BaseHandler"])
async def test_a_sign_out_handler_with_a_get_of_its_own_ends_the_session_too(kind: str) -> None:
    import jupyterhub.handlers as hub_handlers

    from hub_extensions.authenticator.login import handlers_with_sessions

    done: list[str] = []

    def end(user_id: int, sessions: list[Any], cause: EndCause) -> asyncio.Future[None]:
        done.append(f"{sessions[0].id} ends: {cause.value}")
        return asyncio.get_running_loop().create_future()

    session = SimpleNamespace(id="s1", user_id=1)

    class OfTheSite(getattr(hub_handlers, kind)):  # type: ignore[misc]
        authenticator = SimpleNamespace(
            sign_on=SimpleNamespace(
                session_of=lambda _: session,
                ender=SimpleNamespace(end=end),
                clear_cookie=lambda _: done.append("our cookie"),
            )
        )

        def clear_login_cookie(self, name: Any = None) -> None:
            done.append("the hub's cookie")

        async def get(self) -> None:
            self.clear_login_cookie()

    made = dict(each[:2] for each in handlers_with_sessions([("/logout", OfTheSite)]))["/logout"]

    class InTheTest(made):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            """Without a request."""

    await InTheTest().get()
    assert done == ["s1 ends: sign-out", "the hub's cookie", "our cookie"]
