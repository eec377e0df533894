"""Every pair of *state × event*, the invariants, and that no other module writes a state."""

from __future__ import annotations

import ast
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.lifecycle import ENDS, LEASES, TICKETS, Event, LeaseReading, Step
from hub_extensions.core.queue.model import Admission, Lease, LeaseState, Ticket, TicketEnd, TicketState, WantedOffer
from hub_extensions.core.text.reasons import Reason

NOW = datetime(2026, 11, 2, 9, tzinfo=timezone.utc)
LATER = NOW + timedelta(minutes=3)
PACKAGE = Path(lifecycle.__file__).parents[2]
TICKET = Ticket("t1", "ada", "", (WantedOffer("gpu", 1), WantedOffer("cpu", 1)), NOW)
ON_GPU, ON_CPU = Admission("t1", "gpu", "GPU-1"), Admission("t1", "cpu", None)


def a_lease(state: LeaseState) -> Lease:
    return Lease("l1", "t1", "ada", "", "gpu", "GPU-1", "GPU-1", "gpu", 1000, state, NOW)


def a_ticket(state: TicketState) -> Ticket:
    return replace(TICKET, state=state, admitted_offer="gpu" if state is TicketState.ADMITTED else None)


def no_end(lease: Lease) -> datetime | None:
    return None


def admitted(ticket: Ticket, what: Admission = ON_GPU) -> Step | Reason:
    return lifecycle.admit(ticket, what, LATER, lease_id="l1", uuid="GPU-1", pool="gpu", share=1000)


# ------------------------------------------------------------------ tickets


@pytest.mark.parametrize(
    ("had", "admitted_to", "asked", "places"),
    [
        (None, None, ("gpu", "cpu"), (9, 9)),
        ({"gpu-0.25": 1}, None, ("gpu", "gpu-0.25"), (9, 1)),  # a larger one takes its place at the end
        ({"gpu-0.25": 1, "cpu": 3}, None, ("cpu", "gpu-0.25"), (3, 1)),
        ({"gpu-0.25": 1, "cpu": 3}, "cpu", ("cpu", "gpu-0.25"), (3, 1)),  # its start goes on
        ({"gpu-0.25": 1, "cpu": 3}, "cpu", ("gpu-0.25",), (9,)),  # it has had its turn
    ],
)
def test_an_offer_keeps_its_place_and_others_take_theirs_at_the_end(
    had: dict[str, int] | None, admitted_to: str | None, asked: tuple[str, ...], places: tuple[int, ...]
) -> None:
    ticket = had and replace(
        TICKET,
        wanted_offers=tuple(WantedOffer(OfferId(offer), place) for offer, place in had.items()),
        admitted_offer=admitted_to and OfferId(admitted_to),
    )
    offers = tuple(map(OfferId, asked))
    taken = iter((9,))
    given = lifecycle.wanted_offers_of(offers, ticket or None, lambda: next(taken))
    assert [(each.offer, each.place) for each in given] == list(zip(asked, places, strict=True))
    assert (next(taken, None) is None) is (9 in places), "no place is made that nobody needs"


@pytest.mark.parametrize("state", TicketState)
@pytest.mark.parametrize("event", ENDS)
def test_a_ticket_ends_only_as_its_table_says(state: TicketState, event: Event) -> None:
    if event is Event.READY:
        step = lifecycle.ready(a_ticket(state), a_lease(LeaseState.STARTING), LATER, no_end)
    else:
        step = lifecycle.end(a_ticket(state), a_lease(LeaseState.STARTING), event)
    if (state, event) not in TICKETS:
        assert isinstance(step, Reason)
        assert (step.reason, step.log_message) == ("too-late", f"{event.value} does not fit what is {state.value}")
        return
    assert isinstance(step, Step)
    assert (step.ticket.state, step.end) == (TicketState.ENDED, ENDS[event])
    lease = step.lease
    if event is Event.READY:
        assert lease is not None
        assert (lease.state, lease.ready_at) == (LeaseState.RUNNING, LATER)
    elif (LeaseState.STARTING, event) in LEASES:
        assert lease is not None
        assert lease.state is LeaseState.ENDING
    else:
        assert lease is None


@pytest.mark.parametrize("state", TicketState)
def test_only_who_waits_is_admitted(state: TicketState) -> None:
    step = admitted(a_ticket(state))
    if state is not TicketState.WAITING:
        assert isinstance(step, Reason)
        return
    assert isinstance(step, Step)
    assert (step.ticket.state, step.ticket.admitted_offer, step.ticket.admitted_at) == (
        TicketState.ADMITTED,
        "gpu",
        LATER,
    )
    assert step.lease == replace(a_lease(LeaseState.STARTING), since=LATER)


def test_cpu_only_has_no_lease() -> None:
    step = admitted(a_ticket(TicketState.WAITING), ON_CPU)
    assert isinstance(step, Step)
    assert (step.ticket.admitted_offer, step.lease) == ("cpu", None)
    ready = lifecycle.ready(step.ticket, None, LATER, no_end)
    assert isinstance(ready, Step)
    assert (ready.end, ready.leases) == (TicketEnd.READY, ())


