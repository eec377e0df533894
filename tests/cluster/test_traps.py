"""The traps of a stock hub on Kubernetes, passed with ``GpuKubeSpawner`` on a real control plane.

The same on the stock system: ``tests/contrast/test_stock_kubespawner.py``, under the same T numbers. The cluster has
one device, which somebody outside the hub holds, so whoever asks for it waits; T19 is with the real kubelet
(``on_a_node/test_one_server.py``).
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.core.offers.pod_request import LEASE_LABEL
from tests.cluster.control_plane import ControlPlane
from tests.cluster.image import JUPYTERLAB
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.one_device import OFFER, OneDevice, answering, one_device, write_event
from tests.cluster.place import ClusterPlace
from tests.cluster.played_nodes import PlayedNodes
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(patient(300))]

START_SECONDS = 6
CHART = f"""
# as zero-to-jupyterhub's jupyterhub_config.py sets them from its values, whether an admin wrote any or not
c.KubeSpawner.profile_list = []
c.KubeSpawner.environment = {{"COURSE": "ml", "CUDA_VISIBLE_DEVICES": "0"}}
c.KubeSpawner.init_containers = [{{
    "name": "block-cloud-metadata", "image": "played",
    "securityContext": {{
        "allowPrivilegeEscalation": False,
        "capabilities": {{"drop": ["ALL"]}},
        "runAsNonRoot": True,
        "seccompProfile": {{"type": "RuntimeDefault"}},
    }},
}}]
c.KubeSpawner.start_timeout = {START_SECONDS}
c.Spawner.consecutive_failure_limit = 5
c.GpuOffers.titles = {{"{OFFER}": "Small <b>GPU</b>"}}
"""
PROFILES = """
import json
from pathlib import Path
c.KubeSpawner.profile_list = lambda spawner: json.loads(Path("profiles.json").read_text())
c.Spawner.consecutive_failure_limit = 5
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 3}
"""
CPU = {"display_name": "Plain", "slug": "plain"}
IMAGES = {
    "display_name": "Images",
    "slug": "images",
    "profile_options": {
        "image": {
            "display_name": "Image",
            "choices": {"lab": {"display_name": "Lab", "kubespawner_override": {"image": JUPYTERLAB}}},
            "unlisted_choice": {
                "enabled": True,
                "display_name": "Another",
                "validation_regex": "^jupyter/.+:.+",
                "kubespawner_override": {"image": "{value}"},
            },
        }
    },
}
HELD = {"tests/holds": "starting"}
"""Annotation of a pod that a played node never starts."""
SHORT = {
    "display_name": "Short",
    "slug": "short",
    "kubespawner_override": {"start_timeout": 2, "extra_annotations": HELD},
}

BESIDE = {"labelSelector": {"matchLabels": {"beside": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}
NOWHERE = {"display_name": "Nowhere", "slug": "nowhere", "kubespawner_override": {"pod_affinity_required": [BESIDE]}}
"""A demand that is not looked at before the pod is made: what a pod asks of its node is."""


@pytest.fixture(scope="module")
def device(control_plane: ControlPlane, played_nodes: PlayedNodes) -> Iterator[OneDevice]:
    with one_device(control_plane, played_nodes) as device:
        yield device


@contextmanager
def a_place(
    control_plane: ControlPlane, folder: Path, config: str, *, profiles: object = None
) -> Iterator[ClusterPlace]:
    """A hub in a namespace of its own; its servers answer."""
    with (
        fresh_namespace(control_plane, f"t-{uuid.uuid4().hex[:8]}") as name,
        answering() as port,
    ):
        if profiles is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "profiles.json").write_text(json.dumps(profiles))
        place = ClusterPlace(control_plane, name, folder, config=f"{config}\nc.KubeSpawner.port = {port}")
        with place.open():
            yield place


@pytest.fixture(scope="module")
def chart(
    control_plane: ControlPlane, device: OneDevice, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterPlace]:
    """A hub with the chart's settings, written by hand."""
    with a_place(control_plane, tmp_path_factory.mktemp("chart"), CHART) as place:
        place.until_offered(OFFER, 0)
        yield place


@pytest.fixture(scope="module")
def profiles(
    control_plane: ControlPlane, device: OneDevice, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterPlace]:
    """A hub with profiles, which a test may change."""
    known = [CPU, IMAGES, SHORT, NOWHERE]
    with a_place(control_plane, tmp_path_factory.mktemp("profiles"), PROFILES, profiles=known) as place:
        place.until_offered(OFFER, 0)
        yield place


