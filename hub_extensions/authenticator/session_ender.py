"""Ends sessions, for every cause in the same way.

First everything in the database changes in one commit, without an `await` in between: the sessions, the hub's tokens
and codes, the hub's cookie, servers that are to stop, and the audit log. Then servers and the gate are notified, and
servers are stopped. If the hub is killed after the commit, its next start continues.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from jupyterhub import orm

from hub_extensions.adapters.service.gpu_service import ServiceAway
from hub_extensions.adapters.store.sign_on import PendingStop
from hub_extensions.authenticator.gate_caller import GateCaller, ServiceCaller
from hub_extensions.authenticator.registry import SessionRegistry
from hub_extensions.authenticator.servers import StopReport, UserServers
from hub_extensions.core.messages import DrainState
from hub_extensions.core.sign_on import (
    EndCause,
    EndPlan,
    EndReport,
    ServerFact,
    SignOnConfig,
    SignOnEvent,
    SignOnSession,
    plan_end,
)
from hub_extensions.core.sign_on.ended_sessions import EndedSessions, session_hash
from hub_extensions.core.sign_on.events import SESSION_LETTERS

QUIET = timedelta(seconds=5)
LATE_SECONDS = 5.0
"""Time after the end of a session when tokens are deleted that a request in progress has received for it."""
REPORTED_AGAIN_SECONDS = (0.2, 1.0, 3.0, 10.0, 30.0, 60.0)
"""Pauses between the orders to a server that gave no answer, one after the other."""
AGAIN_SECONDS = 5.0
"""Pause before the next attempt to stop a server, or to report its stop."""
ASK_SERVICE_SECONDS = 15.0
ACKNOWLEDGES = timedelta(seconds=30)
"""Time within which the GPU service has to take over a stop; after that the hub stops the server itself, without a
drain (the time for cells to finish and notebooks to be saved).
"""
ASK_DUE_SECONDS = 2.0
"""Pause between two attempts to hand over to the GPU service a stop whose time has come or is near."""
SERVICE_STOPS = timedelta(seconds=60)
"""Time within which the GPU service, if it does not answer any more, has to carry out a stop that it has taken over;
after that the hub stops the server itself.
"""
REPORT_FOR = timedelta(hours=1)
"""Time for which the hub tries to report a stop that it made itself to a GPU service that does not answer."""
MOVED = timedelta(seconds=1)
LEFT_SECONDS = 5.0
"""Time after a start was cancelled within which it has certainly left the line (see ``CONFIRM_SECONDS``)."""
GATE_SECONDS = 2.0
"""Maximum time that the report of an end waits for the gate's confirmation. The gate is called again after that."""
COMES_BACK_SECONDS = 120.0
"""After a restart of the hub, a start that waited in line is resumed within this time, or not at all. If its session
had ended before, it is stopped then.
"""


