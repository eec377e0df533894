"""Eight people on one card of a real node: six are in JupyterLab on six devices, two wait in line, and somebody stops.

Everything is real but the card: hub, service, API server, scheduler, kubelet, containers, browsers. Pod Security
``restricted`` is enforced on the servers' namespace, and the hub has the rights of our manifests and no others.
Takes pictures into the folder ``PICTURES`` names, else into a temporary one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.stream import stream
from playwright.sync_api import Browser, expect

from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.place import ClusterPlace
from tests.cluster.real_node import RealNode
from tests.hubs import USERS, until
from tests.loop.place import Person, browsers
from tests.patience import patient

pytestmark = [pytest.mark.needs("real-node", "browser"), pytest.mark.timeout(patient(600))]

OFFERS = ["mig-1g.5gb"] * 5 + ["mig-2g.10gb"] + ["mig-1g.5gb"] * 2
SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
SECONDS = patient(180)
"""Six JupyterLabs that start at once on two cores take their time."""


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    with browsers(chromium_path) as browser:
        yield browser


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get("PICTURES")
    folder = Path(named) if named else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def place(
    control_plane: ControlPlane, real_node: RealNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterPlace]:
    config = f"""
c.GpuCulling.enabled = True
c.Spawner.http_timeout = {SECONDS:.0f}
c.Spawner.start_timeout = {SECONDS:.0f}
"""
    with fresh_namespace(control_plane, "eight-users") as namespace:
        folder = tmp_path_factory.mktemp("eight")
        place = ClusterPlace(control_plane, namespace, folder, address=real_node.address, config=config)
        with place.open():
            place.until_offered("mig-1g.5gb", 5)
            yield place


def environ(place: ClusterPlace, user: str) -> dict[str, str]:
    """The environment of the first process of a server's container."""
    name = place.pods()[user]["metadata"]["name"]
    api = client.CoreV1Api(place.control_plane.client())
    text: str = stream(
        api.connect_get_namespaced_pod_exec,
        name,
        place.namespace,
        command=["sh", "-c", "tr '\\0' '\\n' < /proc/1/environ"],
        container="notebook",
        stderr=True,
        stdin=False,
        stdout=True,
        tty=False,
    )
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def test_eight_users_share_one_card_of_a_real_node(browser: Browser, place: ClusterPlace, pictures: Path) -> None:
    url, names = place.hub.url, USERS
    people = {name: Person(browser, url, name) for name in names}
    people["ada"].form()
    expect(people["ada"].page.locator("#spawn_form")).to_contain_text("5 of 5 free")
    expect(people["ada"].page.locator("#spawn_form")).to_contain_text("4.75 GiB")
    expect(people["ada"].page.locator("#spawn_form")).to_contain_text("14 SMs")
    people["ada"].page.screenshot(path=pictures / "cluster-form.png", full_page=True)

    for name, offer in list(zip(names, OFFERS, strict=True))[:6]:
        people[name].take(offer)
    for name in names[:6]:
        people[name].is_in_lab(SECONDS)
        if name != "ada":
            people[name].page.goto("about:blank")  # six JupyterLabs in one browser keep two cores from all else

    seen: dict[str, str] = {}
    for name, offer in list(zip(names, OFFERS, strict=True))[:6]:
        assert place.limits(name) == {SMALL if offer == "mig-1g.5gb" else LARGE: "1"}
        env = environ(place, name)
        devices = env["NVIDIA_VISIBLE_DEVICES"].split(",")
        assert len(devices) == 1 and devices[0].startswith("MIG-"), "exactly one device in the container"
        assert "CUDA_VISIBLE_DEVICES" not in env
        assert env["JUPYTERHUB_GPU_OFFER"] == offer
        seen[name] = devices[0]
    assert len(set(seen.values())) == 6, "six servers, six devices"
    labels = place.control_plane.call("GET", f"/api/v1/namespaces/{place.namespace}")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"

    seventh, eighth = people[names[6]], people[names[7]]
    for person, at in ((seventh, "1st"), (eighth, "2nd")):
        person.form()
        expect(person.page.locator("#spawn_form")).to_contain_text(re.compile("full[ ,]"))
        person.page.check('input[type=radio][value="mig-1g.5gb"]')
        expect(person.page.locator("#spawn_form button[type=submit]")).to_have_text(re.compile("Join the line"))
        person.page.click("#spawn_form button[type=submit]")
        person.waits(at)
        expect(person.page.locator("#gpu-waiting")).to_contain_text("Small GPU: all 5 are in use")
        expect(person.page.locator("#gpu-waiting")).to_contain_text("wait at most")
    assert set(place.pods()) == set(names[:6]), "who waits has no pod"
    eighth.page.screenshot(path=pictures / "cluster-waiting.png")

    people["ada"].stop_at_home()
    seventh.is_in_lab(SECONDS)
    eighth.waits("1st")
    assert environ(place, names[6])["NVIDIA_VISIBLE_DEVICES"] == seen["ada"], "the device went on to the next in line"
    place.hub.add_users("root-admin")
    admin = Person(browser, url, "root-admin")
    admin.page.goto(f"{url}/services/gpu/admin/parts")
    expect(admin.page.locator("#cluster")).to_contain_text("lab")
    admin.page.screenshot(path=pictures / "cluster-admin.png", full_page=True)
    for person in (*people.values(), admin):
        person.leave()


def test_each_server_asks_for_one_gpu_and_the_line_is_in_the_service(place: ClusterPlace) -> None:
    leases: list[dict[str, Any]] = place.as_admin("api/leases")  # type: ignore[assignment]
    running = [lease for lease in leases if lease["state"] == "running"]
    assert len(running) == 6
    assert {lease["node"] for lease in running} == {"lab"}
    assert place.waiting() == [USERS[7]]
    until(lambda: len(place.pods()) == 6, 30, "one pod a lease")
