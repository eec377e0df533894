"""The evaluator of NetworkPolicies: what the API promises, rule by rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.helm_values.network_policy import CallRefused, Pod, lets_out, matches, refused

HERE = {"kubernetes.io/metadata.name": "jhub"}
A = Pod("a", {"app": "a"}, "jhub", "10.1.0.1", {}, HERE)
B = Pod("b", {"app": "b"}, "jhub", "10.1.0.2", {"http": 8080}, HERE)
ELSEWHERE = Pod("c", {"app": "a"}, "other", "10.1.0.3", {}, {"kubernetes.io/metadata.name": "other"})
OUTSIDE = Pod("out", None, "", "203.0.113.7")


def policy(chosen: str = "b", *, namespace: str = "jhub", **spec: Any) -> Mapping[str, Any]:
    chooser = {"matchLabels": {"app": chosen}} if chosen else {}
    return {"metadata": {"name": f"for-{chosen}", "namespace": namespace}, "spec": {"podSelector": chooser, **spec}}


def ingress(*rules: Mapping[str, Any]) -> Mapping[str, Any]:
    return policy(policyTypes=["Ingress"], ingress=list(rules))


def test_without_a_policy_everything_is_open() -> None:
    assert refused([], A, B, 80) is None


def test_a_policy_without_rules_closes_its_pod_and_says_which_it_was() -> None:
    assert refused([ingress()], A, B, 80) == CallRefused("b", "Ingress", ("for-b",))


def test_a_policy_closes_only_the_direction_it_names() -> None:
    assert refused([policy("b", policyTypes=["Egress"])], A, B, 80) is None
    assert refused([policy("a", policyTypes=["Egress"])], A, B, 80) == CallRefused("a", "Egress", ("for-a",))


def test_without_types_a_policy_is_for_the_way_in_and_with_egress_rules_for_the_way_out_too() -> None:
    assert refused([policy("a")], A, B, 80) is None
    assert refused([policy("b")], A, B, 80) is not None
    assert refused([policy("a", egress=[{"ports": [{"port": 1}]}])], A, B, 80) is not None


def test_policies_only_add() -> None:
    opened = ingress({"from": [{"podSelector": {"matchLabels": {"app": "a"}}}]})
    assert refused([ingress(), opened], A, B, 80) is None


def test_a_policy_of_another_namespace_is_not_about_this_pod() -> None:
    assert refused([policy("b", namespace="other", policyTypes=["Ingress"])], A, B, 80) is None


def test_a_pod_always_reaches_itself() -> None:
    assert refused([ingress()], B, B, 80) is None


def test_both_sides_have_to_allow_a_call() -> None:
    out = policy("a", policyTypes=["Egress"], egress=[{}])
    assert refused([out, ingress()], A, B, 80) == CallRefused("b", "Ingress", ("for-b",))


@pytest.mark.parametrize(
    ("peer", "caller", "fits"),
    [
        ({"podSelector": {}}, A, True),
        ({"podSelector": {}}, ELSEWHERE, False),
        ({"namespaceSelector": {}}, ELSEWHERE, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "jhub"}}}, ELSEWHERE, False),
        ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "b"}}}, ELSEWHERE, False),
        ({"ipBlock": {"cidr": "10.0.0.0/8"}}, A, True),
        ({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}, A, False),
        ({"ipBlock": {"cidr": "10.0.0.0/8"}}, OUTSIDE, False),
        ({"podSelector": {}}, OUTSIDE, False),
        ({"ipBlock": {"cidr": "0.0.0.0/0"}}, OUTSIDE, True),
    ],
)
def test_who_is_meant_by_a_peer(peer: Mapping[str, Any], caller: Pod, fits: bool) -> None:
    assert (refused([ingress({"from": [peer]})], caller, B, 80) is None) is fits


@pytest.mark.parametrize(
    ("port", "called", "fits"),
    [
        ({"port": 8080}, 8080, True),
        ({"port": 8080}, 8081, False),
        ({"port": "http"}, 8080, True),
        ({"port": "http"}, 8081, False),
        ({"port": "nobody"}, 8080, False),
        ({"port": "8080"}, 8080, True),
        ({"port": 8000, "endPort": 9000}, 8080, True),
        ({"port": 8000, "endPort": 8079}, 8080, False),
        ({"port": 8080, "protocol": "UDP"}, 8080, False),
        ({"protocol": "TCP"}, 8080, True),
    ],
)
def test_which_port_is_meant(port: Mapping[str, Any], called: int, fits: bool) -> None:
    assert (refused([ingress({"ports": [port]})], A, B, called) is None) is fits


def test_a_named_port_is_the_called_pods_also_on_the_way_out() -> None:
    out = policy("a", policyTypes=["Egress"], egress=[{"ports": [{"port": "http"}]}])
    assert refused([out], A, B, 8080) is None
    assert refused([out], B, A, 8080) is None, "no policy is for b"
    assert refused([out], A, OUTSIDE, 8080) is not None


@pytest.mark.parametrize(
    ("rules", "fits"),
    [
        ([], False),
        ([{}], True),
        ([{"ports": [{"port": 443}]}], True),
        ([{"to": [{"ipBlock": {"cidr": "203.0.113.1/32"}}], "ports": [{"port": 443}]}], True),
        ([{"to": [{"namespaceSelector": {}}], "ports": [{"port": 400, "endPort": 500}]}], True),
        ([{"ports": [{"port": 6443}, {"port": 443, "protocol": "UDP"}]}], False),
    ],
)
def test_a_port_that_is_open_to_somebody(rules: list[Mapping[str, Any]], fits: bool) -> None:
    out = policy("a", policyTypes=["Egress"], egress=rules)
    assert lets_out([out], A, 443) is fits
    assert lets_out([out], B, 443) is False, "the policy is for another"


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ({}, True),
        ({"matchLabels": {"x": "1"}}, True),
        ({"matchLabels": {"x": "2"}}, False),
        ({"matchExpressions": [{"key": "x", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "y", "operator": "NotIn", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "x", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"x": "1"}, "matchExpressions": [{"key": "y", "operator": "Exists"}]}, False),
    ],
)
def test_label_selectors(selector: Mapping[str, Any], fits: bool) -> None:
    assert matches(selector, {"x": "1"}) is fits
