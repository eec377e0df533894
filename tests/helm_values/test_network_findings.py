"""Which key is named for values that cut a call off, in each place of the GPU service."""

from __future__ import annotations

from typing import Any

import pytest

from hub_extensions.tools.helm_check.rules.network import check_network, host_and_port, opens
from tests.helm_values.test_check_network import release
from tests.helm_values.test_values_tables import SHUT

HUB_SHUT = {"hub": {"networkPolicy": {"egressAllowRules": SHUT}}}
NO_DOOR = {"proxy": {"chp": {"networkPolicy": {"allowedIngressPorts": []}}}}
NO_LABEL = {"singleuser": {"extraLabels": {"hub.jupyter.org/network-access-hub": "false"}}}
LABEL = 'singleuser.extraLabels."hub.jupyter.org/network-access-hub"'
PRIVATE = "hub.networkPolicy.egressAllowRules.privateIPs"


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("values", "severity", "key"),
    [
        (NO_DOOR, "problem", "proxy.chp.networkPolicy.allowedIngressPorts"),
        (HUB_SHUT, "look at", PRIVATE),
        (NO_LABEL, "problem", LABEL),
        ({"nameOverride": "jh"}, "problem", "nameOverride"),
        ({"hub": {"config": {"GpuService": {"port": 8200, "url": "http://x:8200"}}}}, "problem",
         "hub.config.GpuService.port"),
    ],
)  # fmt: skip
def test_a_call_that_is_cut_off_is_reported_with_its_key(
    apart: bool, values: dict[str, Any], severity: str, key: str
) -> None:
    found = list(check_network(release(apart, values)))
    assert [(each.severity, each.key) for each in found] == [(severity, key)]
    assert all(each.fix for each in found)


def test_a_prometheus_at_a_port_that_the_services_policy_lacks_is_named() -> None:
    (found,) = check_network(release(True, {"hub": {"config": {"GpuService": {"prometheus_url": "http://p:9999"}}}}))
    assert (found.severity, found.key) == ("look at", "NetworkPolicy jupyterhub-gpu-service")
    assert "opens port 9999" in found.text


@pytest.mark.parametrize("apart", [False, True])
def test_a_proxy_that_is_shut_in_is_let_out_by_our_policies(apart: bool) -> None:
    shut = {"proxy": {"chp": {"networkPolicy": {"egressAllowRules": SHUT}}}}
    assert list(check_network(release(apart, shut))) == []


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ({}, True),
        ({"ports": []}, True),
        ({"ports": [{"port": 8081}]}, True),
        ({"ports": [{"port": "8081"}]}, True),
        ({"ports": [{"port": "http"}]}, True),
        ({"ports": [{"port": 8000, "endPort": 8100}]}, True),
        ({"ports": [{"protocol": "TCP"}]}, True),
        ({"ports": [{"port": 8080}, {"port": "metrics"}]}, False),
        ("no rule", False),
    ],
)
def test_a_rule_opens_a_port_by_number_name_or_range(rule: Any, is_open: bool) -> None:
    assert opens([rule], 8081, "http") is is_open


def test_an_address_is_split_into_host_and_port() -> None:
    assert host_and_port("postgresql://gpu:x@db:5433/gpu") == ("db", 5433)
    assert host_and_port("https://[::1]:8443/x") == ("[::1]", 8443)
    assert host_and_port(None) == host_and_port("nothing") == ("", None)
