"""The values files as an admin gets them: they merge, name settings that exist, and the README tells all of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from hub_extensions.adapters.files.mig_tables import packed_tables
from hub_extensions.configuration import dry_run
from hub_extensions.core.gpu.mig import table_for
from hub_extensions.spawner.config.traits import SECTIONS
from hub_extensions.spawner.kube import GpuKubeSpawner
from hub_extensions.tools.helm_check.chart_config import merge
from hub_extensions.tools.helm_check.chart_facts import packed_facts
from tests.fakes.mig_layouts import arrange
from tests.helm_values.chart_config import extra_config, hub_config
from tests.hubs import ROOT

FOLDER = ROOT / "helm-values"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
OVERLAYS = sorted(path.name for path in FOLDER.glob("*.yaml"))
EXAMPLES = sorted(path.parent.name for path in FOLDER.glob("examples/*/values.yaml"))
CLASSES = {section.__name__: section for section in (*SECTIONS, GpuKubeSpawner)}
APART = [("fractions-kai.yaml", "kueue.yaml"), ("time-slicing.yaml", "mps.yaml"), ("dra.yaml", "packing.yaml")]
"""Pairs that the README says not to take together."""


def values(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return found


def files_of(example: str) -> list[str]:
    """What the example's own README gives to Helm, in its order; the first is the admin's own file."""
    readme = (FOLDER / "examples" / example / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^  -f (\S+)", readme, re.MULTILINE)
    assert named[0] == "your-values.yaml"
    return [name.removeprefix("helm-values/") for name in named[1:]]


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def lists(content: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Keys whose value is a list, and not within one."""
    for key, value in content.items():
        here = f"{path}.{key}".lstrip(".")
        if isinstance(value, list):
            yield here
        elif isinstance(value, Mapping):
            yield from lists(value, here)


