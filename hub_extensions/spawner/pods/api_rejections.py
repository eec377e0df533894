"""Explains, from the API server's answer, why a cluster did not create a server's pod, and whether to try again.

The texts are those of kube-apiserver 1.34 to 1.36, Kueue v0.19.2 and KAI-Scheduler v0.17.0.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from hub_extensions.core.text.reasons import Reason, as_text, explain


@dataclass(frozen=True, slots=True)
class ApiRejection:
    """Why the API server did not create a pod, from its answer. `rejection_of` makes it.

    Attributes:
        reason: label of the metric: ``quota``, ``cluster-refused``, ``cluster-rights``, ``kueue-away`` or
            ``cluster-away``.
        reasons: the sentences for the user: what happened and what to do.
        log_message: the cluster's own text, for the hub's log.
        temporary: the cluster may accept the pod later, so the creation is retried.
    """

    reason: str
    reasons: tuple[Reason, ...]
    log_message: str
    temporary: bool = False

    @property
    def message(self) -> str:
        """Why the API server did not create the pod, in English, as one text for the user."""
        return as_text(self.reasons)


def rejection_of(status: int, body: str, queue: str = "") -> ApiRejection:
    """Interpret the API server's answer to the creation of a pod.

    Args:
        status: HTTP status.
        body: a ``Status`` object as JSON, or any text.
        queue: who manages the line: ``Kueue``, ``KAI``, or "" for the GPU service.
    """
    text = _message(body)
    log = f"{status}: {text}"
    if "failed calling webhook" in text:
        return _webhook_away(text, log, queue)
    if status == 429 or status >= 500:
        return cluster_away(log)
    if "exceeded quota" in text:
        return ApiRejection("quota", (_quota(text),), log)
    denied = re.search(r"denied the request: *(.+)", text, re.DOTALL)
    if denied:
        answer = " ".join(denied[1].split()).rstrip(".")
        why = explain("kai-refuses" if queue == "KAI" else "cluster-refuses", answer=answer)
        return _for_an_admin("cluster-refused", why, log)
    if "violates PodSecurity" in text:
        return _for_an_admin("cluster-refused", explain("cluster-refuses-unsafe"), log)
    if status in (401, 403):
        return _for_an_admin("cluster-rights", explain("cluster-allows-nothing"), log)
    return _for_an_admin("cluster-refused", explain("cluster-refuses-set-up"), log)


def cluster_away(log_message: str) -> ApiRejection:
    """Return the rejection for an API server that does not answer, or reports that it is not available.

    Args:
        log_message: the cluster's own text, for the hub's log.
    """
    return _away("cluster-away", "cluster-silent", log_message)


def _away(reason: str, who: str, log: str) -> ApiRejection:
    return ApiRejection(reason, (explain(who), explain("tried-until-it-answers")), log, True)


def _for_an_admin(reason: str, why: Reason, log: str) -> ApiRejection:
    return ApiRejection(reason, (why, explain("tell-an-admin")), log)


def _webhook_away(text: str, log: str, queue: str) -> ApiRejection:
    name = re.search(r'failed calling webhook "([^"]*)"', text)
    hook = name[1] if name else ""
    if queue == "Kueue" or "kueue" in text or hook in ("mpod.kb.io", "vpod.kb.io"):
        return _away("kueue-away", "kueue-silent", log)
    return _away("cluster-away", "cluster-part-silent", log)


def _quota(text: str) -> Reason:
    """Return the sentence for the user that names the exhausted resource of a quota.

    Args:
        text: the API server's text, such as ``exceeded quota: gpus, …, limited: requests.nvidia.com/gpu=4``. If it has
            another form, the sentence names no resource.
    """
    asked = re.search(r"limited: ([^ ]+?)=([^, ]+)", text)
    if asked is None:
        return explain("quota-used-up")
    what = asked[1].removeprefix("requests.").removeprefix("limits.").removeprefix("nvidia.com/")
    plain = {"gpu": "GPUs", "cpu": "processors", "memory": "memory", "pods": "servers"}
    return explain("quota-used-up-of", most=asked[2], what=plain.get(what, what))


def _message(body: str) -> str:
    try:
        status = json.loads(body)
    except ValueError:
        return body.strip()[:2000]
    return str(status.get("message") or body)[:2000] if isinstance(status, dict) else body.strip()[:2000]
