"""``helm check`` beside Helm and the real chart (``--chart FILE.tgz``): what we refuse by our facts, Helm refuses.

Needs the chart, and Helm as a Python package (extra ``[helm]``). What the command says where one of them is missing
needs neither.
"""

from __future__ import annotations

import os
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from hub_extensions.tools.cli import main
from hub_extensions.tools.helm_check.chart_facts import CHART_VERSION, all_keys, make_facts, packed_facts
from hub_extensions.tools.helm_check.check import CheckOptions, check
from hub_extensions.tools.helm_check.helm import HelmUnusable, ask_helm, read_chart, read_values
from tests.helm_values.network_policy import refused
from tests.helm_values.policies import calls_of, chart_policies, pods_of
from tests.helm_values.test_check import HERE, NAMES, OURS, asked
from tests.helm_values.test_check_network import release
from tests.helm_values.test_check_overlays import EXAMPLES, IMAGES, stack

BY_SCHEMA = {"unknown-key", "wrong-type", "missing-key", "file-content", "config-section", "service-name", "nulled"}
"""Our rules that say what the chart's schema says."""
NOT_TO_BE_READ = {"no-yaml", "no-mapping", "two-documents"}
BREAKS_RENDERING = {
    "variable-without-quotes",
    "variable-null",
    "old-group-of-the-hub",
}
"""The chart's schema lets it through, and then a template fails."""


@pytest.fixture
def chart() -> Path:
    """The real chart. The test carries ``needs("chart")``."""
    return Path(os.environ["TEST_CHART"])


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["helm", "check", *words], catch_exceptions=False)


@pytest.mark.needs("chart")
def test_the_packed_facts_are_the_charts(chart: Path) -> None:
    made = make_facts(*read_chart(chart))
    assert made == packed_facts()
    assert (made.version, len(all_keys(made))) == (CHART_VERSION, 598)


@pytest.mark.needs("chart")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_TO_BE_READ])
def test_helm_refuses_what_our_facts_refuse_and_nothing_else(
    name: str, chart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE / "bad")
    given = asked(name)
    plain = check(given).findings
    by_schema = any(finding.rule in BY_SCHEMA and finding.severity == "problem" for finding in plain)
    report = check(CheckOptions(given.files, given.manifests, chart))
    assert (report.rendered is None) == (by_schema or name in BREAKS_RENDERING), report.findings
    assert {finding.key for finding in plain} <= {finding.key for finding in report.findings}


@pytest.mark.needs("chart")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_TO_BE_READ])
def test_helm_takes_and_renders_every_good_twin(name: str, chart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE / "good")
    given = asked(name)
    report = check(CheckOptions(given.files, given.manifests, chart))
    assert report.findings == []
    assert report.rendered
    assert report.rendered > 10


@pytest.mark.needs("chart")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.parent.name)
def test_helm_takes_and_renders_every_example(example: Path, chart: Path) -> None:
    files = [*stack(example), IMAGES]
    result = run(*(word for file in files for word in ("-f", str(file))), "--chart", str(chart), "--strict")
    assert result.exit_code == 0, result.output
    assert "manifests rendered by Helm." in result.output


@pytest.mark.needs("chart")
def test_what_only_helm_refuses_is_told_in_its_words(chart: Path) -> None:
    refusals, manifests = ask_helm(chart, {"hub": {"foo": 1}}, release="hub", namespace="jhub")
    assert refusals == ["at '/hub': additional properties 'foo' not allowed"]
    assert manifests == {}


@pytest.mark.needs("chart")
@pytest.mark.parametrize("apart", [False, True])
def test_the_charts_policies_as_helm_renders_them_decide_as_ours_do(apart: bool, chart: Path) -> None:
    shut = {"egressAllowRules": {"privateIPs": False}}
    variants = [
        {},
        {"hub": {"networkPolicy": shut}},
        {"proxy": {"chp": {"networkPolicy": {**shut, "allowedIngressPorts": []}}}},
        {"hub": {"networkPolicy": {"interNamespaceAccessLabels": "accept"}}},
        {"singleuser": {"networkPolicy": {"egressAllowRules": {"privateIPs": True}, "allowedIngressPorts": [8888]}}},
        {"singleuser": {"networkPolicy": {"enabled": False}}},
    ]
    for more in variants:
        subject = release(apart, more)
        _, manifests = ask_helm(chart, more, release="jhub", namespace="jhub")
        texts = [text for template, text in manifests.items() if not template.endswith("NOTES.txt")]
        objects = [each for text in texts for each in yaml.safe_load_all(text) if isinstance(each, dict)]
        theirs = [each for each in objects if each.get("kind") == "NetworkPolicy"]
        ours, pods = list(chart_policies(subject)), pods_of(subject)
        assert len(theirs) == len(ours)
        for caller in pods.values():
            for called in pods.values():
                for port in (53, 443, 8000, 8001, 8081, 8191, 8888, *(call.port for call in calls_of(subject))):
                    ends = caller, called, port
                    assert (refused(theirs, *ends) is None) == (refused(ours, *ends) is None), (more, ends)


