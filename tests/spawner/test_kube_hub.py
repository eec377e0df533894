"""A real hub with our spawner on a played cluster: the pod, retries, what the page says, and why a server ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.core.messages import Ended, FormState, LeaseGrant, Started, Stopped, TicketStatus
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import LEASE_LABEL, Mechanism, PodAsk
from hub_extensions.core.text.reasons import as_text
from hub_extensions.spawner.spawn_errors import COUNTS_REFUSALS
from tests.fakes.service import SECRET, GpuServiceInATest
from tests.hubs import Hub, until
from tests.patience import patient
from tests.spawner.played_cluster import KUEUE_DOWN, LACKING, OVER_QUOTA, PlayedCluster

pytestmark = pytest.mark.hub
ONE = "mig-1g.5gb"
RECLAIMED = (
    "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to reclamation within the cohort; preemptor path: "
    "/gpus/proj-b; preemptee path: /gpus/proj-a"
)

LIMIT = int(patient(5))
"""A `start_timeout` that is long enough for a start, in seconds."""


class GpuServiceOfACluster(GpuServiceInATest):
    """Grants say what a pod asks for. `queue`: whose line it is; "" for its own."""

    queue = ""

    def grant(self, state: TicketStatus, offer: str) -> LeaseGrant:
        plain = super().grant(state, offer)
        if offer == "cpu":
            return plain
        ask = PodAsk(
            Mechanism.MIG,
            limits={f"nvidia.com/{offer}": "1"},
            tolerations=("nvidia.com/gpu",),
            labels={"kueue.x-k8s.io/queue-name": "lab"} if self.queue else {},
            queue=self.queue,
        )
        environment = {"JUPYTERHUB_GPU_LEASE": plain.lease}
        return replace(plain, uuid=None, environment=environment, pod=ask)


@pytest.fixture
def service() -> Iterator[GpuServiceOfACluster]:
    with GpuServiceOfACluster({ONE: 2}) as running:
        yield running


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PlayedCluster]:
    with PlayedCluster(tmp_path / "cluster") as running:
        yield running


def a_hub(tmp_path: Path, cluster: PlayedCluster, service: GpuServiceInATest, more: str = "") -> Hub:
    config = f"""
