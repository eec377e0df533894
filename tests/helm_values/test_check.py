"""``helm check`` over values files: each bad example says its sentence, and its good twin nothing.

A bad example begins with two comment lines: what is said, and whether it is a ``problem`` or only to be looked at, with
the key. It comes after ``helm-values/gpu.yaml``; ``NAME.before.yaml`` beside it comes before that, ``NAME.first.yaml``
between the two, and ``NAME.manifests.yaml`` is given by ``--manifests``. The good twin has the same name in ``good/``.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from hub_extensions.tools.cli import main
from hub_extensions.tools.helm_check.chart_config import merge
from hub_extensions.tools.helm_check.chart_facts import packed_facts, schema_keys
from hub_extensions.tools.helm_check.check import FIXES, CheckOptions, CheckReport, check
from hub_extensions.tools.helm_check.model import Finding
from tests.examples import many

HERE = Path(__file__).parent
BASE = "../../../helm-values/gpu.yaml"
IMAGES = "../../../helm-values/own-images.yaml"
SITE_IMAGES = "../site-images.yaml"
SIGN_ON = "../../../helm-values/sign-on.yaml"
GATE = "../../../helm-values/gate.yaml"
"""Beside the base for the examples whose name begins so."""

CODE = HERE.parents[1] / "hub_extensions"
NO_VALUES = {"chart-version", "helm", "rendered", "no-such-offer", "no-such-resource", "unknown-resource", "unchecked"}
"""Rules that ask the real chart, Helm or a cluster: ``test_check_chart.py``, ``test_check_cluster.py``."""

ALONE = {"not-ours"}
"""Examples without our base."""

OWN_IMAGE = {"image-of-the-hub-replaced", "image-forgotten", "image-of-users-replaced"}
"""Examples without our images beside the base: they say themselves which image the hub has."""

BESIDE = ("before", "first", "manifests")
"""What else there may be of an example."""

OURS = tuple(word for name in (BASE, SITE_IMAGES) for word in ("-f", str((HERE / "bad" / name).resolve())))
"""What a hub of ours has at least, as words of the command line."""

EVALUATED = {
    *("another-spawner-by-a-file", "another-spawner-by-python", "concurrent-spawns-by-python", "python-that-fails"),
    *(
        "environment-replaced-by-python",
        "extra-config-after-ours",
        "extra-config-not-seen",
        "gpu-for-everybody-by-item",
    ),
    *("gpu-for-everybody-by-python", "gpu-of-a-pod-hook", "gpu-of-a-profile-by-python", "gpu-of-a-start-hook"),
    *("own-form-by-python", "own-form-read-by-python", "sign-on-key-taken-away", "stock-culler-by-python"),
    *("python-with-a-missing-module",),
}
"""Examples for ``--evaluate``."""

NAMES = sorted(file.stem for file in (HERE / "bad").glob("*.yaml") if "." not in file.stem)


def asked(name: str) -> CheckOptions:
    """The files of an example in the current folder."""
    base = [] if name in ALONE else [BASE] if name in OWN_IMAGE else [BASE, IMAGES]
    before, first, manifests = (
        [file] if Path(file).exists() else [] for file in (f"{name}.{kind}.yaml" for kind in BESIDE)
    )
    if name.startswith("sign-on-"):
        base = [*base, SIGN_ON]
    if name.startswith("gate-"):
        base = [*base, GATE]
    files = [*before, *base, *first, f"{name}.yaml"]
    return CheckOptions(files, [Path(file) for file in manifests], evaluate=name in EVALUATED)


@cache
def report_of(kind: str, name: str) -> CheckReport:
    """What is found of an example, which the command below prints and makes its exit status of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(HERE / kind)
        return check(asked(name))


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    """Those of an example: an evaluation starts a Python with a hub's imports, and one is enough for the usual run."""
    if name not in EVALUATED:
        return []
    return [pytest.mark.programs] + [pytest.mark.whole] * (name != "own-form-by-python")


