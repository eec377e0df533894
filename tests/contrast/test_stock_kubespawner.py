"""What a stock JupyterHub with a stock KubeSpawner does where GPUs are full: the faults ours has to pass, pinned.

A change here means that KubeSpawner or JupyterHub has been mended (then a workaround of ours can go) or has broken
elsewhere. On the same control plane as ours; the cluster's one device is held by somebody outside the hub, so that
whoever asks for it waits as a pod does. Ours beside each of them: ``tests/cluster/test_traps.py`` under the same T
number (T19: ``tests/cluster/on_a_node``); those that need no cluster: ``tests/spawner/test_kube.py`` and
``test_kubespawner_contract.py``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes_asyncio.config import kube_config
from kubespawner import KubeSpawner
from traitlets import default
from traitlets.config import Config

from tests.cluster.control_plane import ControlPlane
from tests.cluster.image import JUPYTERLAB
from tests.cluster.one_device import RESOURCE, OneDevice, answering, one_device, write_event, write_status
from tests.cluster.place import give_rights
from tests.cluster.played_nodes import PlayedNodes
from tests.hubs import Hub, until

JUPYTERHUB = int(version("jupyterhub").split(".")[0])
PRESELECTS = not version("jupyterhub-kubespawner").startswith("7.0")
on_a_cluster = pytest.mark.needs("cluster")

STOCK = """
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 0.2}}
c.KubeSpawner.namespace = {namespace!r}
c.KubeSpawner.image = {image!r}
c.KubeSpawner.cmd = ["jupyterhub-singleuser"]
c.KubeSpawner.port = {port}
c.KubeSpawner.uid = 1000
c.KubeSpawner.allow_privilege_escalation = False
c.KubeSpawner.container_security_context = {{
    "runAsNonRoot": True,
    "capabilities": {{"drop": ["ALL"]}},
    "seccompProfile": {{"type": "RuntimeDefault"}},
}}
c.KubeSpawner.delete_grace_period = 1
gpu = {{"extra_resource_limits": {{{resource!r}: "1"}}}}
c.KubeSpawner.profile_list = [
    {{"display_name": "GPU", "slug": "gpu", "kubespawner_override": gpu}},
    {{"display_name": "CPU", "slug": "cpu"}},
]
"""
NOTES = """
from kubespawner import KubeSpawner

class Notes(KubeSpawner):
    def note(self, text):
        with open("notes", "a") as file:
            file.write(f"{self.user.name} {text}\\n")

    def start(self):
        future = super().start()
        future.add_done_callback(lambda done: self.note("cancelled" if done.cancelled() else "over"))
        return future

    async def stop(self, now=False):
        self.note("stop")
        await super().stop(now=now)

c.JupyterHub.spawner_class = Notes
"""
REFUSES = """
from tornado import web
try:
    from jupyterhub.spawner import SpawnException
    refusal = SpawnException("all GPUs are busy", reason="gpu-busy")
except ImportError:
    refusal = web.HTTPError(400, "all GPUs are busy")

def refuse(spawner, pod):
    raise refusal