import hub_extensions.spawner.pages.spawn_form as form
c.JupyterHub.spawner_class = "hub_extensions.spawner.kube.GpuKubeSpawner"
c.GpuSpawnerMixin.gpu_service_url = {service.url!r}
c.GpuSpawnerMixin.gpu_hub_secret = {SECRET!r}
c.JupyterHub.template_paths = [str(form.TEMPLATES)]
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 1}}
c.KubeSpawner.namespace = "hub"
c.KubeSpawner.start_timeout = {int(patient(20))}
c.KubeSpawner.image = "lab:1"
c.GpuKubeSpawner.gpu_unschedulable_seconds = 2
{more}
"""
    return Hub(tmp_path / "hub", config, env=cluster.env)


def events(hub: Hub, user: str, seconds: float = 20) -> list[dict[str, Any]]:
    return list(hub.progress(user, seconds=seconds))


def refused(hub: Hub, user: str, options: object) -> str:
    """What a start that is turned down says, at once or on its waiting page.

    A hub that is refused just when its patience for a quick start ends (1 s) answers 201, though nothing was started.
    Its answer about the progress is then 400, and the sentence stands on the page that the user opens.
    """
    answer = hub.spawn(user, options)
    if not answer.ok:
        return str(answer.json()["message"])
    try:
        last = events(hub, user)[-1]
    except requests.HTTPError as problem:
        assert problem.response.status_code == 400
        page = hub.login(user).get(f"{hub.url}/hub/spawn-pending/{user}").content.decode()
        return page.partition('id="gpu-refused"')[2]
    assert last.get("failed"), last
    return str(last["message"])


def in_finnish(hub: Hub, user: str) -> str:
    """The page of a start that failed, as a Finnish browser asks for it anew."""
    answer = hub.login(user).get(f"{hub.url}/hub/spawn-pending/{user}", headers={"Accept-Language": "fi"})
    return answer.content.decode().partition('id="gpu-refused"')[2]


def test_a_pod_is_made_once_admitted_and_its_server_answers(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    with a_hub(tmp_path, cluster, service) as hub:
        hub.add_users("ada", "ben", "cem", "dora")
        for user in ("ada", "ben"):
            hub.spawn(user, {"offer": ONE})
            hub.wait_ready(user)
        hub.spawn("cem", {"offer": ONE})
        hub.spawn("dora", {"offer": "cpu"})
        hub.wait_ready("dora")
        until(lambda: hub.pending("cem") == "spawn")
        assert len(cluster.made) == 3, "who waits has no pod"
        pod = cluster.pods["jupyter-ada"]
        assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mig-1g.5gb"] == "1"
        assert pod["metadata"]["labels"][LEASE_LABEL] == service.lease_of("t1")
        seen = hub.environ("ada")
        assert "CUDA_VISIBLE_DEVICES" not in seen and "NVIDIA_VISIBLE_DEVICES" not in seen
        assert seen["JUPYTERHUB_GPU_LEASE"] == service.lease_of("t1")
        assert hub.environ("dora")["NVIDIA_VISIBLE_DEVICES"] == "void"
        assert "CPU only has no lease" and LEASE_LABEL not in cluster.pods["jupyter-dora"]["metadata"]["labels"]
        hub.stop_server("ada")
        hub.wait_ready("cem")
        assert [m.user for m in service.told_of(Stopped)] == ["ada"]
        assert service.told_of(Stopped)[0].reasons == ()
        until(lambda: [m.ready for m in service.told_of(Started)].count(True) == 4, what="the hub told of all four")


@pytest.mark.whole
def test_a_pod_that_its_machine_turned_down_is_made_once_more_under_the_same_lease(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    """T19."""
    cluster.plan = ["refuse", "run", "refuse", "refuse"]
    with a_hub(tmp_path, cluster, service) as hub:
        hub.add_users("ada", "ben")
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        leases = [made["metadata"]["labels"][LEASE_LABEL] for made in cluster.made]
        assert len(leases) == 2 and len(set(leases)) == 1
        assert "nodeName" not in cluster.made[1]["spec"], "placed by the scheduler as ever"
        hub.spawn("ben", {"offer": ONE})
        said = events(hub, "ben")[-1]
        assert said["failed"]
        assert "The machine that was chosen could not hand out the GPU. It was tried twice." in said["message"]
        assert len(cluster.made) == 4
        until(lambda: "jupyter-ben" not in cluster.pods, what="the failed pod is deleted")
        until(lambda: [m.how for m in service.told_of(Ended)] == ["failed"])
        assert "no such device" in hub.log()


@pytest.mark.whole
def test_something_outside_took_the_device_is_said_and_the_limit_of_the_start_does_not_run_meanwhile(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    """T10: `start_timeout` begins when a machine was found."""
    cluster.plan = ["no-place"]
    with a_hub(tmp_path, cluster, service, f"c.KubeSpawner.start_timeout = {LIMIT}") as hub:
        hub.add_users("ada")
        began = time.monotonic()
        hub.spawn("ada", {"offer": ONE})
        for event in hub.progress("ada", seconds=20):
            if (event.get("gpu") or {}).get("why", {}).get("reason") == "outside":
                assert event["gpu"]["state"] == "held"
                assert "Something outside this hub took the MIG 1g.5gb" in event["gpu"]["reason"]
                break
        until(lambda: time.monotonic() - began > LIMIT + 2, what="longer than the limit of a start")
        assert hub.pending("ada") == "spawn"
        cluster.run_pod("jupyter-ada")
        hub.wait_ready("ada")
        assert LACKING in hub.log()


@pytest.mark.whole
def test_a_machine_that_dies_between_admission_and_pod_is_said_not_to_answer(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    """No pod says of its own that a machine is out: the service's look at the nodes does."""
    cluster.plan = ["no-place"]
    service.silent = (OfferId(ONE),)
    with a_hub(tmp_path, cluster, service) as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"offer": ONE})
        said = next(
            event["gpu"] for event in hub.progress("ada", seconds=20) if "does not answer" in str(event.get("gpu"))
        )
        text = (
            "A machine that has MIG 1g.5gb does not answer, and no other has one free. You stay first in line for it."
        )
        assert (said["state"], said["why"]["reason"], said["reason"]) == ("held", "machine-silent", text)


