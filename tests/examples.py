"""How many examples Hypothesis tries of a rule: as many as its test asks for, in the quick and the usual run a quarter.

    @many(200)
    @given(lines())
    def test_nobody_is_passed_over(line): ...

The profile says the share (``tests/conftest.py``), and what holds for all: no deadline, and slowness is no fault.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings

HUNDRED = 100
"""What Hypothesis tries where nobody says otherwise; a profile with less is a share of it."""


def many(count: int, **options: Any) -> settings:
    """Settings for `count` examples, or the present profile's share of them; `options` as of Hypothesis."""
    return settings(max_examples=max(1, count * settings.default.max_examples // HUNDRED), **options)