MARKED = [pytest.param(name, marks=marks_of(name)) for name in NAMES]


def claim(name: str) -> tuple[str, str, str]:
    """The sentence, the severity and the key that a bad example announces."""
    said, about = (line[2:] for line in (HERE / "bad" / f"{name}.yaml").read_text().splitlines()[:2])
    severity, _, key = about.partition(": ")
    return said, severity, key.strip()


def for_a_quick_run() -> Iterator[Any]:
    """Bad examples, of which only the first about a key is for the quick run."""
    known: set[str] = set()
    for name in NAMES:
        key = claim(name)[2]
        marks = [pytest.mark.slow] * (key in known) + marks_of(name)
        known.add(key)
        yield pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", list(for_a_quick_run()))
def test_a_bad_example_says_its_sentence_by_its_key(name: str) -> None:
    report = report_of("bad", name)
    findings = report.findings
    assert claim(name) in [(each.text, each.severity, each.key) for each in findings], findings
    assert all(finding.fix for finding in findings)
    assert report.status(strict=False) == (1 if any(finding.severity == "problem" for finding in findings) else 0)
    assert report.status(strict=True) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", MARKED)
def test_its_good_twin_says_nothing(name: str) -> None:
    report = report_of("good", name)
    # what is beside it has the placeholders that it is shipped with
    found = [each for each in report.findings if each.rule != "placeholder" or each.file == "placeholder.yaml"]
    # Python that is not run is another example's subject
    assert [each for each in found if each.rule != "not-judged" or name == "python-not-judged"] == []
    assert report.status(strict=False) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "usual", "strict"),
    [
        ("bad", "spawner-misspelled", 1, 1),
        ("bad", "variables-of-ours-wiped", 1, 1),
        ("bad", "two-services", 1, 1),
        ("bad", "active-servers", 0, 1),
        ("good", "two-services", 0, 0),
    ],
)
def test_the_command_prints_what_is_found_and_ends_by_it(
    kind: str, name: str, usual: int, strict: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE / kind)
    given = asked(name)
    words = [word for file in given.files for word in ("-f", file.replace(IMAGES, SITE_IMAGES))]
    words += [word for file in given.manifests for word in ("--manifests", str(file))]
    results = [run(*words, *more) for more in ((), ("--strict",))]
    assert [result.exit_code for result in results] == [usual, strict]
    told = [each for each in report_of(kind, name).findings if each.rule != "placeholder"]
    assert all(finding.text in results[0].output for finding in told)


