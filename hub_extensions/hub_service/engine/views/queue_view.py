"""The position and forecast of every ticket (a user's place in line) at one moment, computed once for many readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter

from hub_extensions.core.messages import TicketStatus
from hub_extensions.core.messages.offer_texts import age_step, when_text
from hub_extensions.core.queue.admission import Standing, standing
from hub_extensions.core.queue.model import Availability, Ticket
from hub_extensions.core.queue.wait_bound import WaitForecast
from hub_extensions.core.text.wording import stepped
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.views import presenters

MOST_SOONER = 2  # other offers that are suggested because they are likely to be available sooner


@dataclass
class QueueView:
    """The position and forecast of every ticket (place in line) at one revision of the state.

    Values that many tickets share are computed once.

    Attributes:
        revision: the state's revision for which the view was computed. The view is valid while the state has it.
        verdicts: the answer of admission to each ticket.
        offers: the availability of every offer.
        nodes: ticket -> the nodes of the cluster that its server may use; missing if they are unknown.
    """

    revision: int
    verdicts: Standing
    offers: tuple[Availability, ...]
    nodes: Mapping[str, frozenset[str]]
    _besides: dict[tuple[object, ...], tuple[tuple[Availability, ...], tuple[Availability, ...], bool]] = field(
        default_factory=dict
    )

    @classmethod
    def of(cls, state: State) -> QueueView:
        """Compute the position and forecast of every ticket (place in line) for the state as it is now."""
        snapshot = state.queue_snapshot()
        return cls(state.revision, standing(snapshot, state.clock.now()), state.availability(), snapshot.node_sets)

    def besides(self, ticket: Ticket, own: WaitForecast | None) -> tuple[tuple[Availability, ...], bool]:
        """Return the offers to suggest to a waiting user: free at once, or likely free sooner than the wanted ones.

        Args:
            ticket: the user's place in line.
            own: the wait forecast of the ticket itself. `None` if it is unknown; only offers that are free at once are
                suggested then.

        Returns:
            The offers; and whether any offer that the user may see is simulated.
        """
        now, sooner, simulated = self._found(ticket)
        likely = None if own is None else own.p50
        if likely is None:
            return now, simulated
        better = (each for each in sooner if each.wait.p90 is not None and each.wait.p90 < likely)
        return (*now, *islice(better, MOST_SOONER)), simulated

    def _found(self, ticket: Ticket) -> tuple[tuple[Availability, ...], tuple[Availability, ...], bool]:
        """Find the offers (options of the spawn form) that `besides` may suggest to a waiting user.

        The result is cached: it is the same for all tickets with the same wanted offers, groups and nodes.

        Returns:
            Offers that are free at once; other offers with a forecast, the shortest wait first; and whether any offer
            that the user may see is simulated.
        """
        wanted = [choice.offer for choice in ticket.wanted_offers]
        key = (*wanted, ticket.groups, self.nodes.get(ticket.id))
        if key not in self._besides:
            seen = presenters.allowed(self.offers, ticket.groups, False)
            simulated = any(each.offer.simulated for each in seen)
            smaller = presenters.smaller_and_free(wanted, seen)
            here = tuple(each for each in smaller if self.verdicts.could_have(each.offer, ticket))
            other = (each for each in seen if each.offer.pool and each.offer.id not in wanted and not each.wait.now)
            known = [(each.wait.p90, each) for each in other if each.wait.p90 is not None]
            sooner = tuple(each for _, each in sorted(known, key=itemgetter(0)))
            self._besides[key] = here, sooner, simulated
        return self._besides[key]


def content_of(state: TicketStatus) -> tuple[object, ...]:
    """Return the parts of the status of a ticket (place in line) that its page shows.

    If they have changed, the page gets a new status. Waits are rounded as they are shown, so a change of a few seconds
    makes no difference.
    """
    shown: tuple[object, ...] = ()
    if state.wait is not None:
        low, high = state.wait.p10_seconds, state.wait.p90_seconds
        shown = (
            state.wait.at_most_seconds is not None,
            None if low is None else stepped(low, up=False),
            None if high is None else stepped(high, up=True),
            state.wait.note,
            age_step(state.wait),
        )
    free = tuple((offer.id, when_text(offer.wait)) for offer in state.alternatives)
    return (state.answer, state.attempt, state.offer, state.position, state.reason, shown, free, state.offers)