def leaves(content: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


# ------------------------------------------------------------------ as text


def test_the_readme_has_a_row_for_every_file_and_no_other():
    assert sorted(re.findall(r"^\| \[([\w-]+\.yaml)\]\(\1\) \|", section("The files"), re.MULTILINE)) == OVERLAYS
    assert sorted(re.findall(r"^\| \[([\w-]+)\]\(examples/\1/README\.md\)", README, re.MULTILINE)) == EXAMPLES


def test_every_row_of_the_readme_says_what_it_needs_changes_and_how_to_undo_it():
    rows = re.findall(r"^\| \[[\w-]+\.yaml\].*$", section("The files"), re.MULTILINE)
    assert all(len([cell for cell in row.strip("|").split("|") if cell.strip()]) == 5 for row in rows)


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_readme_says_which_keys_of_the_chart_a_file_touches(name: str):
    (row,) = [row for row in section("The files").splitlines() if row.startswith(f"| [{name}]")]
    touched = {path[:2] for path in leaves(values(name)) if path[:2] != ("hub", "config")}
    assert not [".".join(path) for path in touched if path[-1] not in row], row


def test_only_the_lists_that_the_readme_names_replace_an_admins_own():
    said = dict(
        re.findall(r"^\| `([\w.*]+)` \| ([\w-]+\.yaml) \|$", section("Lists, which Helm replaces"), re.MULTILINE)
    )
    found = {key: name for name in OVERLAYS for key in lists(values(name))}
    assert [key for key in found if not any(fnmatch(key, pattern) for pattern in said)] == []
    assert [p for p, name in said.items() if not any(fnmatch(key, p) for key in lists(values(name)))] == []


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_file_begins_with_what_it_decides_and_what_it_needs(name: str):
    head = (FOLDER / name).read_text(encoding="utf-8").split("\n\n")[0].split("\nhub:")[0]
    assert head.startswith("# ")
    assert "\n# Needs: " in head or "\n# Needs, " in head


@pytest.mark.parametrize("name", [*OVERLAYS, *(f"examples/{name}/values.yaml" for name in EXAMPLES)])
def test_every_decision_has_its_reason_beside_it(name: str):
    """Of each group of keys that stand together, the first has a comment above it or above one of its parents."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    body = lines[next(number for number, line in enumerate(lines) if not line.startswith("#")) :]
    reasons = sum(line.strip().startswith("#") for line in body)
    sections = {path[:3] for path in leaves(values(name))}
    assert reasons >= max(1, len(sections) // 3)


def test_every_file_that_a_file_speaks_of_is_there():
    for path in [*FOLDER.rglob("*.yaml"), *FOLDER.rglob("README.md")]:
        text = path.read_text(encoding="utf-8")
        for named in re.findall(r"helm-values/[\w./-]+\w", text):
            if not named.endswith("your-values.yaml"):
                assert (ROOT / named).exists(), f"{path}: {named}"
        for link in re.findall(r"\]\(([^)#:]+)[)#]", text):
            assert (path.parent / link).exists(), f"{path}: {link}"


# ------------------------------------------------------------------ as values


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OVERLAYS, *(f"examples/{name}/values.yaml" for name in EXAMPLES)])
def test_every_setting_of_ours_is_one_that_there_is(name: str):
    config = values(name).get("hub", {}).get("config", {})
    ours = {key: settings for key, settings in config.items() if key.startswith("Gpu")}
    assert set(ours) <= set(CLASSES)
    for key, settings in ours.items():
        assert set(settings) <= set(CLASSES[key].class_traits(config=True)), key


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERLAYS)
def test_a_file_changes_something(name: str):
    chart = packed_facts().defaults
    assert merge([chart, values(name)]) != chart


@pytest.mark.parametrize("name", OVERLAYS)
def test_nothing_is_set_that_replaces_what_the_chart_made(name: str):
    """T21."""
    config = values(name).get("hub", {}).get("config", {})
    for key in ("KubeSpawner", "GpuKubeSpawner"):
        assert not {"environment", "init_containers", "profile_list", "volumes", "tolerations"} & set(
            config.get(key, {})
        )


def configured(files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """The hub's configuration of these files, with what `configure(c)` did, and what it noted."""
    monkeypatch.chdir(tmp_path)
    together = merge([packed_facts().defaults, *(values(name) for name in files)])
    tokens = dict.fromkeys(together["hub"]["services"], "x" * 64)
    config = hub_config(together, namespace="jhub", tokens=tokens)
    with dry_run() as notes:
        for _, text in extra_config(together):
            exec(text, {"c": config})
    return config, notes


def combinations() -> list[list[str]]:
    """Each file over the base, each pair of them, each example, and all that go together."""
    others = [name for name in OVERLAYS if name != "gpu.yaml"]
    pairs = [list(pair) for pair in itertools.combinations(others, 2)]
    without = [[name for name in others if name not in left] for left in itertools.product(*APART)]
    chosen = [[], *([name] for name in others), *pairs, *without]
    fine = [some for some in chosen if not any(set(pair) <= set(some) for pair in APART)]
    return [["gpu.yaml", *some] for some in fine] + [files_of(name) for name in EXAMPLES]


@pytest.mark.whole
@pytest.mark.slow
def test_every_combination_makes_a_configuration_that_leaves_nothing_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for files in combinations():
        config, notes = configured(files, tmp_path, monkeypatch)
        assert notes == [], files
        assert config.JupyterHub.spawner_class == "gpu"
        behind_the_gate = ["gate", "mlflow"] if "gate.yaml" in files else []
        assert sorted(one["name"] for one in config.JupyterHub.services) == sorted(["gpu", *behind_the_gate]), files
        assert config.JupyterHub.concurrent_spawn_limit == 0
        assert config.Spawner.consecutive_failure_limit == 0


@pytest.mark.parametrize("apart", [False, True])
def test_the_hub_starts_the_service_or_leaves_it_to_its_deployment(
    apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files = ["gpu.yaml", *(["service-deployment.yaml"] if apart else [])]
    (service,) = configured(files, tmp_path, monkeypatch)[0].JupyterHub.services
    assert ("command" in service) is not apart
    assert service["url"].startswith("http://jupyterhub-gpu:8191" if apart else "http://")


def test_pods_of_the_restricted_file_have_what_the_standard_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config, _ = configured(["gpu.yaml", "restricted.yaml"], tmp_path, monkeypatch)
    spawner = config.KubeSpawner
    assert spawner.container_security_context == {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spawner.uid == 1000
    assert not spawner.get("init_containers")


def test_without_the_restricted_file_the_charts_own_block_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config, _ = configured(["gpu.yaml"], tmp_path, monkeypatch)
    assert config.KubeSpawner.init_containers


# ------------------------------------------------------------------ what the nodes are told


def layouts(example: str) -> dict[str, list[dict[str, Any]]]:
    """Name -> its groups of cards, of an example's configuration for mig-parted."""
    file = FOLDER / "examples" / example / "nodes" / "mig-parted.yaml"
    inner = yaml.safe_load(yaml.safe_load(file.read_text(encoding="utf-8"))["data"]["config.yaml"])
    assert inner["version"] == "v1"
    found: dict[str, list[dict[str, Any]]] = inner["mig-configs"]
    return found


def cut(product: str, devices: Mapping[str, int]) -> tuple[int, int] | None:
    """Compute and memory slices that these MIG devices take on one card of this product; None: they do not fit."""
    table = table_for(packed_tables(), product)
    assert table is not None
    placed = arrange(table, devices)  # mig-parted tries every order too
    if placed is None:
        return None
    rows = [row for one in placed if (row := table.row(one.profile)) is not None]
    assert len(rows) == sum(devices.values())
    return sum(row.compute_slices for row in rows), sum(row.memory_slices for row in rows)


PCIE, SXM = "NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-80GB"


def test_the_labs_layout_takes_all_compute_slices_and_seven_of_eight_memory_slices():
    """Row 0-2: six devices, not seven."""
    (group,) = layouts("lab-a100-40gb")["lab-a100-40gb"]
    assert group["mig-devices"] == {"1g.5gb": 5, "2g.10gb": 1}
    assert cut(PCIE, group["mig-devices"]) == (7, 7)


@pytest.mark.slow
def test_one_device_more_than_the_labs_is_refused():
    assert cut(PCIE, {"1g.5gb": 6, "2g.10gb": 1}) is None


@pytest.mark.parametrize(
    ("example", "product", "slices"),
    [("lab-a100-40gb", PCIE, (7, 7)), ("class-of-300", PCIE, (7, 7)), ("dgx-mixed", SXM, (7, 8))],
)
def test_every_layout_can_be_cut_and_leaves_the_operators_default_in_place(
    example: str, product: str, slices: tuple[int, int]
):
    named = layouts(example)
    assert named.pop("all-disabled") == [{"devices": "all", "mig-enabled": False}]
    for groups in named.values():
        assert all(("mig-devices" in group) == group["mig-enabled"] for group in groups)
        assert [cut(product, group["mig-devices"]) for group in groups if group["mig-enabled"]] == [slices]


def test_pieces_of_several_sizes_come_with_the_mixed_strategy():
    for example in ("lab-a100-40gb", "dgx-mixed", "class-of-300"):
        operator = values(f"examples/{example}/nodes/gpu-operator-values.yaml")
        assert operator["mig"]["strategy"] == "mixed"
        made = values(f"examples/{example}/nodes/mig-parted.yaml")["metadata"]["name"]
        assert operator["migManager"]["config"]["name"] == made


def test_shares_are_called_shares_and_are_asked_for_one_at_a_time():
    plugin = values("examples/one-node-time-sliced/nodes/device-plugin.yaml")
    operator = values("examples/one-node-time-sliced/nodes/gpu-operator-values.yaml")["devicePlugin"]["config"]
    assert operator["name"] == plugin["metadata"]["name"]
    sharing = yaml.safe_load(plugin["data"][operator["default"]])["sharing"]["timeSlicing"]
    assert sharing["renameByDefault"] and sharing["failRequestsGreaterThanOne"]
    assert sharing["resources"] == [{"name": "nvidia.com/gpu", "replicas": 4}]
