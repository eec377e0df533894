"""Derive the state of a server's pod, and why it is in that state, from the pod's JSON and its events.

The reasons are for users and do not mention Kubernetes; the cluster's own text goes into the log. The texts are those
of kube-scheduler and kubelet 1.34 to 1.36, Kueue v0.19.2 and KAI-Scheduler v0.17.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from hub_extensions.core.cluster.unschedulable import why_unschedulable
from hub_extensions.core.offers.pod_request import CONTAINER
from hub_extensions.core.text.reasons import Reason, as_text, explain
from hub_extensions.core.text.wording import foreign

Json = Mapping[str, Any]

OUTSIDE_AFTER = timedelta(seconds=30)
"""Time for which an admitted pod may be unscheduled. After it, something outside this hub has taken its device."""
IMAGE_AFTER = timedelta(seconds=60)
"""Time for which pulling an image may fail. After it, the start has failed."""
MOST_RESTARTS = 2
"""Restarts of a server's container that are allowed. If it ends once more, the start has failed."""
ENDED_BY_ITSELF = "ended"
LOST_REASONS = frozenset(
    {"out-of-memory", "evicted", "preempted", "reclaimed", "node-lost", "gone", "crashed", "rejected"}
)
"""Reasons for the end of a running server that its user is notified about."""


@dataclass(frozen=True, slots=True)
class PodState:
    """The state of a server's pod, and why it is in that state.

    Attributes:
        reason: ``creating``, ``waiting-for-queue``, ``unscheduled``, ``outside``, ``machine-silent``, ``scheduled``,
            ``pulling``, ``starting``, ``running``; ``rejected``, ``image``, ``misconfigured``, ``crashed``,
            ``out-of-memory``, ``evicted``, ``preempted``, ``reclaimed``, ``node-lost``, ``gone``, ``ended``. The
            metrics use these values too.
        reasons: explanation for the user; can be empty.
        log_message: the cluster's own text for the log; "" if the cluster gave none.
        final: whether the pod will certainly not become a running server any more.
        exit_code: exit code of the server's container; None if it has not ended or is not known.
        lacks_other: True if the pod cannot be scheduled because something other than a GPU is missing, although all
            nodes are available. Waiting for free GPUs does not help.
        log_tail: the last lines of the server's own log; "" if they are not known.
    """

    reason: str
    reasons: tuple[Reason, ...] = ()
    log_message: str = ""
    final: bool = False
    exit_code: int | None = None
    lacks_other: bool = False
    log_tail: str = ""

    @property
    def message(self) -> str:
        """The explanation of the pod's state for the user, in English."""
        return as_text(self.reasons)


def pod_state(
    pod: Json | None,
    events: Sequence[Json] = (),
    *,
    now: datetime,
    queue: str = "",
    wanted: str = "",
    outside_after: timedelta = OUTSIDE_AFTER,
) -> PodState:
    """Return the state of a pod.

    Args:
        pod: JSON from the API server; None if the pod does not exist any more.
        events: events of this pod (same uid), in any order.
        now: aware time of a clock that roughly agrees with the API server's.
        queue: the system that decides who starts when: ``Kueue``, ``KAI``, or "" for the GPU service.
        wanted: title of the chosen offer, such as ``MIG 1g.5gb``; "" for CPU only.
        outside_after: time for which an admitted pod may wait for its GPU. After it, something outside this hub has
            taken the device, unless another system decides who starts, or a node does not answer.
    """
    if pod is None:
        return _gone(events, queue)
    view = _PodView(pod, tuple(events), now, queue, wanted, outside_after)
    for one in (_taken_away, _over, _image, _cannot_be_made, _restarting, _unscheduled, _machine_silent):
        found = one(view)
        if found is not None:
            return found
    return _coming_up(view)


def machine_silent(state: PodState, wanted: str) -> PodState:
    """Return the state for a pod that waits for a GPU while a node with such GPUs does not answer.

    Args:
        state: the pod's state by itself.
        wanted: title of the chosen offer.
    """
    return replace(state, reason="machine-silent", reasons=(explain("device-on-silent-machine", device=wanted),))


def bound(pod: Json) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName"))


