"""Profiles that are pinned to machines with GPUs, by the labels of the clouds and of their pools of nodes."""

from __future__ import annotations

import pytest

from hub_extensions.tools.helm_check.chart_facts import packed_facts
from hub_extensions.tools.helm_check.model import Release
from hub_extensions.tools.helm_check.rules.pods import check_pods
from hub_extensions.tools.helm_check.rules.sign_on import check_kinds


@pytest.mark.parametrize(
    ("label", "value", "is_gpu"),
    [
        ("node.kubernetes.io/instance-type", "p4d.24xlarge", True),
        ("beta.kubernetes.io/instance-type", "g5.2xlarge", True),
        ("karpenter.k8s.aws/instance-family", "g6e", True),
        ("node.kubernetes.io/instance-type", "Standard_NC24ads_A100_v4", True),
        ("node.kubernetes.io/instance-type", "a2-highgpu-1g", True),
        ("node.kubernetes.io/instance-type", "g2-standard-8", True),
        ("kubernetes.azure.com/agentpool", "gpunodes", True),
        ("agentpool", "a100", True),
        ("cloud.google.com/gke-nodepool", "t4-pool", True),
        ("eks.amazonaws.com/nodegroup", "cuda", True),
        ("cloud.google.com/gke-accelerator", "nvidia-tesla-t4", True),
        ("nvidia.com/gpu.product", "NVIDIA-A100", True),
        ("node.kubernetes.io/instance-type", "m5.xlarge", False),
        ("node.kubernetes.io/instance-type", "Standard_D8s_v5", False),
        ("node.kubernetes.io/instance-type", "n2-standard-4", False),
        ("node.kubernetes.io/instance-type", "t4g.large", False),
        ("agentpool", "users", False),
        ("hub.jupyter.org/node-purpose", "user", False),
    ],
)
def test_a_profile_for_machines_with_gpus_is_seen(label: str, value: str, is_gpu: bool) -> None:
    profile = {"display_name": "x", "kubespawner_override": {"node_selector": {label: value}}}
    values = {
        "hub": {"config": {"JupyterHub": {"spawner_class": "gpu"}}},
        "singleuser": {"profileList": [profile], "networkPolicy": {"enabled": True}},
    }
    found = [each.rule for each in check_pods(Release([], values, packed_facts()))]
    assert found == ["profile-on-gpu-nodes"] * is_gpu


@pytest.mark.parametrize(
    ("section", "name", "value", "is_wrong"),
    [
        ("Authenticator", "allow_all", "false", True),
        ("GenericOAuthenticator", "allow_existing_users", "yes", True),
        ("SingleSignOnOIDCAuthenticator", "manage_groups", 1, True),
        ("SingleSignOnOIDCAuthenticator", "username_claim", ["email"], True),
        ("SingleSignOnOIDCAuthenticator", "groups_claim", {"$object": "function"}, False),
        ("SingleSignOnOIDCAuthenticator", "missing_groups", None, False),
        ("SingleSignOnOIDCAuthenticator", "allowed_groups", "staff", True),
        ("LDAPAuthenticator", "allowed_groups", ["staff"], False),
        ("Authenticator", "allow_all", True, False),
        ("GpuOffers", "allow_all", "false", False),
    ],
)
def test_a_setting_of_the_wrong_kind_is_named(section: str, name: str, value: object, is_wrong: bool) -> None:
    release = Release([], {"hub": {"config": {section: {name: value}}}}, packed_facts())
    assert [each.key for each in check_kinds(release)] == [f"hub.config.{section}.{name}"] * is_wrong
