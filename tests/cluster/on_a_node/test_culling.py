"""The end of the loop on a real kubelet, in a browser: idle, warned, the notebook saved, stopped; the next one starts.

What a GPU does Debian's Prometheus says, of an exporter that names the real pods as dcgm-exporter does; no container
has NVIDIA's driver. One server has our extension switched off, as with an image that lacks it: it is judged by the same
figures. The time is the real one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import requests
from playwright.sync_api import expect

from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.on_a_node.homes import STORAGE, home_of
from tests.cluster.place import ClusterPlace
from tests.cluster.real_node import RealNode
from tests.fakes.real_prometheus import Exporter, RealPrometheus
from tests.hubs import until
from tests.loop.place import Person, browsers
from tests.loop.test_countdown import notebook
from tests.patience import patient

pytestmark = [pytest.mark.needs("real-node", "browser", "prometheus"), pytest.mark.timeout(patient(600))]

SMALL, LARGE = "mig-1g.5gb", "mig-2g.10gb"
PEOPLE = {"ada": LARGE, "busy": SMALL, "bare": SMALL}
SECONDS = patient(180)
CULLING = f"""
c.GpuCulling.enabled = True
c.GpuCulling.idle_minutes = 1
c.GpuCulling.warn_minutes = 1
c.GpuCulling.unopened_minutes = None
c.GpuCulling.grace_minutes = 0
c.GpuCulling.lifetime_hours = 0.5
c.Spawner.http_timeout = {SECONDS:.0f}
c.Spawner.start_timeout = {SECONDS:.0f}

def without_our_extension(spawner):
    if spawner.user.name == "bare":
        spawner.args = ["--ServerApp.jpserver_extensions={{'hub_extensions.server_extension': False}}"]

c.Spawner.pre_spawn_hook = without_our_extension
"""


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    made = Exporter("lab", since_4_9=True)
    yield made
    made.stop()


@pytest.fixture
def prometheus(tmp_path: Path, exporter: Exporter) -> Iterator[RealPrometheus]:
    made = RealPrometheus(tmp_path / "prometheus", exporter)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def place(
    control_plane: ControlPlane, real_node: RealNode, prometheus: RealPrometheus, tmp_path: Path
) -> Iterator[ClusterPlace]:
    config = f"{STORAGE}{CULLING}\nc.GpuService.prometheus_url = {prometheus.url!r}\n"
    with fresh_namespace(control_plane, f"culling-{os.urandom(2).hex()}") as namespace:
        volumes = [home_of(user, tmp_path / f"home-of-{user}", namespace) for user in (*PEOPLE, "ben")]
        for volume in volumes:
            control_plane.call("POST", "/api/v1/persistentvolumes", volume)
        try:
            place = ClusterPlace(control_plane, namespace, tmp_path / "hub", address=real_node.address, config=config)
            with place.open():
                place.until_offered(SMALL, 5, 30)
                yield place
        finally:
            for volume in volumes:
                control_plane.call("DELETE", f"/api/v1/persistentvolumes/{volume['metadata']['name']}")


def holders(place: ClusterPlace) -> set[str]:
    return {lease["user"] for lease in place.as_admin("api/leases")}


def ended(place: ClusterPlace) -> dict[str, dict[str, Any]]:
    """user -> the record of a use that is over."""
    page = cast("dict[str, Any]", place.as_admin("api/usage"))
    return {use["user"]: use for use in page["uses"]}


def test_the_idle_are_warned_and_stopped_by_prometheus_and_the_next_in_line_starts(
    place: ClusterPlace, exporter: Exporter, chromium_path: str, tmp_path: Path
) -> None:
    work = tmp_path / "home-of-ada" / "work.ipynb"
    notebook(work)
    work.chmod(0o666)
    place.hub.add_users("bare")
    with browsers(chromium_path) as browser:
        ada, ben, busy = (Person(browser, place.hub.url, name) for name in ("ada", "ben", "busy"))
        ada.take(LARGE)
        busy.take(SMALL)
        place.hub.spawn("bare", {"offer": SMALL})
        for person in (ada, busy):
            person.is_in_lab(SECONDS)
            expect(person.page.locator(".jp-LabShell")).to_be_visible(timeout=1000 * SECONDS)
        busy.page.goto("about:blank")
        ada.page.goto(f"{place.hub.url}/user/ada/lab/tree/work.ipynb")
        expect(ada.page.locator(".jp-Notebook .jp-Cell .cm-content").first).to_be_visible(timeout=1000 * SECONDS)
        place.hub.wait_ready("bare", seconds=SECONDS)
        bare = requests.get(
            f"{place.hub.url}/user/bare/gpu/snapshot",
            headers={"Authorization": f"token {place.hub.token_of('bare')}"},
            timeout=patient(30),
        )
        assert bare.status_code == 404, "it has no extension of ours"
        for number, (user, pod) in enumerate(place.pods().items()):
            profile = PEOPLE[user].removeprefix("mig-")
            exporter.says(
                pod["metadata"]["name"],
                0.6 if user == "busy" else 0.0,
                place.namespace,
                GPU_I_ID=str(number + 7),
                GPU_I_PROFILE=profile,
            )
        ben.take(LARGE)
        ben.waits("1st")

        expect(ada.page.locator(".Toastify").get_by_role("button", name="Keep")).to_be_visible(timeout=patient(150_000))
        ada.page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
        ada.page.keyboard.press("Control+A")
        ada.page.keyboard.type("typed_but_never_saved = 1")

        ben.is_in_lab(SECONDS)
        assert "typed_but_never_saved" in work.read_text(), "saved before the stop"
        until(lambda: {"ada", "bare"} <= set(ended(place)), 150, lambda: f"{ended(place)}, {holders(place)}")
        for user in ("ada", "bare"):
            record = ended(place)[user]
            assert (record["end"], record["node"]) == ("idle", "lab"), record
            assert record["warnings"] == 1 and record["highest_use_percent"] == 0.0, record
        assert holders(place) == {"busy", "ben"}, ended(place)
        assert set(place.pods()) == {"busy", "ben"}
        ada.page.goto(f"{place.hub.url}/hub/spawn/ada")
        expect(ada.page.locator("body")).to_contain_text("was stopped")
        expect(ada.page.locator("body")).to_contain_text("Your files are kept")
        for person in (ada, ben, busy):
            person.leave()
