"""How long a server whose stop has begun is waited for: cells, open notebooks, and its user's own hook.

A stop by order begins that long before its time, so that the hub is asked to stop the server at the time itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from hub_extensions.core.gpu.samples import DeviceSample, ServerReport

HEARD = timedelta(seconds=13)
"""A server without a countdown asks every 10 s: so long it may not have heard that its stop began."""
SAVING = timedelta(seconds=10)
"""How long JupyterLab has to save open notebooks from when it was asked; it usually needs a second."""
OTHER_PAGES = timedelta(seconds=3)
"""A server can be open in several pages, and "saved" is the report of one: the others get this long after it."""

AFTER_HOOK = timedelta(seconds=5)
"""What the card says so long after a hook has ended is of a time without it."""
READ = timedelta(seconds=10)
"""A card is read every 2 s: who says nothing for so long after that is waited for no more."""
BY_THE_CARD = ("nvml", "gpm", "simulated")
"""Sources of samples that are of the very moment; DCGM's are of some time before."""


@dataclass(frozen=True, slots=True)
class PagesHeard:
    """When it was first heard, since a stop began, that its server's pages were asked to save, and that one had."""

    asked: datetime | None = None
    saved: datetime | None = None

    def after(self, report: ServerReport, now: datetime) -> PagesHeard:
        """What is known once its server reports this."""
        asked, saved = (now if report.asked else None), (now if report.saved else None)
        return PagesHeard(self.asked or asked, self.saved or saved)


@dataclass(frozen=True, slots=True)
class DrainSeen:
    """What a server has reported since its drain began.

    Attributes:
        at_work: a cell or a program in a terminal ran, so a use of the GPU may be other work than the user's hook.
        hook_ended: when the user's hook had ended, by the wall clock; `None` if it has not, or there is none.
    """

    pages: PagesHeard = PagesHeard()
    at_work: bool = False
    hook_ended: datetime | None = None

    def after(self, report: ServerReport, at: datetime, wall: datetime) -> DrainSeen:
        """What is known once the server reports this, at this time of the running clock and of the wall clock."""
        ended = report.hook_ran and report.draining is False
        return DrainSeen(
            self.pages.after(report, at),
            self.at_work or report.busy_kernels != 0 or report.busy_terminals != 0,
            self.hook_ended or (wall if ended else None),
        )


def begins_before(report: ServerReport | None, drain: timedelta) -> timedelta:
    """How long before the time of an order its stop begins.

    Args:
        report: what its extension says; None: nobody is there who could save anything.
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
        report: what its extension reported last, and when; None: nobody is there who could save anything.
        drain: how long it may take at most (`CullPolicy.drain`).
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
        return waited >= HEARD  # it has no page, or has not heard yet
    return now - (pages.asked or began) >= SAVING


def may_be_work(report: tuple[ServerReport, datetime] | None, began: datetime) -> bool:
    """Whether a use of the GPU, seen after a stop `began`, may be another one than that of its user's own hook.

    A hook that saves from the GPU uses it, and does not undo the stop it belongs to. A cell or a program in a terminal
    does. What is not known may be work.
    """
    if report is None or report[1] < began:
        return True
    said = report[0]
    return not said.hook_ran or said.busy_kernels != 0 or said.busy_terminals != 0


def is_after_hook(sample: DeviceSample | None, hook_ended: datetime | None) -> bool:
    """Whether what a sample shows cannot be the use of a hook that ended then: it is work."""
    return (
        _of_the_moment(sample) and hook_ended is not None and sample is not None and sample.at > hook_ended + AFTER_HOOK
    )


def awaits_sample(sample: DeviceSample | None, hook_ended: datetime | None, now: datetime) -> bool:
    """Whether a stop waits for a look at the card without its user's hook. Both times are the wall's."""
    if hook_ended is None or not _of_the_moment(sample) or is_after_hook(sample, hook_ended):
        return False
    return timedelta(0) <= now - hook_ended <= AFTER_HOOK + READ


def _of_the_moment(sample: DeviceSample | None) -> bool:
    return sample is not None and sample.source in BY_THE_CARD
