"""The GPU part of every spawner: ask the service for admission, wait in line, and start the server under its lease.

The mixin stands in front of a real spawner (``class GpuLocalSpawner(GpuSpawnerMixin, LocalProcessSpawner)``) and does
not change how the real spawner starts a server. The GPU service decides who is admitted and grants the lease (the right
of one server to a share of a device). **A server never gets a GPU without a lease.**
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, TypeVar

from jupyterhub.spawner import Spawner
from jupyterhub.utils import maybe_future
from tornado import web
from traitlets import Bool, Float, Integer, List, Unicode

from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.adapters.service.gpu_service import (
    GpuServiceClient,
    ServiceAway,
    ServiceRefused,
    TicketList,
    Update,
    gpu_service,
)
from hub_extensions.core.cluster.placement import PodDemands
from hub_extensions.core.messages import RETURNS_HEADER, Ask, Ended, LeaseGrant, Started, Stopped, TicketStatus
from hub_extensions.core.offers.user_options import NOTIFY, UserOptions, others_of
from hub_extensions.core.text.reasons import Reason
from hub_extensions.spawner import spawn_errors
from hub_extensions.spawner.accepted_starts import AcceptedStart, StartRecovery
from hub_extensions.spawner.pages.reader import PageReader
from hub_extensions.spawner.pages.start_progress import (
    Start,
    report_starting,
    report_unanswered,
    report_waiting,
)
from hub_extensions.spawner.pages.texts import utc

NO_LIMIT_SECONDS = 10 * 365 * 24 * 3600
"""The `start_timeout` that the hub sees: practically none, because the wait in line may be long. The launch after the
wait is limited by `_gpu_timed`."""
CONFIRM_SECONDS = 3.0
"""A cancelled start counts as stopped by its user only if the hub still runs after this time; see
`_gpu_confirm_left`."""
RETRY_SECONDS = (0.0, 1.0, 3.0, 10.0, 30.0)
"""Pauses before each try to send a report to the service. The last failure is harmless: the service also polls."""
CLAIM_SECONDS = 5.0
"""Time for which a start waits until the service confirms the lease of the new process. A later refusal stops the
server.
"""
LAST_REPORT_SECONDS = 1.0
"""Time for which a hub that is shutting down waits until the service has accepted the report of a stop."""
POLL_SECONDS = 2.0  # time for which the end of a stop waits for the spawner's poll
CPU_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "void", "NVIDIA_VISIBLE_DEVICES": "void"}

T = TypeVar("T")


class GpuSpawnerMixin(StartRecovery, PageReader, Spawner):  # type: ignore[misc]  # jupyterhub is untyped
    """Adds GPU offers, the line and the lease to any spawner of JupyterHub 5.3 to 6, called the real spawner here.

    An offer is a choice on the spawn form: CPU only, a MIG profile, a GPU fraction or a whole GPU. A lease is the right
    of one server to a share of a device. `start` asks the GPU service for admission and waits in line. Then it lets the
    real spawner launch the server, and reports to the service how the start and the server ended.
    """

    gpu_service_url = Unicode(
        help="Address at which the hub reaches the GPU service, ending in /services/gpu. Set by configure(c)."
    ).tag(config=True)
    gpu_service_connect_url = Unicode(
        help="Address at which users' servers reach the GPU service. Empty: the one at which the hub does. Set by "
        "configure(c)."
    ).tag(config=True)
    gpu_service_uid = Integer(
        None,
        allow_none=True,
        help="The uid under which the GPU service listens on this machine: hub and users' servers say nothing to a "
        "listener of another account. None: not looked at. Set by configure(c) where the hub starts the service.",
    ).tag(config=True)
    gpu_hub_secret = Unicode(
        help="The secret between hub and GPU service. Set by configure(c); kept in the service's state folder."
    ).tag(config=True)
    gpu_allow_cpu_meanwhile = Bool(
        True,
        help="Offer 'Work on CPU meanwhile' on the waiting page, where the hub allows named servers.",
    ).tag(config=True)
    gpu_cpu_server_name = Unicode("cpu", help="Name of the server that 'Work on CPU meanwhile' starts.").tag(
        config=True
    )
    gpu_unopened_minutes = Float(
        0.0,
        help="What the waiting page promises: how long a started server waits for its user, in minutes; 0: nothing. "
        "Set by configure(c) to what the culling enforces.",
    ).tag(config=True)
    gpu_notice_channel_text = Unicode(
        help="How users can have themselves told that their GPU is ready, in the form's words; empty: the form does "
        "not ask. Set by configure(c) to what c.GpuNotices can do."
    ).tag(config=True)
    gpu_service_timeout_seconds = Float(
        600.0,
        help="How long a GPU choice waits for a GPU service that does not answer before it is refused, in seconds.",
    ).tag(config=True)
    gpu_cpu_service_timeout_seconds = Float(
        3.0,
        help="How long a CPU-only start waits for the answer of the GPU service before it starts without, in seconds.",
    ).tag(config=True)
    gpu_extra_user_options = List(
        Unicode(),
        help="Names of further user options that your own hooks read; every other unknown name is refused.",
    ).tag(config=True)

    gpu_ask_again_seconds = 60.0
    """A start that waits in line asks the service again at this interval, in case an update was lost."""
    _gpu_start: Start | None = None
    _gpu_admin_timeout: int | None = None
    start_timeout: int
    http_timeout: int
    _gpu_ran = False
    _gpu_stop_asked = False

    # ---------------------------------------------------------------- start

    async def run_auth_state_hook(self, auth_state: Any) -> None:
        """Record the start if one is under way, then run the hook of the spawner behind this mixin.

        The hub commits the record as soon as this method returns, and only then calls ``pre_spawn_hook``, which may be
        slow. JupyterHub also calls this method for the spawn page, when no start is under way.
        """
        spawn = self._spawn_future
        if self._start_pending and spawn is not None:
            with contextlib.suppress(web.HTTPError):  # `start` will raise the same refusal
                record = self._gpu_accept(self._gpu_checked(self.user_options))
                spawn.add_done_callback(functools.partial(self._gpu_not_begun, record))
        await super().run_auth_state_hook(auth_state)

    def _gpu_not_begun(self, record: AcceptedStart | None, done: asyncio.Future[Any]) -> None:
        """Remove the record of a spawn that ended before `start` was called, because a hook failed or was cancelled.

        Args:
            record: the hub's record of the accepted start; None if the hub keeps none, and nothing is done.
            done: the hub's finished spawn future.
        """
        if record is None or self._gpu_record is not record:
            return
        if done.cancelled():
            self._gpu_in_background(self._gpu_confirm_left(Start(record.options, accepted=record)))
        else:
            self._gpu_settle_accepted(record)

    def start(self) -> asyncio.Future[Any]:
        """Wait in line, then start the server.

        `start` is not a coroutine, because the hub reads `start_timeout` as soon as `start` returns.
        """
        self._gpu_start = None
        spawn_errors.install_short_logs(self.log)
        spawn = self._spawn_future
        try:
            options = self._gpu_checked(self.user_options if self.gpu_service_url else others_of(self.user_options))
            self._gpu_refuse_return()
        except web.HTTPError as error:
            spawn_errors.undo_failure_count(self, error)
            raise
        start = self._gpu_start = Start(options)
        start.accepted = self._gpu_accept(options)

        if self._gpu_admin_timeout is None:
            self._gpu_admin_timeout = self.start_timeout
        limit, self.start_timeout = self._gpu_admin_timeout, NO_LIMIT_SECONDS
        future = asyncio.ensure_future(self._gpu_run(start, limit))
        future.add_done_callback(self._gpu_restore_timeout)
        hub_runs_it = spawn is not None and not spawn.done()
        whole = spawn if hub_runs_it else future
        whole.add_done_callback(functools.partial(self._gpu_settled, start, hub_runs_it))
        return future

    def _gpu_refuse_return(self) -> None:
        """Refuse this start if the GPU service requested it as a restart and the user has signed out in the meantime.

        The service restarts servers from which it took the GPU, and marks the request with the header `RETURNS_HEADER`.
        The service does not know of a sign-out while the server is stopped; only the hub knows who is signed in.

        Raises:
            web.HTTPError: the refusal.
        """
        request = getattr(self.handler, "request", None)
        ask = getattr(self.authenticator, "sign_on_return_problem", None)
        is_return = request is not None and RETURNS_HEADER in request.headers
        if is_return and ask is not None and (problem := ask(self.user)):
            raise spawn_errors.refusal(problem, reason="signed-out", status=403)

    async def _gpu_run(self, start: Start, limit: float) -> Any:
        try:
            await self._gpu_check_others(start.options)
            start.grant = await self._gpu_admission(start)
        except web.HTTPError as error:
            spawn_errors.undo_failure_count(self, error)
            raise
        if self._gpu_hub_ends():
            await asyncio.Event().wait()  # do not start a server now; the hub cancels this, and the lease is kept
        report_starting(start, self._gpu_service.titles)
        try:
            return await self._gpu_timed(start, limit)
        except asyncio.TimeoutError as error:
            self._gpu_restore_timeout()  # the hub logs this value
            if isinstance(error, spawn_errors.StartTookTooLong):
                raise
            raise spawn_errors.StartTookTooLong(limit) from error
        except web.HTTPError as error:
            spawn_errors.undo_failure_count(self, error)
            raise

    async def _gpu_timed(self, start: Start, limit: float) -> Any:
        """Launch the server under its lease and return its address.

        Args:
            start: the admitted start.
            limit: the longest time of the launch, in seconds.

        Raises:
            TimeoutError: the launch takes longer than `limit` seconds.
        """
        return await asyncio.wait_for(self._gpu_launch(start), limit)

    async def _gpu_launch(self, start: Start) -> Any:
        self._gpu_ran = True
        address = await maybe_future(super().start())
        answer = self._gpu_report_started(start, Started(start.attempt, *self._gpu_process()))
        if answer is not None and start.grant is not None and start.grant.lease:  # CPU only needs no confirmation
            await self._gpu_await_claim(start, answer)
        return address

    async def _gpu_await_claim(self, start: Start, answer: asyncio.Future[ServiceRefused | None]) -> None:
        """Wait until the GPU service has confirmed that the new server holds its lease, at most `CLAIM_SECONDS`.

        If the answer comes later, `_gpu_claimed_late` handles it.

        Args:
            start: the start of the server.
            answer: the service's answer to the report that the server has started; its result is None if it was
                accepted.

        Raises:
            web.HTTPError: the lease is gone. The hub then stops the server.
        """
        await asyncio.wait({answer}, timeout=CLAIM_SECONDS)
        if not answer.done():
            answer.add_done_callback(functools.partial(self._gpu_claimed_late, start))
        else:
            self._gpu_check_claim(start, answer.result())

    def _gpu_check_claim(self, start: Start, answer: ServiceRefused | None) -> None:
        if spawn_errors.is_lease_gone(answer):
            start.over = True
            log = f"{self._log_name}: the server was started and is stopped again: {answer}"
            raise spawn_errors.refusal((spawn_errors.LEASE_GONE,), reason="lease-gone", log_message=log, status=409)

    def _gpu_claimed_late(self, start: Start, answer: asyncio.Future[ServiceRefused | None]) -> None:
        """Stop the server if its lease is gone according to an answer that comes after `CLAIM_SECONDS`.

        Args:
            start: the start of the server. If the server is ready or another start has begun meanwhile, nothing is
                stopped.
            answer: the GPU service's answer to the report that the server has started; its result is None if it was
                accepted.
        """
        if answer.cancelled() or not spawn_errors.is_lease_gone(answer.result()):
            return
        if self._gpu_start is not start or self.ready:
            return  # the ticket of a ready server has ended, and the service has found the server itself
        start.over = True
        self.log.warning("%s: %s (%s)", self._log_name, spawn_errors.LEASE_GONE.message, answer.result())
        self._gpu_in_background(self.stop(now=True))

    def _gpu_restore_timeout(self, _: object = None) -> None:
        if self._gpu_admin_timeout is not None:
            self.start_timeout, self._gpu_admin_timeout = self._gpu_admin_timeout, None

    def _gpu_process(self) -> tuple[int | None, int | None]:
        """Return pid and start time of the server's process; None for a value that the spawner does not know."""
        return None, None

    def get_env(self) -> dict[str, Any]:
        """Return the environment of the spawner behind this mixin, with the variables of the lease.

        A lease is a server's right to a GPU. Without a lease, the variables hide every GPU from the server.
        """
        env: dict[str, Any] = super().get_env()
        grant = self._gpu_start.grant if self._gpu_start is not None else None
        if grant is None or grant.pod is None or not grant.lease:
            env.update(CPU_ENVIRONMENT)
        else:
            for name in CPU_ENVIRONMENT:
                env.pop(name, None)  # the cluster determines which devices the pod sees
        env.update(grant.environment if grant is not None else {})
        env.setdefault("JUPYTERHUB_GPU_SERVICE_URL", self.gpu_service_connect_url or self.gpu_service_url)
        if self.gpu_service_uid is not None:
            env["JUPYTERHUB_GPU_SERVICE_UID"] = str(self.gpu_service_uid)
        return env

    # ---------------------------------------------------------------- the line

    @property
    def _gpu_service(self) -> GpuServiceClient:
        return gpu_service(self.gpu_service_url, self.gpu_hub_secret, self.gpu_service_uid)

    @property
    def gpu_groups(self) -> tuple[str, ...]:
        """The hub groups of the server's owner, even if an administrator starts the server.

        The groups decide which offers are allowed.
        """
        groups = getattr(self.user, "groups", ())
        return tuple(sorted(group.name for group in groups)) if isinstance(groups, Iterable) else ()

    async def _gpu_admission(self, start: Start) -> LeaseGrant | None:
        """Wait in line until the GPU service admits this start.

        Returns:
            The lease. None if a CPU-only server starts without the service, which does not answer or is not set up.

        Raises:
            web.HTTPError: the user cannot have this server now.
        """
        if not self.gpu_service_url:
            self.log.warning("%s: no GPU, this hub has no GPU service: configure(c) was not called", self._log_name)
            return None
        service = self._gpu_service
        ask = Ask(
            user=self.user.name,
            server=self.name,
            offers=start.offers,
            options=start.options.to_dict(),
            groups=self.gpu_groups,
            accepted=start.accepted.at if start.accepted is not None else None,
            demands=await self._gpu_demands(start) if start.wants_gpu else None,
        )
        with service.waiting(ask.user, ask.server) as updates:
            state = await self._gpu_ask(start, ask)
            while True:
                if isinstance(state, ServiceAway):
                    self.log.warning("%s: starting CPU only without the GPU service: %s", self._log_name, state)
                    return None
                if state.answer == "admit" and state.grant is not None:
                    return state.grant
                if state.answer != "wait":
                    start.over = True
                    raise spawn_errors.place_ended(state, self._log_name)
                await self._gpu_learn_titles(state)
                report_waiting(start, state, service.titles)
                state = await self._gpu_next(start, ask, updates)

    async def _gpu_demands(self, start: Start) -> PodDemands | None:
        """Return what the pod of this start will require of a node, such as labels and tolerations.

        None if servers are not pods, or if the requirements cannot be found before the start.
        """
        return None

    async def _gpu_next(self, start: Start, ask: Ask, updates: asyncio.Queue[Update]) -> TicketStatus | ServiceAway:
        """Wait until the ticket (place in line) of this start changes, and return its new status.

        Args:
            ask: the request of the start, which is repeated if an update may have been missed.
            updates: the updates about this server from the GPU service's stream of changes.

        Returns:
            The status. `ServiceAway` if the service does not answer and the start accepts CPU only, which needs no
            service.
        """
        while True:
            # spread the requests of all waiting starts
            pause = self.gpu_ask_again_seconds * random.uniform(0.8, 1.0)
            try:
                update = await with_timeout(pause, updates.get())
            except asyncio.TimeoutError:
                return await self._gpu_ask(start, ask)
            if isinstance(update, TicketStatus):
                if update.ticket == start.ticket and start.takes(update):
                    return update
            elif not isinstance(update, TicketList) or start.ticket not in update.tickets:
                return await self._gpu_ask(start, ask)  # after a short break the list shows that the ticket still waits

    async def _gpu_ask(self, start: Start, ask: Ask) -> TicketStatus | ServiceAway:
        """Ask the GPU service for admission until it answers.

        The request contains the id of the start's ticket (place in line), if the start already has one.

        Returns:
            The status of the ticket. `ServiceAway` if the service does not answer and the start accepts CPU only, which
            needs no service.

        Raises:
            web.HTTPError: the service refused the start, or has not answered for `gpu_service_timeout_seconds`.
        """
        asked = self._gpu_service.ask(
            replace(ask, ticket=start.ticket or ""),
            on_unanswered=functools.partial(report_unanswered, start),
            patience=self.gpu_service_timeout_seconds if start.wants_gpu else 0,
        )
        # if this is cancelled meanwhile, the ticket is still remembered and its end can be reported
        asked.add_done_callback(functools.partial(self._gpu_answered, start))
        try:
            await asyncio.wait({asked}, timeout=None if start.wants_gpu else self.gpu_cpu_service_timeout_seconds)
        finally:
            self._gpu_service.withdraw(asked)
        if not asked.done():
            return ServiceAway("no answer in time", datetime.now(timezone.utc))
        try:
            return asked.result()
        except ServiceAway as away:
            if not start.wants_gpu:
                return away
            start.over = True
            raise spawn_errors.service_away(away.since, kept=start.ticket is not None) from away
        except ServiceRefused as error:
            start.over = True
            raise spawn_errors.refused_by_service(error, self._log_name) from error

    def _gpu_answered(self, start: Start, asked: asyncio.Future[TicketStatus]) -> None:
        """Keep the ticket (place in line) from the GPU service's answer, and remove the hub's own record of the start.

        This is done for a cancelled start too, so that its end can be reported for the right ticket.

        Args:
            start: the start.
            asked: the finished request for admission.
        """
        if not asked.cancelled() and asked.exception() is None:
            start.takes(asked.result())
            self._gpu_settle_accepted(start.accepted)

    async def _gpu_learn_titles(self, state: TicketStatus) -> None:
        """Load the administrator's titles of the offers for the waiting page, if this hub has not loaded them yet."""
        service = self._gpu_service
        if all(offer in service.titles for offer in state.offers):
            return
        try:
            await service.form(self.user.name, self.name, self.gpu_groups, admin=False)
        except (ServiceAway, ServiceRefused) as error:
            self.log.debug("No titles of offers: %s", error)  # the default titles are shown

    # ---------------------------------------------------------------- how it ended

    def _gpu_settled(self, start: Start, hub_runs_it: bool, done: asyncio.Future[Any]) -> None:
        """Report to the GPU service how the whole spawn ended: ready, cancelled or failed.

        Args:
            hub_runs_it: True if `done` is the hub's spawn future. False without a hub: `done` is then the future of
                `start`.
            done: the finished future.
        """
        if done.cancelled():
            if not self._gpu_ran:
                self.server = None  # otherwise the hub shows a cancelled start as a ready server until its stop is done
            self._gpu_in_background(self._gpu_confirm_left(start))
            return
        error = done.exception()
        self._gpu_settle_accepted(start.accepted)
        failed = spawn_errors.explain_failure(error, start.offer, self.http_timeout)
        if start.ticket is None or start.over:
            return
        if error is None and (self.ready or not hub_runs_it):
            self._gpu_report_started(start, Started(start.attempt, *self._gpu_process(), ready=True))
            return
        self._gpu_report_ended(start, replace(failed, attempt=start.attempt, log=failed.log or self._gpu_log_tail()))

    def _gpu_log_tail(self) -> str:
        """Return the last lines of the server's log; "" if the spawner does not keep it."""
        return ""

    async def _gpu_confirm_left(self, start: Start) -> None:
        """Report that the user left the line by cancelling the start, unless the hub itself is shutting down.

        A user's stop and a shutdown both cancel the start, so this waits to see whether the hub still runs. A start
        that a shutdown cancelled keeps its place in line.
        """
        await asyncio.sleep(CONFIRM_SECONDS)
        if self._gpu_hub_ends():
            return
        self._gpu_settle_accepted(start.accepted)
        if start.ticket is not None and not start.over:
            self._gpu_report_ended(start, Ended(start.attempt, "left"))

    def _gpu_hub_ends(self) -> bool:
        """Whether this hub is shutting down.

        One of two signs is enough: the hub's clean-up has cancelled the stream of updates from the GPU service, or a
        task with the name of that clean-up is running.
        """
        running = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
        return self._gpu_service.going_down or any(name.endswith("shutdown_cancel_tasks") for name in running)

    def _gpu_report_started(self, start: Start, message: Started) -> asyncio.Future[ServiceRefused | None] | None:
        ticket = start.ticket
        if ticket is None:
            return None
        return self._gpu_in_background(self._gpu_send(lambda: self._gpu_service.started(ticket, message)))

    def _gpu_report_ended(self, start: Start, message: Ended) -> None:
        ticket = start.ticket
        if ticket is not None:
            start.reported = self._gpu_in_background(self._gpu_send(lambda: self._gpu_service.ended(ticket, message)))

    async def _gpu_send(self, send: Callable[[], Awaitable[object]]) -> ServiceRefused | None:
        """Send a report to the GPU service, and repeat it until the service answers.

        There is one attempt after each of the pauses `RETRY_SECONDS`.

        Args:
            send: sends the report once.

        Returns:
            The refusal if the service refused the report. None if the service accepted it or never answered.
        """
        for pause in RETRY_SECONDS:
            await asyncio.sleep(pause)
            try:
                await send()
                return None
            except ServiceAway as error:
                self.log.debug("%s: not sent to the GPU service: %s", self._log_name, error)
            except ServiceRefused as error:
                self.log.info("%s: the GPU service did not take a message: %s", self._log_name, error)
                return error
        return None

    def _gpu_in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run a coroutine in the background, and return its future.

        A reference to the future is kept, so that it is not garbage collected before its end.

        Args:
            work: the coroutine.
        """
        task = asyncio.ensure_future(work)
        _BACKGROUND.add(task)
        task.add_done_callback(_BACKGROUND.discard)
        return task

    async def run_post_stop_hook(self) -> None:
        """Report the end of the server to the GPU service, whether it was stopped or ended by itself.

        The stop does not wait for the report and cannot fail because of it. Only if the hub is shutting down, the stop
        waits for at most `LAST_REPORT_SECONDS`.
        """
        if self._gpu_ran:
            self._gpu_ran = False
            asked, self._gpu_stop_asked = self._gpu_stop_asked, False
            closing = asked and self._gpu_hub_ends()
            why, code = self._gpu_ending()
            polled = None if closing else await self._gpu_is_over()
            message = Stopped(
                self.user.name, self.name, reason=code, asked=asked, closing=closing, reasons=why, polled=polled
            )
            report = self._gpu_in_background(self._gpu_report_stopped(message))
            if closing:
                await asyncio.wait({report}, timeout=LAST_REPORT_SECONDS)
        await maybe_future(super().run_post_stop_hook())

    async def _gpu_is_over(self) -> bool | None:
        """Return whether the server is gone after its stop, which may have failed.

        None if the poll failed or took longer than `POLL_SECONDS`.
        """
        try:
            return await with_timeout(POLL_SECONDS, self.poll()) is not None
        except Exception as error:  # noqa: BLE001  any spawner's poll may raise anything
            self.log.debug("%s: not polled after its stop: %s", self._log_name, error)
            return None

    def _gpu_ending(self) -> tuple[tuple[Reason, ...], str]:
        """Return why a server ended by itself: reasons for the user, and the label of the metric for the GPU service.

        Both are empty if the server was stopped or the reason is not known.
        """
        return (), ""

    async def _gpu_report_stopped(self, message: Stopped) -> None:
        try:
            await self._gpu_service.stopped(message)
        except (ServiceAway, ServiceRefused) as error:
            self.log.debug("%s: the GPU service did not take the report of the stop: %s", self._log_name, error)

    # ---------------------------------------------------------------- what the waiting page shows

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield one event for each change of this start. The waiting page reads the key ``gpu`` of each event."""
        start = self._gpu_start
        if start is None:
            return
        async for event in start.follow():
            yield event

    @property
    def gpu_page(self) -> dict[str, Any]:
        """Variables of the template ``spawn_pending.html``: the state of the start for a page without a script."""
        start = self._gpu_start
        event = start.latest if start is not None else None
        # before its first event a start was just asked for, and hooks may still run
        options = self.gpu_saved(self.user_options) or UserOptions()
        return {
            "event": event,
            "gpu": event["gpu"] if event else {},
            "wants_gpu": start is not None and start.wants_gpu,
            "now": utc(datetime.now(timezone.utc)),
            "unopened_minutes": f"{self.gpu_unopened_minutes:g}" if self.gpu_unopened_minutes else "",
            "notify": NOTIFY if options.notify_when_ready else "",
            "notice_hint": self.gpu_notice_channel_text if options.notify_when_ready else "",
            "options": dict(options.others),
            "cpu_server": self.gpu_cpu_server_name
            if self.gpu_allow_cpu_meanwhile and self.user.allow_named_servers and self.name != self.gpu_cpu_server_name
            else "",
        }

    async def stop(self, now: bool = False) -> None:
        """Stop as the spawner behind this mixin does. `run_post_stop_hook` then reports the stop to the GPU service."""
        self._gpu_stop_asked = True  # the hub calls this only while the server runs
        await maybe_future(super().stop(now=now))

    async def poll(self) -> Any:
        return await maybe_future(super().poll())


_BACKGROUND: set[asyncio.Future[Any]] = set()  # background tasks that are not done
