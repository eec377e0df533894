"""``jupyterhub-gpu``: an admin's shell. ``demo`` to try it, ``doctor`` for what is wrong, ``offers`` for what there is,
``store`` for the service's database.

Words and tables only: what is looked up and decided is in ``tools/demo.py``, ``tools/doctor/``,
``tools/helm_check/check.py`` and below. Exit codes: 0 all is well, 1 something is wrong, 2 the command cannot run as it
was typed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, NoReturn

import click
from pydantic import TypeAdapter
from rich.console import Console

from hub_extensions import __version__
from hub_extensions.core.messages import OfferState
from hub_extensions.tools.cluster_report import explain_cluster
from hub_extensions.tools.demo import DemoOptions, DemoRefused
from hub_extensions.tools.demo import run as run_demo
from hub_extensions.tools.doctor import examine
from hub_extensions.tools.doctor.diagnosis import as_dict, failed
from hub_extensions.tools.offer_list import OffersUnavailable, offers_of_service, offers_of_this_machine, print_offers

SIGNS = {"ok": "ok     ", "warning": "look at", "problem": "wrong  "}
COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jupyterhub-gpu")
def main() -> None:
    """GPUs for JupyterHub: choose a slice, wait in line, use the GPU, give it back."""


@main.command()
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
def demo(port: int, folder: Path, users: int, layout: str | None, clean: bool, sso: Path | None) -> None:
    """Run a JupyterHub on this machine to try everything. Ctrl-C stops it.

    It listens on 127.0.0.1 only. All demo users share one Unix account: for trying, not for use.
    """
    options = DemoOptions(folder=folder, port=port, users=users, layout=layout, clean=clean, sso=sso)
    try:
        sys.exit(run_demo(options, _print))
    except DemoRefused as refused:
        _refuse(str(refused))


@main.command()
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
        click.echo(json.dumps([as_dict(finding) for finding in findings], indent=2, ensure_ascii=False))
    else:
        console = _console()
        for finding in findings:
            console.print(SIGNS[finding.state], style=COLOURS[finding.state], end="  ")
            console.print(finding.text, markup=False)
            if finding.fix and finding.state != "ok":
                console.print(f"         {finding.fix}", markup=False)
    sys.exit(1 if failed(findings) else 0)


@main.command()
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
            _refuse("--cluster looks at the cluster itself: leave --layout and --url out.")
        sys.exit(explain_cluster(state_dir, _console(), as_json=as_json))
    try:
        listed = offers_of_service(state_dir, url, token) if state_dir or url else offers_of_this_machine(layout)
    except OffersUnavailable as problem:
        _refuse(str(problem), code=1)
    if as_json:
        click.echo(TypeAdapter(list[OfferState]).dump_json(list(listed), indent=2).decode())
        return
    print_offers(listed, _console(), running=bool(state_dir or url))


@main.group()
def helm() -> None:
    """Helm values of the chart zero-to-jupyterhub."""


@helm.command("check")
@click.option(
    "-f",
    "--values",
    "files",
    multiple=True,
    required=True,
    help="A values file, as for helm upgrade; - reads the input. Later ones win.",
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
@click.option("--strict", is_flag=True, help="Exit status 1 also where something is only to be looked at.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def helm_check(
    files: tuple[str, ...],
    chart: Path | None,
    manifests: tuple[Path, ...],
    namespace: str,
    release: str,
    cluster: bool,
    strict: bool,
    as_json: bool,
) -> None:
    """Say what of these values would not work, by key, and the fix. No Python in them is run."""
    from hub_extensions.tools.helm_check.check import (  # jsonschema takes its time to load
        CheckOptions,
        check,
        dumped,
        print_report,
    )
    from hub_extensions.tools.helm_check.helm import HelmUnusable

    try:
        report = check(CheckOptions(files, manifests, chart, namespace, release, cluster))
    except HelmUnusable as problem:
        _refuse(str(problem))
    if as_json:
        click.echo(dumped(report, strict=strict))
    else:
        print_report(report, _console())
    sys.exit(report.status(strict=strict))


@main.group()
def store() -> None:
    """The GPU service's store: copy it, put a copy back, check it."""


state_dir_option = click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("gpu-state"),
    show_default=True,
    help="The GPU service's state folder.",
)


