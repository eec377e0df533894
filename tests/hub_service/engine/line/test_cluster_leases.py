"""Leases on a cluster: they end with their pods, and nothing else ends them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from hub_extensions.core.cluster.model import ClaimFacts, ClusterView, NodeFacts, SliceDevice, TemplateFacts
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.pod_request import label_value
from hub_extensions.core.queue.model import LeaseState, QueueLimits
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.spawner.pages.texts import wait_text
from tests.fakes.cluster_table import HOME, ClusterTable, node, pod
from tests.hub_service.engine.pod_room import SMALL, PodRoom, pod_room
from tests.patience import soon

pytestmark = pytest.mark.slow


def one() -> ClusterTable:
    return ClusterTable(node("a", (SMALL, 1)))


def said(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(1 for record in caplog.records if text in record.getMessage() and record.levelno >= logging.WARNING)


# ------------------------------------------------------------------ from admission to a pod that is gone


async def test_a_grant_on_a_cluster_names_what_to_ask_of_the_pod_and_no_device(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        grant = (await r.ask("ada")).grant
        assert grant is not None
        assert grant.pod is not None
        assert (grant.uuid, dict(grant.pod.limits)) == (None, {f"nvidia.com/{SMALL}": "1"})
        assert "CUDA_VISIBLE_DEVICES" not in grant.environment


async def test_a_device_is_taken_from_admission_on_and_counted_once_when_its_pod_is_bound(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        state = await r.ask("ada")
        assert r.stands().free == 1
        r.cluster.put(r.pod_for(state))
        await r.refresh()
        assert r.stands().free == 1
        r.cluster.put(r.pod_for(state, "a"))
        await r.refresh()
        assert (r.stands().free, r.stands().foreign) == (1, 0)
        await r.ready(state)
        await r.refresh()
        assert (r.stands().free, r.stands().held) == (1, 1)


async def test_a_lease_ends_when_its_pod_is_gone_and_the_next_in_line_is_admitted(tmp_path: Path) -> None:
    async with pod_room(tmp_path, one()) as r:
        await r.run("ada")
        await r.ask("ben")
        await r.stop("ada")
        await r.refresh(after=60)
        assert r.lease("ada").state is LeaseState.ENDING, "its pod is still there"
        assert r.positions() == {"ben": 1}
        r.cluster.remove("jupyter-ada")
        await r.refresh()
        assert r.holds("ada"), "a list that is read anew may lack it for a moment"
        await r.refresh(after=1.1)
        assert not r.holds("ada")
        assert r.positions() == {"ben": 0}


async def test_a_pod_that_was_seen_and_vanished_ends_the_lease_without_a_word_of_the_hub(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        await r.refresh()
        r.cluster.remove("jupyter-ada")
        await r.refresh()
        await r.refresh(after=1.1)
        assert not r.holds("ada")
        assert ("ada", "") not in r.engine.state.facts


async def test_a_pod_that_comes_back_within_a_second_ends_nothing(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        there = r.cluster.pods["uid-jupyter-ada"]  # type: ignore[index]
        r.cluster.remove("jupyter-ada")
        await r.refresh()
        r.cluster.put(there)
        await r.refresh(after=0.5)
        r.cluster.remove("jupyter-ada")
        await r.refresh(after=5)
        assert r.holds("ada"), "a new absence, which has just begun"


async def test_a_lease_whose_pod_was_never_seen_is_kept_for_30_s(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        state = await r.ask("ada")
        await r.ready(state)
        await r.refresh()
        await r.refresh(after=29)
        assert r.holds("ada")
        await r.refresh(after=2)
        assert not r.holds("ada")


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_a_pod_that_is_over_ends_its_lease_though_its_object_is_still_there(tmp_path: Path, phase: str) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        r.cluster.change_pod("jupyter-ada", phase=phase, reason="Evicted")
        await r.refresh()
        await r.refresh(after=1.1)
        assert not r.holds("ada")
        assert r.stands().free == 2


async def test_a_server_in_a_namespace_of_its_user_keeps_its_lease(tmp_path: Path) -> None:
    """KubeSpawner's ``enable_user_namespaces``: the lease's label says whose it is."""
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        r.cluster.change_pod("jupyter-ada", namespace="jupyter-ada")
        await r.refresh()
        await r.refresh(after=60)
        assert r.lease("ada").state is LeaseState.RUNNING
        assert (r.stands().free, r.stands().foreign) == (1, 0)


async def test_a_start_that_failed_keeps_its_device_until_its_pod_is_gone(tmp_path: Path) -> None:
    async with pod_room(tmp_path, one()) as r:
        state = await r.ask("ada")
        r.cluster.put(r.pod_for(state, "a"))
        await r.refresh()
        await r.ask("ben")
        await r.failed(state)
        await r.refresh(after=60)
        assert r.positions() == {"ben": 1}
        r.cluster.remove("jupyter-ada")
        await r.refresh()
        await r.refresh(after=1.1)
        assert r.positions() == {"ben": 0}


async def test_a_second_pod_of_the_same_lease_takes_over_from_one_that_failed(tmp_path: Path) -> None:
    """A kubelet that refused the first one (UnexpectedAdmissionError): it is retried with a new pod."""
    async with pod_room(tmp_path) as r:
        state = await r.ask("ada")
        r.cluster.put(r.pod_for(state, "a", phase="Failed", reason="UnexpectedAdmissionError"))
        await r.refresh()
        r.cluster.put(r.pod_for(state, "a", uid="uid-second", name="jupyter-ada"))
        await r.refresh(after=5)
        await r.ready(state)
        await r.refresh(after=60)
        await r.refresh(after=60)
        assert r.lease("ada").state is LeaseState.RUNNING
        assert (r.stands().free, r.stands().held) == (1, 1)


async def test_a_pod_of_another_namespace_that_takes_a_device_is_seen_at_the_next_look(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        r.cluster.put(pod("job", "a", asks=SMALL, count=2))
        await r.refresh()
        assert (r.stands().free, r.stands().foreign) == (0, 2)
        state = await r.ask("ada")
        assert (state.answer, state.position) == ("wait", 1)


async def test_a_change_of_the_cluster_is_looked_at_without_being_asked(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        running = asyncio.ensure_future(r.pods.run())
        try:
            r.cluster.put(pod("job", "a", asks=SMALL))
            await soon(lambda: r.stands().free == 1, 2, "two seconds after the change")
        finally:
            running.cancel()
        assert r.stands().foreign == 1


# ------------------------------------------------------------------ machines that do not answer


@pytest.mark.parametrize("ready", [False, None])
async def test_a_pod_on_a_machine_that_does_not_answer_keeps_its_lease_until_it_does(
    tmp_path: Path, ready: bool | None
) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        r.cluster.set_node("a", ready=ready)
        await r.refresh()
        assert r.lease("ada").state is LeaseState.LOST
        notices = r.engine.state.recent_notices("ada")
        assert "does not answer" in notices[-1].text
        assert (r.stands().lost, r.stands().free) == (1, 0)
        await r.refresh(after=3600)
        assert r.lease("ada").state is LeaseState.LOST
        assert len(r.engine.state.recent_notices("ada")) == len(notices), "said once"
        r.cluster.set_node("a", ready=True)
        await r.refresh()
        assert r.lease("ada").state is LeaseState.RUNNING


async def test_a_lost_lease_whose_machine_is_not_seen_any_more_stays_lost(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        r.cluster.set_node("a", ready=False)
        await r.refresh()
        r.cluster.nodes = {}
        await r.refresh()
        assert r.lease("ada").state is LeaseState.LOST


async def test_an_admin_gives_a_lost_pod_up_and_its_lease_ends_when_the_pod_is_gone(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        lease = await r.run("ada")
        r.cluster.set_node("a", ready=False)
        await r.refresh()
        await r.engine.give_up(lease.id, "root")
        assert r.cluster.deleted == [(HOME, "jupyter-ada", "uid-jupyter-ada", True)]
        await r.refresh()
        await r.refresh(after=1.1)
        assert not r.holds("ada")


async def test_a_server_that_was_stopped_on_a_lost_machine_can_be_given_up_too(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        lease = await r.run("ada")
        r.cluster.set_node("a", ready=None)
        await r.refresh()
        await r.stop("ada")
        await r.refresh(after=3600)
        assert r.lease("ada").state is LeaseState.ENDING, "no kubelet says that it ended"
        await r.engine.give_up(lease.id, "root")
        assert r.cluster.deleted[0][3] is True


async def refused(r: PodRoom, lease: str) -> int:
    with pytest.raises(Refused) as problem:
        await r.engine.give_up(lease, "root")
    return problem.value.status


async def test_only_a_lost_pod_can_be_given_up(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        lease = await r.run("ada")
        assert await refused(r, "no-such-lease") == 404
        assert await refused(r, lease.id) == 409
        await r.stop("ada")
        assert await refused(r, lease.id) == 409, "its machine ends it"
        assert r.cluster.deleted == []


async def test_a_pod_is_given_up_once_it_was_seen_to_be_lost_and_not_before(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        lease = await r.run("ada")
        r.cluster.set_node("a", ready=False)
        assert await refused(r, lease.id) == 409
        await r.refresh()
        await r.engine.give_up(lease.id, "root")
        assert len(r.cluster.deleted) == 1


async def test_a_force_deletion_that_the_cluster_refuses_is_told_and_changes_nothing(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        lease = await r.run("ada")
        r.cluster.set_node("a", ready=False)
        await r.refresh()
        r.cluster.refuses = (403, "pods is forbidden")
        assert await refused(r, lease.id) == 502
        await r.refresh(after=60)
        assert r.lease("ada").state is LeaseState.LOST


async def test_before_its_first_reading_a_cluster_is_empty_for_the_admin_and_a_problem_ends_with_a_reading(
    tmp_path: Path,
) -> None:
    async with pod_room(tmp_path) as r:
        r.engine.state.cluster = None
        info = r.pods.info()
        assert (info.configured, info.pools, info.left_out) == (False, (), ())
        r.engine.state.problem = "not read yet"
        await r.refresh()
        assert r.engine.state.problem == "" and r.pods.info().pools


# ------------------------------------------------------------------ servers that ran before


async def test_a_gpu_pod_that_ran_before_this_product_is_adopted_and_is_nobody_elses(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        r.cluster.put(pod("jupyter-ada", "a", asks=SMALL, namespace=HOME, user="ada"))
        r.hub.run("ada")
        await r.refresh()
        await r.engine.reconciler.reconcile()
        lease = r.lease("ada")
        assert (lease.adopted, lease.pool, lease.state) == (True, SMALL, LeaseState.RUNNING)
        await r.refresh()
        assert (r.stands().free, r.stands().held, r.stands().foreign) == (1, 1, 0)
        r.cluster.remove("jupyter-ada")
        r.hub.running.clear()
        await r.refresh()
        await r.refresh(after=1.1)
        assert not r.holds("ada")


async def test_the_lease_of_a_pod_that_ran_before_is_not_taken_over_by_a_later_one_on_cpu_only(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        r.cluster.put(pod("jupyter-ada", "a", asks=SMALL, namespace=HOME, user="ada"))
        r.hub.run("ada")
        await r.refresh()
        await r.engine.reconciler.reconcile()
        await r.refresh()
        r.cluster.remove("jupyter-ada")
        r.cluster.put(pod("jupyter-ada", "a", namespace=HOME, user="ada", offer="cpu"))
        await r.refresh()
        await r.refresh(after=1.1)
        assert not r.holds("ada") and r.stands().free == 2


async def test_the_lease_of_a_pod_that_ran_before_is_not_taken_over_by_one_with_a_lease_of_its_own(
    tmp_path: Path,
) -> None:
    async with pod_room(tmp_path) as r:
        r.cluster.put(pod("jupyter-ada", "a", asks=SMALL, namespace=HOME, user="ada"))
        r.hub.run("ada")
        await r.refresh()
        await r.engine.reconciler.reconcile()
        await r.refresh()
        r.cluster.remove("jupyter-ada")
        r.cluster.put(pod("jupyter-ada", "a", asks=SMALL, namespace=HOME, user="ada", lease="its-own", offer=SMALL))
        await r.refresh()
        await r.refresh(after=1.1)
        assert not r.holds("ada") and r.stands().free == 1


async def test_a_pod_that_ran_before_keeps_its_lease_while_it_asks_for_no_device_by_name(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        r.cluster.put(pod("jupyter-ada", "a", asks=SMALL, namespace=HOME, user="ada"))
        r.hub.run("ada")
        await r.refresh()
        await r.engine.reconciler.reconcile()
        await r.refresh()
        r.cluster.put(pod("jupyter-ada", "a", namespace=HOME, user="ada"))  # by a claim: no count of nvidia.com
        await r.refresh()
        await r.refresh(after=1.1)
        assert r.lease("ada").state is LeaseState.RUNNING


async def test_a_pod_that_ran_before_holds_a_card_of_its_own_machines_kind(tmp_path: Path) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", ("gpu", 1)), h100("b"))) as r:
        for user, on in (("ada", "a"), ("ben", "b")):
            r.cluster.put(pod(f"jupyter-{user}", on, asks="gpu", namespace=HOME, user=user))
            r.hub.run(user)
        await r.refresh()
        await r.engine.reconciler.reconcile()
        held = {user: r.stands(r.lease(user).offer).offer.product for user in ("ada", "ben")}
        assert held == {"ada": "NVIDIA A100-SXM4-40GB", "ben": "NVIDIA H100-80GB-HBM3"}


async def test_a_server_that_ran_before_without_a_gpu_gets_no_lease(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        r.cluster.put(pod("jupyter-ada", "a", namespace=HOME, user="ada"))
        r.hub.run("ada")
        await r.refresh()
        await r.engine.reconciler.reconcile()
        assert not r.holds("ada")
        assert r.engine.state.facts[("ada", "")].offer == "cpu"


async def test_a_running_pod_is_known_again_after_the_service_was_restarted(tmp_path: Path) -> None:
    cluster = ClusterTable(node("a", (SMALL, 2)))
    async with pod_room(tmp_path, cluster) as r:
        await r.run("ada")
        await r.refresh()
        hub, hands = r.hub, r.hands
    async with pod_room(tmp_path, cluster, hub=hub, hands=hands) as r:
        assert r.lease("ada").state is LeaseState.RUNNING
        await r.engine.reconciler.reconcile()
        await r.refresh(after=60)
        assert (r.lease("ada").state, r.stands().free, r.stands().held) == (LeaseState.RUNNING, 1, 1)


async def test_with_a_new_store_running_pods_keep_the_leases_they_are_marked_with(tmp_path: Path) -> None:
    """The volume was lost, or the service moved to a Deployment of its own."""
    cluster = ClusterTable(node("a", (SMALL, 2)))
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    async with pod_room(tmp_path / "old", cluster) as r:
        before = await r.run("ada")
        await r.refresh()
        hub, hands = r.hub, r.hands
    async with pod_room(tmp_path / "new", cluster, hub=hub, hands=hands) as r:
        await r.engine.reconciler.reconcile()
        await r.refresh(after=60)
        after = r.lease("ada")
        assert (after.id, after.offer, after.adopted, after.state) == (before.id, SMALL, True, LeaseState.RUNNING)
        assert (r.stands().free, r.stands().held, r.stands().foreign) == (1, 1, 0)
        await r.stop("ada")
        cluster.remove("jupyter-ada")
        await r.refresh()
        await r.refresh(after=1.1)
        assert not r.holds("ada")


class WithClaims(ClusterTable):
    """One MIG device of node ``c`` that is claimed, by the template ``small``; ada's pod has its claim."""

    def view(self, now: datetime) -> ClusterView:
        device = ("gpu.nvidia.com", "pool-c", "gpu-0-mig-1")
        selects = "device.attributes['gpu.nvidia.com'].profile == '1g.5gb'"
        claimed = any(each.claims for each in (self.pods or {}).values())
        return replace(
            super().view(now),
            slices=(SliceDevice(*device, "c", "mig", "NVIDIA A100-SXM4-40GB", "1g.5gb"),),
            templates=(TemplateFacts("small", "mig.nvidia.com", 1, (selects,)),),
            claims=(ClaimFacts(HOME, "claim", (device,), "jupyter-ada"),) if claimed else (),
        )


