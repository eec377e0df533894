"""What every spawner of ours does about GPUs: it asks before it starts, waits in line, and starts under its lease.

Sits in front of a real spawner (``class GpuLocalSpawner(GpuSpawnerMixin, LocalProcessSpawner)``) and changes nothing of
how that one starts a server. The service decides; this asks, shows and obeys. **Never a GPU without a lease.**
Not here: what the user chose (``user_options.py``), the process itself (``local.py``), the rules of the line
(``core/queue/admission.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
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
from hub_extensions.core.messages import Ask, Ended, LeaseGrant, Started, Stopped, TicketStatus
from hub_extensions.core.offers.user_options import NOTIFY, others_of
from hub_extensions.core.text.reasons import Reason
from hub_extensions.spawner import spawn_errors
from hub_extensions.spawner.accepted_starts import AcceptedStart
from hub_extensions.spawner.pages.reader import PageReader
from hub_extensions.spawner.pages.start_progress import (
    Start,
    report_starting,
    report_unanswered,
    report_waiting,
)
from hub_extensions.spawner.pages.texts import utc
from hub_extensions.spawner.returns import refuse_return
from hub_extensions.spawner.start_recovery import StartRecovery

NO_LIMIT_SECONDS = 10 * 365 * 24 * 3600
"""What the hub's own clock is set to while we wait: the limit of the start itself is kept by our clock."""
CONFIRM_SECONDS = 3.0
"""A cancelled start is a user's stop only if the hub still lives this long after it."""
RETRY_SECONDS = (0.0, 1.0, 3.0, 10.0, 30.0)
"""When a message is tried again. The service looks for itself, so giving up loses nothing but time."""
CLAIM_SECONDS = 5.0
"""So long a started process waits for the answer that its lease stands. The service itself ends what has none."""
LAST_REPORT_SECONDS = 1.0
"""So long a hub that ends waits for the service to take the report of a stop: what it leaves behind is cancelled."""
POLL_SECONDS = 2.0
"""So long the end of a stop waits for the spawner's poll."""
CPU_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "void", "NVIDIA_VISIBLE_DEVICES": "void"}

T = TypeVar("T")


