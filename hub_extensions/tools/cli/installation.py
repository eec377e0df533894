"""Commands about an installation: ``demo``, ``doctor``, ``offers`` and ``helm``."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path

import click
from pydantic import TypeAdapter

from hub_extensions.core.messages import OfferState
from hub_extensions.tools.cli.terminal import console, refuse, write
from hub_extensions.tools.cluster_report import explain_cluster
from hub_extensions.tools.demo import DemoRefused
from hub_extensions.tools.demo.plan import DemoOptions
from hub_extensions.tools.demo.run import run as run_demo
from hub_extensions.tools.doctor import examine
from hub_extensions.tools.doctor.diagnosis import failed
from hub_extensions.tools.offer_list import OffersUnavailable, offers_of_service, offers_of_this_machine, print_offers

SIGNS = {"ok": "ok     ", "warning": "look at", "problem": "wrong  "}
COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("jupyterhub-gpu-demo"),
    show_default=True,
    help="Folder of the demo's state: homes, databases, passwords, logs.",
)
@click.option("--users", type=click.IntRange(1, 500), default=8, show_default=True, help="How many people there are.")
@click.option(
    "--layout",
    help="GPUs to simulate: lab-a100, two-whole, mixed, or a YAML file. Default: this machine's own, else lab-a100.",
)
@click.option("--clean", is_flag=True, help="Start anew: delete what an earlier demo left in the folder.")
@click.option(
    "--sso",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of a sign-in service, instead of passwords; ./scripts/demo --sso sets one up. Its people are three.",
)
@click.option(
    "--apps",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of TensorBoard and Dask, which stand behind the sign-in service; ./scripts/demo --sso sets it up.",
)
def demo(
    port: int, folder: Path, users: int, layout: str | None, clean: bool, sso: Path | None, apps: Path | None
) -> None:
    """Run a JupyterHub on this machine to try everything. Ctrl-C stops it.

    It listens on 127.0.0.1 only. All demo users share one Unix account: for trying, not for use.
    """
    options = DemoOptions(folder=folder, port=port, users=users, layout=layout, clean=clean, sso=sso, apps=apps)
    try:
        sys.exit(run_demo(options, write))
    except DemoRefused as refused:
        refuse(str(refused))


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The hub's jupyterhub_config.py. It is loaded as the hub loads it; nothing is written.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def doctor(config: Path | None, as_json: bool) -> None:
    """Say what is wrong with this machine or a configuration, and how to put it right."""
    findings = examine(config)
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        screen = console()
        for finding in findings:
            screen.print(SIGNS[finding.state], style=COLOURS[finding.state], end="  ")
            screen.print(finding.text, markup=False)
            if finding.fix and finding.state != "ok":
                for line in finding.fix.splitlines():
                    screen.print(f"         {line}", markup=False)
    sys.exit(1 if failed(findings) else 0)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--layout", help="Offers of a simulated layout instead of this machine's.")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="The GPU service's state folder: ask the running service what is free.",
)
@click.option("--url", help="Address of a running service, ending in /services/gpu: ask it with --token.")
@click.option(
    "--token", envvar="JUPYTERHUB_API_TOKEN", help="Token for --url; by default the variable JUPYTERHUB_API_TOKEN."
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Look at a Kubernetes cluster, by KUBECONFIG or as the pod one is in, and explain every offer.",
)
def offers(
    as_json: bool, layout: str | None, state_dir: Path | None, url: str | None, token: str | None, cluster: bool
) -> None:
    """List what can be offered, with what it really gives; from a running service also what is free."""
    if cluster:
        if layout or url:
            refuse("--cluster looks at the cluster itself: leave --layout and --url out.")
        sys.exit(explain_cluster(state_dir, console(), as_json=as_json))
    try:
        listed = offers_of_service(state_dir, url, token) if state_dir or url else offers_of_this_machine(layout)
    except OffersUnavailable as problem:
        refuse(str(problem), code=1)
    if as_json:
        click.echo(TypeAdapter(list[OfferState]).dump_json(list(listed), indent=2).decode())
        return
    print_offers(listed, console(), running=bool(state_dir or url))


@click.group()
def helm() -> None:
    """Helm values of the chart zero-to-jupyterhub."""


class _FilesInOrder(click.Command):
    """A command that accepts files with and without ``-f``, in their order, because later files override earlier ones.

    A shell expands ``-f *.yaml`` to one file after ``-f`` and others without.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [each for each in self.params if isinstance(each, click.Option) and not each.is_flag]
        with_value = {name for option in options for name in option.opts}
        words, rest = [], iter(args)
        for word in rest:
            if word == "--":
                words += [f"--values={file}" for file in rest]
            elif word in with_value:
                words += [word, *itertools.islice(rest, 1)]
            else:
                words.append(word if word.startswith("-") and word != "-" else f"--values={word}")
        return super().parse_args(ctx, words)


@helm.command("check", cls=_FilesInOrder, options_metavar="[OPTIONS] FILE...")
@click.option(
    "-f",
    "--values",
    "files",
    multiple=True,
    required=True,
    help="A values file, as for helm upgrade; - reads the input. Later ones win. The -f may be left out.",
)
@click.option(
    "--chart",
    type=click.Path(path_type=Path, exists=True),
    help="The chart itself, .tgz or folder: ask Helm too, by its schema and by rendering it.",
)
@click.option(
    "--manifests",
    multiple=True,
    type=click.Path(path_type=Path),
    help="File or folder of Kubernetes objects that you apply beside the chart. Without it those of "
    "helm-values/manifests are taken to be there as they are.",
)
@click.option("--namespace", default="jhub", show_default=True, help="Where the release is, or will be.")
@click.option("--release", default="jhub", show_default=True, help="Its name.")
@click.option("--cluster", is_flag=True, help="Also look at the cluster of KUBECONFIG: offers that no node has.")
@click.option(
    "--evaluate",
    is_flag=True,
    help="Run hub.extraConfig and judge what the hub would load. With --chart the chart's own configuration runs "
    "before it. The code runs in a process of its own for at most 20 s; it can read the files of this machine.",
)
@click.option("--strict", is_flag=True, help="Exit status 1 also where something is only to be looked at.")
@click.option("--json", "for_programs", is_flag=True, help="For programs.")
def helm_check(
    files: tuple[str, ...],
    chart: Path | None,
    manifests: tuple[Path, ...],
    namespace: str,
    release: str,
    cluster: bool,
    evaluate: bool,
    strict: bool,
    for_programs: bool,
) -> None:
    """Say what of these values would not work, by key, and the fix. Python in them is run with --evaluate only."""
    from hub_extensions.tools.helm_check.check import (  # jsonschema takes its time to load
        CheckOptions,
        as_json,
        check,
        print_report,
    )
    from hub_extensions.tools.helm_check.helm import HelmUnusable

    try:
        report = check(CheckOptions(files, manifests, chart, namespace, release, cluster, evaluate))
    except HelmUnusable as problem:
        refuse(str(problem))
    if for_programs:
        click.echo(as_json(report, strict=strict))
    else:
        print_report(report, console())
    sys.exit(report.status(strict=strict))
