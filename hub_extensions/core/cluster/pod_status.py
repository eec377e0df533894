"""What a server's pod is doing and why: from the pod, its conditions and its events as the cluster has them.

Pure: JSON in (as the API server writes it), one value out. The message is for the user and names nothing of
Kubernetes; the cluster's own text goes into the log. Texts as kube-scheduler and kubelet 1.34 to 1.36, Kueue v0.19.2
and KAI-Scheduler v0.17.0 write them.
Not here: what follows from it (``spawner/kube.py``), who is next (``queue/admission.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from hub_extensions.core.cluster.unschedulable import why_unschedulable
from hub_extensions.core.wording import foreign

Json = Mapping[str, Any]

OUTSIDE_AFTER = timedelta(seconds=30)
"""An admitted pod that is still not placed after this long: something outside this hub took the device."""
IMAGE_AFTER = timedelta(seconds=60)
"""An image that could not be pulled for this long is not waited for any more."""
MOST_RESTARTS = 2
"""A server that ended again after so many restarts does not come up."""
CONTAINER = "notebook"
"""Of KubeSpawner's pods: the container that is the server."""

ENDED_BY_ITSELF = "ended"
LOST_REASONS = frozenset(
    {"out-of-memory", "evicted", "preempted", "reclaimed", "node-lost", "gone", "crashed", "rejected"}
)
"""Ends of a running server that its user has to know of."""


@dataclass(frozen=True, slots=True)
class PodState:
    """What a pod is doing.

    Attributes:
        reason: ``creating``, ``waiting-for-queue``, ``unscheduled``, ``outside``, ``machine-silent``, ``scheduled``,
            ``pulling``, ``starting``, ``running``; ``rejected``, ``image``, ``misconfigured``, ``crashed``,
            ``out-of-memory``, ``evicted``, ``preempted``, ``reclaimed``, ``node-lost``, ``gone``, ``ended``. The
            metrics use it, too.
        message: for the user; "" where there is nothing to say.
        log_message: the cluster's own text; "" without.
        final: this pod never becomes a server (any more).
        exit_code: of the server's container; None: it has not ended, or it is not known.
        lacks_other: it has no machine for want of something that is no GPU, and all machines are there: waiting for
            GPUs to be given back does not help.
        log_tail: the last lines that the server's program wrote, as they are; "" where they are not known.
    """

    reason: str
    message: str = ""
    log_message: str = ""
    final: bool = False
    exit_code: int | None = None
    lacks_other: bool = False
    log_tail: str = ""


def pod_state(
    pod: Json | None,
    events: Sequence[Json] = (),
    *,
    now: datetime,
    queue: str = "",
    wanted: str = "",
    outside_after: timedelta = OUTSIDE_AFTER,
) -> PodState:
    """The state of one pod.

    Args:
        pod: as the API server gives it; None: it is there no more.
        events: of this very pod (same uid), in any order.
        now: aware; by a clock that is not far from the API server's.
        queue: whose line it waits in: ``Kueue``, ``KAI``, or "" for ours.
        wanted: title of what was chosen, e.g. ``MIG 1g.5gb``; "" for CPU only.
        outside_after: without a machine for so long, and no line but ours: something outside this hub took the device.
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
    """The state of a pod whose GPU seems taken, where a machine that has such a one does not answer."""
    it = wanted.removeprefix("a ")
    text = f"A machine that has {it} does not answer, and no other has one free. You stay first in line for it."
    return replace(state, reason="machine-silent", message=text)


def bound(pod: Json) -> bool:
    """A machine was found for it."""
    return bool((pod.get("spec") or {}).get("nodeName"))


def scheduled_at(pod: Json) -> datetime | None:
    """When a machine was found for it, by the API server's clock; None: not yet, or not known."""
    condition = _condition(pod, "PodScheduled")
    return when(condition.get("lastTransitionTime")) if condition.get("status") == "True" else None


def when(text: object) -> datetime | None:
    """A time as the API server writes it; None for none."""
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def event_time(event: Json) -> datetime | None:
    """When it was last seen. The scheduler's events have ``eventTime`` only; the other times are null."""
    series = event.get("series") or {}
    for text in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")):
        if moment := when(text):
            return moment
    return when((event.get("metadata") or {}).get("creationTimestamp"))


