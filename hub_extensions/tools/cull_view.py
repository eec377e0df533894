"""``jupyterhub-gpu cull --dry-run``: prints what a running service would do with each server."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hub_extensions.core.messages import CulledServer, CullingView
from hub_extensions.tools.running_service import answer_of, service_at

COLUMNS = ("server", "offer", "would", "when", "why", "rule", "evidence")
_VIEW: TypeAdapter[CullingView] = TypeAdapter(CullingView)


def culling_view(state_dir: Path, url: str | None, token: str | None) -> CullingView:
    """Ask a running service what it would now do with each server.

    Args:
        state_dir: the GPU service's state folder, in which address and secret are.
        url: address of the service, to be used with `token`; None to use the state folder instead.
        token: a user's token for `url`; None without one.

    Raises:
        ServiceSilent: the service cannot be asked.
    """
    service = service_at(state_dir, url, token, for_people="api/culling", for_hub="hub/culling")
    return answer_of(service, _VIEW.validate_json)


def as_json(view: CullingView) -> str:
    """Return the GPU service's decisions (see `culling_view`) as JSON, for programs."""
    return _VIEW.dump_json(view, indent=2).decode()


def print_view(view: CullingView, console: Console) -> None:
    """Print a row for each server, then the servers that could not be stopped."""
    table = Table(*COLUMNS, box=None, pad_edge=False)
    for each in view.servers:
        table.add_row(*map(Text, _row(each)))
    console.print(table)
    dry = any(not each.enforced for each in view.servers)
    note = " Culling is a dry run (c.GpuCulling.enabled = False): nothing of this happens." if dry else ""
    console.print(f"{len(view.servers)} server(s), as of {_time(view)}.{note}", markup=False)
    for stop in view.failed_stops:
        since = f"not stopped since {stop.since.isoformat(timespec='seconds')}, {stop.tries} tries"
        console.print(f"FAILED: {_server(stop.user, stop.server)}: {since}. {stop.text} {stop.to_do}", markup=False)


def _row(each: CulledServer) -> tuple[str, ...]:
    end, what = each.stops_at, {"keep": "go on", "warn": "be warned", "stop": "be stopped"}[each.action]
    if end is not None:
        when = end.isoformat(sep=" ", timespec="minutes")
    elif each.ends_at is not None:
        when = f"{each.ends_at.isoformat(sep=' ', timespec='minutes')} at the latest"
    else:
        when = "no end in sight"
    rule = each.rule or "c.GpuCulling"
    return _server(each.user, each.server), each.offer, what, when, each.reason, rule, each.evidence


def _server(user: str, server: str) -> str:
    return f"{user}/{server}" if server else user


def _time(view: CullingView) -> str:
    return view.as_of.isoformat(sep=" ", timespec="seconds")