class SessionEnder:
    """Ends sign-on sessions (signed-in browsers) together with their tokens and, if configured, servers. A hub has one.

    Args:
        app: the running JupyterHub.
        registry: the sessions.
        config: what ends together with a session, and the limits of sessions.
        now: returns the hub's time.
        log_event: writes an event of the audit log to the hub's log.
        gate: the gate, to which ended sessions are reported; `None` without a gate.
        service: the GPU service, to which ended sessions are reported; `None` if the hub uses none.
    """

    def __init__(
        self,
        app: Any,
        registry: SessionRegistry,
        config: SignOnConfig,
        now: Callable[[], datetime],
        log_event: Callable[[SignOnEvent], None],
        gate: GateCaller | None = None,
        service: ServiceCaller | None = None,
    ) -> None:
        self._app, self._registry, self._config, self._now = app, registry, config, now
        self._log_event, self._gate, self._service = log_event, gate, service
        self._servers = UserServers(app)
        self._running: set[asyncio.Future[Any]] = set()
        self._untold = True
        self._judged: dict[int, frozenset[tuple[str, datetime | None]]] = {}
        """User id -> the runs of servers (name and start) that the person had when the right to sign in was lost."""

    def end(
        self,
        user_id: int,
        sessions: Collection[SignOnSession],
        cause: EndCause,
        *,
        by: str = "",
        lost_right: bool = False,
        account_unknown: bool = False,
    ) -> asyncio.Future[EndReport]:
        """End sessions of one person. The sessions are invalid when this method returns.

        Args:
            user_id: the hub's id of the person.
            sessions: the sessions to end.
            cause: why they end.
            by: name of the administrator who ended them; "" if no administrator did.
            lost_right: the person may not sign in any more.
            account_unknown: it is unknown whether the provider still has the person's account.

        Returns:
            A future with the report, which is done when servers and gate have answered.
        """
        began, now = time.monotonic(), self._now()
        user, living = self._user(user_id), self._registry.of_user(user_id)
        facts = self._servers.facts(user)
        plan = plan_end(
            sessions,
            living,
            facts,
            self._config,
            cause,
            now,
            lost_right=lost_right,
            account_unknown=account_unknown,
        )
        ended = [replace(each, ended=now, cause=cause.value, by=by) for each in sessions]
        name = None if user is None else str(user.name)
        store = self._registry.store
        with store.transaction():
            tokens, kept = self._delete_tokens(user_id, user, plan)
            if plan.is_last and user is not None:
                user.orm_user.cookie_id = orm.new_token()
            store.put(ended)
            ordered, new = self._order_stops(user_id, user, plan, facts, cause)
            events = _events(ended, name, tokens, len(ordered), cause, by, now, began)
            if account_unknown and plan.is_last and user_id not in self._registry.unknown:
                store.note_unknown(user_id, now)
                events.append(SignOnEvent(now, "account-unknown", name, cause=cause.value))
            if lost_right:
                store.note_known(user_id)
            for event in events:
                store.record(event)
        for session in ended:
            self._registry.put(session)
        if account_unknown and plan.is_last:
            self._registry.unknown.setdefault(user_id, now)
            self.report_to_service()
        elif lost_right and user_id in self._registry.unknown:
            del self._registry.unknown[user_id]
            self.report_to_service()
        self._registry.be_quiet(user_id, QUIET)
        # before anything that may wait: pages of the servers stay open until the servers check them
        asked = self._later(self._ask_servers(user)) if user is not None else None
        self._follow(events, new)
        if lost_right:
            self._judged[user_id] = self._runs(user)
        report = _report(ended, tokens, kept, ordered, plan)
        known = self._report_end(name, ended, is_last=plan.is_last)
        return self._later(_with_answers(report, asked, known, began))

    def note_known(self, user_id: int, why: str) -> None:
        """Record that the provider still has this person's account, so that the person's servers need not stop.

        Does nothing if the account was not on the list of accounts that may no longer exist.

        Args:
            user_id: the hub's id of the person.
            why: how this is known, for the audit log.
        """
        if user_id not in self._registry.unknown:
            return
        user, store = self._user(user_id), self._registry.store
        event = SignOnEvent(self._now(), "account-known", None if user is None else str(user.name), cause=why)
        with store.transaction():
            store.note_known(user_id)
            store.record(event)
        del self._registry.unknown[user_id]
        self._log_event(event)
        self.report_to_service()

    def forget_unknown(self) -> None:
        """Remove deleted hub users from the list of users whose account may no longer exist at the provider."""
        known = {user_id for (user_id,) in self._app.db.query(orm.User.id)}
        gone = self._registry.unknown.keys() - known
        if gone:
            with self._registry.store.transaction():
                for user_id in gone:
                    self._registry.store.note_known(user_id)
            for user_id in gone:
                del self._registry.unknown[user_id]
            self.report_to_service()

    def report_to_service(self) -> None:
        """Report to the GPU service the users whose account may no longer exist at the provider. The report is sent
        now and repeated every minute until the service has it.
        """
        self._untold = True
        self._later(self._report_to_service())

    def report_to_service_again(self) -> None:
        """Repeat the report of users whose account may no longer exist at the provider, because the GPU service may
        have restarted or been away.
        """
        self._later(self._report_to_service())

    async def _report_to_service(self) -> None:
        if not self._untold and not self._registry.unknown:
            return
        people = {
            str(user.name): since
            for user_id, since in self._registry.unknown.items()
            if (user := self._user(user_id)) is not None
        }
        try:
            self._untold = not await self._servers.report_without_session(people, self._config.orphan)
        except ServiceAway:
            self._untold = True
        except Exception:
            self._untold = True
            self._app.log.exception("The GPU service was not told whose servers have no session")
            self._roll_back()

    def _order_stops(
        self, user_id: int, user: Any, plan: EndPlan, facts: Sequence[ServerFact], cause: EndCause
    ) -> tuple[list[PendingStop], list[PendingStop]]:
        """Write the pending stops of the servers that a plan names.

        A stop that was written earlier for the same run of a server stays in force, unless the new stop is due sooner:
        the user has already seen the time of the earlier stop.

        Args:
            user_id: the hub's id of the user.
            user: the hub's user.
            plan: what ends with the sessions.
            facts: the user's active servers.
            cause: why the sessions ended.

        Returns:
            The pending stops that are in force for these servers, and which of them are new.
        """
        store = self._registry.store
        # waiting starts of a server cannot be distinguished by their time
        waiting = {each.name for each in facts if each.waits}
        wanted = [
            PendingStop(user_id, each.server, _run_of(user, each.server, waiting), each.at, cause.value)
            for each in plan.stops
        ]
        first = {_order_of(each): each for each in store.stops() if each.started is not None}
        ordered = [min(first.get(_order_of(each), each), each, key=lambda stop: stop.at) for each in wanted]
        new = [each for each in ordered if each is not first.get(_order_of(each))]
        store.order_stops(new)
        return ordered, new

    def _follow(self, events: Sequence[SignOnEvent], stops: Sequence[PendingStop]) -> None:
        """Do what remains after the end of sessions has been committed: log the events, and stop the servers.

        A request that was in progress when its session ended may still receive a token or an OAuth code of the session
        from the hub. These are deleted `LATE_SECONDS` (5 s) later.

        Args:
            events: events of the audit log about the end.
            stops: the pending stops of servers.
        """
        self._later(self._delete_late_tokens_soon())
        for event in events:
            self._log_event(event)
        for stop in stops:
            self._later(self._stop(stop))

    def _report_end(
        self, name: str | None, ended: Iterable[SignOnSession], *, is_last: bool
    ) -> asyncio.Future[bool] | None:
        """Report ended sessions to gate and service. Return a future that is done when the gate has confirmed the
        report.

        Return `None` without a gate or a name.

        Args:
            name: name of the user. `None` if the hub has deleted the account: nothing is reported then, and gate and
                service find out from the hub that the tokens are gone.
            ended: the sessions that have ended.
            is_last: the user has no other session, so all sessions of the user are reported as ended.
        """
        if name is None:
            return None
        sessions = None if is_last else tuple(session_hash(each.hub_session) for each in ended)
        if self._service is not None:
            self._service.report(EndedSessions(name, sessions))
        return None if self._gate is None else self._gate.report(EndedSessions(name, sessions))

    def _delete_tokens(self, user_id: int, user: Any, plan: EndPlan) -> tuple[int, int]:
        """Delete the tokens and OAuth codes that end with the sessions.

        Args:
            user_id: the hub's id of the user.
            user: the hub's user.
            plan: what ends with the sessions, for example all tokens of the user.

        Returns:
            The number of deleted tokens, and the number of the user's tokens that are left. Tokens of servers are not
            counted.
        """
        db = self._app.db
        ids = {each.hub_session for each in plan.sessions}
        servers_own = self._servers.own_tokens(user)
        deleted = kept = 0
        for token in db.query(orm.APIToken).filter_by(user_id=user_id).all():
            if token.id in servers_own:
                continue
            # tokens of a browser that signed in before there were sessions end with the last session
            if plan.tokens == "all" or token.session_id in ids or (plan.is_last and token.session_id):
                db.delete(token)
                deleted += 1
            else:
                kept += 1
        for code in db.query(orm.OAuthCode).filter_by(user_id=user_id).all():
            if plan.is_last or code.session_id in ids:
                db.delete(code)
        return deleted, kept

    def delete_late_tokens(self) -> None:
        """Delete the tokens and OAuth codes that belong to recently ended sessions.

        A request that was in progress when its session ended may have received them from the hub after the end.
        """
        db, ids = self._app.db, [each.hub_session for each in self._registry.ended_recently()]
        if not ids:
            return
        late = [
            each for kind in (orm.APIToken, orm.OAuthCode) for each in db.query(kind).filter(kind.session_id.in_(ids))
        ]
        for each in late:
            db.delete(each)
        if late:
            db.commit()

    async def _delete_late_tokens_soon(self) -> None:
        """Delete tokens and OAuth codes of recently ended sessions again after `LATE_SECONDS` (5 s).

        A request that was in progress when its session ended may have received a code meanwhile. The code would be
        valid for a minute and could be exchanged for a token.
        """
        await asyncio.sleep(LATE_SECONDS)
        try:
            self.delete_late_tokens()
        except Exception:
            self._app.log.exception("Tokens of an ended session are looked for again within a minute")
            self._roll_back()

    def deleted_users(self) -> Sequence[int]:
        """Return the ids of users who have a session but no account at the hub any more."""
        known = {user_id for (user_id,) in self._app.db.query(orm.User.id)}
        return [user_id for user_id in self._registry.users() if user_id not in known]

    def is_settled(self, user: Any) -> bool:
        """Return whether the loss of this person's right to sign in has been applied to all servers that the person has
        now, so that nothing is left to do.
        """
        ordered = {(each.user_id, each.server) for each in self._registry.store.stops()}
        judged = self._judged.get(user.id, frozenset())
        return all(run in judged or (user.id, run[0]) in ordered for run in self._runs(user))

    def _runs(self, user: Any) -> frozenset[tuple[str, datetime | None]]:
        return frozenset((each.name, _started(user, each.name)) for each in self._servers.facts(user))

    def resume(self) -> None:
        """Continue the stops and reports that an earlier process of the hub did not finish."""
        for stop in self._registry.store.stops():
            self._later(self._stop(stop) if stop.started is not None else self._stop_what_comes_back(stop))
        for user_id in self._registry.ended_before_start():
            self._later(self._ask_what_comes_back(user_id))
        for user_id, ended in of_one_user(self._registry.all_ended()).items():
            user = None if self._gate is None and self._service is None else self._user(user_id)
            self._report_end(None if user is None else str(user.name), ended, is_last=False)

    async def _stop(self, stop: PendingStop) -> None:
        """Stop a run of a server at the time that its pending stop sets.

        A failed attempt is repeated until the run is over.

        If the GPU service did not take the stop over, the stop is reported to the service afterwards. The stop stays in
        the database until the service has the report.

        Args:
            stop: the pending stop.
        """
        taken_over = await self._wait_until_due(stop)
        report: StopReport | None = None
        while True:
            try:
                spawner = self._spawner(stop)
                if spawner is None:
                    break
                if spawner.active and spawner.pending != "check":
                    if stop.started is not None and not taken_over:
                        report = self._servers.stop_report(spawner)
                    await self._servers.stop(spawner.user, stop.server)
                    break
            except Exception:
                self._app.log.exception("A server was not stopped at the end of a session")
                self._roll_back()
            await asyncio.sleep(AGAIN_SECONDS)
        if stop.started is None:
            await asyncio.sleep(LEFT_SECONDS)
        if report is not None:
            await self._report_stop(stop, report)
        with self._registry.store.transaction():
            self._registry.store.remove_stop(stop)

    async def _report_stop(self, stop: PendingStop, report: StopReport) -> None:
        """Report a finished stop until the service has taken the report, or the server runs again.

        After `REPORT_FOR` no further attempt is made.

        Args:
            stop: the stop, which the hub has carried out.
            report: sends the report once, see `UserServers.stop_report`.
        """
        until = self._now() + REPORT_FOR
        while self._now() < until:
            user = self._user(stop.user_id)
            if user is None or (stop.server in user.spawners and user.spawners[stop.server].active):
                return  # the report would be about the next run
            try:
                await report()
                return
            except ServiceAway:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _wait_until_due(self, stop: PendingStop) -> bool:
        """Wait until the hub itself has to stop a server, and return whether the GPU service had taken the stop over.

        The service drains a server that holds a lease (it waits for cells and the saving of notebooks), then stops it.
        The service is asked repeatedly, because it may have been away, or may then have moved the time of the stop. The
        hub stops the server itself in three cases: the service does not know the server's lease; it has not taken the
        stop over by the time of the stop, and has had at least `ACKNOWLEDGES` for that; or it has not stopped the
        server in time.

        Args:
            stop: the pending stop.
        """
        handed_over: datetime | None = None
        asked_first = self._now()
        while True:
            until = stop.at
            try:
                spawner = self._spawner(stop)
                if spawner is None:
                    return handed_over is not None
                state = None if stop.started is None else await self._hand_over(spawner, stop)
                if state is not None and state.left_seconds is not None:
                    handed_over = handed_over or self._now()
                    begins = self._now() + timedelta(seconds=state.left_seconds)
                    if begins - stop.at > MOVED:
                        stop = self._moved(stop, begins)
                    until = max(stop.at, handed_over) + timedelta(seconds=state.takes_seconds)
            except ServiceAway:
                until = stop.at + SERVICE_STOPS if handed_over else max(stop.at, asked_first + ACKNOWLEDGES)
            except Exception:
                self._app.log.exception("The stop of a server is ordered again")
                self._roll_back()
            rest = (until - self._now()).total_seconds()
            if rest <= 0:
                return handed_over is not None
            due = (stop.at - self._now()).total_seconds()
            pause = ASK_SERVICE_SECONDS if handed_over or due > ASK_SERVICE_SECONDS else max(due, ASK_DUE_SECONDS)
            await asyncio.sleep(min(rest, pause))

    def _moved(self, stop: PendingStop, at: datetime) -> PendingStop:
        """Return a pending stop with a later time, which the GPU service has set because it was away.

        The new time is written, unless the stored stop was changed meanwhile.

        Args:
            stop: the pending stop.
            at: the later time.
        """
        moved = replace(stop, at=at)
        with self._registry.store.transaction():
            if stop in self._registry.store.stops():
                self._registry.store.order_stops([moved])
        return moved

    async def _hand_over(self, spawner: Any, stop: PendingStop) -> DrainState | None:
        return await self._servers.hand_over(spawner, stop.at - self._now(), stop.cause)

    def _spawner(self, stop: PendingStop) -> Any:
        """Return the spawner whose run has to be stopped; `None` if that run of the server is over."""
        user = self._user(stop.user_id)
        if user is None or stop.server not in user.orm_spawners:
            return None
        if stop.started is not None and _started(user, stop.server) != stop.started:
            return None  # another run
        spawner = user.spawners[stop.server]
        return None if spawner.orm_spawner.server is None and not spawner.active else spawner

    def _roll_back(self) -> None:
        """Roll back the hub's database session after a failed write, so that the next task can use it."""
        with suppress(Exception):
            self._app.db.rollback()

    async def _stop_what_comes_back(self, stop: PendingStop) -> None:
        """Cancel a start of a server that waited in line for a GPU when the hub was killed and whose session has ended.

        The start's place in the line still exists, so the restarted hub resumes the start. Then the start is cancelled.

        Args:
            stop: the pending stop of the server, which was written before the hub was killed.
        """
        until = time.monotonic() + COMES_BACK_SECONDS
        while time.monotonic() < until:
            user = self._user(stop.user_id)
            if user is None or (stop.server in user.spawners and user.spawners[stop.server].active):
                break
            await asyncio.sleep(1)
        await self._stop(stop)

    async def _ask_what_comes_back(self, user_id: int) -> None:
        """Instruct a user's servers to check their visitors with the hub again, after the hub's restart.

        The method first waits until the hub knows which of these servers still run.

        Args:
            user_id: the hub's id of the user.
        """
        until = time.monotonic() + COMES_BACK_SECONDS
        while self._servers.are_checked(self._user(user_id)) and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(1)
        self._registry.be_quiet(user_id, QUIET)
        try:
            await self._ask_servers(self._user(user_id))
        except Exception:
            self._app.log.exception("Servers were not asked to look again after the hub's start")
            self._roll_back()

    async def _ask_servers(self, user: Any) -> tuple[str, ...]:
        """Instruct a user's servers to check their visitors with the hub again. Return which servers did so.

        Servers that did not answer are instructed again later.

        Returns:
            The names of the servers that have checked their visitors.
        """
        asked = await self._servers.ask_again(user)
        if asked.silent:
            self._later(self._ask_once_more(user.id, asked.silent))
        return asked.done

    async def _ask_once_more(self, user_id: int, silent: Collection[str]) -> None:
        """Instruct servers that did not answer to check their visitors with the hub again, several times.

        A server that never checks would keep the open WebSockets of an ended session.

        Args:
            user_id: the hub's id of the servers' owner.
            silent: names of the servers that did not answer.
        """
        for pause in REPORTED_AGAIN_SECONDS:
            await asyncio.sleep(pause)
            try:
                user = self._user(user_id)
                self._registry.be_quiet(user_id, QUIET)
                silent = (await self._servers.ask_again(user, silent)).silent
            except Exception:
                self._app.log.exception("Servers are told once more that a session ended")
                self._roll_back()
            if not silent:
                return
        self._app.log.warning("Servers of user %s were not told that a session ended: %s", user_id, sorted(silent))

    def _user(self, user_id: int) -> Any:
        orm_user = self._app.db.query(orm.User).filter_by(id=user_id).first()
        return None if orm_user is None else self._app.users[orm_user]

    def _later(self, work: Any) -> asyncio.Future[Any]:
        task: asyncio.Future[Any] = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


