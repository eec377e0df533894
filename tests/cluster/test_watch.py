"""The watch of a cluster on a real API server, with exactly the rights that our manifests give."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import requests

from hub_extensions.adapters.kubernetes.api import ClusterRefused
from hub_extensions.adapters.kubernetes.reflector import Pace
from hub_extensions.adapters.kubernetes.watch import ClusterWatch
from hub_extensions.core.cluster.model import ClusterConfig, ClusterView
from hub_extensions.core.offers.pod_request import LEASE_LABEL
from tests.cluster.control_plane import ControlPlane
from tests.cluster.played_nodes import PlayedNodes
from tests.patience import patient

pytestmark = pytest.mark.needs("cluster")

MANIFESTS = Path(__file__).parents[2] / "helm-values" / "manifests"
CLUSTER_ROLES = ("jupyterhub-gpu-reader", "jupyterhub-gpu-dra")
ACCOUNT = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: hub, namespace: NAMESPACE}
"""
SMALL = "nvidia.com/mig-1g.5gb"
QUICK = Pace(first=0.05, longest=0.5, doubted=3.0, forbidden=1.0, page=2)


def rights(namespace: str) -> str:
    """The manifests for a namespace; ClusterRoles have names of their own, for they are the whole cluster's."""
    rights = [(MANIFESTS / file).read_text(encoding="utf-8") for file in ("rbac.yaml", "dra.yaml")]
    text = "\n---\n".join(rights).replace("namespace: jhub", f"namespace: {namespace}")
    for name in CLUSTER_ROLES:
        text = text.replace(name, f"{name}-{namespace}")
    return text


@pytest.fixture
def hub(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """The kubeconfig of the hub's account."""
    control_plane.apply(ACCOUNT.replace("NAMESPACE", namespace))
    control_plane.apply(rights(namespace))
    yield str(control_plane.kubeconfig_for("hub", namespace))
    for name in CLUSTER_ROLES:
        take_cluster_role(control_plane, f"{name}-{namespace}")


def take_cluster_role(control_plane: ControlPlane, name: str) -> None:
    for kind in ("clusterrolebindings", "clusterroles"):
        try:
            control_plane.call("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}/{name}")
        except requests.HTTPError as refused:
            if refused.response is None or refused.response.status_code != 404:
                raise


@asynccontextmanager
async def watching(kubeconfig: str) -> AsyncIterator[ClusterWatch]:
    watch = ClusterWatch(ClusterConfig(kubeconfig=kubeconfig), pace=QUICK)
    try:
        await watch.start(patient(30))
        yield watch
    finally:
        await watch.close()


async def until(watch: ClusterWatch, holds: Callable[[ClusterView], object], seconds: float = 30.0) -> ClusterView:
    deadline = asyncio.get_running_loop().time() + patient(seconds)
    while not holds(view := watch.view(datetime.now(timezone.utc))):
        assert asyncio.get_running_loop().time() < deadline, f"it never came: {view}"
        await watch.wait_changed(0.2)
    return view


def pod(name: str, **labels: str) -> dict[str, Any]:
    """One small slice, within Pod Security ``restricted``."""
    limits = {"cpu": "1", "memory": "1Gi", SMALL: "1"}
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "notebook", "image": "played", "resources": {"limits": limits}, "securityContext": strict}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "containers": [container],
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
    }


async def make(control_plane: ControlPlane, namespace: str, *pods: dict[str, Any]) -> None:
    for one in pods:
        await asyncio.to_thread(control_plane.call, "POST", f"/api/v1/namespaces/{namespace}/pods", one)


def own(view: ClusterView, namespace: str) -> dict[str, Any]:
    return {pod.name: pod for pod in (view.pods or {}).values() if pod.namespace == namespace}


async def test_nodes_and_pods_are_followed_from_being_made_to_being_gone(
    control_plane: ControlPlane, played_nodes: PlayedNodes, namespace: str, hub: str
):
    with played_nodes.node("watched", {SMALL: 1}, labels={"nvidia.com/mig.capable": "true"}):
        async with watching(hub) as watch:
            view = watch.view(datetime.now(timezone.utc))
            assert (view.problem, view.own_pods_only, view.namespace) == ("", False, namespace)
            assert view.nodes is not None and view.nodes["watched"].allocatable == {SMALL: 1}
            assert view.nodes["watched"].ready is True
            await make(control_plane, namespace, pod("first", **{LEASE_LABEL: "l1"}))
            view = await until(
                watch, lambda view: "first" in own(view, namespace) and own(view, namespace)["first"].node
            )
            found = own(view, namespace)["first"]
            assert (found.node, found.requests, found.lease) == ("watched", {SMALL: 1}, "l1")
            await make(control_plane, namespace, pod("second"))
            view = await until(watch, lambda view: getattr(own(view, namespace).get("second"), "unscheduled", ""))
            assert "Insufficient nvidia.com/mig-1g.5gb" in own(view, namespace)["second"].unscheduled_why
            assert await watch.delete_pod(namespace, "first", "another-uid") is False
            assert await watch.delete_pod(namespace, "first", found.uid)
            await until(watch, lambda view: "first" not in own(view, namespace))
            assert await watch.delete_pod(namespace, "first", found.uid) is False
            await asyncio.to_thread(played_nodes.cordon, "watched")
            await until(watch, lambda view: view.nodes and view.nodes["watched"].cordoned)


