"""Who may say what to the service: every route, every kind of caller."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from hub_extensions.adapters.service.signatures import Signatures
from hub_extensions.hub_service.http.api.routes import ROUTES
from hub_extensions.hub_service.http.app import HEALTH_ANYWHERE, PAGES
from hub_extensions.hub_service.http.auth import Who
from tests.hub_service.conftest import METRICS, PREFIX, SECRET, Running, said

EVERY_ROUTE = [
    (method.upper(), address.path.replace("{ticket}", "t1").replace("{lease}", "t1"), address.handler.who)
    for address in ROUTES
    for method in address.methods
]
CLOSED = [(method, path) for method, path, who in EVERY_ROUTE if who is not Who.ANYBODY]
NO_ADMINS = ["admin-access", "admin-without-access", "admin-visits-ben"]
"""Tokens of an admin that are for less, or for nothing here."""
STRANGERS = [None, "unknown-token", "outsider-token"]


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def body_for(method: str) -> bytes | None:
    return b"{}" if method in ("POST", "DELETE") else None


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("token", STRANGERS)
@pytest.mark.parametrize(("method", "path"), CLOSED)
async def test_a_stranger_gets_403_on_every_route(service: Running, method: str, path: str, token: str | None) -> None:
    answer = await service.ask(method, path, token, body_for(method))
    assert answer.code == 403
    assert said(answer)["message"]
    assert service.engine.told == []


async def test_only_health_is_for_anybody() -> None:
    assert [path for _, path, who in EVERY_ROUTE if who is Who.ANYBODY] == ["health"]


async def test_no_route_is_served_that_is_not_in_the_tables(service: Running) -> None:
    served = set()
    for router in service.server.request_callback.default_router.rules:
        for rule in getattr(router.target, "rules", ()):
            served.add(rule.matcher.regex.pattern)
    start = re.escape(PREFIX)
    known = {f"{start}{address.pattern}$" for address in ROUTES} | {f"{start}{path}$" for path, _ in PAGES}
    assert served == known | {f"{HEALTH_ANYWHERE}$"}


async def test_a_kubelet_asks_whether_it_is_ready_without_knowing_the_base_url(service: Running) -> None:
    here = service.url.removesuffix(PREFIX)
    answer = await service.client.fetch(f"{here}/healthz", raise_error=False)
    assert (answer.code, said(answer)) == (200, {"ready": True})
    service.engine.is_ready = False
    answer = await service.client.fetch(f"{here}/healthz", raise_error=False)
    assert (answer.code, said(answer)) == (503, {"ready": False})


def test_the_shipped_deployment_asks_there() -> None:
    shipped = Path(__file__).parents[3] / "helm-values" / "manifests" / "service-deployment" / "service.yaml"
    (deployment,) = [each for each in yaml.safe_load_all(shipped.read_text()) if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"] == {"path": HEALTH_ANYWHERE, "port": "http"}


@pytest.mark.parametrize(("method", "path"), [("POST", "leave"), ("POST", "keep"), ("GET", "static/page.css")])
@pytest.mark.parametrize("token", STRANGERS)
async def test_a_stranger_gets_403_on_forms_and_files(
    service: Running, method: str, path: str, token: str | None
) -> None:
    answer = await service.ask(method, path, token, body_for(method))
    assert answer.code == 403
    assert service.engine.told == []


async def test_a_browser_without_login_is_sent_to_the_login(service: Running) -> None:
    answer = await service.ask("GET", "")
    assert answer.code == 302
    assert answer.headers["Location"].startswith("/jh/hub/api/oauth2/authorize?client_id=service-gpu")


async def test_a_login_callback_out_of_nowhere_is_refused(service: Running, caplog: pytest.LogCaptureFixture) -> None:
    answer = await service.ask("GET", "oauth_callback?code=abc&state=def")
    assert answer.code in (400, 403)
    assert b"The login at the hub did not work" in answer.body
    assert "oauth_callback failed" in caplog.text
    assert "code=abc" not in caplog.text and "state=def" not in caplog.text


async def test_an_unknown_address_says_nothing(service: Running) -> None:
    assert (await service.ask("GET", "api/nothing")).code == 404
    assert (await service.ask("GET", "../../etc/passwd")).code == 404


async def test_health_tells_anybody_ready_or_not_and_nothing_more(service: Running) -> None:
    for token in (None, "unknown-token", "ada-token", "root-server", METRICS, *NO_ADMINS):
        answer = await service.ask("GET", "health", token)
        assert (answer.code, said(answer)) == (200, {"ready": True})
    service.engine.is_ready = False
    answer = await service.ask("GET", "health")
    assert (answer.code, said(answer)) == (503, {"ready": False})


@pytest.mark.parametrize("token", [SECRET, "admin-token"])
async def test_health_tells_the_hub_and_admins_more(service: Running, token: str) -> None:
    answer = said(await service.ask("GET", "health", token))
    clock = "as the hub's" if token == SECRET else None  # nobody else said what time it is there
    (evidence,) = answer.pop("evidence")
    assert (evidence["offer"], evidence["source"], evidence["reason"]) == ("mig-1g.5gb", "dcgm", "pod-not-named")
    assert answer == {
        "ready": True,
        "store": "ok",
        "hub": "answers",
        "inventory_age_seconds": 1.5,
        "version": "1.2.3",
        "prometheus": "answers, with figures of 2 of 2 devices",
        "prometheus_up": True,
        "policy_file": None,
        "policy_file_valid": None,
        "stops_failed": 0,
        "port": None,
        "clock": clock,
        "notices": None,
        "notices_sent": None,
    }


async def test_health_answers_while_the_hub_is_away(service: Running) -> None:
    await service.hub.stop()
    answer = await service.ask("GET", "health", "admin-token")
    assert (answer.code, said(answer)) == (200, {"ready": True})


@pytest.mark.parametrize("token", [SECRET, METRICS, "metrics-scope", "admin-token"])
async def test_metrics_want_one_of_four_tokens(service: Running, token: str) -> None:
    assert (await service.ask("GET", "metrics", token)).code == 200


@pytest.mark.parametrize("token", ["ada-token", "ada-thesis", "root-server", "metrics-no-access", *NO_ADMINS])
async def test_metrics_are_not_for_users_nor_for_an_admins_notebook(service: Running, token: str) -> None:
    assert (await service.ask("GET", "metrics", token)).code == 403


@pytest.mark.parametrize("token", [SECRET + "x", SECRET[:-1], METRICS, "admin-token", "ada-thesis"])
async def test_the_hubs_routes_take_the_hubs_signature_only(service: Running, token: str) -> None:
    assert (await service.ask("GET", "hub/form?user=ada", token)).code == 403


async def test_the_secret_itself_opens_nothing_and_an_older_hub_is_told_why(service: Running) -> None:
    sent = {"Authorization": f"Bearer {SECRET}"}
    answer = await service.ask("POST", "hub/tickets", body=b"{}", headers=sent)
    assert (answer.code, said(answer)["reason"]) == (403, "older-hub")
    assert (await service.ask("GET", "metrics", headers=sent)).code == 403
    assert said(await service.ask("GET", "health", headers=sent)) == {"ready": True}
    assert service.engine.told == []


async def test_the_hub_is_never_called_back_for_its_own_requests(service: Running) -> None:
    await service.hub.stop()
    assert (await service.ask("GET", "hub/form?user=ada", SECRET)).code == 200
    asked = {"user": "ada", "server": "", "offers": ["mig-1g.5gb"]}
    assert (await service.ask("POST", "hub/tickets", SECRET, asked)).code == 200
    assert service.hub.asked == []


async def test_a_servers_token_reads_keeps_and_reports_its_own_server_only(service: Running) -> None:
    service.engine.run_server("ada", "thesis")
    service.engine.run_server("ada", "")
    service.engine.run_server("ben", "thesis")
    assert said(await service.ask("GET", "api/server", "ada-thesis"))["server"] == "thesis"
    assert said(await service.ask("GET", "api/server", "ada-default"))["server"] == ""
    report = {"opened": True, "kernels": 1, "busy_kernels": 0}
    await service.ask("POST", "api/server/report?user=ben&server=thesis", "ada-thesis", report)
    await service.ask("POST", "api/server/keep?user=ben", "ada-thesis", {"user": "ben", "server": "thesis"})
    await service.ask("POST", "api/server/give-back?user=ben", "ada-thesis", {"cpu": True})
    await service.ask("POST", "api/server/extend?user=ben", "ada-thesis", {"user": "ben", "server": "thesis"})
    ended = {"run": "0123456789abcdef", "name": "", "state": "done", "started": "2026-11-01T11:00:00Z",
             "ended": "2026-11-01T12:00:00Z"}  # fmt: skip
    await service.ask("POST", "api/server/training-ended?user=ben", "ada-thesis", ended)
    progress = {"at": "2026-11-01T12:00:00Z", "left_seconds": 60}
    answer = await service.ask("POST", "api/server/progress?user=ben", "ada-thesis", progress)
    assert (answer.code, answer.body) == (204, b"")
    assert [(told[0], *told[1:3]) for told in service.engine.told] == [
        ("report", "ada", "thesis"),
        ("keep", "ada", "thesis"),
        ("give-back", "ada", "thesis"),
        ("extend", "ada", "thesis"),
        ("training-ended", "ada", "thesis"),
        ("progress", "ada", "thesis"),
    ]


async def test_a_server_cannot_name_another_server_in_its_report(service: Running) -> None:
    """A field that is not known is skipped: whose report it is, says the token alone."""
    service.engine.run_server("ada", "thesis")
    service.engine.run_server("ada", "other")
    report = {"opened": True, "kernels": 1, "busy_kernels": 0, "server": "other"}
    answer = await service.ask("POST", "api/server/report", "ada-thesis", report)
    assert answer.code == 200
    assert [tuple(told[:3]) for told in service.engine.told] == [("report", "ada", "thesis")]


@pytest.mark.parametrize("token", ["ada-token", "admin-token", "ada-visits-ben", "ada-two-servers", SECRET])
async def test_a_servers_routes_are_for_one_servers_own_token(service: Running, token: str) -> None:
    """Not for users, admins, a visitor of somebody's server, a token for two servers, or the hub."""
    assert (await service.ask("GET", "api/server", token)).code == 403
    assert (await service.ask("POST", "api/server/keep", token, b"")).code == 403


