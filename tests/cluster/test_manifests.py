"""The manifests on a real API server: all are accepted, and each account may do exactly what its page says, no more.

RBAC and the schemas are the API server's own, the Prometheus operator's kind is that of its release, and kustomize is
the release that kubectl carries. Network policies are only checked for their form here: nothing enforces them on this
cluster (who calls whom is proved with the policies' own text elsewhere).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.place import CHART_ROLE, in_namespace
from tests.cluster.programs.build import programs
from tests.hubs import until
from tests.patience import patient

pytestmark = pytest.mark.needs("cluster")

MANIFESTS = Path(__file__).parents[2] / "helm-values" / "manifests"
OWN = "service-deployment/"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
BEYOND = {"roles": ("bind", "escalate"), "clusterroles": ("bind", "escalate"), "serviceaccounts": ("impersonate",)}
"""Verbs by which an account could give itself another's rights."""
READ = {"get", "list", "watch"}
CHART = {
    **{
        ("", name): {"get", "watch", "list", "create", "delete"}
        for name in ("persistentvolumeclaims", "secrets", "services")
    },
    ("", "pods"): {"get", "watch", "list", "create", "delete"},
    ("", "events"): READ,
}
"""What the chart's own Role gives its hub in its namespace."""

BY_KUBERNETES = {
    ("authorization.k8s.io", "selfsubjectaccessreviews"): {"create"},
    ("authorization.k8s.io", "selfsubjectrulesreviews"): {"create"},
    ("authentication.k8s.io", "selfsubjectreviews"): {"create"},
}
"""What Kubernetes gives every account: to ask what it may do, and who it is."""

Allowed = dict[tuple[str, str], set[str]]


def documents(*files: str) -> list[dict[str, Any]]:
    return [one for file in files for one in yaml.safe_load_all((MANIFESTS / file).read_text(encoding="utf-8")) if one]


@pytest.fixture
def give(control_plane: ControlPlane, namespace: str) -> Iterator[Any]:
    """Applies manifests for the test's namespace; what is cluster-wide is taken away afterwards."""
    wide: list[tuple[str, str]] = []

    def apply(*files: str) -> None:
        for one in documents(*files):
            moved = in_namespace(one, namespace)
            if moved["kind"].startswith("Cluster"):
                wide.append((moved["kind"].lower() + "s", moved["metadata"]["name"]))
            control_plane.apply(yaml.safe_dump(moved), namespace)

    control_plane.apply(CHART_ROLE, namespace)
    yield apply
    for kind, name in wide:
        control_plane.call("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}/{name}")


def everything_served(control_plane: ControlPlane) -> set[tuple[str, str]]:
    """(group, resource) of all that the API server has, subresources too, and what others would add to it."""
    places = [("", "/api/v1")]
    for group in control_plane.call("GET", "/apis")["groups"]:
        places.append((group["name"], f"/apis/{group['preferredVersion']['groupVersion']}"))
    served = {(group, one["name"]) for group, path in places for one in control_plane.call("GET", path)["resources"]}
    assert {("", "pods/exec"), ("", "secrets"), ("apps", "deployments")} <= served
    return served | {("kueue.x-k8s.io", "localqueues"), ("kueue.x-k8s.io", "clusterqueues")}


