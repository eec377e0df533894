"""A namespace for one test: ready for pods when it is given, deleted afterwards, its pods at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import requests

from tests.cluster.control_plane import ControlPlane
from tests.hubs import until

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
GONE_SECONDS = 60.0


@contextmanager
def fresh_namespace(cluster: ControlPlane, name: str, labels: Mapping[str, str] = RESTRICTED) -> Iterator[str]:
    """Make it and wait for what a pod needs in it; delete it afterwards, and wait for the end of its pods."""
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
    cluster.call("POST", "/api/v1/namespaces", made)
    own = f"/api/v1/namespaces/{name}"
    try:
        until(_there(cluster, f"{own}/serviceaccounts/default"), 20, f"{name} got no ServiceAccount")
        until(_there(cluster, f"{own}/configmaps/kube-root-ca.crt"), 20, f"{name} got no certificate of the cluster")
        yield name
    finally:
        cluster.call("DELETE", own)
        cluster.call("DELETE", f"{own}/pods?gracePeriodSeconds=0")
        until(lambda: not _pods(cluster, own), GONE_SECONDS, lambda: f"these pods stay: {_pods(cluster, own)}")


def _pods(cluster: ControlPlane, own: str) -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.call("GET", f"{own}/pods")["items"]]


def _there(cluster: ControlPlane, path: str) -> Callable[[], bool]:
    def look() -> bool:
        try:
            cluster.call("GET", path)
        except requests.HTTPError as refused:
            if refused.response is not None and refused.response.status_code == 404:
                return False
            raise
        return True

    return look