@store.command("backup")
@state_dir_option
@click.option("--to", "target", type=click.Path(path_type=Path, dir_okay=False), help="Default: into the state folder.")
def store_backup(state_dir: Path, target: Path | None) -> None:
    """Copy the store, also while it is in use. The service itself does it once a day, and keeps seven of its own."""
    _store_does("backup", state_dir, target)


@store.command("restore")
@state_dir_option
@click.option(
    "--from",
    "copy",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A copy. Default: the newest whole one in the state folder.",
)
def store_restore(state_dir: Path, copy: Path | None) -> None:
    """Put a copy in the store's place, while the hub is stopped. What was there is kept beside it.

    Places in line and leases are those of the copy; the service then compares them with the servers that run.
    """
    _store_does("restore", state_dir, copy)


@store.command("check")
@state_dir_option
def store_check(state_dir: Path) -> None:
    """Say whether the store and its copies are whole. Nothing is changed."""
    _store_does("check", state_dir, None)


@main.group()
def forecast() -> None:
    """The wait forecast: how well it would have foretold what happened."""


@forecast.command("backtest")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--pool", "pools", multiple=True, help="Only this log, or this log on so many GPUs: gaia_int, gaia_int:1."
)
@click.option("--policy", type=click.Choice(["strict", "best-effort"]), help="Default: what the JSON beside says.")
@click.option(
    "--seed", "seeds", type=int, multiple=True, default=(1,), show_default=True, help="Give several for a mean."
)
@click.option(
    "--progress",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of servers that report an end.",
)
@click.option(
    "--every", type=click.IntRange(1), default=1, show_default=True, help="Ask only each n-th who has to wait: faster."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write every figure here.")
@click.option("--picture", "picture_file", type=click.Path(path_type=Path, dir_okay=False), help="Write an SVG here.")
def forecast_backtest(
    folder: Path,
    pools: tuple[str, ...],
    policy: str | None,
    seeds: tuple[int, ...],
    progress: float,
    every: int,
    json_file: Path | None,
    picture_file: Path | None,
) -> None:
    """Replay the logs of a folder, and compare every forecast with what came true.

    DIR has CSV files as `usage export` writes them (submit, duration, num_gpu, slices, user, limit), and beside each a
    JSON file that names the pools. The first 60 % teach; who had to wait in the rest counts.
    """
    from hub_extensions.tools.backtest.command import BacktestOptions, backtest  # numpy takes its time to load
    from hub_extensions.tools.backtest.log import BacktestRefused

    try:
        options = BacktestOptions(folder, pools, policy, seeds, progress, every, json_file, picture_file)
        backtest(options, _console())
    except BacktestRefused as refused:
        _refuse(str(refused))


def _store_does(what: Literal["backup", "restore", "check"], state_dir: Path, path: Path | None) -> None:
    from hub_extensions.tools.store import StoreFile, StoreRefused  # the database's library takes its time to load

    try:
        file = StoreFile.of(state_dir)
        if what == "check":
            lines, whole = file.check()
            _print("\n".join(lines))
            sys.exit(0 if whole else 1)
        _print(file.backup(path) if what == "backup" else file.restore(path))
    except StoreRefused as refused:
        _refuse(str(refused), code=refused.code)


@main.group()
def usage() -> None:
    """The history: who used which GPU, when, how much of it, and how it ended."""


@usage.command("export")
@state_dir_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    required=True,
    help="The file; - is the standard output.",
)
@click.option("--format", "kind", type=click.Choice(["csv", "json"]), help="Default: by the file's name, else csv.")
@click.option("--without-names", is_flag=True, help="Numbers for users and choices; no servers, groups, tickets.")
def usage_export(state_dir: Path, out: Path, kind: str | None, without_names: bool) -> None:
    """Write all records, also while the service runs, in the order in which they began."""
    from hub_extensions.tools.usage.commands import run_export  # the database's library takes its time to load

    run_export(state_dir, out, kind, not without_names)