async def test_a_servers_token_may_look_at_the_offers_but_not_act_for_its_user(service: Running) -> None:
    """A token of server A cannot keep, read or stop server B, nor start it or end its ticket."""
    await service.ask("POST", "hub/tickets", SECRET, {"user": "ada", "server": "other", "offers": ["gpu"]})
    assert (await service.ask("GET", "api/offers", "ada-thesis")).code == 200
    assert (await service.ask("GET", "api/tickets", "ada-thesis")).code == 403
    assert (await service.ask("DELETE", "api/tickets/t1", "ada-thesis")).code == 403
    assert (await service.ask("POST", "api/tickets", "ada-thesis", {"offers": ["cpu"]})).code == 403
    assert (await service.ask("GET", "", "ada-thesis")).code == 403
    assert "t1" in service.engine.queue
    assert service.hub.started == []


async def test_an_admins_notebook_is_no_admin(service: Running) -> None:
    assert (await service.ask("GET", "api/leases", "root-server")).code == 403


async def test_leases_are_for_admins(service: Running) -> None:
    service.engine.run_server("ben", "")
    assert (await service.ask("GET", "api/leases", "ada-token")).code == 403
    assert said(await service.ask("GET", "api/leases", "admin-token"))[0]["user"] == "ben"


@pytest.mark.slow
@pytest.mark.parametrize("token", NO_ADMINS)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "api/leases"),
        ("DELETE", "api/leases/t1"),
        ("GET", "api/cluster"),
        ("GET", "api/forecasts"),
        ("POST", "give-up"),
    ],
)
async def test_an_admins_token_is_as_good_as_its_scopes(service: Running, method: str, path: str, token: str) -> None:
    assert (await service.ask(method, path, token, body_for(method))).code == 403
    assert service.engine.told == []


