"""Rights, asked again at admission: does the user still exist, and is the offer still for one of the user's groups?

In doubt about a right nobody is admitted, and nobody is refused: the ticket waits until the hub answers.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.adapters.hub.jupyterhub_api import HubApi, HubAway, HubRefused
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Ticket
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.state.state import State

LAST = timedelta(seconds=30)
KEPT = 1000
ANSWER_WITHIN = 3.0


class Doubt(Enum):
    """The hub did not say."""

    UNANSWERED = "unanswered"


UNANSWERED = Doubt.UNANSWERED


class Rights:
    """What the hub last said of each user's groups, and when; asked again when that is older than 30 s."""

    def __init__(self, state: State, hub: HubApi) -> None:
        self.state = state
        self.hub = hub
        self._groups: dict[str, tuple[tuple[str, ...], datetime]] = {}
        self._silent = False

    def remember(self, user: str, groups: tuple[str, ...]) -> None:
        """The hub said just now which groups the user has."""
        now = self.state.clock.now()
        if len(self._groups) > KEPT:
            self._groups = {name: known for name, known in self._groups.items() if now - known[1] <= LAST}
        self._groups[user] = (groups, now)

    def groups_of(self, ticket: Ticket) -> tuple[str, ...]:
        """The groups of its user, as the hub said last."""
        return self._groups.get(ticket.user, (ticket.groups, None))[0]

    def begin(self) -> None:
        """A new admission: a hub that was silent in the last one is asked again, once."""
        self._silent = False

    async def ask(self, ticket: Ticket, offer_id: OfferId) -> Reason | Doubt | None:
        """None: the user may have the offer; a reason why not; or `UNANSWERED`."""
        groups, asked = self._groups.get(ticket.user, (ticket.groups, None))
        if asked is None or self.state.clock.now() - asked > LAST:
            if self._silent:
                return UNANSWERED  # one unanswered question an admission is enough: the lock is held
            verdict = await self.ask_anew(ticket.user, offer_id)
            self._silent = verdict is UNANSWERED
            return verdict
        return self._verdict(groups, offer_id)

    async def ask_anew(self, name: str, offer_id: OfferId) -> Reason | Doubt | None:
        """As `ask`, of a user without a ticket, and whatever the hub said before."""
        try:
            user = await asyncio.wait_for(self.hub.user(name), ANSWER_WITHIN)
        except (HubAway, HubRefused, asyncio.TimeoutError):
            return UNANSWERED
        if user is None:
            return explain("no-such-user", log_message="user unknown to the hub")
        self.remember(name, user.groups)
        return self._verdict(user.groups, offer_id)

    def _verdict(self, groups: tuple[str, ...], offer_id: OfferId) -> Reason | None:
        offer = self.state.offer(offer_id)
        if offer is None or not offer.groups or set(offer.groups) & set(groups):
            return None
        log = f"offer {offer_id} is for {offer.groups}, user has {groups}"
        return explain("not-your-group-any-more", offer=offer_id, log_message=log)