class ServiceWhoseMachineFallsSilent(GpuServiceOfACluster):
    """Its machine answers when the service is first asked for the offers, and never after."""

    def form(self, *asked: Any, **more: Any) -> FormState:
        seen = super().form(*asked, **more)
        self.silent = (OfferId(ONE),)
        return seen


@pytest.mark.whole
def test_a_machine_that_has_just_fallen_silent_is_never_taken_for_something_outside(
    tmp_path: Path, cluster: PlayedCluster
) -> None:
    """The service is asked again before anybody else is blamed."""
    cluster.plan = ["no-place"]
    with ServiceWhoseMachineFallsSilent({ONE: 2}) as service, a_hub(tmp_path, cluster, service) as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"offer": ONE})
        said: list[str] = []
        for event in hub.progress("ada", seconds=30):
            said.append(str(event.get("gpu")))
            if "does not answer" in said[-1]:
                break
        assert "does not answer" in said[-1]
        assert any("is not free now" in each for each in said), "it was asked while all was well"
        assert not any("outside this hub" in each for each in said)


@pytest.mark.whole
def test_kueues_line_is_waited_in_and_a_server_it_takes_back_is_told_apart_from_a_crash(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    service.queue = "Kueue"
    cluster.plan = ["gated"]
    with a_hub(tmp_path, cluster, service, f"c.KubeSpawner.start_timeout = {LIMIT}") as hub:
        hub.add_users("ada")
        began = time.monotonic()
        hub.spawn("ada", {"offer": ONE})
        held = next(e for e in hub.progress("ada") if (e.get("gpu") or {}).get("state") == "held")
        assert held["gpu"]["reason"] == "Kueue hands out the GPUs here, and has not given MIG 1g.5gb to it yet."
        until(lambda: time.monotonic() - began > LIMIT + 2)
        assert hub.pending("ada") == "spawn"
        cluster.run_pod("jupyter-ada")
        hub.wait_ready("ada")
        cluster.event("jupyter-ada", "Stopped", RECLAIMED, "Normal")
        until(lambda: any("watch=" in line and "/events" in line for line in cluster.requests))
        cluster.remove("jupyter-ada")
        until(lambda: service.told_of(Stopped))
        assert service.told_of(Stopped)[0].reason == "reclaimed"
        assert as_text(service.told_of(Stopped)[0].reasons).startswith("Kueue took its GPU back")


@pytest.mark.whole
def test_a_kueue_that_is_down_reads_as_such_and_the_start_goes_on_when_it_is_back(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    service.queue = "Kueue"
    cluster.answers = [(500, KUEUE_DOWN)] * 2
    with a_hub(tmp_path, cluster, service) as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"offer": ONE})
        said = [e["gpu"]["reason"] for e in hub.progress("ada") if (e.get("gpu") or {}).get("reason")]
        assert said[0] == (
            "Kueue, which hands out the GPUs here, does not answer. The start is tried again until it does."
        )
        assert hub.ready("ada")
        assert "Failed for the pod jupyter-ada" in hub.log()
        assert "JUPYTERHUB_API_TOKEN" not in hub.log()