class GpuSpawnerMixin(StartRecovery, PageReader, Spawner):  # type: ignore[misc]  # jupyterhub has no types
    """GPU offers, the line and the lease, for any spawner of JupyterHub 5.3 to 6."""

    gpu_service_url = Unicode(
        help="Address at which the hub reaches the GPU service, ending in /services/gpu. Set by configure(c)."
    ).tag(config=True)
    gpu_servers_url = Unicode(
        help="Address at which users' servers reach the GPU service. Empty: the one at which the hub does. Set by "
        "configure(c)."
    ).tag(config=True)
    gpu_service_account = Integer(
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
    gpu_notice_hint = Unicode(
        help="How users can have themselves told that their GPU is ready, in the form's words; empty: the form does "
        "not ask. Set by configure(c) to what c.GpuNotices can do."
    ).tag(config=True)
    gpu_patience_seconds = Float(
        600.0,
        help="How long a GPU choice waits for a GPU service that does not answer before it is refused, in seconds.",
    ).tag(config=True)
    gpu_cpu_ask_seconds = Float(
        3.0,
        help="How long a CPU-only start waits for the answer of the GPU service before it starts without, in seconds.",
    ).tag(config=True)
    gpu_other_options = List(
        Unicode(),
        help="Names of further user options that your own hooks read; every other unknown name is refused.",
    ).tag(config=True)

    gpu_ask_again_seconds = 60.0
    """Who waits asks again this often, whatever was heard: no lost message costs more than this."""
    _gpu_start: Start | None = None
    _gpu_admin_timeout: int | None = None
    start_timeout: int
    http_timeout: int
    _gpu_ran = False
    _gpu_stop_asked = False

    # ---------------------------------------------------------------- start

    async def run_auth_state_hook(self, auth_state: Any) -> None:
        """As the real spawner does. In a start, hooks that take time come next: it is written down before them.

        The hub commits the record as soon as this returns to it. A page calls this, too.
        """
        spawn = self._spawn_future
        if self._start_pending and spawn is not None:
            with contextlib.suppress(web.HTTPError):  # `start` refuses it
                record = self._gpu_accept(self._gpu_checked(self.user_options))
                spawn.add_done_callback(functools.partial(self._gpu_not_begun, record))
        await super().run_auth_state_hook(auth_state)

    def _gpu_not_begun(self, record: AcceptedStart | None, done: asyncio.Future[Any]) -> None:
        """The spawn is over; where a hook refused it, or it was cancelled in one, `start` has no record of its own."""
        if record is not None and self._gpu_record is record:
            start = Start(offers=record.offers, accepted=record)
            self._gpu_later(self._gpu_confirm_left(start)) if done.cancelled() else self._gpu_settle_accepted(start)

    def start(self) -> asyncio.Future[Any]:
        """Wait in line, then start. Sync: the hub reads `start_timeout` as soon as this returns."""
        self._gpu_start = None
        spawn_errors.keep_ends_short(self.log)
        spawn = self._spawn_future
        try:
            options = self._gpu_checked(self.user_options if self.gpu_service_url else others_of(self.user_options))
            refuse_return(self)
        except web.HTTPError as error:
            spawn_errors.spare_the_count(self, error)
            raise
        start = self._gpu_start = Start(offers=self.gpu_offers_of(options))
        start.accepted = self._gpu_accept(options)

        if self._gpu_admin_timeout is None:
            self._gpu_admin_timeout = self.start_timeout
        limit, self.start_timeout = self._gpu_admin_timeout, NO_LIMIT_SECONDS
        future = asyncio.ensure_future(self._gpu_run(start, options, limit))
        future.add_done_callback(self._gpu_restore_timeout)
        hub_runs_it = spawn is not None and not spawn.done()
        whole = spawn if hub_runs_it else future
        whole.add_done_callback(functools.partial(self._gpu_settled, start, hub_runs_it))
        return future

    async def _gpu_run(self, start: Start, options: Mapping[str, Any], limit: float) -> Any:
        try:
            await self._gpu_check_others(options)
            start.grant = await self._gpu_admission(start, options)
        except web.HTTPError as error:
            spawn_errors.spare_the_count(self, error)
            raise
        if self._gpu_hub_ends():
            await asyncio.Event().wait()  # nothing is started any more; the hub cancels us, the lease is kept
        report_starting(start, self._gpu_service.titles)
        try:
            return await self._gpu_timed(start, limit)
        except asyncio.TimeoutError as error:
            self._gpu_restore_timeout()  # the hub's log names it
            if isinstance(error, spawn_errors.StartTookTooLong):
                raise
            raise spawn_errors.StartTookTooLong(limit) from error
        except web.HTTPError as error:
            spawn_errors.spare_the_count(self, error)
            raise

    async def _gpu_timed(self, start: Start, limit: float) -> Any:
        """Launch within `limit` seconds. Raises TimeoutError."""
        return await asyncio.wait_for(self._gpu_launch(start), limit)

    async def _gpu_launch(self, start: Start) -> Any:
        self._gpu_ran = True
        address = await maybe_future(super().start())
        pid, pid_started = self._gpu_process()
        await self._gpu_claim(start, Started(start.attempt, pid, pid_started))
        return address

    async def _gpu_claim(self, start: Start, message: Started) -> None:
        """Report the process. Raises a refusal, which stops it, where its lease was taken away meanwhile."""
        answer = self._gpu_report_started(start, message)
        if answer is None or start.grant is None or not start.grant.lease:
            return  # CPU only waits for nobody
        await self._gpu_await_claim(start, answer)

    async def _gpu_await_claim(self, start: Start, answer: asyncio.Future[ServiceRefused | None]) -> None:
        await asyncio.wait({answer}, timeout=CLAIM_SECONDS)
        if not answer.done():
            answer.add_done_callback(functools.partial(self._gpu_claimed_late, start))
        else:
            self._gpu_check_claim(start, answer.result())

    def _gpu_check_claim(self, start: Start, answer: ServiceRefused | None) -> None:
        if spawn_errors.takes_the_lease(answer):
            start.over = True
            log = f"{self._log_name}: the server was started and is stopped again: {answer}"
            raise spawn_errors.refusal((spawn_errors.LEASE_GONE,), reason="lease-gone", log_message=log, status=409)

    def _gpu_claimed_late(self, start: Start, answer: asyncio.Future[ServiceRefused | None]) -> None:
        """The service was away when the process was started, and says only now that the lease is gone."""
        if answer.cancelled() or not spawn_errors.takes_the_lease(answer.result()):
            return
        if self._gpu_start is not start or self.ready:
            return  # a server that is ready has no ticket any more, and the service found it by itself
        start.over = True
        self.log.warning("%s: %s (%s)", self._log_name, spawn_errors.LEASE_GONE.message, answer.result())
        self._gpu_later(self.stop(now=True))

    def _gpu_restore_timeout(self, _: object = None) -> None:
        if self._gpu_admin_timeout is not None:
            self.start_timeout, self._gpu_admin_timeout = self._gpu_admin_timeout, None

    def _gpu_process(self) -> tuple[int | None, int | None]:
        """Pid and start time of the server, where the spawner knows them."""
        return None, None

    def get_env(self) -> dict[str, Any]:
        """The admin's environment with the lease's variables on top; without a lease no GPU is visible."""
        env: dict[str, Any] = super().get_env()
        grant = self._gpu_start.grant if self._gpu_start is not None else None
        if grant is None or grant.pod is None or not grant.lease:
            env.update(CPU_ENVIRONMENT)
        else:
            for name in CPU_ENVIRONMENT:
                env.pop(name, None)  # whoever places the pod says which devices it sees
        env.update(grant.environment if grant is not None else {})
        env.setdefault("JUPYTERHUB_GPU_SERVICE_URL", self.gpu_servers_url or self.gpu_service_url)
        if self.gpu_service_account is not None:
            env["JUPYTERHUB_GPU_SERVICE_ACCOUNT"] = str(self.gpu_service_account)
        return env

    # ---------------------------------------------------------------- the line

    @property
    def _gpu_service(self) -> GpuServiceClient:
        return gpu_service(self.gpu_service_url, self.gpu_hub_secret, self.gpu_service_account)

    @property
    def gpu_groups(self) -> tuple[str, ...]:
        """The groups of the user whose server this is, whoever starts it."""
        groups = getattr(self.user, "groups", ())
        return tuple(sorted(group.name for group in groups)) if isinstance(groups, Iterable) else ()

    async def _gpu_admission(self, start: Start, options: Mapping[str, Any]) -> LeaseGrant | None:
        """Wait until admitted. None: CPU only, without the service. Raises a refusal."""
        if not self.gpu_service_url:
            self.log.warning("%s: no GPU, this hub has no GPU service: configure(c) was not called", self._log_name)
            return None
        service = self._gpu_service
        ask = Ask(
            user=self.user.name,
            server=self.name,
            offers=start.offers,
            options=options,
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
                grant = self._gpu_verdict(start, state)
                if grant is not None:
                    return grant
                await self._gpu_learn_titles(state)
                report_waiting(start, state, service.titles)
                state = await self._gpu_next(start, ask, updates)

    async def _gpu_demands(self, start: Start) -> PodDemands | None:
        """What the pod of this start will demand of a node, where there are pods and it is known before they are."""
        return None

    def _gpu_verdict(self, start: Start, state: TicketStatus) -> LeaseGrant | None:
        """The grant of an admitted ticket, None for one that waits. Raises a refusal."""
        if state.answer == "wait":
            return None
        if state.answer == "admit" and state.grant is not None:
            return state.grant
        start.over = True
        raise spawn_errors.place_ended(state, self._log_name)

    async def _gpu_next(self, start: Start, ask: Ask, updates: asyncio.Queue[Update]) -> TicketStatus | ServiceAway:
        """What the service says next about this start: heard, or asked for where something may have been missed."""
        while True:
            # not everybody at once
            pause = self.gpu_ask_again_seconds * random.uniform(0.8, 1.0)
            try:
                update = await with_timeout(pause, updates.get())
            except asyncio.TimeoutError:
                return await self._gpu_ask(start, ask)
            if isinstance(update, TicketStatus):
                if update.ticket == start.ticket and start.takes(update):
                    return update
            elif not isinstance(update, TicketList) or start.ticket not in update.tickets:
                return await self._gpu_ask(start, ask)  # a short break of the stream alone is no news

    async def _gpu_ask(self, start: Start, ask: Ask) -> TicketStatus | ServiceAway:
        """Ask the service, with the ticket that we have, until it answers. ServiceAway: CPU only starts without it.

        Raises a refusal, also when nobody has answered for as long as patience lasts.
        """
        asked = self._gpu_service.ask(
            replace(ask, ticket=start.ticket or ""),
            hear=functools.partial(report_unanswered, start),
            patience=self.gpu_patience_seconds if start.wants_gpu else 0,
        )
        # cancelled half-way, the ticket is known all the same and its end can be reported
        asked.add_done_callback(functools.partial(self._gpu_answered, start))
        try:
            await asyncio.wait({asked}, timeout=None if start.wants_gpu else self.gpu_cpu_ask_seconds)
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
        """Also of a start that was cancelled meanwhile: from now on the service knows it."""
        if not asked.cancelled() and asked.exception() is None:
            start.takes(asked.result())
            self._gpu_settle_accepted(start)

    async def _gpu_learn_titles(self, state: TicketStatus) -> None:
        """The admin's words for the offers, for the waiting page (a hub that just started has none yet)."""
        service = self._gpu_service
        if all(offer in service.titles for offer in state.offers):
            return
        try:
            await service.form(self.user.name, self.name, self.gpu_groups, admin=False)
        except (ServiceAway, ServiceRefused) as error:
            self.log.debug("No titles of offers: %s", error)  # our own words are used

    # ---------------------------------------------------------------- how it ended

    def _gpu_settled(self, start: Start, hub_runs_it: bool, done: asyncio.Future[Any]) -> None:
        """The whole spawn is over: ready, cancelled or failed."""
        if done.cancelled():
            if not self._gpu_ran:
                self.server = None  # else the hub takes a cancelled start for a ready server until its stop is done
            self._gpu_later(self._gpu_confirm_left(start))
            return
        error = done.exception()
        self._gpu_settle_accepted(start)
        failed = spawn_errors.explain_failure(error, start.offer, self.http_timeout)
        if start.ticket is None or start.over:
            return
        if error is None and (self.ready or not hub_runs_it):
            self._gpu_report_started(start, Started(start.attempt, *self._gpu_process(), ready=True))
            return
        self._gpu_report_ended(start, replace(failed, attempt=start.attempt, log=failed.log or self._gpu_log_tail()))

    def _gpu_log_tail(self) -> str:
        """Of what the server wrote, where the spawner keeps it."""
        return ""

    async def _gpu_confirm_left(self, start: Start) -> None:
        """A cancel is a user's stop, or the hub's own end, and both look the same: wait and see who is still here."""
        await asyncio.sleep(CONFIRM_SECONDS)
        if self._gpu_hub_ends():
            return
        self._gpu_settle_accepted(start)
        if start.ticket is not None and not start.over:
            self._gpu_report_ended(start, Ended(start.attempt, "left"))

    def _gpu_hub_ends(self) -> bool:
        """Is this hub on its way down? Its clean-up stops the services long before it cancels us."""
        running = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
        return self._gpu_service.going_down or any(name.endswith("shutdown_cancel_tasks") for name in running)

    def _gpu_report_started(self, start: Start, message: Started) -> asyncio.Future[ServiceRefused | None] | None:
        ticket = start.ticket
        if ticket is None:
            return None
        return self._gpu_later(self._gpu_send(lambda: self._gpu_service.started(ticket, message)))

    def _gpu_report_ended(self, start: Start, message: Ended) -> None:
        ticket = start.ticket
        if ticket is not None:
            start.reported = self._gpu_later(self._gpu_send(lambda: self._gpu_service.ended(ticket, message)))

    async def _gpu_send(self, send: Callable[[], Awaitable[object]]) -> ServiceRefused | None:
        """Send it until it was taken; the refusal where it was not taken."""
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

    def _gpu_later(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run it beside us; kept until it is done, so that it is not collected half-way."""
        task = asyncio.ensure_future(work)
        _LATER.add(task)
        task.add_done_callback(_LATER.discard)
        return task

    async def run_post_stop_hook(self) -> None:
        """However the server ended: a hint to the service. No stop fails of it; only a hub that ends waits for it."""
        if self._gpu_ran:
            self._gpu_ran = False
            asked, self._gpu_stop_asked = self._gpu_stop_asked, False
            closing = asked and self._gpu_hub_ends()
            why, code = self._gpu_ending()
            polled = None if closing else await self._gpu_is_over()
            message = Stopped(
                self.user.name, self.name, reason=code, asked=asked, closing=closing, reasons=why, polled=polled
            )
            report = self._gpu_later(self._gpu_report_stopped(message))
            if closing:
                await asyncio.wait({report}, timeout=LAST_REPORT_SECONDS)
        await maybe_future(super().run_post_stop_hook())

    async def _gpu_is_over(self) -> bool | None:
        """What the poll says after a stop, which may have failed; None: it does not answer in time."""
        try:
            return await with_timeout(POLL_SECONDS, self.poll()) is not None
        except Exception as error:  # noqa: BLE001  any spawner's poll may raise anything
            self.log.debug("%s: not polled after its stop: %s", self._log_name, error)
            return None

    def _gpu_ending(self) -> tuple[tuple[Reason, ...], str]:
        """Why a server ended by itself, and a code for it; empty where somebody stopped it, or it is not known."""
        return (), ""

    async def _gpu_report_stopped(self, message: Stopped) -> None:
        try:
            await self._gpu_service.stopped(message)
        except (ServiceAway, ServiceRefused) as error:
            self.log.debug("%s: the GPU service did not take the report of the stop: %s", self._log_name, error)

    # ---------------------------------------------------------------- what the waiting page shows

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """One event for each change of this start; the page reads ``gpu`` in it."""
        start = self._gpu_start
        if start is None:
            return
        async for event in start.follow():
            yield event

    @property
    def gpu_page(self) -> dict[str, Any]:
        """What ``spawn_pending.html`` shows before (or without) its script."""
        start = self._gpu_start
        event = start.latest if start is not None else None
        # `event` None: the start was just asked for
        return {
            "event": event,
            "gpu": event["gpu"] if event else {},
            "wants_gpu": start is not None and start.wants_gpu,
            "now": utc(datetime.now(timezone.utc)),
            "unopened_minutes": f"{self.gpu_unopened_minutes:g}" if self.gpu_unopened_minutes else "",
            "notify": NOTIFY if self._gpu_notifies else "",
            "notice_hint": self.gpu_notice_hint if self._gpu_notifies else "",
            "options": others_of(self.user_options),
            "cpu_server": self.gpu_cpu_server_name
            if self.gpu_allow_cpu_meanwhile and self.user.allow_named_servers and self.name != self.gpu_cpu_server_name
            else "",
        }

    @property
    def _gpu_notifies(self) -> bool:
        """Its user asked to be told when this start is ready."""
        return isinstance(self.user_options, Mapping) and self.user_options.get(NOTIFY) is True

    async def stop(self, now: bool = False) -> None:
        """As the real spawner does; the service is told in `run_post_stop_hook`, after it."""
        self._gpu_stop_asked = True  # the hub asks only while the server runs
        await maybe_future(super().stop(now=now))

    async def poll(self) -> Any:
        """As the real spawner does."""
        return await maybe_future(super().poll())


_LATER: set[asyncio.Future[Any]] = set()
