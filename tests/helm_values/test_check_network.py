"""Who calls whom, by the chart's policies and ours: the table that was measured, and the manifests as they are shipped.

Policies are evaluated by ``network_policy.py``; nothing on a test's machine enforces them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.tools.helm_check.chart_config import merge
from hub_extensions.tools.helm_check.chart_facts import packed_facts
from hub_extensions.tools.helm_check.helm import read_manifests, read_values
from hub_extensions.tools.helm_check.model import Release
from hub_extensions.tools.helm_check.rules.network import check_network
from tests.helm_values.network_policy import Pod, refused
from tests.helm_values.policies import calls_of, chart_policies, pods_of, shipped_policies
from tests.hubs import ROOT

VALUES = ROOT / "helm-values"
MANIFESTS = {False: VALUES / "manifests", True: VALUES / "manifests" / "service-deployment"}
FILES = {False: ("gpu.yaml",), True: ("gpu.yaml", "service-deployment.yaml")}


def release(apart: bool, more: Mapping[str, Any] | None = None, *, manifests: bool = False) -> Release:
    files = [read_values(str(VALUES / name)) for name in FILES[apart]]
    facts = packed_facts()
    values = merge([facts.defaults, *(file.values for file in files), more or {}])
    given = read_manifests([MANIFESTS[apart]]) if manifests else []
    return Release(files, values, facts, "jhub", given)


SAME = {"kubernetes.io/metadata.name": "jhub"}
OTHER = {"kubernetes.io/metadata.name": "other"}
LABEL = {"hub.jupyter.org/network-access-hub": "true"}
STRANGERS = {
    "no label": Pod("no label", {"app": "x"}, "jhub", "10.42.1.1", {}, SAME),
    "label": Pod("label", {"app": "x", **LABEL}, "jhub", "10.42.1.2", {}, SAME),
    "elsewhere": Pod("elsewhere", {"app": "x"}, "other", "10.42.1.3", {}, OTHER),
    "elsewhere, label": Pod("elsewhere, label", {"app": "x", **LABEL}, "other", "10.42.1.4", {}, OTHER),
}
PORTS = {"hub": 8081, "proxy": 8000, "proxy-api": 8001, "service": 8191, "api": 443}
MEASURED = {
    "server": "hub proxy",
    "hub": "proxy proxy-api service api",
    "proxy": "hub service api",
    "no label": "proxy service api",
    "label": "hub proxy service api",
    "elsewhere": "proxy service api",
    "elsewhere, label": "proxy service api",
}
"""Caller -> what it reached on a real cluster with the chart's own policies, and a service without one of its own."""


@pytest.mark.parametrize("caller", MEASURED)
def test_the_charts_own_policies_let_through_what_was_measured(caller: str) -> None:
    subject = release(True)
    pods = {**pods_of(subject), **STRANGERS}
    policies = list(chart_policies(subject))
    reached = {
        name
        for name, port in PORTS.items()
        if name != caller and refused(policies, pods[caller], pods[name.removesuffix("-api")], port) is None
    }
    assert reached - {caller, "proxy-api" if caller == "proxy" else ""} == set(MEASURED[caller].split())


def test_a_namespace_whose_labels_are_accepted_is_let_in() -> None:
    subject = release(True, {"hub": {"networkPolicy": {"interNamespaceAccessLabels": "accept"}}})
    hub = pods_of(subject)["hub"]
    policies = list(chart_policies(subject))
    assert refused(policies, STRANGERS["elsewhere, label"], hub, 8081) is None
    assert refused(policies, STRANGERS["elsewhere"], hub, 8081) is not None


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("manifests", [False, True])
def test_every_call_of_the_table_goes_through_with_the_shipped_manifests(apart: bool, manifests: bool) -> None:
    subject = release(apart, manifests=manifests)
    assert subject.is_apart is apart
    assert len(calls_of(subject)) >= 5
    assert list(check_network(subject)) == []


def test_policies_that_select_a_release_are_checked_against_the_release_that_is_named() -> None:
    found = []
    for name in ("jhub", "second"):
        subject = release(False, manifests=True)
        given = json.loads(json.dumps(subject.manifests).replace('"app": "jupyterhub"', '"release": "second"'))
        assert given != subject.manifests
        found.append(list(check_network(replace(subject, manifests=given, name=name))))
    assert [each.rule for each in found[0]] == ["network"]
    assert found[1] == []


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("who", ["server", *STRANGERS])
def test_nobody_but_hub_and_proxy_reaches_the_service_with_the_shipped_manifests(apart: bool, who: str) -> None:
    subject = release(apart, manifests=True)
    pods = {**pods_of(subject), **STRANGERS}
    policies = [*chart_policies(subject), *(each for each in subject.manifests if each["kind"] == "NetworkPolicy")]
    assert refused(policies, pods[who], pods["service" if apart else "hub"], 8191) is not None