def scheduled_at(pod: Json) -> datetime | None:
    """Return when the pod was scheduled, by the API server's clock; None if it is not scheduled or not known."""
    condition = _condition(pod, "PodScheduled")
    return when(condition.get("lastTransitionTime")) if condition.get("status") == "True" else None


def when(text: object) -> datetime | None:
    """Parse a time of the API server; None if it is missing or invalid."""
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def event_time(event: Json) -> datetime | None:
    """Return when an event was last seen; None if its times are missing or invalid.

    Events of the scheduler have only ``eventTime``.
    """
    series = event.get("series") or {}
    for text in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")):
        if moment := when(text):
            return moment
    return when((event.get("metadata") or {}).get("creationTimestamp"))


# ------------------------------------------------------------------ reading a pod
@dataclass(frozen=True, slots=True)
class _PodView:
    pod: Json
    events: tuple[Json, ...]
    now: datetime
    queue: str
    wanted: str
    outside_after: timedelta

    @property
    def status(self) -> Json:
        return self.pod.get("status") or {}

    def containers(self) -> Iterator[Json]:
        """Yield the status of each container of the pod, that of the server itself first."""
        mine = list(self.status.get("containerStatuses") or ())
        yield from sorted(mine, key=lambda container: container.get("name") != CONTAINER)
        yield from self.status.get("initContainerStatuses") or ()

    def server(self) -> Json:
        """The status of the container in which the server itself runs; empty before it exists."""
        return next((one for one in self.containers() if one.get("name") == CONTAINER), {})

    def event(self, *reasons: str) -> Json | None:
        """Return the latest event of the pod with one of these reasons; None if no event matches."""
        found = [event for event in self.events if event.get("reason") in reasons]
        return max(reversed(found), key=_order, default=None)  # of equal times the last in the list


def _order(event: Json) -> datetime:
    return event_time(event) or datetime.min.replace(tzinfo=timezone.utc)


def _condition(pod: Json, kind: str) -> Json:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


TAIL_IN_LOG = 200  # characters of a server's own log that are quoted, escaped, in a line of the hub's log


def _text(reason: object, message: object) -> str:
    return ": ".join(str(part) for part in (reason, message) if part)


# ------------------------------------------------------------------ taken away

_RECLAIMED = {
    "Preempted": "kueue-took-for-group",
    "ClusterQueueStopped": "kueue-line-closed",
    "LocalQueueStopped": "kueue-line-closed",
    "PodsReadyTimeout": "kueue-not-ready-in-time",
    "DeactivatedDueToMaximumExecutionTimeExceeded": "kueue-time-over",
    "MaximumExecutionTimeExceeded": "kueue-time-over",
    "NodeFailures": "its-machine-failed",
}
_DISRUPTED = {
    "PreemptionByScheduler": ("preempted", "higher-priority"),
    "DeletionByTaintManager": ("node-lost", "its-machine-not-available"),
    "DeletionByPodGC": ("node-lost", "its-machine-gone"),
    "EvictionByEvictionAPI": ("evicted", "its-machine-emptied"),
    "TerminationByKubelet": ("evicted", "its-machine-ends"),
}


def _state(reason: str, code: str, log: str = "", **more: Any) -> PodState:
    """Return a pod's state that is explained to the user by one sentence without parameters.

    Args:
        reason: name of the state, as `PodState.reason` lists them.
        code: code of the sentence.
        log: the cluster's own text.
        more: further fields of `PodState`.
    """
    return PodState(reason, (explain(code),), log, **more)


def _taken_away(view: _PodView) -> PodState | None:
    target = _condition(view.pod, "TerminationTarget")
    reason = str(target.get("reason") or "")
    if target.get("status") == "True" and reason.startswith("WorkloadEvictedDueTo"):
        why = _RECLAIMED.get(reason.removeprefix("WorkloadEvictedDueTo"), "kueue-took-back")
        return _state("reclaimed", why, _text(reason, target.get("message")), final=True)
    disrupted = _condition(view.pod, "DisruptionTarget")
    if disrupted.get("status") != "True":
        return None
    reason = str(disrupted.get("reason") or "")
    code, why = _DISRUPTED.get(reason, ("evicted", "cluster-ended-it"))
    if code == "preempted" and view.queue == "KAI":
        code, why = "reclaimed", "kai-took-for-group"
    if code == "evicted" and view.status.get("reason") == "Evicted":
        why = _evicted_why(str(view.status.get("message") or "")) or why
    return _state(code, why, _text(reason, disrupted.get("message")), final=True)


