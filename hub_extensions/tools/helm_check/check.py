"""``jupyterhub-gpu helm check``: finds what would not work with these Helm values, with the key and the fix.

`check` applies all rules, and adds what our ``configure(c)``, Helm and a cluster report. It changes nothing, and runs
Python of the values only with ``--evaluate``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import yaml
from rich.console import Console
from traitlets.config import Config

from hub_extensions.adapters.kubernetes.cluster_view import ClusterUnreadable, read_once
from hub_extensions.configuration import settings_of
from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.cluster.nodes import renamed_resources
from hub_extensions.core.cluster.offers import derive_cluster_offers
from hub_extensions.core.cluster.pools import survey_pools
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.spawner.config.spawner_classes import servers_are_pods
from hub_extensions.tools.helm_check import helm
from hub_extensions.tools.helm_check.chart_config import base_config, merge, wrong_entries
from hub_extensions.tools.helm_check.chart_facts import all_keys, make_facts, packed_facts
from hub_extensions.tools.helm_check.evaluate import check_evaluation, evaluate, with_changes
from hub_extensions.tools.helm_check.files import check_files, check_placeholders
from hub_extensions.tools.helm_check.model import ChartFacts, Evaluation, Finding, Findings, Release, ValuesFile
from hub_extensions.tools.helm_check.own_settings import APPS, key_of, report_own_settings
from hub_extensions.tools.helm_check.rules.gate import check_gate
from hub_extensions.tools.helm_check.rules.hub import check_any_hub, check_hub, check_service_role
from hub_extensions.tools.helm_check.rules.namespaces import check_namespaces
from hub_extensions.tools.helm_check.rules.network import check_network
from hub_extensions.tools.helm_check.rules.offers import check_offers
from hub_extensions.tools.helm_check.rules.pods import check_pods
from hub_extensions.tools.helm_check.rules.shape import check_shape
from hub_extensions.tools.helm_check.rules.sign_on import check_sign_on
from hub_extensions.tools.helm_check.rules.state import check_state
from hub_extensions.tools.helm_check.trees import Tree, as_tree, dotted, leaves, listed

NO_TOKEN = "0" * 64  # stands for the token that the chart makes for each service; nothing here is shown to anybody
MOST_DIFFERENCES = 6
SIGNS = {"problem": ("wrong  ", "red"), "look at": ("look at", "yellow")}
FIXES = {
    "own-settings": "Correct it: the hub does not start with it.",
    "hub-start": "One of its values is of a wrong kind.",
    "left-alone": "See the reference of settings.",
}
"""Rule of a report of our own ``configure(c)`` -> its fix."""


@dataclass(frozen=True)
class CheckOptions:
    """The options of ``helm check``.

    Attributes:
        files: paths of the values files, in order; ``-`` for the standard input.
        manifests: files and folders of Kubernetes objects that are applied beside the chart.
        chart: archive or folder of the chart; None to use the facts that are packed with this product.
        namespace, release: Kubernetes namespace and name of the Helm release.
        cluster: compare the offers that the values name with the nodes of the cluster in the kubeconfig.
        evaluate: run the administrator's Python in the values.
    """

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
        findings: the mistakes that were found, problems first.
        keys: number of different keys in the files.
        version: version of the chart.
        files: names of the values files.
        rendered: number of manifests that Helm rendered; None if it was not asked or refused the values.
        evaluation: the result of running the administrator's Python; None if it was not run.
        lacks_helm: Helm was wanted, but its Python package is not installed.
    """

    findings: Sequence[Finding]
    keys: int
    version: str
    files: Sequence[str]
    rendered: int | None = None
    evaluation: Evaluation | None = None
    lacks_helm: bool = False

    @property
    def problems(self) -> int:
        """The number of findings that are real problems, not only something to look at."""
        return sum(finding.severity == "problem" for finding in self.findings)

    def status(self, *, strict: bool) -> int:
        """Return the exit status: 1 if there is a problem, or with `strict` any finding; otherwise 0."""
        return 1 if self.problems or (strict and self.findings) else 0