async def test_a_use_of_a_claimed_device_has_what_the_claim_was_given(tmp_path: Path) -> None:
    async with pod_room(tmp_path, WithClaims()) as r:
        state = await r.ask("ada", "mig-1g.5gb@small")
        assert state.answer == "admit", state
        r.cluster.put(r.pod_for(state, "c", claims=("claim",)))
        await r.refresh()
        await r.ready(state)
        await r.engine.stop_runner.decide_all()
        lease = r.lease("ada")
        assert r.engine.state.uses[lease.id].device == "pool-c/gpu-0-mig-1", "the driver gives it no UUID"


@pytest.mark.parametrize(
    ("cluster", "config", "offer", "changes"),
    [
        (WithClaims(), {}, "mig-1g.5gb@small", {"claims": ("claim",)}),
        (
            ClusterTable(node("c", ("gpu", 1)), node("b", ("gpu", 1), product="NVIDIA-H100-80GB-HBM3")),
            {"fraction_scheduler": "kai", "kai_queue": "team-a"},
            "gpu-0.5@a100-sxm4-40gb",
            {"gpu_group": "g1", "fraction": "0.5"},
        ),
    ],
    ids=["dra", "kai"],
)
async def test_with_a_new_store_a_pod_is_known_by_its_label_where_it_asks_for_no_device_by_name(
    tmp_path: Path, cluster: ClusterTable, config: dict[str, object], offer: str, changes: dict[str, object]
) -> None:
    async with pod_room(tmp_path, cluster, **config) as r:
        r.engine.state.offer_config = OfferConfig(fractions={"gpu": (0.5,)})
        labels = {"lease": "before", "offer": label_value(offer), "user": "ada"}
        cluster.put(pod("jupyter-ada", "c", namespace=HOME, **labels, **changes))
        r.hub.run("ada")
        await r.refresh()
        await r.engine.reconciler.reconcile()
        await r.refresh()
        lease = r.lease("ada")
        assert (lease.id, lease.offer, lease.state) == ("before", offer, LeaseState.RUNNING)
        assert (r.stands(offer).held, r.stands(offer).foreign) == (1, 0)
        assert (await r.ask("ada", offer, server="two")).reason.reason == "own-lease-limit"


