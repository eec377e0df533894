"""The front page of the apps' host: the reader's own data as far as it is known, and only apps that the reader may
open.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.messages import FormState, TicketInfo
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.sign_on.apps import App
from hub_extensions.core.sign_on.portal import (
    HEALTH_EXPIRES,
    NOT_CHECKED,
    AppHealth,
    RunningServer,
    Sources,
    health_now,
    next_health,
    portal_of,
)
from hub_extensions.core.text.reasons import Reason
from tests.fakes.panel_service import a_state
from tests.fakes.service import an_offer

NOW = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


def an_app(name: str, **more: object) -> App:
    facts = {"title": name.title(), "where": f"https://apps.example.org/{name}/", "upstream": "http://10.0.0.7:1"}
    return App(name=name, **{"health": "/", **facts, **more})  # type: ignore[arg-type]


def a_form(*offers: str) -> FormState:
    return FormState(tuple(an_offer(each, free=1, total=2) for each in offers), False, NOW, "", ())


def a_ticket(user: str | None) -> TicketInfo:
    return TicketInfo("t", user, "", "waiting", (OfferId("gpu"),), 2, NOW, Reason("full", "Full."), "")


@pytest.mark.parametrize(
    ("before", "status", "after"),
    [
        (NOT_CHECKED, 200, AppHealth("up", None, NOW)),
        (NOT_CHECKED, 302, AppHealth("up", None, NOW)),
        (NOT_CHECKED, 401, AppHealth("up", None, NOW)),
        (NOT_CHECKED, None, AppHealth("down", NOW, NOW)),
        (NOT_CHECKED, 503, AppHealth("down", NOW, NOW)),
        (AppHealth("up", None, NOW - SECOND), None, AppHealth("down", NOW, NOW)),
        (AppHealth("down", NOW - SECOND, NOW - SECOND), 500, AppHealth("down", NOW - SECOND, NOW)),
        (AppHealth("down", NOW - SECOND, NOW - SECOND), 200, AppHealth("up", NOW, NOW)),
    ],
)
def test_an_app_is_up_as_soon_as_it_answers_and_down_since_it_does_not(
    before: AppHealth, status: int | None, after: AppHealth
) -> None:
    assert next_health(before, status, NOW) == after


def test_an_answer_from_long_ago_is_not_known() -> None:
    known = AppHealth("up", None, NOW - HEALTH_EXPIRES)
    assert health_now(known, NOW) == known
    assert health_now(known, NOW + SECOND) == health_now(NOT_CHECKED, NOW) == NOT_CHECKED


def test_what_did_not_answer_is_not_known_and_never_none_of_them() -> None:
    page = portal_of("ada", [an_app("mlflow")], {}, Sources(True), NOW)
    assert (page.servers, page.places, page.waits) == (None, None, None)
    assert [app.health.state for app in page.apps] == ["unknown"]
    page = portal_of("ada", [], {}, Sources(True, (), (), a_form(), ()), NOW)
    assert (page.servers, page.places, page.waits) == ((), (), ())


def test_an_app_without_an_address_of_its_health_is_neither_up_nor_down() -> None:
    known = {"mlflow": AppHealth("up", None, NOW)}
    assert portal_of("ada", [an_app("mlflow", health="")], known, Sources(False), NOW).apps[0].health == NOT_CHECKED


def test_an_app_for_some_offers_is_shown_to_who_may_choose_one_and_where_that_is_not_known() -> None:
    apps = [an_app("dask", offers=("gpu",)), an_app("mlflow")]
    for form, shown in (
        (a_form("gpu", "cpu"), ["dask", "mlflow"]),
        (a_form("cpu"), ["mlflow"]),
        (None, ["dask", "mlflow"]),
    ):
        page = portal_of("ada", apps, {}, Sources(True, form=form), NOW)
        assert [app.name for app in page.apps] == shown


def test_an_admins_token_reads_everybodys_place_and_the_page_shows_ones_own() -> None:
    tickets = (a_ticket("ada"), a_ticket("ben"), a_ticket(None))
    page = portal_of("ada", [], {}, Sources(True, tickets=tickets), NOW)
    assert page.places is not None and [each.user for each in page.places] == ["ada", None]


def test_a_server_is_known_by_the_hub_and_what_it_holds_by_the_service() -> None:
    hub = (RunningServer("", True), RunningServer("lab", False))
    state = a_state(title="Small GPU", ends_at=NOW + SECOND)
    tiles = portal_of("ada", [], {}, Sources(True, hub, (state, replace(state, user="ben"))), NOW).servers
    assert tiles is not None
    assert [(each.name, each.ready, each.title, each.ends) for each in tiles] == [
        ("", True, "Small GPU", NOW + SECOND),
        ("lab", False, "", None),
    ]
    alone = portal_of("ada", [], {}, Sources(True, None, (state,)), NOW).servers
    assert alone is not None and [each.name for each in alone] == [""]


@pytest.mark.parametrize(
    ("icon", "sign", "picture"),
    [
        ("", "M", ""),
        ("🧪", "🧪", ""),
        ("/icons/mlflow.svg", "M", "/icons/mlflow.svg"),
        ("//elsewhere.example/x.svg", "M", ""),
        ("https://elsewhere.example/x.svg", "M", ""),
    ],
)
def test_a_picture_is_of_the_apps_host_and_no_other(icon: str, sign: str, picture: str) -> None:
    (tile,) = portal_of("ada", [an_app("mlflow", icon=icon)], {}, Sources(False), NOW).apps
    assert (tile.sign, tile.picture) == (sign, picture)