def check(options: CheckOptions) -> CheckReport:
    """Check values files. Nothing is written, and Helm or a cluster is asked only if the options allow that.

    Raises:
        HelmUnusable: a file or the chart cannot be read, Helm is not installed, or the cluster cannot be read.
    """
    chart = options.chart
    facts = packed_facts() if chart is None else make_facts(*helm.read_chart(chart))
    read = [helm.read_values(place) for place in options.files]
    files = [each for each in read if isinstance(each, ValuesFile)]
    findings = [each for each in read if isinstance(each, Finding)]
    keys = len({path for file in files for path, _ in leaves(file.values)})
    if findings:
        return CheckReport(findings, keys, facts.version, options.files)
    values = merge([facts.defaults, *(file.values for file in files)])
    manifests = [_in(each, options.namespace) for each in helm.read_manifests(options.manifests)]
    release = Release(files, values, facts, options.namespace, manifests, options.release)
    findings += [*check_shape(release), *check_any_hub(release)]
    config = base_config(values, release=release.name, namespace=release.namespace, token=NO_TOKEN)
    if options.evaluate:
        chart_files = {} if chart is None else helm.read_hub_files(chart)
        release = with_changes(release, evaluate(release, config, chart_files))
    rules = [check_evaluation, check_files, check_placeholders, check_hub, check_pods, check_namespaces]
    if not any(finding.rule == "wrong-type" for finding in findings):
        rules += [check_network]  # which would fail with such a value
    if release.is_ours:
        rules += [check_service_role, check_state, check_sign_on, check_gate]
    findings += [finding for rule in rules for finding in rule(release)]
    named = _problem_keys(findings)
    for path, text in wrong_entries(values):
        if dotted(path) not in named:
            findings.append(release.found("hub-start", path, text, "Correct it: the hub would not start."))
    if release.is_ours:
        findings += list(_by_configure(release, config, findings))
        if config.get("GpuKubeSpawner") and servers_are_pods(config) and find_spec("kubespawner") is None:
            text = "KubeSpawner is not installed here, so the names of these settings were not checked; "
            text += "the hub checks them."
            fix = "pip install 'jupyterhub-gpu[hub,kubernetes]' where this command runs."
            findings.append(release.found("unchecked", "hub.config.GpuKubeSpawner", text, fix, "look at"))
        if options.cluster:
            findings += check_offers(release, *_of_cluster(config))
    rendered, lacks_helm = None, chart is not None and find_spec("helm_python") is None
    if chart is not None:
        findings += _differences(packed_facts(), facts)
        if not lacks_helm:
            refusals, rendered = _by_helm(release, chart, findings)
            findings += refusals
    evaluation = release.evaluation
    return CheckReport(_sorted(findings), keys, facts.version, options.files, rendered, evaluation, lacks_helm)


def _in(manifest: Tree, namespace: str) -> Tree:
    """Return a manifest with this namespace, unless the manifest names one."""
    metadata = as_tree(manifest.get("metadata"))
    return {**manifest, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}}


def _problem_keys(findings: Iterable[Finding]) -> set[str]:
    return {finding.key for finding in findings if finding.severity == "problem"}


def _by_configure(release: Release, config: Config, known: Sequence[Finding]) -> Findings:
    """Yield what ``configure(c)`` reports about the hub's settings, except what is among the `known` findings."""
    run, reported = release.evaluation, _problem_keys(known)
    is_token_known = any(finding.rule == "service-token" for finding in known)
    for rule, text in run.sentences if run and run.configured else report_own_settings(config):
        named = key_of(text)
        is_known = named in reported or (is_token_known and rule == "own-settings" and "token" in text)
        if is_known and rule != "hub-start":
            continue
        serious = rule != "left-alone" or "no server with a GPU starts" in text
        yield release.found(rule, named, text, FIXES[rule], "problem" if serious else "look at")
        if rule == "own-settings" and named != APPS:  # there is a sentence for each wrong app
            reported.add(named)


def _of_cluster(config: Config) -> tuple[frozenset[str], frozenset[str]]:
    """Read the cluster that the kubeconfig names.

    Returns:
        The ids of all offers that its nodes can have, and its GPU resources that do not have NVIDIA's names.

    Raises:
        HelmUnusable: the cluster or its nodes cannot be read.
    """
    settings = settings_of(config)
    # the hub's kubeconfig lies in its pod; here KUBECONFIG has the address of the cluster
    cluster = replace(settings.cluster or ClusterConfig(), kubeconfig="", context="")
    try:
        view = read_once(cluster)
    except ClusterUnreadable as problem:
        raise helm.HelmUnusable(f"--cluster: {problem}") from None
    if view.nodes is None:
        text = "the nodes may not be read with these rights. Use an account that may list nodes."
        raise helm.HelmUnusable(f"--cluster: {text}")
    offers = replace(settings.offers, hidden=())
    survey = survey_pools(view, offers, cluster, names={}, leases=())
    derived = derive_cluster_offers(survey.pools, offers, cluster, sm_of_product=lambda _: None)
    known = {CPU, *map(OfferId, survey.pools), *(offer.id for offer in derived.offers)}
    pools = {each.pool for each in known if each.pool}
    return frozenset(known | pools), frozenset(renamed_resources(view.nodes.values()))


