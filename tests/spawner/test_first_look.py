"""The hub's first look at a slow cluster: who gives a start up in the middle of it harms nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.service import SECRET, GpuServiceInATest
from tests.hubs import Hub, until
from tests.patience import patient
from tests.spawner.played_cluster import PlayedCluster

pytestmark = pytest.mark.hub


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PlayedCluster]:
    with PlayedCluster(tmp_path / "cluster") as running:
        yield running


@pytest.mark.whole
def test_a_start_that_is_given_up_while_the_cluster_is_read_for_the_first_time_harms_no_other(
    tmp_path: Path, cluster: PlayedCluster
) -> None:
    """KubeSpawner's shared copy of the pods would never get ready, and every start and stop would wait for it."""
    with GpuServiceInATest({}) as service:
        config = f"""
import hub_extensions.spawner.pages.spawn_form as form
c.JupyterHub.spawner_class = "hub_extensions.spawner.kube.GpuKubeSpawner"
c.GpuSpawnerMixin.gpu_service_url = {service.url!r}
c.GpuSpawnerMixin.gpu_hub_secret = {SECRET!r}
c.JupyterHub.template_paths = [str(form.TEMPLATES)]
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 1}}
c.KubeSpawner.namespace = "hub"
c.KubeSpawner.start_timeout = {int(patient(20))}
c.KubeSpawner.image = "lab:1"
"""
        cluster.list_seconds = 4.0
        with Hub(tmp_path / "hub", config, env=cluster.env) as hub:
            hub.add_users("ada", "ben")
            for user in ("ada", "ben"):
                assert hub.spawn(user, {"offer": "cpu"}).status_code == 202
            until(lambda: any("pods" in asked for asked in cluster.requests), 10, lambda: str(cluster.requests))
            assert hub.stop_server("ada").status_code in (202, 204)
            hub.wait_ready("ben")
            until(lambda: hub.server("ada") is None, 20, "ada's stop is over")
            hub.spawn("ada", {"offer": "cpu"})
            hub.wait_ready("ada")
