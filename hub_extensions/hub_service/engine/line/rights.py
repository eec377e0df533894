"""Check again at admission that the user still exists, and that a group of the user may have the offer.

While the hub does not answer, the ticket (the user's place in line) is neither admitted nor refused: it waits.
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

LAST = timedelta(seconds=30)  # the hub is asked again for groups that it reported longer ago
KEPT = 1000  # users whose groups are kept; with more of them, those reported longer ago than LAST are dropped
ANSWER_WITHIN = 3.0  # seconds in which the hub has to answer


class Doubt(Enum):
    """The hub did not answer, so it is not known whether the user may have the offer."""

    UNANSWERED = "unanswered"


UNANSWERED = Doubt.UNANSWERED


class Rights:
    """Checks whether a user may have an offer (an option of the spawn form), by the user's groups.

    Groups that the hub reported more than 30 s ago are requested from the hub again.
    """

    def __init__(self, state: State, hub: HubApi) -> None:
        self.state = state
        self.hub = hub
        self._groups: dict[str, tuple[tuple[str, ...], datetime]] = {}
        self._silent = False

    def remember(self, user: str, groups: tuple[str, ...]) -> None:
        """Keep the groups of a user that the hub has just reported."""
        now = self.state.clock.now()
        if len(self._groups) > KEPT:
            self._groups = {name: known for name, known in self._groups.items() if now - known[1] <= LAST}
        self._groups[user] = (groups, now)

    def groups_of(self, ticket: Ticket) -> tuple[str, ...]:
        """Return the groups of the user of a ticket (place in line), as the hub reported them last."""
        return self._groups.get(ticket.user, (ticket.groups, None))[0]

    def begin(self) -> None:
        """Begin a new round of checks, before the service looks for tickets (places in line) that can start.

        If the hub did not answer in the last round, it is asked again in this one.
        """
        self._silent = False

    async def ask(self, ticket: Ticket, offer_id: OfferId) -> Reason | Doubt | None:
        """Check whether the user of a ticket (place in line) may have an offer (an option of the spawn form).

        Args:
            ticket: the place in line of a server's user.
            offer_id: id of the offer.

        Returns:
            `None` if the user may have the offer, the reason if not, or `UNANSWERED` if the hub does not answer.
        """
        groups, asked = self._groups.get(ticket.user, (ticket.groups, None))
        if asked is None or self.state.clock.now() - asked > LAST:
            if self._silent:
                return UNANSWERED  # one unanswered request per admission, because the lock is held
            verdict = await self.ask_anew(ticket.user, offer_id)
            self._silent = verdict is UNANSWERED
            return verdict
        return self._verdict(groups, offer_id)

    async def ask_anew(self, name: str, offer_id: OfferId) -> Reason | Doubt | None:
        """Ask the hub for a user's groups, however recently it reported them, and check the user's right to an offer.

        Args:
            name: name of the user.
            offer_id: id of the offer (an option of the spawn form).

        Returns:
            `None` if the user may have the offer, the reason if not, or `UNANSWERED` if the hub does not answer.
        """
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
