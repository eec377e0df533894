"""``jupyterhub-gpu helm check``: what of these Helm values would not work, by key, and the fix.

It gathers files, facts about the chart, the reports of our own `configure` and, if asked, of Helm and a cluster. It
changes nothing, and runs Python of the values only with ``--evaluate``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from traitlets.config import Config

from hub_extensions.adapters.kubernetes.cluster_view import ClusterUnreadable, read_once
from hub_extensions.configuration import SERVICE_SCOPES, SETTINGS_SCOPE, settings_of
from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.cluster.nodes import renamed_resources
from hub_extensions.core.cluster.offers import derive_cluster_offers
from hub_extensions.core.cluster.pools import survey_pools
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.spawner.config.spawner_classes import servers_are_pods
from hub_extensions.tools.helm_check.chart_config import base_config, merge
from hub_extensions.tools.helm_check.chart_facts import all_keys, make_facts, packed_facts
from hub_extensions.tools.helm_check.evaluate import check_evaluation, evaluate, with_changes
from hub_extensions.tools.helm_check.files import check_files, check_placeholders
from hub_extensions.tools.helm_check.helm import (
    HelmUnusable,
    NotValues,
    ask_helm,
    read_chart,
    read_hub_files,
    read_manifests,
    read_values,
)
from hub_extensions.tools.helm_check.model import (
    ChartFacts,
    Evaluation,
    Finding,
    Release,
    ValuesFile,
    found,
    leaves,
    listed,
)
from hub_extensions.tools.helm_check.own_settings import APPS, key_of, report_own_settings
from hub_extensions.tools.helm_check.rules.gate import check_gate
from hub_extensions.tools.helm_check.rules.hub import check_hub, check_service_role
from hub_extensions.tools.helm_check.rules.namespaces import check_namespaces
from hub_extensions.tools.helm_check.rules.network import check_network, is_apart
from hub_extensions.tools.helm_check.rules.offers import check_offers
from hub_extensions.tools.helm_check.rules.pods import check_pods
from hub_extensions.tools.helm_check.rules.rights import check_rights
from hub_extensions.tools.helm_check.rules.shape import check_shape
from hub_extensions.tools.helm_check.rules.sign_on import check_sign_on
from hub_extensions.tools.helm_check.rules.use import who_measures

NO_TOKEN = "0" * 64
"""Stands for the token that the chart makes for each service; nothing here is shown to anybody."""

MOST_DIFFERENCES = 6
SIGNS = {"problem": ("wrong  ", "red"), "look at": ("look at", "yellow")}


@dataclass(frozen=True)
class CheckOptions:
    """The options of the command. `chart`: its archive or folder; None if the packed facts are used."""

    files: Sequence[str]
    manifests: Sequence[Path] = ()
    chart: Path | None = None
    namespace: str = "jhub"
    release: str = "jhub"
    cluster: bool = False
    evaluate: bool = False


@dataclass(frozen=True)
class CheckReport:
    """The result of a check.

    Attributes:
        rendered: how many manifests Helm made; None: Helm was not asked. use: offer -> who measures its use.
    """

    findings: Sequence[Finding]
    keys: int
    version: str
    files: Sequence[str]
    rendered: int | None = None
    use: Mapping[str, str] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    lacks_helm: bool = False

    @property
    def problems(self) -> int:
        """The number of findings that would not work."""
        return sum(finding.severity == "problem" for finding in self.findings)

    def status(self, *, strict: bool) -> int:
        """The exit status: 1 where something is wrong, with `strict` also where there is a warning."""
        return 1 if self.problems or (strict and self.findings) else 0


@dataclass
class _CheckRun:
    """A check under way: what was read, and what was found so far."""

    options: CheckOptions
    release: Release
    packed: ChartFacts
    findings: list[Finding] = field(default_factory=list)
    rendered: int | None = None
    use: Mapping[str, str] = field(default_factory=dict)
    config: Config | None = None
    unreadable: str = ""


def check(options: CheckOptions) -> CheckReport:
    """Check values files. Nothing is written, and nobody is asked but, where that is wanted, Helm and the cluster.

    Raises:
        HelmUnusable: a file or the chart cannot be read, Helm is not installed, or the cluster cannot be read.
    """
    packed = packed_facts()
    facts = packed if options.chart is None else make_facts(*read_chart(options.chart))
    files, broken = _read(options.files)
    keys = len({path for file in files for path, _ in leaves(file.values)})
    if broken:
        return CheckReport(broken, keys, facts.version, options.files)
    values = merge([facts.defaults, *(file.values for file in files)])
    manifests = [_in(each, options.namespace) for each in read_manifests(options.manifests)]
    release = Release(files, values, facts, options.namespace, manifests, options.release)
    run = _CheckRun(options, release, packed)
    run.findings += check_shape(release)
    misfits = bool(run.findings)
    try:
        run.config = base_config(values, release=release.name, namespace=release.namespace, token=NO_TOKEN)
    except Exception as problem:  # noqa: BLE001  values of any shape: the rules report which are wrong
        run.unreadable = str(problem)
    if options.evaluate:
        chart_files = {} if options.chart is None else read_hub_files(options.chart)
        run.release = with_changes(release, evaluate(release, run.config or {}, chart_files))
    _by_rules(run)
    if run.release.is_ours:
        _by_own_sections(run, misfits)
    if options.chart is not None:
        _by_helm(run, options.chart)
    lacks_helm = options.chart is not None and find_spec("helm_python") is None
    evaluation = run.release.evaluation
    findings = _sorted(run.findings)
    return CheckReport(
        findings, keys, facts.version, options.files, run.rendered, run.use, evaluation, lacks_helm=lacks_helm
    )


def _read(places: Sequence[str]) -> tuple[list[ValuesFile], list[Finding]]:
    files: list[ValuesFile] = []
    broken: list[Finding] = []
    for place in places:
        try:
            files.append(read_values(place))
        except NotValues as problem:
            broken.append(Finding("yaml", "problem", "", problem.text, problem.fix, problem.file, problem.line))
    return files, broken


def _in(manifest: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
    """A manifest without a namespace goes where it is applied: into the release's."""
    metadata = manifest.get("metadata") or {}
    return manifest if metadata.get("namespace") else {**manifest, "metadata": {**metadata, "namespace": namespace}}


