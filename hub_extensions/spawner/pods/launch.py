"""Launch a server on a cluster: create its pod, follow it, and report why it does not start.

KubeSpawner creates the pod and waits until it runs. Meanwhile this module reads the pod's state from KubeSpawner's own
watch of pods and events, which costs the API server nothing. If the pod's node rejects it, a second pod is created.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from kubernetes_asyncio.client import ApiException

from hub_extensions.core.cluster.kueue import why_held, workload_name
from hub_extensions.core.cluster.pod_status import PodState, bound, machine_silent, pod_state, when
from hub_extensions.core.messages.offer_texts import default_title
from hub_extensions.core.offers.pod_request import KUEUE_QUEUE_LABEL
from hub_extensions.core.text.reasons import Reason, as_text, explain
from hub_extensions.spawner import spawn_errors
from hub_extensions.spawner.pages.start_progress import Start, report_cluster_away, report_pod
from hub_extensions.spawner.pods.api_rejections import ApiRejection, cluster_away, rejection_of
from hub_extensions.spawner.pods.kueue import local_queue
from hub_extensions.spawner.pods.pod_spawner import CLUSTER_ERRORS, PodSpawner, events_of

POLL_SECONDS = 0.5  # time between looks at the pod
GONE_SECONDS = 10.0
"""A pod that is missing for this long counts as gone. Before that, KubeSpawner may still create it in a second try."""
MOST_DOUBTS = 3
"""Retries of a launch after the answer "forbidden". An API server that has just started forbids everything."""
OVERDUE = timedelta(seconds=60)
"""If a pod still exists this long after its deletion time, its node is assumed not to answer."""
CHECK_SECONDS = 10.0  # time between questions to the service whether a node does not answer, for a pod without a node
AGAIN_SECONDS = (1.0, 30.0)  # first and longest pause between attempts while the cluster does not answer

ADVICE = {
    "image": "choose-another",
    "misconfigured": "tell-an-admin",
    "crashed": "start-again-or-tell",
    "out-of-memory": "choose-more-memory",
    "rejected": "tried-twice",
    "ended": "start-again",
}
START_AGAIN = "start-again-for-a-place"


class PodOver(Exception):
    """The pod of a launch has ended and will not become a server.

    Attributes:
        state: the last state of the pod, with the reason.
    """

    def __init__(self, state: PodState) -> None:
        super().__init__(state.reason)
        self.state = state


class Launch:
    """The launch of one start after its admission: everything from the creation of its pod until the server runs.

    `GpuKubeSpawner` makes one for each start. With a GPU, time spent waiting for the GPU in the cluster, or for a
    cluster that does not answer, does not count against `limit`. With CPU only, all time counts, because such a start
    waits in no line.

    Args:
        spawner: the server's spawner.
        start: the admitted start.
        limit: the administrator's ``start_timeout``, in seconds.
        max_wait: time after which the launch fails, including the time that does not count.
        outside_after: time without scheduling of the pod after which its GPU is assumed to be used by something
            outside this hub.
    """

    def __init__(
        self, spawner: PodSpawner, start: Start, limit: float, max_wait: timedelta, outside_after: timedelta
    ) -> None:
        self.spawner = spawner
        self.start = start
        self.limit, self.max_wait, self.outside_after = limit, max_wait, outside_after
        grant = start.grant
        self.has_gpu = bool(grant and grant.lease)
        self.queue = grant.pod.queue if grant and grant.pod else ""
        titles = spawner.gpu_titles
        self.wanted = titles.get(grant.offer, default_title(grant.offer)) if grant and self.has_gpu else ""
        self.uid = ""
        self.claim: asyncio.Future[Any] | None = None
        self._used = 0.0
        self._began = self._counted_at = asyncio.get_running_loop().time()
        self._logged = ""
        self._gone_since: float | None = None
        self._doubts = 0
        self._silent: bool | None = None
        self._asked_about: tuple[str, tuple[Reason, ...]] | None = None
        self._refresh_at = 0.0

    async def run(self) -> Any:
        """Launch the server and return its address as soon as it runs.

        Raises:
            web.HTTPError: the user cannot have this server now.
            StartTookTooLong: the limit is exceeded.
        """
        pause, retried = AGAIN_SECONDS[0], False
        while True:
            try:
                return await self._one_pod()
            except PodOver as over:
                await self.spawner.gpu_delete_pod()
                if over.state.reason != "rejected" or retried:
                    raise self._failed(over.state) from None
                retried = True
                self._log_state(over.state)
                self._report(PodState("rejected", (*over.state.reasons, explain("another-looked-for"))))
            except CLUSTER_ERRORS as error:
                rejection = self._rejection(error)
                await self._wait_for_the_cluster(rejection, pause * random.uniform(0.8, 1.2))
                pause = min(2 * pause, AGAIN_SECONDS[1])

    async def _one_pod(self) -> Any:
        """Create one pod, wait until it runs, and return the server's address.

        Raises:
            PodOver: the pod has ended.
            Exception: an error of KubeSpawner or of the cluster, or an error of `_follow`.
        """
        self.uid = ""
        token, launched = self.spawner.gpu_create_pod()
        try:
            while not launched.done():
                await asyncio.wait({launched}, timeout=POLL_SECONDS)
                if not launched.done():
                    self._follow(token)
            address = launched.result()
        finally:
            if not launched.done():
                launched.cancel()
                await asyncio.gather(launched, return_exceptions=True)
        if self.claim is not None and self.has_gpu:
            await self.spawner._gpu_await_claim(self.start, self.claim)
        return address

    # ---------------------------------------------------------------- following the pod

    def _follow(self, token: str) -> None:
        """Report the current state of the pod to the waiting page, and count the time against the limit.

        Args:
            token: token of this launch, by which its pod is recognised.

        Raises:
            PodOver: the pod has ended.
            web.HTTPError: the lease is gone, or the launch takes longer than `max_wait`.
            StartTookTooLong: the limit is exceeded.
        """
        pod, known = self.spawner.gpu_pod_of(token)
        state = PodState("creating")
        if pod is None and not self.uid:
            state = self._ending_last_pod(self.spawner.gpu_pod_being_ended())
        if pod is not None:
            self.uid = pod["metadata"]["uid"]
            if self.claim is None:
                self.claim = self.spawner.gpu_report_made(self.start)
            state = self._with_silent_machine(pod, self._with_queue_reason(self._state(pod)))
        elif self.uid and known:
            state = self._state(None)
        elif self.spawner.gpu_watch_has_ended():
            state = PodState("cluster-away", cluster_away("").reasons)
            self.spawner.gpu_restart_watch()
        if self.has_gpu and self.claim is not None and self.claim.done() and not self.claim.cancelled():
            self.spawner._gpu_check_claim(self.start, self.claim.result())
        if state.final:
            if not self._may_come_back(state):
                raise PodOver(state)
            state = PodState("creating")
        else:
            self._gone_since = None
        self._log_state(state)
        self._report(state)
        held = pod is not None and not bound(pod) and not state.lacks_other
        self._count(held=held or state.reason == "cluster-away", why=state.reasons)

    def _ending_last_pod(self, pod: Mapping[str, Any] | None) -> PodState:
        """Return what the waiting page shows while the pod of this launch does not exist yet.

        An earlier pod with the same name may have to end first.

        Args:
            pod: the earlier pod, which is being deleted; None without such a pod.

        Raises:
            web.HTTPError: the earlier pod cannot end, because its node does not answer.
        """
        if pod is None:
            return PodState("creating")
        ends = when(pod["metadata"]["deletionTimestamp"])
        runs = bound(pod) and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        if not runs or ends is None or datetime.now(timezone.utc) - ends < OVERDUE:
            return PodState("creating", (explain("last-one-ending"),))
        machine = pod["spec"]["nodeName"]
        log = f"{self.spawner._log_name}: its last pod should have ended at {ends:%H:%M:%S} UTC: {machine} is silent"
        lost = explain("last-server-lost", log_message=log)
        raise spawn_errors.refusal((lost,), reason=lost.reason, log_message=log, status=409)

    def _may_come_back(self, state: PodState) -> bool:
        """Whether a pod that does not exist may still appear, because KubeSpawner repeats a create that timed out.

        After `GONE_SECONDS` it is not expected any more.
        """
        now = asyncio.get_running_loop().time()
        if state.reason != "gone":
            return False
        self._gone_since = now if self._gone_since is None else self._gone_since
        return now - self._gone_since < GONE_SECONDS

    def _state(self, pod: Mapping[str, Any] | None, outside_after: timedelta | None = None) -> PodState:
        return pod_state(
            pod,
            events_of(self.spawner.event_reflector, self.uid),
            now=datetime.now(timezone.utc),
            queue=self.queue,
            wanted=self.wanted,
            outside_after=self.outside_after if outside_after is None else outside_after,
        )

    def _with_queue_reason(self, state: PodState) -> PodState:
        """Return the state of a pod. If Kueue holds the pod back, Kueue's reason is added.

        The reason is read from Kueue's queue, because the pod and its events do not show it.
        """
        ask = self.start.grant.pod if self.start.grant else None
        name = ask.labels.get(KUEUE_QUEUE_LABEL, "") if ask else ""
        if state.reason != "waiting-for-queue" or not name:
            return state
        queue = local_queue(self.spawner.namespace, name)
        if problem := queue.refresh(self.spawner.api.api_client, self.spawner.log):
            return replace(state, reasons=(problem,))
        held = queue.message_of(workload_name(events_of(self.spawner.event_reflector, self.uid)))
        return replace(state, reasons=(*state.reasons, *why_held(held)), log_message=held or state.log_message)

    def _with_silent_machine(self, pod: Mapping[str, Any], state: PodState) -> PodState:
        """Return the state of an unscheduled pod with the reason why its GPU is not available.

        Either the GPU's node does not answer, or something outside this hub uses the GPU. The pod does not show which,
        so the GPU service, which watches the nodes, is asked again whenever the scheduler's reason changes. Until the
        service has answered, the state does not claim that the GPU is used by something else.
        """
        if state.reason not in ("unscheduled", "outside") or not self.has_gpu:
            return state
        now, about = asyncio.get_running_loop().time(), (state.reason, state.reasons)
        if about != self._asked_about or now >= self._refresh_at:
            if about != self._asked_about and not self._silent:
                self._silent = None
            self._asked_about, self._refresh_at = about, now + CHECK_SECONDS
            self.spawner._gpu_in_background(self._refresh_machines(about))
        if self._silent and not state.lacks_other:
            return machine_silent(state, self.wanted)
        if state.reason == "outside" and self._silent is None:
            return self._state(pod, timedelta.max)
        return state

    async def _refresh_machines(self, about: tuple[str, tuple[Reason, ...]]) -> None:
        grant = self.start.grant
        silent = await self.spawner.gpu_silent_offers()
        if about == self._asked_about:  # else the reason has changed since
            self._silent = None if silent is None or grant is None else grant.offer in silent

    def _report(self, state: PodState) -> None:
        report_pod(self.start, state, self.spawner.gpu_titles)

    def _log_state(self, state: PodState) -> None:
        line = f"{state.reason}: {state.log_message}"
        if state.log_message and line != self._logged:
            self._logged = line
            self.spawner.log.info("%s: %s", self.spawner._log_name, line)

    def _count(self, *, held: bool, why: tuple[Reason, ...] = ()) -> None:
        now = asyncio.get_running_loop().time()
        passed, self._counted_at = now - self._counted_at, now
        if not (held and self.has_gpu):
            self._used += passed
        limit = self.spawner.gpu_limit_of_profile or self.limit
        if self._used > limit:
            raise spawn_errors.StartTookTooLong(limit, why)
        if now - self._began > self.max_wait.total_seconds():
            hours = self.max_wait / timedelta(hours=1)
            place = explain("no-place-in-line", queue=self.queue, hours=hours)
            if not self.queue:
                place = explain("no-place-in-cluster", hours=hours)
            reasons = (place, explain(START_AGAIN))
            log = f"{self.spawner._log_name}: {as_text(reasons)}"
            raise spawn_errors.refusal(reasons, reason="max-wait", log_message=log, status=409)

    # ---------------------------------------------------------------- when it does not work

    def _rejection(self, error: BaseException) -> ApiRejection:
        if isinstance(error, spawn_errors.StartTookTooLong):
            raise error
        if isinstance(error, ApiException):
            return rejection_of(int(error.status or 0), str(error.body or error.reason or ""), self.queue)
        return cluster_away(f"{type(error).__name__}: {error}")

    async def _wait_for_the_cluster(self, rejection: ApiRejection, seconds: float) -> None:
        doubted = rejection.reason == "cluster-rights" and self._doubts < MOST_DOUBTS
        self._doubts += doubted
        if not rejection.temporary and not doubted:
            log = f"{self.spawner._log_name}: {rejection.log_message}"
            raise spawn_errors.refusal(rejection.reasons, reason=rejection.reason, log_message=log, status=503)
        self._log_state(PodState(rejection.reason, log_message=rejection.log_message))
        report_cluster_away(self.start, rejection.reasons, self.spawner.gpu_titles)
        await asyncio.sleep(seconds)
        try:
            self._count(held=True)
        except spawn_errors.StartTookTooLong as late:
            # a CPU-only start is over its limit because the cluster does not answer, so name the cluster
            reasons = (rejection.reasons[0], explain("start-again-later"))
            log = f"{self.spawner._log_name}: {late}: {rejection.log_message}"
            raise spawn_errors.refusal(reasons, reason=rejection.reason, log_message=log) from late

    def _failed(self, state: PodState) -> Exception:
        reasons = (*state.reasons, explain(ADVICE.get(state.reason, START_AGAIN)))
        log = f"{self.spawner._log_name}: {state.reason}: {state.log_message or state.message}"
        return spawn_errors.refusal(reasons, reason=state.reason, log_message=log, status=503, log_tail=state.log_tail)