@usage.command("samples")
@state_dir_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    required=True,
    help="The file; - is the standard output.",
)
@click.option("--since", help="From this time on: 2026-11-20T09:00:00+00:00.")
@click.option("--until", help="Until this time.")
def usage_samples(state_dir: Path, out: Path, since: str | None, until: str | None) -> None:
    """Write what was measured of each use, minute by minute, as CSV; `key` is the use's own of `usage export`."""
    from hub_extensions.tools.usage.commands import run_samples

    run_samples(state_dir, out, since, until)


@usage.command("import")
@state_dir_option
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--format", "kind", type=click.Choice(["csv", "sacct", "swf"]), help="Default: by the file itself.")
@click.option("--label", help="What its sessions are called by. Default: the file's name.")
@click.option(
    "--pool", help="The offer whose line they stand for, such as gpu or mig-1g.5gb. Default: as the file says."
)
@click.option("--begins", help="What seconds are counted from, where the file does not say it.")
@click.option("--slices-per-gpu", "slices", type=click.IntRange(1), help="Of CSV, where no .json beside it says it.")
@click.option("--processors-per-gpu", "processors", type=click.IntRange(1), help="Of SWF.")
@click.option("--zone", help="Of times without one, such as sacct's: Europe/Helsinki.")
def usage_import(
    state_dir: Path,
    file: Path,
    kind: str | None,
    label: str | None,
    pool: str | None,
    begins: str | None,
    slices: int | None,
    processors: int | None,
    zone: str | None,
) -> None:
    """Take sessions of other schedulers into the history: a trace (CSV), Slurm's sacct -P, SWF; gzip too.

    Twice the same file is once. Imported sessions are marked, and never the service's own. A file with a mistake is
    not imported at all.
    """
    from hub_extensions.tools.usage.commands import run_import

    run_import(state_dir, file, kind, label, pool, begins, slices, processors, zone)


@main.group(invoke_without_command=True)
@click.option("--dry-run", is_flag=True, help="Ask the running service what would happen to each server, and when.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: for programs.")
@state_dir_option
@click.option("--url", help="Address of a running service, ending in /services/gpu: ask it with --token.")
@click.option(
    "--token",
    envvar="JUPYTERHUB_API_TOKEN",
    help="An admin's token for --url; by default the variable JUPYTERHUB_API_TOKEN.",
)
@click.pass_context
def cull(
    context: click.Context, dry_run: bool, as_json: bool, state_dir: Path, url: str | None, token: str | None
) -> None:
    """Limits of idle and old servers: what they do now (--dry-run), and what others would have done (replay)."""
    if context.invoked_subcommand is not None:
        return
    if not dry_run:
        _refuse("This stops nothing: the service does. Give --dry-run to see what it would do, or a command: replay.")
    from hub_extensions.tools import cull_view
    from hub_extensions.tools.running_service import ServiceSilent

    try:
        view = cull_view.culling_view(state_dir, url, token)
    except ServiceSilent as problem:
        _refuse(str(problem), code=1)
    click.echo(cull_view.as_json(view)) if as_json else cull_view.print_view(view, _console())


@cull.command("replay")
@state_dir_option
@click.option("--since", default="30d", show_default=True, help="Uses that ended in so many days (30d) or hours (12h).")
@click.option("--idle-minutes", type=click.FloatRange(0, min_open=True), help="Instead of c.GpuCulling.idle_minutes.")
@click.option("--warn-minutes", type=click.FloatRange(0, min_open=True), help="Instead of c.GpuCulling.warn_minutes.")
@click.option("--lifetime-hours", type=click.FloatRange(0), help="Instead of c.GpuCulling.lifetime_hours; 0: none.")
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The rules of this file, instead of those of c.GpuCulling.policy_file.",
)
@click.option("--prometheus", metavar="URL", help="Pods of which this Prometheus remembers the use, not the store's.")
@click.option("--namespace", default="jhub", show_default=True, help="With --prometheus: where the servers' pods are.")
@click.option("--prometheus-token", envvar="PROMETHEUS_TOKEN", default="", help="By default PROMETHEUS_TOKEN.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write every figure here.")
def cull_replay(
    state_dir: Path,
    since: str,
    idle_minutes: float | None,
    warn_minutes: float | None,
    lifetime_hours: float | None,
    policy_file: Path | None,
    prometheus: str | None,
    namespace: str,
    prometheus_token: str,
    json_file: Path | None,
) -> None:
    """Play the uses of the last days again, minute by minute: GPU-hours freed, who is warned, stopped, and hit."""
    from hub_extensions.tools.cull_replay import ReplayOptions, run_replay  # the database's library takes its time

    options = ReplayOptions(
        state_dir,
        since,
        idle_minutes,
        warn_minutes,
        lifetime_hours,
        policy_file,
        prometheus,
        namespace,
        prometheus_token,
    )
    run_replay(options, json_file, _console())


