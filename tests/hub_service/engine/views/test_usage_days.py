"""How long the figures of a day, week or month are shown before they are counted again."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.overview.days import Span, days_of
from hub_extensions.hub_service.engine.views.usage_days import is_current

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(("age", "current"), [(-1, False), (0, True), (59, True), (60, False)])
def test_figures_are_shown_for_a_minute(age: int, current: bool) -> None:
    assert is_current(days_of((), Span.DAY, NOW), NOW + timedelta(seconds=age)) is current


def test_figures_that_were_never_counted_are_not_current() -> None:
    assert not is_current(None, NOW)
