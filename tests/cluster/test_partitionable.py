"""Cards that are cut when a device is claimed (DRA's partitionable devices): our count beside the real scheduler's.

Real: API server, scheduler with its DRA part, the controller that makes claims, and our reading of them. Played: the
node and its pods (kwok), and the ResourceSlices that NVIDIA's driver would publish (``tests/fakes/partitions.py``).
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import requests

from hub_extensions.adapters.kubernetes.watch import ClusterWatch
from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.cluster.offers import derive_cluster_offers
from hub_extensions.core.cluster.pools import PoolSurvey, survey_pools
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.admission import admit
from hub_extensions.core.queue.model import QueueLimits, QueueSnapshot, Ticket, TicketState, WantedOffer
from tests.cluster.control_plane import ControlPlane
from tests.cluster.place import ClusterPlace
from tests.cluster.played_nodes import PlayedNodes
from tests.cluster.responder import Responder
from tests.cluster.test_mixed_cluster import CLASSES
from tests.fakes.partitions import PROFILES, claim_template, resource_slices
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(patient(300))]

NODE = "cut-on-demand"
CARDS = 2
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASS_PATH = "/apis/resource.k8s.io/v1/deviceclasses"
TEMPLATES = {"small": "1g.5gb", "wide": "1g.10gb", "middle": "2g.10gb", "half": "3g.20gb", "whole": ""}
NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
HERE = {"tests/place": NODE}
IN_USE = "none can be had now, as the GPUs are in use or cut in another way. You are next."
BEFORE_YOU = "Somebody who came before you waits for a GPU that yours would be cut from."


class Claims:
    """Pods of one namespace that claim by template, on the node of this file only."""

    def __init__(self, cluster: ControlPlane, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
        self._made = 0

    def make(self, template: str) -> str:
        self._made += 1
        name = f"{template}-{self._made}"
        security = {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        container = {"name": "notebook", "image": "none", "securityContext": security}
        container["resources"] = {"claims": [{"name": "gpu"}]}
        spec = {
            "nodeSelector": HERE,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
        }
        self.cluster.call("POST", self._pods, {"metadata": {"name": name}, "spec": spec})
        return name

    def remove(self, *names: str) -> None:
        """Take pods away and wait until their claims are gone too."""
        for name in names:
            self.cluster.call("DELETE", f"{self._pods}/{name}?gracePeriodSeconds=0")
        until(lambda: not set(names) & {each.rsplit("-gpu-", 1)[0] for each in self.names()}, 30, "claims are gone")

    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.cluster.call("GET", self._claims)["items"]]

    def settled(self, *names: str) -> Counter[str]:
        """How the scheduler judged them, once it has judged all: ``placed`` or its word."""
        until(lambda: all(self._judged(name) for name in names), 30, lambda: f"{[self._judged(n) for n in names]}")
        return Counter(self._judged(name) for name in names)

    def devices(self) -> list[str]:
        """All that are claimed now."""
        claims = self.cluster.call("GET", self._claims)["items"]
        given = ((claim.get("status") or {}).get("allocation") or {} for claim in claims)
        return sorted(one["device"] for each in given for one in (each.get("devices") or {}).get("results", ()))

    def _judged(self, name: str) -> str:
        pod = self.cluster.call("GET", f"{self._pods}/{name}")
        if pod["spec"].get("nodeName"):
            return "placed"
        said = (one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled")
        return next(
            (one.get("reason", "") for one in said if "cannot allocate all claims" in one.get("message", "")), ""
        )


@pytest.fixture
def claims(control_plane: ControlPlane, played_nodes: PlayedNodes, namespace: str) -> Iterator[Claims]:
    control_plane.apply(CLASSES)
    slices = resource_slices(NODE, CARDS)
    try:
        for each in slices:
            control_plane.call("POST", SLICES, each)
        for name, profile in TEMPLATES.items():
            path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates"
            control_plane.call("POST", path, claim_template(name, profile))
        with played_nodes.node(NODE, {}, labels=HERE):
            yield Claims(control_plane, namespace)
    finally:
        for each in slices:
            control_plane.call("DELETE", f"{SLICES}/{each['metadata']['name']}")
        for name in ("gpu.nvidia.com", "mig.nvidia.com"):
            control_plane.call("DELETE", f"{CLASS_PATH}/{name}")


def survey(claims: Claims) -> PoolSurvey:
    """What our reading of the cluster counts now."""

    async def look() -> PoolSurvey:
        config = ClusterConfig(kubeconfig=str(claims.cluster.kubeconfig), namespace=claims.namespace)
        watch = ClusterWatch(config)
        try:
            await watch.start()
            view = watch.view(datetime.now(timezone.utc))
        finally:
            await watch.close()
        assert view.slices and view.counters and not view.problem
        return survey_pools(replace(view, nodes=dict(view.nodes or {})), OfferConfig(), config, names={}, leases=())

    return asyncio.run(look())


def free(claims: Claims) -> dict[str, int]:
    return {pool.claim_template: pool.free for pool in survey(claims).pools.values() if pool.claim_template}


def really_placed(claims: Claims, template: str, said: int) -> int:
    """One more than is said to be free is asked for; all are taken away again."""
    names = [claims.make(template) for _ in range(said + 1)]
    until(lambda: claims.settled(*names)["placed"] >= said, what=f"{said} of {template} are placed, as was said")
    judged = claims.settled(*names)
    claims.remove(*names)
    return judged["placed"]


def test_what_is_free_of_each_template_is_what_the_scheduler_places_at_every_step(claims: Claims) -> None:
    total = {pool.claim_template: pool.total for pool in survey(claims).pools.values()}
    assert total == {"small": 14, "wide": 8, "middle": 6, "half": 4, "whole": 2}
    kept: list[str] = []
    for step in ("", "small", "half", "-small", "wide", "half", "middle"):
        if step.startswith("-"):
            gone = next(name for name in kept if name.startswith(step[1:]))
            kept.remove(gone)
            claims.remove(gone)
        elif step:
            kept.append(claims.make(step))
            until(
                lambda: claims.settled(kept[-1]) == {"placed": 1},
                what="it is placed: the scheduler hears of what is gone",
            )
        said = free(claims)
        found = {template: really_placed(claims, template, said[template]) for template in TEMPLATES}
        print(f"{step or 'empty':8} {claims.devices()}\n{'':8} said {said}\n{'':8} real {found}")
        assert found == said, step


@pytest.mark.parametrize(
    "wanted",
    [
        ["small"] * 20,
        ["half", "small", "small", "wide", "half", "small", "middle", "whole"],
        ["whole", "small", "half", "whole"],
    ],
    ids=["one template", "all of them", "large ones first"],
)
def test_all_who_are_let_in_at_once_are_placed(claims: Claims, wanted: list[str]) -> None:
    first = claims.make("small")
    claims.settled(first)
    found = survey(claims)
    ids = {pool.claim_template: pool.id for pool in found.pools.values()}
    offers = derive_cluster_offers(found.pools, OfferConfig(), ClusterConfig()).offers
    tickets = tuple(
        Ticket(f"t{number}", f"u{number}", "", (WantedOffer(ids[name], number),), NOW, TicketState.WAITING)
        for number, name in enumerate(wanted)
    )
    let_in = admit(QueueSnapshot(offers, None, tickets, (), QueueLimits(max_starting=500), pools=found.pools))
    names = [claims.make(wanted[int(each.ticket[1:])]) for each in reversed(let_in)]
    judged = claims.settled(*names)
    print(f"wanted {wanted}\nlet in {[each.offer for each in let_in]}: {dict(judged)}; claimed {claims.devices()}")
    assert names and judged == {"placed": len(names)}
    claims.remove(first, *names)


def test_the_form_of_a_hub_follows_what_is_cut_and_who_came_first_goes_first(claims: Claims, tmp_path: Path) -> None:
    small, half, whole = "mig-1g.5gb@small", "mig-3g.20gb@half", "gpu@whole"
    users = {"ada": half, "ben": small, "cem": whole, "dan": whole, "eve": small}
    config = f"""
