"""What leads to the gate and its apps on Kubernetes: taken by a real API server, and led by with a real Traefik."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import yaml

from hub_extensions.core.sign_on.apps import App
from hub_extensions.tools.gate_config.render import ProxySettings, render
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.place import in_namespace
from tests.cluster.programs.build import ENVOY_GATEWAY_KINDS, programs
from tests.cluster.test_manifests import MANIFESTS, documents, is_served, kustomized
from tests.cluster.traefik import TraefikOfACluster, kinds_folder
from tests.fakes.apps_host import AppsHost, EchoApp
from tests.gate.proxies import test_real_proxies as through
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(patient(120))]

GATE_FILES = tuple(f"gate/{name}.yaml" for name in ("gate", "networkpolicy", "app-policy", "audit-as-a-user"))
KINDS = {
    "HTTPRoute": "httproutes",
    "ReferenceGrant": "referencegrants",
    "SecurityPolicy": "securitypolicies",
    "ClientTrafficPolicy": "clienttrafficpolicies",
    "EnvoyExtensionPolicy": "envoyextensionpolicies",
    "Middleware": "middlewares",
    "IngressRoute": "ingressroutes",
    "Ingress": "ingresses",
    "NetworkPolicy": "networkpolicies",
    "Deployment": "deployments",
    "Job": "jobs",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Service": "services",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Secret": "secrets",
    "ConfigMap": "configmaps",
}


@pytest.fixture(scope="module")
def gateway_kinds(control_plane: ControlPlane) -> Iterator[None]:
    """The kinds of the Gateway API and of Envoy Gateway that the generated piece names, and all of Traefik."""
    standard = programs("gateway-api") / "gateway-api-files" / "config" / "crd" / "standard"
    envoys = programs("envoy-gateway") / "envoy-gateway-files" / ENVOY_GATEWAY_KINDS
    wanted = [
        *(standard / f"gateway.networking.k8s.io_{KINDS[kind]}.yaml" for kind in ("HTTPRoute", "ReferenceGrant")),
        *(envoys / f"gateway.envoyproxy.io_{name}.yaml" for name in KINDS.values() if name.endswith("policies")),
    ]
    wanted += sorted(kinds_folder().glob("traefik.io_*.yaml"))
    defined = [one for file in wanted if file.exists() for one in control_plane.apply(file)]
    assert len(defined) == 15
    for one in defined:
        spec = one["spec"]
        for version in (each["name"] for each in spec["versions"] if each["served"]):
            path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
            until(lambda path=path: is_served(control_plane, path), what=f"{path} is served")
    yield
    for one in defined:
        name = one["metadata"]["name"]
        control_plane.call("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")


def taken(control_plane: ControlPlane, one: dict[str, Any]) -> str:
    """Its kind, where the API server would take it as it is: an unknown or a wrong field is refused."""
    group = one["apiVersion"]
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    path = f"{base}/namespaces/{one['metadata']['namespace']}/{KINDS[one['kind']]}"
    control_plane.call("POST", f"{path}?fieldValidation=Strict&dryRun=All", one)
    return str(one["kind"])


@pytest.mark.usefixtures("gateway_kinds")
def test_the_gates_manifests_and_the_pieces_for_kubernetes_are_taken_as_they_are(
    control_plane: ControlPlane, namespace: str
) -> None:
    for one in (*documents(*GATE_FILES), *kustomized(MANIFESTS / "gate-postgres")):
        taken(control_plane, in_namespace(one, namespace))
    url, gate = "https://apps.example.org", f"http://gate.{namespace}:8192"
    apps = (
        App("mlflow", "MLflow", f"{url}/mlflow/", f"http://mlflow.{namespace}:5000", groups=("lab",)),
        App("bare", "Bare", f"{url}/bare/", f"http://bare.{namespace}.svc:80", prefix=False, header_family="Remote"),
        App("board", "Board", "https://board.example.org/", "http://board.default:6006", header_family=None),
    )
    settings = ProxySettings(url, "a-secret-of-the-proxy-0123456789-0123456789", gate=gate, namespace=namespace)
    kinds: dict[str, set[str]] = {}
    for proxy in ("gateway-api", "traefik-kubernetes", "ingress"):
        made = [one for one in yaml.safe_load_all(render(proxy, apps, settings)) if one]
        kinds[proxy] = {taken(control_plane, one) for one in made}
        wrong = made[-1] | {"spec": made[-1]["spec"] | {"rulez": []}}
        with pytest.raises(requests.HTTPError, match=r"unknown field .*rulez"):
            taken(control_plane, wrong)
    assert kinds["gateway-api"] == {
        *("HTTPRoute", "ReferenceGrant", "SecurityPolicy", "ClientTrafficPolicy", "EnvoyExtensionPolicy"),
    }
    assert kinds["traefik-kubernetes"] == {"Middleware", "IngressRoute"}
    assert "Ingress" in kinds["ingress"]


@pytest.fixture(scope="module")
def traefik(
    control_plane: ControlPlane, gateway_kinds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TraefikOfACluster]:
    """It, before the fake gate and the app that says what reached it."""
    host = AppsHost()
    names = [f"t-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    with fresh_namespace(control_plane, names[0]), fresh_namespace(control_plane, names[1]):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "traefik-ingress-controller"}}
        rights = (kinds_folder() / "kubernetes-crd-rbac.yml").read_text(encoding="utf-8")
        control_plane.apply(yaml.safe_dump(account), names[0])
        made = control_plane.apply(rights.replace("namespace: default", f"namespace: {names[0]}"))
        running = TraefikOfACluster(tmp_path_factory.mktemp("traefik"), host, control_plane, *names)
        host.start(running.apps)
        try:
            running.start()
            yield running
        finally:
            running.stop()
            host.stop()
            for one in made:
                path = f"/apis/{one['apiVersion']}/{one['kind'].lower()}s/{one['metadata']['name']}"
                control_plane.call("DELETE", path)


HOLDS: tuple[Callable[[Any], None], ...] = (
    through.test_a_person_of_the_group_opens_page_post_and_websocket_under_the_gates_name_alone,
    through.test_a_stranger_is_sent_to_the_sign_in_from_a_page_and_refused_in_json_elsewhere,
    through.test_who_has_not_the_group_and_who_comes_while_the_hub_is_away_read_the_gates_words,
    through.test_an_app_that_is_away_is_not_reported_as_a_page_of_the_proxy,
    through.test_no_spelling_of_an_identity_header_comes_through,
    through.test_mixed_spellings_and_what_names_headers_for_removal_change_nothing,
    through.test_a_familys_app_reads_its_names_and_no_other_familys,
    through.test_the_apps_own_cookies_pass_and_the_gates_does_not_nor_does_a_token,
    through.test_what_is_not_for_browsers_at_the_gate_is_closed_to_them,
    through.test_the_gates_own_pages_are_reached_and_get_the_literal_host,
    through.test_which_app_is_asked_about_is_never_what_a_header_or_an_odd_path_names,
    through.test_what_is_public_is_open_without_a_name_and_no_spelling_leads_from_it_to_the_rest,
    through.test_a_path_is_taken_off_where_the_app_does_not_know_it,
    through.test_websockets_of_a_relayed_app_are_the_gates,
    through.test_no_cookie_token_secret_or_assertion_is_in_what_the_proxy_writes,
)
"""What holds of a proxy with a file holds of the one that reads the API server."""


@pytest.mark.needs("fetched-proxies")
def test_traefik_takes_every_part_from_the_api_server_and_leads_as_with_a_file(traefik: TraefikOfACluster) -> None:
    assert traefik.refused() == []
    for rule in HOLDS:
        EchoApp.seen.clear()
        rule(traefik)
