"""The watch of a cluster against an API server that fails in every known way."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.kubernetes.api import ClusterAway, ClusterRefused, KubernetesApi
from hub_extensions.adapters.kubernetes.reflector import Pace
from hub_extensions.adapters.kubernetes.watch import RIGHTS, ClusterWatch
from hub_extensions.core.cluster.model import ClusterConfig, ClusterView
from tests.fakes.kubernetes_api import (
    CLAIMS,
    NODES,
    PODS,
    SLICES,
    TEMPLATES,
    VOLUME_CLAIMS,
    VOLUMES,
    ApiServerAsTold,
    ApiServerThatIsBusy,
    ApiServerThatIsSlow,
    NoApiServer,
)
from tests.patience import patient, soon

pytestmark = pytest.mark.slow

QUICK = Pace(first=0.02, longest=0.1, doubted=0.05, forbidden=0.3, page=3)
OWN_PODS = "/api/v1/namespaces/jhub/pods"


def node(name: str = "n1", gpus: int = 4, **about: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **about}, "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}}


def pod(name: str = "p1", namespace: str = "jhub", gpus: int = 1, **more: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    wanted = {"resources": {"requests": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    return {"metadata": about, "spec": {"containers": [wanted]}, **more}


def now() -> datetime:
    return datetime.now(timezone.utc)


@asynccontextmanager
async def watching(
    server: ApiServerAsTold, folder: Path, pace: Pace = QUICK, wait: float = 10.0, **config: Any
) -> AsyncIterator[ClusterWatch]:
    watch = ClusterWatch(ClusterConfig(kubeconfig=server.kubeconfig(folder), **config), pace=pace)
    try:
        await watch.start(wait)
        yield watch
    finally:
        await watch.close()


async def until(watch: ClusterWatch, holds: Callable[[ClusterView], object]) -> ClusterView:
    """The first view of which this holds."""
    await soon(lambda: holds(watch.view(now())), what=lambda: f"the last view: {watch.view(now())}")
    return watch.view(now())


def lines(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    said = [record.getMessage() for record in caplog.records if record.name == "hub_extensions.hub_service"]
    return [line for line in said if all(word in line for word in words)]


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hub_extensions.hub_service")


async def test_everything_is_listed_once_in_pages_and_then_watched(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.put(NODES, *(node(f"n{number}") for number in range(7)))
        server.put(PODS, pod("mine"), pod("theirs", "elsewhere"))
        async with watching(server, tmp_path) as watch:
            view = watch.view(now())
            assert view.nodes is not None and sorted(view.nodes) == [f"n{number}" for number in range(7)]
            assert view.pods is not None and sorted(view.pods) == ["elsewhere/theirs", "jhub/mine"]
            assert (view.problem, view.own_pods_only, view.namespace) == ("", False, "jhub")
            assert [query["limit"] for query in server.queries("list", NODES)] == ["3", "3", "3"]
            await server.until_watched(NODES, PODS)
            server.put(PODS, pod("new"))
            server.remove(PODS, "jhub/mine")
            await until(watch, lambda view: sorted(view.pods or ()) == ["elsewhere/theirs", "jhub/new"])
            assert len(server.queries("list", PODS)) == 1


async def test_asking_for_a_view_asks_the_api_server_nothing(tmp_path: Path):
    async with ApiServerAsTold() as server, watching(server, tmp_path) as watch:
        await server.until_watched(NODES, PODS, SLICES, CLAIMS)
        before = len(server.asked)
        for _ in range(100):
            watch.view(now())
        assert len(server.asked) == before


async def test_a_watch_is_as_fresh_as_now_while_it_is_open(tmp_path: Path):
    async with ApiServerAsTold() as server, watching(server, tmp_path) as watch:
        await server.until_watched(NODES, PODS)
        later = datetime(2099, 1, 1, tzinfo=timezone.utc)
        await until(watch, lambda _: watch.view(later).at == later)
        assert watch.view(later).at == later


async def test_a_cut_watch_goes_on_where_it_was_and_lists_nothing_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with ApiServerAsTold() as server, watching(server, tmp_path) as watch:
        await server.until_watched(PODS)
        server.put(PODS, pod("before"))
        await until(watch, lambda view: "jhub/before" in (view.pods or ()))
        version = str(server.version)
        server.cut()
        server.put(PODS, pod("during"))
        await until(watch, lambda view: "jhub/during" in (view.pods or ()))
        assert server.queries("watch", PODS)[-1]["resourceVersion"] == version
        assert len(server.queries("list", PODS)) == 1
        assert lines(caplog, "cannot be read") == []


async def test_a_bookmark_moves_the_place_from_which_a_watch_goes_on(tmp_path: Path):
    async with ApiServerAsTold() as server, watching(server, tmp_path):
        await server.until_watched(NODES, PODS)
        server.put(NODES, node())
        server.bookmark(PODS)
        newest = str(server.version)
        await server.until_watched(PODS)
        times = len(server.queries("watch", PODS))
        await asyncio.wait_for(_cut_until(server, PODS, newest), patient(20))
        assert len(server.queries("watch", PODS)) > times
        assert len(server.queries("list", PODS)) == 1


async def _cut_until(server: ApiServerAsTold, path: str, version: str) -> None:
    """Cut watches until one goes on from this version: a bookmark may still be on its way."""
    while server.queries("watch", path)[-1]["resourceVersion"] != version:
        times = len(server.queries("watch", path))
        server.cut()
        await server.until_asked("watch", path, times + 1)
        await server.until_watched(path)


@pytest.mark.whole
@pytest.mark.slow
async def test_a_watch_ends_in_time_and_is_opened_again(tmp_path: Path):
    async with ApiServerAsTold() as server, watching(server, tmp_path, Pace(first=0.02, watch=1.0)) as watch:
        await server.until_asked("watch", NODES, 3)
        assert len(server.queries("list", NODES)) == 1
        assert watch.view(now()).problem == ""


@pytest.mark.whole
@pytest.mark.slow
async def test_a_watch_that_falls_silent_is_opened_again(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async with ApiServerAsTold() as server, watching(server, tmp_path, Pace(first=0.02, silence=patient(0.4))):
        await server.until_asked("watch", NODES, 3)
        assert len(server.queries("list", NODES)) == 1
        assert lines(caplog, "cannot be read") == []


async def test_a_history_that_is_gone_is_listed_again_and_the_old_values_stay_until_the_list_is_whole(tmp_path: Path):
    async with ApiServerThatIsSlow(PODS) as server:
        server.go.set()
        server.put(PODS, *(pod(f"p{number}") for number in range(4)))
        async with watching(server, tmp_path) as watch:
            await server.until_watched(PODS)
            server.go.clear()
            server.remove(PODS, "jhub/p0")
            server.forget_history()
            server.cut()
            await server.waiting.wait()
            held = watch.view(now()).pods
            assert held is not None and len(held) >= 3
            server.go.set()
            await until(watch, lambda view: sorted(view.pods or ()) == ["jhub/p1", "jhub/p2", "jhub/p3"])
            assert watch.view(now()).problem == ""


async def test_what_a_new_list_has_unchanged_stays_the_very_same_object_so_that_it_is_not_counted_again(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.put(PODS, pod("p1"), pod("p2"))
        async with watching(server, tmp_path) as watch:
            await server.until_watched(PODS)
            before = dict(watch.view(now()).pods or {})
            server.put(PODS, pod("p2", gpus=2))
            await until(watch, lambda view: (view.pods or {})["jhub/p2"].requests == {"nvidia.com/gpu": 2})
            server.forget_history()
            server.put(PODS, pod("p3"))
            server.cut()
            await server.until_asked("list", PODS, 2)
            after = (await until(watch, lambda view: len(view.pods or ()) == 3)).pods or {}
            assert after["jhub/p1"] is before["jhub/p1"]
            assert after["jhub/p2"] is not before["jhub/p2"]


async def test_an_error_in_the_stream_that_says_too_old_is_listed_again(tmp_path: Path):
    async with ApiServerAsTold() as server, watching(server, tmp_path) as watch:
        await server.until_watched(NODES)
        server.end_with_an_error(NODES, 410)
        await server.until_asked("list", NODES, 2)
        server.put(NODES, node("after"))
        await until(watch, lambda view: "after" in (view.nodes or ()))


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 503])
async def test_an_api_server_that_is_busy_is_left_alone_for_as_long_as_it_says(tmp_path: Path, status: int):
    async with ApiServerThatIsBusy(times=1, seconds=1, status=status) as server:
        server.put(NODES, node())
        began = asyncio.get_running_loop().time()
        async with watching(server, tmp_path) as watch:
            assert asyncio.get_running_loop().time() - began >= 1.0
            assert watch.view(now()).problem == ""
            assert len(server.queries("list", NODES)) == 2


async def test_while_it_is_away_the_values_stay_and_one_line_says_lost_and_one_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with ApiServerAsTold() as server:
        server.put(NODES, node())
        async with watching(server, tmp_path) as watch:
            await server.until_watched(NODES, PODS, SLICES, CLAIMS)
            await server.go_away()
            view = await until(watch, lambda view: view.problem)
            assert view.problem.startswith("The cluster cannot be read since ")
            assert re.search(r": it cannot be reached: Connection (refused|reset by peer)\.$", view.problem)
            assert view.nodes is not None and list(view.nodes) == ["n1"]
            lost_at = view.at
            assert lost_at is not None and lost_at <= now()
            await asyncio.sleep(0.3)  # several tries, in which nothing more may be said
            assert watch.view(now()).at == lost_at
            server.come_back()
            await until(watch, lambda view: not view.problem)
            server.put(NODES, node("n2"))
            await until(watch, lambda view: "n2" in (view.nodes or ()))
        assert len(lines(caplog, "cannot be read since")) == 1
        assert len(lines(caplog, "can be read again")) == 1


@pytest.mark.slow
async def test_nodes_that_may_not_be_read_are_none_and_read_once_they_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with ApiServerAsTold() as server:
        server.put(NODES, node())
        server.forbidden = {NODES}
        async with watching(server, tmp_path) as watch:
            view = watch.view(now())
            assert (view.nodes, view.problem) == (None, "")
            assert view.pods == {}
            await server.until_asked("list", NODES, 3)
            assert len(lines(caplog, "Nodes may not be read")) == 1
            server.forbidden = set()
            await until(watch, lambda view: list(view.nodes or ()) == ["n1"])
            assert len(lines(caplog, "Nodes can be read now")) == 1


@pytest.mark.slow
async def test_an_api_server_that_forbids_everything_as_it_starts_has_not_been_read_yet(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.put(NODES, node())
        server.forbidden = {NODES, PODS}
        async with watching(server, tmp_path, Pace(first=0.02, longest=0.1, doubted=0.5), wait=0.2) as watch:
            view = watch.view(now())
            assert (view.at, view.problem) == (None, "The cluster has not been read yet.")
            assert view.nodes == {} and not view.own_pods_only
            server.forbidden = set()
            view = await until(watch, lambda view: not view.problem)
            assert list(view.nodes or ()) == ["n1"] and not view.own_pods_only


async def test_pods_of_other_namespaces_that_may_not_be_read_leave_our_own_until_the_right_is_given(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.put(PODS, pod("mine"), pod("theirs", "elsewhere"))
        server.forbidden = {PODS}
        async with watching(server, tmp_path) as watch:
            view = watch.view(now())
            assert view.own_pods_only and list(view.pods or ()) == ["jhub/mine"]
            await server.until_watched(OWN_PODS)
            server.put(PODS, pod("second"))
            await until(watch, lambda view: sorted(view.pods or ()) == ["jhub/mine", "jhub/second"])
            server.forbidden = set()
            view = await until(watch, lambda view: not view.own_pods_only)
            assert sorted(view.pods or ()) == ["elsewhere/theirs", "jhub/mine", "jhub/second"]
            assert view.problem == ""


async def test_pods_that_may_not_be_read_at_all_are_none(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.forbidden = {PODS, OWN_PODS}
        async with watching(server, tmp_path) as watch:
            view = watch.view(now())
            assert (view.pods, view.own_pods_only, view.problem) == (None, True, "")
            assert view.nodes == {}


async def test_an_api_server_that_forbids_everything_as_it_starts_makes_nobody_forget(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.put(NODES, node())
        async with watching(server, tmp_path, Pace(first=0.02, longest=0.1, doubted=0.3)) as watch:
            await server.until_watched(NODES)
            server.forbidden = {NODES}
            server.cut()
            await until(watch, lambda view: "403" in view.problem)
            server.forbidden = set()
            view = await until(watch, lambda view: not view.problem)
            assert list(view.nodes or ()) == ["n1"]


async def test_a_right_that_is_taken_away_for_good_leaves_unknown_and_no_problem(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.put(NODES, node())
        async with watching(server, tmp_path) as watch:
            await server.until_watched(NODES)
            server.forbidden = {NODES}
            server.cut()
            view = await until(watch, lambda view: view.nodes is None)
            assert view.problem == ""


async def test_a_cluster_without_dra_has_no_slices_and_no_word_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with ApiServerAsTold(dra=False) as server, watching(server, tmp_path) as watch:
        view = watch.view(now())
        assert (view.slices, view.claims, view.templates, view.problem) == (None, None, None, "")
        assert lines(caplog) == []


async def test_dra_that_may_not_be_read_is_no_word_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async with ApiServerAsTold() as server:
        server.forbidden = {f"/apis/resource.k8s.io/v1/{name}" for name in ("resourceslices", "resourceclaims")}
        async with watching(server, tmp_path) as watch:
            view = watch.view(now())
            assert (view.slices, view.claims, view.problem) == (None, None, "")
            assert lines(caplog) == []


async def test_devices_claims_and_templates_are_watched_and_their_nodes_kept(tmp_path: Path):
    async with ApiServerAsTold() as server:
        plain = {"metadata": {"name": "plain", "labels": {"disk": "ssd"}}, "spec": {}}
        server.put(NODES, plain)
        server.put(TEMPLATES, template("ours", "jhub"), template("theirs", "elsewhere"))
        async with watching(server, tmp_path) as watch:
            assert watch.view(now()).nodes == {}
            await server.until_watched(SLICES, CLAIMS)
            spec = {"driver": "gpu.nvidia.com", "nodeName": "plain", "pool": {"name": "plain", "generation": 1}}
            device = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
            server.put(SLICES, {"metadata": {"name": "s"}, "spec": {**spec, "devices": [device]}})
            view = await until(watch, lambda view: view.slices and view.nodes)
            assert [device.name for device in view.slices or ()] == ["gpu-0"]
            assert list(view.nodes or ()) == ["plain"]
            assert [one.name for one in view.templates or ()] == ["ours"]
            server.put(NODES, {**plain, "spec": {"unschedulable": True}})
            await until(watch, lambda view: view.nodes and view.nodes["plain"].cordoned)
            server.put(CLAIMS, claim("c", "gpu-0"))
            await until(watch, lambda view: view.claims)
            server.remove(CLAIMS, "jhub/c")
            await until(watch, lambda view: view.claims == ())


def template(name: str, namespace: str) -> dict[str, Any]:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"spec": {"devices": {"requests": requests}}}}


def claim(name: str, device: str) -> dict[str, Any]:
    results = [{"driver": "gpu.nvidia.com", "pool": "plain", "device": device}]
    return {
        "metadata": {"name": name, "namespace": "jhub"},
        "status": {"allocation": {"devices": {"results": results}}},
    }


async def test_claims_and_the_volumes_that_not_every_node_reaches_are_watched(tmp_path: Path):
    def in_zone(zone: str) -> dict[str, Any]:
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
        return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}

    async with ApiServerAsTold() as server:
        server.put(VOLUMES, {"metadata": {"name": "pv-a"}, "spec": in_zone("a")})
        server.put(VOLUMES, {"metadata": {"name": "anywhere"}, "spec": {}}, {"metadata": {"name": "odd"}, "spec": 7})
        for name, volume in (("home", "pv-a"), ("new", None)):
            claim = {"metadata": {"name": name, "namespace": "jhub"}, "spec": {"volumeName": volume}}
            server.put(VOLUME_CLAIMS, claim)
        async with watching(server, tmp_path) as watch:
            seen = watch.view(now()).volumes
            assert (dict(seen.bound), set(seen.volumes), seen.unread) == ({"jhub/home": "pv-a"}, {"pv-a"}, False)
            assert watch.view(now()).volumes is seen
            server.put(VOLUMES, {"metadata": {"name": "pv-b"}, "spec": in_zone("b")})
            await until(watch, lambda view: set(view.volumes.volumes) == {"pv-a", "pv-b"})


async def test_volumes_that_may_not_be_read_are_said_once_and_stop_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with ApiServerAsTold() as server:
        server.put(NODES, node())
        server.forbidden = {VOLUMES}
        async with watching(server, tmp_path) as watch:
            view = watch.view(now())
            assert (view.volumes.unread, view.problem, set(view.nodes or ())) == (True, "", {"n1"})
            assert len(lines(caplog, "Volumes may not be read")) == 1


@pytest.mark.slow
async def test_only_what_is_kept_wakes_whoever_waits(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.put(PODS, pod("mine"))
        async with watching(server, tmp_path) as watch:
            await server.until_watched(NODES, PODS, SLICES, CLAIMS)
            while await watch.wait_changed(0.2):
                continue
            server.put(PODS, pod("no-gpu", gpus=0), {**pod("mine"), "status": {"podIP": "10.0.0.1"}})
            assert not await watch.wait_changed(0.3)
            server.put(PODS, {**pod("mine"), "status": {"phase": "Running"}})
            assert await watch.wait_changed(20)
            assert not await watch.wait_changed(0.0)


async def test_others_have_a_turn_while_a_long_page_is_read(tmp_path: Path):
    items = [pod(f"p{number}") for number in range(20)]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with NoApiServer(json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()) as server:
        api = KubernetesApi(server.kubeconfig(tmp_path))
        await api.open()
        task = asyncio.create_task(others())
        taken: list[int] = []

        def take(_: object) -> None:
            time.sleep(0.002)  # as long as a pod with many containers takes
            taken.append(turns)

        about = await api.page(PODS, {}, take)
        task.cancel()
        await api.close()
    assert (len(taken), about) == (20, {"resourceVersion": "1"})
    assert len(set(taken)) > 1


async def test_one_that_does_not_answer_is_said_to_be_unread_and_nobody_waits_for_it_for_ever(tmp_path: Path):
    async with ApiServerThatIsSlow(NODES) as server, watching(server, tmp_path, wait=0.2) as watch:
        view = watch.view(now())
        assert (view.at, view.problem) == (None, "The cluster has not been read yet.")
        server.go.set()
        await until(watch, lambda view: not view.problem)


@pytest.mark.whole
@pytest.mark.parametrize("body", [b"<html>Log in</html>", b"[]", b'{"kind": "Status"}', b'{"items": [', b""])
async def test_what_is_not_an_api_server_is_called_so(tmp_path: Path, body: bytes):
    async with NoApiServer(body) as server, watching(server, tmp_path, wait=0.2) as watch:
        view = await until(watch, lambda view: "not an API server" in view.problem)
        assert view.at is None


async def test_a_token_that_is_not_taken_any_more_is_read_again(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.put(NODES, node())
        async with watching(server, tmp_path) as watch:
            await server.until_watched(NODES)
            server.token = "second-token"
            server.cut()
            await until(watch, lambda view: "401" in view.problem)
            server.kubeconfig(tmp_path)
            await until(watch, lambda view: not view.problem)
            server.put(NODES, node("n2"))
            await until(watch, lambda view: "n2" in (view.nodes or ()))


async def test_a_file_that_is_no_kubeconfig_is_an_error_with_a_sentence(tmp_path: Path):
    (tmp_path / "odd").write_text("- a list", encoding="utf-8")
    for name in ("odd", "missing"):
        watch = ClusterWatch(ClusterConfig(kubeconfig=str(tmp_path / name)))
        with pytest.raises(ClusterAway, match="where it is could not be read"):
            await watch.start()
        await watch.close()


async def test_outside_a_cluster_without_a_kubeconfig_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    watch = ClusterWatch(ClusterConfig())
    with pytest.raises(ClusterAway, match="Service host/port is not set"):
        await watch.start()
    await watch.close()


async def test_the_namespace_is_the_configured_one_else_the_contexts_else_default(tmp_path: Path):
    async with ApiServerAsTold() as server:
        async with watching(server, tmp_path, namespace="mine") as watch:
            assert watch.namespace == watch.view(now()).namespace == "mine"
        watch = ClusterWatch(ClusterConfig(kubeconfig=server.kubeconfig(tmp_path, namespace="")))
        await watch.start()
        assert watch.namespace == "default"
        await watch.close()


async def test_a_pod_is_deleted_only_if_it_is_the_very_one(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.put(PODS, pod("p1"), pod("p2"))
        async with watching(server, tmp_path) as watch:
            assert await watch.delete_pod("jhub", "p1", "uid-p1")
            assert await watch.delete_pod("jhub", "p2", "another") is False
            assert await watch.delete_pod("jhub", "p1", "uid-p1") is False
            assert await watch.delete_pod("jhub", "p2", "uid-p2", force=True)
            assert server.bodies[0]["preconditions"] == {"uid": "uid-p1"}
            assert [body.get("gracePeriodSeconds") for body in server.bodies] == [None, None, None, 0]


async def test_a_deletion_that_is_refused_or_not_answered_is_an_error_with_a_sentence(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.put(PODS, pod("p1"))
        async with watching(server, tmp_path) as watch:
            server.forbidden = {f"{OWN_PODS}/p1"}
            with pytest.raises(ClusterRefused) as refused:
                await watch.delete_pod("jhub", "p1", "uid-p1")
            assert refused.value.message.startswith("it answers 403: ")
            await server.go_away()
            with pytest.raises(ClusterAway, match="cannot be reached"):
                await watch.delete_pod("jhub", "p1", "uid-p1")


async def test_nothing_is_asked_that_the_rights_do_not_allow(tmp_path: Path):
    async with ApiServerAsTold() as server:
        server.forbidden = {PODS}
        async with watching(server, tmp_path) as watch:
            await server.until_watched(NODES, OWN_PODS, SLICES, CLAIMS)
            server.forbidden = set()
            await until(watch, lambda view: not view.own_pods_only)
            await server.until_watched(PODS)
            await watch.delete_pod("jhub", "none", "uid")
        for verb, path, _ in server.asked:
            parts = path.strip("/").split("/")
            root = 2 if parts[0] == "api" else 3
            own = parts[root] == "namespaces"
            group, resource = ("" if root == 2 else parts[1]), parts[root + 2 if own else root]
            allowed = [right for right in RIGHTS if (right.group, right.resource) == (group, resource)]
            assert any(verb in right.verbs and (own or not right.own) for right in allowed), (verb, path)