async def test_slices_claims_and_templates_are_read_with_the_same_rights(
    control_plane: ControlPlane, namespace: str, hub: str
):
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "slice"},
        "spec": {
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "mig.nvidia.com"}}]}}
        },
    }
    async with watching(hub) as watch:
        # the authorizer may not have heard of the rights in the first moment
        await until(watch, lambda view: None not in (view.templates, view.claims, view.slices))
        assert watch.view(datetime.now(timezone.utc)).templates == ()
        path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"
        await asyncio.to_thread(control_plane.call, "POST", path, template)
        view = await until(watch, lambda view: view.templates)
        assert view.templates is not None
        assert (view.templates[0].name, view.templates[0].device_class) == ("slice", "mig.nvidia.com")


async def test_without_the_cluster_role_nodes_are_unknown_and_our_own_pods_are_left(
    control_plane: ControlPlane, namespace: str, hub: str
):
    take_cluster_role(control_plane, f"jupyterhub-gpu-reader-{namespace}")
    async with watching(hub) as watch:
        view = await until(watch, lambda view: view.own_pods_only)
        assert (view.nodes, view.problem) == (None, "")
        await make(control_plane, namespace, pod("mine"))
        await until(watch, lambda view: list(own(view, namespace)) == ["mine"])
        await asyncio.to_thread(control_plane.apply, rights(namespace))
        await until(watch, lambda view: view.nodes is not None and not view.own_pods_only)


async def test_a_pod_of_another_namespace_may_not_be_ended(control_plane: ControlPlane, namespace: str, hub: str):
    async with watching(hub) as watch:
        with pytest.raises(ClusterRefused, match="403"):
            await watch.delete_pod("kube-system", "anything", "uid")


@pytest.mark.needs("own-cluster")
async def test_an_api_server_that_starts_again_costs_no_value_and_two_lines(
    control_plane: ControlPlane, namespace: str, hub: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "hub_extensions.hub_service")
    await make(control_plane, namespace, pod("stays"))
    async with watching(hub) as watch:
        await until(watch, lambda view: "stays" in own(view, namespace))
        control_plane.api_server.kill()
        view = await until(watch, lambda view: view.problem)
        assert "stays" in own(view, namespace)
        control_plane.api_server.start()  # in this thread: it ends with the one that started it
        ready = asyncio.create_task(asyncio.to_thread(control_plane.until_ready))
        while not ready.done():
            assert "stays" in own(watch.view(datetime.now(timezone.utc)), namespace)
            await watch.wait_changed(0.05)
        await ready
        await make(control_plane, namespace, pod("new"))
        view = await until(watch, lambda view: "new" in own(view, namespace) and not view.problem)
        assert view.nodes is not None and not view.own_pods_only
    said = [record.getMessage() for record in caplog.records if record.name == "hub_extensions.hub_service"]
    assert [line.partition(":")[0][:32] for line in said] == [
        "The cluster cannot be read since",
        "The cluster can be read again, a",
    ]


@pytest.mark.needs("own-cluster")
async def test_while_etcd_stands_still_nothing_is_forgotten_and_afterwards_nothing_is_missed(
    control_plane: ControlPlane, namespace: str, hub: str
):
    await make(control_plane, namespace, pod("stays"))
    async with watching(hub) as watch:
        await until(watch, lambda view: "stays" in own(view, namespace))
        control_plane.etcd.pause()
        try:
            made = asyncio.create_task(make(control_plane, namespace, pod("new")))
            deadline = asyncio.get_running_loop().time() + 8.0
            while asyncio.get_running_loop().time() < deadline:
                assert list(own(watch.view(datetime.now(timezone.utc)), namespace)) == ["stays"]
                await watch.wait_changed(0.1)
        finally:
            control_plane.etcd.resume()
        await made
        view = await until(watch, lambda view: "new" in own(view, namespace) and not view.problem)
        assert sorted(own(view, namespace)) == ["new", "stays"]
