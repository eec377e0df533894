"""The words of the form and the waiting page."""

from __future__ import annotations

from dataclasses import replace

from hub_extensions.core.messages import Wait
from hub_extensions.core.messages.offer_texts import unknown_wait_text
from hub_extensions.core.text.reasons import explain
from hub_extensions.spawner.pages.texts import wait_text
from tests.fakes.reasons import because
from tests.fakes.service import an_offer


def test_where_the_line_is_anothers_no_place_in_it_is_made_up() -> None:
    why = "Kueue hands out the GPUs here and does not say how long it takes."
    full = an_offer("mig-1g.5gb", free=0, total=2, wait=Wait(False, None, None, None, None, because(why)))
    assert wait_text(full) == "if you joined now: 1st in line, wait not known"
    assert wait_text(replace(full, queue="Kueue")) == why
    assert wait_text(replace(full, total=0)) == "no machine has one now", "there is no place for something that is not"


def test_where_no_limit_is_said_because_the_place_ends_before_that_end_is_said() -> None:
    wait = Wait(False, None, None, None, None, explain("place-ends-first", hours=24.0))
    offer = an_offer("gpu", free=0, total=2, wait=wait)
    assert wait_text(offer) == "if you joined now: 1st in line, your place ends after 24 h"
    assert unknown_wait_text(wait) == "your place ends after 24 h"
    assert (
        unknown_wait_text(replace(wait, reason=None))
        == unknown_wait_text(replace(wait, reason=because("x")))
        == "wait not known"
    )
