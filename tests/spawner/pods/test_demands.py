"""What a pod will demand of a node, found before its start: by KubeSpawner's own description of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from hub_extensions.core.cluster.model import Requirement
from hub_extensions.core.cluster.placement import PodDemands, Toleration
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.user_options import UserOptions
from hub_extensions.spawner.pages.start_progress import Start
from hub_extensions.spawner.pods import demands as of_demands
from tests.spawner.test_kube import ONE, a_spawner, kubeconfig  # noqa: F401  (a fixture of this module, too)

pytestmark = pytest.mark.slow

IN_A = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
PROFILES: list[dict[str, Any]] = [
    {"display_name": "Plain", "slug": "plain", "default": True},
    {"display_name": "Here", "slug": "here", "kubespawner_override": {"node_selector": {"rack": "7"}}},
    {
        "display_name": "There",
        "slug": "there",
        "kubespawner_override": {
            "node_affinity_required": [IN_A],
            "tolerations": [{"key": "team", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": "home-{username}"}}],
        },
    },
]


async def demands(spawner: Any) -> PodDemands | None:
    found: PodDemands | None = await spawner._gpu_demands(Start(UserOptions((OfferId(ONE),))))
    return found


@pytest.mark.parametrize(
    ("profile", "wanted"),
    [
        ("plain", PodDemands((("all", "yes"),))),
        ("here", PodDemands((("all", "yes"), ("rack", "7")))),
        (
            "there",
            PodDemands(
                (("all", "yes"),),
                ((Requirement("zone", "In", ("a", "b")),),),
                (Toleration("team", "Exists", "", "NoSchedule"),),
                ("hub/home-mock-name",),
            ),
        ),
    ],
)
async def test_a_profile_counts_and_is_applied_again_at_the_start_to_the_same_end(
    profile: str, wanted: PodDemands
) -> None:
    spawner = a_spawner(profile_list=PROFILES, node_selector={"all": "yes"}, options={"profile": profile})
    spawner.user.name = "mock-name"
    assert await demands(spawner) == wanted
    assert await demands(spawner) == wanted


async def test_what_a_hook_makes_of_the_pod_counts_and_it_may_look_at_the_offer() -> None:
    async def hook(spawner: Any, pod: Any) -> Any:
        pod.spec.node_selector = {"for": pod.metadata.labels["jupyterhub-gpu/offer"]}
        return pod

    assert await demands(a_spawner(modify_pod_hook=hook)) == PodDemands((("for", ONE),))


async def slow(spawner: Any, pod: Any) -> Any:
    await asyncio.sleep(60)


def failing(spawner: Any, pod: Any) -> Any:
    raise LookupError("its volume is not there yet")


@pytest.mark.parametrize(("hook", "why"), [(slow, "takes longer than"), (failing, "its volume is not there yet")])
async def test_what_cannot_be_known_before_the_start_is_not_known_and_is_logged(
    hook: Any, why: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_demands, "LONGEST_SECONDS", 0.2)
    spawner = a_spawner(modify_pod_hook=hook)
    with caplog.at_level(logging.WARNING, logger=spawner.log.name):
        assert await demands(spawner) is None
    assert why in caplog.text


async def test_an_admin_can_keep_the_hook_for_the_start_alone() -> None:
    spawner = a_spawner(modify_pod_hook=failing)
    spawner.gpu_build_pod_before_queueing = False
    assert await demands(spawner) is None
