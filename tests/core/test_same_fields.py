"""Values that repeat fields of another one have all of them, with the same types."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta, timezone
from typing import Any, get_type_hints

import pytest

from hub_extensions.core.culling import Evidence, ServerFacts
from hub_extensions.core.culling.evidence import evidence_of
from hub_extensions.core.gpu.samples import ServerReport
from hub_extensions.core.messages import OfferClosing, OfferState, Report
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.cordons import Closing
from hub_extensions.core.queue.model import Availability


@pytest.mark.parametrize(
    ("value", "message", "renamed", "converted", "left_out", "added"),
    [
        # the time is the service's own; what a page has shown is kept with the facts of the server
        (ServerReport, Report, {}, set(), {"at"}, {"warned"}),
        # nobody sees to whom else an offer is open
        (GpuOffer, OfferState, {}, {"kind", "share", "isolation"}, {"groups"}, None),
        (Availability, OfferState, {"foreign": "held_by_others"}, {"wait"}, {"offer"}, None),
        (Closing, OfferClosing, {}, set(), set(), {"all"}),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_a_message_has_every_field_of_the_value_that_it_repeats(
    value: type[Any],
    message: type[Any],
    renamed: dict[str, str],
    converted: set[str],
    left_out: set[str],
    added: set[str] | None,
) -> None:
    mine, theirs = get_type_hints(value), get_type_hints(message)
    repeated = {renamed.get(each.name, each.name): mine[each.name] for each in fields(value)}
    assert repeated.keys() - theirs.keys() == left_out
    if added is not None:
        assert theirs.keys() - repeated.keys() == added
    same = repeated.keys() - left_out - converted
    assert {name: theirs[name] for name in same} == {name: repeated[name] for name in same}


def test_the_fields_of_an_offer_in_a_message_are_those_of_the_offer_and_of_its_availability() -> None:
    of_offer = {each.name for each in fields(GpuOffer)}
    of_place = {{"foreign": "held_by_others"}.get(each.name, each.name) for each in fields(Availability)}
    assert {each.name for each in fields(OfferState)} - of_offer - of_place == {"closed"}


def test_the_evidence_about_a_server_has_its_facts_unchanged() -> None:
    def minute(number: int) -> datetime:
        return datetime(2026, 1, 5, 12, number, tzinfo=timezone.utc)

    plain = ServerFacts("ada", "", OfferId("gpu"), minute(0))
    facts = ServerFacts(
        "ada",
        "",
        OfferId("mig-1g.5gb"),
        minute(1),
        adopted=True,
        opened=minute(2),
        opened_known=True,
        idle_since=minute(3),
        kept_until=minute(4),
        run_ended=minute(6),
        missed=timedelta(minutes=7),
        ends_at=minute(8),
        extensions=9,
    )
    repeated = {each.name for each in fields(Evidence)} & {each.name for each in fields(ServerFacts)}
    assert not [name for name in repeated if getattr(facts, name) == getattr(plain, name)], "each has a value here"
    found = evidence_of(facts, use_known=True)
    assert {name: getattr(found, name) for name in repeated} == {name: getattr(facts, name) for name in repeated}
    of_evidence, of_facts = get_type_hints(Evidence), get_type_hints(ServerFacts)
    assert {name: of_evidence[name] for name in repeated} == {name: of_facts[name] for name in repeated}