# ------------------------------------------------------------------ over

_REJECTED = re.compile(r"UnexpectedAdmissionError|OutOf\S+|NodeAffinity|NodePorts|TopologyAffinityError|NodeName")
_TAKEN_DEVICE = re.compile(r"Allocate failed|OutOfnvidia|insufficient nvidia", re.IGNORECASE)


def _over(view: _PodView) -> PodState | None:
    status, server = view.status, view.server()
    phase, reason, message = (str(status.get(key) or "") for key in ("phase", "reason", "message"))
    log = _text(reason, message)
    ended = (server.get("state") or {}).get("terminated")
    if phase == "Failed" and (_REJECTED.fullmatch(reason) or message.startswith("Pod was rejected")):
        taken = _TAKEN_DEVICE.search(f"{reason} {message}")
        return _state("rejected", "machine-gave-no-gpu" if taken else "machine-refused-it", log, final=True)
    if phase == "Failed" and reason == "Evicted":
        return _state("evicted", _evicted_why(message) or "its-machine-needed-room", log, final=True)
    if phase == "Failed" and reason in ("Preempting", "Preempted"):
        return _state("preempted", "higher-priority", log, final=True)
    if reason == "NodeLost" or (phase == "Failed" and reason in ("Terminated", "Shutdown", "NodeShutdown")):
        return _state("node-lost", "its-machine-shut-down", log, final=phase == "Failed")
    if ended and ended.get("reason") == "OOMKilled":
        return _out_of_memory(ended, final=True)
    if (view.pod.get("metadata") or {}).get("deletionTimestamp"):
        return _state("gone", _removed(view.queue), log or "it is being deleted", final=True)
    if phase in ("Failed", "Succeeded") or (ended and view.pod.get("spec", {}).get("restartPolicy") == "Never"):
        return _exited(ended or {}, log, final=True)
    return None


def _exited(ended: Json, log: str, *, final: bool) -> PodState:
    code, tail = ended.get("exitCode"), str(ended.get("message") or "")
    log = _text(ended.get("reason") or log, foreign(tail, TAIL_IN_LOG))
    if code == 0:
        return _state(ENDED_BY_ITSELF, "server-ended", log, final=final, exit_code=0)
    why = explain("server-crashed") if code is None else explain("server-crashed-with", code=code)
    return PodState("crashed", (why,), log, final=final, exit_code=code, log_tail=tail)


def _out_of_memory(ended: Json, *, final: bool) -> PodState:
    tail = str(ended.get("message") or "")
    log = _text("OOMKilled", foreign(tail, TAIL_IN_LOG))
    more = {"final": final, "exit_code": ended.get("exitCode"), "log_tail": tail}
    return _state("out-of-memory", "server-out-of-memory", log, **more)


def _evicted_why(message: str) -> str:
    """Return the code of the reason for an eviction, from a kubelet's message; "" for an unknown message.

    Such a message is "The node was low on resource: memory. …".
    """
    if "low on resource: memory" in message:
        return "its-machine-short-of-memory"
    if "low on resource" in message:
        return "its-machine-short-of-disk"
    if "exceeds the limit" in message or "exceeds its local ephemeral storage limit" in message:
        return "server-wrote-too-much"
    return ""


def _removed(queue: str) -> str:
    return "removed-by-kai" if queue == "KAI" else "removed-outside"


_GONE = {
    "TaintManagerEviction": ("node-lost", "its-machine-not-available"),
    "NodeNotReady": ("node-lost", "its-machine-not-available"),
    "Evicted": ("evicted", "its-machine-needed-room"),
    "Preempted": ("preempted", "higher-priority"),
}


