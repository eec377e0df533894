"""The offers of a user without an earlier form while the service does not answer: those that the user surely may
choose.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.messages import FailedStart, FormState, Notice
from hub_extensions.core.messages.form_cache import form_for
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.queue.failed_starts import failure
from tests.fakes.service import an_offer

NOW = datetime(2026, 1, 5, 10, 0, tzinfo=timezone.utc)
FOR = {"gpu": None, "mig-1g.5gb": "vision", "mig-2g.10gb": "thesis"}
"""Which group each offer is for; None: everybody."""


def shown_to(*groups: str) -> tuple[frozenset[str], FormState]:
    offers = tuple(an_offer(offer, free=1, total=2) for offer, group in FOR.items() if group in (None, *groups))
    notices = (Notice(NOW, "", "Yours was stopped."),)
    form = FormState(offers, False, NOW, "", ("exam",), notices, ("gpu",), "", ("exam",))  # type: ignore[arg-type]
    return frozenset(groups), replace(form, failed=(FailedStart(NOW, "ada", "", CPU, "", failure("crashed", "")),))


@pytest.mark.parametrize(
    ("shown", "mine", "seen"),
    [
        ([], (), None),
        ([()], (), ["gpu"]),
        ([()], ("vision",), ["gpu"]),
        ([("vision",)], (), None),
        ([("vision",)], ("vision",), ["gpu", "mig-1g.5gb"]),
        ([("vision",), ("thesis",)], ("thesis", "vision"), ["gpu", "mig-1g.5gb", "mig-2g.10gb"]),
        ([("vision", "thesis"), ()], ("vision",), ["gpu"]),
    ],
)
def test_a_new_user_sees_only_offers_that_they_surely_may_choose(
    shown: list[tuple[str, ...]], mine: tuple[str, ...], seen: list[str] | None
) -> None:
    found = form_for(mine, dict(shown_to(*groups) for groups in shown))
    assert (found and sorted(offer.id for offer in found.offers)) == seen


@given(st.lists(st.sets(st.sampled_from(["vision", "thesis"]))), st.sets(st.sampled_from(["vision", "thesis"])))
def test_nobody_sees_an_offer_of_another_group_or_anything_of_another_person(
    shown: list[set[str]], mine: set[str]
) -> None:
    found = form_for(mine, dict(shown_to(*groups) for groups in shown))
    if found is not None:
        assert {FOR[str(offer.id)] for offer in found.offers} <= {None, *mine}
        assert (found.gpu_servers, found.notices, found.last_offers, found.in_line) == ((), (), (), ())
        assert found.failed == ()
        assert found.peak_memory_bytes is None, "of the one who was shown it"