@pytest.mark.needs("chart")
def test_another_version_of_the_chart_is_named_with_what_differs(chart: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "jupyterhub"
    if chart.is_dir():
        pytest.fail("give the packed chart: --chart FILE.tgz")
    with tarfile.open(chart) as archive:
        archive.extractall(tmp_path)
    text = (unpacked / "Chart.yaml").read_text().replace(f"version: {CHART_VERSION}", "version: 4.5.0")
    (unpacked / "Chart.yaml").write_text(text)
    schema = (unpacked / "values.schema.json").read_text().replace('"activeServerLimit"', '"activeServersLimit"')
    (unpacked / "values.schema.json").write_text(schema)
    values = (unpacked / "values.yaml").read_text().replace("activeServerLimit", "activeServersLimit")
    (unpacked / "values.yaml").write_text(values)
    report = check(CheckOptions(OURS[1::2], chart=unpacked))
    assert [finding.text for finding in report.findings] == [
        f"The chart differs: it is 4.5.0, and this command knows {CHART_VERSION}; only there: hub.activeServersLimit; "
        "gone: hub.activeServerLimit."
    ]
    assert report.rendered


def test_without_helm_the_chart_is_read_and_the_command_says_what_is_needed_to_render_it(tmp_path: Path) -> None:
    (tmp_path / "Chart.yaml").write_text(f"name: jupyterhub\nversion: {CHART_VERSION}\n")
    (tmp_path / "values.schema.json").write_text("{}")
    if find_spec("helm_python") is not None:
        return
    result = run(*OURS, "--chart", str(tmp_path))
    assert 'not rendered (for that: pip install "jupyterhub-gpu[helm]")' in result.output


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "is no chart: it has no Chart.yaml with name and version"),
        ({"Chart.yaml": "name: x\nversion: 1.0.0\n"}, "has no values.schema.json: nothing says which keys it takes"),
        ({"Chart.yaml": "name: ["}, "is not YAML"),
    ],
)
def test_what_is_no_chart_is_refused_in_words(files: dict[str, str], said: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(HelmUnusable, match=said):
        read_chart(tmp_path)


def test_an_archive_is_read_without_unpacking_it(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "Chart.yaml").write_text("name: x\nversion: 1.0.0\n")
    (folder / "values.yaml").write_text("a: {b: 1}\n")
    (folder / "values.schema.yaml").write_text("type: object\nproperties: {a: {type: object}}\n")
    with tarfile.open(tmp_path / "x.tgz", "w:gz") as archive:
        archive.add(folder, "x")
    facts = make_facts(*read_chart(tmp_path / "x.tgz"))
    assert (facts.version, dict(facts.defaults)) == ("1.0.0", {"a": {"b": 1}})
    assert facts == make_facts(*read_chart(folder))
    (tmp_path / "broken.tgz").write_bytes(b"no archive")
    with pytest.raises(HelmUnusable, match="cannot be read"):
        read_chart(tmp_path / "broken.tgz")


def test_a_values_file_is_read_as_helm_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("# first\na: &x {day: 2026-11-22, 8080: yes, true: 1}\nb: {<<: *x, day: later}\n\nc: null\n")
    read = read_values(str(file))
    assert read.values == {
        "a": {"day": "2026-11-22", "8080": True, "true": 1},
        "b": {"day": "later", "8080": True, "true": 1},
        "c": None,
    }
    assert (read.lines["a",], read.lines["a", "day"], read.lines["c",]) == (2, 2, 5)
    assert read.twice == []
