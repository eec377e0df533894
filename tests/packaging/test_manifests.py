"""The plain manifests for a cluster give what the service asks for, and nothing else."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from hub_extensions.adapters.kubernetes.watch import RIGHTS
from hub_extensions.hub_service.setup.settings import Settings

FOLDER = Path(__file__).parents[2] / "helm-values" / "manifests"
OWN = "service-deployment/"
OF_HUB = ("rbac.yaml", "dra.yaml")
OF_SERVICE = (OWN + "rbac.yaml", OWN + "dra.yaml")
PORT = next(one.default for one in fields(Settings) if one.name == "port")
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.yaml"))
BUILDING = {folder + name for folder in ("", OWN, "gate/") for name in ("kustomization.yaml", "namespace.yaml")}
BUILDING.add("gate-postgres/kustomization.yaml")
OF_AN_APP = "gate/app-policy.yaml"
"""It is in the app's namespace."""


def manifests(name: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")) if one]


def only(name: str, kind: str) -> dict[str, Any]:
    (found,) = [one for one in manifests(name) if one["kind"] == kind]
    return found


def given(files: tuple[str, ...], kind: str) -> dict[tuple[str, str], frozenset[str]]:
    """(group, resource) -> verbs, of all roles of one kind."""
    rules = [rule for file in files for one in manifests(file) if one["kind"] == kind for rule in one["rules"]]
    assert all(set(rule) == {"apiGroups", "resources", "verbs"} for rule in rules)
    return {
        (group, resource): frozenset(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


# ------------------------------------------------------------------ rights


@pytest.mark.parametrize("files", [OF_HUB, OF_SERVICE], ids=["in the hub's pod", "in its own Deployment"])
def test_the_roles_give_exactly_what_the_service_asks_for(files: tuple[str, ...]):
    assert given(files, "ClusterRole") == {(one.group, one.resource): one.verbs for one in RIGHTS if not one.own}
    assert given(files, "Role") == {(one.group, one.resource): one.verbs for one in RIGHTS if one.own}


@pytest.mark.parametrize("files", [OF_HUB, OF_SERVICE], ids=["in the hub's pod", "in its own Deployment"])
def test_without_dra_nothing_of_dra_is_given(files: tuple[str, ...]):
    kinds = ("ClusterRole", "Role")
    assert {group for kind in kinds for group, _ in given(files[:1], kind)} == {""}
    assert {group for kind in kinds for group, _ in given(files[1:], kind)} == {"resource.k8s.io"}


@pytest.mark.parametrize(
    ("files", "account"),
    [((*OF_HUB, "kueue.yaml"), "hub"), (OF_SERVICE, "jupyterhub-gpu")],
    ids=["in the hub's pod", "in its own Deployment"],
)
def test_each_role_is_bound_to_the_one_account_in_the_hubs_namespace(files: tuple[str, ...], account: str):
    listed = [one for file in files for one in manifests(file)]
    bindings = [one for one in listed if one["kind"].endswith("Binding")]
    roles = {(one["kind"], one["metadata"]["name"]) for one in listed if one["kind"].endswith("Role")}
    assert {(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in bindings} == roles
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "jhub"}
    assert all(one["subjects"] == [subject] for one in bindings)


def test_the_two_ways_have_nothing_of_one_name():
    """Both may be there for a while: one way's `kubectl delete` must not take what the other has."""
    names = [
        {(one["kind"], one["metadata"]["name"]) for file in files for one in manifests(file)}
        for files in ((*OF_HUB, "networkpolicy.yaml"), (*OF_SERVICE, OWN + "networkpolicy.yaml"))
    ]
    assert not names[0] & names[1]


@pytest.mark.parametrize("file", [*OF_HUB, *OF_SERVICE, "kueue.yaml"])
def test_each_rule_says_why(file: str):
    lines = (FOLDER / file).read_text(encoding="utf-8").splitlines()
    rules = [number for number, line in enumerate(lines) if line.strip().startswith("- apiGroups:")]
    assert rules
    assert all(lines[number - 1].strip().startswith("# ") for number in rules)


# ------------------------------------------------------------------ network


def ways(file: str, direction: str) -> set[tuple[str, str]]:
    """(from, to) of all pairs of components that a file's policies let through, on the service's port."""
    peers = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}[direction]
    found = set()
    for policy in manifests(file):
        own = policy["spec"]["podSelector"]["matchLabels"]["component"]
        for rule in policy["spec"].get(peers[0], ()):
            if PORT not in [port["port"] for port in rule["ports"]]:
                continue
            for peer in rule[peers[1]]:
                other = peer["podSelector"]["matchLabels"]["component"]
                found.add((other, own) if direction == "Ingress" else (own, other))
    return found


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("networkpolicy.yaml", {("proxy", "hub")}),
        (OWN + "networkpolicy.yaml", {("proxy", "gpu-service"), ("hub", "gpu-service")}),
    ],
)
def test_the_policies_open_the_services_port_on_both_ends(file: str, wanted: set[tuple[str, str]]):
    assert ways(file, "Ingress") == ways(file, "Egress") == wanted


