"""The spawner for Kubernetes: KubeSpawner that waits for a GPU lease before it creates a pod with the GPU of an offer.

It uses only KubeSpawner 7's extension points (manifest, options, form, state, start, stop, poll), so that profiles,
hooks, overrides, named servers and the REST API work as before. A profile chooses image and size, an offer the GPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from jupyterhub.utils import maybe_future
from kubernetes_asyncio.client import V1Pod
from tornado import web
from traitlets import Bool, CaselessStrEnum, Float, Unicode

from hub_extensions.adapters.linux.timeouts import shielded
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
from hub_extensions.core.offers.user_options import ALSO, OWN_KEYS, UserOptions, UserOptionsError, others_of
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.text.wording import foreign
from hub_extensions.spawner import spawn_errors
from hub_extensions.spawner.base import NO_LIMIT_SECONDS
from hub_extensions.spawner.pages.overview import last_user_options
from hub_extensions.spawner.pages.profiles import Profile, check_profile, in_order, still_valid
from hub_extensions.spawner.pages.start_progress import Start
from hub_extensions.spawner.pods.apply_request import CPU_ASK, apply
from hub_extensions.spawner.pods.demands import pod_demands
from hub_extensions.spawner.pods.launch import Launch
from hub_extensions.spawner.pods.pod_spawner import CLUSTER_ERRORS, PodManifest, PodSpawner, events_of, token_of

FORM_KEYS = (*OWN_KEYS, ALSO)  # fields of the spawn form that are ours
LONGEST_KEY = 500  # characters of a form field's name that are kept


class ServersPod(V1Pod):
    """A pod whose text form contains no secrets.

    KubeSpawner logs `to_str` of each pod that it cannot create. The stock text contains the server's token, and a start
    may be retried for hours.
    """

    def to_str(self) -> str:
        return f"the pod {self.metadata.name}"

    def __repr__(self) -> str:
        return str(super().to_str())


class GpuKubeSpawner(PodSpawner):
    """KubeSpawner with GPU offers (the choices of GPU on the spawn form).

    It creates a server's pod only under a lease (the right of one server to a share of a device), and with the GPU of
    that lease.
    """

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
    gpu_unschedulable_seconds = Float(
        30.0,
        min=0.0,
        help="After this long without a place, the waiting page says that something outside this hub took the GPU, "
        "unless a machine that has such a GPU does not answer. Unit: seconds.",
    ).tag(config=True)
    gpu_build_pod_before_queueing = Bool(
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

    @property
    def gpu_other_keys(self) -> Collection[str] | None:
        """Return None (every key is accepted), because options of a profile may have any name and are checked later."""
        return None

    async def _gpu_check_others(self, options: UserOptions) -> None:
        if self.gpu_service_url:
            self._gpu_check_profile(await self._gpu_profiles(), options)

    def _gpu_check_profile(self, profiles: list[Profile], options: UserOptions) -> None:
        try:
            check_profile(profiles, options.others, also=tuple(self.gpu_extra_user_options))
        except UserOptionsError as error:
            raise self._gpu_bad_options(error) from error

    async def _gpu_profiles(self) -> list[Profile]:
        """Return the administrator's `profile_list` as a list; a function is called, so profiles may differ by user."""
        profiles = self.profile_list
        return in_order(await maybe_future(profiles(self)) if callable(profiles) else profiles)

    async def load_user_options(self) -> None:
        """Apply the chosen profile as KubeSpawner does.

        A ``start_timeout`` of the profile limits the launch of the pod, not the wait in line before it.
        """
        try:
            await super().load_user_options()
        except (ValueError, KeyError, StopIteration) as error:
            if not self.gpu_service_url:
                raise  # without a GPU service this spawner behaves as KubeSpawner
            gone = (explain("choice-gone"),)
            raise spawn_errors.refusal(gone, reason="bad-choice", log_message=f"{self._log_name}: {error!r}") from error
        if self._gpu_whole is not None and self.start_timeout != NO_LIMIT_SECONDS:
            self.gpu_limit_of_profile, self.start_timeout = float(self.start_timeout), NO_LIMIT_SECONDS

    def _gpu_from_link(self, fields: Mapping[str, list[Any]]) -> Any:
        return self._gpu_from_form(fields)

    def _gpu_from_form(self, fields: Mapping[str, list[Any]]) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Read the offer, and the profile as KubeSpawner reads it from its own fields.

        Returns:
            The user options; an awaitable of them only if `profile_list` is a function, which may take time. Without
            a GPU service there are no offers, and KubeSpawner's options are returned unchanged.

        Raises:
            web.HTTPError: a refusal that names the field.
        """
        if not self.gpu_service_url:
            plain: dict[str, Any] = self._options_from_form(fields)
            return plain
        ours = {key: fields[key] for key in FORM_KEYS if key in fields}
        others = {key: fields[key] for key in self.gpu_extra_user_options if key in fields}
        rest = {key: v for key, v in fields.items() if key not in (*FORM_KEYS, *others, "_xsrf") and list(v)}
        theirs = {foreign(key, LONGEST_KEY): v for key, v in rest.items()}  # KubeSpawner logs those it does not know
        others = {**self._options_from_form(theirs), **others}
        options = self._gpu_parsed(UserOptions.from_form, ours, self.gpu_other_keys, others)

        async def checked_in_time() -> dict[str, Any]:
            await self._gpu_check_others(options)
            return options.to_dict()

        if callable(self.profile_list):
            return checked_in_time()
        self._gpu_check_profile(in_order(self.profile_list), options)
        return options.to_dict()

    def gpu_form_without_offers(self) -> Any:
        return super()._options_form_default()

    async def gpu_profiles_form(self) -> str:
        """Return KubeSpawner's form of the profiles as HTML; an earlier choice is preselected if it still exists."""
        profiles = await self._gpu_profiles()
        if not profiles:
            return ""
        # a link to an offer alone, such as "Start again", does not name a profile
        saved = (self.gpu_linked.others if self.gpu_linked else {}) or others_of(last_user_options(self))
        before = self.profile_list, self.user_options
        # KubeSpawner renders a list without awaiting, so nothing else runs before the attributes are restored
        try:
            self.profile_list, self.user_options = profiles, still_valid(profiles, saved)
            return str(super()._options_form_default())
        finally:
            self.profile_list, self.user_options = before

    # ---------------------------------------------------------------- start

    def start(self) -> asyncio.Future[Any]:
        """Start as the mixin does.

        KubeSpawner's ``_start_future`` is set to the whole start, including the wait in line, because KubeSpawner
        decides by it whether the server is still starting.
        """
        self._gpu_end = self._gpu_last_pod = self._gpu_lease = None
        self._gpu_up, self._gpu_pod_uid, self.gpu_limit_of_profile = False, "", 0.0
        whole: asyncio.Future[Any] = super().start()
        self._gpu_whole = self._start_future = whole
        return whole

    async def _gpu_demands(self, start: Start) -> PodDemands | None:
        gpus = [offer for offer in start.offers if offer != CPU]
        return await pod_demands(self, gpus[0]) if self.gpu_build_pod_before_queueing and gpus else None

    async def _gpu_timed(self, start: Start, limit: float) -> Any:
        self._gpu_ran = True
        grant = start.grant
        self._gpu_lease = grant.lease if grant is not None else ""
        await shielded(self.gpu_start_watch())
        max_wait, outside_after = (
            timedelta(hours=self.gpu_max_wait_hours),
            timedelta(seconds=self.gpu_unschedulable_seconds),
        )
        before = self._gpu_token
        try:
            address = await Launch(self, start, limit, max_wait, outside_after).run()
        except BaseException:
            if self._gpu_token != before and not self._gpu_hub_ends():  # after a shutdown, the next hub deletes the pod
                self._gpu_in_background(self.gpu_delete_leftover_pod(self._gpu_token, self.pod_name, self.namespace))
            raise
        self._gpu_up = True
        self._gpu_remember()
        return address

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of the start for the waiting page. Without a GPU service, these are KubeSpawner's own."""
        async for event in super().progress() if self.gpu_service_url else self.gpu_pod_progress():
            yield event

    async def stop(self, now: bool = False) -> None:
        """Stop the server as KubeSpawner does, but never delete its pod by force.

        A forced deletion removes the pod from the API server at once, and ends its lease, while the server may keep
        running on a node that does not answer. A pod without a node, or one that has ended, is removed at once anyway.

        Args:
            now: True if KubeSpawner needs the pod's name for a new pod. If it is False and the pod of this name is one
                of an earlier start that is still being deleted, the current start has no pod: the method returns at
                once, so that the user sees the error without delay.
        """
        self._gpu_remember()  # KubeSpawner's poll removes a pod that has ended before it returns
        last = self.gpu_pod_being_ended()
        if last is not None and not now and self._gpu_token not in ("", token_of(last)):
            return
        await super().stop(now=False)

    async def get_pod_manifest(self) -> V1Pod:
        """Return KubeSpawner's pod with the changes that the offer asks for.

        Raises:
            web.HTTPError: a refusal, because the offer is not set up correctly.
        """
        pod = await self.gpu_plain_manifest()
        grant, ask = self._gpu_grant()
        lease = grant.lease if grant is not None else ""
        if grant is not None and lease and grant.pod is None:
            raise self._gpu_not_set_up("the GPU service gave a GPU of its own machine; it was not set up for a cluster")
        try:
            applied = apply(
                ask,
                pod,
                lease=lease,
                offer=grant.offer if grant else CPU,
                shm=self.gpu_shm_size,
                start=self._gpu_token,
            )
        except AskError as error:
            raise self._gpu_not_set_up(str(error)) from error
        for note in applied.notes:
            self.log.warning("%s: %s", self._log_name, note)
        applied.pod.__class__ = ServersPod
        return applied.pod

    def _gpu_grant(self) -> tuple[LeaseGrant | None, PodAsk]:
        """Return the lease of this start, and the changes of the pod that its offer asks for.

        Before admission, or without a service, the lease is None and the changes are those of a CPU-only offer.
        """
        grant = self._gpu_start.grant if self._gpu_start is not None else None
        return grant, grant.pod if grant is not None and grant.pod is not None else CPU_ASK

    async def _make_create_pod_request(self, pod: V1Pod, request_timeout: float) -> bool:
        """Create the pod as KubeSpawner does, after checking that hooks have not changed the GPUs of its lease.

        Args:
            pod: the manifest, as the administrator's hooks have left it.
            request_timeout: longest time of the request to the API server, in seconds.

        Returns:
            True if the pod was created; False if KubeSpawner has to try again.

        Raises:
            web.HTTPError: a refusal, because the pod has other GPUs and ``foreign_gpus`` is ``refuse``.
        """
        described = self.api.api_client.sanitize_for_serialization(pod)
        if differences := gpu_differences(self._gpu_grant()[1], described):
            # logged here, because JupyterHub 5 logs the user's message instead of log_message
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
        """Poll as KubeSpawner does. If the server has ended, store the reason, because its pod may be gone soon.

        While the cluster cannot be read, a server that was running counts as running.
        """
        if self.gpu_watch_has_ended():
            self.gpu_restart_watch()
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
        # a server that was running and is restarted by its node, such as after a reboot, is left alone
        phase = ((self._gpu_last_pod or {}).get("status") or {}).get("phase")
        if status is None and self._gpu_start is None and not self._gpu_up and phase == "Pending":
            self.log.info("%s: a start of the hub before this one is not finished: its pod is deleted", self._log_name)
            await self.gpu_delete_pod()  # its ticket creates a new one
            return 1
        if status is not None and self._gpu_up and self._gpu_end is None:
            self._gpu_end = self._gpu_end_state()
            self.log.warning("%s: %s: %s", self._log_name, self._gpu_end.reason, self._gpu_end.log_message)
        return status

    def _gpu_remember(self) -> None:
        reflector = self.pod_reflector
        pod = reflector.pods.get(f"{self.namespace}/{self.pod_name}") if reflector is not None else None
        if pod is not None:
            self._gpu_last_pod, self._gpu_pod_uid = pod, pod["metadata"]["uid"]

    def _gpu_end_state(self) -> PodState:
        events = events_of(self.event_reflector, self._gpu_pod_uid, fresh=True)
        # the pod's labels show in whose line it waited; a restarted hub cannot find it elsewhere
        labels = ((self._gpu_last_pod or {}).get("metadata") or {}).get("labels") or {}
        queues = (("Kueue", KUEUE_QUEUE_LABEL), ("KAI", KAI_QUEUE_LABEL))
        queue = next((name for name, label in queues if label in labels), "")
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
            end = self._gpu_end_state()  # pods and events arrive separately: the event may have arrived by now
        return (end.reasons if end.reason in LOST_REASONS else ()), end.reason

    # ---------------------------------------------------------------- over a restart of the hub

    def get_state(self) -> dict[str, Any]:
        """Return KubeSpawner's state. For a running server, add the id of its lease ("" for CPU only)."""
        state: dict[str, Any] = super().get_state()
        if self._gpu_ran and self._gpu_lease is not None:
            state["gpu_lease"] = self._gpu_lease
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state after a restart of the hub, so that a stop of this server is reported like any other."""
        super().load_state(state)
        if "gpu_lease" in state:
            self._gpu_lease = str(state["gpu_lease"])
            self._gpu_ran = self._gpu_up = True

    def clear_state(self) -> None:
        super().clear_state()
        self._gpu_lease = None
        self._gpu_up = False
