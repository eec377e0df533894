"""The complete state of a pod: code, sentence, text for the log, whether it is final, and exit code."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from hub_extensions.core.cluster.pod_status import event_time, pod_state, scheduled_at, when
from tests.core.cluster.test_pod_status import LACKS, NOW, SCHEDULED, UNPLACED, a_pod, condition, event, refused, server

GIVEN_BACK = "Something with a higher priority took its place in the cluster."
CRASH = {"terminated": {"reason": "Error", "exitCode": 3, "message": "trace"}}
OOM = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
DONE = {"terminated": {"reason": "Completed", "exitCode": 0}}
BACKOFF = {"waiting": {"reason": "CrashLoopBackOff"}}
NEEDS_MORE = "The server needed more memory than it has and was ended."
BY_ITSELF = "The server ended by itself."
NO_IMAGE = "The image quay.io/lab:1 cannot be pulled"
AS_SET_UP = "The machine cannot start it as it is set up."


class Told(NamedTuple):
    """A state as an English reader sees it."""

    reason: str
    message: str = ""
    log_message: str = ""
    final: bool = False
    exit_code: int | None = None
    lacks_other: bool = False
    log_tail: str = ""


def on_n1(state: dict[str, Any] | None = None, *conditions: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A pod that was scheduled to a node a minute ago."""
    status = {"containerStatuses": server(state, **more)} if state is not None else {}
    return a_pod(SCHEDULED, *conditions, node="n1", **status)


def disrupted(reason: str, status: str = "True", **more: Any) -> dict[str, Any]:
    return a_pod(SCHEDULED, condition("DisruptionTarget", status, reason, "because"), node="n1", **more)


def evicted_by_kueue(reason: str, status: str = "True") -> dict[str, Any]:
    return a_pod(SCHEDULED, condition("TerminationTarget", status, f"WorkloadEvictedDueTo{reason}", "m"), node="n1")