@pytest.mark.whole
def test_a_quota_and_an_image_that_is_not_there_are_refusals_in_words_and_no_fault_of_the_hub(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    cluster.answers = [(403, OVER_QUOTA)]
    cluster.plan = ["no-image"]
    with a_hub(
        tmp_path, cluster, service, "c.KubeSpawner.image = 'no/such:1'\nc.Spawner.consecutive_failure_limit = 1"
    ) as hub:
        hub.add_users("ada", "ben")
        quota = refused(hub, "ada", {"offer": ONE})
        assert "The cluster's quota for this hub is used up: 2 of mig-1g.5gb." in quota
        image = refused(hub, "ben", {"offer": ONE})
        assert "The image no/such:1 cannot be pulled: there is no such image." in image
        assert "Konttikuvaa no/such:1 ei voi noutaa: sellaista kuvaa ei ole." in in_finnish(hub, "ben")
        until(lambda: not cluster.pods, what="the pod that failed is deleted")
        assert hub.running
        if not COUNTS_REFUSALS:
            metrics = hub.api("GET", "metrics").text
            assert 'reason="quota"' in metrics and 'reason="image"' in metrics


@pytest.mark.whole
def test_a_gpu_that_a_hook_adds_is_refused_and_one_that_our_offer_replaces_is_not(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    """What everybody copied from a thread: a limit for all servers, and a hook that sets it again after ours."""
    hooks = """
c.KubeSpawner.extra_resource_limits = {"nvidia.com/gpu": 1}

def add_gpu(spawner, pod):
    if spawner.user.name in ("ada", "ben"):
        pod.spec.containers[0].resources.limits["nvidia.com/gpu"] = "1"
    if spawner.user.name == "ben":
        spawner.foreign_gpus = "warn"
    return pod

def add_container(spawner):
    if spawner.user.name == "dora":
        spawner.init_containers = [{"name": "mine", "image": "x", "resources": {"limits": {"nvidia.com/a100": 1}}}]

c.KubeSpawner.modify_pod_hook = add_gpu
c.Spawner.pre_spawn_hook = add_container
"""
    with a_hub(tmp_path, cluster, service, hooks) as hub:
        hub.add_users("ada", "ben", "cem", "dora")
        for user, offer in (("ada", "cpu"), ("dora", ONE)):
            assert "gives it other GPUs than you chose" in refused(hub, user, {"offer": offer})
        assert cluster.made == [], "nothing outside a lease was started"
        for user in ("ben", "cem"):
            hub.spawn(user, {"offer": ONE})
            hub.wait_ready(user)
        limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in cluster.made]
        assert [sorted(each) for each in limits] == [["nvidia.com/gpu", f"nvidia.com/{ONE}"], [f"nvidia.com/{ONE}"]]
        assert "its server asks for nvidia.com/gpu=1, and its lease gives no such GPU" in hub.log()
        assert "container mine asks for nvidia.com/a100=1" in hub.log()


@pytest.mark.whole
def test_a_server_that_runs_out_of_memory_is_told_apart_from_a_crash(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    with a_hub(tmp_path, cluster, service) as hub:
        hub.add_users("ada", "ben")
        for user, reason, code in (("ada", "OOMKilled", 137), ("ben", "Error", 1)):
            hub.spawn(user, {"offer": ONE})
            hub.wait_ready(user)

            def end(pod: dict[str, Any], reason: str = reason, code: int = code) -> None:
                ended = {"terminated": {"reason": reason, "exitCode": code}}
                pod["status"]["containerStatuses"][0] |= {"state": ended, "ready": False}

            cluster.change(f"jupyter-{user}", end)
        until(lambda: len(service.told_of(Stopped)) == 2, 30)
        words = {m.user: (m.reason, as_text(m.reasons)) for m in service.told_of(Stopped)}
        assert words["ada"] == ("out-of-memory", "The server needed more memory than it has and was ended.")
        assert words["ben"] == ("crashed", "The server crashed with exit code 1.")
        (ben,) = [m for m in service.told_of(Stopped) if m.user == "ben"]
        assert as_text(ben.reasons, t=catalogue_for("fi")) == "Palvelin kaatui paluukoodilla 1."


@pytest.mark.whole
def test_a_lease_is_not_held_for_hours_by_a_server_that_lacks_something_else_than_a_gpu(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    cluster.plan = ["no-memory"]
    with a_hub(tmp_path, cluster, service, "c.KubeSpawner.start_timeout = 4") as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"offer": ONE})
        said = events(hub, "ada")
        assert said[-1]["failed"]
        assert "No machine has enough free memory for it now. Your server did not start within 4 s" in str(said[-1])
        finnish = "Millään koneella ei nyt ole sille tarpeeksi tilaa (muisti)."
        held = [event["gpu"] for event in said if event.get("gpu", {}).get("state") == "held"]
        assert [gpu["said"]["fi-FI"]["reason"] for gpu in held] == [finnish]
        assert f"{finnish} Palvelimesi ei käynnistynyt ajassa 4 s" in in_finnish(hub, "ada"), "after a reload"
        until(lambda: not cluster.pods)
        until(lambda: [m.how for m in service.told_of(Ended)] == ["failed"])


@pytest.mark.whole
def test_a_server_on_a_silent_machine_is_never_deleted_by_force_and_its_owner_reads_why_no_new_one_starts(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    """Its lease ends with its pod, and nobody knows whether it still runs and writes."""
    with a_hub(tmp_path, cluster, service, f"c.KubeSpawner.start_timeout = {LIMIT}") as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        uid = cluster.pods["jupyter-ada"]["metadata"]["uid"]
        cluster.silent.add("jupyter-ada")
        hub.stop_server("ada")
        until(lambda: hub.server("ada") is None, 20, "the hub gives its stop up")
        hub.spawn("ada", {"offer": ONE})
        said = events(hub, "ada")
        assert said[-1]["failed"]
        assert f"Your last server is still being ended. Your server did not start within {LIMIT} s" in str(said[-1])

        def long_ago(pod: dict[str, Any]) -> None:
            pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"

        cluster.change("jupyter-ada", long_ago)
        until(lambda: hub.server("ada") is None, 20)
        assert "Your last server is on a machine that does not answer" in refused(hub, "ada", {"offer": ONE})
        assert cluster.pods["jupyter-ada"]["metadata"]["uid"] == uid and len(cluster.made) == 1
        assert not any("gracePeriodSeconds=0" in asked for asked in cluster.requests)
        cluster.remove("jupyter-ada")
        until(lambda: hub.server("ada") is None, 20)
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")


def a_server_outlives(hub: Hub) -> None:
    """ada's server runs, and the hub beside it is another one."""
    hub.add_users("ada")
    hub.spawn("ada", {"offer": ONE})
    hub.wait_ready("ada")
    hub.kill()
    hub.start()
    assert hub.ready("ada")


@pytest.mark.whole
def test_a_server_that_its_machine_starts_anew_after_a_restart_of_the_hub_is_left_to_it(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    """A machine that boots runs init containers again, and the pod reads as pending meanwhile."""
    with a_hub(tmp_path, cluster, service, "c.Spawner.poll_interval = 1") as hub:
        a_server_outlives(hub)

        def boots(pod: dict[str, Any]) -> None:
            pod["status"] |= {"phase": "Pending", "containerStatuses": []}

        uid = cluster.pods["jupyter-ada"]["metadata"]["uid"]
        cluster.change("jupyter-ada", boots)
        asked, began = len(cluster.requests), time.monotonic()
        until(lambda: time.monotonic() - began > 4)
        assert hub.ready("ada") and cluster.pods["jupyter-ada"]["metadata"]["uid"] == uid
        assert not any(one.startswith("DELETE") for one in cluster.requests[asked:])


@pytest.mark.whole
def test_after_a_restart_of_the_hub_a_server_that_kai_took_back_is_told_as_that(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    with a_hub(tmp_path, cluster, service, "c.Spawner.poll_interval = 1") as hub:
        a_server_outlives(hub)

        def preempted(pod: dict[str, Any]) -> None:
            pod["metadata"]["labels"]["kai.scheduler/queue"] = "lab"
            why = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            pod["status"]["conditions"].append(why)
            pod["status"]["phase"] = "Failed"
            pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 143, "reason": "Error"}}

        cluster.change("jupyter-ada", preempted)
        until(lambda: service.told_of(Stopped), 20)
        (told,) = service.told_of(Stopped)
        assert told.reason == "reclaimed"
        assert as_text(told.reasons) == "KAI took its GPU back for a group that has a right to it."


@pytest.mark.whole
def test_a_stop_while_the_cluster_has_no_place_deletes_the_pod_and_gives_the_place_up(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    cluster.plan = ["no-place"]
    with a_hub(tmp_path, cluster, service) as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"offer": ONE}, "exam")
        until(lambda: cluster.pods)
        hub.stop_server("ada", "exam")
        until(lambda: not cluster.pods)
        until(lambda: [m.how for m in service.told_of(Ended)] == ["left"])


@pytest.mark.whole
def test_a_pod_that_is_made_after_its_start_was_stopped_is_not_left(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    """A create under way when its user stops the start: KubeSpawner knows of no pod then, and stops nothing."""
    cluster.creates.clear()
    with a_hub(tmp_path, cluster, service) as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"offer": ONE})
        until(lambda: any(said.startswith("POST") for said in cluster.requests))
        hub.stop_server("ada")
        until(lambda: hub.server("ada") is None)
        cluster.creates.set()
        until(lambda: cluster.made)
        until(lambda: not cluster.pods, 60)
        assert "its start has ended and its pod was left" in hub.log()


