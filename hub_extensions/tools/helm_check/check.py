"""``jupyterhub-gpu helm check``: what of these Helm values would not work, by key, and the fix.

Gathers files, facts about the chart, what our own `configure` says and, where options, what Helm and a cluster say. It
changes nothing, and runs no Python of the values. Not here: the rules (``rules/``).
"""

from __future__ import annotations

import copy
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
from hub_extensions.configuration import SERVICE_SCOPES, SETTINGS_SCOPE, apply, dry_run, settings_of
from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.cluster.nodes import own_names
from hub_extensions.core.cluster.offers import derive_cluster_offers
from hub_extensions.core.cluster.pools import survey_pools
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.sign_on.provider_settings import SECTIONS
from hub_extensions.hub_service.setup.settings import SERVICE_NAME
from hub_extensions.spawner.config.spawner_classes import servers_are_pods
from hub_extensions.tools.helm_check.chart_config import hub_config, merge
from hub_extensions.tools.helm_check.chart_facts import all_keys, make_facts, packed_facts
from hub_extensions.tools.helm_check.files import check_files, check_placeholders
from hub_extensions.tools.helm_check.helm import (
    HelmUnusable,
    NotValues,
    ask_helm,
    read_chart,
    read_manifests,
    read_values,
)
from hub_extensions.tools.helm_check.model import ChartFacts, Finding, Release, ValuesFile, found, leaves, listed
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

COVERED_BY_RULES = (
    "concurrent_spawn_limit",
    "active_server_limit",
    "consecutive_failure_limit",
    "server_token_scopes",
    "spawner_class",
    "stops idle servers too",
    "your role",
    "the name of this machine",
    "has a url: the hub's proxy",
)
"""Notes of `configure` that a rule reports better, or that are about the machine this runs on."""

MOST_SETTINGS = 25
"""So many wrong settings of ours are reported at once."""

APPS = "hub.config.SignOnGate.apps"
SUBSTITUTES = {
    "hub.config.JupyterHub.public_url": "https://hub.invalid/",
    "hub.config.SignOnGate.url": "https://apps.invalid",
    "hub.config.SignOnGate.connect_url": "http://gate:8192",
    **{f"hub.config.{section}.issuer": "https://provider.invalid/" for section in SECTIONS},
}
"""Settings that others need -> what stands for a wrong one while the rest is checked."""

MOST_DIFFERENCES = 6
SIGNS = {"problem": ("wrong  ", "red"), "look at": ("look at", "yellow")}


@dataclass(frozen=True)
class CheckOptions:
    """What the command line asks for. `chart`: archive or folder of the real chart; None: the packed facts do."""

    files: Sequence[str]
    manifests: Sequence[Path] = ()
    chart: Path | None = None
    namespace: str = "jhub"
    release: str = "jhub"
    cluster: bool = False