async def _with_answers(
    report: EndReport, asked: asyncio.Future[tuple[str, ...]] | None, known: asyncio.Future[bool] | None, began: float
) -> EndReport:
    """Wait for the answers of servers and gate, and return the report of the end with these answers added.

    Args:
        report: the report about the ended sessions, without the answers.
        asked: future with the names of the servers that have checked their users again; `None` if no server was
            instructed to check.
        known: done when the gate has confirmed the report of the ended sessions; `None` if nothing was reported to it.
        began: when the end began, in seconds of the monotonic clock.
    """
    servers = () if asked is None else await asked
    if known is not None:
        await asyncio.wait([known], timeout=GATE_SECONDS)
        report = replace(report, gate_told=known.done())
    return replace(report, servers_asked=servers, milliseconds=_since(began))


def _events(
    ended: Sequence[SignOnSession],
    user: str | None,
    tokens: int,
    servers: int,
    cause: EndCause,
    by: str,
    now: datetime,
    began: float,
) -> list[SignOnEvent]:
    """Return one event of the audit log for each ended session, or one event if no session ended.

    Only the first event has the numbers of tokens and servers, so that sums over the events are right.

    Args:
        ended: the sessions that have ended.
        user: name of the user; `None` if the hub has deleted the account.
        tokens: number of tokens that were deleted.
        servers: number of servers that have to stop.
        cause: why the sessions ended.
        by: name of the administrator who ended the sessions; "" if no administrator did.
        now: when they ended.
        began: when the end began, in seconds of the monotonic clock.
    """
    return [
        SignOnEvent(
            time=now,
            kind="ended",
            user=user,
            session=session,
            by=by,
            cause=cause.value,
            tokens=0 if number else tokens,
            servers=0 if number else servers,
            milliseconds=_since(began),
        )
        for number, session in enumerate([each.id[:SESSION_LETTERS] for each in ended] or [""])
    ]


