"""How everybody in line stands at one moment: found once, and told to many. Not here: the sentences (`presenters`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hub_extensions.core.queue.admission import Standing, standing
from hub_extensions.core.queue.model import Availability, Ticket
from hub_extensions.hub_service.engine import presenters
from hub_extensions.hub_service.engine.state import State


@dataclass
class Stand:
    """How everybody stands at one revision of the state: what is the same for many is found once."""

    revision: int
    verdicts: Standing
    offers: tuple[Availability, ...]
    nodes: Mapping[str, frozenset[str]]
    _besides: dict[tuple[object, ...], tuple[tuple[Availability, ...], bool]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State) -> Stand:
        """As it is now."""
        snapshot = state.queue_snapshot()
        return cls(state.revision, standing(snapshot, state.clock.now()), state.availability(), snapshot.node_sets)

    def besides(self, ticket: Ticket) -> tuple[tuple[Availability, ...], bool]:
        """What its user could have now instead, and whether anything that its user sees is simulated."""
        wanted = [choice.offer for choice in ticket.choices]
        key = (*wanted, ticket.groups, self.nodes.get(ticket.id))
        if key not in self._besides:
            seen = presenters.allowed(self.offers, ticket.groups, False)
            simulated = any(each.offer.simulated for each in seen)
            smaller = presenters.smaller_and_free(wanted, seen)
            here = tuple(each for each in smaller if self.verdicts.could_have(each.offer, ticket))
            self._besides[key] = here, simulated
        return self._besides[key]