def _by_helm(release: Release, chart: Path, known: Sequence[Finding]) -> tuple[list[Finding], int | None]:
    """Let Helm check and render the chart with these values.

    Returns:
        Findings about what Helm refuses, except keys that the `known` findings of the rules are about, and about
        rendered templates that are not YAML; and the number of rendered manifests, None if Helm refuses the values.
    """
    given = merge([{}, *(file.values for file in release.files)])
    refusals, manifests = helm.ask_helm(chart, given, release=release.name, namespace=release.namespace)
    reported = _problem_keys(known)
    findings = []
    for refusal in refusals:
        named = re.match(r"at '/?([^']*)'", refusal)
        key = named[1].replace("/", ".") if named else ""
        if not key or not any(each == key or each.startswith(f"{key}.") for each in reported):
            findings.append(release.found("helm", key or "values", f"Helm refuses: {refusal}", "Correct it."))
    rendered = 0
    for template, text in manifests.items():
        try:
            objects = [] if template.endswith("NOTES.txt") else yaml.safe_load_all(text)
            rendered += sum(isinstance(each, Mapping) for each in objects)
        except yaml.YAMLError as problem:
            text = f"The chart's {template} is no YAML with these values: {str(problem).splitlines()[0]}"
            findings.append(Finding("rendered", "problem", template, text, "Look for quotes or line ends in values."))
    return findings, None if refusals else rendered


def _differences(packed: ChartFacts, chart: ChartFacts) -> Findings:
    """Report that the given chart has another version than the packed facts, with the keys that differ."""
    if packed.version != chart.version:
        ours, theirs = all_keys(packed), all_keys(chart)
        text = f"The chart differs: it is {chart.version}, and this command knows {packed.version}"
        for what, keys in (("only there", sorted(theirs - ours)), ("gone", sorted(ours - theirs))):
            more = len(keys) - MOST_DIFFERENCES
            shown = listed(keys[:MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")
            text += f"; {what}: {shown}" if keys else ""
        fix = "Keys and types are checked against the chart given; rules about what keys do are of the known one."
        yield Finding("chart-version", "look at", "", f"{text}.", fix)


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without duplicates, problems first, otherwise in the order of the rules.

    If a value has a wrong type, other findings about its key are left out.
    """
    misfits = {finding.key for finding in findings if finding.rule == "wrong-type"}
    once = dict.fromkeys(each for each in findings if each.rule == "wrong-type" or each.key not in misfits)
    return sorted(once, key=lambda finding: finding.severity != "problem")


def as_json(report: CheckReport, *, strict: bool) -> str:
    answer = {
        "ok": report.status(strict=strict) == 0,
        "chart": report.version,
        "files": list(report.files),
        "keys": report.keys,
        "rendered": report.rendered,
        "evaluated": report.evaluation is not None,
        "findings": [asdict(finding) for finding in report.findings],
    }
    return json.dumps(answer, indent=2, ensure_ascii=False)


def print_report(report: CheckReport, console: Console) -> None:
    for finding in report.findings:
        sign, colour = SIGNS[finding.severity]
        line = f", line {finding.line}" if finding.line else ""
        place = f" ({finding.file}{line})" if finding.file else ""
        console.print(sign, style=colour, end="  ")
        key = f"{finding.key}{place}".strip() or "values"
        text = f"{key}\n         {finding.text}\n         {finding.fix}"
        console.print(text, markup=False, soft_wrap=True)
    count = len(report.files)
    checked = f"{report.keys} keys of {count} file{'s' if count > 1 else ''}, chart {report.version}"
    if report.evaluation is not None:
        checked += ", your Python was run" + ("" if report.evaluation.isolated else " with this machine's network")
    if report.rendered is not None:
        checked += f", {report.rendered} manifests rendered by Helm"
    if report.lacks_helm:
        checked += ', not rendered (for that: pip install "jupyterhub-gpu[helm]")'
    verdict = f"{report.problems} wrong, {len(report.findings) - report.problems} to look at"
    console.print(f"{verdict if report.findings else 'All is well'}: {checked}.", markup=False, soft_wrap=True)