async def test_a_stopped_server_that_the_hub_goes_on_to_list_gets_no_second_lease_while_its_pod_is_deleted(
    tmp_path: Path,
) -> None:
    """The hub was killed in the middle of a stop, and its pod has a long time to end in."""
    async with pod_room(tmp_path) as r:
        before = await r.run("ada")
        await r.refresh()
        await r.stop("ada")
        r.hub.run("ada")
        for _ in range(5):
            await r.refresh(after=16)
            await r.engine.reconciler.reconcile()
            await r.refresh()
            assert [(each.id, each.state) for each in r.engine.state.leases.values()] == [
                (before.id, LeaseState.ENDING)
            ]
            assert r.stands().free == 1
        assert ("ada", "") not in r.engine.state.facts
        r.hub.running.clear()
        r.cluster.remove("jupyter-ada")
        await r.refresh()
        await r.refresh(after=1.1)
        assert not r.holds("ada") and r.stands().free == 2


async def test_a_pod_that_went_while_the_service_was_away_ends_its_lease_after_30_s(tmp_path: Path) -> None:
    cluster = ClusterTable(node("a", (SMALL, 2)))
    async with pod_room(tmp_path, cluster) as r:
        await r.run("ada")
        hands = r.hands
    cluster.remove("jupyter-ada")
    async with pod_room(tmp_path, cluster, hands=hands) as r:
        assert r.holds("ada")
        await r.refresh(after=31)
        assert not r.holds("ada")


