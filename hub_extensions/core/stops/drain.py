"""The drain of a server whose stop has begun: the time for its cells, open notebooks, and its user's own hook.

A stop by order begins earlier by that time, so that the hub is asked to stop the server when the order says.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from hub_extensions.core.gpu.samples import DeviceSample, ServerReport

HEARD = timedelta(seconds=13)
"""A server without a countdown asks every 10 s, so it may learn this late that its stop has begun."""
SAVING = timedelta(seconds=10)  # for JupyterLab to save open notebooks; it usually needs a second
OTHER_PAGES = timedelta(seconds=3)
"""A server can be open in several pages, and "saved" is the report of one page: the others get this long after it."""

AFTER_HOOK = timedelta(seconds=5)  # a sample this long after the end of a hook shows a use without the hook
READ = timedelta(seconds=10)  # a device is read every 2 s; one without a sample for this long is not waited for
BY_THE_CARD = ("nvml", "gpm", "simulated")
"""Sources whose samples are of the present moment; DCGM's samples are older."""


@dataclass(frozen=True, slots=True)
class PagesHeard:
    """When the service learned, since a stop began, that open pages were asked to save, and that one had saved."""

    asked: datetime | None = None
    saved: datetime | None = None

    def after(self, report: ServerReport, now: datetime) -> PagesHeard:
        """Return the times after a report of the server."""
        asked, saved = (now if report.asked else None), (now if report.saved else None)
        return PagesHeard(self.asked or asked, self.saved or saved)


@dataclass(frozen=True, slots=True)
class DrainSeen:
    """The reports of a server since its drain began.

    Attributes:
        at_work: a cell or a program in a terminal ran, so a use of the GPU may be other work than the user's hook.
        hook_ended: when the user's hook had ended, by the wall clock; `None` before, and without a hook.
    """

    pages: PagesHeard = PagesHeard()
    at_work: bool = False
    hook_ended: datetime | None = None

    def after(self, report: ServerReport, at: datetime, wall: datetime) -> DrainSeen:
        """Return what is known after a report, at this time of the running clock and of the wall clock."""
        ended = report.hook_ran and report.draining is False
        return DrainSeen(
            self.pages.after(report, at),
            self.at_work or report.busy_kernels != 0 or report.busy_terminals != 0,
            self.hook_ended or (wall if ended else None),
        )


def begins_before(report: ServerReport | None, drain: timedelta) -> timedelta:
    """Return how long before the time of an order its stop begins.

    Args:
        report: the extension's last report; `None` if the server does not run the extension, so nothing can be saved.
        drain: as in `may_stop_now`.
    """
    if report is None:
        return timedelta(0)
    return max(HEARD, drain) if report.has_hook else HEARD


def may_stop_now(
    report: tuple[ServerReport, datetime] | None,
    began: datetime,
    now: datetime,
    drain: timedelta,
    pages: PagesHeard,
) -> bool:
    """Whether the stop that `began` then may be carried out now.

    Args:
        report: the extension's last report, and when it came; `None` as in `begins_before`.
        drain: how long the drain may take at most (`CullPolicy.drain`).
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
    if pages.saved is not None:
        return now - pages.saved >= OTHER_PAGES
    if pages.asked is None and said.asked is False:
        return waited >= HEARD  # without an open page, or without the request to save yet
    return now - (pages.asked or began) >= SAVING


def may_be_work(report: tuple[ServerReport, datetime] | None, began: datetime) -> bool:
    """Whether a use of the GPU, seen after a stop `began`, may be another one than that of its user's own hook.

    A hook that saves from the GPU uses it and does not cancel its own stop. A cell or a program in a terminal does.
    Without a report the use may be work.
    """
    if report is None or report[1] < began:
        return True
    said = report[0]
    return not said.hook_ran or said.busy_kernels != 0 or said.busy_terminals != 0


def is_after_hook(sample: DeviceSample | None, hook_ended: datetime | None) -> bool:
    """Whether a sample is of a time well after the hook's end, so that the use it shows is work."""
    return (
        _of_the_moment(sample) and hook_ended is not None and sample is not None and sample.at > hook_ended + AFTER_HOOK
    )


def awaits_sample(sample: DeviceSample | None, hook_ended: datetime | None, now: datetime) -> bool:
    """Whether a stop waits for a sample of a time after the hook. Both times are by the wall clock."""
    if hook_ended is None or not _of_the_moment(sample) or is_after_hook(sample, hook_ended):
        return False
    return timedelta(0) <= now - hook_ended <= AFTER_HOOK + READ


def _of_the_moment(sample: DeviceSample | None) -> bool:
    return sample is not None and sample.source in BY_THE_CARD