# ------------------------------------------------------------------ what a pod says


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

    @property
    def device(self) -> str:
        return self.wanted or "a place"

    def containers(self) -> Iterator[Json]:
        """What is known of its containers, the server's first."""
        mine = list(self.status.get("containerStatuses") or ())
        yield from sorted(mine, key=lambda container: container.get("name") != CONTAINER)
        yield from self.status.get("initContainerStatuses") or ()

    def server(self) -> Json:
        """The server's own container; empty before there is one."""
        return next((one for one in self.containers() if one.get("name") == CONTAINER), {})

    def event(self, *reasons: str) -> Json | None:
        """The latest event with one of these reasons."""
        found = [event for event in self.events if event.get("reason") in reasons]
        return max(reversed(found), key=_order, default=None)  # of one second the last in the list


def _order(event: Json) -> datetime:
    return event_time(event) or datetime.min.replace(tzinfo=timezone.utc)


def _condition(pod: Json, kind: str) -> Json:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


TAIL_IN_LOG = 200
"""So much of what a server's program wrote is in a line of the hub's log, where nothing of it breaks the line."""


def _text(reason: object, message: object) -> str:
    return ": ".join(str(part) for part in (reason, message) if part)


# ------------------------------------------------------------------ taken away

_RECLAIMED = {
    "Preempted": "Kueue took its GPU back for a group that has a right to it.",
    "ClusterQueueStopped": "An admin closed the line it came from.",
    "LocalQueueStopped": "An admin closed the line it came from.",
    "PodsReadyTimeout": "It was not ready in the time that Kueue gives a start.",
    "DeactivatedDueToMaximumExecutionTimeExceeded": "The time that it was given is over.",
    "MaximumExecutionTimeExceeded": "The time that it was given is over.",
    "NodeFailures": "The machine it ran on failed.",
}
_DISRUPTED = {
    "PreemptionByScheduler": ("preempted", "Something with a higher priority took its place in the cluster."),
    "DeletionByTaintManager": ("node-lost", "The machine it ran on is not available any more."),
    "DeletionByPodGC": ("node-lost", "The machine it ran on is not there any more."),
    "EvictionByEvictionAPI": ("evicted", "The machine it ran on is being emptied by an admin."),
    "TerminationByKubelet": ("evicted", "The machine it ran on ran short of memory or disk, or is being shut down."),
}


def _taken_away(view: _PodView) -> PodState | None:
    target = _condition(view.pod, "TerminationTarget")
    reason = str(target.get("reason") or "")
    if target.get("status") == "True" and reason.startswith("WorkloadEvictedDueTo"):
        why = _RECLAIMED.get(reason.removeprefix("WorkloadEvictedDueTo"), "Kueue took its GPU back.")
        return PodState("reclaimed", why, _text(reason, target.get("message")), final=True)
    disrupted = _condition(view.pod, "DisruptionTarget")
    if disrupted.get("status") != "True":
        return None
    reason = str(disrupted.get("reason") or "")
    code, why = _DISRUPTED.get(reason, ("evicted", "The cluster ended it."))
    if code == "preempted" and view.queue == "KAI":
        code, why = "reclaimed", "KAI took its GPU back for a group that has a right to it."
    if code == "evicted" and view.status.get("reason") == "Evicted":
        why = _evicted_why(str(view.status.get("message") or "")) or why
    return PodState(code, why, _text(reason, disrupted.get("message")), final=True)


# ------------------------------------------------------------------ over

_REJECTED = re.compile(r"UnexpectedAdmissionError|OutOf\S+|NodeAffinity|NodePorts|TopologyAffinityError|NodeName")
_TAKEN_DEVICE = re.compile(r"Allocate failed|OutOfnvidia|insufficient nvidia", re.IGNORECASE)


