"""``jupyterhub-gpu cull replay``: shows which servers of the past would have been stopped by other limits of culling.

It goes through past GPU uses (each is one server's time with a GPU) minute by minute. They come from the GPU service's
database, or from Prometheus, where each pod with a GPU is one use.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hub_extensions.adapters.files.policy_file import PolicyFileError, read_policy_file
from hub_extensions.adapters.prometheus import DcgmReading, Prometheus
from hub_extensions.adapters.store import StoreUnavailable
from hub_extensions.adapters.store.archive import Archive, MeasuredMinute
from hub_extensions.core.culling import Cause, CullPolicy, CullRule, PolicyError, check_policy
from hub_extensions.core.culling.replay import MeasuredUse, PastWaits, PlayedUse, ReplaySummary, play, summarized
from hub_extensions.core.gpu.dcgm_history import STEP, PodHistory, past_pods
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import OfferId, OfferIdError
from hub_extensions.core.text.wording import duration
from hub_extensions.hub_service.setup.settings import Settings, SettingsError
from hub_extensions.hub_service.setup.state_dir import SETTINGS_FILE
from hub_extensions.tools.store_address import store_address

HOUR = timedelta(hours=1)
PROMETHEUS_SECONDS = 60.0
"""Timeout of a query to Prometheus. It is long, because a query covers half a day."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options of a replay. If a limit is None, the limit of the hub's settings applies.

    Attributes:
        state_dir: the GPU service's state folder.
        since: how far to go back, such as ``30d`` or ``12h``.
        idle_minutes: time after which an idle server stops.
        warn_minutes: time between the warning and the stop.
        lifetime_hours: longest time that a server may run; 0 for no limit.
        policy_file: file with rules for culling, instead of the one in the settings; None to use that one.
        prometheus: URL of Prometheus; None to take the past uses from the service's database.
        namespace: namespace of the pods in Prometheus.
        token: token for Prometheus; "" for none.
    """

    state_dir: Path
    since: str
    idle_minutes: float | None = None
    warn_minutes: float | None = None
    lifetime_hours: float | None = None
    policy_file: Path | None = None
    prometheus: str | None = None
    namespace: str = "jhub"
    token: str = ""


class _HistoryUnreadable(Exception):
    """Prometheus cannot return the history. The text has the reason."""


def run_replay(options: ReplayOptions, json_file: Path | None, console: Console) -> None:
    """Run ``cull replay``: print the result. After an error, print a message and exit.

    Args:
        options: the options of the command.
        json_file: file to which the result is written too; None to write none.
        console: where the result is printed.
    """
    span = _span(options.since)
    try:
        policy = _policy(options)
        rules = read_policy_file(policy.policy_file, policy) if policy.policy_file else ()
        if options.prometheus is None:
            with Archive.open(store_address(options.state_dir), reading=True) as archive:
                found = replay(archive, span, policy, rules)
        else:
            parts = asyncio.run(_history(options, span))
            found = summarized(play(use, policy, rules) for use in uses_of_pods(parts))
        if json_file is not None:
            json_file.write_text(as_json(found) + "\n")
    except (SettingsError, PolicyError, PolicyFileError) as problem:
        _refuse(str(problem), 2)
    except (StoreUnavailable, OSError, _HistoryUnreadable) as problem:
        _refuse(str(problem), 1)
    console.print(as_table(found))
    notes = [f"By the rules of {policy.policy_file}, and c.GpuCulling."] if policy.policy_file else []
    if options.prometheus is not None:
        notes.append("Each pod is one use of a whole device; who waited, which groups its user was in, and what memory")
        notes[-1] += " it held is not known."
    console.print("\n".join([*as_sentences(found), *notes]), soft_wrap=True, markup=False, highlight=False)


def _policy(options: ReplayOptions) -> CullPolicy:
    """Return the culling limits of the hub's settings, overridden by the options of the command line."""
    try:
        policy = Settings.load(options.state_dir / SETTINGS_FILE).culling
    except SettingsError:
        if options.prometheus is None:
            raise
        policy = CullPolicy()  # beside a cluster there may be no state folder
    if options.idle_minutes is not None:
        policy = replace(policy, idle=timedelta(minutes=options.idle_minutes), idle_by_offer={})
    if options.warn_minutes is not None:
        policy = replace(policy, warn=timedelta(minutes=options.warn_minutes))
    if options.lifetime_hours is not None:
        hours = options.lifetime_hours
        policy = replace(policy, lifetime=timedelta(hours=hours) if hours else None)
    if options.policy_file is not None:
        policy = replace(policy, policy_file=str(options.policy_file))
    check_policy(policy)
    return policy


def replay(archive: Archive, span: timedelta, policy: CullPolicy, rules: Sequence[CullRule] = ()) -> ReplaySummary:
    """Return what the limits would have done to every GPU use that became ready and ended within the time span.

    Args:
        archive: the GPU service's database.
        span: how far to go back from now.
        policy: the limits.
        rules: rules of the policy file.
    """
    waits = PastWaits(archive.waits(span))
    uses = (_measured_use(record, known, policy) for record, known in archive.measured_uses(span))
    return summarized(play(use, policy, rules, waits) for use in uses)