def _gone(events: Sequence[Json], queue: str) -> PodState:
    """Return the state of a pod that does not exist any more, from its events.

    Args:
        queue: the system that decides who starts when: ``Kueue``, ``KAI``, or "" for the GPU service.
    """
    for event in sorted(events, key=_order, reverse=True):
        reason, message = str(event.get("reason") or ""), str(event.get("message") or "")
        if reason == "Stopped" and re.search(r"[Pp]reempt|reclamation|Fair Sharing", message):
            return _state("reclaimed", _RECLAIMED["Preempted"], _text(reason, message), final=True)
        if reason in _GONE:
            code, why = _GONE[reason]
            if reason == "Evicted":
                why = _evicted_why(message) or why
            return _state(code, why, _text(reason, message), final=True)
    return _state("gone", _removed(queue), "it is not there any more", final=True)


# ------------------------------------------------------------------ it does not come up

_PULL = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed"}
)
_NO_IMAGE = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_NOT_MADE = frozenset({"CreateContainerConfigError", "CreateContainerError", "PreCreateHookError", "RunContainerError"})


def _waits(view: _PodView, reasons: frozenset[str]) -> tuple[Json, Json] | None:
    """Return the first container that waits for one of these reasons, and its waiting state; None without one.

    Args:
        view: the pod with its events.
        reasons: the reasons in the state ``waiting`` of a container.
    """
    for container in view.containers():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in reasons:
            return container, waiting
    return None


def _image(view: _PodView) -> PodState | None:
    found = _waits(view, _PULL | _NO_IMAGE)
    if found is None:
        return None
    container, waiting = found
    reason, message = str(waiting["reason"]), str(waiting.get("message") or "")
    failed = view.event("Failed")
    detail = message if reason != "ImagePullBackOff" or failed is None else str(failed.get("message") or message)
    why = explain(_why_no_image(f"{detail} {message}"), image=_image_name(view, container))
    final = reason in _NO_IMAGE or _for_long(view, IMAGE_AFTER, "Failed", "BackOff", "ErrImagePull")
    return PodState("image", (why,), _text(reason, detail), final=final)


def _image_name(view: _PodView, container: Json) -> str:
    """Return the name of a container's image; "" if it is not known.

    Args:
        view: the pod with its events.
        container: the status of the container.
    """
    spec = view.pod.get("spec") or {}
    for one in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        if one.get("name") == container.get("name") and one.get("image"):
            return str(one["image"])
    return str(container.get("image") or "")


def _why_no_image(text: str) -> str:
    lower = text.lower()
    if any(part in lower for part in ("unauthorized", "authentication required", "denied", "forbidden")):
        return "image-not-given-out"
    if any(part in lower for part in ("not found", "manifest unknown", "does not exist", "notfound")):
        return "image-not-there"
    if any(part in lower for part in ("no such host", "timeout", "connection refused", "no route to host")):
        return "image-registry-silent"
    if "invalid" in lower or "couldn't parse" in lower:
        return "image-name-wrong"
    return "image-not-pulled"


def _for_long(view: _PodView, enough: timedelta, *reasons: str) -> bool:
    """Return whether the first event with one of these reasons is at least `enough` ago.

    Without such an event, the time since the pod was scheduled counts.

    Args:
        view: the pod with its events.
        enough: how long ago the event has to be.
        reasons: the reasons of the event.
    """
    firsts = [
        when(event.get("firstTimestamp")) or event_time(event)
        for event in view.events
        if event.get("reason") in reasons
    ]
    known = [moment for moment in firsts if moment is not None]
    since = min(known) if known else scheduled_at(view.pod)
    return since is not None and view.now - since >= enough


def _cannot_be_made(view: _PodView) -> PodState | None:
    found = _waits(view, _NOT_MADE)
    if found is not None:
        log = _text(found[1]["reason"], found[1].get("message"))
        final = _for_long(view, IMAGE_AFTER, "Failed")
        return _state("misconfigured", "not-startable", log, final=final)
    return None


def _restarting(view: _PodView) -> PodState | None:
    server = view.server()
    state, last = server.get("state") or {}, (server.get("lastState") or {}).get("terminated")
    ended = state.get("terminated") or (last if (state.get("waiting") or {}).get("reason") else None)
    if not ended:
        return None
    final = int(server.get("restartCount") or 0) >= MOST_RESTARTS
    if ended.get("reason") == "OOMKilled":
        return _out_of_memory(ended, final=final)
    return _exited(ended, "", final=final)