def _report(
    ended: Sequence[SignOnSession], tokens: int, tokens_kept: int, stops: Sequence[PendingStop], plan: EndPlan
) -> EndReport:
    """Return the report about ended sessions. The answers of servers and gate are added to it later.

    Args:
        ended: the sessions.
        tokens: number of tokens that were deleted.
        tokens_kept: number of tokens of the user that are left.
        stops: the servers that have to stop.
        plan: what had to end with the sessions.
    """
    return EndReport(
        sessions=tuple(each.id for each in ended),
        tokens=tokens,
        tokens_kept=tokens_kept,
        servers_stopped=tuple(stop.server for stop in stops),
        stops_at=max((stop.at for stop in stops), default=None),
        servers_kept=plan.kept,
    )


def of_one_user(sessions: Iterable[SignOnSession]) -> dict[int, list[SignOnSession]]:
    """Group sessions by user: the hub's id of a user -> the user's sessions."""
    found: dict[int, list[SignOnSession]] = {}
    for session in sessions:
        found.setdefault(session.user_id, []).append(session)
    return found


def _order_of(stop: PendingStop) -> tuple[int, str, datetime | None]:
    return stop.user_id, stop.server, stop.started


def _run_of(user: Any, server: str, waiting: Collection[str]) -> datetime | None:
    return None if server in waiting else _started(user, server)


def _started(user: Any, server: str) -> datetime | None:
    found = user.orm_spawners.get(server) if user is not None else None
    started: datetime | None = None if found is None else found.started
    return None if started is None else started.replace(tzinfo=timezone.utc)


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
