"""A server's pod by KubeSpawner: made, found again, deleted, and watched again where KubeSpawner gave its watch up.

Not here: one launch from its first pod to its address (``launch.py``), and the spawner that an admin chooses
(``spawner/kube.py``).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiohttp import ClientError
from kubernetes_asyncio.client import ApiException, V1DeleteOptions, V1Pod, V1Preconditions
from kubespawner import KubeSpawner

from hub_extensions.adapters.service.gpu_service import ServiceAway, ServiceRefused
from hub_extensions.core.messages import Started
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.spawner.base import CONFIRM_SECONDS, GpuSpawnerMixin
from hub_extensions.spawner.pages.start_progress import Start
from hub_extensions.spawner.pods.apply_request import START_ANNOTATION

MEND_SECONDS = 5.0
DELETE_SECONDS = 15.0
"""So long a pod that failed is given to be gone. It is never deleted by force: see ``GpuKubeSpawner.stop``."""
LEFT_OVER_SECONDS = (CONFIRM_SECONDS, 30.0)
"""When a pod is looked for that a start which came to nothing has left: a create under way may still be taken."""
CLUSTER_ERRORS = (ApiException, ClientError, ConnectionError, asyncio.TimeoutError)

PodManifest = Mapping[str, Any]


class PodSpawner(GpuSpawnerMixin, KubeSpawner):  # type: ignore[misc]  # jupyterhub and kubespawner are untyped
    """What a launch needs of KubeSpawner."""

    gpu_limit_of_profile = 0.0
    """``start_timeout`` as a profile of this start sets it, in seconds; 0: none does."""
    _start_future: asyncio.Future[Any] | None
    _gpu_token = ""
    _gpu_whole: asyncio.Future[Any] | None = None
    _gpu_mended_at = float("-inf")

    async def gpu_plain_manifest(self) -> V1Pod:
        """KubeSpawner's pod, without an offer."""
        pod: V1Pod = await super().get_pod_manifest()
        return pod

    @property
    def gpu_titles(self) -> Mapping[str, str]:
        """The admin's words for the offers, as far as the service reported them."""
        return self._gpu_service.titles

    async def gpu_read_first(self) -> None:
        """Read pods and events before KubeSpawner does, and to the end, whatever becomes of this start.

        KubeSpawner 7.0 and 7.1 share what is read between all servers: a start that is cancelled in its first reading
        leaves a copy that never gets ready, and every later start and stop of the hub waits for it for ever.
        """
        try:
            await self._start_watching_pods()
            if self.events_enabled:
                await self._start_watching_events()
        except CLUSTER_ERRORS as error:
            self.log.debug("%s: the cluster is not read yet: %s", self._log_name, error)  # the launch meets it again

    def gpu_make_pod(self) -> tuple[str, asyncio.Future[Any]]:
        """Let KubeSpawner make the pod: the mark it will have, and the future of its address."""
        self._gpu_token = secrets.token_hex(8)
        launched: asyncio.Future[Any] = super(GpuSpawnerMixin, self).start()
        self._start_future = self._gpu_whole
        return self._gpu_token, launched

    def gpu_pod_of(self, token: str) -> tuple[PodManifest | None, bool]:
        """The pod of this launch, and whether its absence would mean anything."""
        reflector = self.pod_reflector
        if reflector is None or not reflector.first_load_future.done() or self.gpu_watch_broke():
            return None, False
        pod: PodManifest | None = reflector.pods.get(f"{self.namespace}/{self.pod_name}")
        return (pod if pod is not None and token_of(pod) == token else None), True

    def gpu_pod_being_ended(self) -> PodManifest | None:
        """The pod of this server that is being deleted, whichever launch made it; None: none is known."""
        reflector = self.pod_reflector
        pod: PodManifest | None = (
            reflector.pods.get(f"{self.namespace}/{self.pod_name}") if reflector is not None else None
        )
        return pod if pod is not None and pod["metadata"].get("deletionTimestamp") else None

    async def gpu_delete_pod(self) -> None:
        """Delete the pod, and wait until it is gone, for DELETE_SECONDS at most. See ``GpuKubeSpawner.stop``."""
        try:
            await asyncio.wait_for(super(GpuSpawnerMixin, self).stop(now=False), DELETE_SECONDS)
        except CLUSTER_ERRORS as error:
            self.log.warning("%s: its pod is not deleted yet: %r", self._log_name, error)

    async def gpu_leave_no_pod(self, token: str, *of: str) -> None:
        """Delete the pod of a launch that came to nothing, where KubeSpawner knew of none: a lease ends with its pod.

        Its copy may be older than the pod, and then it stops nothing; or the create is taken after it was cancelled.
        """
        for pause in LEFT_OVER_SECONDS:
            await asyncio.sleep(pause)
            if self._gpu_hub_ends():
                return
            raw: dict[str, Any] = {"_request_timeout": 5, "_preload_content": False}
            try:
                answer = await self.api.read_namespaced_pod(*of, **raw)
                answer.raise_for_status()
                pod = await answer.json()
                if pod["metadata"].get("deletionTimestamp") or token_of(pod) != token:
                    continue
                self.log.warning("%s: its start has ended and its pod was left: it is deleted", self._log_name)
                body = V1DeleteOptions(preconditions=V1Preconditions(uid=pod["metadata"]["uid"]))
                answer = await self.api.delete_namespaced_pod(
                    *of, body=body, grace_period_seconds=self.delete_grace_period, **raw
                )
                answer.raise_for_status()
            except CLUSTER_ERRORS as error:
                if getattr(error, "status", None) != 404:
                    self.log.warning("%s: whether its pod was left is not known: %s", self._log_name, error)

    def gpu_pod_progress(self) -> AsyncIterator[dict[str, Any]]:
        """KubeSpawner's own events of a start, to its end."""
        events: AsyncIterator[dict[str, Any]] = super(GpuSpawnerMixin, self).progress()
        return events

    async def gpu_silent_offers(self) -> tuple[OfferId, ...] | None:
        """Offers that a machine has which does not answer; None: not known now."""
        try:
            form = await self._gpu_service.form(self.user.name, self.name, self.gpu_groups, admin=False)
        except (ServiceAway, ServiceRefused):
            return None
        return form.silent

    def gpu_report_made(self, start: Start) -> asyncio.Future[Any] | None:
        """Report to the service that the pod is there; the future of its answer."""
        return self._gpu_report_started(start, Started(start.attempt))

    def gpu_watch_broke(self) -> bool:
        """KubeSpawner gives its watch up after half a minute of errors, and shows what it last saw for ever after."""
        return _broke(self.pod_reflector)

    def gpu_mend_watch(self) -> None:
        """Begin the watch anew, beside us; one attempt at a time for all servers."""
        now = asyncio.get_running_loop().time()
        if now - PodSpawner._gpu_mended_at >= MEND_SECONDS:
            PodSpawner._gpu_mended_at = now
            self._gpu_later(self._gpu_mend())

    async def _gpu_mend(self) -> None:
        for broken, watch in (
            (self.pod_reflector, self._start_watching_pods),
            (self.event_reflector, self._start_watching_events),
        ):
            if not _broke(broken):
                continue
            key = next((key for key, reflector in self.reflectors.items() if reflector is broken), None)
            try:
                # a watch that cannot list at once would show every server as gone: ask first
                answer = await self.api.list_namespaced_pod(
                    self.namespace, limit=1, _request_timeout=5, _preload_content=False
                )
                answer.raise_for_status()
                await watch(replace=True)
                self.log.info("The cluster is watched again.")
            except Exception as error:  # noqa: BLE001  whatever it is: the old copy stays, and it is tried again
                if key is not None:
                    self.reflectors[key] = broken
                self.log.warning("The cluster cannot be watched now: %s", error)
                return


def token_of(pod: PodManifest) -> str:
    """Of the launch that made it; "" for one that was made without us."""
    return str((pod["metadata"].get("annotations") or {}).get(START_ANNOTATION) or "")


def _broke(reflector: Any) -> bool:
    """Its watch has ended, or its very first list failed: it will not change any more."""
    if reflector is None:
        return False
    if reflector.watch_task is None:
        return bool(reflector.first_load_future.done())
    return bool(reflector.watch_task.done())