@contextmanager
def waiting(place: ClusterPlace, *users: str, server: str = "") -> Iterator[None]:
    """These people stand in line, in this order, and leave it again."""
    place.hub.add_users(*users)
    for user in users:
        join(place, user, {"offer": OFFER}, server)
    try:
        yield
    finally:
        for user in users:
            place.hub.stop_server(user, server)
        until(lambda: not set(users) & set(place.waiting()), 30, lambda: f"the line is empty: {place.line()}")


def join(place: ClusterPlace, user: str, options: dict[str, Any], server: str = "") -> None:
    """Ask for the device that somebody else holds, and stand in line for it."""
    assert place.hub.spawn(user, options, server).status_code == 202
    until(lambda: user in place.waiting(), 30, f"{user} stands in line")


def pod_of(place: ClusterPlace, user: str) -> dict[str, Any] | None:
    return place.pods().get(user)


def another(pod: dict[str, Any] | None, before: dict[str, Any]) -> dict[str, Any] | None:
    """The pod, where it is not the one that was there before."""
    return pod if pod and pod["metadata"]["uid"] != before["metadata"]["uid"] else None


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    container = next(one for one in pod["spec"]["containers"] if one["name"] == "notebook")
    return {one["name"]: one.get("value") for one in container["env"]}


def page_of(place: ClusterPlace, user: str, path: str) -> str:
    return str(place.hub.login(user).get(f"{place.hub.url}/hub/{path}").text)


# ------------------------------------------------------------------ waiting


@pytest.mark.hub
def test_five_waits_longer_than_the_time_of_a_start_leave_the_hub_alive(chart: ClusterPlace) -> None:
    """T1: and T10: nobody's wait ends, though `start_timeout` is long over."""
    users = [f"t1-{number}" for number in range(5)]
    with waiting(chart, *users):
        began = time.monotonic()
        until(lambda: time.monotonic() - began > START_SECONDS + 2, what="longer than a start may take")
        assert [chart.hub.pending(user) for user in users] == ["spawn"] * 5
        assert chart.waiting() == users
        assert chart.hub.running and "Aborting" not in chart.hub.log()
        assert not set(users) & set(chart.pods()), "who waits has no pod"


@pytest.mark.hub
def test_a_cpu_server_starts_while_others_wait(chart: ClusterPlace) -> None:
    """T2: waiting servers fill no limit: none is set, where the admin did not set one."""
    with waiting(chart, "t2-0", "t2-1", "t2-2"):
        chart.hub.add_users("t2-cpu")
        assert chart.hub.spawn("t2-cpu", {"offer": "cpu"}).status_code in (201, 202)
        chart.hub.wait_ready("t2-cpu")
        assert chart.waiting() == ["t2-0", "t2-1", "t2-2"]


@pytest.mark.hub
def test_waiters_stand_as_before_after_the_hub_was_killed_and_after_it_was_stopped(
    control_plane: ControlPlane, device: OneDevice, tmp_path: Path
) -> None:
    """T3, T4: kill -9, SIGTERM and SIGINT with two in line, and kill -9 again when the first one's pod starts."""
    config = f"c.KubeSpawner.extra_annotations = {HELD}\nc.JupyterHub.cleanup_servers = True"
    with a_place(control_plane, tmp_path / "restarts", config) as place:
        place.until_offered(OFFER, 0)
        with waiting(place, "ada", "ben"):
            for end in (place.hub.kill, place.hub.terminate, place.hub.interrupt):
                end()
                place.hub.start()
                place.wait_service()
                until(lambda: [place.hub.pending(user) for user in ("ada", "ben")] == ["spawn"] * 2, 60, "both start")
                assert place.waiting() == ["ada", "ben"]
                first = next(place.hub.progress("ada"))
                assert not first.get("failed"), "whoever looks on goes on looking on"
            device.let_go()
            try:
                pod = until(lambda: pod_of(place, "ada"), 30, "the first one's pod is made")
                place.hub.kill()
                place.hub.start()
                place.wait_service()
                again = until(lambda: another(pod_of(place, "ada"), pod), 60, "the pod is made anew")
                assert again["metadata"]["labels"][LEASE_LABEL] == pod["metadata"]["labels"][LEASE_LABEL]
                assert place.hub.pending("ada") == "spawn"
                assert place.waiting() == ["ben"], "nobody else was let in meanwhile"
            finally:
                place.hub.stop_server("ben")
                place.hub.stop_server("ada")
                until(lambda: not place.pods(), 60, "the device is free")
                device.hold()