@dataclass(frozen=True)
class CheckReport:
    """What was checked, and found.

    Attributes:
        rendered: how many manifests Helm made; None: Helm was not asked. use: offer -> who measures its use.
    """

    findings: Sequence[Finding]
    keys: int
    version: str
    files: Sequence[str]
    rendered: int | None = None
    use: Mapping[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> int:
        """How many findings would not work."""
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
    run = _CheckRun(options, Release(files, values, facts, options.namespace, manifests, options.release), packed)
    _by_rules(run)
    if options.chart is not None:
        _by_helm(run, options.chart)
    return CheckReport(_sorted(run.findings), keys, facts.version, options.files, run.rendered, run.use)


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
    findings += check_shape(release)
    misfits = bool(findings)
    findings += check_files(release)
    findings += check_placeholders(release)
    findings += check_hub(release)
    findings += check_pods(release)
    findings += check_namespaces(release)
    findings += check_rights(release)
    if not any(finding.rule == "wrong-type" for finding in findings):
        findings += check_network(release)
    if not release.is_ours:
        return
    scopes = (*SERVICE_SCOPES, SETTINGS_SCOPE) if is_apart(release) else SERVICE_SCOPES
    findings += check_service_role(release, scopes)
    findings += check_sign_on(release)
    findings += check_gate(release)
    try:
        config = hub_config(
            release.values,
            namespace=release.namespace,
            release=run.options.release,
            tokens=dict.fromkeys(release.tree("hub.services"), NO_TOKEN),
            version=release.facts.version,
        )
    except Exception as problem:  # noqa: BLE001  values of any shape: the rules above have said which are wrong
        if not misfits and not any(finding.severity == "problem" for finding in findings):
            findings.append(_about(release, "hub-start", str(problem), "Correct it: the hub would not start."))
        return
    findings += list(_by_configure(run, config))
    findings += list(_unchecked(release, config))
    run.use = who_measures(release)
    if run.options.cluster:
        offers, resources = _of_cluster(config)
        findings += check_offers(release, {CPU, *(each.pool for each in offers), *offers}, resources)
        run.use = who_measures(release, offers)


# ------------------------------------------------------------------ our own configure(c)


def _by_configure(run: _CheckRun, config: Config) -> Iterator[Finding]:
    """What the hub itself would say of our sections, and of what `configure` leaves alone."""
    release = run.release
    reported = {finding.key for finding in run.findings if finding.severity == "problem"}
    corrected: set[str] = set()
    for _ in range(MOST_SETTINGS):
        try:
            with dry_run() as notes:
                apply(copy.deepcopy(config))
        except ValueError as problem:
            finding = _about(
                release, "own-settings", _as_values(str(problem)), "Correct it: the hub does not start with it."
            )
            is_known = "service-token" in _rules(run) and "token" in finding.text
            if finding.key not in reported | corrected and not is_known:
                yield finding
            if not _corrected(config, finding):
                return
            if finding.key != APPS:  # of the apps those that were named are gone, and others may be wrong
                corrected.add(finding.key)
            continue
        except Exception as problem:  # noqa: BLE001  values of any shape: what the hub would trip over is a finding
            text = f"The hub would not start: {type(problem).__name__}: {problem}"
            yield Finding("hub-start", "problem", "hub.config", text, "One of its values is of a wrong kind.")
            return
        yield from (finding for finding in _of_notes(release, notes) if finding.key not in reported)
        return


def _unchecked(release: Release, config: Config) -> Iterator[Finding]:
    """Settings of our spawner's own section, where KubeSpawner is not there to say which there are."""
    key = "hub.config.GpuKubeSpawner"
    if config.get("GpuKubeSpawner") and servers_are_pods(config) and find_spec("kubespawner") is None:
        text = (
            "KubeSpawner is not installed here, so the names of these settings were not checked; the hub checks them."
        )
        fix = "pip install 'jupyterhub-gpu[hub,kubernetes]' where this command runs."
        yield found(release, "unchecked", key, text, fix, severity="look at")


def _rules(run: _CheckRun) -> set[str]:
    return {finding.rule for finding in run.findings}


def _corrected(config: Config, finding: Finding) -> bool:
    """Correct a wrong setting, to see what else is wrong; return whether something was changed."""
    for key, right in SUBSTITUTES.items():
        _, _, section, name = key.split(".")
        if key in finding.text and config[section].get(name) != right:
            config[section][name] = right
            return True
    if finding.key == APPS:
        apps = config.SignOnGate.get("apps")
        named = [name for name in apps if f"app {str(name)!r}" in finding.text] if isinstance(apps, Mapping) else []
        if named:
            config.SignOnGate.apps = {name: app for name, app in apps.items() if name not in named}
            return True
    parts = finding.key.split(".")
    if parts[:2] != ["hub", "config"] or len(parts) < 3 or parts[2] not in config:
        return False
    if len(parts) == 3:
        return config.pop(parts[2], None) is not None
    name = parts[3]
    return name in config[parts[2]] and config[parts[2]].pop(name, parts) is not parts


def _of_notes(release: Release, notes: Iterable[str]) -> Iterator[Finding]:
    for note in notes:
        if not any(text in note for text in COVERED_BY_RULES):
            finding = _about(release, "left-alone", _as_values(note), "See the reference of settings.")
            serious = "no server with a GPU starts" in finding.text or "nobody can choose a GPU" in finding.text
            yield replace(finding, severity="problem" if serious else "look at")


def _as_values(text: str) -> str:
    """A sentence about ``c.Class.trait``, by the keys of values; it begins with a capital letter."""
    named = re.sub(r"\bc\.(?=[A-Z])", "hub.config.", text)
    return named if named.startswith("hub.") else named[:1].upper() + named[1:]


def _about(release: Release, rule: str, text: str, fix: str) -> Finding:
    """A finding about the first key that a sentence names."""
    named = re.search(r"\b(?:hub|singleuser|scheduling|proxy)\.[A-Za-z_][\w.]*\w", text)
    key = "hub.services.gpu" if f"service {SERVICE_NAME!r}" in text else "hub.config"
    return found(release, rule, named[0] if named else key, text, fix)


# ------------------------------------------------------------------ the cluster


def _of_cluster(config: Config) -> tuple[tuple[OfferId, ...], frozenset[str]]:
    """The offers with a GPU that its nodes can have, and resources under names of its own. Raises HelmUnusable."""
    settings = settings_of(config)
    # the file that the hub reads lies in its pod: here KUBECONFIG says where the cluster is
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
    return tuple(sorted(known)), frozenset(own_names(view.nodes.values()))


# ------------------------------------------------------------------ Helm and the real chart


def _by_helm(run: _CheckRun, chart: Path) -> None:
    """What the chart's own schema and templates say, and where the chart differs from the packed facts."""
    release = run.release
    run.findings += _differences(run.packed, release.facts)
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
    """How many objects a rendered template has; one that is no YAML is a finding."""
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
    if report.rendered is not None:
        checked += f", {report.rendered} manifests rendered by Helm"
    warnings = len(report.findings) - report.problems
    if not report.findings:
        return f"All is well: {checked}."
    return f"{report.problems} wrong, {warnings} to look at: {checked}."


def dumped(report: CheckReport, *, strict: bool) -> str:
    """As JSON text."""
    return json.dumps(as_dict(report, strict=strict), indent=2, ensure_ascii=False)
