"""Who measures an offer's GPUs, and what is said where nobody does."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.culling.sources import TEXTS, WHO, LeaseFigure, Outlook, outlook_of_pool, source_of
from hub_extensions.core.gpu.dcgm import WHY, Measured
from hub_extensions.core.offers.offer_id import OfferId

SMALL = OfferId("mig-1g.5gb")
NOON = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
NOW, LATER = timedelta(seconds=4), timedelta(seconds=40)
DCGM = Outlook("dcgm")
KNOWN, OLDER = LeaseFigure("dcgm", NOW), LeaseFigure("dcgm", LATER)
LACKING = LeaseFigure("none", why="pod-not-named")
REPORTED = LeaseFigure("report", NOW, "pod-not-named")
KINDS = {Measured(frozenset({"a"}), "1g.5gb")}


@pytest.mark.parametrize(
    ("figures", "outlook", "shared", "source", "measured", "reason"),
    [
        ([], DCGM, False, "dcgm", 0, "ready"),
        ([], DCGM, True, "dcgm", 0, "shared"),
        ([], Outlook("none", "not-exported"), False, "none", 0, "not-exported"),
        ([], Outlook("nvml"), False, "nvml", 0, "ready"),
        ([KNOWN, OLDER], DCGM, False, "dcgm", 2, "measured"),
        ([KNOWN, LACKING], DCGM, False, "dcgm", 1, "pod-not-named"),
        ([LACKING], DCGM, False, "none", 0, "pod-not-named"),
        ([LeaseFigure("none")], Outlook("none", "no-prometheus"), False, "none", 0, "no-prometheus"),
        ([LeaseFigure("none")], DCGM, False, "none", 0, "not-read"),
        ([LeaseFigure("none", why="shared")], DCGM, True, "none", 0, "shared"),
        ([REPORTED], DCGM, False, "report", 1, "pod-not-named"),
        ([LeaseFigure("report", NOW)], Outlook("none", "no-prometheus"), False, "report", 1, "no-prometheus"),
        ([KNOWN], Outlook("none", "away"), False, "dcgm", 1, "measured"),
    ],
)
def test_an_offers_evidence_has_a_name_an_age_and_a_sentence(
    figures: list[LeaseFigure], outlook: Outlook, shared: bool, source: str, measured: int, reason: str
) -> None:
    found = source_of(SMALL, figures, outlook, shared=shared, since=NOON)
    assert (found.source, found.leases, found.measured, found.reason) == (source, len(figures), measured, reason)
    assert found.text[0].isupper() and found.text.endswith(".") and source in WHO
    oldest = max((each.age for each in figures if each.age), default=None)
    assert (found.age_seconds, found.since) == (oldest and oldest.total_seconds(), NOON)


@pytest.mark.parametrize(
    ("kinds", "asked", "answers", "why"),
    [
        (KINDS, True, True, ""),
        (set(), True, True, "not-exported"),
        ({Measured(frozenset({"a"}), "")}, True, True, "not-exported"),
        ({Measured(frozenset({"b"}), "1g.5gb")}, True, True, "not-exported"),
        (None, True, True, "not-asked-yet"),
        (None, True, False, "away"),
        (None, False, True, "no-prometheus"),
    ],
)
def test_what_a_pool_can_expect_is_known_before_anybody_has_one(
    kinds: set[Measured] | None, asked: bool, answers: bool, why: str
) -> None:
    found = outlook_of_pool(SMALL, {"a"}, {"a", "b"}, kinds, asked=asked, answers=answers)
    assert (found.source, found.why) == ("none" if why else "dcgm", why)


@pytest.mark.parametrize(
    ("pool", "kinds", "why"),
    [
        (SMALL, set(), "cut-on-demand"),
        (SMALL, {Measured(frozenset({"a"}), "")}, "cut-on-demand"),
        (SMALL, KINDS, ""),
        (OfferId("gpu"), set(), "not-exported"),
    ],
)
def test_a_piece_that_is_cut_for_a_claim_is_not_there_to_be_measured_before(
    pool: OfferId, kinds: set[Measured], why: str
) -> None:
    found = outlook_of_pool(pool, {"a"}, {"a"}, kinds, asked=True, answers=True, by_claim=True)
    assert found.why == why
    if why == "cut-on-demand":
        assert "let dcgm-exporter run" not in TEXTS[why], "it may run, and has nothing to export yet"


def test_every_reason_has_one_text() -> None:
    assert (TEXTS.keys() & WHY.keys()) == {"shared"}, "an offer's own words come first"