c.KubeSpawner.node_selector = {HERE!r}
"""
    with Responder() as responder:
        config += f"c.KubeSpawner.port = {responder.port}\n"
        place = ClusterPlace(claims.cluster, claims.namespace, tmp_path, config=config)
        with place.open():

            def shown() -> dict[str, Any]:
                return {offer: said["free"] for offer, said in place.offers().items() if offer in (small, half, whole)}

            until(lambda: shown() == {small: 14, half: 4, whole: 2}, 30, lambda: f"{shown()}")
            place.hub.add_users(*users)
            for user in ("ada", "ben", "cem"):
                place.hub.spawn(user, {"user_options": {"offer": users[user]}})
                place.hub.wait_ready(user, seconds=60)
            until(lambda: shown() == {small: 2, half: 0, whole: 0}, 10, lambda: f"{shown()}")
            print(claims.devices(), shown())
            place.hub.spawn("dan", {"user_options": {"offer": whole}})
            place.hub.spawn("eve", {"user_options": {"offer": small}})
            for user, words in (("dan", IN_USE), ("eve", BEFORE_YOU)):
                text = until(lambda who=user, part=words: said_to(place, who, part), 20, f"{user} is told")  # type: ignore[misc]
                print(user, "reads:", text)
            assert set(place.pods()) == {"ada", "ben", "cem"}
            place.hub.stop_server("cem")
            for user in ("dan", "eve"):
                place.hub.wait_ready(user, seconds=60)
            print(claims.devices(), shown())
            assert "gpu-1" in claims.devices()
            until(lambda: shown() == {small: 1, half: 0, whole: 0}, 10, lambda: f"{shown()}")
            for user in ("ada", "ben", "dan", "eve"):
                place.hub.stop_server(user)
            until(lambda: shown() == {small: 14, half: 4, whole: 2}, 30, lambda: f"{shown()}")


def said_to(place: ClusterPlace, user: str, words: str) -> str:
    """What the waiting page shows, if these words are in it."""
    try:
        for event in place.hub.progress(user, seconds=0.5):
            if words in (shown := str(event.get("html_message", ""))):
                return shown
    except requests.RequestException:
        pass  # no news within that time
    return ""


@pytest.mark.needs("own-cluster")
def test_kubernetes_wants_counters_in_a_slice_of_their_own(control_plane: ControlPlane) -> None:
    """Why the reading puts the slices of a pool together."""
    (both,) = resource_slices("nowhere", together=True)
    with pytest.raises(requests.HTTPError, match="sharedCounters"):
        control_plane.call("POST", SLICES, copy.deepcopy(both))


def test_devices_of_a_card_are_as_many_as_a_slice_may_hold() -> None:
    devices: list[Any] = resource_slices("nowhere")[1]["spec"]["devices"]
    assert len(devices) == 1 + sum(len(each[-1]) for each in PROFILES.values()) <= 64
