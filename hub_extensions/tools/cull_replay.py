"""``jupyterhub-gpu cull replay``: what other limits would have done with the uses that are in the store."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.table import Table

from hub_extensions.adapters.store import StoreUnavailable
from hub_extensions.adapters.store.archive import Archive
from hub_extensions.core.culling import Cause, CullPolicy, PolicyError, check_policy
from hub_extensions.core.culling.replay import MeasuredUse, PlayedUse, ReplaySummary, play, summarized
from hub_extensions.core.wording import duration
from hub_extensions.hub_service.setup.settings import Settings, SettingsError
from hub_extensions.hub_service.setup.state_dir import SETTINGS_FILE
from hub_extensions.tools.store_address import store_address

HOUR = timedelta(hours=1)


def run_replay(
    state_dir: Path,
    since: str,
    idle_minutes: float | None,
    warn_minutes: float | None,
    lifetime_hours: float | None,
    json_file: Path | None,
    console: Console,
) -> None:
    """See ``cull replay``."""
    span = _span(since)
    try:
        policy = Settings.load(state_dir / SETTINGS_FILE).culling
        if idle_minutes is not None:
            policy = replace(policy, idle=timedelta(minutes=idle_minutes), idle_by_offer={})
        if warn_minutes is not None:
            policy = replace(policy, warn=timedelta(minutes=warn_minutes))
        if lifetime_hours is not None:
            policy = replace(policy, lifetime=timedelta(hours=lifetime_hours) if lifetime_hours else None)
        check_policy(policy)
        with Archive.open(store_address(state_dir), reading=True) as archive:
            found = replay(archive, span, policy)
        if json_file is not None:
            json_file.write_text(as_json(found) + "\n")
    except (SettingsError, PolicyError) as problem:
        _refuse(str(problem), 2)
    except (StoreUnavailable, OSError) as problem:
        _refuse(str(problem), 1)
    console.print(as_table(found))
    if policy.policy_file:
        console.print(
            f"The rules of {policy.policy_file} are not played, only the limits of c.GpuCulling.", markup=False
        )
    console.print("\n".join(as_sentences(found)), soft_wrap=True, markup=False, highlight=False)


def replay(archive: Archive, span: timedelta, policy: CullPolicy) -> ReplaySummary:
    """Every use with a GPU that ended in this last span of time, and was ready once."""

    def played() -> Iterator[PlayedUse]:
        for record, known in archive.measured_uses(span):
            used = {at: percent for at, (percent, source) in known.items() if _counts(percent, source, policy)}
            yield play(MeasuredUse(**record, used=used), policy)

    return summarized(played())


def _counts(percent: float, source: str, policy: CullPolicy) -> bool:
    """A low use that only the server reported stops nobody, unless the admin trusts it."""
    return source != "report" or policy.trust_reports or percent >= policy.idle_below_percent


def as_table(found: ReplaySummary) -> Table:
    """What an admin reads."""
    table = Table("", "uses", "GPU-hours", box=None, pad_edge=False)
    table.add_row("had a GPU", str(found.uses), f"{found.held / HOUR:.1f}")
    for cause in Cause:
        if found.stopped[cause]:
            table.add_row(
                f"stopped: {cause.value}", str(found.stopped[cause]), f"{found.freed[cause] / HOUR:.1f} freed"
            )
    return table


def as_sentences(found: ReplaySummary) -> list[str]:
    """What the table does not say; the last ones name who would have been hit."""
    stops = sum(found.stopped.values())
    lines = [
        f"{found.people_warned} of {found.people} people would have been warned, {found.warnings} times in all; "
        f"{stops} servers stopped. Nobody's Keep is counted: each press would have put one off."
    ]
    if found.unmeasured:
        lines.append(f"Of {found.unmeasured} uses nothing was measured: only their lifetime could have ended them.")
    if stops:
        lines.append(f"{len(found.came_back)} of them were at work again within 10 min after it.")
    lines += [f"  {_hit(each)}" for each in found.came_back]
    return lines


def as_json(found: ReplaySummary) -> str:
    """The same for programs; hours."""
    model: dict[str, Any] = {
        "uses": found.uses,
        "people": found.people,
        "unmeasured": found.unmeasured,
        "held_hours": found.held / HOUR,
        "people_warned": found.people_warned,
        "warnings": found.warnings,
        "stopped": {cause.value: count for cause, count in found.stopped.items()},
        "freed_hours": {cause.value: freed / HOUR for cause, freed in found.freed.items()},
        "came_back": [
            {
                "user": each.use.user,
                "server": each.use.server,
                "offer": each.use.offer,
                "stopped": each.stopped.isoformat() if each.stopped else None,
                "cause": each.cause.value if each.cause else None,
            }
            for each in found.came_back
        ],
    }
    return json.dumps(model, indent=2)


def _span(text: str) -> timedelta:
    found = re.fullmatch(r"([1-9][0-9]{0,4})([dh])", text)
    if found is None:
        _refuse(f"--since: '{text[:40]}' is not a span like 30d or 12h.", 2)
    return timedelta(**{"days" if found[2] == "d" else "hours": int(found[1])})


def _refuse(text: str, code: int) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(code)


def _hit(each: PlayedUse) -> str:
    at = "" if each.stopped is None else each.stopped.isoformat(sep=" ", timespec="minutes")
    why = "" if each.cause is None else each.cause.value
    server = f"{each.use.user}/{each.use.server}" if each.use.server else each.use.user
    return f"{at}  {server}, {each.use.offer}, {why}, {duration(each.use.ended - each.use.ready)} long"
