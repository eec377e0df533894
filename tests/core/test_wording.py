"""Lengths of time, memory and places in words, at their edges."""

from __future__ import annotations

from datetime import timedelta

import pytest

from hub_extensions.core.wording import about, duration, gib, ordinal


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
        (3599, "60 min"), (5940, "99 min"), (5970, "1 h 40 min"), (7200, "2 h"), (7800, "2 h 10 min"),
        (172_800, "2 d"), (200_000, "2 d 7 h"),
    ],
)  # fmt: skip
def test_a_length_that_is_estimated_is_rounded(seconds: float, words: str) -> None:
    assert about(seconds) == words


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