def with_status(pod: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {**pod, "status": {**pod["status"], **status}}


def never_again(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "spec": {**pod["spec"], "restartPolicy": "Never"}}


def being_deleted(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-20T14:02:00Z"}}


WHOLE: list[tuple[dict[str, Any] | None, Told]] = [
    (
        disrupted("PreemptionByScheduler"),
        Told("preempted", GIVEN_BACK, "PreemptionByScheduler: because", final=True),
    ),
    (disrupted("Unheard"), Told("evicted", "The cluster ended it.", "Unheard: because", final=True)),
    (disrupted("PreemptionByScheduler", "False"), Told("scheduled", "A machine was found for it.")),
    (
        with_status(disrupted("TerminationByKubelet"), reason="Evicted", message="low on resource: memory"),
        Told("evicted", "The machine it ran on ran short of memory.", "TerminationByKubelet: because", final=True),
    ),
    (
        with_status(disrupted("DeletionByPodGC"), reason="Evicted", message="low on resource: memory"),
        Told("node-lost", "The machine it ran on is not there any more.", "DeletionByPodGC: because", final=True),
    ),
    (
        evicted_by_kueue("NodeFailures"),
        Told("reclaimed", "The machine it ran on failed.", "WorkloadEvictedDueToNodeFailures: m", final=True),
    ),
    (
        evicted_by_kueue("Whatever"),
        Told("reclaimed", "Kueue took its GPU back.", "WorkloadEvictedDueToWhatever: m", final=True),
    ),
    (evicted_by_kueue("NodeFailures", "False"), Told("scheduled", "A machine was found for it.")),
    (
        refused("NodeAffinity", "no"),
        Told("rejected", "The machine that was chosen did not take it.", "NodeAffinity: no", final=True),
    ),
    (
        refused("Preempting", "no"),
        Told("preempted", GIVEN_BACK, "Preempting: no", final=True),
    ),
    (
        refused("Evicted", "no words that we know"),
        Told("evicted", "The machine it ran on needed the room.", "Evicted: no words that we know", final=True),
    ),
    (
        refused("NodeShutdown", "m"),
        Told("node-lost", "The machine it ran on was shut down or lost.", "NodeShutdown: m", final=True),
    ),
    (
        with_status(on_n1(), phase="Running", reason="NodeLost", message="m"),
        Told("node-lost", "The machine it ran on was shut down or lost.", "NodeLost: m", final=False),
    ),
    (
        with_status(on_n1(), phase="Running", reason="NodeShutdown", message="m"),
        Told("scheduled", "A machine was found for it."),
    ),
    (on_n1(OOM), Told("out-of-memory", NEEDS_MORE, "OOMKilled", final=True, exit_code=137)),
    (
        on_n1(BACKOFF, restarts=1, last=OOM),
        Told("out-of-memory", NEEDS_MORE, "OOMKilled", final=False, exit_code=137),
    ),
    (
        on_n1(BACKOFF, restarts=2, last=OOM),
        Told("out-of-memory", NEEDS_MORE, "OOMKilled", final=True, exit_code=137),
    ),
    (
        on_n1(CRASH, restarts=1),
        Told(
            "crashed",
            "The server crashed with exit code 3.",
            "Error: trace",
            final=False,
            exit_code=3,
            log_tail="trace",
        ),
    ),
    (
        on_n1(CRASH, restarts=2),
        Told(
            "crashed", "The server crashed with exit code 3.", "Error: trace", final=True, exit_code=3, log_tail="trace"
        ),
    ),
    (
        never_again(on_n1(CRASH)),
        Told(
            "crashed", "The server crashed with exit code 3.", "Error: trace", final=True, exit_code=3, log_tail="trace"
        ),
    ),
    (
        with_status(on_n1(), phase="Failed", reason="DeadlineExceeded"),
        Told("crashed", "The server crashed.", "DeadlineExceeded", final=True),
    ),
    (
        with_status(on_n1(DONE), phase="Succeeded"),
        Told("ended", BY_ITSELF, "Completed", final=True, exit_code=0),
    ),
    (on_n1(DONE), Told("ended", BY_ITSELF, "Completed", final=False, exit_code=0)),
    (on_n1({"running": {}}, last=CRASH), Told("starting", "It runs and does not answer yet.")),
    (
        being_deleted(on_n1({"running": {}}, ready=True)),
        Told(
            "gone",
            "It was removed from the cluster by something outside this hub.",
            "it is being deleted",
            final=True,
        ),
    ),
    (
        None,
        Told(
            "gone",
            "It was removed from the cluster by something outside this hub.",
            "it is not there any more",
            final=True,
        ),
    ),
    (a_pod(UNPLACED, age=29), Told("unscheduled", "MIG 1g.5gb is not free now.", f"Unschedulable: {LACKS}")),
    (
        a_pod(UNPLACED, age=30),
        Told(
            "outside",
            "Something outside this hub took the MIG 1g.5gb that was free. You stay first in line for it.",
            f"Unschedulable: {LACKS}",
        ),
    ),
    (
        a_pod(condition("PodScheduled", "False", "SchedulingGated", "m"), gates=("a", "b")),
        Told("waiting-for-queue", "The cluster holds it back.", "gates a, b: m"),
    ),
    (
        a_pod(condition("PodScheduled", "False", "SchedulingGated", "m"), gates=("a", "kueue.x-k8s.io/x")),
        Told(
            "waiting-for-queue",
            "Kueue hands out the GPUs here, and has not given MIG 1g.5gb to it yet.",
            "gates a, kueue.x-k8s.io/x: m",
        ),
    ),
    (a_pod(), Told("creating")),
    (on_n1(), Told("scheduled", "A machine was found for it.")),
    (
        with_status(on_n1(), phase="Unknown"),
        Told("node-lost", "The machine it runs on does not answer.", "phase Unknown"),
    ),
]


@pytest.mark.parametrize(("pod", "whole"), WHOLE)
def test_the_complete_state_of_each_recorded_pod(pod: dict[str, Any] | None, whole: Told) -> None:
    found = pod_state(pod, now=NOW, wanted="MIG 1g.5gb")
    assert Told(*(getattr(found, each) for each in Told._fields)) == whole


@pytest.mark.parametrize(("seconds", "final"), [(59, False), (60, True), (61, True)])
@pytest.mark.parametrize(
    ("reason", "word", "sentence", "event_reason"),
    [
        ("ErrImagePull", "image", NO_IMAGE + ".", "Failed"),
        ("ImagePullBackOff", "image", NO_IMAGE + ".", "BackOff"),
        ("CreateContainerConfigError", "misconfigured", AS_SET_UP, "Failed"),
    ],
)
def test_what_does_not_come_up_is_given_a_minute_from_its_first_event_or_its_place(
    reason: str, word: str, sentence: str, event_reason: str, seconds: int, final: bool
) -> None:
    waiting = server({"waiting": {"reason": reason, "message": ""}})
    for pod, events in (
        (a_pod(condition("PodScheduled", "True", seconds=-seconds), node="n1", containerStatuses=waiting), ()),
        (
            a_pod(condition("PodScheduled", "True", seconds=-600), node="n1", containerStatuses=waiting),
            (event(event_reason, "", -seconds), event(event_reason, "", -1), event("Other", "", -600)),
        ),
    ):
        found = pod_state(pod, events, now=NOW)
        assert (found.reason, found.message, found.final) == (word, sentence, final)


@pytest.mark.parametrize("reason", ["InvalidImageName", "ErrImageNeverPull"])
def test_an_image_that_can_never_be_pulled_is_not_waited_for(reason: str) -> None:
    pod = on_n1({"waiting": {"reason": reason, "message": "m"}})
    found = pod_state(pod, now=NOW.replace(hour=0))
    assert (found.reason, found.final, found.log_message) == ("image", True, f"{reason}: m")


@pytest.mark.parametrize(("seconds", "silent"), [(-21, True), (-20, True), (-10, True), (0, True), (1, False)])
def test_an_event_about_a_silent_node_counts_until_the_server_is_ready(seconds: int, silent: bool) -> None:
    pod = on_n1({"running": {}}, condition("Ready", "False", seconds=seconds))
    found = pod_state(pod, [event("NodeNotReady", "m", -10)], now=NOW)
    assert (found.reason == "node-lost") is silent
    ready = on_n1({"running": {}}, condition("Ready", "True", seconds=-20), ready=True)
    assert pod_state(ready, [event("NodeNotReady", "m", -10)], now=NOW).reason == "running"


@pytest.mark.parametrize(
    ("events", "word", "log"),
    [
        ([event("Pulling", "", -5)], "pulling", ""),
        ([event("Pulling", "", -5), event("Pulled", "", -4)], "starting", ""),
        ([event("Pulled", "", -4), event("Pulling", "", -5)], "starting", ""),
        ([event("FailedMount", "m", -3), event("Pulling", "", -5)], "scheduled", "FailedMount: m"),
        ([event("FailedMount", "m", -6), event("Pulling", "", -5)], "pulling", ""),
        ([event("Pulling", "", -5), event("Pulled", "", -5)], "starting", ""),
        ([event("Unheard", "m", -3)], "scheduled", ""),
    ],
)
def test_the_progress_of_a_start_comes_from_its_latest_event(events: list[dict[str, Any]], word: str, log: str) -> None:
    found = pod_state(on_n1(), events, now=NOW)
    assert (found.reason, found.log_message, found.final) == (word, log, False)


@pytest.mark.parametrize(
    ("events", "word"),
    [
        ([], "gone"),
        ([event("Evicted", "m", -9), event("Preempted", "m", -5)], "preempted"),
        ([event("Preempted", "m", -9), event("Evicted", "m", -5)], "evicted"),
        ([event("Stopped", "Preempted to accommodate a workload", -5)], "reclaimed"),
        ([event("Stopped", "its job is done", -5)], "gone"),
        ([event("NodeNotReady", "m", -5), event("Other", "m", -1)], "node-lost"),
    ],
)
def test_the_latest_event_with_a_reason_explains_why_a_pod_is_gone(events: list[dict[str, Any]], word: str) -> None:
    found = pod_state(None, events, now=NOW)
    assert (found.reason, found.final) == (word, True)


def test_times_are_read_from_wherever_the_cluster_wrote_them() -> None:
    a, b = "2026-11-20T14:02:00Z", "2026-11-20T14:03:00+00:00"
    assert when(a) == NOW and when("2026-11-20T14:02:00") == NOW
    assert [when(text) for text in (None, "", 7, "soon")] == [None] * 4
    assert event_time({"series": {"lastObservedTime": a}, "lastTimestamp": b, "eventTime": b}) == NOW
    assert event_time({"lastTimestamp": a, "eventTime": b}) == NOW
    assert event_time({"eventTime": a, "metadata": {"creationTimestamp": b}}) == NOW
    assert event_time({"metadata": {"creationTimestamp": a}}) == NOW and event_time({}) is None
    assert scheduled_at(a_pod(condition("PodScheduled", "True", seconds=0))) == NOW
    assert scheduled_at(a_pod(condition("PodScheduled", "False", seconds=0))) is None