def allowed(control_plane: ControlPlane, account: str, own: str, asked_in: str) -> Allowed:
    """Each thing and verb that the account may use in a namespace, by the rules the API server says it has there."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": asked_in}}
    said = control_plane.call("POST", path, asked, user=f"system:serviceaccount:{own}:{account}")
    assert not said["status"]["incomplete"], said
    rules = said["status"]["resourceRules"]
    assert not [rule for rule in rules if rule.get("resourceNames")], "some things by their names only"
    found: Allowed = {}
    for group, resource in everything_served(control_plane):
        for verb in (*VERBS, *BEYOND.get(resource.partition("/")[0], ())):
            if any(_gives(rule, group, resource, verb) for rule in rules):
                found.setdefault((group, resource), set()).add(verb)
    return found


def _gives(rule: dict[str, Any], group: str, resource: str, verb: str) -> bool:
    """As ``pkg/apis/rbac/v1/evaluation_helpers.go`` of Kubernetes has it."""
    subresource = resource.partition("/")[2]
    names = {"*", resource} | ({f"*/{subresource}"} if subresource else set())
    return bool(
        {"*", group} & set(rule.get("apiGroups") or ())
        and {"*", verb} & set(rule["verbs"])
        and names & set(rule.get("resources") or ())
    )


def allowed_one_by_one(control_plane: ControlPlane, account: str, own: str, asked_in: str) -> Allowed:
    """The same, each asked for by itself: thousands of questions."""
    found: Allowed = {}
    user = f"system:serviceaccount:{own}:{account}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"]
    for group, resource in sorted(everything_served(control_plane)):
        name, _, subresource = resource.partition("/")
        for verb in (*VERBS, *BEYOND.get(resource, ())):
            attributes = {"group": group, "resource": name, "subresource": subresource, "verb": verb}
            question = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": user, "groups": groups, "resourceAttributes": {**attributes, "namespace": asked_in}},
            }
            answer = control_plane.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", question)
            if answer["status"]["allowed"]:
                found.setdefault((group, resource), set()).add(verb)
    return found


def with_these(*parts: Allowed) -> Allowed:
    together: Allowed = {}
    for part in (BY_KUBERNETES, *parts):
        for thing, verbs in part.items():
            together[thing] = together.get(thing, set()) | verbs
    return together


EVERYWHERE: Allowed = {("", "nodes"): READ, ("", "pods"): READ, ("", "persistentvolumes"): {"list", "watch"}}
HERE: Allowed = {("", "pods"): READ | {"delete"}, ("", "persistentvolumeclaims"): {"list", "watch"}}
DRA: Allowed = {("resource.k8s.io", name): {"list", "watch"} for name in ("resourceslices", "resourceclaims")}
DRA_HERE: Allowed = {("resource.k8s.io", "resourceclaimtemplates"): {"list", "watch"}}
KUEUE: Allowed = {("kueue.x-k8s.io", "localqueues"): {"get"}}
WAYS = {
    "the hub with the service in its pod": ("hub", ("rbac.yaml",), EVERYWHERE, with_these(CHART, HERE)),
    "the hub with DRA and Kueue, whose admins drain nodes": (
        "hub",
        ("rbac.yaml", "drain-nodes.yaml", "dra.yaml", "kueue.yaml"),
        {**EVERYWHERE, **DRA, ("", "nodes"): READ | {"patch"}},
        with_these(CHART, HERE, DRA_HERE, KUEUE, {("", "nodes"): {"patch"}}),
    ),
    "the hub beside the service's Deployment": ("hub", (OWN + "rbac.yaml",), {}, with_these(CHART)),
    "the service in its own Deployment": ("jupyterhub-gpu", (OWN + "rbac.yaml",), EVERYWHERE, with_these(HERE)),
    "the service in its own Deployment, with DRA, whose admins drain nodes": (
        "jupyterhub-gpu",
        (OWN + "rbac.yaml", OWN + "drain-nodes.yaml", OWN + "dra.yaml"),
        {**EVERYWHERE, **DRA, ("", "nodes"): READ | {"patch"}},
        with_these(HERE, DRA_HERE, {("", "nodes"): {"patch"}}),
    ),
}


@pytest.mark.timeout(patient(600))
@pytest.mark.parametrize("ask", [allowed, pytest.param(allowed_one_by_one, marks=pytest.mark.whole)])
@pytest.mark.parametrize("way", WAYS)
def test_an_account_may_do_exactly_this_of_all_there_is(
    way: str, ask: Callable[..., Allowed], control_plane: ControlPlane, namespace: str, give: Any
):
    account, files, everywhere, here = WAYS[way]
    give(*files)
    assert ask(control_plane, account, namespace, "kube-system") == with_these(everywhere)
    assert ask(control_plane, account, namespace, namespace) == with_these(everywhere, here)


def test_every_manifest_is_one_that_the_api_server_takes(control_plane: ControlPlane, namespace: str, give: Any):
    give(
        "rbac.yaml",
        "drain-nodes.yaml",
        "dra.yaml",
        "kueue.yaml",
        "networkpolicy.yaml",
        "metadata-policy.yaml",
        "dra-templates.yaml",
    )
    give(
        *(
            OWN + name
            for name in ("rbac.yaml", "drain-nodes.yaml", "dra.yaml", "service.yaml", "pdb.yaml", "networkpolicy.yaml")
        )
    )
    policies = control_plane.call("GET", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies")["items"]
    ours = ("in-hub", "proxy-to-hub", "proxy-to-service", "hub-to-service", "service", "no-metadata")
    assert {one["metadata"]["name"] for one in policies} == {f"jupyterhub-gpu-{name}" for name in ours}


def test_the_services_pod_is_taken_by_a_namespace_with_pod_security_restricted(
    control_plane: ControlPlane, namespace: str, give: Any
):
    give(OWN + "rbac.yaml")
    deployment = next(one for one in documents(OWN + "service.yaml") if one["kind"] == "Deployment")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gpu-service", **deployment["spec"]["template"]["metadata"]},
        "spec": deployment["spec"]["template"]["spec"],
    }
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    assert control_plane.call("POST", path, pod)["spec"]["serviceAccountName"] == "jupyterhub-gpu"
    del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
    with pytest.raises(requests.HTTPError, match=r"must set securityContext\.capabilities\.drop"):
        control_plane.call("POST", path, pod)


# ------------------------------------------------------------------ kubectl apply -k


def kustomized(folder: Path) -> list[dict[str, Any]]:
    command = [str(programs("kustomize") / "kustomize"), "build", str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=patient(60), check=False)
    assert made.returncode == 0, made.stderr
    return [one for one in yaml.safe_load_all(made.stdout) if one]


def changed_by_an_admin(folder: Path, namespace: str) -> Path:
    """A copy with the namespace written into the one place for it, and all that is only there "where it is used"."""
    copied = shutil.copytree(MANIFESTS, folder / "manifests")
    for place in (copied, copied / OWN):
        file = place / "namespace.yaml"
        file.write_text(re.sub(r"^  namespace: jhub$", f"  namespace: {namespace}", file.read_text(), flags=re.M))
        file = place / "kustomization.yaml"
        file.write_text(re.sub(r"^  # - (?=\S+\.yaml$)", "  - ", file.read_text(), flags=re.M))
    return copied


OPTIONAL = (
    "dra.yaml", "dra-templates.yaml", "drain-nodes.yaml", "kueue.yaml", "metadata-policy.yaml", "monitoring.yaml",
    "grafana-dashboard.yaml", "prometheus-rules.yaml", "sign-on.yaml",
)  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("", ("rbac.yaml", "networkpolicy.yaml", *OPTIONAL)),
        (
            OWN,
            [
                OWN + name
                for name in (
                    "rbac.yaml",
                    "service.yaml",
                    "pdb.yaml",
                    "networkpolicy.yaml",
                    "dra.yaml",
                    "drain-nodes.yaml",
                )
            ],
        ),
    ],
    ids=["in the hub's pod", "in its own Deployment"],
)
def test_kustomize_moves_everything_to_the_namespace_and_changes_nothing_else(
    folder: str, files: tuple[str, ...], tmp_path: Path
):
    def by_name(given: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
        return {(one["kind"], one["metadata"]["name"]): one for one in given}

    expected = documents(*files)
    for one in expected:
        if not one["kind"].startswith("Cluster"):
            one["metadata"]["namespace"] = "teaching"
        for subject in one.get("subjects", ()):
            subject["namespace"] = "teaching"
    made = kustomized(changed_by_an_admin(tmp_path, "teaching") / folder)
    assert by_name(made) == by_name(expected) and len(made) == len(expected)


def for_a_second_hub(folder: str, namespace: str, copy: Path) -> list[dict[str, Any]]:
    """What a kustomization makes with a `nameSuffix`, as its top says; without what is only there where it is used."""
    file = changed_by_an_admin(copy, namespace) / folder / "kustomization.yaml"
    file.write_text((MANIFESTS / folder / "kustomization.yaml").read_text() + f"nameSuffix: -{namespace}\n")
    return kustomized(file.parent)


def names_of(made: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(one["kind"], one["metadata"]["name"]) for one in made}


@pytest.mark.parametrize("folder", ["", OWN], ids=["in the hub's pod", "in its own Deployment"])
def test_a_second_hub_of_a_cluster_gets_rights_of_its_own_by_a_suffix(
    folder: str, control_plane: ControlPlane, namespace: str, tmp_path: Path
):
    """What it makes is taken by the API server and works."""
    account, here = (f"jupyterhub-gpu-{namespace}", with_these(HERE)) if folder else ("hub", with_these(CHART, HERE))
    control_plane.apply(CHART_ROLE, namespace)
    made = for_a_second_hub(folder, namespace, tmp_path)
    try:
        control_plane.apply(yaml.safe_dump_all(made), namespace)
        assert allowed(control_plane, account, namespace, "kube-system") == with_these(EVERYWHERE)
        assert allowed(control_plane, account, namespace, namespace) == with_these(EVERYWHERE, here)
    finally:
        for one in made:
            if one["kind"].startswith("Cluster"):
                path = f"/apis/rbac.authorization.k8s.io/v1/{one['kind'].lower()}s/{one['metadata']['name']}"
                control_plane.call("DELETE", path)


@pytest.mark.parametrize("folder", ["", OWN], ids=["in the hub's pod", "in its own Deployment"])
def test_a_second_hub_of_a_cluster_takes_nothing_cluster_wide_from_the_first(folder: str, tmp_path: Path):
    assert "nameSuffix: -two" in (MANIFESTS / folder / "kustomization.yaml").read_text()
    first, second = names_of(kustomized(MANIFESTS / folder)), names_of(for_a_second_hub(folder, "two", tmp_path))
    wide = [{one for one in names if one[0].startswith("Cluster")} for names in (first, second)]
    assert len(wide[0]) == len(wide[1]) == 2
    assert not wide[0] & wide[1]


def test_with_a_suffix_the_parts_of_the_services_deployment_still_find_each_other(tmp_path: Path):
    """Account, roles, volume, selectors; and the Service has the name that the top of the kustomization says."""
    made = for_a_second_hub(OWN, "two", tmp_path)
    names, text = names_of(made), (MANIFESTS / OWN / "kustomization.yaml").read_text()
    (template,) = [one["spec"]["template"] for one in made if one["kind"] == "Deployment"]
    pod, labels = template["spec"], template["metadata"]["labels"]
    account = {"kind": "ServiceAccount", "name": pod["serviceAccountName"], "namespace": "two"}
    assert (account["kind"], account["name"]) in names
    volumes = {one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one}
    assert volumes == {name for kind, name in names if kind == "PersistentVolumeClaim"}
    bindings = [one for one in made if one["kind"].endswith("Binding")]
    assert bindings and all(one["subjects"] == [account] for one in bindings)
    assert all((one["roleRef"]["kind"], one["roleRef"]["name"]) in names for one in bindings)
    (service,) = [one for one in made if one["kind"] == "Service"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert f"http://{service['metadata']['name']}:8191" in text
    (budget,) = [one for one in made if one["kind"] == "PodDisruptionBudget"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    policies = {one["metadata"]["name"]: one["spec"] for one in made if one["kind"] == "NetworkPolicy"}
    assert policies == {f"{one['metadata']['name']}-two": one["spec"] for one in documents(OWN + "networkpolicy.yaml")}


# ------------------------------------------------------------------ Prometheus


def test_the_service_monitor_is_one_of_the_prometheus_operators_kind(control_plane: ControlPlane, namespace: str):
    """By the schema of the operator's release: an unknown or a wrong field is refused."""
    files = programs("prometheus-operator") / "prometheus-operator-files" / "example" / "prometheus-operator-crd"
    kind = files / "monitoring.coreos.com_servicemonitors.yaml"
    (defined,) = control_plane.apply(kind)
    (monitor,) = documents("monitoring.yaml")
    path = f"/apis/monitoring.coreos.com/v1/namespaces/{namespace}/servicemonitors"
    monitor["metadata"]["namespace"] = namespace
    try:
        until(lambda: is_served(control_plane, path), what="the kind is served")
        taken = control_plane.call("POST", f"{path}?fieldValidation=Strict&dryRun=All", monitor)
        assert taken["spec"] == monitor["spec"]
        with_https = (MANIFESTS / "monitoring.yaml").read_text().split("write instead\n")[1].split("\n# (")[0]
        monitor["spec"]["endpoints"][0] |= yaml.safe_load(with_https.replace("#   ", ""))
        assert {"port", "scheme", "tlsConfig"} <= set(monitor["spec"]["endpoints"][0])
        taken = control_plane.call("POST", f"{path}?fieldValidation=Strict&dryRun=All", monitor)
        assert taken["spec"] == monitor["spec"]
        monitor["spec"]["endpoints"][0]["prot"] = monitor["spec"]["endpoints"][0].pop("port")
        with pytest.raises(requests.HTTPError, match=r"unknown field .*prot"):
            control_plane.call("POST", f"{path}?fieldValidation=Strict&dryRun=All", monitor)
    finally:
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        control_plane.call("DELETE", f"{definitions}/{defined['metadata']['name']}")


def is_served(control_plane: ControlPlane, path: str) -> bool:
    try:
        control_plane.call("GET", path)
    except requests.HTTPError:
        return False
    return True
