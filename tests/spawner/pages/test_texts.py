"""The words of the form and the waiting page."""

from __future__ import annotations

from dataclasses import replace

from hub_extensions.core.messages import Wait
from hub_extensions.spawner.pages.texts import wait_text
from tests.fakes.reasons import because
from tests.fakes.service import an_offer


def test_where_the_line_is_anothers_no_place_in_it_is_made_up() -> None:
    why = "Kueue hands out the GPUs here and does not say how long it takes."
    full = an_offer("mig-1g.5gb", free=0, total=2, wait=Wait(False, None, None, None, None, because(why)))
    assert wait_text(full) == "you would be 1st in line, wait not known"
    assert wait_text(replace(full, queue="Kueue")) == why