@pytest.mark.parametrize(
    "words",
    [
        ("-f", "a.yaml", "-f", "b.yaml", "--values=c.yaml"),
        ("a.yaml", "b.yaml", "c.yaml"),
        ("-f", "a.yaml", "b.yaml", "c.yaml"),  # -f *.yaml
        ("a.yaml", "--strict", "-fb.yaml", "--release", "jhub", "c.yaml"),
        ("--namespace=jhub", "a.yaml", "--values", "b.yaml", "--", "c.yaml"),
    ],
)
def test_files_are_taken_with_f_and_without_in_their_order(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        write(tmp_path, "{}", f"{name}.yaml")
    assert json.loads(run("--json", *words).output)["files"] == ["a.yaml", "b.yaml", "c.yaml"]


def test_no_file_at_all_is_a_sentence() -> None:
    result = run("--strict")
    assert result.exit_code == 2 and "Missing option '-f' / '--values'" in result.output


def test_every_bad_example_has_a_good_twin_and_the_other_way_round() -> None:
    assert {file.stem for file in (HERE / "good").glob("*.yaml") if "." not in file.stem} == set(NAMES)


def written_rules() -> Iterator[str]:
    """The name of each rule, as the code of the rules gives it to a finding."""
    for file in sorted((CODE / "tools" / "helm_check").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                at = {"Finding": 0, "Row": 0, "finding": 0, "found": 0}.get(called)
                name = node.args[at] if at is not None and len(node.args) > at else None
                if isinstance(name, ast.Constant):
                    yield str(name.value)


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.programs
def test_every_rule_has_a_bad_example() -> None:
    said = {finding.rule for name in NAMES for finding in report_of("bad", name).findings}
    assert said == {*written_rules(), *FIXES} - NO_VALUES


# ------------------------------------------------------------------ the command


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["helm", "check", *words], catch_exceptions=False)


def write(folder: Path, text: str, name: str = "values.yaml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


@pytest.mark.parametrize(
    "text",
    [
        "{kind: Role, metadata: x}",
        "{kind: Deployment, spec: {template: {metadata: {labels: {component: gpu-service}}, spec: [x]}}}",
        "{kind: NetworkPolicy, spec: {podSelector: {}, policyTypes: 5}}",
        "{kind: NetworkPolicy, spec: {podSelector: {}, ingress: 5}}",
        "{kind: NetworkPolicy, spec: {podSelector: {}, ingress: [x]}}",
        "{kind: NetworkPolicy, spec: {podSelector: {}, ingress: [{from: 5}, {from: [x]}]}}",
        "{kind: NetworkPolicy, spec: {podSelector: {}, ingress: [{ports: [{port: 1, endPort: x}]}]}}",
        "{kind: NetworkPolicy, spec: {podSelector: {matchExpressions: [{key: a, operator: In, values: 5}]}}}",
        "{kind: NetworkPolicy, spec: {podSelector: {matchLabels: {component: singleuser-server}}, policyTypes: 5}}",
    ],
)
def test_a_manifest_of_a_wrong_shape_does_not_keep_the_values_from_being_judged(text: str, tmp_path: Path) -> None:
    apps = "{lab: {upstream: 'http://lab:80', groups: [staff]}}"
    values = write(tmp_path, f"hub: {{config: {{SignOnGate: {{enabled: true, apps: {apps}}}}}}}")
    gate = "{kind: Deployment, spec: {template: {metadata: {labels: {app: jupyterhub, component: gate}}}}}"
    service = "{kind: Service, metadata: {name: lab}, spec: {selector: {app: lab}, ports: [{port: 80}]}}"
    manifests = write(tmp_path, "\n---\n".join([text, gate, service]), "manifests.yaml")
    report = check(CheckOptions([str((HERE / "bad" / BASE).resolve()), values], [Path(manifests)]))
    assert "no-code" in {each.rule for each in report.findings}


def test_a_clean_run_says_how_much_it_looked_at_and_for_which_chart() -> None:
    result = run(*OURS)
    assert result.exit_code == 0
    assert result.output == "All is well: 12 keys of 2 files, chart 4.4.0.\n"


def test_json_names_file_and_line_of_every_finding(tmp_path: Path) -> None:
    file = write(tmp_path, "hub:\n  # a comment\n  concurrentSpawnLimit: 5\n")
    result = run(*OURS, "-f", file, "--json")
    answer = json.loads(result.output)
    assert (result.exit_code, answer["ok"], answer["chart"]) == (1, False, "4.4.0")
    finding = answer["findings"][0]
    assert (finding["key"], finding["file"], finding["line"]) == ("hub.concurrentSpawnLimit", file, 3)
    assert set(finding) == set(Finding.__dataclass_fields__)


def test_the_last_file_has_the_last_word(tmp_path: Path) -> None:
    own = write(tmp_path, "hub: {concurrentSpawnLimit: 64, consecutiveFailureLimit: 5}\ncull: {enabled: true}\n")
    assert run("-f", own, *OURS, "--strict").exit_code == 0
    assert run(*OURS, "-f", own).exit_code == 1


def test_several_wrong_settings_of_ours_are_told_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, "hub: {config: {GpuQueue: {max_waitings: 1}, GpuCulling: {keeps_per_day: many}}}\n")
    keys = {f["key"] for f in json.loads(run(*OURS, "-f", file, "--json").output)["findings"]}
    assert keys == {"hub.config.GpuQueue.max_waitings", "hub.config.GpuCulling.keeps_per_day"}


def found_beside(more: str, tmp_path: Path, text: str) -> list[tuple[str, str]]:
    """Key and sentence of each problem that a text has beside our base and one of our files."""
    files = [*OURS[1::2], str((HERE / "bad" / more).resolve()), write(tmp_path, text)]
    return [(each.key, each.text) for each in check(CheckOptions(files)).findings if each.severity == "problem"]


@pytest.mark.parametrize(
    ("more", "section", "name", "value"),
    [
        (SIGN_ON, "SingleSignOnOIDCAuthenticator", "issuer", "http://login.site.example"),
        (SIGN_ON, "SingleSignOnOIDCAuthenticator", "issuer", ""),
        (SIGN_ON, "SingleSignOnOIDCAuthenticator", "client_id", ""),
        (GATE, "SignOnGate", "url", "http://apps.site.example"),
        (GATE, "SignOnGate", "url", "https://apps.site.example/x"),
        (GATE, "SignOnGate", "url", "https://hub.example.org"),
        (GATE, "SignOnGate", "connect_url", "gate"),
        (GATE, "SignOnGate", "cache_seconds", "99"),
        (GATE, "JupyterHub", "public_url", ""),
    ],
)
def test_of_one_wrong_value_one_thing_is_said(more: str, section: str, name: str, value: str, tmp_path: Path) -> None:
    text = json.dumps({"hub": {"config": {section: {name: int(value) if value.isdigit() else value}}}})
    said = found_beside(more, tmp_path, text)
    assert len(said) == (0 if name == "client_id" else 1), said
    assert all(name in sentence for _, sentence in said)


MISTAKES = """
hub:
  config:
    SignOnGate:
      url: http://apps.site.example/x
      connect_url: ""
      host: 127.0.0.1
      trusted_proxies: [nowhere]
      cache_seconds: 99
      apps:
        mlflow: {upstream: "ftp://x"}
        tb: {title: 3}
        board: {title: Board, where: "https://hub.example.org/board/", upstream: "http://board.apps.svc:1", groups: [a]}
"""


def test_all_mistakes_of_the_gate_are_said_at_once(tmp_path: Path) -> None:
    said = found_beside(GATE, tmp_path, MISTAKES)
    place = "hub.config.SignOnGate"
    names = ("apps", "apps", "cache_seconds", "connect_url", "host", "trusted_proxies", "url")
    assert sorted(key for key, _ in said) == [f"{place}.{name}" for name in names], said
    apps = " ".join(sentence for key, sentence in said if key.endswith(".apps"))
    assert all(f"app {name!r}" in apps for name in ("mlflow", "tb", "board")), apps


def test_without_evaluate_no_python_of_the_values_is_run_and_that_is_reported(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    file = write(tmp_path, f"hub:\n  extraConfig:\n    own: |\n      open({str(mark)!r}, 'w')\n")
    result = run(*OURS, "-f", file)
    assert result.exit_code == 0 and "All is well" not in result.output
    assert "--evaluate" in result.output
    assert not mark.exists()


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*OURS).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_secret_in_values_is_not_repeated(tmp_path: Path) -> None:
    text = "hub: {config: {GpuService: {metrics_token: [never-a-real-one], prometheus_token: 7}}}\n"
    result = run(*OURS, "-f", write(tmp_path, text))
    assert result.exit_code == 1
    assert "never-a-real-one" not in result.output


@pytest.mark.parametrize(
    "values",
    [
        "hub: {extraEnv: {PASSWORD: 98127634}}",
        "proxy: {chp: {extraEnv: {PASSWORD: 98127634.5}}}",
        "hub: {extraConfig: {password: 98127634}}",
        "hub: {db: {password: 98127634}}",
        "proxy: {secretToken: 98127634}",
    ],
)
def test_a_password_without_quotes_is_said_to_be_a_number_and_not_which(values: str, tmp_path: Path) -> None:
    result = run(*OURS, "-f", write(tmp_path, values))
    assert result.exit_code == 1
    assert "It is a number, where " in result.output
    assert "98127634" not in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-f", "/nowhere/values.yaml"), "/nowhere/values.yaml cannot be read: No such file or directory."),
        ((), "Missing option '-f'"),
        (("-f", "-", "--manifests", "/nowhere"), "There is no /nowhere."),
        (("-f", "-", "--chart", "/nowhere.tgz"), "'/nowhere.tgz' does not exist"),
    ],
)
def test_what_cannot_be_run_as_it_was_typed_is_exit_status_two(words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.output + result.stderr


def test_values_are_read_from_the_standard_input_too() -> None:
    result = CliRunner().invoke(main, ["helm", "check", "-f", "-"], input="hub: {extraCofig: {}}\n")
    assert result.exit_code == 1
    assert "Did you mean hub.extraConfig?" in result.output


def test_several_broken_files_are_told_each_with_its_line(tmp_path: Path) -> None:
    one, two = write(tmp_path, "a: [1\n", "one.yaml"), write(tmp_path, "x: 1\ny: : 2\n", "two.yaml")
    findings = json.loads(run("-f", one, "-f", two, "--json").output)["findings"]
    assert [(f["file"], f["line"]) for f in findings] == [(one, 2), (two, 2)]


def test_a_finding_is_printed_with_key_file_and_line_then_sentence_then_fix(tmp_path: Path) -> None:
    file = write(tmp_path, "cull: {enabled: true}\n")
    *lines, last = run(*OURS, "-f", file).output.splitlines()
    assert last == "0 wrong, 1 to look at: 12 keys of 3 files, chart 4.4.0."
    assert lines == [
        f"look at  cull.enabled ({file}, line 1)",
        "         The chart's culler is on: it stops servers whose GPU is busy, when no browser asks for them.",
        "         Set it to false, and set hub.config.GpuCulling.enabled to true when the service's log looks right.",
    ]


def test_our_own_settings_may_be_laid_over_each_other_but_not_over_an_admins_earlier_file(tmp_path: Path) -> None:
    base, images = OURS[1::2]
    groups = "hub: {config: {GpuOffers: {groups: {gpu: [%s]}}}}\n"
    one, two = write(tmp_path, groups % "thesis", "one.yaml"), write(tmp_path, groups % "staff", "two.yaml")
    assert check(CheckOptions([base, images, one, two])).findings == []
    said = [finding.text for finding in check(CheckOptions([one, base, images, two])).findings]
    assert said == [
        f"{two} replaces the list hub.config.GpuOffers.groups.gpu of {one}, and all of it would be gone (thesis)."
    ]


# ------------------------------------------------------------------ values of any shape

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2, 10_000), st.text('aZ0:.-/_ é{"', max_size=5))
SHAPES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["name", "from", "ports", "scopes", "gpu", "url", "KubeSpawner"]), inner, max_size=2
        ),
    ),
    max_leaves=4,
)
OWN = [f"hub.config.{section}" for section in ("GpuOffers", "GpuQueue", "GpuService", "KubeSpawner", "JupyterHub")]
KEYS = sorted(set(schema_keys(packed_facts().schema)) | set(OWN) | {f"{key}.fractions" for key in OWN})


