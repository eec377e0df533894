"""The drain of a server whose stop has begun: time to interrupt cells, to save notebooks, and to run the user's hook.

When the drain is over, the hub is asked to stop the server. A stop that somebody ordered for a certain time begins
earlier by the time that the drain takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from hub_extensions.core.gpu.samples import DeviceSample, ServerReport

HEARD = timedelta(seconds=13)
"""Longest time until a server learns that its stop has begun, because without a countdown it asks only every 10 s."""
SAVING = timedelta(seconds=10)  # for JupyterLab to save open notebooks; it usually needs a second
OTHER_PAGES = timedelta(seconds=3)
"""Time that other pages of a server get to save after the first page has reported that it has saved."""

AFTER_HOOK = timedelta(seconds=5)  # a sample this long after the end of a hook shows a use without the hook
READ = timedelta(seconds=10)  # a device is read every 2 s; one without a sample for this long is not waited for
BY_THE_CARD = ("nvml", "gpm", "simulated")
"""Sources whose measurements are of the present moment; those of DCGM are older."""


@dataclass(frozen=True, slots=True)
class DrainSeen:
    """The reports of a server since its drain (the time to save and to run the user's hook) began.

    A hook is a program of the user that runs before a stop.

    Attributes:
        pages_asked: when the server first reported that open pages were asked to save; `None` if it has not.
        pages_saved: when the server first reported that the notebooks were saved; `None` if it has not.
        at_work: whether a cell or a program in a terminal may have run during the drain. If so, it may have used the
            GPU, and not only the user's hook.
        hook_ended: wall-clock time at which the user's hook had ended; `None` before that, and without a hook.
    """

    pages_asked: datetime | None = None
    pages_saved: datetime | None = None
    at_work: bool = False
    hook_ended: datetime | None = None

    def after(self, report: ServerReport, at: datetime, wall: datetime) -> DrainSeen:
        """Return what the server has reported since its drain began, including one more report.

        Args:
            report: the report.
            at: when the report came, on the running clock (which stands still while hub or service is down).
                `pages_asked` and `pages_saved` are times of this clock.
            wall: when the report came, by the wall clock. `hook_ended` is a time of this clock.
        """
        ended = report.hook_ran and report.draining is False
        return DrainSeen(
            self.pages_asked or (at if report.asked else None),
            self.pages_saved or (at if report.saved else None),
            self.at_work or report.busy_kernels != 0 or report.busy_terminals != 0,
            self.hook_ended or (wall if ended else None),
        )


def begins_before(report: ServerReport | None, drain: timedelta) -> timedelta:
    """Return how long before the time of an order the drain (saving, and the user's hook) begins.

    This is zero without the extension, `HEARD` for saving alone, and `drain` (at least `HEARD`) with a hook. A hook is
    a program of the user that runs before a stop.

    Args:
        report: the last report of the server's extension; `None` if the server does not have it, so that nothing can be
            saved.
        drain: how long the drain may take at most (`CullPolicy.drain`).
    """
    if report is None:
        return timedelta(0)
    return max(HEARD, drain) if report.has_hook else HEARD


def may_stop_now(
    report: tuple[ServerReport, datetime] | None,
    began: datetime,
    now: datetime,
    drain: timedelta,
    seen: DrainSeen,
) -> bool:
    """Return whether the drain of a server is over, so that the hub may be asked now to stop it.

    A server without the extension is not drained. If the extension has not reported since the stop began, the drain
    ends after `HEARD`. While cells or the user's hook run, it ends only after `drain` (at least `SAVING`). Otherwise it
    ends `OTHER_PAGES` after a page has saved, `SAVING` after the pages were asked to save, or after `HEARD` if no page
    was asked. A hook is a program of the user that runs before a stop.

    Args:
        report: the last report of the server's extension, and when it came; `None` if the server does not have it.
        began: when the stop began.
        now: the present time, by the clock of `began`.
        drain: how long the drain may take at most (`CullPolicy.drain`).
        seen: which steps of the drain the server has reported since `began`.
    """
    if report is None:
        return True
    said, at = report
    waited = now - began
    if at < began:
        return waited >= HEARD
    most = max(drain, SAVING)
    if said.draining or waited >= most:
        return waited >= most
    if seen.pages_saved is not None:
        return now - seen.pages_saved >= OTHER_PAGES
    if seen.pages_asked is None and said.asked is False:
        return waited >= HEARD  # without an open page, or without the request to save yet
    return now - (seen.pages_asked or began) >= SAVING


def may_be_work(report: tuple[ServerReport, datetime] | None, began: datetime) -> bool:
    """Return whether a busy GPU may mean that the user is at work, so that the stop is cancelled.

    The user's hook may use the GPU to save data from it, which does not mean that the user is at work. A cell or a
    program in a terminal does. A hook is a program of the user that runs before a stop.

    Args:
        report: the last report of the server's extension, and when it came. `None`, or a report from before the stop,
            does not exclude work.
        began: when the stop began.
    """
    if report is None or report[1] < began:
        return True
    said = report[0]
    return not said.hook_ran or said.busy_kernels != 0 or said.busy_terminals != 0


def is_after_hook(sample: DeviceSample | None, hook_ended: datetime | None) -> bool:
    """Return whether a measurement was made well after the user's hook had ended, so that a busy GPU means work.

    A hook is a program of the user that runs before a stop.

    Args:
        sample: the last measurement; `None` without a measurement.
        hook_ended: wall-clock time at which the hook had ended; `None` if it has not, or without a hook.
    """
    return (
        _of_the_moment(sample) and hook_ended is not None and sample is not None and sample.at > hook_ended + AFTER_HOOK
    )


def awaits_sample(sample: DeviceSample | None, hook_ended: datetime | None, now: datetime) -> bool:
    """Return whether a stop has to wait for a measurement that is made after the user's hook has ended.

    A hook is a program of the user that runs before a stop.

    Args:
        sample: the last measurement; `None` without a measurement.
        hook_ended: wall-clock time at which the hook had ended; `None` if it has not, or without a hook.
        now: wall-clock time.
    """
    if hook_ended is None or not _of_the_moment(sample) or is_after_hook(sample, hook_ended):
        return False
    return timedelta(0) <= now - hook_ended <= AFTER_HOOK + READ


def _of_the_moment(sample: DeviceSample | None) -> bool:
    return sample is not None and sample.source in BY_THE_CARD