c.KubeSpawner.modify_pod_hook = refuse
"""
HELD = {"tests/holds": "starting"}
REJECTED = {
    "phase": "Failed",
    "reason": "UnexpectedAdmissionError",
    "message": "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = the slice is busy, which is "
    "unexpected",
}
"""As a kubelet of Kubernetes 1.36 writes it when the device plugin refuses."""


class StockHub(Hub):
    """A hub with the chart's rights and nothing of ours."""

    def __init__(self, control_plane: ControlPlane, namespace: str, folder: Path, more: str, port: int) -> None:
        self._cluster = control_plane
        self.namespace = namespace
        rights = give_rights(control_plane, namespace, ours=False)
        config = STOCK.format(namespace=namespace, image=JUPYTERLAB, port=port, resource=RESOURCE)
        super().__init__(folder / "hub", f"{config}\n{more}", env={"KUBECONFIG": str(rights)})

    def pods(self) -> dict[str, dict[str, Any]]:
        listed = self._cluster.call("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {pod["metadata"]["name"]: pod for pod in listed}

    def notes(self) -> list[str]:
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []


Start = Callable[[str], AbstractContextManager[StockHub]]


@pytest.fixture(scope="module")
def device(control_plane: ControlPlane, played_nodes: PlayedNodes) -> Iterator[OneDevice]:
    with one_device(control_plane, played_nodes) as device:
        yield device


@pytest.fixture
def a_hub(control_plane: ControlPlane, device: OneDevice, namespace: str, tmp_path: Path) -> Start:
    """``with a_hub("c.KubeSpawner…") as hub:``"""

    @contextmanager
    def start(more: str) -> Iterator[StockHub]:
        with answering() as port, StockHub(control_plane, namespace, tmp_path, more, port) as hub:
            hub.add_users("ada", "ben", "cem")
            yield hub

    return start


# ------------------------------------------------------------------ waiting


@on_a_cluster
def test_five_pods_without_a_place_end_a_stock_hub(a_hub: Start) -> None:
    """T1."""
    with a_hub("c.KubeSpawner.start_timeout = 2\nc.Spawner.consecutive_failure_limit = 5") as hub:
        names = [f"u{number}" for number in range(5)]
        hub.add_users(*names)
        for name in names:
            hub.spawn(name)
        until(lambda: not hub.running, 60, "the hub has ended")
        assert "Aborting due to 5 consecutive spawn failures" in hub.log()


@on_a_cluster
def test_pods_without_a_place_fill_the_limit_of_a_stock_hub_for_everybody(a_hub: Start) -> None:
    """T2."""
    with a_hub("c.JupyterHub.concurrent_spawn_limit = 2") as hub:
        hub.spawn("ada")
        hub.spawn("ben")
        assert hub.spawn("cem", {"profile": "cpu"}).status_code == 429


@on_a_cluster
def test_a_killed_stock_hub_takes_a_pod_without_a_place_for_a_server_and_deletes_it(a_hub: Start) -> None:
    """T3: the place is lost, and its waiting page has nobody to ask any more."""
    with a_hub("c.Spawner.http_timeout = 2") as hub:
        hub.spawn("ada")
        until(lambda: "jupyter-ada" in hub.pods(), what="the pod is made")
        hub.kill()
        hub.start()
        until(lambda: not hub.pods(), 60, "the pod is deleted")
        assert "ada does not appear to be running" in hub.log()
        until(lambda: hub.server("ada") is None, 20, "its stop is over")
        assert hub.api("GET", "users/ada/server/progress").status_code in (400, 404)


@on_a_cluster
def test_a_stop_and_the_end_of_a_stock_hub_look_the_same_to_a_waiting_pods_start(a_hub: Start) -> None:
    """T4: the same cancel, and after the end nobody waits any more."""
    with a_hub(NOTES) as hub:
        hub.spawn("ada")
        hub.spawn("ben")
        until(lambda: len(hub.pods()) == 2, what="both pods are made")
        hub.stop_server("ada")
        until(lambda: "ada cancelled" in hub.notes())
        hub.terminate()
        assert "ben cancelled" in hub.notes()
        hub.start()
        assert hub.pending("ben") == ""


# ------------------------------------------------------------------ what is said


@on_a_cluster
def test_a_stock_hub_shows_no_reason_of_a_refused_pod(a_hub: Start) -> None:
    """T5: "Spawn failed", and nothing after it."""
    with a_hub(REFUSES) as hub:
        hub.spawn("ada")
        until(lambda: not hub.pending("ada"))
        page = hub.login("ada").get(f"{hub.url}/hub/spawn-pending/ada").text
        assert "failed" in page
        assert "all GPUs are busy" not in page


@on_a_cluster
def test_five_unknown_profiles_by_rest_end_a_stock_hub(a_hub: Start) -> None:
    """T6: any user with a token can do that."""
    with a_hub("c.Spawner.consecutive_failure_limit = 5") as hub:
        token = hub.token_of("ada")
        for _ in range(5):
            # a start that is asked for while the last one is still failing is refused, and counts as no failure
            until(lambda: not hub.pending("ada"), what="the last start has failed")
            hub.spawn("ada", {"profile": "zzz"}, token=token)
        until(lambda: not hub.running, 30, "the hub has ended")


@on_a_cluster
def test_the_stock_waiting_page_of_a_named_servers_pod_stops_the_default_server(a_hub: Start) -> None:
    """T9: JupyterHub 5 has no button there at all."""
    with a_hub("") as hub:
        hub.spawn("ada", {"profile": "gpu"}, "exam")
        page = hub.login("ada").get(f"{hub.url}/hub/spawn-pending/ada/exam").text
        assert ("api.stop_server(user" in page) == (JUPYTERHUB >= 6)
        assert "stop_named_server" not in page


@on_a_cluster
def test_a_start_timeout_of_a_profile_is_read_too_late_and_the_wait_ends_without_a_word(a_hub: Start) -> None:
    """T10: an hour in the profile, 2 s in the configuration."""
    more = """
c.KubeSpawner.start_timeout = 2
c.KubeSpawner.profile_list[0]["kubespawner_override"]["start_timeout"] = 3600
"""
    with a_hub(more) as hub:
        hub.spawn("ada")
        last = list(hub.progress("ada"))[-1]
        assert last["message"] == "Spawn failed: "


@on_a_cluster
def test_a_pod_that_its_kubelet_rejected_is_waited_for_and_left(a_hub: Start, control_plane: ControlPlane) -> None:
    """T19: the whole of `start_timeout`, then not a word of why; and the failed pod stays.

    The whole of it is 90 to 110 %: the hub's `exponential_backoff` draws its end (`timeout_tolerance`).
    """
    with a_hub(f"c.KubeSpawner.start_timeout = 5\nc.KubeSpawner.extra_annotations = {HELD}") as hub:
        began = time.monotonic()
        hub.spawn("ada", {"profile": "cpu"})
        until(lambda: (hub.pods().get("jupyter-ada") or {"spec": {}})["spec"].get("nodeName"), what="it is placed")
        write_status(control_plane, hub.namespace, "jupyter-ada", REJECTED)
        seen = list(hub.progress("ada"))
        assert seen[-1]["failed"] and time.monotonic() - began >= 0.9 * 5
        assert "Allocate failed" not in str(seen)
        assert hub.pods()["jupyter-ada"]["status"]["phase"] == "Failed"


@on_a_cluster
def test_a_page_that_is_open_before_the_pod_shows_the_events_of_an_earlier_one(
    a_hub: Start, control_plane: ControlPlane
) -> None:
    """T20: after a start of the hub, events of the same name, whatever pod they were of; then the new ones are missed.

    KubeSpawner marks where the new events begin only when the pod is to be made, which a slow list of profiles delays.
    """
    slowly = """
import asyncio
profiles = list(c.KubeSpawner.profile_list)

async def slowly(spawner):
    await asyncio.sleep(3)
    return profiles

c.KubeSpawner.profile_list = slowly
c.KubeSpawner.start_timeout = 8
"""
    with a_hub(slowly) as hub:
        write_event(control_plane, hub.namespace, "jupyter-ada", "0/9 nodes are available: an earlier pod.")
        hub.spawn("ada")
        said = [event["message"] for event in hub.progress("ada", seconds=30)]
        assert any("an earlier pod" in text for text in said)
        assert not any(f"Insufficient {RESOURCE}" in text for text in said), "what is so now"


# ------------------------------------------------------------------ without a cluster


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[None]:
    """A cluster that is nowhere: whoever renders a form or reads a choice asks it nothing."""
    file = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {}}],
    }
    file.write_text(json.dumps(config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(file))
        yield


def a_spawner(kind: type[KubeSpawner] = KubeSpawner, options: Any = None, **sections: dict[str, Any]) -> Any:
    """A stock spawner (or a subclass of it) with this configuration, by section."""
    config = Config({section: Config(values) for section, values in sections.items()})
    user = SimpleNamespace(name="ada", id=1, url="/user/ada/", groups=[])
    orm = SimpleNamespace(name="", user_options={}, server=None, state={})
    spawner = kind(_mock=True, config=config, user=user, orm_spawner=orm)
    spawner.user_options = options or {}
    return spawner


TWO = [{"display_name": "One", "slug": "one"}, {"display_name": "Two <b>bold</b>", "slug": "two"}]
FREE_TEXT = {
    "display_name": "Images",
    "slug": "images",
    "profile_options": {
        "image": {
            "display_name": "Image",
            "unlisted_choice": {
                "enabled": True,
                "display_name": "Own",
                "validation_regex": "^jupyter/.+:.+",
                "kubespawner_override": {"image": "{value}"},
            },
        }
    },
}


@pytest.mark.hub
async def test_no_profile_is_selected_in_a_stock_form_after_the_saved_one_is_gone(nowhere: None) -> None:
    """T7: KubeSpawner 7.0 never selects the saved one."""
    html = await a_spawner(options={"profile": "gone"}, KubeSpawner={"profile_list": TWO}).get_options_form()
    radios = re.findall(r"<input type=\"radio\"[^>]*>", html)
    assert len(radios) == 2
    assert any(re.search(r"\bchecked\b", radio) for radio in radios) != PRESELECTS


@pytest.mark.hub
async def test_names_are_not_escaped_in_a_stock_form(nowhere: None) -> None:
    """T8."""
    html = await a_spawner(KubeSpawner={"profile_list": TWO}).get_options_form()
    assert "Two <b>bold</b>" in html


@pytest.mark.hub
async def test_profiles_of_a_subclass_are_never_shown_under_the_charts_empty_list(nowhere: None) -> None:
    """T11."""

    class WithOffers(KubeSpawner):  # type: ignore[misc]
        @default("profile_list")
        def _offers(self) -> list[dict[str, str]]:
            return TWO

    assert 'value="one"' in await a_spawner(WithOffers).get_options_form()
    assert not await a_spawner(WithOffers, KubeSpawner={"profile_list": []}).get_options_form()


@pytest.mark.hub
async def test_a_free_text_with_a_second_line_is_taken_by_stock(nowhere: None) -> None:
    """T12."""
    evil = "jupyter/x:y\nevil"
    options = {"profile": "images", "image--unlisted-choice": evil}
    spawner = a_spawner(options=options, KubeSpawner={"profile_list": [FREE_TEXT]})
    await spawner.load_user_options()
    assert spawner.image == evil


@pytest.mark.hub
async def test_what_is_set_on_a_spawners_own_section_replaces_the_charts_whole(nowhere: None) -> None:
    """T21: the user environment, the block of the metadata service and the profiles are gone."""

    class Own(KubeSpawner):  # type: ignore[misc]
        """A spawner for which its author sets these three."""

    chart = {
        "environment": {"COURSE": "ml"},
        "init_containers": [{"name": "block-cloud-metadata", "image": "x"}],
        "profile_list": TWO,
    }
    own = {
        "environment": {"GPU": "1"},
        "init_containers": [{"name": "mine", "image": "x"}],
        "profile_list": [FREE_TEXT],
    }
    spawner = a_spawner(Own, KubeSpawner=chart, Own=own)
    pod = await spawner.get_pod_manifest()
    assert "COURSE" not in {one.name for one in pod.spec.containers[0].env}
    assert [one.name for one in pod.spec.init_containers] == ["mine"]
    assert [profile["slug"] for profile in spawner.profile_list] == ["images"]
