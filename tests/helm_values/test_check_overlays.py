"""Over our own overlays ``helm check`` finds nothing: each, every pair, the documented stacks, with their manifests."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from hub_extensions.tools.helm_check.check import CheckOptions, check
from hub_extensions.tools.helm_check.model import Finding
from tests.hubs import ROOT

VALUES = ROOT / "helm-values"
MANIFESTS = VALUES / "manifests"
BASE = VALUES / "gpu.yaml"
IMAGES = VALUES / "own-images.yaml"
APART = VALUES / "service-deployment.yaml"
OVERLAYS = sorted(file for file in VALUES.glob("*.yaml") if file != BASE)
EXAMPLES = sorted(VALUES.glob("examples/*/values.yaml"))
NOT_TOGETHER = [{"fractions-kai", "kueue"}, {"time-slicing", "mps"}, {"dra", "packing"}]
"""As ``helm-values/README.md`` says."""


def findings(*files: Path, manifests: tuple[Path, ...] = ()) -> list[Finding]:
    """What is said of them; beside our base the hub's image is ours. Names that are to be filled in are left out."""
    given = [*files[:1], IMAGES, *(file for file in files[1:] if file != IMAGES)] if files[0] == BASE else files
    found = check(CheckOptions([str(file) for file in given], manifests)).findings
    return [each for each in found if each.rule != "placeholder"]


def applied(*files: Path) -> tuple[Path, ...]:
    """The folder of manifests that goes with these files, and what an overlay of them says it needs beside that."""
    beside = (MANIFESTS / "drain-nodes.yaml",) if VALUES / "drain-nodes.yaml" in files else ()
    return (MANIFESTS / "service-deployment" if APART in files else MANIFESTS, *beside)


def rules(*files: Path, manifests: tuple[Path, ...] = ()) -> list[str]:
    return [finding.rule for finding in findings(*files, manifests=manifests)]


def expected(*files: Path) -> list[str]:
    """Culling without a Prometheus: nobody but the servers themselves says what they do, which is to be looked at."""
    names = {file.stem for file in files}
    return ["unmeasured"] if "culling" in names and "monitoring" not in names else []


def stack(example: Path) -> list[Path]:
    """The files that an example's README gives to ``helm upgrade``, in its order, without the admin's own."""
    text = (example.parent / "README.md").read_text(encoding="utf-8")
    return [ROOT / name for name in re.findall(r"(?m)^ +-f (helm-values/\S+)", text)]


@pytest.mark.slow
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda file: file.stem)
def test_what_a_shipped_file_leaves_to_be_filled_in_is_said_once(overlay: Path) -> None:
    found = [each for each in check(CheckOptions([str(BASE), str(overlay)])).findings if each.rule == "placeholder"]
    text = "".join(line for line in overlay.read_text().splitlines(True) if not line.lstrip().startswith("#"))
    assert [each.file for each in found] == ([str(overlay)] if "example." in text else [])


def test_there_is_something_to_check() -> None:
    assert BASE.exists()
    assert len(OVERLAYS) >= 11
    assert len(EXAMPLES) == 4


@pytest.mark.slow
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda file: file.stem)
def test_every_overlay_is_clean_over_the_base(overlay: Path) -> None:
    assert findings(BASE) == []
    assert rules(BASE, overlay) == expected(overlay)
    assert [finding.rule for finding in findings(overlay)] == ["not-ours"]


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize(
    "pair", list(itertools.permutations(OVERLAYS, 2)), ids=lambda pair: "+".join(file.stem for file in pair)
)
def test_every_pair_is_clean_in_either_order(pair: tuple[Path, Path]) -> None:
    names = {file.stem for file in pair}
    if names not in NOT_TOGETHER:
        assert rules(BASE, *pair) == expected(*pair)


@pytest.mark.slow
def test_all_overlays_that_go_together_are_clean() -> None:
    for left_out in itertools.product(*map(sorted, NOT_TOGETHER)):
        assert findings(BASE, *(file for file in OVERLAYS if file.stem not in left_out)) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.parent.name)
def test_every_example_is_clean_as_its_readme_stacks_it(example: Path) -> None:
    files = stack(example)
    assert files[0] == BASE
    assert files[-1] == example
    assert rules(*files) == expected(*files)
    assert findings(BASE, example) == []


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.parent.name)
@pytest.mark.parametrize("more", [(), ("restricted",), ("service-deployment",), ("postgres",)], ids="+".join)
def test_every_example_is_clean_with_what_goes_with_any(example: Path, more: tuple[str, ...]) -> None:
    added = [VALUES / f"{name}.yaml" for name in more if VALUES / f"{name}.yaml" not in stack(example)]
    files = [*stack(example)[:-1], *added, example]
    assert rules(*files) == expected(*files)


@pytest.mark.slow
@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda file: file.stem)
def test_the_manifests_as_they_are_fit_every_overlay(overlay: Path) -> None:
    assert rules(BASE, overlay, manifests=applied(overlay)) == expected(overlay)


@pytest.mark.parametrize("given", [False, True])
def test_with_the_service_apart_its_policy_has_the_ports_of_all_that_it_calls(given: bool) -> None:
    files = (BASE, APART, *(VALUES / f"{name}.yaml" for name in ("postgres", "monitoring", "notices")))
    assert findings(*files, manifests=applied(*files) if given else ()) == []


@pytest.mark.parametrize("given", [False, True])
def test_a_prometheus_at_another_port_is_said_to_be_out_of_the_services_reach(given: bool, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("hub: {config: {GpuService: {prometheus_url: 'http://prometheus.lab:9091'}}}\n")
    (said,) = findings(BASE, APART, own, manifests=applied(APART) if given else ())
    assert said.severity == "look at"
    assert "no rule of its policy opens port 9091." in said.text
    assert said.fix.startswith("Open port 9091 there")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.parent.name)
def test_every_example_is_clean_with_the_manifests_that_it_applies(example: Path) -> None:
    files = stack(example)
    assert rules(*files, manifests=applied(*files)) == expected(*files)


def test_the_two_lines_are_said_not_to_go_together() -> None:
    kai, kueue = VALUES / "fractions-kai.yaml", VALUES / "kueue.yaml"
    assert [finding.rule for finding in findings(BASE, kai, kueue)] == ["two-queues"]


def test_packing_is_said_not_to_go_with_claims() -> None:
    dra, packing = VALUES / "dra.yaml", VALUES / "packing.yaml"
    for files in ((BASE, dra, packing), (BASE, packing, dra)):
        assert [(each.rule, each.severity) for each in findings(*files)] == [("two-schedulers", "look at")]


def test_packing_is_wrong_beside_templates_of_claims() -> None:
    files, templates = (BASE, VALUES / "dra.yaml"), (MANIFESTS, MANIFESTS / "dra-templates.yaml")
    assert findings(*files, manifests=templates) == []
    wrong = findings(*files, VALUES / "packing.yaml", manifests=templates)
    assert [finding.rule for finding in wrong] == ["scheduler-without-dra"]


def test_two_folders_of_manifests_at_once_are_said_to_be_two_services() -> None:
    wrong = findings(BASE, manifests=(MANIFESTS, MANIFESTS / "service-deployment"))
    assert "two-services" in {finding.rule for finding in wrong}
