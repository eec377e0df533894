"""Explain why Kueue (the queue for pods) holds a pod, from the JSON and texts of Kueue v0.19.2.

Kueue writes nothing on the pod itself. The reason is in the events of the pod's Workload. Only the LocalQueue shows
that a queue does not exist or is closed.
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
    """Return the name of the Workload that Kueue created for a pod; "" if no event names it.

    The pod's events name it: "Created Workload: jhub/pod-jupyter-ada-1b313".
    """
    for event in events:
        created = re.fullmatch(r"Created Workload: [^/\s]+/(\S+)", str(event.get("message") or ""))
        if event.get("reason") == "CreatedWorkload" and created:
            return created[1]
    return ""


def pending_messages(events: Iterable[Json]) -> dict[str, str]:
    """Return name of the Workload -> message of its latest ``Pending`` event.

    Args:
        events: events in the order in which the API server lists them.
    """
    latest: dict[str, tuple[str, str]] = {}
    for event in events:
        series = event.get("series") or {}
        at = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
        name = str((event.get("involvedObject") or {}).get("name") or "")
        latest[name] = max(latest.get(name, ("", "")), (str(at), str(event.get("message") or "")))
    return {name: message for name, (_, message) in latest.items()}


def why_held(message: str) -> tuple[Reason, ...]:
    """Return why Kueue holds a Workload, from the message of its ``Pending`` event; empty for an unknown message."""
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
    """Return why no pod of a LocalQueue can start, or None if the queue works.

    Args:
        queue: the LocalQueue from the API server; None if it does not exist.
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