# ------------------------------------------------------------------ what is said


@pytest.mark.hub
def test_the_page_of_a_refused_start_says_why(chart: ClusterPlace) -> None:
    """T5."""
    chart.hub.add_users("t5")
    chart.hub.spawn("t5", {"offer": "mig-9g.99gb"})
    until(lambda: not chart.hub.pending("t5"))
    page = page_of(chart, "t5", "spawn-pending/t5")
    assert "There is no offer" in page and "here. Offers: cpu, " in page


@pytest.mark.hub
def test_five_unknown_choices_by_rest_and_by_a_link_are_refusals(profiles: ClusterPlace) -> None:
    """T6: with a limit of five failures in a row."""
    profiles.hub.add_users("t6")
    wrong: list[dict[str, Any]] = [
        {"profile": "zzz"},
        {"profile": "images", "image": "zzz"},
        {"profile": "images", "zzz": "x"},
        {"profile": "plain", "image": "lab"},
        {"profile": "plain", "offer": "mig-9g.99gb"},
        {"profile": "plain", "offer": ["x"]},
    ]
    for options in wrong:
        answer = profiles.hub.spawn("t6", options)
        assert answer.status_code in (400, 409), (options, answer.text)
        assert answer.json()["message"]
    page = page_of(profiles, "t6", "spawn?opt-profile=zzz")
    assert "there is no profile" in page and "There are: plain, images, short, nowhere." in page
    assert profiles.hub.running and "Aborting" not in profiles.hub.log()


@pytest.mark.hub
def test_of_a_saved_choice_that_is_gone_exactly_one_is_selected(profiles: ClusterPlace) -> None:
    """T7."""
    profiles.hub.add_users("t7")
    file = profiles.hub.folder / "profiles.json"
    before = file.read_text()
    profiles.hub.spawn("t7", {"profile": "images", "offer": "cpu"})
    profiles.hub.wait_ready("t7")
    profiles.hub.stop_server("t7")
    until(lambda: profiles.hub.server("t7") is None)
    try:
        file.write_text(json.dumps([CPU, SHORT, NOWHERE]))
        page = page_of(profiles, "t7", "spawn")
    finally:
        file.write_text(before)
    radios = re.findall(r"<input type=\"radio\"[^>]*>", page)
    chosen = [one for one in radios if re.search(r"\bchecked\b", one)]
    assert len([one for one in chosen if 'name="profile"' in one]) == 1
    assert len([one for one in chosen if 'name="offer"' in one]) == 1


@pytest.mark.hub
def test_titles_and_names_with_html_in_them_stay_text(chart: ClusterPlace) -> None:
    """T8: in the form and on the waiting page."""
    user = "t8<i>x"
    chart.hub.add_users(user)
    page = page_of(chart, user, "spawn")
    form = page[page.index('id="gpu-form"') : page.index("</form>")]
    assert "Small &lt;b&gt;GPU&lt;/b&gt;" in form and "<b>GPU" not in form
    assert "<i>x" not in form
    with waiting(chart, "t8"):
        pending = page_of(chart, "t8", "spawn-pending/t8")
        assert "Small &lt;b&gt;GPU&lt;/b&gt;" in pending and "<b>GPU" not in pending


@pytest.mark.hub
def test_leaving_the_line_with_a_named_server_leaves_the_default_one_alone(chart: ClusterPlace) -> None:
    """T9."""
    chart.hub.add_users("t9")
    chart.hub.spawn("t9", {"offer": "cpu"})
    chart.hub.wait_ready("t9")
    with waiting(chart, "t9", server="exam"):
        page = page_of(chart, "t9", "spawn-pending/t9/exam")
        assert 'data-server="exam"' in page
        assert 'id="stop-server-btn"' not in page, "JupyterHub's own button stops the default server"
    assert chart.hub.ready("t9")


