"""Our spawner on Kubernetes: all of KubeSpawner, with a GPU lease before the pod and the offer's mechanism on it.

Uses KubeSpawner 7's extension points only (its manifest, options, form, state, start, stop, poll), so that its
profiles, hooks, overrides, named servers and REST go on as they are. Profiles choose image and size, offers the GPU.
Not here: the line (``base.py``), the launch and its words (``pods/launch.py``), the pod's changes
(``pods/apply_request.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from jupyterhub.utils import maybe_future
from kubernetes_asyncio.client import V1Pod
from tornado import web
from traitlets import Bool, CaselessStrEnum, Float, Unicode, default

from hub_extensions.adapters.linux.timeouts import unbroken
from hub_extensions.core.cluster.placement import PodDemands
from hub_extensions.core.cluster.pod_status import LOST_REASONS, PodState, pod_state
from hub_extensions.core.messages import LeaseGrant
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.offers.pod_request import (
    KAI_QUEUE_LABEL,
    KUEUE_QUEUE_LABEL,
    AskError,
    PodAsk,
    gpu_differences,
)
from hub_extensions.core.offers.user_options import OWN_KEYS, UserOptionsError, others_of
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.text.wording import foreign
from hub_extensions.spawner import spawn_errors
from hub_extensions.spawner.base import NO_LIMIT_SECONDS
from hub_extensions.spawner.pages.overview import last_options
from hub_extensions.spawner.pages.profiles import Profile, check_profile, in_order, still_there
from hub_extensions.spawner.pages.spawn_form import user_options_from_form
from hub_extensions.spawner.pages.start_progress import Start
from hub_extensions.spawner.pods.apply_request import CPU_ASK, apply
from hub_extensions.spawner.pods.demands import pod_demands
from hub_extensions.spawner.pods.launch import Launch
from hub_extensions.spawner.pods.pod_events import events_of
from hub_extensions.spawner.pods.pod_spawner import CLUSTER_ERRORS, START_ANNOTATION, PodManifest, PodSpawner, token_of

FORM_KEYS = (*OWN_KEYS, "also")
LONGEST_KEY = 500


class ServersPod(V1Pod):
    """KubeSpawner logs `to_str` of a pod that cannot be made, and we try for hours: no token goes into the log."""

    def to_str(self) -> str:
        return f"the pod {self.metadata.name}"

    def __repr__(self) -> str:
        return str(super().to_str())


class GpuKubeSpawner(PodSpawner):
    """Servers as pods, under a GPU lease."""

    gpu_shm_size = Unicode(
        "1Gi",
        help="Size of /dev/shm in every server, as Kubernetes writes it; it counts against the server's memory. A "
        "mount of your own there is left alone. Empty: the container's own 64 MB.",
    ).tag(config=True)
    gpu_max_wait_hours = Float(
        24.0,
        min=0.0,
        help="How long a server that was let in may wait for its place in the cluster: for Kueue or KAI where the line "
        "is theirs, or for a GPU that something outside this hub took. Unit: hours.",
    ).tag(config=True)
    gpu_outside_seconds = Float(
        30.0,
        min=0.0,
        help="After this long without a place, the waiting page says that something outside this hub took the GPU, "
        "unless a machine that has such a GPU does not answer. Unit: seconds.",
    ).tag(config=True)
    gpu_describe_first = Bool(
        True,
        help="Describe a server's pod before it stands in line (its profile, the overrides of its groups, "
        "modify_pod_hook), so that it waits for a GPU on the nodes that it may use and for no other. False: the hook "
        "is called when the pod is made only, and every server waits for any node.",
    ).tag(config=True)
    foreign_gpus = CaselessStrEnum(
        ["refuse", "warn"],
        default_value="refuse",
        help="What becomes of a server whose pod, after all hooks, has other GPUs than its lease gives: one that "
        "modify_pod_hook, a side or init container, or a ResourceClaim of your own adds, or one that a hook took away. "
        "'refuse' does not start it and says so; 'warn' starts it and writes it into the hub's log: such a GPU is "
        "outside the line, and nobody counts or culls it. GPUs of extra_resource_limits and of profiles are taken out "
        "before.",
    ).tag(config=True)
    profile_list: Any
    user_options: Any
    _gpu_up = False
    _gpu_lease: str | None = None
    _gpu_pod_uid = ""
    _gpu_last_pod: PodManifest | None = None
    _gpu_end: PodState | None = None

    # ---------------------------------------------------------------- what the user chose

    def gpu_other_keys(self, options: object) -> tuple[str, ...]:
        """A profile's keys have any name: they are checked against the profile, which may take time to find."""
        mine = tuple(self.gpu_other_options)
        if not isinstance(options, Mapping):
            return mine
        return (*mine, *(str(key) for key in options if key not in OWN_KEYS and key not in mine))

    async def _gpu_check_others(self, options: Mapping[str, Any]) -> None:
        if self.gpu_service_url:
            self._gpu_check_profile(await self._gpu_profiles(), options)

    def _gpu_check_profile(self, profiles: list[Profile], options: Mapping[str, Any]) -> None:
        try:
            check_profile(profiles, options, also=tuple(self.gpu_other_options))
        except UserOptionsError as error:
            raise self._gpu_bad_options(error) from error

    async def _gpu_profiles(self) -> list[Profile]:
        """The admin's profiles as they are now."""
        profiles = self.profile_list
        return in_order(await maybe_future(profiles(self)) if callable(profiles) else profiles)

    async def load_user_options(self) -> None:
        """As KubeSpawner does; what a profile says of ``start_timeout`` is kept by our own clock (T10)."""
        try:
            await super().load_user_options()
        except (ValueError, KeyError, StopIteration) as error:
            if not self.gpu_service_url:
                raise  # without a service this is KubeSpawner
            gone = (explain("choice-gone"),)
            raise spawn_errors.refusal(gone, reason="bad-choice", log_message=f"{self._log_name}: {error!r}") from error
        if self._gpu_whole is not None and self.start_timeout != NO_LIMIT_SECONDS:
            self.gpu_limit_of_profile, self.start_timeout = float(self.start_timeout), NO_LIMIT_SECONDS

    @default("options_from_form")
    def _gpu_options_from_form(self) -> Callable[[Mapping[str, list[Any]]], Any]:
        return self._gpu_from_form

    def _gpu_from_link(self, fields: Mapping[str, list[Any]]) -> Any:
        return self._gpu_from_form(fields)

    def _gpu_from_form(self, formdata: Mapping[str, list[Any]]) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """The profile as KubeSpawner reads it from its fields, and the offer. Raises a refusal.

        To be waited for only where the profiles are. Without a service there are no offers: KubeSpawner's alone.
        """
        if not self.gpu_service_url:
            plain: dict[str, Any] = self._options_from_form(formdata)
            return plain
        ours = user_options_from_form({key: value for key, value in formdata.items() if key in FORM_KEYS})
        others = {key: formdata[key] for key in self.gpu_other_options if key in formdata}
        rest = {key: v for key, v in formdata.items() if key not in (*FORM_KEYS, *others, "_xsrf") and list(v)}
        theirs = {foreign(key, LONGEST_KEY): v for key, v in rest.items()}  # KubeSpawner logs those it does not know
        options = self._gpu_checked({**self._options_from_form(theirs), **others, **ours})
        if callable(self.profile_list):
            return self._gpu_checked_in_time(options)
        self._gpu_check_profile(in_order(self.profile_list), options)
        return options

    async def _gpu_checked_in_time(self, options: dict[str, Any]) -> dict[str, Any]:
        await self._gpu_check_others(options)
        return options

    def gpu_form_without_offers(self) -> Any:
        return super()._options_form_default()

    async def gpu_profiles_form(self) -> str:
        """KubeSpawner's own form of the profiles, with an old choice preselected only where it is still there (T7)."""
        profiles = await self._gpu_profiles()
        if not profiles:
            return ""
        saved = last_options(self)
        if self.gpu_linked:  # a link to an offer alone, as "Start again", says nothing of the profile
            saved = self.gpu_linked if others_of(self.gpu_linked) else {**saved, **self.gpu_linked}
        before = self.profile_list, self.user_options
        # nothing else runs until it is as it was: KubeSpawner renders at once from a list
        try:
            self.profile_list, self.user_options = profiles, still_there(profiles, saved)
            return str(super()._options_form_default())
        finally:
            self.profile_list, self.user_options = before

    # ---------------------------------------------------------------- start

    def start(self) -> asyncio.Future[Any]:
        """As the mixin's; ``_start_future`` is the whole of it, the wait included."""
        self._gpu_end = self._gpu_last_pod = self._gpu_lease = None
        self._gpu_up, self._gpu_pod_uid, self.gpu_limit_of_profile = False, "", 0.0
        whole: asyncio.Future[Any] = super().start()
        self._gpu_whole = self._start_future = whole
        return whole

    async def _gpu_demands(self, start: Start) -> PodDemands | None:
        gpus = [offer for offer in start.offers if offer != CPU]
        return await pod_demands(self, gpus[0]) if self.gpu_describe_first and gpus else None

    async def _gpu_timed(self, start: Start, limit: float) -> Any:
        self._gpu_ran = True
        grant = start.grant
        self._gpu_lease = grant.lease if grant is not None else ""
        await unbroken(self.gpu_read_first())
        max_wait, outside_after = timedelta(hours=self.gpu_max_wait_hours), timedelta(seconds=self.gpu_outside_seconds)
        before = self._gpu_token
        try:
            address = await Launch(self, start, limit, max_wait, outside_after).run()
        except BaseException:
            if self._gpu_token != before and not self._gpu_hub_ends():  # else the next hub sees to it
                self._gpu_later(self.gpu_leave_no_pod(self._gpu_token, self.pod_name, self.namespace))
            raise
        self._gpu_up = True
        self._gpu_remember()
        return address

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """As the mixin's; without a service there is nothing to say of a line, and the pod's own events are said."""
        async for event in super().progress() if self.gpu_service_url else self.gpu_pod_progress():
            yield event

    async def stop(self, now: bool = False) -> None:
        """As KubeSpawner does, but never by force.

        By force a pod is gone from the API server at once, and its lease with it, while its server may go on for as
        long as its machine does not answer. One that has no machine yet, or that has ended, is gone at once anyway.

        Args:
            now: KubeSpawner makes room for its new pod. Else, where the last server's pod was in the way of this one's,
                there is nothing of this one to stop, and whoever started it is not kept waiting for the words.
        """
        self._gpu_remember()  # KubeSpawner's poll removes a pod that has ended before it returns
        last = self.gpu_pod_being_ended()
        if last is not None and not now and self._gpu_token not in ("", token_of(last)):
            return
        await super().stop(now=False)

    async def get_pod_manifest(self) -> V1Pod:
        """KubeSpawner's pod, with what the offer asks.

        Raises:
            web.HTTPError: a refusal: the offer cannot be had as it is set up.
        """
        pod = await self.gpu_plain_manifest()
        grant, ask = self._gpu_grant()
        lease = grant.lease if grant is not None else ""
        if grant is not None and lease and grant.pod is None:
            raise self._gpu_not_set_up("the GPU service gave a GPU of its own machine; it was not set up for a cluster")
        try:
            applied = apply(ask, pod, lease=lease, offer=grant.offer if grant else CPU, shm=self.gpu_shm_size)
        except AskError as error:
            raise self._gpu_not_set_up(str(error)) from error
        for note in applied.notes:
            self.log.warning("%s: %s", self._log_name, note)
        applied.pod.metadata.annotations[START_ANNOTATION] = self._gpu_token
        applied.pod.__class__ = ServersPod
        return applied.pod

    def _gpu_grant(self) -> tuple[LeaseGrant | None, PodAsk]:
        """What this start was given, and what that asks of its pod."""
        grant = self._gpu_start.grant if self._gpu_start is not None else None
        return grant, grant.pod if grant is not None and grant.pod is not None else CPU_ASK

    async def _make_create_pod_request(self, pod: V1Pod, request_timeout: float) -> bool:
        """As KubeSpawner does, for a pod that has the GPUs of its lease: no hook changes it any more.

        Raises:
            web.HTTPError: it has others.
        """
        described = self.api.api_client.sanitize_for_serialization(pod)
        if differences := gpu_differences(self._gpu_grant()[1], described):
            # written here: JupyterHub 5 logs what the user reads
            log = f"{self._log_name}: other GPUs than its lease gives, by a hook or setting of yours"
            self.log.warning("%s: %s", log, "; ".join(differences))
            if self.foreign_gpus == "refuse":
                said = (explain("pod-of-other-gpus"),)
                raise spawn_errors.refusal(said, reason="foreign-gpus", log_message=log, status=409)
        made: bool = await super()._make_create_pod_request(pod, request_timeout)
        return made

    def _gpu_not_set_up(self, log: str) -> web.HTTPError:
        said, log = (explain("offer-not-set-up"),), f"{self._log_name}: {log}"
        return spawn_errors.refusal(said, reason="bad-offer", log_message=log, status=409)

    async def poll(self) -> Any:
        """As KubeSpawner does, and why it ended is remembered while there is something left to read.

        While the cluster cannot be read, a server that ran is taken to run on.
        """
        if self.gpu_watch_broke():
            self.gpu_mend_watch()
            if self._gpu_up:
                return None
        self._gpu_remember()
        try:
            status = await super().poll()
        except CLUSTER_ERRORS as error:
            if not self._gpu_up:
                raise
            self.log.warning("%s: not known whether it runs, the cluster does not answer: %s", self._log_name, error)
            return None
        self._gpu_remember()
        # a server that was up once and is to start anew on its machine (after a reboot) is left to it
        if status is None and self._gpu_start is None and not self._gpu_up and self._gpu_never_ran():
            await self._gpu_clear_unfinished()
            return 1
        if status is not None and self._gpu_up and self._gpu_end is None:
            self._gpu_end = self._gpu_end_state()
            self.log.warning("%s: %s: %s", self._log_name, self._gpu_end.reason, self._gpu_end.log_message)
        return status

    async def _gpu_clear_unfinished(self) -> None:
        """A pod that had no place yet when its hub ended is nobody's start: its ticket makes a new one."""
        self.log.info("%s: a start of the hub before this one is not finished: its pod is deleted", self._log_name)
        await self.gpu_delete_pod()

    def _gpu_remember(self) -> None:
        reflector = self.pod_reflector
        pod = reflector.pods.get(f"{self.namespace}/{self.pod_name}") if reflector is not None else None
        if pod is not None:
            self._gpu_last_pod, self._gpu_pod_uid = pod, pod["metadata"]["uid"]

    def _gpu_never_ran(self) -> bool:
        pod = self._gpu_last_pod
        return pod is not None and (pod.get("status") or {}).get("phase") == "Pending"

    def _gpu_end_state(self) -> PodState:
        events = events_of(self.event_reflector, self._gpu_pod_uid, fresh=True)
        queue = _queue_of(self._gpu_last_pod)
        now = datetime.now(timezone.utc)
        last = pod_state(self._gpu_last_pod, events, now=now, queue=queue) if self._gpu_last_pod else None
        if last is not None and (last.reason in LOST_REASONS or last.reason == "ended"):
            return last
        return pod_state(None, events, now=now, queue=queue)

    def _gpu_ending(self) -> tuple[tuple[Reason, ...], str]:
        end, self._gpu_end = self._gpu_end, None
        if end is None:
            return (), ""
        if end.reason == "gone":
            end = self._gpu_end_state()  # pods and events arrive apart: by now the event may be there
        return (end.reasons if end.reason in LOST_REASONS else ()), end.reason

    # ---------------------------------------------------------------- over a restart of the hub

    def get_state(self) -> dict[str, Any]:
        """KubeSpawner's, and the lease of a server that runs ("" for CPU only)."""
        state: dict[str, Any] = super().get_state()
        if self._gpu_ran and self._gpu_lease is not None:
            state["gpu_lease"] = self._gpu_lease
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """After a hub restart: a stop of this server is told to the service as any other."""
        super().load_state(state)
        if "gpu_lease" in state:
            self._gpu_lease = str(state["gpu_lease"])
            self._gpu_ran = self._gpu_up = True

    def clear_state(self) -> None:
        super().clear_state()
        self._gpu_lease = None
        self._gpu_up = False


def _queue_of(pod: PodManifest | None) -> str:
    """Whose line it waited in, by its own labels: a hub that was restarted meanwhile knows no more of it."""
    labels = ((pod or {}).get("metadata") or {}).get("labels") or {}
    return next((who for who, label in (("Kueue", KUEUE_QUEUE_LABEL), ("KAI", KAI_QUEUE_LABEL)) if label in labels), "")