def _machine_silent(view: _PodView) -> PodState | None:
    ready = _condition(view.pod, "Ready")
    event = view.event("NodeNotReady")
    silent = view.status.get("phase") == "Unknown" or (
        event is not None and ready.get("status") == "False" and not _after(ready, event)
    )
    if not silent:
        return None
    log = _text("NodeNotReady", event.get("message")) if event else "phase Unknown"
    return _state("node-lost", "its-machine-silent", log)


def _after(condition: Json, event: Json) -> bool:
    changed, seen = when(condition.get("lastTransitionTime")), event_time(event)
    return changed is not None and seen is not None and changed > seen + timedelta(seconds=10)


# ------------------------------------------------------------------ no machine yet


def _unscheduled(view: _PodView) -> PodState | None:
    if bound(view.pod):
        return None
    condition = _condition(view.pod, "PodScheduled")
    reason, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
    if condition.get("status") == "False" and reason == "SchedulingGated":
        return _gated(view, message)
    if condition.get("status") != "False":
        return PodState("creating")
    binding = view.event("BindingError")
    if view.queue == "KAI":
        detail = str(binding.get("message") or "") if binding and not message else message
        return PodState("waiting-for-queue", _kai_why(detail, view), _text(reason, detail))
    why, log = why_unschedulable(message, view.wanted), _text(reason, message)
    if view.queue:
        left = (explain("kueue-let-it-in", queue=view.queue),) if why.lacks_device else ()
        return PodState("unscheduled", (*why.reasons, *left), log, lacks_other=why.lacks_other)
    since = when((view.pod.get("metadata") or {}).get("creationTimestamp")) or when(condition.get("lastTransitionTime"))
    silent = any(each.reason == "machines-silent" for each in why.reasons)  # such a node may have the device
    late = since is not None and view.now - since >= view.outside_after
    if why.lacks_device and view.wanted and late and not silent:
        return PodState("outside", (explain("device-taken-outside", device=view.wanted),), log)
    return PodState("unscheduled", why.reasons, log, lacks_other=why.lacks_other)


def _gated(view: _PodView, message: str) -> PodState:
    names = [str(gate.get("name")) for gate in (view.pod.get("spec") or {}).get("schedulingGates") or ()]
    log = _text(f"gates {', '.join(names)}" if names else "", message)
    if view.queue == "Kueue" or any(name.startswith("kueue.x-k8s.io/") for name in names):
        wanted, without = view.wanted, explain("kueue-has-not-given-a-place")
        why = explain("kueue-has-not-given", device=wanted) if wanted else without
    else:
        why = explain("cluster-holds-back")
    return PodState("waiting-for-queue", (why,), log)


def _kai_why(message: str, view: _PodView) -> tuple[Reason, ...]:
    if "QueueDoesNotExist" in message:
        return (explain("kai-line-unknown"),)
    if "NonPreemptibleOverQuota" in message:
        return (explain("group-uses-its-own"),)
    if "OverLimit" in message:
        return (explain("group-uses-its-most"),)
    if "failed to reserve GPUs" in message:
        return (explain("kai-reserves"),)
    if "didn't have enough resources: GPUs" in message:
        return explain("kai-hands-out"), explain("all-of-that-kind-in-use")
    return explain("kai-hands-out"), *why_unschedulable(message, view.wanted).reasons


# ------------------------------------------------------------------ coming up

_SLOW = {
    "FailedMount": "files-not-reachable",
    "FailedAttachVolume": "files-not-reachable",
    "FailedCreatePodSandBox": "machine-makes-room",
}


def _coming_up(view: _PodView) -> PodState:
    server = view.server()
    if (server.get("state") or {}).get("running") is not None:
        if server.get("ready"):
            return PodState("running")
        return _state("starting", "runs-silent")
    slow = view.event(*_SLOW)
    latest = view.event("Pulling", "Pulled", "Created", "Started", *_SLOW)
    if slow is not None and latest is slow:
        return _state("scheduled", _SLOW[str(slow["reason"])], _text(slow["reason"], slow.get("message")))
    if latest is not None and latest.get("reason") == "Pulling":
        return _state("pulling", "software-comes")
    if latest is not None:
        return PodState("starting")
    return _state("scheduled", "machine-found")
