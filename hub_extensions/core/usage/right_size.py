"""Right-sizing: whether a smaller GPU would have been enough for a finished use, and what its user reads about that.

Only the memory decides. On MIG the compute of a smaller offer is smaller too, so the texts about a busy use say that it
takes longer there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from hub_extensions.core.messages import OfferState, UsageRecord
from hub_extensions.core.messages.offer_texts import ROOM, UNUSED_BYTES
from hub_extensions.core.messages.usage import NONE_WOULD_DO, OWN
from hub_extensions.core.offers.model import GpuOffer, Sized, size_of
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.text.wording import MINUTE, gib
from hub_extensions.core.usage.ends import UseEnd

MIN_SECONDS = 600.0  # a shorter use says nothing about its user's need
MIN_MEASURED = 0.8  # the part of the time in which the memory was measured
FULL = 0.9  # part of the device; TensorFlow and JAX take all memory at once, whatever they need
BUSY_PERCENT = 50.0  # mean use from which a smaller GPU clearly takes longer
UNUSED_PERCENT = 5.0  # an unused GPU was never busier than this
EVERY = 3  # advise after at most one of three consecutive uses

ADVICE = ENOUGH, ENOUGH_WAS_FREE, UNUSED, LARGER = ("enough", "enough-was-free", "unused", "larger")
"""The kinds of advice: a smaller offer would have been enough (and a device of it was free when the user asked), the
GPU was not used, or the memory was full when the server broke down."""

NAMED = {
    "Small GPU": "A small GPU",
    "Medium GPU": "A medium GPU",
    "Large GPU": "A large GPU",
    "Extra large GPU": "An extra large GPU",
}
"""The plain name of an offer -> the same as the subject of a sentence. Other names are used as they are."""


@dataclass(frozen=True, slots=True)
class SizeVerdict:
    """Whether a smaller offer would have been enough for a use, and what its user is told.

    Attributes:
        would_do: id of the smallest offer whose memory would have been enough; ``cpu`` if the GPU was not used, and
            `NONE_WOULD_DO` if every smaller offer is too small. `None` if it is not known.
        advice: the kind of advice, such as `ENOUGH`; "" if there is nothing to say.
    """

    would_do: str | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class FittingHours:
    """For one pool (devices of one kind): how many of its device hours a smaller offer would have been enough for.

    Attributes:
        uses: the number of finished uses of which that is known.
        known: their device hours.
        fitted: the hours of uses whose memory fitted a smaller offer and that were busy less than `BUSY_PERCENT`.
        unused: the hours of uses that did not use their GPU.
    """

    pool: str
    uses: int
    known: float
    fitted: float
    unused: float


FEWEST_USES = 5  # a sum of fewer uses could say something about a single person
UNKNOWN = SizeVerdict()
SizedOffer = TypeVar("SizedOffer", bound=Sized)


def right_size(
    record: UsageRecord, offers: Sequence[GpuOffer], free_when_asked: Collection[OfferId] | None
) -> SizeVerdict:
    """Judge whether a smaller offer would have been enough for a finished use.

    Args:
        record: the record of the use.
        offers: all offers of the hub. Those that the user's groups may not choose are left out here.
        free_when_asked: the offers that could start at once when the user asked. `None` if that is not known.
    """
    own = next((offer for offer in offers if offer.id == record.offer), None)
    peak = record.peak_memory_bytes
    if own is None or own.memory_bytes is None or not own.memory_enforced or record.devices != 1 or peak is None:
        return UNKNOWN
    if record.source != OWN or record.adopted or (record.ran_seconds or 0.0) < MIN_SECONDS:
        return UNKNOWN
    if (record.memory_measured or 0.0) < MIN_MEASURED:
        return UNKNOWN
    if peak < UNUSED_BYTES:
        unused = (record.highest_use_percent or 0.0) < UNUSED_PERCENT
        return SizeVerdict(CPU, UNUSED) if unused else UNKNOWN
    choosable = [each for each in offers if each.id != CPU and each.memory_enforced and _is_for(each, record.groups)]
    if peak >= FULL * own.memory_bytes:
        larger = _next_larger(own, choosable)
        return SizeVerdict(None, LARGER) if larger and record.end == UseEnd.FAILED.value else UNKNOWN
    smaller = [each for each in choosable if _is_smaller(each, own)]
    fitting = [each for each in smaller if (each.memory_bytes or 0) >= ROOM * peak]
    if not fitting:
        return UNKNOWN if any(each.memory_bytes is None for each in choosable) else SizeVerdict(NONE_WOULD_DO)
    found = min(fitting, key=lambda each: (size_of(each), each.id)).id
    return SizeVerdict(found, ENOUGH_WAS_FREE if found in (free_when_asked or ()) else ENOUGH)


def _next_larger(own: SizedOffer, offers: Iterable[SizedOffer]) -> SizedOffer | None:
    """Return the smallest offer with more memory than `own`. `None` without one."""
    larger = [each for each in offers if (each.memory_bytes or 0) > (own.memory_bytes or 0)]
    return min(larger, key=lambda each: (size_of(each), each.id), default=None)


def _is_for(offer: GpuOffer, groups: Collection[str]) -> bool:
    return not offer.groups or bool(set(offer.groups) & set(groups))


def _is_smaller(offer: GpuOffer, own: GpuOffer) -> bool:
    """Return whether an offer has less memory than another, and not more compute, as far as that is known."""
    less_memory = (offer.memory_bytes or 0) < (own.memory_bytes or 0)
    more_compute = offer.sm_count is not None and own.sm_count is not None and offer.sm_count > own.sm_count
    return less_memory and not more_compute


def counts_for_advice(record: UsageRecord) -> bool:
    """Return whether a record is a use of a GPU. Starts that failed and servers without a GPU are not counted."""
    return record.devices > 0 and record.ready is not None


def may_advise(earlier: Sequence[str]) -> bool:
    """Return whether a user may be advised after a use, because the uses just before brought no advice.

    Args:
        earlier: the kinds of advice after the user's earlier uses of GPUs, the latest first; "" for no advice.
    """
    return not any(earlier[: EVERY - 1])


def advice_text(record: UsageRecord, offers: Sequence[GpuOffer | OfferState]) -> tuple[Reason, ...]:
    """Return the sentences of the advice after a use.

    Args:
        record: the record of the use, with the kind of advice.
        offers: the offers that the user may choose now.

    Returns:
        An empty tuple if there is no advice, or if it is about an offer that the user cannot choose any more.
    """
    if record.advice == UNUSED:
        return (explain("size-unused"),)
    by_id = {each.id: each for each in offers}
    own, peak = by_id.get(record.offer), record.peak_memory_bytes
    if not record.advice or peak is None or own is None or own.memory_bytes is None:
        return ()
    held = explain("size-held", peak=gib(peak).removesuffix(" GiB"), memory=gib(own.memory_bytes))
    if record.advice == LARGER:
        larger = _next_larger(own, [each for each in offers if each.memory_enforced])
        return () if larger is None else (held, explain("size-larger", **_named(larger)))
    fitting = by_id.get(OfferId(record.smaller_would_do)) if record.smaller_would_do else None
    if fitting is None or fitting.memory_bytes is None or not ROOM * peak <= fitting.memory_bytes < own.memory_bytes:
        return ()
    said = [held, explain("size-enough", **_named(fitting))]
    minutes = 0 if record.waited_seconds is None else int(record.waited_seconds // MINUTE)
    if record.advice == ENOUGH_WAS_FREE:
        said.append(explain("size-less-wait", less=timedelta(minutes=minutes)) if minutes else explain("size-was-free"))
    busy = record.mean_use_percent
    if busy is not None and busy >= BUSY_PERCENT:
        said.append(explain("size-busy", percent=round(busy)))
    return tuple(said)


def _named(offer: GpuOffer | OfferState) -> dict[str, str]:
    return {"title": NAMED.get(offer.plain_name, offer.plain_name), "memory": gib(offer.memory_bytes or 0)}
