"""The signs that a server is in use, as its user sees them: GPU, kernels, terminals, activity.

A sign is busy, idle or unknown, and has a source and a time.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.gpu.samples import DeviceSample, ServerReport, UseSign
from hub_extensions.core.messages.server import Progress

LATELY = timedelta(minutes=1)
"""Time after the last activity of a server without a GPU for which it is shown as busy."""


def gpu_signs(
    sample: DeviceSample | None, report: ServerReport | None, policy: CullPolicy, *, used: float | None
) -> tuple[UseSign, ...]:
    """Return the signs of use of a server with a GPU.

    Args:
        sample: the last measurement of its GPU; `None` without a measurement.
        report: the last report of its extension; `None` without a report.
        policy: the limits for this server.
        used: the GPU use on which decisions are based (`decisive_use`); `None` if it is not known.
    """
    percent = None if sample is None else sample.used_percent
    source = "none" if sample is None or percent is None else sample.source
    own = None if report is None else report.used_percent
    protects = own is not None and used is not None and own == used and used >= policy.idle_below_percent
    by_report = protects and (percent is None or percent < policy.idle_below_percent)
    signs = [UseSign("gpu", _value(percent, policy), source, sample.at if sample else None, not by_report)]
    if report is not None and own is not None and source != "report":
        signs.append(UseSign("report", _value(own, policy), "report", report.at, by_report))
    return (*signs, *_programs(report, decides=False))


def cpu_signs(last_activity: datetime | None, report: ServerReport | None, now: datetime) -> tuple[UseSign, ...]:
    """Return the signs of use of a server without a GPU.

    Args:
        last_activity: the server's `last_activity` at the hub, by the wall clock. `None` if it is not known.
        report: the last report of its extension. `None` without a report.
        now: the present time by the wall clock.
    """
    lately = last_activity is not None and now - last_activity <= LATELY
    value = "unknown" if last_activity is None else "busy" if lately else "idle"
    return (UseSign("activity", value, "hub", last_activity, True), *_programs(report, decides=True))


def training_sign(training: Progress | None, policy: CullPolicy) -> tuple[UseSign, ...]:
    """Return the sign that a training program has time left; empty if none reports that.

    Args:
        training: the last report of a program that trains now. `None` if none does.
        policy: the limits for this server.
    """
    return () if training is None else (UseSign("training", "busy", "report", training.at, policy.count_progress),)


def with_training(report: ServerReport | None, training: Progress | None, policy: CullPolicy) -> ServerReport | None:
    """Return the report on which decisions are based: with a busy kernel if a program trains and the policy counts it.

    Args:
        report: the last report of the server's extension; `None` without a report.
        training: the last report of a program that trains now. `None` if none does.
        policy: the limits for this server.
    """
    if report is None or training is None or not policy.count_progress:
        return report
    return replace(report, busy_kernels=max(1, report.busy_kernels or 0))


def _programs(report: ServerReport | None, *, decides: bool) -> tuple[UseSign, ...]:
    if report is None:
        return ()
    found = (("kernels", report.busy_kernels), ("terminals", report.busy_terminals))
    return tuple(
        UseSign(kind, "unknown" if busy is None else "busy" if busy else "idle", "report", report.at, decides)
        for kind, busy in found
    )


def _value(percent: float | None, policy: CullPolicy) -> str:
    if percent is None:
        return "unknown"
    return "busy" if percent >= policy.idle_below_percent else "idle"
