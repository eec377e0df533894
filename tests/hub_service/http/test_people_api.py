"""The API for users, admins and programs."""

from __future__ import annotations

import inspect

import pytest

from hub_extensions.hub_service.engine.engine import Engine
from tests.fakes.engine import EngineInMemory
from tests.fakes.panel_service import a_state
from tests.hub_service.conftest import SECRET, Running, said


async def join(service: Running, user: str, server: str = "") -> str:
    body = {"user": user, "server": server, "offers": ["mig-2g.10gb"]}
    return str(said(await service.ask("POST", "hub/tickets", SECRET, body))["ticket"])


async def test_offers_are_asked_for_with_the_users_own_groups(service: Running) -> None:
    offers = said(await service.ask("GET", "api/offers", "ada-token"))["offers"]
    assert [offer["id"] for offer in offers] == ["mig-2g.10gb", "mig-1g.5gb", "gpu-0.5", "cpu"]
    assert service.engine.told == [("form", "ada", "", ("course",), False)]


async def test_an_admin_sees_the_offers_as_an_admin(service: Running) -> None:
    await service.ask("GET", "api/offers", "admin-token")
    assert service.engine.told == [("form", "root", "", (), True)]


async def test_a_service_of_the_same_name_as_a_user_is_not_that_user(service: Running) -> None:
    service.hub.add_token("service-ada", "ada", "access:services!service=gpu", kind="service")
    form = said(await service.ask("GET", "api/offers", "service-ada"))
    assert form["notices"] == []
    assert (await service.ask("POST", "api/tickets", "service-ada", {"offers": ["cpu"]})).code == 403
    assert (await service.ask("GET", "api/tickets", "service-ada")).code == 403
    assert service.hub.started == []


async def test_a_user_sees_own_tickets_and_an_admin_all(service: Running) -> None:
    await join(service, "ada")
    await join(service, "ben")
    assert [ticket["user"] for ticket in said(await service.ask("GET", "api/tickets", "ada-token"))] == ["ada"]
    everybody = said(await service.ask("GET", "api/tickets", "admin-token"))
    assert [ticket["user"] for ticket in everybody] == ["ada", "ben"]


async def test_only_its_owner_and_admins_can_end_a_ticket(service: Running) -> None:
    ticket = await join(service, "ada")
    assert (await service.ask("DELETE", f"api/tickets/{ticket}", "ben-token")).code == 404
    assert ticket in service.engine.queue
    assert (await service.ask("DELETE", f"api/tickets/{ticket}", "ada-token")).code == 204
    assert ticket not in service.engine.queue
    other = await join(service, "ben")
    assert (await service.ask("DELETE", f"api/tickets/{other}", "admin-token")).code == 204
    assert service.engine.ended_by == ["", "root"], "which of them is told"


async def test_asking_for_a_ticket_asks_the_hub_to_start_that_users_server(service: Running) -> None:
    body = {"offers": ["mig-2g.10gb", "mig-1g.5gb"], "server": "thesis"}
    answer = await service.ask("POST", "api/tickets", "ada-token", body)
    assert answer.code == 202
    assert said(answer)["offers"] == ["mig-2g.10gb", "mig-1g.5gb"]
    ((server, sent),) = service.hub.started
    assert server == "ada/thesis"
    assert ["mig-2g.10gb", "mig-1g.5gb"] in (sent.get("offers"), sent.get("user_options", {}).get("offers"))


async def test_a_user_reads_own_uses_and_an_admin_all_a_page_at_a_time(service: Running) -> None:
    service.hub.add_token("narrow", "root", "access:services!service=gpu")
    mine = said(await service.ask("GET", "api/usage", "ada-token"))
    assert ([use["user"] for use in mine["uses"]], mine["next"]) == (["ada"], "next-page")
    await service.ask("GET", "api/usage?before=next-page", "admin-token")
    await service.ask("GET", "api/usage", "narrow")
    assert service.engine.told == [("usage", "ada", None), ("usage", None, "next-page"), ("usage", "root", None)]
    for query, field in (("before=yesterday", "before"), ("offset=1000", "offset"), ("user=ben", "user")):
        answer = await service.ask("GET", f"api/usage?{query}", "ada-token")
        assert (answer.code, said(answer)["field"]) == (400, field)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"offers": ["mig-7g.40gb"]}, "offers"),
        ({"offers": []}, "offers"),
        ({"offers": ["not an id"]}, "offers"),
        ({"offers": ["cpu"], "user": "ben"}, "user"),
        ({"server": "x"}, "offers"),
        ({"offers": ["cpu"], "server": 1}, "server"),
    ],
)
async def test_a_bad_wish_names_the_field_and_asks_the_hub_nothing(service: Running, body: object, field: str) -> None:
    answer = await service.ask("POST", "api/tickets", "ada-token", body)
    assert (answer.code, said(answer)["field"]) == (400, field)
    assert service.hub.started == []


async def test_while_the_inventory_is_not_known_the_spawner_judges_the_offer(service: Running) -> None:
    service.engine.as_of = None
    assert (await service.ask("POST", "api/tickets", "ada-token", {"offers": ["mig-7g.40gb"]})).code == 202


@pytest.mark.parametrize(("hub", "ours"), [(429, 429), (400, 409), (403, 409), (500, 502)])
async def test_what_the_hub_says_no_to_is_told_in_words(service: Running, hub: int, ours: int) -> None:
    service.hub.start_answer = (hub, "ada's server failed: too many servers")
    answer = await service.ask("POST", "api/tickets", "ada-token", {"offers": ["cpu"]})
    assert answer.code in (ours, 503)
    assert said(answer)["reason"].startswith("hub-")


def test_the_engine_of_these_tests_has_the_signatures_of_the_real_one() -> None:
    for name, method in inspect.getmembers(EngineInMemory, inspect.isfunction):
        if name.startswith("_") or name in ("admit", "publish", "run_server"):
            continue
        assert inspect.signature(method) == inspect.signature(getattr(Engine, name)), name


async def test_everybody_admins_too_reads_own_servers_alone(service: Running) -> None:
    service.engine.servers = {("ada", ""): a_state(user="ada"), ("ben", "lab"): a_state(user="ben", server="lab")}
    for token, expected in (("ada-token", ["ada"]), ("ben-token", ["ben"]), ("admin-token", [])):
        assert [each["user"] for each in said(await service.ask("GET", "api/servers", token))] == expected
