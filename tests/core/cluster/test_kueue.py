"""Explanations of Kueue's events and of its LocalQueue, with the texts of Kueue v0.19.2."""

from __future__ import annotations

import pytest

from hub_extensions.core.cluster.kueue import (
    CLOSED_QUEUE,
    UNKNOWN_QUEUE,
    pending_messages,
    queue_problem,
    why_held,
    workload_name,
)
from hub_extensions.core.text.reasons import as_text, explain

NO_FLAVOR = "couldn't assign flavors to pod set main: "
UNUSED = NO_FLAVOR + "insufficient unused quota for nvidia.com/mig-1g.5gb in flavor lab, 1 more needed"


def test_the_workload_of_a_pod_is_named_by_the_pods_own_event() -> None:
    events = [
        {"reason": "Scheduled", "message": "Successfully assigned jhub/jupyter-ada to n1"},
        {"reason": "CreatedWorkload", "message": "Created Workload: jhub/pod-jupyter-ada-1b313"},
    ]
    assert workload_name(events) == "pod-jupyter-ada-1b313"
    assert workload_name(events[:1]) == ""


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (UNUSED, "All that Kueue has for your group is in use."),
        (UNUSED + ". Pending the preemption of 1 workload(s)", "Kueue takes one back for it"),
        (NO_FLAVOR + "request (6) > maximum capacity (5)", "would wait for ever. Tell an admin."),
        (NO_FLAVOR + "resource nvidia.com/mig-7g.40gb unavailable in ClusterQueue", "would wait for ever."),
        (NO_FLAVOR + "flavor lab doesn't match node affinity", "not of the kind that was asked for"),
    ],
)
def test_why_it_is_held_back_is_a_sentence_for_the_user(message: str, words: str) -> None:
    said = as_text(why_held(message))
    assert words in said
    assert not any(jargon in said for jargon in ("quota", "flavor", "queue", "preempt", "nvidia.com"))


def test_a_text_that_is_not_known_adds_nothing() -> None:
    assert why_held("") == why_held("something new") == ()


def test_of_several_events_the_latest_counts() -> None:
    about = {"kind": "Workload", "name": "w"}
    old = {"involvedObject": about, "message": "old", "eventTime": "2026-01-01T10:00:00.000000Z"}
    new = {"involvedObject": about, "message": "new", "series": {"lastObservedTime": "2026-01-01T10:05:00.000000Z"}}
    assert pending_messages([new, old]) == {"w": "new"}
    assert pending_messages([]) == {}


def test_a_local_queue_is_missing_closed_or_open() -> None:
    def line(status: str, reason: str) -> dict[str, object]:
        return {"status": {"conditions": [{"type": "Active", "status": status, "reason": reason, "message": "m"}]}}

    for told, code, log in (
        (None, UNKNOWN_QUEUE, "there is no such LocalQueue"),
        (line("False", "ClusterQueueDoesNotExist"), UNKNOWN_QUEUE, "ClusterQueueDoesNotExist: m"),
        (line("False", "Stopped"), CLOSED_QUEUE, "Stopped: m"),
    ):
        assert queue_problem(told) == explain(code, log_message=log)
    assert queue_problem(line("True", "Ready")) is queue_problem({}) is None
