"""What Kueue says of a queue and of who waits in it, as reasons for the user.

Pure: JSON and texts in, as Kueue v0.19.2 writes them, reasons out. Kueue puts nothing on a pod that it holds back: why
is said in events of its Workload, and that a line does not exist or is closed, on the LocalQueue only.
Not here: reading it (``spawner/pods/kueue.py``), places in line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from hub_extensions.core.text.reasons import Reason, explain

Json = Mapping[str, Any]

VERSION = "v1beta2"
GROUP = "kueue.x-k8s.io"
UNKNOWN_QUEUE, CLOSED_QUEUE = "kueue-line-unknown", "kueue-line-is-closed"


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


def why_held(message: str) -> tuple[Reason, ...]:
    """Why it is held back, by the text of its Workload's event ``Pending``; nothing where that says nothing."""
    if "maximum capacity" in message or "unavailable in ClusterQueue" in message:
        return (explain("kueue-no-share"),)
    if "doesn't match node affinity" in message:
        return (explain("kueue-no-machine"),)
    if "Pending the preemption" in message:
        return (explain("kueue-takes-one-back"),)
    if "insufficient unused quota" in message:
        return (explain("kueue-all-in-use"),)
    return ()


def queue_problem(queue: Json | None) -> Reason | None:
    """What keeps everybody waiting who was sent to this LocalQueue; None: nothing.

    Args:
        queue: as the API server gives it; None: there is no such LocalQueue.
    """
    if queue is None:
        return explain(UNKNOWN_QUEUE, log_message="there is no such LocalQueue")
    conditions = (queue.get("status") or {}).get("conditions") or ()
    active: Json = next((one for one in conditions if one.get("type") == "Active"), {})
    if active.get("status") != "False":
        return None
    reason, message = str(active.get("reason") or ""), str(active.get("message") or "")
    code = UNKNOWN_QUEUE if reason == "ClusterQueueDoesNotExist" else CLOSED_QUEUE
    return explain(code, log_message=f"{reason}: {message}")
