"""Failed starts: the text for the user, and when the place in line is kept."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.messages import FailedStart
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.failed_starts import (
    KEPT_FOR,
    MOST,
    SHOWN_FOR,
    KeptFailure,
    after_ready,
    failure,
    places_of,
    sentence,
    shown_to,
    taken_up,
    with_failure,
)
from hub_extensions.core.queue.model import Ticket, TicketState, WantedOffer
from hub_extensions.core.text.sentence_pieces import joined

NOW = datetime(2026, 11, 2, 9, tzinfo=timezone.utc)
LATER = NOW + KEPT_FOR
GPU = OfferId("mig-1g.5gb")
PLACES = (WantedOffer(GPU, 4),)
START = FailedStart(NOW, "ada", "", GPU, "MIG 1g.5gb", failure("no-answer", "", 120.0), "no-answer")


def kept(*failures: tuple[FailedStart, datetime]) -> tuple[KeptFailure, ...]:
    found: tuple[KeptFailure, ...] = ()
    for start, until in failures:
        found = with_failure(found, start, PLACES, until)
    return found


@pytest.mark.parametrize(
    ("cause", "message", "seconds", "offer", "said"),
    [
        ("too-slow", "", 300.0, GPU, "Your server did not start within 5 min, so its start was ended."),
        ("no-answer", "", 120.0, GPU, "Your server was started and did not answer within 2 min, so it was ended."),
        ("image", "The image is not there.", 0.0, GPU, "The image is not there."),
        ("too-slow", "No machine has room.", 0.0, GPU, "No machine has room."),
        ("", "", 0.0, CPU, "The server did not start."),
    ],
)
def test_what_and_why_is_one_sentence(cause: str, message: str, seconds: float, offer: OfferId, said: str) -> None:
    back = "" if offer == CPU else " Your GPU was given back."
    assert joined(sentence([failure(cause, message, seconds)], offer)) == f"{said}{back}"


def test_a_place_is_kept_once_for_a_while_and_for_nobody_else() -> None:
    once = kept((START, LATER))
    assert places_of(once, "ada", "", NOW) == PLACES
    assert places_of(once, "ada", "", LATER) == (), "over"
    assert places_of(once, "ada", "exam", NOW) == places_of(once, "ben", "", NOW) == ()
    twice = kept((START, LATER), (START, LATER))
    assert places_of(twice, "ada", "", NOW) == (), "a second failure in a row keeps none"
    assert [each.start.before for each in twice] == [0, 1] and [each.past for each in twice] == [True, False]
    ready = after_ready(once, "ada", "")
    assert places_of(ready, "ada", "", NOW) == () and shown_to(ready, "ada", NOW) == ()
    assert places_of(with_failure(ready, START, PLACES, LATER), "ada", "", NOW) == PLACES, "a new row"


@pytest.mark.parametrize(
    "start", [replace(START, cause="image"), replace(START, cause="crashed"), replace(START, offer=CPU)]
)
def test_who_would_fail_again_or_waits_for_nothing_keeps_none(start: FailedStart) -> None:
    assert places_of(kept((start, LATER)), "ada", "", NOW) == ()


def test_its_user_reads_it_for_two_days_and_admins_as_long_as_there_is_room() -> None:
    known = kept((START, LATER), (replace(START, user="ben"), LATER))
    assert [each.start.user for each in shown_to(known, "ada", NOW + timedelta(days=1))] == ["ada"]
    assert shown_to(known, "ada", NOW + SHOWN_FOR) == ()
    many = kept(*((replace(START, server=str(number)), LATER) for number in range(MOST + 5)))
    assert (len(many), many[-1].start.server) == (MOST, str(MOST + 4))
    class_fails = kept(*((replace(START, user=str(number % MOST)), LATER) for number in range(MOST + 5)))
    assert (len(class_fails), sum(not each.past for each in class_fails)) == (MOST, MOST), "what is past goes first"


def test_a_place_that_was_taken_up_is_no_later_starts() -> None:
    once = kept((START, LATER), (replace(START, user="ben"), LATER))
    assert taken_up(once, "ada", "", [OfferId("gpu")]) == once, "it was not asked for"
    after = taken_up(once, "ada", "", [GPU])
    assert places_of(after, "ada", "", NOW) == () and places_of(after, "ben", "", NOW) == PLACES
    assert [each.until for each in after] == [None, LATER] and shown_to(after, "ada", NOW) != ()


def test_the_next_ticket_of_the_server_takes_the_places_up_and_others_at_the_end() -> None:
    asked = (GPU, OfferId("gpu"))
    assert lifecycle.wanted_offers_of(asked, None, lambda: 9, PLACES) == (*PLACES, WantedOffer(OfferId("gpu"), 9))
    live = Ticket("t", "ada", "", (WantedOffer(GPU, 7),), NOW)
    assert lifecycle.wanted_offers_of(asked[:1], live, lambda: 9, PLACES) == live.wanted_offers, "it has its own"
    assert lifecycle.places_left(live) == (), "it was not admitted"
    assert lifecycle.places_left(replace(live, state=TicketState.ADMITTED)) == live.wanted_offers
