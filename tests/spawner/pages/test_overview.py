"""The block of the hub's home and the page of a failed start, from what the service says; and names of offers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from hub_extensions.adapters.catalogues import catalogue_for
from hub_extensions.core.messages import FailedStart, Notice, UserOverview
from hub_extensions.core.offer_texts import enough_text
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.spawner.pages.overview import KEPT, NONE, UNKNOWN, ended_view, failed_view, home_entries, place_in
from tests.fakes.service import GIB
from tests.spawner.pages.test_looks import FAILURE, LARGE, MEDIUM, NOW, OVERVIEW, SMALL, a_server, ticket

NOTHING = UserOverview((), ())
HUB_MESSAGE = "Your server was started and did not answer within 2 min, so it was ended. Your GPU was given back."


def test_each_server_has_one_entry_and_what_is_over_comes_last() -> None:
    entries = home_entries(OVERVIEW, {}, NOW)
    assert [(entry.server, entry.kind) for entry in entries] == [
        ("", "waiting"), ("exam", "starting"), ("thesis", "running"), ("lab", "failed"), ("old", "ended"),
    ]  # fmt: skip
    assert entries[0].text == "You are 2nd in line for MIG 2g.10gb"
    assert entries[0].more == "likely 25 min to 1 h 10 min, wait at most 2 h 10 min"
    assert (entries[2].more, entries[2].keep) == ("stops in 8 min. Idle for 22 min.", True)
    assert home_entries(NOTHING, {}, NOW) == ()
    (away,) = home_entries(None, {}, NOW)
    assert away.kind == "away"


@pytest.mark.parametrize(("minutes", "kind"), [(1, "ended"), (-1, "failed")])
def test_the_latest_of_what_is_over_counts_and_nothing_of_a_server_that_is_back(minutes: float, kind: str) -> None:
    stopped = Notice(NOW + timedelta(minutes=minutes), "", "Your server was stopped: its GPU was idle.")
    over = UserOverview((), (), (stopped,), (FAILURE,))
    assert [entry.kind for entry in home_entries(over, {}, NOW)] == [kind]
    assert [entry.kind for entry in home_entries(replace(over, servers=(a_server("", 8),)), {}, NOW)] == ["running"]
    assert [entry.kind for entry in home_entries(replace(over, tickets=(ticket(1),)), {}, NOW)] == ["waiting"]


@pytest.mark.parametrize(
    ("known", "hub_message", "text", "kept"),
    [
        (FAILURE, HUB_MESSAGE, HUB_MESSAGE, True),
        (FAILURE, "", HUB_MESSAGE, True),  # a day later, or another hub
        (None, HUB_MESSAGE, HUB_MESSAGE, False),  # the service does not answer
        (FAILURE, "Your group may not use it.", "Your group may not use it.", False),  # of a later start
    ],
)
def test_a_failed_start_reads_alike_whoever_knows_of_it(
    known: FailedStart | None, hub_message: str, text: str, kept: bool
) -> None:
    starts = () if known is None else (known,)
    options = {"offers": ["mig-2g.10gb", "cpu"], "notify_when_ready": True}
    view = failed_view(starts, "", hub_message, options)
    assert view is not None and view.text == text and bool(view.kept) == kept
    assert view.again == (("offer", "mig-2g.10gb"), ("also", "cpu"), ("notify_when_ready", "1"))
    assert failed_view(starts, "", text, {"profile": "torch"}).again == (), "only the form has its fields"  # type: ignore[union-attr]
    assert failed_view((), "", "", {}) is None


def test_a_server_that_was_stopped_says_so_on_its_own_page_too() -> None:
    """The latest of what was said of this server; nothing where the service does not answer."""
    said = [Notice(NOW + timedelta(minutes=each), "", f"Stopped, {each}.") for each in (1, 3, 2)]
    overview = replace(NOTHING, notices=(*said, Notice(NOW + timedelta(hours=1), "exam", "Of another one.")))
    view = ended_view(overview, "")
    assert view is not None and view.text == "Stopped, 3."
    assert ended_view(overview, "thesis") is ended_view(None, "") is None
    of_the_cluster = replace(NOTHING, notices=(Notice(NOW, "", "The machine it ran on ran short of memory."),))
    view = ended_view(of_the_cluster, "", catalogue_for("fi"))
    assert view is not None and view.text == "Koneelta, jolla se oli, loppui muisti."


def test_a_place_is_kept_none_or_not_known() -> None:
    assert place_in(replace(NOTHING, tickets=(ticket(3),)), "", ()) == KEPT
    assert place_in(NOTHING, "", (OfferId("gpu"),)) == NONE
    assert place_in(None, "", (OfferId("gpu"),)) == UNKNOWN
    assert place_in(None, "", (CPU,)) == NONE


@pytest.mark.parametrize(
    ("gib", "said"),
    [
        (0.01, ["", "", ""]),  # nothing was computed
        (3.0, ["enough for your last sessions (3 GiB at most)", "", ""]),
        (4.6, ["", "enough for your last sessions (4.6 GiB at most)", ""]),  # little room is no room
        (
            12.0,
            ["less than your last sessions held at most (12 GiB)"] * 2
            + ["enough for your last sessions (12 GiB at most)"],
        ),
        (None, ["", "", ""]),
    ],
)
def test_the_smallest_that_was_enough_is_said(gib: float | None, said: list[str]) -> None:
    offers = (SMALL, MEDIUM, LARGE)
    peak = None if gib is None else int(gib * GIB)
    assert [enough_text(each, offers, peak) for each in offers] == said