@pytest.mark.parametrize("apart", [False, True])
def test_what_the_command_takes_for_the_manifests_says_of_each_call_what_they_say(apart: bool) -> None:
    shut = {"egressAllowRules": {"privateIPs": False, "nonPrivateIPs": False}}
    more = {"hub": {"networkPolicy": shut}, "proxy": {"chp": {"networkPolicy": shut}}}
    for values in (
        {},
        more,
        {"hub": {"networkPolicy": {"enabled": False}}},
        {"proxy": {"chp": {"networkPolicy": {"enabled": False}}}},
        {"hub": {"config": {"GpuService": {"prometheus_url": "http://p:9090", "database_url": "postgresql://d/gpu"}}}},
        {
            "hub": {
                "config": {"GpuService": {"prometheus_url": "http://p:9091", "database_url": "postgresql://d:1/gpu"}}
            }
        },
    ):
        subject = release(apart, values, manifests=True)
        pods, own = pods_of(subject), list(chart_policies(subject))
        real = [*own, *(each for each in subject.manifests if each["kind"] == "NetworkPolicy")]
        taken = [*own, *shipped_policies("jhub", apart=apart)]
        for call in calls_of(subject):
            ends = pods[call.caller], pods[call.called], call.port
            by_manifests, by_us = refused(real, *ends), refused(taken, *ends)
            assert (by_manifests is None) == (by_us is None), (values, call, by_manifests, by_us)


def test_without_our_policies_the_proxy_does_not_reach_a_service_in_the_hubs_pod() -> None:
    subject = release(False)
    pods = pods_of(subject)
    cut = refused(list(chart_policies(subject)), pods["proxy"], pods["hub"], 8191)
    assert cut is not None
    assert (cut.side, cut.direction, cut.policies) == ("hub", "Ingress", ("hub",))


def test_manifests_of_another_namespace_do_not_help(tmp_path: Path) -> None:
    subject = release(False, manifests=True)
    moved = Release(subject.files, subject.values, subject.facts, "elsewhere", subject.manifests)
    assert [finding.rule for finding in check_network(moved)] == ["network"]


def test_of_the_manifests_that_are_named_none_is_taken_to_be_there(tmp_path: Path) -> None:
    """Whose network enforces nothing, or who has switched the chart's policies off, applies the rights alone."""
    rights = read_manifests([VALUES / "manifests" / "rbac.yaml"])
    off = {"hub": {"networkPolicy": {"enabled": False}}, "proxy": {"chp": {"networkPolicy": {"enabled": False}}}}
    without = release(False, off)
    assert len(list(check_network(without))) == 2, "the shipped policies close what they do not open"
    assert list(check_network(Release(without.files, without.values, without.facts, "jhub", rights))) == []
    subject = release(False)
    (said,) = check_network(Release(subject.files, subject.values, subject.facts, "jhub", rights))
    assert "name it by --manifests" in said.fix


@pytest.mark.parametrize("apart", [False, True])
def test_another_label_app_is_said_to_be_written_into_the_policies(apart: bool) -> None:
    """``nameOverride`` changes the chart's labels, and our policies choose pods by them."""
    named = list(check_network(release(apart, {"nameOverride": "jhub"})))
    folder = "service-deployment/" if apart else ""
    assert {finding.key for finding in named} == {"nameOverride"}
    assert all(
        f"Write app: jhub for app: jupyterhub in helm-values/manifests/{folder}networkpolicy.yaml" in finding.fix
        for finding in named
    )


def test_a_port_that_an_admins_rule_opens_is_enough_whatever_stands_there() -> None:
    """Where the API server, a database and a Prometheus really are, values do not tell."""
    open_ports = [{"to": [{"ipBlock": {"cidr": "203.0.113.9/32"}}], "ports": [{"port": port}]} for port in (6443, 5433)]
    own = {"database_url": "postgresql://gpu@db:5433/gpu", "prometheus_url": "http://prometheus"}
    egress = {"egressAllowRules": {"privateIPs": False}, "egress": open_ports}
    subject = release(False, {"hub": {"config": {"GpuService": own}, "networkPolicy": egress}})
    (said,) = check_network(subject)
    assert said.severity == "look at"
    assert "your Prometheus" in said.text
    assert "opens port 80 to a private address" in said.text
