"""Every reason that a waiting user sees, with its exact text, and the state of each offer: one row per case."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from hub_extensions.core.cluster.nodes import NODE_SILENT, NodeCount
from hub_extensions.core.cluster.pools import Pool
from hub_extensions.core.gpu.devices import WHOLE, DeviceState, Foreign
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.admission import admit, availability, over_own_limit, refuse_to_join, standing
from hub_extensions.core.queue.model import LeaseState, QueueLimits, QueueSnapshot, TicketState
from tests.core.queue import test_counted_pools as counted
from tests.core.queue.test_admission import (
    CPU,
    GPU,
    HALF,
    NOW,
    OFFERS,
    QUARTER,
    SMALL,
    lease,
    small,
    snapshot,
    ticket,
    whole,
)

FOREIGN = Foreign.SOME
FREE, HELD, THEIRS = small(0), lease(small(1), n=1), replace(small(2), foreign=FOREIGN)
NEXT, ONE, TWO = "You are next.", "1 person is ahead of you.", "2 people are ahead of you."
ALL_UNUSABLE = replace(small(0), present=False)
WAITING = tuple(ticket(n, "mig-1g.5gb") for n in (1, 2, 3))
UNKNOWN = "It is not known which GPUs are free now; once it is known, the line goes on."
SILENT = "A machine that has such a GPU does not answer, so the first in line waits, who is served before anybody else."
DIED = counted.small(1, nodes=(NodeCount("a", 1, 1), NodeCount("b", 1, 0, NODE_SILENT)))
OUTSIDE = "Something outside this hub took the GPU of the first in line, who is served before anybody else."


def on(*devices: DeviceState, held: int = 0, tickets: object = WAITING, **config: int) -> QueueSnapshot:
    """A line for 1g.5gb on these devices. Leases of this hub hold the first ones."""
    leases = tuple(lease(device, n=n) for n, device in enumerate(devices[:held]))
    return snapshot(devices, tickets, leases, QueueLimits(**config))  # type: ignore[arg-type]


def shown(subject: QueueSnapshot) -> list[str]:
    found = standing(subject, NOW)
    return [found[f"t{n}"].reason.message for n in (1, 2, 3)]


def after(text: str) -> list[str]:
    return [f"{text} {people}" for people in (NEXT, ONE, TWO)]


@pytest.mark.parametrize(
    ("subject", "text", "word"),
    [
        (snapshot(None, WAITING), UNKNOWN, "unknown-inventory"),
        (on(), "MIG 1g.5gb: none is there now.", "none-there"),
        (on(ALL_UNUSABLE), "MIG 1g.5gb: none is there now.", "none-there"),
        (on(small(0), held=1), "MIG 1g.5gb: the only one is in use.", "in-use"),
        (on(small(0), small(1), held=2), "MIG 1g.5gb: all 2 are in use.", "in-use"),
        (on(THEIRS), "The only one is used by programs that this hub did not start.", "held-by-others"),
        (
            on(THEIRS, replace(small(3), foreign=FOREIGN)),
            "All 2 are used by programs that this hub did not start.",
            "held-by-others",
        ),
        (
            on(small(0), THEIRS, held=1),
            "MIG 1g.5gb: all 2 are in use, 1 of them by programs that this hub did not start.",
            "in-use-also-by-others",
        ),
        (on(small(0)), "One is free for somebody ahead of you.", "behind"),
        (replace(on(small(0)), held_up=frozenset({"mig-1g.5gb"})), OUTSIDE, "taken-outside"),
        (
            replace(counted.snapshot(DIED, tickets=WAITING), held_up=frozenset({"mig-1g.5gb"})),
            SILENT,
            "machine-silent",
        ),
        (replace(on(small(0)), held_up=frozenset({"gpu"})), "One is free for somebody ahead of you.", "behind"),
    ],
)
def test_why_a_gpu_is_waited_for_is_told_with_who_is_ahead(subject: QueueSnapshot, text: str, word: str) -> None:
    assert shown(subject) == after(text)
    assert {verdict.reason.reason for verdict in standing(subject, NOW).values()} == {word}


@pytest.mark.parametrize("offer", ["cpu", "mig-1g.5gb"])
@pytest.mark.parametrize(("starting", "braked"), [(1, False), (2, True), (3, True)])
def test_at_the_start_brake_and_not_before_it_who_waits_is_told_of_it(offer: str, starting: int, braked: bool) -> None:
    began = tuple(ticket(10 + n, "cpu", state=TicketState.ADMITTED) for n in range(starting))
    waiting = tuple(ticket(n, offer) for n in (1, 2, 3))
    subject = snapshot((small(0), small(1), small(2)), (*began, *waiting), (), QueueLimits(max_starting=2))
    brake, free = "2 servers are starting right now; yours starts after them.", "One is free for somebody ahead of you."
    assert shown(subject) == after(brake if braked else free)
    assert len(admit(subject)) == (0 if braked else 1)


def test_the_position_told_is_the_best_of_the_offers_and_says_how_many_are_ahead() -> None:
    many = (ticket(1, "gpu"), ticket(2, "gpu"), ticket(3, "gpu", "mig-1g.5gb"), ticket(4, "mig-1g.5gb", "gpu"))
    found = standing(snapshot((), many), NOW)
    assert {name: (v.offer, v.position, v.ahead) for name, v in found.items()} == {
        "t1": ("gpu", 1, 0),
        "t2": ("gpu", 2, 1),
        "t3": ("mig-1g.5gb", 1, 0),
        "t4": ("mig-1g.5gb", 2, 1),
    }


@pytest.mark.parametrize(
    ("pool", "leases", "text"),
    [
        (counted.small(2, 0), (), "{}: all 2 are in use."),
        (counted.small(2, 0, unknown=1), (), UNKNOWN),
        (counted.small(2, 1, unknown=1), (), "One is free for somebody ahead of you."),
        (counted.small(2, 0, foreign=2), (), "All 2 are used by programs that this hub did not start."),
        (
            counted.small(2, 0, foreign=1),
            (counted.lease(9),),
            "{}: all 2 are in use, 1 of them by programs that this hub did not start.",
        ),
        (counted.small(0, 0), (), "{}: none is there now."),
    ],
)
def test_of_counted_devices_the_same_is_told(pool: Pool, leases: tuple[object, ...], text: str) -> None:
    subject = counted.snapshot(pool, tickets=WAITING, leases=leases)  # type: ignore[arg-type]
    title = next(offer.plain_name for offer in subject.offers if offer.pool)
    assert shown(subject) == after(text.format(title))


NO_FORECAST = {
    "queue": "Kueue hands out the GPUs here and does not say how long it takes.",
    "unknown": "It is not known which GPUs are free.",
    "held up": "Something outside this hub took the GPU that was free.",
}


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (on(small(0), held=1), ""),
        (replace(on(small(0), held=1), queue="Kueue"), NO_FORECAST["queue"]),
        (snapshot(None, WAITING), NO_FORECAST["unknown"]),
        (counted.snapshot(counted.small(2, 0, unknown=1), tickets=WAITING), NO_FORECAST["unknown"]),
        (replace(on(small(0)), held_up=frozenset({"mig-1g.5gb"})), NO_FORECAST["held up"]),
        (
            replace(counted.snapshot(DIED, tickets=WAITING), held_up=frozenset({"mig-1g.5gb"})),
            "A machine that has such a GPU does not answer.",
        ),
    ],
)
def test_where_nothing_can_be_said_of_the_wait_the_reason_is_told_instead(subject: QueueSnapshot, reason: str) -> None:
    for verdict in standing(subject, NOW).values():
        assert verdict.forecast is not None
        assert verdict.forecast.reason is not None
        assert (verdict.forecast.reason.message == reason) is bool(reason)


@pytest.mark.parametrize("state", list(LeaseState))
def test_how_an_offer_stands_counts_each_lease_by_its_state(state: LeaseState) -> None:
    devices = (small(0), small(1), THEIRS)
    subject = snapshot(devices, WAITING[:1], (replace(lease(small(0)), state=state),))
    here = {each.offer.id: each for each in availability(subject, NOW)}
    found = here["mig-1g.5gb"]
    over, lost = state is LeaseState.ENDED, state is LeaseState.LOST
    assert (found.free, found.total, found.held, found.lost) == (2 if over else 1, 3, int(not over and not lost), lost)
    assert (found.foreign, found.waiting, found.wait.now) == (1, 1, False)
    assert (here["cpu"].free, here["cpu"].total, here["cpu"].wait.now, here["cpu"].held) == (None, None, True, 0)


@pytest.mark.parametrize(
    ("subject", "now"),
    [
        (snapshot((FREE,)), True),
        (snapshot((FREE,), WAITING[:1]), False),
        (snapshot((small(1),), (), (HELD,)), False),
        (replace(snapshot((FREE,)), queue="KAI"), False),
        (replace(snapshot((FREE,)), held_up=frozenset({"mig-1g.5gb"})), False),
        (replace(snapshot((FREE,)), held_up=frozenset({"gpu"})), True),
        (snapshot(None), False),
    ],
)
def test_an_offer_starts_now_where_one_is_free_and_nobody_is_before(subject: QueueSnapshot, now: bool) -> None:
    found = next(each for each in availability(subject, NOW) if each.offer == SMALL)
    assert found.wait.now is now


@pytest.mark.parametrize(
    ("held", "free"),
    [
        (0, (1, 2, 4)),
        (250, (0, 1, 3)),
        (251, (0, 1, 2)),
        (500, (0, 1, 2)),
        (501, (0, 0, 1)),
        (750, (0, 0, 1)),
        (751, (0, 0, 0)),
    ],
)
def test_of_a_card_that_is_shared_as_many_parts_are_free_as_fit(held: int, free: tuple[int, ...]) -> None:
    leases = (lease(whole(0), held, offer="gpu-0.5"),) if held else ()
    here = {each.offer: each for each in availability(snapshot((whole(0),), (), leases), NOW)}
    assert tuple(here[offer].free for offer in (GPU, HALF, QUARTER)) == free
    assert tuple(here[offer].total for offer in (GPU, HALF, QUARTER)) == (1, 2, 4)


@pytest.mark.parametrize(("most", "refused"), [(1, True), (2, True), (3, False)])
def test_a_user_holds_as_many_gpus_as_the_limit_says(most: int, refused: bool) -> None:
    states = (LeaseState.STARTING, LeaseState.RUNNING, LeaseState.ENDING, LeaseState.LOST, LeaseState.ENDED)
    mine = tuple(replace(lease(small(n)), state=state, user="ada", server=f"s{n}") for n, state in enumerate(states))
    subject = snapshot((), (), mine, QueueLimits(gpu_leases_per_user=most))
    found = over_own_limit(subject, "ada", "")
    assert (found is not None) is refused
    if found is not None:
        assert found.message == "You already hold a GPU in server s0. Stop it, or start CPU only."
        assert found.log_message == f"user holds 2 GPU lease(s), limit {most}"
    assert over_own_limit(subject, "ada", "s0") is None or most == 1, "its own lease does not count"
    assert over_own_limit(subject, "ben", "") is None


@pytest.mark.parametrize(("most", "word"), [(1, "own-ticket-limit"), (2, "own-ticket-limit"), (3, None)])
def test_a_user_has_as_many_places_in_line_as_the_limit_says(most: int, word: str | None) -> None:
    mine = [replace(ticket(n, "mig-1g.5gb", user="ada"), server=f"s{n}") for n in (1, 2)]
    cpu = replace(ticket(3, "cpu", user="ada"), server="s3")
    subject = snapshot((small(0),), (*mine, cpu, ticket(4, "mig-1g.5gb")), (), QueueLimits(tickets_per_user=most))
    found = refuse_to_join(subject, "ada", "new", ["mig-1g.5gb"], ())
    assert (found.reason if found else None) == word
    if found is not None:
        assert found.message.startswith("You are already in line for a GPU with server s1. Leave that line first")
    assert refuse_to_join(subject, "ada", "new", ["cpu"], ()) is None, "CPU only needs no place"


@pytest.mark.parametrize(("most", "word"), [(2, "line-full"), (3, "line-full"), (4, None)])
def test_a_line_is_full_at_its_longest_for_whoever_is_not_in_it(most: int, word: str | None) -> None:
    subject = snapshot((), WAITING, (), QueueLimits(max_waiting=most))
    found = refuse_to_join(subject, "new", "", ["gpu", "mig-1g.5gb"], ())
    assert (found.reason if found else None) == word
    assert refuse_to_join(subject, "u2", "", ["mig-1g.5gb"], ()) is None
    assert refuse_to_join(subject, "new", "", ["gpu"], ()) is None, "the other line is empty"


def test_an_offer_that_is_not_there_is_named_shortened_with_those_that_are() -> None:
    hidden = replace(GPU, id="secret", groups=("staff",))
    subject = QueueSnapshot((CPU, SMALL, hidden), (), (), ())
    found = refuse_to_join(subject, "ada", "", ["x" * 81], ("students",))
    assert found is not None and found.message == f"There is no offer “{'x' * 80}” here. Offers: cpu, mig-1g.5gb."
    found = refuse_to_join(subject, "ada", "", ["nothing"], ("staff",))
    assert found is not None and found.message.endswith("Offers: cpu, mig-1g.5gb, secret.")
    assert refuse_to_join(subject, "ada", "", ["secret"], ("staff", "students")) is None
    found = refuse_to_join(subject, "ada", "", ["cpu", "secret"], ("students",))
    assert found is not None and found.reason == "unknown-offer"


@pytest.mark.parametrize("wanted", ["mig-2g.10gb", "gpu-0.5", "gpu"])
@pytest.mark.parametrize("groups", [(), ("students",), ("students", "thesis")])
def test_an_offer_of_other_groups_is_refused_just_like_one_that_does_not_exist(
    wanted: str, groups: tuple[str, ...]
) -> None:
    hidden = replace(GPU, id=OfferId(wanted), title="Rector's own", groups=("staff",))
    there = refuse_to_join(QueueSnapshot((CPU, SMALL, hidden), (), (), ()), "ada", "", [wanted], groups)
    absent = refuse_to_join(QueueSnapshot((CPU, SMALL), (), (), ()), "ada", "", [wanted], groups)
    assert there is not None and absent is not None
    assert replace(there, log_message="") == replace(absent, log_message="")
    assert "staff" in there.log_message, "the admin can tell them apart"


def test_a_lease_that_outlived_its_end_has_none_that_could_be_told() -> None:
    def at_most(state: LeaseState, minutes: int) -> object:
        held = replace(lease(small(0), ends=NOW + timedelta(minutes=minutes)), state=state)
        found = standing(snapshot((small(0),), WAITING[:1], (held,), lifetime=timedelta(hours=1)), NOW)["t1"].forecast
        return found is not None and found.at_most is not None

    for state in (LeaseState.RUNNING, LeaseState.ENDING, LeaseState.LOST):
        assert [at_most(state, minutes) for minutes in (5, 0, -1, -2)] == [True, True, True, False]


def test_every_offer_has_an_availability() -> None:
    assert [each.offer for each in availability(snapshot((FREE,)), NOW)] == list(OFFERS)
    assert WHOLE == 1000
