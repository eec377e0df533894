"""One launch on a cluster: makes the pod, watches what becomes of it, and tells why where nothing does.

KubeSpawner makes the pod and waits until it runs; this looks on beside it, in the copies of pods and events that
KubeSpawner keeps, so that watching costs the API server nothing. A pod that its machine turned down is made once more.
Not here: the line (``base.py``), what the texts mean (``core/cluster/pod_status.py``, ``api_rejections.py``).
"""

from __future__ import annotations

import asyncio
import random
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from aiohttp import ClientError
from kubernetes_asyncio.client import ApiException

from hub_extensions.core.cluster.kueue import why_held, workload_name
from hub_extensions.core.cluster.pod_status import PodState, bound, pod_state, when
from hub_extensions.core.offer_words import offer_words
from hub_extensions.core.offers.pod_request import KUEUE_QUEUE_LABEL
from hub_extensions.spawner import spawn_errors
from hub_extensions.spawner.pages.start_progress import Start, say_cluster_away, say_pod
from hub_extensions.spawner.pods.api_rejections import TurnedDown, away, turned_down
from hub_extensions.spawner.pods.kueue import line_of

if TYPE_CHECKING:
    from hub_extensions.spawner.kube import GpuKubeSpawner

LOOK_SECONDS = 0.5
GONE_SECONDS = 10.0
"""A pod that is gone for so long does not come back by another try of the same create."""
MOST_DOUBTS = 3
"""An API server that is just starting may forbid everything: so often it is asked again before that is believed."""
DELETE_SECONDS = 15.0
"""So long a pod that failed is given to be gone. It is never deleted by force: see ``GpuKubeSpawner.stop``."""
OVERDUE = timedelta(seconds=60)
"""A pod that should have ended so long ago is on a machine that does not answer."""
AGAIN_SECONDS = (1.0, 30.0)
"""A cluster that does not answer is asked again after the first, doubled up to the second."""
EVENTS_SECONDS = 1.0
"""The events are sorted by pod at most this often, for all starts together."""

ADVICE = {
    "image": "Choose another one, or tell an admin.",
    "misconfigured": "Tell an admin.",
    "crashed": "Start it again; if it happens again, tell an admin.",
    "out-of-memory": "Choose one with more memory.",
    "rejected": "It was tried twice. Start it again; if it happens again, tell an admin.",
    "ended": "Start it again.",
}
START_AGAIN = "Start it again to get in line."


CLUSTER_ERRORS = (ApiException, ClientError, ConnectionError, asyncio.TimeoutError)


class PodOver(Exception):
    """The pod never becomes a server."""

    def __init__(self, state: PodState) -> None:
        super().__init__(state.word)
        self.state = state