@main.command()
@state_dir_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    default=Path("-"),
    help="The file. Default: the standard output.",
)
@click.option("--since", help="From this time on: 2026-11-20T09:00:00+00:00.")
@click.option("--until", help="Until this time.")
@click.option("--user", help="About this user alone.")
@click.option("--kind", "kinds", multiple=True, help="Of this kind alone, such as culled; can be repeated.")
def audit(
    state_dir: Path, out: Path, since: str | None, until: str | None, user: str | None, kinds: tuple[str, ...]
) -> None:
    """Write the journal as CSV: who did what, to whom, why, and on what evidence."""
    from hub_extensions.tools.usage.commands import run_audit

    run_audit(state_dir, out, since, until, user, kinds)


@main.group("sign-on")
def sign_on() -> None:
    """Sign-on sessions (c.SignOn), which are kept in the hub's own database."""


_hub_database = click.option(
    "--database-url",
    default="sqlite:///jupyterhub.sqlite",
    show_default=True,
    help="The hub's database, as c.JupyterHub.db_url has it.",
)


@sign_on.command("list")
@_hub_database
def sign_on_list(database_url: str) -> None:
    """Say which account of the provider each user is (c.SingleSignOnOIDCAuthenticator)."""
    for user, identity in _pin_table(database_url, lambda pins: pins.all()):
        click.echo(f"{user}\t{identity.sub}\t{identity.iss}")


@sign_on.command("pin")
@click.argument("user")
@click.argument("sub")
@click.option("--issuer", required=True, help="The provider, as c.SingleSignOnOIDCAuthenticator.issuer has it.")
@_hub_database
def sign_on_pin(user: str, sub: str, issuer: str, database_url: str) -> None:
    """Give a user to an account of the provider, by its sub. Whoever had it before does not get it any more."""
    from hub_extensions.core.sign_on.identity import Identity

    now = datetime.now(timezone.utc)
    _pin_table(database_url, lambda pins: pins.pin(user, Identity(issuer, sub), now))
    _print(f"{user} is the account {sub} now. Open sessions stay: end them on the page sso/admin.")


@sign_on.command("unpin")
@click.argument("user")
@_hub_database
def sign_on_unpin(user: str, database_url: str) -> None:
    """Take a user from its account of the provider: who comes next with the name may get it."""
    there = _pin_table(database_url, lambda pins: pins.unpin(user))
    _print(f"{user} is nobody's now." if there else f"{user} was nobody's.")


def _pin_table(database_url: str, work: Callable[[Any], Any]) -> Any:
    from hub_extensions.adapters.store.sign_on_provider import PinTable  # the database's library takes its time to load

    try:
        return work(PinTable(database_url))
    except ValueError as problem:
        _refuse(f"Nothing was done: {problem}.", code=1)


@sign_on.command("forget")
@_hub_database
def sign_on_forget(database_url: str) -> None:
    """Drop the tables of sessions and their audit log, while the hub is stopped.

    Everybody signs in once afterwards: a session that was ended would go on otherwise, by the hub's own cookie.
    """
    from hub_extensions.adapters.store.sign_on import forget  # the database's library takes its time to load

    try:
        gone = forget(database_url)
    except ValueError as problem:
        _refuse(f"Nothing was dropped: {problem}.", code=1)
    _print(f"Dropped: {', '.join(gone)}." if gone else "There are no tables of sign-on sessions in it.")


def _console() -> Console:
    # Not a terminal: whole lines, for files and programs.
    return Console(highlight=False, soft_wrap=True) if sys.stdout.isatty() else Console(highlight=False, width=200)


def _print(text: str) -> None:
    _console().print(text, markup=False, soft_wrap=True)
    sys.stdout.flush()


def _refuse(text: str, code: int = 2) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