@pytest.mark.parametrize("left_behind", [LeaseState.STARTING, LeaseState.RUNNING, LeaseState.LOST])
def test_who_asks_for_the_first_time_joins_and_what_the_server_had_before_ends(left_behind: LeaseState) -> None:
    step = lifecycle.ask(None, a_lease(left_behind), TICKET)
    assert step == Step(TICKET, lease=a_lease(LeaseState.ENDING))
    assert lifecycle.ask(None, None, TICKET) == Step(TICKET)


def test_who_asks_again_keeps_the_ticket_and_the_lease_where_its_offer_is_still_wanted() -> None:
    live = a_ticket(TicketState.ADMITTED)
    step = lifecycle.ask(live, a_lease(LeaseState.STARTING), replace(TICKET, id="t2", groups=("lab",)))
    assert step == Step(replace(live, attempt=2, groups=("lab",)))


def test_who_asks_again_for_other_offers_waits_again_and_gives_the_lease_up() -> None:
    live = replace(a_ticket(TicketState.ADMITTED), admitted_at=NOW)
    wanted = replace(TICKET, wanted_offers=(WantedOffer("cpu", 1),), options={"offer": "cpu"})
    step = lifecycle.ask(live, a_lease(LeaseState.STARTING), wanted)
    assert (step.ticket.state, step.ticket.admitted_offer, step.ticket.admitted_at) == (TicketState.WAITING, None, None)
    assert (step.ticket.attempt, step.ticket.options) == (2, {"offer": "cpu"})
    assert step.leases == (a_lease(LeaseState.ENDING),)


def test_who_waits_and_asks_again_waits() -> None:
    step = lifecycle.ask(TICKET, None, replace(TICKET, wanted_offers=(WantedOffer("gpu-0.5", 2),)))
    assert step == Step(replace(TICKET, wanted_offers=(WantedOffer("gpu-0.5", 2),), attempt=2))


# ------------------------------------------------------------------ leases


@pytest.mark.parametrize("state", LeaseState)
@pytest.mark.parametrize("event", Event)
def test_a_lease_moves_only_as_its_table_says(state: LeaseState, event: Event) -> None:
    after = lifecycle.move(a_lease(state), event)
    if (state, event) in LEASES:
        assert after == a_lease(LEASES[state, event])
    else:
        assert isinstance(after, Reason)


def test_a_process_that_is_known_stays_known() -> None:
    lease = lifecycle.start(a_lease(LeaseState.STARTING), 17, 4)
    assert isinstance(lease, Lease)
    again = lifecycle.start(lease, None, None)
    assert isinstance(again, Lease)
    assert (again.pid, again.pid_started, again.state) == (17, 4, LeaseState.STARTING)
    assert isinstance(lifecycle.start(a_lease(LeaseState.ENDING), 17, 4), Reason)


def test_a_lease_that_does_not_start_any_more_does_not_become_ready() -> None:
    found = lifecycle.ready(a_ticket(TicketState.ADMITTED), a_lease(LeaseState.ENDING), LATER, no_end)
    assert isinstance(found, Reason)


@pytest.mark.parametrize(
    ("state", "offer", "rest"),
    [
        (TicketState.WAITING, "gpu", ["cpu"]),
        (TicketState.WAITING, "cpu", ["gpu"]),
        (TicketState.WAITING, "mig-1g.5gb", ["gpu", "cpu"]),
        (TicketState.ADMITTED, "gpu", None),
        (TicketState.ENDED, "gpu", None),
    ],
)
def test_a_right_that_is_lost_costs_one_offer_of_who_waits(
    state: TicketState, offer: str, rest: list[str] | None
) -> None:
    step = lifecycle.lose_right(a_ticket(state), OfferId(offer))
    assert isinstance(step, Reason) is (rest is None)
    if isinstance(step, Step):
        assert [choice.offer for choice in step.ticket.wanted_offers] == rest
        assert (step.ticket.state, step.end, step.lease) == (state, None, None)


def test_who_loses_the_right_to_the_only_offer_does_not_go_on() -> None:
    assert isinstance(
        lifecycle.lose_right(replace(TICKET, wanted_offers=TICKET.wanted_offers[:1]), OfferId("gpu")), Reason
    )


def test_an_adopted_server_has_a_lease_without_a_ticket() -> None:
    lease = lifecycle.adopt("ada", "", NOW, lease_id="l1", pool="gpu", device="GPU-1", uuid="GPU-1", pid=3)
    assert (lease.state, lease.ticket, lease.adopted, lease.ready_at) == (LeaseState.RUNNING, "", True, NOW)


NOTHING = LeaseReading(ticket_lives=True, device=None, server_gone=False, released=False)
READINGS = {
    "nothing is known": (NOTHING, {}),
    "the device is there": (replace(NOTHING, device=True), {"lost": "running"}),
    "the device is gone": (replace(NOTHING, device=False), {"running": "lost"}),
    "the server is gone": (replace(NOTHING, server_gone=True), {"running": "ending", "lost": "ending"}),
    "nothing of it is left": (
        replace(NOTHING, server_gone=True, released=True),
        {"running": "ended", "lost": "ended", "ending": "ended"},
    ),
    "nothing uses the device, but the server lives": (replace(NOTHING, released=True), {"ending": "ended"}),
    "its ticket is gone": (replace(NOTHING, ticket_lives=False), {"starting": "ending"}),
    "device and server are gone": (
        replace(NOTHING, device=False, server_gone=True),
        {"running": "ending", "lost": "ending"},
    ),
}