def _measured_use(record: dict[str, Any], known: Iterable[MeasuredMinute], policy: CullPolicy) -> MeasuredUse:
    record = {**record, "groups": frozenset(record["groups"])}
    used = {each.at: each.percent for each in known if each.percent is not None and _counts(each, policy)}
    return MeasuredUse(**record, used=used, memory={each.at: each.memory for each in known if each.memory is not None})


def _counts(minute: MeasuredMinute, policy: CullPolicy) -> bool:
    """Whether the measured use of a minute is evidence for idle culling.

    Low use does not count if only the server itself reported it, unless the administrator trusts such reports.

    Args:
        minute: the use, and what measured it.
        policy: the limits, with the setting whether reports of servers are trusted.
    """
    busy = minute.percent is not None and minute.percent >= policy.idle_below_percent
    return minute.source != "report" or policy.trust_reports or busy


async def _history(options: ReplayOptions, span: timedelta) -> tuple[PodHistory, ...]:
    assert options.prometheus is not None
    client = Prometheus(options.prometheus, options.token, seconds=PROMETHEUS_SECONDS)
    end = datetime.now(timezone.utc).replace(second=0, microsecond=0)
    try:
        found = await client.pod_history(options.namespace, end - span, end)
    finally:
        client.close()
    if isinstance(found, DcgmReading):
        raise _HistoryUnreadable(f"--prometheus: {found.message}")
    return found


def uses_of_pods(parts: Iterable[PodHistory]) -> Iterator[MeasuredUse]:
    """Convert each pod in the history of Prometheus to a GPU use (one server's time with a GPU).

    The user is "", because only the hub knows it.

    Args:
        parts: pods with their measurements, as Prometheus has them.
    """
    for pod in past_pods(parts):
        offer, minutes = _offer(pod.profile), sorted(pod.used)
        yield MeasuredUse(
            pod.pod, "", offer, WHOLE, minutes[0], minutes[-1] + STEP, False, pod.used, pool=offer, groups=None
        )


def _offer(profile: str) -> OfferId:
    try:
        return OfferId(f"mig-{profile}" if profile else "gpu")
    except OfferIdError:
        return OfferId("gpu")  # a profile that this version does not know


def as_table(found: ReplaySummary) -> Table:
    """Return the result as a table: the past uses and their GPU-hours, then the stops and freed GPU-hours by cause."""
    table = Table("", "uses", "GPU-hours", box=None, pad_edge=False)
    table.add_row("had a GPU", str(found.uses), f"{found.held / HOUR:.1f}")
    for cause in Cause:
        if found.stopped[cause]:
            table.add_row(
                f"stopped: {cause.value}", str(found.stopped[cause]), f"{found.freed[cause] / HOUR:.1f} freed"
            )
    for (rule, cause), count in sorted(found.by_rule.items(), key=lambda each: (each[0][0], each[0][1].value)):
        if rule:
            table.add_row(f"  by rule {escape(rule)}: {cause.value}", str(count), "")
    return table


def as_sentences(found: ReplaySummary) -> list[str]:
    """Return the sentences below the table.

    The last ones name the servers that would have been stopped although their users were at work again soon after.
    """
    stops = sum(found.stopped.values())
    lines = [
        f"{found.people_warned} of {found.people} people would have been warned, {found.warnings} times in all; "
        f"{stops} servers stopped. Nobody's Keep is counted: each press would have put one off."
    ]
    if found.unmeasured:
        lines.append(f"Of {found.unmeasured} uses nothing was measured: only their lifetime could have ended them.")
    if found.undecided:
        lines.append(f"{found.undecided} uses were left alone: rules are by group, and their users' are not known.")
    if stops:
        lines.append(f"{len(found.came_back)} of them were at work again within 10 min after it.")
    lines += [f"  {hit}" for hit in sorted(map(_hit, found.came_back))]  # each begins with its time
    return lines


def as_json(found: ReplaySummary) -> str:
    """Return the result as JSON, for programs. Durations are in hours."""
    model: dict[str, Any] = {
        "uses": found.uses,
        "people": found.people,
        "unmeasured": found.unmeasured,
        "held_hours": found.held / HOUR,
        "people_warned": found.people_warned,
        "warnings": found.warnings,
        "stopped": {cause.value: count for cause, count in found.stopped.items()},
        "freed_hours": {cause.value: freed / HOUR for cause, freed in found.freed.items()},
        "by_rule": [
            {"rule": rule, "cause": cause.value, "stopped": count} for (rule, cause), count in found.by_rule.items()
        ],
        "undecided": found.undecided,
        "came_back": [
            {
                "user": each.use.user,
                "server": each.use.server,
                "offer": each.use.offer,
                "stopped": each.stopped.isoformat() if each.stopped else None,
                "cause": each.cause.value if each.cause else None,
                "rule": each.rule,
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
    return f"{at}  {server}, {each.use.offer}, {why}, a use of {duration(each.use.ended - each.use.ready)}"
