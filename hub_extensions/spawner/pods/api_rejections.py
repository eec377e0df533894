"""Why a cluster did not take a server's pod, as a message, and whether it is worth asking again.

Pure: the answer's status and text in, a message out. Texts as kube-apiserver 1.34 to 1.36, Kueue v0.19.2 and
KAI-Scheduler v0.17.0 write them. Not here: asking (``launch.py``), and pods that were taken
(``core/cluster/pod_status.py``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

CONTACT_ADMIN = "Tell an admin."


@dataclass(frozen=True, slots=True)
class ApiRejection:
    """One refusal of the cluster.

    Attributes:
        reason: for the metric: ``quota``, ``cluster-refused``, ``cluster-rights``, ``kueue-away``, ``cluster-away``.
        message: for the user.
        log_message: the cluster's own text.
        temporary: it may take it later; else it never will.
    """

    reason: str
    message: str
    log_message: str
    temporary: bool = False


def rejection_of(status: int, body: str, queue: str = "") -> ApiRejection:
    """What an answer of the API server to a create means.

    Args:
        status: of HTTP. body: a ``Status`` object as JSON, or any text.
        queue: whose line it is: ``Kueue``, ``KAI``, or "".
    """
    text = _message(body)
    log = f"{status}: {text}"
    if "failed calling webhook" in text:
        return _webhook_away(text, log, queue)
    if status == 429 or status >= 500:
        return cluster_away(log)
    if "exceeded quota" in text:
        return ApiRejection("quota", f"The cluster's quota for this hub is used up{_quota(text)}.", log)
    denied = re.search(r"denied the request: *(.+)", text, re.DOTALL)
    if denied:
        answer = " ".join(denied[1].split()).rstrip(".")
        who = "KAI, which hands out the GPUs here," if queue == "KAI" else "The cluster"
        return ApiRejection("cluster-refused", f"{who} does not take this server: {answer}. {CONTACT_ADMIN}", log)
    if "violates PodSecurity" in text:
        why = "The cluster's rules for safe servers do not allow it as it is set up."
        return ApiRejection("cluster-refused", f"{why} {CONTACT_ADMIN}", log)
    if status in (401, 403):
        return ApiRejection("cluster-rights", f"This hub may not start servers in the cluster. {CONTACT_ADMIN}", log)
    return ApiRejection(
        "cluster-refused", f"The cluster does not take this server as it is set up. {CONTACT_ADMIN}", log
    )


def cluster_away(log_message: str) -> ApiRejection:
    """Nobody answered, or the answer was that nobody can answer now."""
    return ApiRejection(
        "cluster-away", "The cluster does not answer now. The start is tried again until it does.", log_message, True
    )


def _webhook_away(text: str, log: str, queue: str) -> ApiRejection:
    name = re.search(r'failed calling webhook "([^"]*)"', text)
    hook = name[1] if name else ""
    if queue == "Kueue" or "kueue" in text or hook in ("mpod.kb.io", "vpod.kb.io"):
        why = "Kueue, which hands out the GPUs here, does not answer. The start is tried again until it does."
        return ApiRejection("kueue-away", why, log, True)
    why = "A part of the cluster that every start has to pass does not answer. The start is tried again until it does."
    return ApiRejection("cluster-away", why, log, True)


def _quota(text: str) -> str:
    """``exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: ...=4, limited: ...=4``: of what."""
    asked = re.search(r"limited: ([^ ]+?)=([^, ]+)", text)
    if asked is None:
        return ""
    what = asked[1].removeprefix("requests.").removeprefix("limits.").removeprefix("nvidia.com/")
    plain = {"gpu": "GPUs", "cpu": "processors", "memory": "memory", "pods": "servers"}
    return f": {asked[2]} of {plain.get(what, what)}"


def _message(body: str) -> str:
    try:
        status = json.loads(body)
    except ValueError:
        return body.strip()[:2000]
    return str(status.get("message") or body)[:2000] if isinstance(status, dict) else body.strip()[:2000]