class Launch:
    """One start of one server. `limit`: seconds that the start itself may take, as the admin has set it.

    Waiting for a GPU in the cluster, or for the cluster, does not count against the limit; the whole is bounded by
    ``gpu_max_wait_hours``. Waiting for anything else does, since a lease is held meanwhile. CPU only has no line to
    keep, so there every second counts.
    """

    def __init__(self, spawner: GpuKubeSpawner, start: Start, limit: float) -> None:
        self.spawner = spawner
        self.start = start
        self.limit = limit
        grant = start.grant
        self.has_gpu = bool(grant and grant.lease)
        self.queue = grant.pod.queue if grant and grant.pod else ""
        titles = spawner.gpu_titles
        self.wanted = titles.get(grant.offer, offer_words(grant.offer)) if grant and self.has_gpu else ""
        self.uid = ""
        self.claim: asyncio.Future[Any] | None = None
        self._used = 0.0
        self._began = self._looked = asyncio.get_running_loop().time()
        self._logged = ""
        self._gone_since: float | None = None
        self._doubts = 0

    async def run(self) -> Any:
        """The server's address.

        Raises:
            web.HTTPError: a refusal in words.
            StartTookTooLong: the limit is over.
        """
        pause, retried = AGAIN_SECONDS[0], False
        while True:
            try:
                return await self._one_pod()
            except PodOver as over:
                await self._delete()
                if over.state.word != "rejected" or retried:
                    raise self._failed(over.state) from None
                retried = True
                self._log_state(over.state)
                self._say(PodState("rejected", f"{over.state.sentence} Another one is looked for."))
            except CLUSTER_ERRORS as error:
                told = self._turned_down(error)
                await self._wait_for_the_cluster(told, pause * random.uniform(0.8, 1.2))
                pause = min(2 * pause, AGAIN_SECONDS[1])

    async def _one_pod(self) -> Any:
        """Make one pod and wait until it runs; its address. Raises PodOver, or what KubeSpawner does."""
        self.uid = ""
        token, launched = self.spawner.gpu_make_pod()
        try:
            while not launched.done():
                await asyncio.wait({launched}, timeout=LOOK_SECONDS)
                if not launched.done():
                    self._look(token)
            address = launched.result()
        finally:
            if not launched.done():
                launched.cancel()
                await asyncio.gather(launched, return_exceptions=True)
        if self.claim is not None and self.has_gpu:
            await self.spawner._gpu_await_claim(self.start, self.claim)
        return address

    # ---------------------------------------------------------------- looking on

    def _look(self, token: str) -> None:
        """Say what the pod does, and count the time. Raises PodOver, a refusal or StartTookTooLong."""
        pod, known = self.spawner.gpu_pod_of(token)
        state = PodState("creating")
        if pod is None and not self.uid:
            state = self._of_the_last(self.spawner.gpu_pod_being_ended())
        if pod is not None:
            self._seen(pod)
            state = self._of_its_line(self._state(pod))
        elif self.uid and known:
            state = self._state(None)
        elif self.spawner.gpu_watch_broke():
            state = PodState("cluster-away", away("").sentence)
            self.spawner.gpu_mend_watch()
        if self.has_gpu and self.claim is not None and self.claim.done() and not self.claim.cancelled():
            self.spawner._gpu_check_claim(self.start, self.claim.result())
        if state.final:
            if not self._may_come_back(state):
                raise PodOver(state)
            state = PodState("creating")
        else:
            self._gone_since = None
        self._log_state(state)
        self._say(state)
        held = pod is not None and not bound(pod) and not state.lacks_other
        self._count(held=held or state.word == "cluster-away", why=state.sentence)

    def _of_the_last(self, pod: Mapping[str, Any] | None) -> PodState:
        """This server cannot be made while the last one of that name is there. Raises a refusal where it stays."""
        if pod is None:
            return PodState("creating")
        ends = when(pod["metadata"]["deletionTimestamp"])
        runs = bound(pod) and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        if not runs or ends is None or datetime.now(timezone.utc) - ends < OVERDUE:
            return PodState("creating", "Your last server is still being ended.")
        machine = pod["spec"]["nodeName"]
        log = f"{self.spawner._log_name}: its last pod should have ended at {ends:%H:%M:%S} UTC: {machine} is silent"
        text = (
            "Your last server is on a machine that does not answer, so nobody knows whether it still writes to your "
            "files. A new one can start when the machine is back, or when an admin has removed the old one."
        )
        raise spawn_errors.refusal(text, reason="last-server-lost", log_message=log, status=409)

    def _may_come_back(self, state: PodState) -> bool:
        """A create that was answered too late is made again by KubeSpawner, which deletes its own first pod for it."""
        now = asyncio.get_running_loop().time()
        if state.word != "gone":
            return False
        self._gone_since = now if self._gone_since is None else self._gone_since
        return now - self._gone_since < GONE_SECONDS

    def _seen(self, pod: Mapping[str, Any]) -> None:
        self.uid = pod["metadata"]["uid"]
        if self.claim is None:
            self.claim = self.spawner.gpu_tell_made(self.start)

    def _state(self, pod: Mapping[str, Any] | None) -> PodState:
        return pod_state(
            pod,
            events_of(self.spawner.event_reflector, self.uid),
            now=datetime.now(timezone.utc),
            queue=self.queue,
            wanted=self.wanted,
            outside_after=timedelta(seconds=self.spawner.gpu_outside_seconds),
        )

    def _of_its_line(self, state: PodState) -> PodState:
        """What Kueue says of who waits is on none of the pod's own objects: it is read beside, and told here."""
        ask = self.start.grant.pod if self.start.grant else None
        name = ask.labels.get(KUEUE_QUEUE_LABEL, "") if ask else ""
        if state.word != "waiting-for-queue" or not name:
            return state
        line = line_of(self.spawner.namespace, name)
        if problem := line.look(self.spawner.api.api_client, self.spawner.log):
            return replace(state, sentence=problem)
        said = line.said_of(workload_name(events_of(self.spawner.event_reflector, self.uid)))
        return replace(state, sentence=f"{state.sentence} {why_held(said)}".strip(), log=said or state.log)

    def _say(self, state: PodState) -> None:
        say_pod(self.start, state, self.spawner.gpu_titles)

    def _log_state(self, state: PodState) -> None:
        line = f"{state.word}: {state.log}"
        if state.log and line != self._logged:
            self._logged = line
            self.spawner.log.info("%s: %s", self.spawner._log_name, line)

    def _count(self, *, held: bool, why: str = "") -> None:
        now = asyncio.get_running_loop().time()
        passed, self._looked = now - self._looked, now
        if not (held and self.has_gpu):
            self._used += passed
        limit = self.spawner.gpu_limit_of_profile or self.limit
        if self._used > limit:
            raise spawn_errors.StartTookTooLong(limit, why)
        hours = self.spawner.gpu_max_wait_hours
        if now - self._began > hours * 3600:
            who = self.queue or "The cluster"
            text = f"{who} had no place for it in {hours:g} h, so the wait has ended. {START_AGAIN}"
            raise spawn_errors.refusal(
                text, reason="max-wait", log_message=f"{self.spawner._log_name}: {text}", status=409
            )

    # ---------------------------------------------------------------- when it does not work

    def _turned_down(self, error: BaseException) -> TurnedDown:
        if isinstance(error, spawn_errors.StartTookTooLong):
            raise error
        if isinstance(error, ApiException):
            return turned_down(int(error.status or 0), str(error.body or error.reason or ""), self.queue)
        return away(f"{type(error).__name__}: {error}")

    async def _wait_for_the_cluster(self, told: TurnedDown, seconds: float) -> None:
        doubted = told.word == "cluster-rights" and self._doubts < MOST_DOUBTS
        self._doubts += doubted
        if not told.again and not doubted:
            log = f"{self.spawner._log_name}: {told.log}"
            raise spawn_errors.refusal(told.sentence, reason=told.word, log_message=log, status=503)
        self._log_state(PodState(told.word, log=told.log))
        say_cluster_away(self.start, told.sentence, self.spawner.gpu_titles)
        await asyncio.sleep(seconds)
        try:
            self._count(held=True)
        except spawn_errors.StartTookTooLong as late:
            # the limit of CPU only: who did not answer is said, not the limit
            text = f"{told.sentence.partition('. ')[0]}. Start it again later."
            raise spawn_errors.refusal(
                text, reason=told.word, log_message=f"{self.spawner._log_name}: {late}: {told.log}"
            ) from late

    def _failed(self, state: PodState) -> Exception:
        text = f"{state.sentence} {ADVICE.get(state.word, START_AGAIN)}"
        log = f"{self.spawner._log_name}: {state.word}: {state.log or state.sentence}"
        return spawn_errors.refusal(text, reason=state.word, log_message=log, status=503)

    async def _delete(self) -> None:
        """Away with the pod that failed: KubeSpawner would leave it, and a lease ends only with its pod."""
        try:
            await asyncio.wait_for(self.spawner.gpu_delete_pod(), DELETE_SECONDS)
        except CLUSTER_ERRORS as error:
            self.spawner.log.warning("%s: its pod is not deleted yet: %r", self.spawner._log_name, error)


# ------------------------------------------------------------------ events, by pod

_BY_POD: weakref.WeakKeyDictionary[Any, tuple[float, dict[str, list[Mapping[str, Any]]]]] = weakref.WeakKeyDictionary()


def events_of(reflector: Any, uid: str, *, fresh: bool = False) -> Sequence[Mapping[str, Any]]:
    """The events of one pod, by its uid: a pod of the same name that was there before has others (T20).

    `fresh`: as of now; else they may be as old as EVENTS_SECONDS.
    """
    if reflector is None or not uid:
        return ()
    now = asyncio.get_running_loop().time()
    at, by_pod = _BY_POD.get(reflector, (float("-inf"), {}))
    if fresh or now - at >= EVENTS_SECONDS:
        by_pod = {}
        for event in list(reflector.resources.values()):
            by_pod.setdefault((event.get("involvedObject") or {}).get("uid") or "", []).append(event)
        _BY_POD[reflector] = (now, by_pod)
    return by_pod.get(uid, ())


__all__ = ["Launch", "PodOver", "events_of"]
