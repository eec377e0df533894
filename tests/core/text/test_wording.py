"""Durations, sizes of memory and ordinals as text, with edge cases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from hub_extensions.core.messages import OfferClosing, Wait
from hub_extensions.core.messages.offer_texts import default_title, free_text, gives, pill_text
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.text.wording import about, at_most, coarse, duration, gib, likely, ordinal, stepped
from tests.fakes.service import an_offer


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"), (0, "0 s"), (1, "1 s"), (45, "45 s"), (59, "59 s"), (60, "1 min"), (61, "1 min 1 s"),
        (90, "1 min 30 s"), (1800, "30 min"), (3599, "59 min 59 s"), (3600, "1 h"), (3601, "1 h"), (3660, "1 h 1 min"),
        (7800, "2 h 10 min"), (43200, "12 h"), (86400, "24 h"),
    ],
)  # fmt: skip
def test_a_length_that_is_set_is_said_to_the_second(seconds: float, words: str) -> None:
    assert duration(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"), (0, "0 s"), (40, "40 s"), (59.4, "59 s"), (59.6, "1 min"), (61, "1 min"), (1500, "25 min"),
        (3599, "1 h"), (3540, "59 min"), (4320, "1 h 12 min"), (7200, "2 h"), (7800, "2 h 10 min"),
        (172_800, "2 d"), (200_000, "2 d 7 h"),
    ],
)  # fmt: skip
def test_a_length_that_is_estimated_is_rounded(seconds: float, words: str) -> None:
    assert about(seconds) == words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1500, 3000, "likely 25–50 min"),
        (1500, 4200, "likely 25 min to 1 h 10 min"),
        (300, 300, "likely about 5 min"),
        (0, 300, "likely within 5 min"),
        (0, 0, "likely within 1 min"),
        (3300, 6900, "likely 55 min to 1 h 55 min"),
        (7200, 14_400, "likely 2 h to 4 h"),
        (39_600, 216_000, "likely 11 h to 2 d 12 h"),
    ],
)
def test_an_interval_has_two_figures_at_most(low: float, high: float, words: str) -> None:
    assert likely(low, high) == words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (900, 7200, "likely roughly 15 min to 2 h"),
        (300, 1800, "likely roughly 5 min to 30 min"),
        (5400, 86_400, "likely roughly 1 h 30 min to 24 h"),
        (0, 2700, "likely within roughly 45 min"),
        (0, 0, "likely within roughly 1 min"),  # a limit is nearer than the first step
    ],
)
def test_a_wide_likely_wait_is_roughly_told(low: float, high: float, words: str) -> None:
    assert likely(low, high, wide=True) == words


@pytest.mark.parametrize(
    ("minutes", "below", "above"),
    [
        (0, 0, 5), (0.1, 0, 5), (4.99, 0, 5), (5, 5, 5), (5.01, 5, 10), (12, 10, 15), (16, 15, 30), (31, 30, 45),
        (46, 45, 60), (61, 60, 90), (91, 90, 120), (121, 120, 180), (181, 180, 240), (241, 240, 360), (361, 360, 480),
        (481, 480, 720), (721, 720, 1440), (1440, 1440, 1440), (1441, 1440, 2880), (2880, 2880, 2880),
    ],
)  # fmt: skip
def test_the_ends_of_a_wide_wait_are_rounded_outwards(minutes: float, below: int, above: int) -> None:
    assert (coarse(60 * minutes, up=False), coarse(60 * minutes, up=True)) == (60 * below, 60 * above)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"), (21, "21st"),
        (22, "22nd"), (101, "101st"), (111, "111th"), (112, "112th"),
    ],
)  # fmt: skip
def test_a_place_is_an_ordinal(number: int, words: str) -> None:
    assert ordinal(number) == words


@pytest.mark.parametrize(("count", "words"), [(0, "0 GiB"), (5_100_273_664, "4.75 GiB"), (20 * 1024**3, "20 GiB")])
def test_memory_is_said_in_gib(count: int, words: str) -> None:
    assert gib(count) == words


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        ("cpu", "CPU only"),
        ("gpu", "a whole GPU"),
        ("gpu@a100-sxm4-40gb", "a whole GPU"),
        ("gpu.shared", "a shared GPU"),
        ("gpu-0.5", "50 % of a GPU"),
        ("gpu-8gib@tesla-t4", "8 GiB of a GPU"),
        ("mig-1g.5gb", "MIG 1g.5gb"),
        ("mig-1g.10gb.me", "MIG 1g.10gb+me"),
        ("mig-3g.20gb-0.5", "50 % of MIG 3g.20gb"),
    ],
)
def test_an_offer_without_a_title_has_a_name(offer: str, words: str) -> None:
    assert default_title(OfferId(offer)) == words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "4.75 GiB · 14 SMs"),
        ({"memory_enforced": False, "sm_count": None}, "about 4.75 GiB, shared"),
        ({"memory_bytes": None}, "14 SMs"),
        ({"memory_bytes": None, "sm_count": None}, "size not known"),
    ],
)
def test_an_offer_gives_what_is_known_of_it(changes: dict[str, object], words: str) -> None:
    known = replace(
        an_offer("mig-1g.5gb", free=1, total=1), memory_bytes=19 * 2**28, sm_count=14, sm_total=98, memory_enforced=True
    )
    assert gives(replace(known, **changes)) == words  # type: ignore[arg-type]


def test_what_is_free_has_a_sign_that_is_no_colour_and_who_came_first_is_said() -> None:
    wait = Wait(False, None, None, None, None, "")
    one = replace(an_offer("mig-1g.5gb", free=2, total=5), wait=wait)
    assert free_text(one, 0) == ("●", "2 of 5 free")
    assert free_text(one, 1) == ("●", "2 of 5 free, 1 ahead")
    assert free_text(replace(one, wait=replace(wait, now=True)), 1) == ("●", "2 of 5 free")
    assert free_text(replace(one, free=0), 1) == ("○", "full")
    assert free_text(replace(one, free=0, total=0), 1) == ("○", "none there now")
    closed = OfferClosing(5, True, None, "a fan")
    assert free_text(replace(one, free=0, closed=closed), 1) == ("○", "closed by an administrator")
    assert free_text(replace(one, free=None), 1) == ("?", "not known")
    assert free_text(replace(one, id=OfferId("cpu"), free=None), 0) == ("●", "always")


@pytest.mark.parametrize(
    ("changes", "wait", "words"),
    [
        ({}, (300.0, 720.0, 1500.0, 7800.0), "full · about 12 min"),
        ({}, (0.0, 20.0, 90.0, None), "full · about 1 min"),
        ({}, (None, None, None, 7800.0), "full · at most 2 h 10 min"),
        ({}, (None, 720.0, None, None), "full, wait not known"),
        ({"total": None}, (None, None, None, None), "full, wait not known"),
        ({"total": 0}, (300.0, 720.0, 1500.0, None), "none there now"),
        ({"free": 2}, (300.0, 720.0, 1500.0, None), "2 of 5 free, 1 ahead"),
        ({"free": None}, (300.0, 720.0, 1500.0, None), "not known"),
    ],
)
def test_a_full_offer_has_its_wait_in_its_pill(
    changes: dict[str, object], wait: tuple[float | None, ...], words: str
) -> None:
    one = replace(an_offer("mig-1g.5gb", free=0, total=5), wait=Wait(False, *wait, ""))
    assert pill_text(replace(one, **changes), 1)[1] == words  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (40, "40 s"), (59.2, "1 min"), (60, "1 min"), (60.1, "2 min"), (7829, "2 h 11 min"),
        (7800, "2 h 10 min"), (172_740.5, "2 d"), (172_801, "2 d 1 h"), (200_000, "2 d 8 h"),
    ],
)  # fmt: skip
def test_a_limit_is_rounded_up(seconds: float, words: str) -> None:
    assert at_most(seconds) == words


@pytest.mark.parametrize(
    ("minutes", "below", "nearest", "above"),
    [
        (0, 0, 0, 0), (-1, 0, 0, 0), (0.2, 0, 0, 1), (12.5, 12, 13, 13), (29.4, 29, 29, 30), (31, 30, 30, 35),
        (33, 30, 35, 35), (118, 115, 120, 120), (121, 120, 120, 135), (599, 585, 600, 600), (640, 600, 660, 660),
    ],
)  # fmt: skip
def test_a_likely_wait_is_told_in_steps(minutes: float, below: int, nearest: int, above: int) -> None:
    seconds = 60 * minutes
    told = stepped(seconds, up=False), stepped(seconds), stepped(seconds, up=True)
    assert tuple(each / 60 for each in told) == (below, nearest, above)