@pytest.mark.slow
@many(80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(KEYS), SHAPES, min_size=1, max_size=3))
def test_values_of_any_shape_are_answered_with_findings(tmp_path: Path, wanted: dict[str, Any]) -> None:
    tree = merge([{}, *(under(key.replace("<name>", "x"), value) for key, value in wanted.items())])
    file = write(tmp_path, json.dumps(tree))
    assert check(CheckOptions([*OURS[1::2], file])).keys >= 12


@pytest.mark.parametrize("key", ["GpuService.url", "GpuCluster.service_connect_url"])
def test_beside_an_address_that_cannot_be_read_the_rest_is_judged(key: str, tmp_path: Path) -> None:
    tree = merge([{}, under(f"hub.config.{key}", "http://[x"), under("hub.concurrentSpawnLimit", 5)])
    findings = check(CheckOptions([*OURS[1::2], write(tmp_path, json.dumps(tree))])).findings
    assert "hub.concurrentSpawnLimit" in {each.key for each in findings}


LISTS_AND_MAPPINGS = (
    *("singleuser.initContainers", "singleuser.extraContainers", "singleuser.extraEnv", "hub.extraEnv"),
    *("hub.extraVolumes", "hub.extraVolumeMounts", "hub.services", "hub.extraConfig", "hub.extraFiles.x"),
    *("hub.image", "scheduling.userScheduler", "hub.networkPolicy.egress"),
)


