"""What Kueue says of a queue and of who waits in it, as messages for the user.

Pure: JSON and texts in, as Kueue v0.19.2 writes them. Kueue puts nothing on a pod that it holds back: why is said in
events of its Workload, and that a line does not exist or is closed, on the LocalQueue only.
Not here: reading it (``spawner/pods/kueue.py``), places in line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]

VERSION = "v1beta2"
GROUP = "kueue.x-k8s.io"
UNKNOWN_QUEUE = "Kueue, which hands out the GPUs here, does not know the line it was sent to. Tell an admin."
CLOSED_QUEUE = "The line that it waits in is closed for now. An admin can open it."


def workload_name(events: Iterable[Json]) -> str:
    """The Workload that Kueue made for a pod, by the pod's events ("Created Workload: jhub/pod-jupyter-ada-1b313");
    "" while it made none."""
    for event in events:
        created = re.fullmatch(r"Created Workload: [^/\s]+/(\S+)", str(event.get("message") or ""))
        if event.get("reason") == "CreatedWorkload" and created:
            return created[1]
    return ""


def pending_messages(events: Iterable[Json]) -> dict[str, str]:
    """Workload -> what its latest event ``Pending`` says, of events in the order the API server lists them."""
    latest: dict[str, tuple[str, str]] = {}
    for event in events:
        series = event.get("series") or {}
        at = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
        name = str((event.get("involvedObject") or {}).get("name") or "")
        latest[name] = max(latest.get(name, ("", "")), (str(at), str(event.get("message") or "")))
    return {name: message for name, (_, message) in latest.items()}


def why_held(message: str) -> str:
    """Why it is held back, by the text of its Workload's event ``Pending``, as a sentence; "" where it says nothing."""
    if "maximum capacity" in message or "unavailable in ClusterQueue" in message:
        return "Kueue has no share of that kind for your group, so it would wait for ever. Tell an admin."
    if "doesn't match node affinity" in message:
        return "Kueue's machines are not of the kind that was asked for, so it would wait for ever. Tell an admin."
    if "Pending the preemption" in message:
        return "Kueue takes one back for it from a group that borrowed it."
    if "insufficient unused quota" in message:
        return "All that Kueue has for your group is in use."
    return ""


def queue_problem(queue: Json | None) -> tuple[str, str]:
    """What keeps everybody waiting who was sent to this LocalQueue: message and log message; ("", ""): nothing.

    Args:
        queue: as the API server gives it; None: there is no such LocalQueue.
    """
    if queue is None:
        return UNKNOWN_QUEUE, "there is no such LocalQueue"
    conditions = (queue.get("status") or {}).get("conditions") or ()
    active: Json = next((one for one in conditions if one.get("type") == "Active"), {})
    if active.get("status") != "False":
        return "", ""
    reason, message = str(active.get("reason") or ""), str(active.get("message") or "")
    text = UNKNOWN_QUEUE if reason == "ClusterQueueDoesNotExist" else CLOSED_QUEUE
    return text, f"{reason}: {message}"
