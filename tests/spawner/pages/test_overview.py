"""The block of the hub's home and the page of a failed start, from what the service says; and names of offers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.adapters.service.gpu_service import ServiceRefused
from hub_extensions.core.messages import FailedStart, FormState, Notice, Problem, UserOverview
from hub_extensions.core.messages.offer_texts import enough_text
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.offers.user_options import UserOptions
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.spawner.pages.overview import (
    KEPT,
    NONE,
    UNKNOWN,
    NotRunningView,
    ended_view,
    failed_view,
    home_entries,
    place_in_queue,
)
from hub_extensions.spawner.pages.spawn_form import form_html
from hub_extensions.spawner.spawn_errors import (
    StartTookTooLong,
    explain_failure,
    place_ended,
    refusal,
    refused_by_service,
    service_away,
    spawn_reasons,
)
from tests.fakes.service import GIB
from tests.spawner.pages.test_looks import (
    FAILURE,
    LARGE,
    MEDIUM,
    NOW,
    OVERVIEW,
    SMALL,
    a_server,
    a_user,
    page_of,
    ticket,
)

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
    options = UserOptions((OfferId("mig-2g.10gb"), CPU), notify_when_ready=True)
    view = failed_view(starts, "", hub_message, options)
    assert view is not None and view.text == text and bool(view.kept) == kept
    assert view.again == (("offer", "mig-2g.10gb"), ("also", "cpu"), ("notify_when_ready", "1"))
    assert failed_view(starts, "", text, UserOptions(others={"profile": "torch"})).again == (), (
        "only the form has its fields"
    )  # type: ignore[union-attr]
    assert failed_view((), "", "", None) is None


def test_a_server_that_was_stopped_says_so_on_its_own_page_too() -> None:
    """The latest of what was said of this server; nothing where the service does not answer."""
    said = [Notice(NOW + timedelta(minutes=each), "", f"Stopped, {each}.") for each in (1, 3, 2)]
    overview = replace(NOTHING, notices=(*said, Notice(NOW + timedelta(hours=1), "exam", "Of another one.")))
    view = ended_view(overview, "")
    assert view is not None and view.text == "Stopped, 3."
    assert ended_view(overview, "thesis") is ended_view(None, "") is None
    why = explain("its-machine-short-of-memory")
    of_the_cluster = replace(NOTHING, notices=(Notice(NOW, "", why.message, (why,)),))
    view = ended_view(of_the_cluster, "", catalogue_for("fi"))
    assert view is not None and view.text == "Koneelta, jolla se oli, loppui muisti."
    older = replace(NOTHING, notices=(Notice(NOW, "", why.message),))
    view = ended_view(older, "", catalogue_for("fi"))
    assert view is not None and view.pieces == ((why.message, True),), "of an older version, and marked as English"


def test_a_start_that_a_cluster_ended_is_told_in_its_readers_language_and_by_who_told_it_live() -> None:
    why = explain("image-not-there", image="lab:1")
    start = FailedStart(NOW, "ada", "", OfferId("gpu"), "Whole GPU", why, then=(explain("choose-another"),))
    live = "The image lab:1 cannot be pulled: there is no such image. Choose another one, or tell an admin."
    view = failed_view((start,), "", live, None, catalogue_for("fi"))
    said = "Konttikuvaa lab:1 ei voi noutaa: sellaista kuvaa ei ole. Valitse toinen tai kerro ylläpitäjälle."
    assert view is not None and view.at and view.text == f"{said} GPU:si palautettiin."


@pytest.mark.parametrize(
    ("error", "finnish"),
    [
        (place_ended(replace(ticket(0, answer="ended"), reason=explain("left")), "ben"),
         "Paikkasi jonossa on päättynyt. Poistuit jonosta."),
        (place_ended(replace(ticket(0, answer="ended"), reason=Reason("", "")), "ben"),
         "Paikkasi jonossa on päättynyt. Valitse uudelleen."),
        (refused_by_service(ServiceRefused(409, Problem.of(explain("own-lease-limit", server="lab"))), "ben"),
         "Sinulla on jo GPU: palvelin lab. Pysäytä se tai käynnistä ilman GPU:ta."),
        (service_away(NOW, kept=False),
         "GPU-palvelu ei ole vastannut kello 14:02 UTC jälkeen, joten GPU:ta ei voi antaa. "
         "Yritä myöhemmin uudelleen tai käynnistä ilman GPU:ta."),
        (StartTookTooLong(60.0, (explain("machines-full"),)),
         "Koneet ovat nyt täynnä. Palvelimesi ei käynnistynyt ajassa 1 min, joten käynnistys lopetettiin. "
         "GPU:si palautettiin."),
        (asyncio.TimeoutError(),
         "Palvelimesi käynnistettiin, mutta se ei vastannut ajassa 2 min, joten se lopetettiin. GPU:si palautettiin."),
        (refusal("Your group may not use it.", reason="group"), "Your group may not use it."),
    ],
)  # fmt: skip
async def test_a_start_of_which_the_hub_alone_knows_is_told_in_its_readers_language(
    error: Exception, finnish: str
) -> None:
    explain_failure(error, OfferId("gpu"), 120.0)
    spawn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert spawn_reasons(None) == spawn_reasons(spawn) == ()
    spawn.set_exception(error)
    message = error.jupyterhub_message  # type: ignore[attr-defined]
    for language, text in (("en", message), ("fi", finnish)):
        view = failed_view((), "", message, None, catalogue_for(language), hub_reasons=spawn_reasons(spawn))
        assert view is not None and view.text == text


@pytest.mark.slow
async def test_the_hubs_pages_tell_what_a_cluster_did_in_finnish_and_mark_its_own_words() -> None:
    t = catalogue_for("fi")
    why = explain("server-crashed-with", code=1), explain("cluster-refuses", answer="no <gpu>")
    start = FailedStart(NOW, "ben", "", OfferId("gpu"), "Whole GPU", why[0], then=why[1:])
    over = replace(NOTHING, notices=(Notice(NOW, "lab", "It failed."),), failed=(start,))
    told = 'Palvelin kaatui paluukoodilla 1. Klusteri ei ota tätä palvelinta: <span lang="en">no &lt;gpu&gt;</span>.'

    async def gpu_home(_: object) -> object:
        return home_entries(over, {}, NOW, t)

    def page(name: str, shown: NotRunningView, **more: object) -> str:
        parts = a_user(None, shown)
        parts["spawner"].gpu_catalogue, parts["spawner"].gpu_home = lambda _: t, gpu_home
        return page_of(name, **parts, **more)

    failed = page("not_running.html", NotRunningView("", failed_view((start,), "", "", None, t)), failed=True)
    assert f'id="gpu-refused-text">{told} GPU:si palautettiin.</p>' in failed
    assert f"{told} GPU:si palautettiin." in page("home.html", NotRunningView(""))
    assert '<span lang="en">It failed.</span>' in page("home.html", NotRunningView(""))
    stopped = page("not_running.html", NotRunningView("", ended=ended_view(over, "lab", t)), failed=False)
    assert 'lang="fi-FI"><time' in stopped and '<span lang="en">It failed.</span></p>' in stopped
    form = form_html(FormState((SMALL,), False, NOW, "", (), over.notices, failed=(start,)), t=t)
    assert told in form and '<span lang="en">It failed.</span>' in form


def test_a_place_is_kept_none_or_not_known() -> None:
    assert place_in_queue(replace(NOTHING, tickets=(ticket(3),)), "", ()) == KEPT
    assert place_in_queue(NOTHING, "", (OfferId("gpu"),)) == NONE
    assert place_in_queue(None, "", (OfferId("gpu"),)) == UNKNOWN
    assert place_in_queue(None, "", (CPU,)) == NONE


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