async def test_an_admins_token_for_access_alone_sees_and_ends_nobodys_place(service: Running) -> None:
    await service.ask("POST", "hub/tickets", SECRET, {"user": "ben", "server": "", "offers": ["gpu"]})
    assert said(await service.ask("GET", "api/tickets", "admin-access")) == []
    assert (await service.ask("DELETE", "api/tickets/t1", "admin-access")).code == 404
    assert b"t1" not in (await service.ask("GET", "", "admin-access")).body
    assert (await service.ask("POST", "leave", "admin-access", b"ticket=t1", FORM)).code == 404
    assert "t1" in service.engine.queue


async def test_a_token_for_access_alone_starts_keeps_and_ends_nothing_of_its_own(service: Running) -> None:
    await service.ask("POST", "hub/tickets", SECRET, {"user": "ada", "server": "", "offers": ["gpu"]})
    service.engine.told.clear()
    for method, path, body in (
        ("POST", "api/tickets", b'{"offers": ["cpu"]}'), ("DELETE", "api/tickets/t1", b""),
        ("POST", "leave", b"ticket=t1"), ("POST", "keep", b"server="),
    ):  # fmt: skip
        answer = await service.ask(method, path, "ada-access", body, FORM if b"=" in body else None)
        assert answer.code == 403, path
        assert b"servers" in answer.body
    assert service.hub.started == []
    assert [told for told in service.engine.told if told[0] != "form"] == []
    assert len(said(await service.ask("GET", "api/tickets", "ada-access"))) == 1


async def test_while_the_hub_is_away_nobody_is_let_in_by_token(service: Running) -> None:
    await service.hub.stop()
    for token, path in (("ada-thesis", "api/server"), ("ada-token", "api/tickets"), ("x", "metrics")):
        answer = await service.ask("GET", path, token)
        assert (answer.code, said(answer)["reason"]) == (503, "hub-away")


async def test_empty_secrets_open_nothing(service: Running) -> None:
    service.parts.auth.hub_secret = ""
    service.parts.auth.signatures = Signatures("")
    service.parts.auth.metrics_token = ""
    for header in ("Bearer ", "Bearer", "", "token "):
        answer = await service.ask("GET", "hub/form?user=ada", headers={"Authorization": header})
        assert answer.code == 403
        assert (await service.ask("GET", "metrics", headers={"Authorization": header})).code == 403