@pytest.mark.parametrize("state", [state for state in LeaseState if state is not LeaseState.ENDED])
@pytest.mark.parametrize("reading", READINGS)
def test_the_state_of_a_lease_after_a_reading(state: LeaseState, reading: str) -> None:
    seen, changes = READINGS[reading]
    lease = a_lease(state)
    after = lifecycle.refresh(lease, seen)
    assert after == a_lease(LeaseState(changes.get(state.value, state.value)))
    assert (after is lease) == (state.value not in changes)


SEEN = st.builds(LeaseReading, st.booleans(), st.sampled_from([None, True, False]), st.booleans(), st.booleans())


@given(st.lists(st.one_of(st.sampled_from(Event), SEEN), max_size=30), st.sampled_from(LeaseState))
def test_an_ended_lease_never_changes_and_ends_only_with_proof(
    happens: list[Event | LeaseReading], begin: LeaseState
) -> None:
    lease = a_lease(begin)
    for one in happens:
        before = lease
        if isinstance(one, LeaseReading):
            lease = lifecycle.refresh(lease, one)
            proof = one.released
        else:
            moved = lifecycle.move(lease, one)
            lease = lease if isinstance(moved, Reason) else moved
            proof = one is Event.RELEASED
        if before.state is LeaseState.ENDED:
            assert lease == before
        elif lease.state is LeaseState.ENDED:
            assert proof


@given(st.lists(st.sampled_from(Event), max_size=30), st.booleans())
def test_a_ticket_that_ended_stays_so_and_no_starting_lease_outlives_it(happens: list[Event], gpu: bool) -> None:
    ticket, lease = TICKET, None
    for event in happens:
        step: Step | Reason | None = None
        if event is Event.ADMITTED:
            step = admitted(ticket, ON_GPU if gpu else ON_CPU)
        elif event is Event.READY:
            step = lifecycle.ready(ticket, lease, LATER, no_end)
        elif event in ENDS:
            step = lifecycle.end(ticket, lease, event)
        if isinstance(step, Step):
            assert ticket.state is not TicketState.ENDED
            ticket, lease = step.ticket, step.lease or lease
        if ticket.state is TicketState.ENDED and lease is not None:
            assert lease.state is not LeaseState.STARTING
        if lease is not None and lease.state is LeaseState.STARTING:
            assert ticket.state is TicketState.ADMITTED


# ------------------------------------------------------------------ nobody else


@pytest.mark.slow
def test_nobody_else_writes_a_state() -> None:
    """A state is an argument of ``replace``, ``Ticket`` or ``Lease`` in one file (and where the store reads it)."""
    writers = set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text()
        if "core.queue" not in text:
            continue  # it knows no ticket and no lease
        for call in ast.walk(ast.parse(text)):
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") not in ("replace", "Ticket", "Lease"):
                continue
            if any(word.arg == "state" for word in call.keywords):
                writers.add(file.relative_to(PACKAGE).as_posix())
    assert writers == {"core/queue/lifecycle.py", "adapters/store/queue.py"}


def test_the_table_of_the_docstring_is_the_table() -> None:
    text = str(lifecycle.__doc__)
    heads: list[str] = []
    said: set[tuple[str, str, str]] = set()
    for snapshot in text.splitlines():
        cells = [cell.strip() for cell in snapshot.strip("|").split("|")]
        if snapshot.startswith(("| ticket ", "| lease ")):
            heads = cells
        elif snapshot.startswith("| ") and not snapshot.startswith("| -"):
            said |= {
                (f"{heads[0]}:{cells[0]}", head, cell) for head, cell in zip(heads[1:], cells[1:], strict=True) if cell
            }
    tickets = {(f"ticket:{a.value if a else 'none'}", e.name, b.value) for (a, e), b in TICKETS.items()}
    right_lost = ("ticket:waiting", "RIGHT_LOST", "waiting")
    assert tickets == {right_lost, *(row for row in said if row[0].startswith("ticket:"))}
    groups = {
        "its ticket ends": ("LEFT", "FAILED", "ABANDONED", "REFUSED", "ASKED_OTHERS", "ORPHANED"),
        "GONE or CULLED": ("SERVER_GONE", "CULLED"),
    }
    shown = {
        (state, event, after)
        for state, head, after in said
        if state.startswith("lease:")
        for event in groups.get(head, (head,))
    }
    shown |= {("lease:lost", "DEVICE_BACK", "running"), ("lease:ending", "SERVER_BACK", "running")}
    shown.add(("lease:ending", "RELEASED", "ended"))
    assert {(f"lease:{a.value if a else 'none'}", e.name, b.value) for (a, e), b in LEASES.items()} == shown
