"""The state of a pod as text, from the messages of real schedulers, kubelets, Kueue and KAI."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.core.cluster.pod_status import pod_state, scheduled_at, when
from hub_extensions.core.cluster.unschedulable import why_unschedulable
from hub_extensions.core.text.reasons import as_text

NOW = datetime(2026, 11, 20, 14, 2, tzinfo=timezone.utc)
LACKS = (
    "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb. no new claims to deallocate, preemption: "
    "0/1 nodes are available: 1 No preemption victims found for incoming pod."
)
JARGON = ("pod", "node", "nvidia.com", "kubelet", "schedul", "taint", "container", "namespace")


def at(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def condition(kind: str, status: str, reason: str = "", message: str = "", seconds: float = -60) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(seconds)}


def a_pod(
    *conditions: dict[str, Any], age: float = 60, node: str = "", gates: tuple[str, ...] = (), **status: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "jupyter-ada", "uid": "u1", "creationTimestamp": at(-age)},
        "spec": {
            "nodeName": node,
            "restartPolicy": "OnFailure",
            "containers": [{"name": "notebook", "image": "quay.io/lab:1"}],
            "schedulingGates": [{"name": gate} for gate in gates],
        },
        "status": {"phase": "Pending", "conditions": list(conditions), **status},
    }


def server(state: dict[str, Any], *, ready: bool = False, restarts: int = 0, last: Any = None) -> list[dict[str, Any]]:
    return [{"name": "notebook", "ready": ready, "restartCount": restarts, "state": state, "lastState": last or {}}]


def event(reason: str, message: str = "", seconds: float = -10) -> dict[str, Any]:
    times = {"eventTime": at(seconds), "firstTimestamp": None, "lastTimestamp": None}
    return {"reason": reason, "message": message, "involvedObject": {"uid": "u1"}, **times}


def refused(reason: str = "UnexpectedAdmissionError", message: str = "") -> dict[str, Any]:
    """A pod that a kubelet rejected: without conditions and containers."""
    text = message or (
        "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = gone, which is unexpected"
    )
    return {**a_pod(node="n1"), "status": {"phase": "Failed", "reason": reason, "message": text}}


SCHEDULED = condition("PodScheduled", "True")
UNPLACED = condition("PodScheduled", "False", "Unschedulable", LACKS)
SILENT, UNREACHED = (
    condition(
        "PodScheduled",
        "False",
        "Unschedulable",
        f"0/{number + 1} nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb, {number} node(s) had untolerated "
        f"taint {{node.kubernetes.io/{taint}: }}. preemption: 0/3 nodes are available: 3 Preemption is not helpful.",
    )
    for number, taint in ((1, "not-ready"), (2, "unreachable"))
)


@pytest.mark.parametrize(
    ("pod", "queue", "word", "says", "final"),
    [
        (a_pod(age=5), "", "creating", "", False),
        ({**a_pod(UNPLACED, age=5)}, "", "unscheduled", "MIG 1g.5gb is not free now.", False),
        (a_pod(UNPLACED, age=31), "", "outside", "Something outside this hub took the MIG 1g.5gb", False),
        (a_pod(SILENT, age=31), "", "unscheduled", "MIG 1g.5gb is not free now. 1 machine does not answer.", False),
        (a_pod(UNREACHED, age=99), "", "unscheduled", "MIG 1g.5gb is not free now. 2 machines do not answer.", False),
        (a_pod(UNPLACED, age=31), "Kueue", "unscheduled", "the GPU is still being given back", False),
        (a_pod(UNPLACED, age=31), "KAI", "waiting-for-queue", "KAI hands out the GPUs here. MIG 1g.5gb is not", False),
        (
            a_pod(
                condition(
                    "PodScheduled",
                    "False",
                    "SchedulingGated",
                    "Scheduling is blocked due to non-empty scheduling gates",
                ),
                gates=("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"),
            ),
            "Kueue",
            "waiting-for-queue",
            "Kueue hands out the GPUs here, and has not given MIG 1g.5gb to it yet.",
            False,
        ),
        (a_pod(SCHEDULED, node="n1"), "", "scheduled", "A machine was found for it.", False),
        (
            a_pod(SCHEDULED, node="n1", phase="Running", containerStatuses=server({"running": {}}, ready=True)),
            "",
            "running",
            "",
            False,
        ),
        (
            a_pod(SCHEDULED, node="n1", phase="Running", containerStatuses=server({"running": {}})),
            "",
            "starting",
            "It runs and does not answer yet.",
            False,
        ),
        (refused(), "", "rejected", "could not hand out the GPU", True),
        (
            refused(
                message="Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate "
                "unhealthy devices nvidia.com/mig-1g.5gb, which is unexpected"
            ),
            "",
            "rejected",
            "could not hand out the GPU",
            True,
        ),
        (refused("OutOfcpu", "Node didn't have enough resource: cpu"), "", "rejected", "did not take it", True),
        (refused("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"), "", "rejected", "did not", True),
        (
            refused("Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi"),
            "",
            "evicted",
            "ran short of memory",
            True,
        ),
        (
            refused("Evicted", 'Usage of EmptyDir volume "shm" exceeds the limit "1Gi".'),
            "",
            "evicted",
            "more temporary data",
            True,
        ),
        (
            a_pod(
                SCHEDULED,
                condition("DisruptionTarget", "True", "PreemptionByScheduler", "default-scheduler: preempting"),
                node="n1",
            ),
            "",
            "preempted",
            "higher priority",
            True,
        ),
        (
            a_pod(
                SCHEDULED,
                condition("DisruptionTarget", "True", "PreemptionByScheduler", "was preempted by workload jhub/pg-b"),
                node="n1",
            ),
            "KAI",
            "reclaimed",
            "KAI took its GPU back",
            True,
        ),
        (
            a_pod(
                SCHEDULED,
                condition("TerminationTarget", "True", "WorkloadEvictedDueToPreempted", "Preempted to accommodate"),
                node="n1",
                phase="Running",
                containerStatuses=server({"running": {}}, ready=True),
            ),
            "Kueue",
            "reclaimed",
            "Kueue took its GPU back for a group",
            True,
        ),
        (
            a_pod(
                SCHEDULED,
                condition("TerminationTarget", "True", "WorkloadEvictedDueToPreempted", "Preempted to accommodate"),
                node="n1",
                phase="Failed",
                containerStatuses=server({"terminated": {"exitCode": 143, "reason": "Error"}}),
            ),
            "Kueue",
            "reclaimed",
            "Kueue took its GPU back",
            True,
        ),
        (
            a_pod(
                SCHEDULED,
                condition(
                    "TerminationTarget", "True", "WorkloadEvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded"
                ),
                node="n1",
            ),
            "Kueue",
            "reclaimed",
            "The time that it was given is over.",
            True,
        ),
        (
            a_pod(
                SCHEDULED, condition("DisruptionTarget", "True", "DeletionByTaintManager", "Taint manager"), node="n1"
            ),
            "",
            "node-lost",
            "not available any more",
            True,
        ),
        (
            a_pod(
                SCHEDULED,
                node="n1",
                phase="Running",
                containerStatuses=server({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
            ),
            "",
            "out-of-memory",
            "more memory than it has",
            True,
        ),
        (
            a_pod(
                SCHEDULED,
                node="n1",
                phase="Failed",
                containerStatuses=server({"terminated": {"exitCode": 1, "reason": "Error"}}),
            ),
            "",
            "crashed",
            "The server crashed with exit code 1.",
            True,
        ),
        (
            a_pod(
                SCHEDULED,
                node="n1",
                phase="Succeeded",
                containerStatuses=server({"terminated": {"exitCode": 0, "reason": "Completed"}}),
            ),
            "",
            "ended",
            "ended by itself",
            True,
        ),
        (None, "", "gone", "something outside this hub", True),
        (None, "KAI", "gone", "KAI took its GPU back, or somebody", True),
    ],
)
def test_a_pods_state_is_told_in_words(pod: Any, queue: str, word: str, says: str, final: bool) -> None:
    state = pod_state(pod, now=NOW, queue=queue, wanted="MIG 1g.5gb")
    assert (state.reason, state.final) == (word, final)
    assert says in state.message
    lower = state.message.lower()
    assert not [bad for bad in JARGON if bad in lower], state.message


def test_an_ended_container_counts_as_a_crash_only_when_it_does_not_come_back() -> None:
    last = {"terminated": {"exitCode": 1, "reason": "Error"}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    for restarts, final in ((1, False), (2, True)):
        statuses = server(waiting, restarts=restarts, last=last)
        state = pod_state(a_pod(SCHEDULED, node="n1", phase="Running", containerStatuses=statuses), now=NOW)
        assert (state.reason, state.final) == ("crashed", final)


@pytest.mark.parametrize(
    ("reason", "message", "seconds", "says", "final"),
    [
        ("ErrImagePull", 'failed to resolve reference "quay.io/lab:1": not found', -5, "there is no such image", False),
        ("ImagePullBackOff", 'Back-off pulling image "quay.io/lab:1"', -61, "there is no such image", True),
        ("ErrImagePull", "unauthorized: access to the requested resource", -61, "does not give it out", True),
        ("ErrImagePull", "dial tcp: lookup quay.io: no such host", -61, "its registry does not answer", True),
        ("InvalidImageName", "couldn't parse image name: invalid reference format", -1, "no image's name", True),
        ("InvalidImageName", "couldn't parse image name", -1, "no image's name", True),
        ("InvalidImageName", "invalid reference format", -1, "no image's name", True),
    ],
)
def test_an_image_that_cannot_be_pulled_is_named_and_given_a_minute(
    reason: str, message: str, seconds: float, says: str, final: bool
) -> None:
    waiting = {"waiting": {"reason": reason, "message": message}}
    pod = a_pod(SCHEDULED, node="n1", containerStatuses=server(waiting))
    failed = [event("Failed", 'Failed to pull image "quay.io/lab:1": not found', seconds)]
    state = pod_state(pod, failed, now=NOW)
    assert (state.reason, state.final) == ("image", final)
    assert state.message.startswith("The image quay.io/lab:1 cannot be pulled")
    assert says in state.message


@pytest.mark.parametrize(
    ("seconds", "final"), [((-70, -5), True), ((-5, -70), True), ((-60,), True), ((-59, -5), False)]
)
def test_an_image_is_given_a_minute_from_the_first_time_that_it_failed(seconds: tuple[float, ...], final: bool) -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    pod = a_pod(condition("PodScheduled", "True", seconds=-5), node="n1", containerStatuses=server(waiting))
    single = [event("Failed", "not found", when_) for when_ in seconds]
    counted = {**event("BackOff"), "firstTimestamp": at(min(seconds)), "lastTimestamp": at(max(seconds))}
    for events in (single, [counted]):
        assert pod_state(pod, events, now=NOW).final is final


def test_what_its_last_event_says_is_shown_while_it_comes_up() -> None:
    pod = a_pod(SCHEDULED, node="n1")
    assert pod_state(pod, [event("Pulling", seconds=-5)], now=NOW).reason == "pulling"
    slow = [event("FailedMount", "MountVolume.SetUp failed", -3), event("Scheduled", seconds=-9)]
    assert pod_state(pod, slow, now=NOW).message == "Its files are not reachable from the machine yet."
    assert pod_state(pod, [*slow, event("Pulled", seconds=-1)], now=NOW).reason == "starting"


def test_the_events_of_a_missing_pod_explain_why_it_is_gone() -> None:
    reclaimed = "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to reclamation within the cohort"
    for events, word in (
        ([event("Stopped", reclaimed), event("Killing")], "reclaimed"),
        ([event("TaintManagerEviction", "Marking for deletion Pod hub/jupyter-ada")], "node-lost"),
        ([event("Preempted", "Preempted by pod 1234 on node n1")], "preempted"),
        ([event("Evicted", "The node was low on resource: ephemeral-storage.")], "evicted"),
        ([event("Killing", "Stopping container notebook")], "gone"),
    ):
        assert pod_state(None, events, now=NOW).reason == word


def test_a_node_that_does_not_answer_is_reported_and_the_pod_is_kept() -> None:
    pod = a_pod(SCHEDULED, condition("Ready", "False", seconds=-20), node="n1", phase="Running")
    state = pod_state(pod, [event("NodeNotReady", "Node is not ready", -20)], now=NOW)
    assert (state.reason, state.final) == ("node-lost", False)


@pytest.mark.parametrize(
    ("message", "says", "lacks"),
    [
        (LACKS, "X is not free now.", True),
        (
            "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint "
            "{node.kubernetes.io/not-ready: }. preemption: 0/3 nodes are available: 3 Preemption is not helpful.",
            "X is not free now. 2 machines do not answer.",
            True,
        ),
        (
            "0/2 nodes are available: 1 Insufficient nvidia.com/gpu.shared, 1 node(s) were unschedulable.",
            "X is not free now. 1 machine is closed by an admin.",
            True,
        ),
        ("0/2 nodes are available: 2 cannot allocate all claims. still not schedulable", "X is not free now.", True),
        (
            "0/2 nodes are available: 1 NodeUnfitPod, 1 Insufficient cpu. preemption: 0/2 nodes",
            "X is not free now.",
            True,
        ),
        ("0/1 nodes are available: 1 1/2 CardInsufficientMemory, 1/2 CardTypeMismatch.", "X is not free now.", True),
        ("0/1 nodes are available: 1 2/2 CardInsufficientCore. preemption: not helpful", "X is not free now.", True),
        ("0/1 nodes are available: 1 2/2 CardTimeSlicingExhausted.", "X is not free now.", True),
        ("0/1 nodes are available: 1 1/1 CardComputeUnitsExhausted.", "X is not free now.", True),
        ("0/1 nodes are available: 1 1/1 ExclusiveDeviceAllocateConflict.", "X is not free now.", True),
        ("0/1 nodes are available: 1 1/1 AllocatedCardsInsufficientRequest.", "X is not free now.", True),
        ("0/1 nodes are available: 1 2/2 CardTypeMismatch.", "No machine is of the kind that was asked for.", False),
        ("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found", "storage", False),
        ("0/4 nodes are available: 2 Insufficient memory, 2 Insufficient cpu.", "processors and memory", False),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", "of the kind", False),
        ("0/1 nodes are available: 1 Too many pods.", "The machines are full now.", False),
        (  # the one machine with GPUs has one free, and no memory
            "0/4 nodes are available: 1 Insufficient memory, 3 Insufficient nvidia.com/mig-1g.5gb. no new claims to "
            "deallocate, preemption: 0/4 nodes are available: 1 No preemption victims found for incoming pod.",
            "The machines with a free X do not have enough free memory for it now.",
            False,
        ),
        (
            "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {a: b}, 2 Insufficient "
            "nvidia.com/gpu.",
            "The machines with a free X do not have enough free processors for it now.",
            False,
        ),
        (
            "0/4 nodes are available: 1 Too many pods, 3 Insufficient nvidia.com/gpu.",
            "The machines with a free X are full now.",
            False,
        ),
        (
            "0/4 nodes are available: 1 node(s) had volume node affinity conflict, 3 Insufficient nvidia.com/gpu.",
            "The machines with a free X cannot reach its files.",
            False,
        ),
        (  # the same as Kubernetes 1.36 says it
            "0/4 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 3 Insufficient "
            "nvidia.com/gpu. no new claims to deallocate, preemption: 0/4 nodes are available: 4 Preemption is not "
            "helpful.",
            "The machines with a free X cannot reach its files.",
            False,
        ),
        ("0/4 nodes are available: 4 node(s) didn't match PersistentVolume's node affinity.", "storage", False),
        ("0/4 nodes are available: 4 node(s) did not have enough free storage.", "storage", False),
        (
            "0/4 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 3 Insufficient nvidia.com/gpu.",
            "The machines with a free X cannot take it now.",
            False,
        ),
        (
            "0/4 nodes are available: 1 node(s) didn't match pod topology spread constraints, 3 Insufficient "
            "nvidia.com/gpu.",
            "The machines with a free X cannot take it now.",
            False,
        ),
        (
            "0/4 nodes are available: 1 Insufficient hugepages-2Mi, 3 Insufficient nvidia.com/gpu.",
            "The machines with a free X cannot take it now.",
            False,
        ),
        (  # extended resources by DRA: machines without the device say that of their claims
            "0/5 nodes are available: 1 Insufficient memory, 1 Insufficient nvidia.com/gpu, 3 cannot allocate all "
            "claims.",
            "X is not free now.",
            True,
        ),
        (  # two devices of one pod, on different machines
            "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 Insufficient nvidia.com/mig-1g.5gb.",
            "X is not free now.",
            True,
        ),
        ("0/2 nodes are available: 2 node(s) had untolerated taint(s).", "No machine can take it now.", False),
        (  # that machine lacks both
            "0/4 nodes are available: 1 Insufficient memory, 4 Insufficient nvidia.com/mig-1g.5gb.",
            "X is not free now.",
            True,
        ),
        (
            "0/4 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint {a: b}, 3 Insufficient "
            "nvidia.com/gpu.",
            "X is not free now.",
            True,
        ),
        ("", "No machine was found for it yet.", False),
    ],
)
def test_why_no_machine_was_found_is_one_sentence(message: str, says: str, lacks: bool) -> None:
    why = why_unschedulable(message, "X")
    assert says in why.message
    assert why.lacks_device is lacks


NODES = "0/9 nodes are available: "
SILENT = "2 node(s) had untolerated taint {node.kubernetes.io/unreachable: }"


@pytest.mark.parametrize(
    ("message", "wanted", "queue", "finnish", "japanese"),
    [
        (f"{NODES}7 Insufficient nvidia.com/gpu, {SILENT}.", "a whole GPU", "",
         "Kokonainen GPU ei ole nyt vapaana. 2 konetta ei vastaa.",
         "GPU まるごと は今、空いていません。 2 台のマシンが応答しません。"),
        (f"{NODES}8 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.", "", "Kueue",
         "GPU ei ole nyt vapaana. 1 kone on ylläpitäjän sulkema. "
         "Kueue on päästänyt sen sisään; GPU:ta luovutetaan vielä takaisin.",
         "GPU は今、空いていません。 1 台のマシンを管理者が閉じています。 "
         "Kueue は受け入れました。GPU はまだ返却の途中です。"),
        (f"{NODES}1 Insufficient cpu, 1 Insufficient memory, 8 Insufficient nvidia.com/gpu.", "Our card", "",
         "Koneilla, joilla on vapaana Our card, ei nyt ole sille tarpeeksi tilaa (suorittimet ja muisti).",
         "Our card が空いているマシンでは今、空きが足りません: プロセッサー、メモリ。"),
        ("OverLimit: kd quota", "", "KAI", "Ryhmäsi käyttää jo niin montaa GPU:ta kuin se saa.",
         "あなたのグループは、使える数の GPU をすべて使っています。"),
        ("node(s) didn't have enough resources: GPUs", "", "KAI",
         "KAI jakaa täällä GPU:t. Kaikki sellaiset GPU:t ovat käytössä.",
         "ここでは KAI が GPU を配っています。 その種類の GPU はすべて使用中です。"),
    ],
)  # fmt: skip
def test_why_it_has_no_machine_is_told_in_its_readers_language(
    message: str, wanted: str, queue: str, finnish: str, japanese: str
) -> None:
    pod = a_pod(condition("PodScheduled", "False", "Unschedulable", message), age=5)
    state = pod_state(pod, now=NOW, queue=queue, wanted=wanted)
    assert [as_text(state.reasons, t=catalogue_for(each)) for each in ("fi", "ja")] == [finnish, japanese]


@pytest.mark.parametrize(
    ("state", "finnish"),
    [
        ({"terminated": {"reason": "Error", "exitCode": 3}}, "Palvelin kaatui paluukoodilla 3."),
        ({"waiting": {"reason": "ErrImagePull", "message": "not found"}},
         "Konttikuvaa quay.io/lab:1 ei voi noutaa: sellaista kuvaa ei ole."),
        ({"running": {}}, "Se on käynnissä mutta ei vielä vastaa."),
    ],
)  # fmt: skip
def test_the_end_of_a_pod_is_explained_in_the_readers_language(state: dict[str, Any], finnish: str) -> None:
    found = pod_state(a_pod(SCHEDULED, node="n1", containerStatuses=server(state)), now=NOW)
    assert as_text(found.reasons, t=catalogue_for("fi")) == finnish


@pytest.mark.parametrize(
    ("resource", "says"),
    [
        ("nvidia.com/mig-1g.10gb.me", "MIG 1g.10gb+me is not free now."),
        ("nvidia.com/mig-1g.5gb.shared", "MIG 1g.5gb is not free now."),
        ("nvidia.com/gpu", "A GPU is not free now."),
        ("nvidia.com/gpu.shared", "A share of a GPU is not free now."),
    ],
)
def test_a_device_that_lacks_is_named_by_what_was_chosen_else_by_its_resource(resource: str, says: str) -> None:
    """Other cards may well be free, which the same resource stands for."""
    message = f"0/2 nodes are available: 1 Insufficient {resource}, 1 node(s) didn't match Pod's node affinity."
    why = why_unschedulable(message)
    assert (why.message, why.lacks_device, why.lacks_other) == (says, True, False)
    chosen = "Whole GPU (A100 SXM4 40GB)"
    assert why_unschedulable(message, chosen).message == f"{chosen} is not free now."


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs.", "are in use"),
        ("OverLimit: kd quota has reached the allowable limit of GPUs. Limit is 0.5 GPUs", "as many GPUs as it may"),
        ("NonPreemptibleOverQuota: Workload requested 1 GPUs, but kd quota is 2 GPUs", "all the GPUs that are its own"),
        ("QueueDoesNotExist: Queue 'default-queue' does not exist.", "Tell an admin."),
    ],
)
def test_why_kai_lets_somebody_wait_is_one_sentence(message: str, says: str) -> None:
    pod = a_pod(condition("PodScheduled", "False", "Unschedulable", message))
    state = pod_state(pod, now=NOW, queue="KAI", wanted="half a GPU")
    assert (state.reason, state.final) == ("waiting-for-queue", False)
    assert says in state.message
    assert message in state.log_message


def test_cpu_only_without_a_place_took_nobodys_gpu() -> None:
    pod = a_pod(condition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu."))
    assert pod_state(pod, now=NOW).reason == "unscheduled"


def test_times_are_read_as_the_api_server_writes_them() -> None:
    assert when("2026-11-20T14:02:00Z") == NOW
    assert when("2026-11-20T14:02:00.000000Z") == NOW
    assert when(None) is None and when("soon") is None
    assert scheduled_at(a_pod(SCHEDULED)) == NOW - timedelta(seconds=60)
    assert scheduled_at(a_pod(UNPLACED)) is None


@pytest.mark.slow
@given(
    message=st.text(max_size=300), reason=st.text(max_size=30), phase=st.sampled_from(["Pending", "Running", "Failed"])
)
def test_no_text_of_a_cluster_makes_it_fail(message: str, reason: str, phase: str) -> None:
    pod = a_pod(condition("PodScheduled", "False", reason, message), phase=phase, reason=reason, message=message)
    for queue in ("", "Kueue", "KAI"):
        state = pod_state(pod, [event(reason, message)], now=NOW, queue=queue, wanted="a GPU")
        assert state.reason


@pytest.mark.parametrize(
    ("event_", "word", "says"),
    [
        (("Evicted", "The node had condition: [DiskPressure]."), "evicted", "needed the room"),
        (("Evicted", "The node was low on resource: memory."), "evicted", "ran short of memory"),
        (("Evicted", "The node was low on resource: ephemeral-storage."), "evicted", "short of disk space"),
        (("TaintManagerEviction", ""), "node-lost", "not available any more"),
        (("NodeNotReady", ""), "node-lost", "not available any more"),
        (("Preempted", ""), "preempted", "higher priority"),
        (("Stopped", "Preempted to accommodate a workload"), "reclaimed", "Kueue took its GPU back"),
        (("Stopped", "it is over"), "gone", "removed from the cluster"),
        (("Pulled", ""), "gone", "removed from the cluster"),
    ],
)
def test_the_latest_event_that_says_why_a_pod_is_gone_is_told(event_: tuple[str, str], word: str, says: str) -> None:
    before = event("Evicted", "before", -100) if word != "gone" else event("Started", "", -100)
    found = pod_state(None, [before, event(*event_), event("Killing", "", -5)], now=NOW)
    assert (found.reason, says in found.message, found.final) == (word, True, True)
    reason, message = event_
    assert found.log_message == (
        ": ".join(filter(None, (reason, message))) if word != "gone" else "it is not there any more"
    )
