"""The words of the form and the waiting page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hub_extensions.core.messages import Wait
from hub_extensions.spawner.pages.words import offer_words, wait_words
from tests.fakes.service import an_offer


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        ("cpu", "CPU only"),
        ("gpu", "a whole GPU"),
        ("gpu-0.5", "50 % of a GPU"),
        ("mig-1g.10gb.me", "MIG 1g.10gb+me"),
        ("mig-3g.20gb-0.5", "50 % of MIG 3g.20gb"),
    ],
)
def test_an_offer_without_a_title_has_a_name(offer: str, words: str) -> None:
    assert offer_words(offer) == words


def test_an_unknown_size_is_said_to_be_unknown() -> None:
    from hub_extensions.spawner.pages.words import gives

    assert gives(an_offer("gpu", free=1, total=1, gib=None, sm_count=None)) == "size not known"


def test_where_the_line_is_anothers_no_place_in_it_is_made_up() -> None:
    why = "Kueue hands out the GPUs here and does not say how long it takes."
    full = an_offer("mig-1g.5gb", free=0, total=2, wait=Wait(False, None, None, None, None, why))
    assert wait_words(full) == "you would be 1st in line, wait not known"
    assert wait_words(replace(full, queue="Kueue")) == why


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        ("gpu", "a whole GPU"),
        ("gpu@a100-sxm4-40gb", "a whole GPU"),
        ("mig-1g.5gb", "MIG 1g.5gb"),
        ("mig-1g.10gb.me", "MIG 1g.10gb+me"),
        ("cpu", "CPU only"),
    ],
)
def test_an_offer_whose_title_is_not_known_is_called_by_its_id(offer: str, words: str) -> None:
    assert offer_words(offer) == words