def _by_rules(run: _CheckRun) -> None:
    release = run.release
    findings = run.findings
    findings += check_evaluation(release)
    findings += check_files(release)
    findings += check_placeholders(release)
    findings += check_hub(release)
    findings += check_pods(release)
    findings += check_namespaces(release)
    findings += check_rights(release)
    if not any(finding.rule == "wrong-type" for finding in findings):
        findings += check_network(release)
    if release.is_ours:
        scopes = (*SERVICE_SCOPES, SETTINGS_SCOPE) if is_apart(release) else SERVICE_SCOPES
        findings += check_service_role(release, scopes)
        findings += check_sign_on(release)
        findings += check_gate(release)


def _by_own_sections(run: _CheckRun, misfits: bool) -> None:
    """Add the reports of ``configure(c)``, the sources of use figures, and the offers of a cluster."""
    release, config = run.release, run.config
    if config is None:
        if not misfits and not any(finding.severity == "problem" for finding in run.findings):
            run.findings.append(_about(release, "hub-start", run.unreadable, "Correct it: the hub would not start."))
        return
    run.findings += list(_by_configure(run, config))
    run.findings += list(_unchecked(release, config))
    run.use = who_measures(release)
    if run.options.cluster:
        offers, resources = _of_cluster(config)
        run.findings += check_offers(release, {CPU, *(each.pool for each in offers), *offers}, resources)
        run.use = who_measures(release, offers)


# ------------------------------------------------------------------ our own configure(c)

FIXES = {
    "own-settings": "Correct it: the hub does not start with it.",
    "hub-start": "One of its values is of a wrong kind.",
    "left-alone": "See the reference of settings.",
}