@pytest.mark.whole
def test_cpu_only_starts_though_the_service_has_lost_its_ticket(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    cluster.creates.clear()
    with a_hub(tmp_path, cluster, service) as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"offer": "cpu"})
        until(lambda: any(said.startswith("POST") for said in cluster.requests))
        service.take_out("ada", unheard=True)
        cluster.creates.set()
        hub.wait_ready("ada")
        until(lambda: "did not take a message" in hub.log())


@pytest.mark.whole
def test_a_restarted_hub_keeps_its_servers_and_tells_of_their_end(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    """T3: a pod that had no place when the hub was killed is made anew under its ticket, and not taken for ready."""
    cluster.plan = ["run", "no-place"]
    with a_hub(tmp_path, cluster, service) as hub:
        hub.add_users("ada", "ben")
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        hub.spawn("ben", {"offer": ONE})
        until(lambda: "jupyter-ben" in cluster.pods)
        first = cluster.pods["jupyter-ben"]["metadata"]["uid"]
        hub.kill()
        hub.start()
        assert hub.ready("ada")
        until(lambda: hub.server("ben") is None)
        hub.spawn("ben", {"offer": ONE})
        hub.wait_ready("ben")
        assert cluster.pods["jupyter-ben"]["metadata"]["uid"] != first
        hub.stop_server("ada")
        until(lambda: service.told_of(Stopped))
        assert [m.user for m in service.told_of(Stopped)] == ["ada"]


@pytest.mark.whole
def test_an_api_server_that_is_away_for_a_while_costs_nobody_a_place_or_a_server(
    tmp_path: Path, cluster: PlayedCluster, service: GpuServiceOfACluster
) -> None:
    with a_hub(tmp_path, cluster, service) as hub:
        hub.add_users("ada", "ben")
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        cluster.close()
        hub.spawn("ben", {"offer": ONE})
        held = next(
            e for e in hub.progress("ben") if (e.get("gpu") or {}).get("why", {}).get("reason") == "cluster-away"
        )
        assert held["gpu"]["reason"] == "The cluster does not answer now. The start is tried again until it does."
        assert hub.ready("ada")
        cluster.open()
        hub.wait_ready("ben", seconds=60)
        assert hub.ready("ada")
