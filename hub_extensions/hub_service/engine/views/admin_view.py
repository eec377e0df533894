"""What an admin is shown: gathered from the parts of the engine, judged by ``core/overview``.

Of a thousand cards only the page that is asked for is written out. Not here: what an admin orders
(``admin_orders.py``), and the last days (``usage_days.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hub_extensions.core.messages import ClusterInfo, Health, LeaseInfo, OfferState, TicketInfo
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.overview.cards import (
    Card,
    Emptying,
    PieceHolder,
    cards_of_cluster,
    cards_of_machine,
    emptying,
    holders_on,
)
from hub_extensions.core.overview.health import judge_health
from hub_extensions.core.overview.totals import totals_of
from hub_extensions.core.overview.view import (
    CARDS_A_PAGE,
    PEOPLE_A_PAGE,
    Asked,
    Overview,
    PageRows,
    chosen,
    paged,
    titles_of,
)
from hub_extensions.core.queue.cordons import MACHINE
from hub_extensions.core.queue.model import Lease, Ticket, TicketState
from hub_extensions.core.queue.quota_holds import QuotaHold
from hub_extensions.core.text.reasons import Reason
from hub_extensions.hub_service.engine.state.slices import in_slices
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.stops.culler import Culler
from hub_extensions.hub_service.engine.views.overview import failed_starts

if TYPE_CHECKING:
    from hub_extensions.hub_service.engine.stops.node_drains import NodeDrains


class AdminView:
    """Looks at everything, changes nothing.

    Attributes:
        lease_info, tickets_info: what else is said of a lease, and of people in line.
        drains: of a cluster's nodes; None: this is one machine.
        unproved: leases that seem to be over, and why nothing proves it.
    """

    def __init__(
        self,
        state: State,
        culler: Culler,
        *,
        lease_info: Callable[[Lease], LeaseInfo],
        tickets_info: Callable[[list[Ticket]], tuple[TicketInfo, ...]],
        cluster: Callable[[], ClusterInfo | None],
        node_of: Callable[[Lease], str],
        drains: NodeDrains | None = None,
        unproved: Callable[[], Mapping[str, Reason]] = dict,
    ) -> None:
        self.state = state
        self.culler = culler
        self.lease_info = lease_info
        self.tickets_info = tickets_info
        self.cluster = cluster
        self.node_of = node_of
        self.drains = drains
        self.unproved = unproved

    def cards(self) -> tuple[Card, ...]:
        """All cards with who is on them."""
        info = self.cluster()
        return self._cards(info, [self._holder(lease, info is not None) for lease in self.state.leases.values()])

    def _cards(self, info: ClusterInfo | None, holders: Sequence[PieceHolder]) -> tuple[Card, ...]:
        if info is not None and self.drains is not None:
            closed = {name for name, cordoned in self.drains.nodes().items() if cordoned}
            return cards_of_cluster(info.pools, holders, self.drains.standing(), closed)
        return cards_of_machine(self.state.devices.values(), holders, self.state.cordons)

    async def _holders(self) -> list[PieceHolder]:
        """As in `cards`, in slices between which others have a turn; what ended meanwhile is left out."""
        on_cluster = self.state.on_cluster
        found = [self._holder(lease, on_cluster) async for lease in in_slices(self.state.leases.values())]
        return [holder for holder in found if holder.lease in self.state.leases]

    def _holder(self, lease: Lease, on_cluster: bool) -> PieceHolder:
        used = self.culler.measured(lease)[0] if lease.state.value == "running" else None
        end, wall = self.state.as_enforced(lease).ends_at, self.state.clock.wall
        return PieceHolder(
            lease=lease.id,
            user=lease.user,
            server=lease.server,
            offer=lease.offer,
            place=(self.node_of(lease), lease.pool) if on_cluster else lease.device,
            share=lease.share,
            state=lease.state.value,
            since=wall(lease.since),
            use_percent=used,
            idle_below=self.state.policy_of(lease.user, lease.offer).idle_below_percent,
            ends_at=None if end is None else wall(end),
        )

    async def overview(self, asked: Asked, offers: tuple[OfferState, ...], health: Health) -> Overview:
        """The page that is asked for.

        Args:
            offers: as an admin sees them.
        """
        holders, info = await self._holders(), self.cluster()
        cards = self._cards(info, holders)
        shown = paged(chosen(cards, asked), asked.cards, CARDS_A_PAGE)
        held = info.held_up if info is not None else ()
        problem = info.problem if info is not None else ""
        gpus = self.state.reading.problems if self.state.reading is not None else ()
        return Overview(
            at=self.state.clock.utc_now(),
            read=None if self.state.read_at is None else self.state.clock.wall(self.state.read_at),
            totals=totals_of(cards),
            health=judge_health(
                health, offers, held, problem, gpus, unproved=len(self.unproved()), over_quota=self._over_quota()
            ),
            cards=shown,
            leases=self._leases(shown),
            unproved=self.unproved(),
            contradicted=self._contradicted(shown),
            emptying=self._emptying(cards, shown),
            people=self._people(asked.people),
            longest_seconds=self._longest(),
            failed=failed_starts(self.state),
            cordons=self.state.cordons if self.drains is None else self.drains.standing(),
            machine=emptying(holders_on(cards, MACHINE)),
            on_cluster=info is not None,
            may_drain=self.drains is None or self.drains.allowed,
            simulated=any(offer.simulated for offer in offers),
            titles=titles_of(offers),
        )

    def _leases(self, shown: PageRows[Card]) -> dict[str, LeaseInfo]:
        ids = (holder.lease for card in shown.shown for holder in card.holders)
        return {each: self.lease_info(self.state.leases[each]) for each in ids}

    def _over_quota(self) -> dict[OfferId, QuotaHold]:
        wall = self.state.clock.wall
        return {offer: replace(hold, since=wall(hold.since)) for offer, hold in self.state.quota_holds.items()}

    def _contradicted(self, shown: PageRows[Card]) -> dict[str, tuple[float, float]]:
        leases = (self.state.leases.get(holder.lease) for card in shown.shown for holder in card.holders)
        pairs = ((lease.id, self.culler.contradicted(lease)) for lease in leases if lease is not None)
        return {lease: both for lease, both in pairs if both is not None}

    @staticmethod
    def _emptying(cards: tuple[Card, ...], shown: PageRows[Card]) -> dict[str, Emptying]:
        """Of a node of a cluster all its rows count, also those on another page."""
        places = {card.place for card in shown.shown}
        return {place: emptying(h for card in cards if card.place == place for h in card.holders) for place in places}

    def _people(self, page: int) -> PageRows[TicketInfo]:
        line = sorted(self.state.tickets.values(), key=lambda ticket: ticket.first_place)
        found = paged(line, page, PEOPLE_A_PAGE)
        return PageRows(self.tickets_info(list(found.shown)), found.found, found.page, found.pages)

    def _longest(self) -> float | None:
        joined = [each.joined for each in self.state.tickets.values() if each.state is TicketState.WAITING]
        return max(0.0, (self.state.clock.now() - min(joined)).total_seconds()) if joined else None
