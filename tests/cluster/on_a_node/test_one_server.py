"""One server on a real kubelet: its home outlives it, it works without the driver, it is made again when refused.

Killed, and started again with another slice, the files are there: the volume is a folder of this machine that a
PersistentVolume names; the claim is KubeSpawner's own. No container here has NVIDIA's driver: JupyterLab works in it,
and the panel says what is missing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.on_a_node.homes import STORAGE, home_of
from tests.cluster.place import ClusterPlace
from tests.cluster.real_node import RealNode
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("real-node"), pytest.mark.timeout(patient(400))]

SMALL, LARGE = "mig-1g.5gb", "mig-2g.10gb"
SECONDS = 120.0


@pytest.fixture(scope="module")
def hub_and_home(
    control_plane: ControlPlane, real_node: RealNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterPlace]:
    volumes, folder = "/api/v1/persistentvolumes", tmp_path_factory.mktemp("homes")
    with fresh_namespace(control_plane, f"homes-{secrets.token_hex(3)}") as namespace:
        control_plane.call("POST", volumes, home_of("ada", folder / "home-of-ada", namespace))
        try:
            place = ClusterPlace(control_plane, namespace, folder / "hub", address=real_node.address, config=STORAGE)
            with place.open():
                place.hub.add_users("ada")
                yield place
        finally:
            control_plane.call("DELETE", f"{volumes}/home-of-ada-{namespace}")


@pytest.fixture
def place(hub_and_home: ClusterPlace) -> Iterator[ClusterPlace]:
    """The hub, without a server before and after a test."""
    hub_and_home.until_offered(SMALL, 5, 30)
    yield hub_and_home
    hub_and_home.hub.stop_server("ada")
    until(lambda: not hub_and_home.pods(), 60, "its pod is gone")
    until(lambda: hub_and_home.hub.server("ada") is None, 30, "the server has stopped")


def test_a_home_is_kept_when_the_pod_is_killed_and_another_slice_is_chosen(place: ClusterPlace) -> None:
    hub = place.hub
    hub.spawn("ada", {"offer": SMALL})
    hub.wait_ready("ada", seconds=SECONDS)
    written = _ask(place, "PUT", "api/contents/thesis.txt", {"type": "file", "format": "text", "content": "42 pages"})
    assert written["size"] == len("42 pages")

    name = place.pods()["ada"]["metadata"]["name"]
    place.control_plane.call("DELETE", f"/api/v1/namespaces/{place.namespace}/pods/{name}?gracePeriodSeconds=0")
    until(lambda: hub.server("ada") is None, 90, "the hub has not seen that the pod is gone")
    place.until_offered(SMALL, 5)
    hub.spawn("ada", {"offer": LARGE})
    hub.wait_ready("ada", seconds=SECONDS)

    assert place.limits("ada") == {f"nvidia.com/{LARGE}": "1"}
    assert _ask(place, "GET", "api/contents/thesis.txt?content=1")["content"] == "42 pages"


def test_without_the_driver_in_its_container_jupyterlab_works_and_the_panel_says_so(place: ClusterPlace) -> None:
    place.hub.spawn("ada", {"offer": SMALL})
    place.hub.wait_ready("ada", seconds=SECONDS)

    def told() -> dict[str, Any] | None:
        snapshot = _ask(place, "GET", "gpu/snapshot")
        return None if snapshot["state"] == "starting" else snapshot

    snapshot = until(told, 20, "the panel never knows")
    assert snapshot["state"] == "no-library"
    assert "driver" in snapshot["reason"]["message"]
    kernel = _ask(place, "POST", "api/kernels", {})
    assert kernel["execution_state"] in ("starting", "idle", "busy")


def test_a_pod_that_the_kubelet_rejects_is_made_once_more_and_its_server_answers(
    place: ClusterPlace, real_node: RealNode
) -> None:
    """T19: the device plugin refuses the first allocation."""
    until(lambda: (place.offers().get(LARGE) or {}).get("free") == 1, 30, "the slice is offered")
    real_node.refuse_next("the slice is busy")
    place.hub.spawn("ada", {"offer": LARGE})
    said = [str(event) for event in place.hub.progress("ada", seconds=90)]
    assert place.hub.ready("ada"), said
    assert any("could not hand out the GPU" in text for text in said), said
    assert "the slice is busy" in place.hub.log()
    assert place.limits("ada") == {f"nvidia.com/{LARGE}": "1"}
    assert _ask(place, "GET", "api/status")["kernels"] == 0


def _ask(place: ClusterPlace, method: str, path: str, body: object = None) -> dict[str, Any]:
    """A request to ada's server, as ada, through the proxy."""
    answer = requests.request(
        method,
        f"{place.hub.url}/user/ada/{path}",
        json=body,
        headers={"Authorization": f"token {place.hub.token_of('ada')}"},
        timeout=patient(30),
    )
    assert answer.ok, answer.text
    found: dict[str, Any] = answer.json()
    return found
