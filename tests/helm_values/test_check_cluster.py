"""``helm check --cluster`` beside nodes of a cluster: an offer that none has is named, with those there are."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hub_extensions.spawner.config import spawner_classes
from hub_extensions.tools.cli import main
from hub_extensions.tools.helm_check import check
from tests.cluster.control_plane import ControlPlane
from tests.cluster.played_nodes import PlayedNodes
from tests.hubs import ROOT

BASE = str(ROOT / "helm-values" / "gpu.yaml")
IMAGES = str(ROOT / "helm-values" / "own-images.yaml")
VALUES = """
hub:
  config:
    GpuOffers:
      fractions: {mig-3g.20gb: [0.5]}
      # words for cards that may come do no harm
      titles: {mig-1g.5gb: Small GPU, mig-1g.10gb: Small GPU}
      groups: {mig-2g.10gb: [thesis]}
      hidden: [mig-7g.40gb]
      resources: {nvidia.com/a100: gpu, nvidia.com/h100: gpu@h100}
    GpuCulling:
      idle_minutes_by_offer: {mig-1g.5gb: 10}
"""


@pytest.fixture
def kubeconfig(
    control_plane: ControlPlane, played_nodes: PlayedNodes, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """KUBECONFIG of a cluster with a node of small and middle slices."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    slices: dict[str, str | int] = {"nvidia.com/mig-1g.5gb": 5, "nvidia.com/mig-2g.10gb": 1, "nvidia.com/a100": 1}
    slices["nvidia.com/l4"] = 2
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))
    with played_nodes.node("values-check", slices, labels=labels):
        yield control_plane.kubeconfig


def run(file: Path, *words: str) -> Result:
    return CliRunner().invoke(
        main, ["helm", "check", "-f", BASE, "-f", IMAGES, "-f", str(file), *words], catch_exceptions=False
    )


def told(result: Result) -> dict[str, Any]:
    """Key -> severity and remedy; the names in the shipped files are still to be written."""
    findings = json.loads(result.output)["findings"]
    return {each["key"]: (each["severity"], each["fix"]) for each in findings if each["rule"] != "placeholder"}


@pytest.mark.needs("cluster")
def test_an_offer_that_no_node_has_is_named_with_those_there_are(kubeconfig: Path, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(VALUES)
    assert told(run(file, "--json")) == {}, "without --cluster nobody asks"
    result = run(file, "--cluster", "--json")
    assert result.exit_code == 1
    there = "There are cpu, gpu, mig-1g.5gb, mig-2g.10gb."
    assert told(result) == {
        'hub.config.GpuOffers.fractions."mig-3g.20gb"': ("problem", there),
        "hub.config.GpuOffers.hidden": ("look at", there),
        'hub.config.GpuOffers.resources."nvidia.com/h100"': ("look at", "There are nvidia.com/a100, nvidia.com/l4."),
        "hub.config.GpuOffers.resources": (
            "look at",
            "Say which offer it is: {nvidia.com/l4: gpu}; or leave it to virtual machines.",
        ),
    }


@pytest.mark.parametrize("words", [("helm", "check", "-f", BASE, "-f", IMAGES, "--cluster"), ("offers", "--cluster")])
def test_without_pythons_packages_for_kubernetes_one_sentence_says_so(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.aio", None)
    result = CliRunner().invoke(main, list(words), catch_exceptions=False)
    assert result.exit_code == 2
    (said,) = (result.output + result.stderr if not result.output else result.output).splitlines()
    assert said.endswith("(kubernetes.aio): pip install 'jupyterhub-gpu[kubernetes]'.")


def test_without_kubespawner_the_names_of_its_settings_are_said_to_be_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("hub: {config: {GpuKubeSpawner: {gpu_shm_siz: 2Gi}}}\n")
    known = importlib.util.find_spec
    monkeypatch.setattr(check, "find_spec", lambda name: None if name == "kubespawner" else known(name))
    monkeypatch.setattr(spawner_classes, "_load", lambda name: None)
    result = run(file, "--strict")
    assert result.exit_code == 1
    assert "the names of these settings were not checked" in result.output


def test_a_cluster_that_does_not_answer_is_exit_status_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("{}\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    result = run(file, "--cluster")
    assert result.exit_code == 2
    assert "--cluster: " in result.output + result.stderr