@pytest.mark.hub
def test_the_time_of_a_start_in_a_profile_counts_from_the_placement_and_ends_in_words(
    profiles: ClusterPlace, device: OneDevice
) -> None:
    """T10: two seconds in the profile, and a wait that is longer; then a pod that its machine does not start."""
    profiles.hub.add_users("t10")
    join(profiles, "t10", {"profile": "short", "offer": OFFER})
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 4, what="longer than the profile's limit")
    assert profiles.waiting() == ["t10"]
    device.let_go()
    try:
        last = list(profiles.hub.progress("t10", seconds=30))[-1]
        assert last["failed"]
        assert "Your server did not start within 2 s" in last["message"]
        until(lambda: not pod_of(profiles, "t10"), 30, "its pod is deleted")
    finally:
        device.hold()


@pytest.mark.hub
def test_offers_are_found_though_the_chart_sets_an_empty_list_of_profiles(chart: ClusterPlace) -> None:
    """T11."""
    chart.hub.add_users("t11")
    form = page_of(chart, "t11", "spawn")
    assert f'value="{OFFER}"' in form and 'value="cpu"' in form
    assert "kubespawner-profiles-list" not in form


@pytest.mark.hub
def test_a_free_text_with_a_second_line_is_refused(profiles: ClusterPlace) -> None:
    """T12."""
    profiles.hub.add_users("t12")
    evil = {"profile": "images", "image--unlisted-choice": "jupyter/x:y\nevil", "offer": "cpu"}
    assert profiles.hub.spawn("t12", evil).status_code == 400
    assert "t12" not in profiles.pods()
    profiles.hub.spawn("t12", {**evil, "image--unlisted-choice": "jupyter/x:y"})
    until(lambda: "t12" in profiles.pods())
    assert profiles.pods()["t12"]["spec"]["containers"][0]["image"] == "jupyter/x:y"


# ------------------------------------------------------------------ the pod


@pytest.mark.hub
def test_neither_an_earlier_pods_events_nor_the_first_note_of_a_series_is_told_for_what_is_so_now(
    profiles: ClusterPlace, control_plane: ControlPlane, device: OneDevice
) -> None:
    """T20: events are those of this very pod, and why it waits is what its condition says."""
    profiles.hub.add_users("t20")
    write_event(control_plane, profiles.namespace, "jupyter-t20", "0/9 nodes are available: an earlier pod.")
    join(profiles, "t20", {"profile": "nowhere", "offer": OFFER})
    device.let_go()
    try:
        pod = until(lambda: pod_of(profiles, "t20"), 30, "its pod is made")
        first = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
        write_event(control_plane, profiles.namespace, "jupyter-t20", first, pod["metadata"]["uid"])
        seen = []
        for event in profiles.hub.progress("t20", seconds=30):
            seen.append(event)
            if (event.get("gpu") or {}).get("why", {}).get("reason") == "unscheduled":
                break
        assert "No machine" in seen[-1]["gpu"]["reason"], seen[-1]
        assert not any("earlier pod" in str(event) or "PersistentVolume" in str(event) for event in seen)
        assert "didn't match pod affinity rules" in profiles.hub.log()
    finally:
        profiles.hub.stop_server("t20")
        until(lambda: not pod_of(profiles, "t20"), 30, "the device is free")
        device.hold()


@pytest.mark.hub
def test_the_charts_environment_and_init_containers_stay_and_the_leases_variables_are_added(
    chart: ClusterPlace, control_plane: ControlPlane, device: OneDevice
) -> None:
    """T21."""
    chart.hub.add_users("t21", "t21-cpu")
    chart.hub.spawn("t21-cpu", {"offer": "cpu"})
    with waiting(chart, "t21"):
        device.let_go()
        try:
            pods = until(lambda: {"t21", "t21-cpu"} <= (found := chart.pods()).keys() and found, 30, "both have pods")
            for user in ("t21", "t21-cpu"):
                pod = pods[user]
                assert environment(pod)["COURSE"] == "ml"
                assert [one["name"] for one in pod["spec"]["initContainers"]] == ["block-cloud-metadata"]
            assert environment(pods["t21"])["JUPYTERHUB_GPU_LEASE"] == pods["t21"]["metadata"]["labels"][LEASE_LABEL]
            assert "CUDA_VISIBLE_DEVICES" not in environment(pods["t21"])
            assert environment(pods["t21-cpu"])["CUDA_VISIBLE_DEVICES"] == "void"
        finally:
            chart.hub.stop_server("t21")
            until(lambda: "t21" not in chart.pods(), 30, "the device is free")
            device.hold()