def _over(view: _PodView) -> PodState | None:
    status, server = view.status, view.server()
    phase, reason, message = (str(status.get(key) or "") for key in ("phase", "reason", "message"))
    log = _text(reason, message)
    ended = (server.get("state") or {}).get("terminated")
    if phase == "Failed" and (_REJECTED.fullmatch(reason) or message.startswith("Pod was rejected")):
        why = "The machine that was chosen did not take it."
        if _TAKEN_DEVICE.search(f"{reason} {message}"):
            why = "The machine that was chosen could not hand out the GPU."
        return PodState("rejected", why, log, final=True)
    if phase == "Failed" and reason == "Evicted":
        why = _evicted_why(message) or "The machine it ran on needed the room."
        return PodState("evicted", why, log, final=True)
    if phase == "Failed" and reason in ("Preempting", "Preempted"):
        return PodState("preempted", _DISRUPTED["PreemptionByScheduler"][1], log, final=True)
    if reason == "NodeLost" or (phase == "Failed" and reason in ("Terminated", "Shutdown", "NodeShutdown")):
        return PodState("node-lost", "The machine it ran on was shut down or lost.", log, final=phase == "Failed")
    if ended and ended.get("reason") == "OOMKilled":
        return _out_of_memory(ended, final=True)
    if (view.pod.get("metadata") or {}).get("deletionTimestamp"):
        return PodState("gone", _removed(view.queue), log or "it is being deleted", final=True)
    if phase in ("Failed", "Succeeded") or (ended and view.pod.get("spec", {}).get("restartPolicy") == "Never"):
        return _exited(ended or {}, log, final=True)
    return None


def _exited(ended: Json, log: str, *, final: bool) -> PodState:
    code, tail = ended.get("exitCode"), str(ended.get("message") or "")
    log = _text(ended.get("reason") or log, foreign(tail, TAIL_IN_LOG))
    if code == 0:
        return PodState(ENDED_BY_ITSELF, "The server ended by itself.", log, final=final, exit_code=0)
    with_code = "" if code is None else f" with exit code {code}"
    return PodState("crashed", f"The server crashed{with_code}.", log, final=final, exit_code=code, log_tail=tail)


def _out_of_memory(ended: Json, *, final: bool) -> PodState:
    text = "The server needed more memory than it has and was ended."
    tail = str(ended.get("message") or "")
    log = _text("OOMKilled", foreign(tail, TAIL_IN_LOG))
    return PodState("out-of-memory", text, log, final=final, exit_code=ended.get("exitCode"), log_tail=tail)


def _evicted_why(message: str) -> str:
    """A kubelet's words: "The node was low on resource: memory. …", "Usage of EmptyDir volume … exceeds the limit"."""
    if "low on resource: memory" in message:
        return "The machine it ran on ran short of memory."
    if "low on resource" in message:
        return "The machine it ran on ran short of disk space."
    if "exceeds the limit" in message or "exceeds its local ephemeral storage limit" in message:
        return "The server wrote more temporary data than it may."
    return ""


def _removed(queue: str) -> str:
    if queue == "KAI":
        return "KAI took its GPU back, or somebody removed it from the cluster."
    return "It was removed from the cluster by something outside this hub."


_GONE = {
    "TaintManagerEviction": ("node-lost", "The machine it ran on is not available any more."),
    "NodeNotReady": ("node-lost", "The machine it ran on is not available any more."),
    "Evicted": ("evicted", "The machine it ran on needed the room."),
    "Preempted": ("preempted", "Something with a higher priority took its place in the cluster."),
}


def _gone(events: Sequence[Json], queue: str) -> PodState:
    """It is not there any more: its events are all that is left."""
    for event in sorted(events, key=_order, reverse=True):
        reason, message = str(event.get("reason") or ""), str(event.get("message") or "")
        if reason == "Stopped" and re.search(r"[Pp]reempt|reclamation|Fair Sharing", message):
            return PodState("reclaimed", _RECLAIMED["Preempted"], _text(reason, message), final=True)
        if reason in _GONE:
            code, why = _GONE[reason]
            if reason == "Evicted":
                why = _evicted_why(message) or why
            return PodState(code, why, _text(reason, message), final=True)
    return PodState("gone", _removed(queue), "it is not there any more", final=True)


# ------------------------------------------------------------------ it does not come up

_PULL = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", "SignatureValidationFailed"}
)
_NO_IMAGE = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_NOT_MADE = frozenset({"CreateContainerConfigError", "CreateContainerError", "PreCreateHookError", "RunContainerError"})


def _waits(view: _PodView, reasons: frozenset[str]) -> tuple[Json, Json] | None:
    """The first container that waits for one of these reasons, and the waiting itself."""
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
    name = _image_name(view, container)
    text = f"The image {name} cannot be pulled{_why_no_image(detail + ' ' + message)}."
    final = reason in _NO_IMAGE or _for_long(view, IMAGE_AFTER, "Failed", "BackOff", "ErrImagePull")
    return PodState("image", text, _text(reason, detail), final=final)


