"""The methods by which a launch creates, finds and deletes a server's pod with KubeSpawner.

They also read the pod's events, and restart KubeSpawner's watch if it has ended.
"""

from __future__ import annotations

import asyncio
import secrets
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
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

RESTART_SECONDS = 5.0  # minimum time between two attempts to restart the watch
DELETE_SECONDS = 15.0
"""Time that a launch waits until a failed pod is deleted. It never forces the deletion; see ``GpuKubeSpawner.stop``."""
LEFT_OVER_SECONDS = (CONFIRM_SECONDS, 30.0)
"""Pauses before each of the checks whether a failed start has left a pod. The API server may create it late."""
CLUSTER_ERRORS = (ApiException, ClientError, ConnectionError, asyncio.TimeoutError)

PodManifest = Mapping[str, Any]

EVENTS_SECONDS = 1.0  # the index of events by pod is rebuilt at most this often

_BY_POD: weakref.WeakKeyDictionary[Any, tuple[float, dict[str, list[Mapping[str, Any]]]]] = weakref.WeakKeyDictionary()


class PodSpawner(GpuSpawnerMixin, KubeSpawner):  # type: ignore[misc]  # jupyterhub and kubespawner are untyped
    """KubeSpawner with the methods that `Launch` uses to create, find and delete the server's pod."""

    gpu_limit_of_profile = 0.0
    """``start_timeout`` of the chosen profile, in seconds; 0 if the profile does not set it."""
    _start_future: asyncio.Future[Any] | None
    _gpu_token = ""
    _gpu_whole: asyncio.Future[Any] | None = None
    _gpu_mended_at = float("-inf")

    async def gpu_plain_manifest(self) -> V1Pod:
        """Return the manifest that KubeSpawner makes for this server, without the changes that an offer asks for."""
        pod: V1Pod = await super().get_pod_manifest()
        return pod

    @property
    def gpu_titles(self) -> Mapping[str, str]:
        """Offer -> the administrator's title, for the offers whose titles the GPU service has sent to this hub."""
        return self._gpu_service.titles

    async def gpu_start_watch(self) -> None:
        """Start KubeSpawner's watch of pods and events, and wait for its first list.

        The caller shields this from a cancellation. KubeSpawner 7.0 and 7.1 share the watch between all servers, and if
        a start is cancelled during the first list, every later start and stop waits for the watch forever.
        """
        try:
            await self._start_watching_pods()
            if self.events_enabled:
                await self._start_watching_events()
        except CLUSTER_ERRORS as error:
            self.log.debug("%s: the cluster is not read yet: %s", self._log_name, error)  # the launch handles it

    def gpu_create_pod(self) -> tuple[str, asyncio.Future[Any]]:
        """Let KubeSpawner create the pod.

        Returns:
            A token, by which the pod of this launch is recognised, and the future of the server's address.
        """
        self._gpu_token = secrets.token_hex(8)
        launched: asyncio.Future[Any] = super(GpuSpawnerMixin, self).start()
        self._start_future = self._gpu_whole
        return self._gpu_token, launched

    def gpu_pod_of(self, token: str) -> tuple[PodManifest | None, bool]:
        """Return the pod of a launch, and whether KubeSpawner's watch works.

        If the watch works, None means that the pod does not exist (yet or any more). If not, nothing is known of it.

        Args:
            token: token of the launch, by which its pod is recognised.
        """
        reflector = self.pod_reflector
        if reflector is None or not reflector.first_load_future.done() or self.gpu_watch_has_ended():
            return None, False
        pod: PodManifest | None = reflector.pods.get(f"{self.namespace}/{self.pod_name}")
        return (pod if pod is not None and token_of(pod) == token else None), True

    def gpu_pod_being_ended(self) -> PodManifest | None:
        """Return the pod with this server's name if it is being deleted, whichever launch created it; else None."""
        reflector = self.pod_reflector
        pod: PodManifest | None = (
            reflector.pods.get(f"{self.namespace}/{self.pod_name}") if reflector is not None else None
        )
        return pod if pod is not None and pod["metadata"].get("deletionTimestamp") else None

    async def gpu_delete_pod(self) -> None:
        """Delete the server's pod, and wait until the pod is gone, at most `DELETE_SECONDS`.

        The pod is not deleted by force, for the reason that ``GpuKubeSpawner.stop`` explains.
        """
        try:
            await asyncio.wait_for(super(GpuSpawnerMixin, self).stop(now=False), DELETE_SECONDS)
        except CLUSTER_ERRORS as error:
            self.log.warning("%s: its pod is not deleted yet: %r", self._log_name, error)

    async def gpu_delete_leftover_pod(self, token: str, *of: str) -> None:
        """Delete the pod of a failed launch if KubeSpawner has left it. If the pod stayed, its lease would not end.

        KubeSpawner leaves a pod that its watch has not seen yet, or whose create was accepted after it was cancelled.

        Args:
            token: token of the launch; a pod of another launch is not touched.
            of: name and namespace of the pod.
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
        """Yield KubeSpawner's own events of a start, which the waiting page shows without the GPU service."""
        events: AsyncIterator[dict[str, Any]] = super(GpuSpawnerMixin, self).progress()
        return events

    async def gpu_silent_offers(self) -> tuple[OfferId, ...] | None:
        """Return the offers that have devices on a node that does not answer.

        None if the GPU service, which watches the nodes, does not answer.
        """
        try:
            form = await self._gpu_service.form(self.user.name, self.name, self.gpu_groups, admin=False)
        except (ServiceAway, ServiceRefused):
            return None
        return form.silent

    def gpu_report_made(self, start: Start) -> asyncio.Future[Any] | None:
        """Report to the GPU service that the pod of this start exists, and return the future of the service's answer.

        None for a start without a ticket (place in the line), because it runs without the service.
        """
        return self._gpu_report_started(start, Started(start.attempt))

    def gpu_watch_has_ended(self) -> bool:
        """Whether KubeSpawner has given up its watch, after 30 s of errors.

        KubeSpawner's view of the pods is then outdated.
        """
        return _has_ended(self.pod_reflector)

    def gpu_restart_watch(self) -> None:
        """Restart the watch in the background, with one attempt at a time for all servers."""
        now = asyncio.get_running_loop().time()
        if now - PodSpawner._gpu_mended_at >= RESTART_SECONDS:
            PodSpawner._gpu_mended_at = now
            self._gpu_in_background(self._gpu_restart_watches())

    async def _gpu_restart_watches(self) -> None:
        for broken, watch in (
            (self.pod_reflector, self._start_watching_pods),
            (self.event_reflector, self._start_watching_events),
        ):
            if not _has_ended(broken):
                continue
            key = next((key for key, reflector in self.reflectors.items() if reflector is broken), None)
            try:
                # a watch whose first list fails would show every server as gone, so test the API server first
                answer = await self.api.list_namespaced_pod(
                    self.namespace, limit=1, _request_timeout=5, _preload_content=False
                )
                answer.raise_for_status()
                await watch(replace=True)
                self.log.info("The cluster is watched again.")
            except Exception as error:  # noqa: BLE001  after any error the old watch stays, and this is retried
                if key is not None:
                    self.reflectors[key] = broken
                self.log.warning("The cluster cannot be watched now: %s", error)
                return


def token_of(pod: PodManifest) -> str:
    """Return the token of the launch that created a pod; "" if another program created the pod."""
    return str((pod["metadata"].get("annotations") or {}).get(START_ANNOTATION) or "")


def events_of(reflector: Any, uid: str, *, fresh: bool = False) -> Sequence[Mapping[str, Any]]:
    """Return the Kubernetes events of the pod with this uid; empty without a uid or reflector.

    Pods are found by uid, because an earlier pod may have had the same name.

    Args:
        reflector: KubeSpawner's reflector of events; None if events are not watched.
        fresh: read the events now. Otherwise they may be `EVENTS_SECONDS` old.
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


def _has_ended(reflector: Any) -> bool:
    """Whether a reflector will not be updated any more, because its watch has ended or its first list failed."""
    if reflector is None:
        return False
    if reflector.watch_task is None:
        return bool(reflector.first_load_future.done())
    return bool(reflector.watch_task.done())
