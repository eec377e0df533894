"""What is kept of nodes, pods, slices, claims and templates."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from hub_extensions.adapters.kubernetes.parse import (
    claim_of,
    counters_of,
    newest,
    node_of,
    pod_of,
    slice_of,
    template_of,
)
from hub_extensions.core.cluster.model import ClaimFacts, NodeFacts, SliceDevice, Taint


def node(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "labels": {"disk": "ssd"}}, "spec": {}, "status": status}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "jhub", "uid": "u"},
        "spec": {"containers": list(containers), **spec},
    }


def asks(resource: str = "nvidia.com/gpu", number: object = "1", **more: Any) -> dict[str, Any]:
    return {"resources": {"limits": {resource: number}, "requests": {resource: number}}, **more}


def test_a_node_with_mig_devices_is_kept_with_its_labels_taints_and_condition():
    found = node_of(
        {
            "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": "A100"}},
            "spec": {"unschedulable": True, "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "8", "nvidia.com/mig-1g.5gb": "5", "nvidia.com/mig-2g.10gb": "1"},
                "conditions": [{"type": "Ready", "status": "Unknown"}],
            },
        }
    )
    assert found == NodeFacts(
        name="n1",
        labels={"nvidia.com/gpu.product": "A100"},
        allocatable={"nvidia.com/mig-1g.5gb": 5, "nvidia.com/mig-2g.10gb": 1},
        taints=(Taint("nvidia.com/gpu", "", "NoSchedule"),),
        ready=None,
        cordoned=True,
    )


def test_a_node_that_never_had_a_gpu_is_not_kept_and_one_that_lost_all_is():
    assert node_of(node(allocatable={"cpu": "8"})) is None
    lost = node_of(node(allocatable={"nvidia.com/gpu": "0"}))
    assert lost is not None and lost.allocatable == {"nvidia.com/gpu": 0}


@pytest.mark.parametrize(
    "label",
    [
        "nvidia.com/gpu.present",
        "feature.node.kubernetes.io/pci-10de.present",
        "feature.node.kubernetes.io/pci-0302_10de.present",
    ],
)
def test_a_node_whose_labels_speak_of_a_card_is_kept_without_any_count(label: str):
    raw = node()
    raw["metadata"]["labels"] = {label: "true"}
    assert node_of(raw) is not None


def test_a_node_that_is_known_to_have_devices_is_kept_by_its_name():
    assert node_of(node(), {"n1"}) is not None


@pytest.mark.parametrize(
    ("written", "counted"), [("5", 5), ("1k", 1000), ("2Ki", 2048), (3, 3), ("1.5", None), ("many", None), ("-1", None)]
)
def test_a_count_is_read_as_the_api_server_writes_it_and_a_malformed_one_is_not_counted(
    written: object, counted: int | None
):
    found = node_of(node(allocatable={"nvidia.com/gpu": written, "nvidia.com/other": "1"}))
    assert found is not None and found.allocatable.get("nvidia.com/gpu") == counted


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", None)])
def test_ready_is_what_the_condition_says(status: str, ready: bool | None):
    found = node_of(node(allocatable={"nvidia.com/gpu": "1"}, conditions=[{"type": "Ready", "status": status}]))
    assert found is not None and found.ready is ready


def test_containers_are_added_up():
    found = pod_of(pod(asks(number="1"), asks(number="2")))
    assert found is not None and found.requests == {"nvidia.com/gpu": 3}


def test_an_init_container_counts_only_where_it_asks_for_more_than_all_containers():
    small = pod_of(pod(asks(number="2"), initContainers=[asks(number="1")]))
    large = pod_of(pod(asks(number="2"), initContainers=[asks(number="4"), asks(number="3")]))
    assert small is not None and small.requests == {"nvidia.com/gpu": 2}
    assert large is not None and large.requests == {"nvidia.com/gpu": 4}


def test_a_restartable_init_container_runs_beside_the_containers_and_the_init_containers_after_it():
    sidecar = asks(number="1", restartPolicy="Always")
    beside = pod_of(pod(asks(number="2"), initContainers=[sidecar]))
    after = pod_of(pod(asks(number="1"), initContainers=[sidecar, asks(number="3")]))
    before = pod_of(pod(asks(number="1"), initContainers=[asks(number="3"), sidecar]))
    assert beside is not None and beside.requests == {"nvidia.com/gpu": 3}
    assert after is not None and after.requests == {"nvidia.com/gpu": 4}
    assert before is not None and before.requests == {"nvidia.com/gpu": 3}


def test_a_limit_without_a_request_is_a_request():
    found = pod_of(pod({"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}}}))
    assert found is not None and found.requests == {"nvidia.com/gpu": 1}


def test_a_pod_without_a_gpu_is_not_kept():
    assert pod_of(pod({"resources": {"requests": {"cpu": "1"}}})) is None


@pytest.mark.parametrize(
    ("component", "spec", "held"),
    [
        ("user-placeholder", {"priority": -10}, False),
        ("user-placeholder", {"priority": 0}, True),
        ("user-placeholder", {}, True),
        ("somebody-else", {"priority": -10}, True),
    ],
)
def test_a_placeholder_that_gives_way_to_any_server_holds_nothing(component: str, spec: dict[str, Any], held: bool):
    raw = pod(asks(), **spec)
    raw["metadata"]["labels"] = {"component": component}
    assert (pod_of(raw) is not None) is held


@pytest.mark.parametrize(
    "about",
    [
        {"labels": {"component": "singleuser-server"}},
        {"labels": {"jupyterhub-gpu/lease": "l1"}},
        {"labels": {"runai-gpu-group": "g"}},
        {"labels": {"app": "kai-resource-reservation"}},
        {"annotations": {"gpu-fraction": "0.5"}},
        {"annotations": {"gpu-memory": "2000"}},
        {"annotations": {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,4096,30:;"}},
    ],
)
def test_a_server_or_a_pod_with_a_share_is_kept_without_a_request(about: dict[str, Any]):
    raw = pod({})
    raw["metadata"].update(about)
    assert pod_of(raw) is not None


def test_a_server_of_ours_is_known_by_its_labels_and_kubespawners_annotations():
    raw = pod(asks())
    raw["metadata"] |= {
        "labels": {"jupyterhub-gpu/lease": "l1", "jupyterhub-gpu/offer": "mig-1g.5gb"},
        "annotations": {"hub.jupyter.org/username": "mika", "hub.jupyter.org/servername": "train"},
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "deletionTimestamp": "2026-11-21T11:00:00Z",
    }
    found = pod_of(raw)
    assert found is not None
    assert (found.lease, found.offer, found.user, found.server) == ("l1", "mig-1g.5gb", "mika", "train")
    assert (found.deleting, found.created) == (True, datetime(2026, 11, 21, 10, tzinfo=timezone.utc))


def test_why_a_pod_is_not_scheduled_comes_from_its_condition():
    raw = pod(asks())
    raw["status"] = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
                "lastTransitionTime": "2026-11-21T10:00:00.123456Z",
            }
        ],
    }
    found = pod_of(raw)
    assert found is not None and found.unscheduled == "Unschedulable" and "Insufficient" in found.unscheduled_why
    assert found.unscheduled_since == datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=timezone.utc)


def test_a_pod_that_a_queue_holds_back_or_takes_back_says_so():
    raw = pod(asks(), schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    raw["status"] = {
        "conditions": [{"type": "TerminationTarget", "status": "True", "reason": "Preempted", "message": "for others"}]
    }
    found = pod_of(raw)
    assert found is not None and found.gates == ("kueue.x-k8s.io/admission",)
    assert (found.target, found.target_why, found.unscheduled) == ("Preempted", "for others", "")


def test_a_condition_that_is_not_true_is_no_target():
    raw = pod(asks())
    raw["status"] = {"conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "Old"}]}
    found = pod_of(raw)
    assert found is not None and found.target == ""


def test_shares_of_several_cards_are_several_groups():
    raw = pod({})
    raw["metadata"]["labels"] = {"runai-gpu-group/b": "b", "runai-gpu-group/a": "a"}
    found = pod_of(raw)
    assert found is not None and found.gpu_group == "a,b"


def test_the_claims_of_a_pod_are_those_it_names_and_those_made_for_it():
    raw = pod(
        {},
        resourceClaims=[{"name": "a", "resourceClaimName": "shared"}, {"name": "b", "resourceClaimTemplateName": "t"}],
    )
    raw["status"] = {
        "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "p-b-x"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "p-extended"},
    }
    found = pod_of(raw)
    assert found is not None and found.claims == ("shared", "p-b-x", "p-extended")


@pytest.mark.parametrize("odd", [None, [], "text", 5])
def test_an_odd_object_is_no_error(odd: object):
    for take in (node_of, pod_of, slice_of, claim_of, template_of):
        assert take({"metadata": odd, "spec": odd, "status": odd}) is None
    assert pod_of(pod({"resources": odd}, initContainers=odd, resourceClaims=[odd], schedulingGates=[odd])) is not None


def slice_with(*devices: dict[str, Any], generation: int = 1, name: str = "n1") -> dict[str, Any]:
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": {"name": name, "generation": generation}}
    return {"metadata": {"name": f"{name}-x"}, "spec": {**spec, "devices": list(devices)}}


MIG_DEVICE = {
    "name": "gpu-0-mig-1g10gb-19-0",
    "attributes": {"type": {"string": "mig"}, "productName": {"string": "H100"}, "profile": {"string": "1g.10gb"}},
    "capacity": {"memory": {"value": "9728Mi"}, "multiprocessors": {"value": "16"}},
}


def test_a_device_of_a_slice_has_its_kind_profile_and_memory():
    found = slice_of(slice_with(MIG_DEVICE))
    assert found is not None
    assert found.devices == (
        SliceDevice("gpu.nvidia.com", "n1", "gpu-0-mig-1g10gb-19-0", "n1", "mig", "H100", "1g.10gb", 9728 * 2**20, 16),
    )


def test_a_device_that_is_there_already_has_its_uuid():
    found = slice_of(slice_with({"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-1"}}}))
    assert found is not None and found.devices[0].uuid == "GPU-1"


def test_an_attribute_may_carry_its_drivers_name():
    found = slice_of(slice_with({"name": "gpu-0", "attributes": {"gpu.nvidia.com/type": {"string": "gpu"}}}))
    assert found is not None and (found.devices[0].kind, found.devices[0].memory_bytes) == ("gpu", None)


def test_only_the_newest_generation_of_a_pool_counts():
    old, new = (
        slice_of(slice_with(MIG_DEVICE, MIG_DEVICE, generation=1)),
        slice_of(slice_with(MIG_DEVICE, generation=2)),
    )
    other = slice_of(slice_with(MIG_DEVICE, name="n2"))
    assert old and new and other
    assert [device.pool for device in newest([old, new, other])] == ["n1", "n2"]


def test_a_device_that_is_tainted_against_new_pods_is_not_there():
    found = slice_of(slice_with({**MIG_DEVICE, "taints": [{"key": "sick", "effect": "NoSchedule"}]}))
    assert found is not None and found.devices == ()


def test_a_device_that_is_cut_on_demand_has_what_it_draws_on_and_stays_when_it_is_tainted():
    counters = {"memory-slice-1": {"value": "1"}, "memory": {"value": "9728Mi"}, "decoders": {"value": "0"}}
    cut = {**MIG_DEVICE, "consumesCounters": [{"counterSet": "gpu-0-counter-set", "counters": counters}]}
    sick = {**cut, "taints": [{"key": "sick", "effect": "NoExecute"}]}
    found = slice_of(slice_with(cut, sick))
    assert found is not None
    draws = (("gpu-0-counter-set", "memory", 9728 * 2**20), ("gpu-0-counter-set", "memory-slice-1", 1))
    assert [(each.draws, each.closed) for each in found.devices] == [(draws, False), (draws, True)]


def counter_slice(generation: int = 1, count: int = 2) -> dict[str, Any]:
    raw = slice_with(generation=generation)
    raw["spec"]["sharedCounters"] = [{"name": "gpu-0-counter-set", "counters": {"memory-slice-0": {"value": "1"}}}]
    raw["spec"]["pool"]["resourceSliceCount"] = count
    return raw


def test_counters_are_of_the_pool_whichever_of_its_slices_they_stand_in():
    apart, devices = slice_of(counter_slice()), slice_of(slice_with(MIG_DEVICE))
    assert apart and devices
    (found,) = counters_of([devices, apart])
    assert (found.pool, found.counters) == ("n1", (("gpu-0-counter-set", "memory-slice-0", 1),))
    together = slice_of(counter_slice(count=1))
    assert together and counters_of([together]) == (found,)
    assert counters_of([devices]) == ()


def test_a_pool_of_which_slices_are_missing_is_not_there_yet():
    old, devices, newer = slice_of(counter_slice()), slice_of(slice_with(MIG_DEVICE)), slice_of(counter_slice(2))
    assert old and devices and newer
    assert newest([old]) == () and counters_of([old]) == ()
    assert len(newest([old, devices])) == 1
    assert newest([old, devices, newer]) == ()


def test_slices_of_other_drivers_are_not_kept():
    raw = slice_with(MIG_DEVICE)
    raw["spec"]["driver"] = "compute-domain.nvidia.com"
    assert slice_of(raw) is None


def test_a_claim_has_the_devices_it_was_given_and_the_pod_it_is_for():
    given = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}
    seen = {**given, "device": "gpu-1", "adminAccess": True}
    raw = {
        "metadata": {"namespace": "jhub", "name": "p-gpu-x"},
        "status": {
            "allocation": {"devices": {"results": [given, seen]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        },
    }
    assert claim_of(raw) == ClaimFacts("jhub", "p-gpu-x", (("gpu.nvidia.com", "n1", "gpu-0"),), "p")
    assert claim_of({"metadata": raw["metadata"], "status": {}}) is None


def template(*requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    return {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": list(requests), **devices}}}}


def test_a_template_says_class_count_and_selectors():
    one = {"deviceClassName": "mig.nvidia.com", "selectors": [{"cel": {"expression": "x == '1g.10gb'"}}]}
    found = template_of(template({"name": "gpu", "exactly": one}))
    assert found is not None
    assert (found.device_class, found.count, found.selectors) == ("mig.nvidia.com", 1, ("x == '1g.10gb'",))
    assert not found.shared


def test_a_template_of_several_requests_or_choices_does_not_look_like_one_device():
    gpu = {"deviceClassName": "gpu.nvidia.com"}
    two = template_of(template({"exactly": gpu}, {"exactly": gpu}))
    choice = template_of(template({"firstAvailable": [gpu, {"deviceClassName": "mig.nvidia.com"}]}))
    every = template_of(template({"exactly": {**gpu, "allocationMode": "All"}}))
    assert two is not None and two.count == 2
    assert choice is not None and choice.device_class == "gpu.nvidia.com or mig.nvidia.com"
    assert every is not None and every.count == 0


def test_a_template_that_asks_for_time_slicing_is_shared():
    parameters = {"kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}
    found = template_of(
        template({"exactly": {"deviceClassName": "gpu.nvidia.com"}}, config=[{"opaque": {"parameters": parameters}}])
    )
    assert found is not None and found.shared