def _by_configure(run: _CheckRun, config: Config) -> Iterator[Finding]:
    """Findings from the reports of ``configure(c)``, without those that a rule has reported already."""
    release, evaluation = run.release, run.release.evaluation
    has_run = evaluation is not None and evaluation.configured
    reported = {finding.key for finding in run.findings if finding.severity == "problem"}
    is_token_known = any(finding.rule == "service-token" for finding in run.findings)
    for rule, text in evaluation.sentences if evaluation and has_run else report_own_settings(config):
        finding, named = _about(release, rule, text, FIXES[rule]), key_of(text)
        is_known = named in reported or (is_token_known and rule == "own-settings" and "token" in text)
        if is_known and rule != "hub-start":
            continue
        serious = "no server with a GPU starts" in text or "nobody can choose a GPU" in text
        yield replace(finding, severity="look at" if rule == "left-alone" and not serious else "problem")
        if rule == "own-settings" and named != APPS:  # each app that is wrong has a sentence
            reported.add(named)


def _unchecked(release: Release, config: Config) -> Iterator[Finding]:
    """Settings of our spawner that are not checked, because KubeSpawner is not installed here."""
    key = "hub.config.GpuKubeSpawner"
    if config.get("GpuKubeSpawner") and servers_are_pods(config) and find_spec("kubespawner") is None:
        text = (
            "KubeSpawner is not installed here, so the names of these settings were not checked; the hub checks them."
        )
        fix = "pip install 'jupyterhub-gpu[hub,kubernetes]' where this command runs."
        yield found(release, "unchecked", key, text, fix, severity="look at")


def _about(release: Release, rule: str, text: str, fix: str) -> Finding:
    """A finding about the first key that a sentence names."""
    return found(release, rule, key_of(text), text, fix)


# ------------------------------------------------------------------ the cluster


def _of_cluster(config: Config) -> tuple[tuple[OfferId, ...], frozenset[str]]:
    """The offers with a GPU that its nodes can have, and resources under names of its own. Raises HelmUnusable."""
    settings = settings_of(config)
    # the hub's kubeconfig lies in its pod; here KUBECONFIG has the address of the cluster
    cluster = replace(settings.cluster or ClusterConfig(), kubeconfig="", context="")
    try:
        view = read_once(cluster)
    except ClusterUnreadable as problem:
        raise HelmUnusable(f"--cluster: {problem}") from None
    if view.nodes is None:
        raise HelmUnusable(
            "--cluster: the nodes may not be read with these rights. Use an account that may list nodes."
        )
    offers = replace(settings.offers, hidden=())
    survey = survey_pools(view, offers, cluster, names={}, leases=())
    derived = derive_cluster_offers(survey.pools, offers, cluster, sm_of_product=lambda _: None)
    known = {*map(OfferId, survey.pools), *(offer.id for offer in derived.offers)} - {CPU}
    return tuple(sorted(known)), frozenset(renamed_resources(view.nodes.values()))


# ------------------------------------------------------------------ Helm and the real chart


def _by_helm(run: _CheckRun, chart: Path) -> None:
    """Add refusals of the chart's own schema and templates, and differences from the packed facts."""
    release = run.release
    run.findings += _differences(run.packed, release.facts)
    if find_spec("helm_python") is None:
        return
    given = merge([{}, *(file.values for file in release.files)])
    refusals, manifests = ask_helm(chart, given, release=run.options.release, namespace=run.options.namespace)
    known = {finding.key for finding in run.findings if finding.severity == "problem"}
    for refusal in refusals:
        key = _key_of_refusal(refusal)
        if not key or not any(each == key or each.startswith(f"{key}.") for each in known):
            run.findings.append(found(release, "helm", key or "values", f"Helm refuses: {refusal}", "Correct it."))
    if not refusals:
        run.rendered = 0
        for template, text in manifests.items():
            run.rendered += _parsed(run, template, text)


def _key_of_refusal(refusal: str) -> str:
    named = re.match(r"at '/?([^']*)'", refusal)
    return named[1].replace("/", ".") if named else ""


