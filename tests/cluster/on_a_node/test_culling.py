"""The end of the loop on a real kubelet, in a browser: idle, warned, the notebook saved, stopped; the next one starts.

What a GPU does Debian's Prometheus says, of an exporter that names the real pods as dcgm-exporter does; no container
has NVIDIA's driver. One server has our extension switched off, as with an image that lacks it: it is judged by the same
figures. Two share a time-sliced card, of which one works: the exporter names both with the whole card's use. Prometheus
is away for an hour; that hour is leapt over, all other time is the real one.
"""

from __future__ import annotations

import os
import sqlite3
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
from tests.loop.place import LEAPING, Person, browsers
from tests.loop.test_countdown import notebook
from tests.patience import patient

pytestmark = [pytest.mark.needs("real-node", "browser", "prometheus"), pytest.mark.timeout(patient(600))]

SMALL, LARGE, SHARED = "mig-1g.5gb", "mig-2g.10gb", "gpu.shared"
PEOPLE = {"ada": LARGE, "busy": SMALL, "bare": SMALL, "near": SHARED, "far": SHARED}
WORK = {"busy": 0.6, "near": 0.9, "far": 0.9}
"""What the exporter says of their devices; of the others nothing is done. Far's neighbour is at work, not far."""
SECONDS = patient(180)
CULLING = f"""
{LEAPING}
c.GpuCulling.enabled = True
c.GpuCulling.idle_minutes = 1
c.GpuCulling.warn_minutes = 1
c.GpuCulling.unopened_minutes = 30
c.GpuCulling.grace_minutes = 10
c.GpuCulling.lifetime_hours = 4
c.Spawner.http_timeout = {SECONDS:.0f}
c.Spawner.start_timeout = {SECONDS:.0f}

def without_our_extension(spawner):
    if spawner.user.name in ("bare", "near"):
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


def measured(place: ClusterPlace) -> dict[str, float]:
    """user -> use of the GPU, of those of whom it is known."""
    leases = cast("list[dict[str, Any]]", place.as_admin("api/leases"))
    return {lease["user"]: lease["last_use_percent"] for lease in leases if lease["last_use_percent"] is not None}


def remembered(place: ClusterPlace, fact: str) -> dict[str, str]:
    """user -> since when, of those of whose servers the service remembers this: ``warned``, ``opened``."""
    with sqlite3.connect(f"file:{place.state}/gpu.sqlite?mode=ro", uri=True) as store:
        found = store.execute(f"SELECT user, {fact} FROM gpu_server_facts WHERE {fact} IS NOT NULL").fetchall()
    return dict(found)


def ended(place: ClusterPlace) -> dict[str, dict[str, Any]]:
    """user -> the record of a use that is over."""
    page = cast("dict[str, Any]", place.as_admin("api/usage"))
    return {use["user"]: use for use in page["uses"]}


def says_what_all_do(exporter: Exporter, place: ClusterPlace) -> None:
    """Of each pod, as dcgm-exporter does: a shared card's use is said of everybody on it."""
    for number, (user, pod) in enumerate(sorted(place.pods().items())):
        offer = PEOPLE[user]
        mig = {"GPU_I_ID": str(number + 7), "GPU_I_PROFILE": offer.removeprefix("mig-")}
        device = {"UUID": "GPU-2", "vgpu": str(number)} if offer == SHARED else mig
        exporter.says(pod["metadata"]["name"], WORK.get(user, 0.0), place.namespace, **device)


def test_the_idle_are_warned_and_stopped_by_prometheus_and_the_next_in_line_starts(
    place: ClusterPlace, exporter: Exporter, prometheus: RealPrometheus, chromium_path: str, tmp_path: Path
) -> None:
    work = tmp_path / "home-of-ada" / "work.ipynb"
    notebook(work)
    work.chmod(0o666)
    place.hub.add_users("bare", "near", "far")
    place.hub.spawn("bare", {"offer": SMALL})
    place.hub.wait_ready("bare", seconds=SECONDS)
    says_what_all_do(exporter, place)
    until(lambda: measured(place) == {"bare": 0.0}, 60, lambda: f"{measured(place)}")
    prometheus.stop()
    for user in ("near", "far"):
        place.hub.spawn(user, {"offer": SHARED})
    with browsers(chromium_path) as browser:
        ada, ben, busy = (Person(browser, place.hub.url, name) for name in ("ada", "ben", "busy"))
        ada.take(LARGE)
        busy.take(SMALL)
        for person in (ada, busy):
            person.is_in_lab(SECONDS)
            expect(person.page.locator(".jp-LabShell")).to_be_visible(timeout=1000 * SECONDS)
        until(lambda: {"ada", "busy"} <= set(remembered(place, "opened")), 60, "their pages were reported")
        busy.page.goto("about:blank")
        ada.page.goto(f"{place.hub.url}/user/ada/lab/tree/work.ipynb")
        expect(ada.page.locator(".jp-Notebook .jp-Cell .cm-content").first).to_be_visible(timeout=1000 * SECONDS)
        for user in ("near", "far"):
            place.hub.wait_ready(user, seconds=SECONDS)
        bare = requests.get(
            f"{place.hub.url}/user/bare/gpu/snapshot",
            headers={"Authorization": f"token {place.hub.token_of('bare')}"},
            timeout=patient(30),
        )
        assert bare.status_code == 404, "it has no extension of ours"

        until(lambda: measured(place) == {}, 90, lambda: f"the last figure gets old: {measured(place)}")
        known = "of bare it is noted that nobody knows"
        until(lambda: "bare" in remembered(place, "unknown_since") or not remembered(place, "idle_since"), 60, known)
        place.leap()
        until(lambda: remembered(place, "warned") != {}, 60, "all were judged after the hour")
        assert set(remembered(place, "warned")) == {"far"}, "nobody opened it; of nobody it is known that he is idle"
        assert set(place.pods()) == set(PEOPLE) and ended(place) == {}
        says_what_all_do(exporter, place)
        prometheus.start()
        ben.take(LARGE)
        ben.waits("1st")

        expect(ada.page.locator(".Toastify").get_by_role("button", name="Keep")).to_be_visible(timeout=patient(150_000))
        ada.page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
        ada.page.keyboard.press("Control+A")
        ada.page.keyboard.type("typed_but_never_saved = 1")

        ben.is_in_lab(SECONDS)
        assert "typed_but_never_saved" in work.read_text(), "saved before the stop"
        stopped = {"ada": "idle", "bare": "idle", "far": "unopened"}
        until(lambda: set(stopped) <= set(ended(place)), 150, lambda: f"{ended(place)}, {holders(place)}")
        for user, end in stopped.items():
            record = ended(place)[user]
            assert (record["end"], record["node"], record["warnings"]) == (end, "lab", 1), record
            assert record["highest_use_percent"] == (None if user == "far" else 0.0), "a card's use is nobody's own"
        assert holders(place) == {"busy", "near", "ben"}, ended(place)
        assert set(place.pods()) == {"busy", "near", "ben"}
        assert remembered(place, "warned") == {}, "near is not idle because far is"
        ada.page.goto(f"{place.hub.url}/hub/spawn/ada")
        expect(ada.page.locator("body")).to_contain_text("was stopped")
        expect(ada.page.locator("body")).to_contain_text("Your files are kept")
        for person in (ada, ben, busy):
            person.leave()
