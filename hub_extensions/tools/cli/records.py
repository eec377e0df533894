"""Commands about the service's stored data: its database (the store), the usage records, and the journal.

The wait forecast and the limits of culling can be tested against that history.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from hub_extensions.tools.cli.terminal import console, refuse, write


@click.group()
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


def _store_does(what: Literal["backup", "restore", "check"], state_dir: Path, path: Path | None) -> None:
    from hub_extensions.tools.store import StoreFile, StoreRefused  # the database's library takes its time to load

    try:
        file = StoreFile.of(state_dir)
        if what == "check":
            lines, whole = file.check()
            write("\n".join(lines))
            sys.exit(0 if whole else 1)
        write(file.backup(path) if what == "backup" else file.restore(path))
    except StoreRefused as refused:
        refuse(str(refused), code=refused.code)


@click.group()
def forecast() -> None:
    """The wait forecast: how well it would have predicted past waits."""


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
        backtest(options, console())
    except BacktestRefused as refused:
        refuse(str(refused))


@click.group()
def usage() -> None:
    """The history: who used which GPU, when, how much of it, and how it ended."""


@usage.command("export")
@state_dir_option
@click.option(
    "--output",
    "-o",
    "out",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    required=True,
    help="The file; - is the standard output.",
)
@click.option("--format", "kind", type=click.Choice(["csv", "json"]), help="Default: by the file's name, else csv.")
@click.option(
    "--anonymize", "without_names", is_flag=True, help="Numbers for users and choices; no servers, groups, tickets."
)
def usage_export(state_dir: Path, out: Path, kind: str | None, without_names: bool) -> None:
    """Write all records, also while the service runs, in the order in which they began."""
    from hub_extensions.tools.usage.commands import run_export  # the database's library takes its time to load

    run_export(state_dir, out, kind, not without_names)


@usage.command("samples")
@state_dir_option
@click.option(
    "--output",
    "-o",
    "out",
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
@click.option("--start-time", "begins", help="What seconds are counted from, where the file does not say it.")
@click.option("--slices-per-gpu", "slices", type=click.IntRange(1), help="Of CSV, where no .json beside it says it.")
@click.option("--processors-per-gpu", "processors", type=click.IntRange(1), help="Of SWF.")
@click.option("--timezone", "zone", help="Of times without one, such as sacct's: Europe/Helsinki.")
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


@click.group(invoke_without_command=True)
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
        refuse("This stops nothing: the service does. Give --dry-run to see what it would do, or a command: replay.")
    from hub_extensions.tools import cull_view
    from hub_extensions.tools.running_service import ServiceSilent

    try:
        view = cull_view.culling_view(state_dir, url, token)
    except ServiceSilent as problem:
        refuse(str(problem), code=1)
    click.echo(cull_view.as_json(view)) if as_json else cull_view.print_view(view, console())


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
    """Replay the uses of the last days, minute by minute: GPU-hours freed, who is warned, stopped, and hit."""
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
    run_replay(options, json_file, console())


@click.command()
@state_dir_option
@click.option(
    "--output",
    "-o",
    "out",
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