def _parsed(run: _CheckRun, template: str, rendered: str) -> int:
    """Count the objects of a rendered template; add a finding if it is not YAML."""
    if template.endswith("NOTES.txt"):
        return 0
    try:
        return sum(isinstance(each, Mapping) for each in yaml.safe_load_all(rendered))
    except yaml.YAMLError as problem:
        text = f"The chart's {template} is no YAML with these values: {str(problem).splitlines()[0]}"
        run.findings.append(Finding("rendered", "problem", template, text, "Look for quotes or line ends in values."))
        return 0


def _differences(packed: ChartFacts, chart: ChartFacts) -> Iterator[Finding]:
    if packed.version == chart.version:
        return
    ours, theirs = all_keys(packed), all_keys(chart)
    parts = [f"it is {chart.version}, and this command knows {packed.version}"]
    parts += [f"only there: {_few(theirs - ours)}"] if theirs - ours else []
    parts += [f"gone: {_few(ours - theirs)}"] if ours - theirs else []
    text = f"The chart differs: {'; '.join(parts)}."
    fix = "Keys and types are checked against the chart given; rules about what keys do are of the known one."
    yield Finding("chart-version", "look at", "", text, fix)


def _few(keys: Iterable[str]) -> str:
    shown = sorted(keys)
    more = len(shown) - MOST_DIFFERENCES
    return listed(shown[:MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")


# ------------------------------------------------------------------ reports


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    """Problems first, each in the order of the rules; of a value of a wrong kind nothing else is reported."""
    listed_once = list(dict.fromkeys(findings))
    misfits = {finding.key for finding in listed_once if finding.rule == "wrong-type"}
    unique = [finding for finding in listed_once if finding.rule == "wrong-type" or finding.key not in misfits]
    return sorted(unique, key=lambda finding: finding.severity != "problem")


def as_dict(report: CheckReport, *, strict: bool) -> dict[str, Any]:
    """For programs."""
    return {
        "ok": report.status(strict=strict) == 0,
        "chart": report.version,
        "files": list(report.files),
        "keys": report.keys,
        "rendered": report.rendered,
        "evaluated": report.evaluation is not None,
        "use": dict(report.use),
        "findings": [asdict(finding) for finding in report.findings],
    }


def print_report(report: CheckReport, console: Console) -> None:
    """For people."""
    for finding in report.findings:
        sign, colour = SIGNS[finding.severity]
        console.print(sign, style=colour, end="  ")
        console.print(f"{finding.key}{_place(finding)}".strip() or "values", markup=False, soft_wrap=True)
        console.print(f"         {finding.text}", markup=False, soft_wrap=True)
        console.print(f"         {finding.fix}", markup=False, soft_wrap=True)
    if report.use:
        console.print("Who measures the use:", markup=False)
    for who in dict.fromkeys(report.use.values()):
        offers = ", ".join(offer for offer, its in report.use.items() if its == who)
        console.print(f"  {offers}: {who}", markup=False, soft_wrap=True)
    console.print(_closing(report), markup=False, soft_wrap=True)


def _place(finding: Finding) -> str:
    if not finding.file:
        return ""
    line = f", line {finding.line}" if finding.line else ""
    return f" ({finding.file}{line})"


def _closing(report: CheckReport) -> str:
    count = len(report.files)
    checked = f"{report.keys} keys of {count} file{'s' if count > 1 else ''}, chart {report.version}"
    if report.evaluation is not None:
        checked += ", your Python was run" + ("" if report.evaluation.isolated else " with this machine's network")
    if report.rendered is not None:
        checked += f", {report.rendered} manifests rendered by Helm"
    if report.lacks_helm:
        checked += ', not rendered (for that: pip install "jupyterhub-gpu[helm]")'
    warnings = len(report.findings) - report.problems
    if not report.findings:
        return f"All is well: {checked}."
    return f"{report.problems} wrong, {warnings} to look at: {checked}."


def dumped(report: CheckReport, *, strict: bool) -> str:
    """As JSON text."""
    return json.dumps(as_dict(report, strict=strict), indent=2, ensure_ascii=False)
