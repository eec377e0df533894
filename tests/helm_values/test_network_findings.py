"""What is said of values that cut a call off, and what to do about it, word for word."""

from __future__ import annotations

from typing import Any

import pytest

from hub_extensions.tools.helm_check.rules.network import check_network
from tests.helm_values.test_check_network import release
from tests.helm_values.test_values_tables import SHUT

Row = tuple[str, str, str, str]
HUB_SHUT = {"hub": {"networkPolicy": {"egressAllowRules": SHUT}}}
NO_DOOR = {"proxy": {"chp": {"networkPolicy": {"allowedIngressPorts": []}}}}
NO_LABEL = {"singleuser": {"extraLabels": {"hub.jupyter.org/network-access-hub": "false"}}}
INSIDE = "The hub's pod, where the GPU service runs,"
LET_OUT = (
    "Add a rule for its address to hub.networkPolicy.egress, or set "
    "hub.networkPolicy.egressAllowRules.privateIPs to true."
)
PANEL: Row = (
    "problem",
    "proxy.chp.networkPolicy",
    "Users' servers cannot reach the proxy at port 8000, so JupyterLab's GPU panel shows no line and no countdown: "
    "the policy proxy does not let it in.",
    "Keep http in proxy.chp.networkPolicy.allowedIngressPorts.",
)
LABEL = 'singleuser.extraLabels."hub.jupyter.org/network-access-hub"'
KEEP_LABEL = "Keep the label hub.jupyter.org/network-access-hub in singleuser.extraLabels."


def renamed(where: str, text: str, way: str = "in") -> Row:
    fix = (
        f"Write app: jh for app: jupyterhub in helm-values/manifests/{where}networkpolicy.yaml, apply it, and name it "
        "by --manifests."
    )
    return "problem", "nameOverride", f"{text} does not let it {way}.", fix


@pytest.mark.parametrize(
    ("apart", "values", "rows"),
    [
        (False, NO_DOOR, [PANEL]),
        (True, NO_DOOR, [PANEL]),
        (
            False,
            HUB_SHUT,
            [
                (
                    "look at",
                    "hub.networkPolicy",
                    f"{INSIDE} may be cut off from the API server, and then the service sees no nodes and no pods: no "
                    "rule of the policy hub opens port 443 or 6443 to a private address.",
                    LET_OUT,
                )
            ],
        ),
        (
            True,
            HUB_SHUT,
            [
                (
                    "look at",
                    "hub.networkPolicy",
                    "The hub's pod may be cut off from the API server, and then no server starts: no rule of the "
                    "policies hub and jupyterhub-gpu-hub-to-service opens port 443 or 6443 to a private address.",
                    LET_OUT,
                )
            ],
        ),
        (
            True,
            {"hub": {"config": {"GpuService": {"prometheus_url": "http://p:9999"}}}},
            [
                (
                    "look at",
                    "NetworkPolicy jupyterhub-gpu-service",
                    "The GPU service's pod may be cut off from your Prometheus, and then the use of MIG devices is "
                    "not known: no rule of the policy jupyterhub-gpu-service opens port 9999.",
                    "Open port 9999 there; service-deployment/networkpolicy.yaml has the rule.",
                )
            ],
        ),
        (
            False,
            {"hub": {"config": {"GpuService": {"port": 8200}}}},
            [
                (
                    "problem",
                    "hub.config.GpuService.port",
                    "The proxy cannot reach the hub's pod, where the GPU service runs, at port 8200, so no page and "
                    "no panel of the GPU service opens: the policies hub and jupyterhub-gpu-in-hub do not let it in.",
                    "Change the port in helm-values/manifests/networkpolicy.yaml to 8200, and name it by --manifests.",
                )
            ],
        ),
        (
            False,
            NO_LABEL,
            [
                (
                    "problem",
                    LABEL,
                    "Users' servers cannot reach the hub's pod, where the GPU service runs, at port 8081, so no "
                    "server starts: the policies hub and jupyterhub-gpu-in-hub do not let it in.",
                    KEEP_LABEL,
                )
            ],
        ),
        (
            True,
            NO_LABEL,
            [
                (
                    "problem",
                    LABEL,
                    "Users' servers cannot reach the hub's pod at port 8081, so no server starts: the policy hub does "
                    "not let it in.",
                    KEEP_LABEL,
                )
            ],
        ),
        (
            False,
            {"nameOverride": "jh"},
            [
                renamed(
                    "",
                    "The proxy cannot reach the hub's pod, where the GPU service runs, at port 8191, so no page and "
                    "no panel of the GPU service opens: the policy hub",
                )
            ],
        ),
        (
            True,
            {"nameOverride": "jh"},
            [
                renamed("service-deployment/", f"{text}: the policy jupyterhub-gpu-service", way)
                for text, way in (
                    (
                        "The proxy cannot reach the GPU service's pod at port 8191, so no page and no panel of the "
                        "GPU service opens",
                        "in",
                    ),
                    (
                        "The hub's pod cannot reach the GPU service's pod at port 8191, so no server with a GPU starts",
                        "in",
                    ),
                    (
                        "The GPU service's pod cannot reach the hub's pod at port 8081, so the service gets no "
                        "settings and stops no idle server",
                        "out",
                    ),
                )
            ],
        ),
    ],
)
def test_a_call_that_is_cut_off_is_said_with_its_key_and_what_to_do(
    apart: bool, values: dict[str, Any], rows: list[Row]
) -> None:
    found = list(check_network(release(apart, values)))
    assert [(each.severity, each.key, each.text, each.fix) for each in found] == rows


@pytest.mark.parametrize("apart", [False, True])
def test_a_proxy_that_is_shut_in_is_let_out_by_our_policies(apart: bool) -> None:
    shut = {"proxy": {"chp": {"networkPolicy": {"egressAllowRules": SHUT}}}}
    assert list(check_network(release(apart, shut))) == []
