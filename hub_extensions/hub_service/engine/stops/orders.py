"""Orders to stop servers: from the hub (after a sign-out), from users and from administrators.

Also the other orders of administrators: close a card to new servers (drain), keep a server, and write to the users of a
card. Each of their orders is stored with the administrator's name and reason, and the users concerned are notified.
`StopRunner` carries out a stop.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow, StoreUnavailable
from hub_extensions.core import culling, stops
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.messages import DrainState, SignedOut, WithoutSessions
from hub_extensions.core.notices import LONGEST, AdminLetter, Delivery, channels_of, deliveries_of, still_read
from hub_extensions.core.overview.cards import holders_on
from hub_extensions.core.queue.cordons import MACHINE, Cordon, refuse_to_close
from hub_extensions.core.queue.model import Lease
from hub_extensions.core.stops import Withdrawal, by_admin, by_hub, earliest, without
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.meta import (
    CORDONS,
    LETTERS,
    WITHOUT_SESSION,
    write_cordons,
    write_letters,
    write_without_session,
)
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transactions
from hub_extensions.hub_service.engine.stops.runner import StopRunner
from hub_extensions.hub_service.engine.stops.stop_records import without_returns_of
from hub_extensions.hub_service.engine.views.admin_view import all_cards

if TYPE_CHECKING:
    from hub_extensions.hub_service.engine.line.cluster_leases import ClusterLeases

log = logging.getLogger("hub_extensions.hub_service")

A_TURN = timedelta(seconds=60)
"""Time that a stop takes beside the drain (in which notebooks are saved and the user's hook runs).

It covers the pause between two turns of `StopRunner`, new measurements after an outage, and the hub's own stop."""
MOST_SECONDS = 366 * 86400.0  # maximum time until a stop that the hub may order
STOP_MINUTES = (0, 5, 15, 60)  # minutes until a stop that administrators can choose
KEEP_HOURS = (2, 8, 24, 72)  # hours of protection that administrators can choose
ORDERS = ("drained-card", "undrained-card", "stop-ordered", "stop-withdrawn", "kept-by-admin", "letter")
"""The kinds of the journal's rows that are about administrators' orders."""


# ------------------------------------------------------------------ orders of the hub and of users


async def stop_signed_out(state: State, transaction: Transactions, report: SignedOut) -> DrainState:
    """Order the stop of a server whose user was signed out, if it holds the reported lease (its right to a GPU).

    A repeated request does not postpone the stop. Its answer has the time that is left.

    Args:
        state: the state of the line, of servers and of devices.
        transaction: changes the state.
        report: the hub's report: the user, the server, its lease, and the time until it has to stop.

    Returns:
        The time until the stop begins, and how long it may take. `DrainState.left_seconds` is `None` if the service
        does not stop the server, because the server does not hold this lease.
    """
    if not 0 <= report.left_seconds <= MOST_SECONDS:
        raise Refused(400, f"left_seconds has to be between 0 and {MOST_SECONDS:g}.", "left_seconds", "bad-input")
    async with transaction() as changing:
        if not (dropped := without_returns_of(state, report.user)).empty:
            await changing.write(dropped)
        facts, now = state.facts.get((report.user, report.server)), state.clock.now()
        if facts is None or not facts.lease or facts.lease != report.lease:
            return DrainState(None)
        ordered = by_hub(now + timedelta(seconds=report.left_seconds), report.cause)
        stop = state.ordered(facts, ordered)
        first = earliest(state.orders_of(facts) if stop is None else stop.orders)
        if first is None:
            return DrainState(None)
        if stop is not None:
            why, at = ordered.reason, explain("it-stops-at", at=state.clock.wall(ordered.at))
            about, seen = (facts.lease, facts.user, facts.server), [explain("seen-signed-out", cause=report.cause)]
            row = JournalRow.because(state.clock.utc_now(), "drained", about, [why, at], "hub", seen)
            await changing.write(Changes(stops=(stop,), journal=(row,)))
            log.info("drained: %s", why.message, extra={"user": facts.user, "server": facts.server})
        return DrainState((first.at - now).total_seconds(), _takes(state, facts).total_seconds())


def _takes(state: State, facts: ServerFacts) -> timedelta:
    """Return how long the stop of a server may take from its beginning.

    The server is drained first: cells are interrupted, notebooks are saved, and the user's hook (a program of the user
    that runs before a stop) runs. Other servers may have to be drained before this one. The time for all of that is
    included.

    Args:
        state: the state, with all orders to stop servers.
        facts: what culling knows about the server.
    """
    drained = sum(1 for each in state.facts.values() if state.orders_of(each))
    turns = 1 + drained // max(1, state.policy.concurrent_stop_limit)
    return turns * state.policy_of(facts.user, facts.offer).drain + A_TURN


async def note_without_session(state: State, transaction: Transactions, reported: WithoutSessions) -> None:
    """Record which users have no sign-in session at the hub. Their accounts may no longer exist.

    The journal (the log of decisions) gets a row for each user who is new in the list, and for each user who has a
    session again.

    Args:
        state: the state of the line, of servers and of devices.
        transaction: changes the state.
        reported: the users, as the hub reported them.
    """
    async with transaction() as changing:
        before = {each.user: each.since for each in state.without_session.people}
        now = {each.user: each.since for each in reported.people}
        if reported == state.without_session:
            return
        at, rows = state.clock.utc_now(), list[JournalRow]()
        for user in sorted(now.keys() - before.keys()):
            why = explain("no-session-since", at=now[user])
            rows.append(JournalRow.because(at, "no-session", (None, user, None), [why], "hub"))
        for user in sorted(before.keys() - now.keys()):
            rows.append(JournalRow.because(at, "session-again", (None, user, None), [explain("session-again")], "hub"))
        await changing.write(Changes(journal=tuple(rows), meta={WITHOUT_SESSION: write_without_session(reported)}))


async def give_back(state: State, transaction: Transactions, user: str, server: str, cpu: bool) -> None:
    """Stop a server now because its user gives the GPU back.

    Args:
        state: the state of the line, of servers and of devices.
        transaction: changes the state.
        user, server: name of the user and of the server.
        cpu: whether to start the server again without a GPU.

    Raises:
        Refused: 404: the server does not run. 409: it has no GPU, or stops already.
    """
    async with transaction() as changing:
        facts = state.facts.get((user, server))
        if facts is None:
            raise Refused(404, "This server is not known to run.", "server", "unknown-server")
        stop = state.stop_of(facts)
        if stop is not None and stop.begun:
            raise Refused.because(409, explain("keep-stopping"), "give-back")
        orders, on_gpu = state.orders_of(facts), facts.lease is not None
        given = stops.give_back(orders, state.clock.now(), on_gpu=on_gpu, cpu=cpu)
        ordered = given if isinstance(given, Reason) else state.ordered(facts, given)
        if ordered is None or isinstance(ordered, Reason):
            raise Refused.because(409, ordered or explain("keep-stopping"), "give-back")
        text = "given back by its user" + (", who goes on without a GPU" if cpu else "")
        row = JournalRow(state.clock.utc_now(), "given-back", None, facts.lease, user, server, text, "user", "")
        try:
            await changing.write(Changes(stops=(ordered,), journal=(row,)))
        except StoreUnavailable as problem:
            raise Refused(503, f"Not given back: {problem.message}", "give-back", "store-unavailable") from problem


# ------------------------------------------------------------------ orders of administrators


class AdminOrders:
    """Carries out administrators' orders; a stop is recorded here, and the runner carries it out.

    Args:
        state: the state of the line, of servers and of devices.
        transaction: changes the state.
        runner: decides about all servers at once after an order, and carries out stops.
        cluster: the cluster's leases and nodes. `None` on one machine.
    """

    def __init__(
        self,
        state: State,
        transaction: Transactions,
        runner: StopRunner,
        cluster: ClusterLeases | None = None,
    ) -> None:
        self.state = state
        self.transaction = transaction
        self.runner = runner
        self.cluster = cluster
        self.nodes = None if cluster is None else cluster.drains

    async def drain(self, place: str, why: str, admin: str) -> None:
        """Close a card, a node or the whole machine to new servers, also after a restart. Running servers go on.

        Args:
            place: UUID of the card, the name of a node, or `MACHINE` for the whole machine.
            why: the administrator's reason.
            admin: name of the administrator.

        Raises:
            Refused: 400: no reason. 409: unknown card or node, or drained already; on a cluster also if the settings do
                not allow it or the API server refuses it. 503: it is not known whether the node was closed.
        """
        why = reason_of(why)
        if self.nodes is not None:
            await self.nodes.drain(place, why, admin)
            return
        async with self.transaction() as transaction:
            cordons, devices = self.state.cordons, self.state.devices.values()
            refusal = refuse_to_close(place, cordons, devices)
            if refusal is not None:
                raise Refused.because(409, refusal, "place")
            new = Cordon(place, admin, why, self.state.clock.utc_now())
            row = self._row("drained-card", _on("closed", place, why=why), admin)
            await transaction.write(Changes(journal=(row,), meta={CORDONS: write_cordons((*cordons, new))}))

    async def undrain(self, place: str, why: str, admin: str) -> None:
        """Open a card, a node or the machine to new servers again.

        Args:
            place: UUID of the card, the name of a node, or `MACHINE` for the whole machine.
            why: the administrator's reason.
            admin: name of the administrator.

        Raises:
            Refused: 400: no reason. 409: it is not drained; on a cluster also if the settings do not allow it or the
                API server refuses it. 503: it is not known whether the node was opened.
        """
        why = reason_of(why)
        if self.nodes is not None:
            await self.nodes.undrain(place, why, admin)
            return
        async with self.transaction(admit=True) as transaction:
            left = tuple(each for each in self.state.cordons if each.place != place)
            if left == self.state.cordons:
                raise Refused.because(409, explain("not-cordoned"), "place")
            row = self._row("undrained-card", _on("opened", place, why=why), admin)
            await transaction.write(Changes(journal=(row,), meta={CORDONS: write_cordons(left)}))

    async def stop(self, lease_id: str, minutes: int, why: str, admin: str) -> None:
        """Order the stop of a lease's server. The notebooks are saved before, and a failed stop is tried again.

        Args:
            lease_id: the lease (the server's right to its GPU).
            minutes: time until the stop. Only the numbers that the page offers (`STOP_MINUTES`) are allowed.
            why: the administrator's reason, which the server's user reads.
            admin: name of the administrator.

        Raises:
            Refused: 400: no reason, or another time. 404: no such lease. 409: its server has not started yet.
        """
        why, minutes = reason_of(why), _one_of(minutes, STOP_MINUTES, "minutes")
        async with self.transaction() as transaction:
            facts, lease = self._running(lease_id)
            now = self.state.clock.now()
            ordered = by_admin(now + timedelta(minutes=minutes), why)
            stop = self.state.ordered(facts, ordered)
            if stop is None:
                raise Refused.because(409, explain("stop-ordered-already"), "lease")
            ends = self.state.clock.wall(ordered.at)
            told = NoticeRow.because(
                self.state.clock.utc_now(), facts.user, facts.server, explain("admin-stops-yours", why=why)
            )
            row = self._row("stop-ordered", explain("stop-ordered", at=ends, why=why), admin, lease)
            await transaction.write(Changes(stops=(stop,), journal=(row,), notices=(told,)))
        self.runner.turn_soon()

    def may_undo_stop(self, lease_id: str) -> bool:
        """Return whether an administrator has ordered a stop of a server, and this order can still be withdrawn.

        Args:
            lease_id: the lease (the server's right to its GPU).
        """
        try:
            facts, _ = self._running(lease_id)
        except Refused:
            return False
        ordered = any(each.withdrawn_by is Withdrawal.UNDO for each in self.state.orders_of(facts))
        return ordered and self.runner.refuse_withdrawal(facts) is None

    async def undo_stop(self, lease_id: str, admin: str) -> None:
        """Withdraw the administrators' order to stop a server. Other causes still stop the server at their own times.

        Args:
            lease_id: the lease (the server's right to its GPU).
            admin: name of the administrator who withdraws the order.

        Raises:
            Refused: 404: no such lease. 409: no such order, or the server's kernels were already interrupted for the
                stop.
        """
        async with self.transaction() as transaction:
            facts, lease = self._running(lease_id)
            refused = self.runner.refuse_withdrawal(facts)
            after = None if refused else self.runner.without_orders(facts, Withdrawal.UNDO)
            if after is None:
                raise Refused.because(409, refused or explain("no-stop-ordered"), "lease")
            row = self._row("stop-withdrawn", explain("stop-withdrawn"), admin, lease)
            await transaction.write(replace(after, journal=(row,)))
        self.runner.turn_soon()

    async def keep(self, lease_id: str, hours: int, why: str, admin: str) -> None:
        """Protect a lease's server from a stop by idleness or lifetime, and withdraw an administrator's order to stop.

        Args:
            lease_id: the lease (the server's right to its GPU).
            hours: time of the protection. Only the numbers that the page offers (`KEEP_HOURS`) are allowed.
            why: the administrator's reason.
            admin: name of the administrator.

        Raises:
            Refused: 400: no reason, or another time. 404: no such lease. 409: its server has not started yet or is
                being stopped, its user gave the GPU back, or its user was signed out.
        """
        why, hours = reason_of(why), _one_of(hours, KEEP_HOURS, "hours")
        async with self.transaction() as transaction:
            facts, lease = self._running(lease_id)
            until, orders = self.state.clock.now() + timedelta(hours=hours), self.state.orders_of(facts)
            kept = self.runner.refuse_withdrawal(facts) or culling.keep_by_admin(facts, orders, until)
            if isinstance(kept, Reason):
                raise Refused.because(409, kept, "lease")
            order = explain("kept-by-admin", at=self.state.clock.wall(until), why=why)
            row = self._row("kept-by-admin", order, admin, lease)
            told = () if without(orders, Withdrawal.UNDO) is orders else (self.runner.undone(facts, Withdrawal.UNDO),)
            after = self.runner.withdrawn(kept, Withdrawal.UNDO)
            await transaction.write(replace(after, facts=(kept,), journal=(row,), notices=told))

    async def write_to(self, place: str, text: str, admin: str) -> int:
        """Send a message to the user of each server on a card, a node or the machine.

        Users read it in the panel, on their next page, and by webhook or e-mail if these are configured.

        Args:
            place: UUID of the card, the name of a node, or `MACHINE` for the whole machine.
            text: the message.
            admin: name of the administrator.

        Returns:
            The number of servers whose users get the message.

        Raises:
            Refused: 400: no text. 409: no server runs there.
        """
        text = reason_of(text)
        async with self.transaction() as transaction:
            running = [
                facts
                for holder in holders_on(all_cards(self.state, self.runner, self.cluster), place)
                if (facts := self.state.facts.get((holder.user, holder.server))) is not None
                and facts.lease == holder.lease
            ]
            if not running:
                raise Refused.because(409, explain("nobody-there"), "place")
            at, letters, sent = self.state.clock.utc_now(), list[AdminLetter](), list[Delivery]()
            for facts in running:
                letter = AdminLetter(secrets.token_hex(8), facts.user, facts.server, facts.started, text, at)
                letters.append(letter)
                sent += self._deliveries(letter, facts)
            order, told = _on("letter-to", place, text=text), explain("letter", text=text)
            rows = [self._row("letter", order, admin, facts=each) for each in running]
            notices = (NoticeRow.because(at, each.user, each.server, told) for each in running)
            open_ones = {each.id for each in (*self.state.notices.deliveries.values(), *sent)}
            kept = still_read((*self.state.notices.letters, *letters), self.state.facts.values(), open_ones)
            meta = {LETTERS: write_letters(kept)}
            changes = Changes(journal=tuple(rows), notices=tuple(notices), deliveries=tuple(sent), meta=meta)
            await transaction.write(changes)
        return len(running)

    def _deliveries(self, letter: AdminLetter, facts: ServerFacts) -> tuple[Delivery, ...]:
        offer, channels = self.state.offer(facts.offer), channels_of(self.state.notices.config)
        return deliveries_of(
            letter, facts, offer.plain_name if offer else facts.offer, channels, self.state.clock.now()
        )

    def _running(self, lease_id: str) -> tuple[ServerFacts, Lease]:
        lease = self.state.leases.get(lease_id)
        if lease is None:
            raise Refused.because(404, explain("unknown-lease"), "lease")
        facts = self.state.facts.get((lease.user, lease.server))
        if facts is None or facts.lease != lease.id:
            raise Refused.because(409, explain("not-running"), "lease")
        return facts, lease

    def _row(
        self, kind: str, order: Reason, admin: str, lease: Lease | None = None, facts: ServerFacts | None = None
    ) -> JournalRow:
        about = lease or facts
        user, server = (None, None) if about is None else (about.user, about.server)
        log.info("%s: %s", kind, order.message, extra={"user": user, "server": server})
        held = None if lease is None else lease.id
        at = self.state.clock.utc_now()
        return JournalRow.because(at, kind, (held, user, server), [order], f"admin {admin}")


def reason_of(why: str) -> str:
    """Return the reason that an administrator has typed, as one line of limited length.

    Args:
        why: the text of the form's field.

    Raises:
        Refused: 400: the reason is empty.
    """
    words = " ".join(why.split())
    if not words:
        raise Refused.because(400, explain("reason-needed"), "why")
    return words[:LONGEST]


def _one_of(value: int, allowed: Sequence[int], field: str) -> int:
    if value not in allowed:
        raise Refused(400, f"{field} has to be one of {', '.join(map(str, allowed))}.", field, "bad-input")
    return value


def _on(order: str, place: str, **words: str) -> Reason:
    return explain(f"{order}-machine", **words) if place == MACHINE else explain(f"{order}-place", place=place, **words)