def _image_name(view: _PodView, container: Json) -> str:
    spec = view.pod.get("spec") or {}
    for one in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        if one.get("name") == container.get("name") and one.get("image"):
            return str(one["image"])
    return str(container.get("image") or "of the server")


def _why_no_image(text: str) -> str:
    lower = text.lower()
    if any(part in lower for part in ("unauthorized", "authentication required", "denied", "forbidden")):
        return ": its registry does not give it out to this hub"
    if any(part in lower for part in ("not found", "manifest unknown", "does not exist", "notfound")):
        return ": there is no such image"
    if any(part in lower for part in ("no such host", "timeout", "connection refused", "no route to host")):
        return ": its registry does not answer"
    if "invalid" in lower or "couldn't parse" in lower:
        return ": that is no image's name"
    return ""


def _for_long(view: _PodView, enough: timedelta, *reasons: str) -> bool:
    """The first of these events, or where there is none the placement, is long ago."""
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
        return PodState("misconfigured", "The machine cannot start it as it is set up.", log, final=final)
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
    return PodState("node-lost", "The machine it runs on does not answer.", log)


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
        left = f" {view.queue} has let it in; the GPU is still being given back." if why.lacks_device else ""
        return PodState("unscheduled", f"{why.message}{left}", log, lacks_other=why.lacks_other)
    since = when((view.pod.get("metadata") or {}).get("creationTimestamp")) or when(condition.get("lastTransitionTime"))
    if why.lacks_device and view.wanted and since is not None and view.now - since >= view.outside_after:
        it = view.wanted.removeprefix("a ")
        outside = f"Something outside this hub took the {it} that was free. You stay first in line for it."
        return PodState("outside", outside, log)
    return PodState("unscheduled", why.message, log, lacks_other=why.lacks_other)


def _gated(view: _PodView, message: str) -> PodState:
    names = [str(gate.get("name")) for gate in (view.pod.get("spec") or {}).get("schedulingGates") or ()]
    log = _text(f"gates {', '.join(names)}" if names else "", message)
    if view.queue == "Kueue" or any(name.startswith("kueue.x-k8s.io/") for name in names):
        text = f"Kueue hands out the GPUs here, and has not given {view.device} to it yet."
    else:
        text = "The cluster holds it back."
    return PodState("waiting-for-queue", text, log)


def _kai_why(message: str, view: _PodView) -> str:
    if "QueueDoesNotExist" in message:
        return "KAI, which hands out the GPUs here, does not know the line it was sent to. Tell an admin."
    if "NonPreemptibleOverQuota" in message:
        return "Your group uses all the GPUs that are its own."
    if "OverLimit" in message:
        return "Your group uses as many GPUs as it may."
    if "failed to reserve GPUs" in message:
        return "KAI found a GPU and cannot reserve it yet."
    text = why_unschedulable(message, view.wanted).message
    if "didn't have enough resources: GPUs" in message:
        text = "All GPUs of that kind are in use."
    return f"KAI hands out the GPUs here. {text}"


# ------------------------------------------------------------------ coming up

_SLOW = {
    "FailedMount": "Its files are not reachable from the machine yet.",
    "FailedAttachVolume": "Its files are not reachable from the machine yet.",
    "FailedCreatePodSandBox": "The machine has trouble making room for it and tries again.",
}


def _coming_up(view: _PodView) -> PodState:
    server = view.server()
    if (server.get("state") or {}).get("running") is not None:
        if server.get("ready"):
            return PodState("running")
        return PodState("starting", "It runs and does not answer yet.")
    slow = view.event(*_SLOW)
    latest = view.event("Pulling", "Pulled", "Created", "Started", *_SLOW)
    if slow is not None and latest is slow:
        return PodState("scheduled", _SLOW[str(slow["reason"])], _text(slow["reason"], slow.get("message")))
    if latest is not None and latest.get("reason") == "Pulling":
        return PodState("pulling", "Its software is being brought to the machine, which takes minutes the first time.")
    if latest is not None:
        return PodState("starting")
    return PodState("scheduled", "A machine was found for it.")