def test_the_services_own_pod_reaches_names_the_hub_and_the_ports_of_api_server_database_prometheus_and_mail_only():
    policy = next(one for one in manifests(OWN + "networkpolicy.yaml") if "Ingress" in one["spec"]["policyTypes"])
    opened = {port["port"]: rule.get("to") for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert opened.pop(8081) == [{"podSelector": {"matchLabels": {"app": "jupyterhub", "component": "hub"}}}]
    assert opened == {53: None, 443: None, 465: None, 587: None, 6443: None, 5432: None, 9090: None}


# ------------------------------------------------------------------ the Deployment


def test_the_deployment_never_runs_two_services_on_one_store():
    spec = only(OWN + "service.yaml", "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert only(OWN + "service.yaml", "PersistentVolumeClaim")["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_the_deployment_passes_pod_security_restricted_and_writes_nothing_into_its_image():
    pod = only(OWN + "service.yaml", "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    written = {mount["mountPath"] for mount in container["volumeMounts"]}
    state = container["command"][container["command"].index("--state-dir") + 1]
    assert written == {str(Path(state).parent), "/tmp"}


def test_the_deployment_keeps_every_secret_in_a_secret():
    """What the chart does not make itself may be missing: the service starts without."""
    (container,) = only(OWN + "service.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    named = {one["name"]: one.get("valueFrom", {}).get("secretKeyRef") for one in container["env"]}
    assert named.pop("JUPYTERHUB_API_URL") is None
    assert named.pop("JUPYTERHUB_API_TOKEN") == {"name": "hub", "key": "hub.services.gpu.apiToken"}
    assert all(reference["optional"] for reference in named.values())


def test_the_pod_is_found_by_service_policy_and_budget_and_let_in_by_the_hub():
    labels = only(OWN + "service.yaml", "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels["hub.jupyter.org/network-access-hub"] == "true"
    wanted = [
        only(OWN + "service.yaml", "Service")["spec"]["selector"],
        only(OWN + "service.yaml", "Deployment")["spec"]["selector"]["matchLabels"],
        only(OWN + "pdb.yaml", "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in wanted)
    assert [one["port"] for one in only(OWN + "service.yaml", "Service")["spec"]["ports"]] == [PORT]


def test_the_variables_that_kubernetes_makes_of_the_services_name_do_not_reach_it():
    """Service `jupyterhub-gpu` makes JUPYTERHUB_GPU_PORT and others, and ours begin alike."""
    assert only(OWN + "service.yaml", "Deployment")["spec"]["template"]["spec"]["enableServiceLinks"] is False


@pytest.mark.slow
def test_a_registry_with_a_password_is_one_line_to_take_the_sign_from():
    text = (FOLDER / OWN / "service.yaml").read_text(encoding="utf-8")
    changed = text.replace("# imagePullSecrets:", "imagePullSecrets:")
    (deployment,) = [one for one in yaml.safe_load_all(changed) if one["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "image-pull-secret"}]


@pytest.mark.parametrize("folder", ["", OWN], ids=["in the hub's pod", "in its own Deployment"])
def test_the_kustomization_says_what_a_second_hub_of_the_cluster_needs(folder: str):
    text = (FOLDER / folder / "kustomization.yaml").read_text(encoding="utf-8")
    assert "nameSuffix: -two" in text
    if folder:
        name = only(OWN + "service.yaml", "Service")["metadata"]["name"]
        assert f"hub.config.GpuService.url is http://{name}-two:{PORT}" in text


# ------------------------------------------------------------------ all files


@pytest.mark.parametrize("file", FILES)
def test_each_file_begins_with_a_sentence_for_who_applies_it(file: str):
    assert (FOLDER / file).read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("folder", ["", OWN])
def test_the_kustomization_names_every_file_beside_it_or_says_when(folder: str):
    text = (FOLDER / folder / "kustomization.yaml").read_text(encoding="utf-8")
    named = {folder + name for name in re.findall(r"^  (?:# )?- ([\w-]+\.yaml)$", text, re.MULTILINE)}
    beside = {file for file in FILES if Path(file).parent.as_posix() == (folder.rstrip("/") or ".")}
    assert named == beside - {folder + "kustomization.yaml"}


def test_one_namespace_stands_everywhere():
    """So that who changes it in one file by hand finds all places."""
    found = {
        one["metadata"].get("namespace")
        for file in FILES
        if file not in {*BUILDING, OF_AN_APP}
        for one in manifests(file)
        if not one["kind"].startswith("Cluster")
    }
    assert found == {"jhub"}