# ------------------------------------------------------------------ pods the hub has forgotten


async def forget(r: PodRoom, user: str = "ada") -> None:
    """The hub's lists have not had this server for a minute."""
    r.hub.running.pop((user, ""), None)
    for seconds in (1, 60):
        r.hands.pass_time(timedelta(seconds=seconds))
        await r.engine.reconciler.reconcile()
    await r.refresh()


async def test_a_pod_the_hub_has_forgotten_is_shown_and_keeps_its_device(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        await forget(r)
        assert [item.pod.name for item in r.pods.forgotten.pods.values()] == ["jupyter-ada"]
        await r.refresh(after=24 * 3600)
        assert r.cluster.deleted == [], "without a policy nobody deletes it"
        assert r.stands().free == 1
        assert said(caplog, "the hub has forgotten the pod jupyter-ada") == 1


async def test_a_pod_is_forgotten_no_more_when_the_hub_lists_its_server_again(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        await forget(r)
        r.hub.run("ada")
        await r.engine.reconciler.reconcile()
        await r.refresh()
        assert not r.pods.forgotten.pods
        assert r.lease("ada").state is LeaseState.RUNNING


async def test_no_pod_is_forgotten_while_the_hubs_list_is_not_known(tmp_path: Path) -> None:
    async with pod_room(tmp_path, delete_orphaned_pods=True, forgotten_after=timedelta(0)) as r:
        r.cluster.put(pod("jupyter-eve", "a", asks=SMALL, namespace=HOME, user="eve", lease="of-another-time"))
        await r.refresh(after=3600)
        assert (r.pods.forgotten.pods, r.cluster.deleted) == ({}, []), "never listed yet"
        r.hub.away = "it is being restarted"
        await r.engine.reconciler.reconcile()
        await r.refresh(after=3600)
        assert (r.pods.forgotten.pods, r.cluster.deleted) == ({}, []), "it does not answer"


async def test_a_server_that_became_ready_after_the_last_listing_is_not_forgotten(tmp_path: Path) -> None:
    async with pod_room(tmp_path, delete_orphaned_pods=True, forgotten_after=timedelta(0)) as r:
        await r.engine.reconciler.reconcile()
        await r.run("ada")
        await r.refresh(after=10)
        assert (r.pods.forgotten.pods, r.cluster.deleted) == ({}, [])


async def test_a_pod_of_another_hub_is_never_forgotten_by_ours(tmp_path: Path) -> None:
    async with pod_room(tmp_path, delete_orphaned_pods=True, forgotten_after=timedelta(0)) as r:
        theirs = pod("jupyter-eve", "a", asks=SMALL, namespace="other-hub", user="eve", lease="theirs", offer=SMALL)
        r.cluster.put(theirs)
        await r.engine.reconciler.reconcile()
        await r.refresh(after=3600)
        assert (r.pods.forgotten.pods, r.cluster.deleted) == ({}, [])


async def test_the_pod_of_a_ticket_is_not_forgotten_though_the_hub_lists_no_start_of_it(tmp_path: Path) -> None:
    """The hub was started anew in the middle of the start, and begins it again."""
    async with pod_room(tmp_path, delete_orphaned_pods=True, forgotten_after=timedelta(0)) as r:
        r.cluster.put(r.pod_for(await r.ask("ada"), "a"))
        await forget(r)
        await r.refresh(after=10)
        assert r.positions() == {"ada": 0}
        assert (r.pods.forgotten.pods, r.cluster.deleted) == ({}, [])


async def test_by_policy_a_forgotten_pod_is_removed_after_a_while_and_not_twice(tmp_path: Path) -> None:
    async with pod_room(tmp_path, delete_orphaned_pods=True, forgotten_after=timedelta(minutes=5)) as r:
        await r.run("ada")
        await forget(r)
        await r.refresh(after=299)
        assert r.cluster.deleted == []
        await r.refresh(after=2)
        await r.refresh(after=1)
        assert r.cluster.deleted == [(HOME, "jupyter-ada", "uid-jupyter-ada", False)]
        await r.refresh(after=1.1)
        assert not r.holds("ada")
        assert r.engine.state.counts[("pods", "forgotten-removed")] == 1


@pytest.mark.parametrize(
    ("changes", "forgotten"),
    [
        ({"lease": "of-another-time"}, True),
        ({"offer": SMALL}, True),
        ({"offer": "cpu"}, True),
        ({}, False),
        ({"lease": "of-another-time", "user": ""}, False),
        ({"lease": "of-another-time", "phase": "Succeeded"}, False),
        ({"lease": "of-another-time", "phase": "Failed"}, False),
        ({"lease": "of-another-time", "deleting": True}, False),
    ],
)
async def test_only_a_pod_of_ours_that_lives_can_be_forgotten(
    tmp_path: Path, changes: dict[str, str | bool], forgotten: bool
) -> None:
    async with pod_room(tmp_path) as r:
        r.cluster.put(pod("jupyter-eve", "a", asks=SMALL, namespace=HOME, **{"user": "eve", **changes}))
        await r.engine.reconciler.reconcile()
        await r.refresh()
        assert bool(r.pods.forgotten.pods) is forgotten


async def test_nothing_is_removed_while_the_cluster_cannot_be_read(tmp_path: Path) -> None:
    async with pod_room(tmp_path, delete_orphaned_pods=True, forgotten_after=timedelta(minutes=5)) as r:
        await r.run("ada")
        await forget(r)
        r.cluster.problem = "The cluster cannot be read since 12:00: connection refused."
        await r.refresh(after=600)
        assert r.cluster.deleted == []
        r.cluster.problem = ""
        await r.refresh()
        assert len(r.cluster.deleted) == 1


async def test_the_pod_of_a_user_who_was_renamed_meanwhile_is_not_forgotten(tmp_path: Path) -> None:
    """It keeps the old name in its annotations; the hub lists the server under the new one, with the pod's name."""
    async with pod_room(tmp_path, delete_orphaned_pods=True, forgotten_after=timedelta(0)) as r:
        await r.run("ada")
        await r.refresh()
        r.hub.run("augusta")
        r.hub.running["augusta", ""] = replace(r.hub.running["augusta", ""], pod="jupyter-ada")
        await forget(r)
        await r.refresh(after=3600)
        assert (r.pods.forgotten.pods, r.cluster.deleted) == ({}, [])
        r.hub.running.clear()
        await r.engine.reconciler.reconcile()
        await r.refresh()
        assert [item.pod.name for item in r.pods.forgotten.pods.values()] == ["jupyter-ada"]


async def test_a_removal_that_is_refused_is_logged_once_and_tried_again_a_minute_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pod_room(tmp_path, delete_orphaned_pods=True, forgotten_after=timedelta(0)) as r:
        await r.run("ada")
        r.cluster.refuses = (403, "pods is forbidden")
        await forget(r)
        for _ in range(5):
            await r.refresh(after=1)
        assert r.cluster.asked == 1
        r.cluster.refuses = None
        await r.refresh(after=60)
        assert len(r.cluster.deleted) == 1
        assert said(caplog, "cannot be removed") == 1


# ------------------------------------------------------------------ pods without a place


async def test_an_admitted_pod_without_a_place_for_30_s_holds_its_offer_up_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", (SMALL, 2), ("mig-2g.10gb", 1)))) as r:
        state = await r.ask("ada")
        why = "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb."
        r.cluster.put(r.pod_for(state, unscheduled="Unschedulable", unscheduled_why=why))
        await r.refresh()
        await r.refresh(after=29)
        assert r.pods.info().blocked_offers == (), "not yet"
        await r.refresh(after=2)
        await r.refresh(after=60)
        cal = await r.ask("cal")
        assert (cal.answer, cal.position) == ("wait", 1)
        assert "Something outside this hub" in cal.reason.message
        assert (await r.ask("dan", "mig-2g.10gb")).answer == "admit", "another offer's line goes on"
        assert said(caplog, "an admitted pod has no place") == 1
        assert r.pods.info().blocked_offers == (SMALL,)


async def test_a_machine_that_dies_between_admission_and_pod_is_said_not_to_answer(tmp_path: Path) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", (SMALL, 1)), node("b", (SMALL, 1)))) as r:
        r.cluster.put(pod("theirs", "a", asks=SMALL))
        await r.refresh()
        state = await r.ask("ada")
        assert state.answer == "admit"
        assert r.engine.form("ada", "", (), False).silent == ()
        why = "0/2 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb, 1 node(s) had untolerated taint(s)."
        r.cluster.set_node("b", ready=None)
        r.cluster.put(r.pod_for(state, unscheduled="Unschedulable", unscheduled_why=why))
        await r.refresh()
        await r.refresh(after=31)
        cal = await r.ask("cal")
        assert (cal.answer, cal.reason.reason) == ("wait", "machine-silent")
        assert r.engine.form("ada", "", (), False).silent == (SMALL,)


@pytest.mark.parametrize(
    "why",
    [
        "0/1 nodes are available: 1 Insufficient cpu.",
        "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.",
        "0/4 nodes are available: 1 Insufficient memory, 3 Insufficient nvidia.com/mig-1g.5gb.",
    ],
)
async def test_a_pod_that_lacks_something_else_than_a_gpu_holds_up_nobody_but_itself(tmp_path: Path, why: str) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", (SMALL, 2)))) as r:
        state = await r.ask("ada")
        r.cluster.put(r.pod_for(state, unscheduled="Unschedulable", unscheduled_why=why))
        await r.refresh()
        await r.refresh(after=31)
        assert r.pods.info().blocked_offers == ()
        assert (await r.ask("cal")).answer == "admit"


@pytest.mark.parametrize(
    ("offer", "changes", "held_up"),
    [
        (SMALL, {}, (SMALL,)),
        (SMALL, {"deleting": True}, ()),
        (SMALL, {"phase": "Failed"}, ()),
        (SMALL, {"node": "a"}, ()),
        ("cpu", {}, ()),
    ],
)
async def test_a_pod_that_ends_or_asks_for_no_gpu_holds_nobody_up(
    tmp_path: Path, offer: str, changes: dict[str, str | bool], held_up: tuple[str, ...]
) -> None:
    async with pod_room(tmp_path) as r:
        state = await r.ask("ada", offer)
        r.cluster.put(r.pod_for(state, **{"unscheduled": "Unschedulable", **changes}))
        await r.refresh()
        await r.refresh(after=31)
        assert r.pods.info().blocked_offers == held_up


async def test_somebody_elses_pod_with_our_label_on_it_is_not_the_leases_pod(tmp_path: Path) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", (SMALL, 2)))) as r:
        lease = await r.run("ada")
        r.cluster.put(pod("liar", "a", namespace="elsewhere", lease=lease.id, user="eve", server=""))
        await r.refresh()
        assert r.engine.state.pods.of(lease).name == "jupyter-ada"  # type: ignore[union-attr]


async def test_a_hub_that_was_away_has_forgotten_nobody_when_it_is_back(tmp_path: Path) -> None:
    async with pod_room(tmp_path, delete_orphaned_pods=True, forgotten_after=timedelta(seconds=60)) as r:
        await r.run("ada")
        await forget(r)
        await r.refresh(after=59)
        assert len(r.pods.forgotten.pods) == 1
        r.engine.state.hub_view = replace(r.engine.state.hub_view, servers=None)
        r.pods.forget_hub_state()
        await r.refresh(after=600)
        assert not r.cluster.deleted and not r.pods.forgotten.pods


async def test_the_line_goes_on_when_the_pod_got_its_place(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        state = await r.ask("ada")
        r.cluster.put(r.pod_for(state))
        await r.refresh()
        await r.refresh(after=31)
        assert (await r.ask("ben")).answer == "wait"
        r.cluster.put(r.pod_for(state, "a"))
        await r.refresh()
        assert r.positions() == {"ada": 0, "ben": 0}


async def test_a_pod_that_hami_finds_no_card_for_holds_its_offer_up(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        state = await r.ask("ada")
        why = "0/1 nodes are available: 1 NodeUnfitPod. preemption: 0/1 nodes are available."
        r.cluster.put(r.pod_for(state, unscheduled="Unschedulable", unscheduled_why=why))
        await r.refresh()
        await r.refresh(after=31)
        told = await r.ask("ben")
        assert (told.answer, told.reason.reason) == ("wait", "taken-outside")


async def test_a_pod_that_is_not_made_yet_holds_nobody_up(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.ask("ada")
        await r.refresh(after=60)
        assert (await r.ask("ben")).answer == "admit"


@pytest.mark.parametrize("config", [{"kueue_queue": "lq"}, {"kai_queue": "team-a"}])
async def test_where_the_line_is_anothers_nobody_waits_in_ours_and_nothing_is_held_up(
    tmp_path: Path, config: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with pod_room(tmp_path, one(), **config) as r:
        for user in ("ada", "ben", "cal"):
            state = await r.ask(user)
            assert state.answer == "admit"
            r.cluster.put(r.pod_for(state, unscheduled="SchedulingGated"))
        await r.refresh()
        await r.refresh(after=3600)
        assert (await r.ask("dan")).answer == "admit"
        assert r.pods.info().blocked_offers == ()
        assert said(caplog, "no place") == 0


@pytest.mark.parametrize(
    ("config", "name"), [({"kueue_queue": "lq"}, "Kueue"), ({"kai_queue": "team-a"}, "KAI"), ({}, "")]
)
async def test_the_form_says_whose_line_it_is_and_makes_no_place_in_it_up(
    tmp_path: Path, config: dict[str, str], name: str
) -> None:
    async with pod_room(tmp_path, one(), **config) as r:
        r.cluster.put(pod("training", "a", asks=SMALL))
        await r.refresh()
        (offer, cpu) = r.engine.form("ada", "", (), False).offers
        assert (offer.queue, cpu.queue) == (name, "")
        theirs = f"{name} hands out the GPUs here and does not say how long it takes."
        assert wait_text(offer) == (theirs if name else "if you joined now: 1st in line, wait not known")


async def test_pods_that_wait_in_anothers_line_do_not_use_the_start_brake_up(tmp_path: Path) -> None:
    async with pod_room(tmp_path, one(), kueue_queue="lq") as r:
        r.engine.state.config = QueueLimits(max_starting=1)
        for user in ("ada", "ben", "cal"):
            state = await r.ask(user)
            assert state.answer == "admit"
            r.cluster.put(r.pod_for(state, unscheduled="SchedulingGated"))
            assert (await r.ask(f"{user}2")).answer == "wait", "its pod is not seen yet: it is starting"
            await r.engine.leave(r.ticket(f"{user}2"), f"{user}2")
            await r.refresh()


# ------------------------------------------------------------------ a cluster that cannot be read


async def test_while_the_cluster_cannot_be_read_nothing_ends_and_after_60_s_nothing_is_known(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        await r.refresh()
        r.cluster.problem = "The cluster cannot be read since 12:00: connection refused."
        r.cluster.remove("jupyter-ada")
        await r.refresh(after=59)
        assert (r.holds("ada"), r.stands().free) == (True, 1), "the last figures are not old"
        await r.refresh(after=2)
        assert (r.holds("ada"), r.stands().free, r.stands().total) == (True, None, None)
        state = await r.ask("ben")
        assert (state.answer, state.reason.reason) == ("wait", "unknown-inventory")
        assert (await r.ask("cal", "cpu")).answer == "admit"
        assert r.pods.info().problem.startswith("The cluster cannot be read")
        r.cluster.problem = ""
        await r.refresh()
        assert r.positions()["ben"] == 0
        await r.refresh(after=1.1)
        assert not r.holds("ada")


async def test_where_no_pod_may_be_read_no_lease_ends_by_itself_and_nobody_is_admitted(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        r.cluster.pods = None
        await r.refresh(after=3600)
        assert r.lease("ada").state is LeaseState.RUNNING
        assert r.stands().free is None
        assert (await r.ask("ben")).answer == "wait"


async def test_where_nodes_may_not_be_read_the_configured_capacity_is_given_out(tmp_path: Path) -> None:
    blind = ClusterTable()
    blind.nodes = None
    async with pod_room(tmp_path, blind, capacity={SMALL: 1}) as r:
        state = await r.ask("ada")
        r.cluster.put(r.pod_for(state, "somewhere"))
        await r.refresh()
        await r.ready(state)
        assert (await r.ask("ben")).answer == "wait"
        assert r.pods.info().configured
        await r.refresh(after=3600)
        assert r.lease("ada").state is LeaseState.RUNNING, "a machine that is not seen is not lost"


async def test_a_setting_that_a_cluster_would_refuse_costs_its_offer_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cards = ClusterTable(node("a", ("gpu", 1)))
    async with pod_room(tmp_path, cards, fraction_scheduler="kai") as r:
        r.engine.state.offer_config = OfferConfig(fractions={"gpu": (0.5,)})
        await r.refresh()
        await r.refresh()
        assert said(caplog, "gpu-0.5 is not offered") == 1
        await r.run("ada", "gpu")
        r.cluster.remove("jupyter-ada")
        await r.refresh()
        await r.refresh(after=1.1)
        assert not r.holds("ada")


# ------------------------------------------------------------------ names


def h100(name: str) -> NodeFacts:
    return node(name, ("gpu", 1), product="NVIDIA-H100-80GB-HBM3")


async def test_a_pools_name_survives_a_restart_of_the_service(tmp_path: Path) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", ("gpu", 1)))) as r:
        assert r.stands("gpu").free == 1
    async with pod_room(tmp_path, ClusterTable(h100("b"))) as r:
        offers = {offer.id: offer.product for offer in r.engine.state.offers}
        assert offers == {"gpu@h100-80gb-hbm3": "NVIDIA H100-80GB-HBM3", "cpu": ""}, "the plain one is the A100's"
    async with pod_room(tmp_path, ClusterTable(node("a", ("gpu", 1)), h100("b"))) as r:
        assert r.stands("gpu").offer.product == "NVIDIA A100-SXM4-40GB"
        assert r.stands("gpu@h100-80gb-hbm3").free == 1