@pytest.mark.parametrize("value", [7, True, "text", {"a": 1}, [7], None])
def test_so_is_something_else_where_a_rule_looks_for_a_list_or_a_mapping(tmp_path: Path, value: object) -> None:
    restricted = {"hub": {"config": {"KubeSpawner": {"pod_security_context": {"runAsNonRoot": True}}}}}
    tree = merge([{}, restricted, *(under(key, value) for key in LISTS_AND_MAPPINGS)])
    assert check(CheckOptions([*OURS[1::2], write(tmp_path, json.dumps(tree))])).keys >= 12


SECTIONS = (
    *("hub.config", "hub.config.KubeSpawner", "hub.config.GpuOffers", "hub.services.board", "hub.loadRoles.board"),
    *("hub.config.JupyterHub.KubeSpawner", "hub.config.GpuOffers.KubeSpawner", "hub.config.KubeSpawner.Spawner"),
)
"""Keys at which only a mapping is right: sections of settings at each level, services and roles."""
LIKE_SECTIONS = ("hub.config.Spawner.KubeSpawner.Spawner", "hub.config.JupyterHub.0", "hub.config.GpuKubeSpawner.-x")
"""Keys that traitlets takes for sections, and no class reads."""


@pytest.mark.slow
@pytest.mark.parametrize("value", [7, True, "text", [7], None])
@pytest.mark.parametrize("key", SECTIONS + LIKE_SECTIONS)
def test_a_section_that_is_no_mapping_is_named_and_the_rest_is_judged(key: str, value: object, tmp_path: Path) -> None:
    others = {"concurrentSpawnLimit": 5, "extraConfig": {"own": 7}}
    if key != "hub.config":
        others["config"] = {"GpuQueue": {"max_waitings": 1}}
    files = [
        write(tmp_path, json.dumps(each), f"{at}.yaml") for at, each in enumerate([{"hub": others}, under(key, value)])
    ]
    problems = [each.key for each in check(CheckOptions([*OURS[1::2], *files])).findings if each.severity == "problem"]
    expected = {"hub.extraConfig.own", *(["hub.config.GpuQueue.max_waitings"] if "config" in others else [])}
    assert {*expected, *([key] if key in SECTIONS else [])} <= set(problems), problems
    assert len(problems) == len(set(problems)), problems


def under(key: str, value: object) -> dict[str, Any]:
    tree: Any = value
    for name in reversed(key.split(".")):
        tree = {name: tree}
    return dict(tree)


def test_a_file_that_refers_to_itself_is_said_so(tmp_path: Path) -> None:
    result = run("-f", write(tmp_path, "hub: &hub {config: *hub}\n"))
    assert result.exit_code == 1
    assert "is nested too deep, or refers to itself." in result.output
