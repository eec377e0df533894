"""Logins by a real JupyterHub: the browser's way in by OAuth, XSRF, users' API tokens, a server's own token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.hub_service.setup.settings import Settings
from tests.hubs import Hub, free_port, until
from tests.patience import patient

pytestmark = pytest.mark.hub

CONFIG = """
import sys
settings = {config!r}
c.JupyterHub.services.append({{
    "name": "gpu", "url": "http://127.0.0.1:{port}", "api_token": "api-token-" * 4, "oauth_no_confirm": True,
    "command": [sys.executable, "-m", "hub_extensions.hub_service", "--config", settings],
    "environment": {{"PYTHONPATH": {root!r}}},
}})
c.JupyterHub.load_roles += [
    {{"name": "gpu", "services": ["gpu"],
      "scopes": ["list:users", "read:users", "read:servers", "servers", "read:hub"]}},
    {{"name": "user", "scopes": ["self", "access:services!service=gpu"]}},
    {{"name": "server",
      "scopes": ["users:activity!user", "access:servers!server", "access:services!service=gpu"]}},
]
c.Authenticator.allowed_users = {{"ada", "ben", "root-admin"}}

from hub_extensions.configuration import TEMPLATES
from hub_extensions.spawner.pages.away import away_page
from hub_extensions.spawner.pages.page_frame import PageFrame

c.JupyterHub.extra_handlers = [(PageFrame.route, PageFrame, {{"service": "gpu"}})]
c.JupyterHub.template_vars = {{"gpu_away": away_page("/services/gpu"), "announcement": "Closed on <b>Friday</b>"}}
c.JupyterHub.template_paths = [{templates!r}, str(TEMPLATES)]
"""
OWN_PAGE = """{% extends "templates/page.html" %}
{% block nav_bar_left_items %}{{ super() }}<li class="nav-item">{{ user.name }} of our university</li>{% endblock %}
"""
ROOT = Path(__file__).resolve().parents[2]
ACCESS = "access:services!service=gpu"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("login")
    state = folder / "state"
    state.mkdir(mode=0o700)
    settings = Settings(
        state_dir=str(state),
        hub_secret="hub-secret-" * 4,
        api_token="api-token-" * 4,
        port=free_port(),
        offers=OfferConfig(simulate="lab-a100"),
    )
    settings.dump(state / "service.json")
    templates = folder / "templates"
    templates.mkdir()
    (templates / "page.html").write_text(OWN_PAGE)
    facts = {"config": str(state / "service.json"), "port": settings.port, "root": str(ROOT)}
    text = CONFIG.format(**facts, templates=str(templates))
    with Hub(folder / "hub", text, warm=False) as running:
        running.secret = settings.hub_secret  # type: ignore[attr-defined]
        until(
            lambda: requests.get(f"{running.url}/services/gpu/health", timeout=patient(5)).ok,
            30,
            "the service is ready",
        )
        yield running


def page_of(hub: Hub, name: str) -> tuple[requests.Session, str]:
    """A browser that opened the service's page: through the login of the hub and OAuth."""
    session = hub.login(name)
    session.headers.pop("X-XSRFToken", None)
    answer = session.get(f"{hub.url}/services/gpu/", timeout=patient(20))
    assert answer.status_code == 200, answer.text
    assert answer.url == f"{hub.url}/services/gpu/"
    return session, answer.text


def xsrf_of(text: str) -> str:
    found = re.search(r'data-xsrf="([^"]+)"', text)
    assert found
    return found.group(1)


def token_of(hub: Hub, user: str, *scopes: str) -> str:
    made = hub.api("POST", f"users/{user}/tokens", {"scopes": list(scopes)} if scopes else {})
    assert made.status_code in (200, 201), made.text
    return str(made.json()["token"])


@pytest.mark.whole
def test_a_browser_without_login_ends_at_the_hubs_login(hub: Hub) -> None:
    answer = requests.get(f"{hub.url}/services/gpu/", timeout=patient(20))
    assert "/hub/login" in answer.url


def test_a_user_comes_in_by_oauth_without_a_question(hub: Hub) -> None:
    _, text = page_of(hub, "ada")
    assert "Your GPU" in text and "ada" in text
    assert "2g.10gb" in text and "services/gpu/admin" not in text


def test_the_page_stands_in_the_hubs_own_with_an_admins_templates(hub: Hub) -> None:
    _, text = page_of(hub, "ada")
    for part in ('id="dark-theme-toggle"', 'id="logout"', "/hub/logout", "css/style.min.css", "<b>Friday</b>"):
        assert part in text, part
    assert "ada of our university" in text and "<title>Your GPU</title>" in text
    assert "Admin</a>" not in text and "Admin</a>" in page_of(hub, "root-admin")[1]
    scripts = re.findall(r"<script[^>]*>", text)
    assert len(scripts) == 5 and all(" src=" in each for each in scripts)


def test_nobody_but_the_service_gets_the_hubs_page_of_somebody(hub: Hub) -> None:
    def status(token: str, user: str = "ada") -> int:
        headers = {"Authorization": f"token {token}"}
        url = f"{hub.url}/hub/api/gpu/frame?user={user}"
        return requests.get(url, headers=headers, timeout=patient(10)).status_code

    assert status("api-token-" * 4) == 200 and status("api-token-" * 4, "nobody") == 404
    assert status(token_of(hub, "root-admin")) == 403
    assert status("api-token-" * 4, "") == 404 and status(hub.token) == 403
    headers = {"Authorization": "token " + "api-token-" * 4}
    assert requests.get(f"{hub.url}/hub/api/gpu/frame", headers=headers, timeout=patient(10)).status_code == 400
    assert "Uncaught exception" not in hub.log() and "Traceback" not in hub.log()
    page = hub.login("ada").get(f"{hub.url}/hub/api/gpu/frame?user=ada", timeout=patient(10))
    assert page.status_code == 403


def test_where_the_service_is_away_the_hub_says_what_that_means_in_every_language(hub: Hub) -> None:
    def said(asked: str) -> str:
        """What the proxy shows, as it asks the hub for it."""
        return requests.get(f"{hub.url}/hub/error/503?url={asked}", timeout=patient(10)).text

    for asked in ("/services/gpu/", "/services/gpu/audit%3Fdays=7", "/services/gpu"):
        text = said(asked)
        assert "The GPU service is not answering" in text and "GPU-palvelu ei vastaa" in text, asked
        assert "Running servers go on, and keep their GPU." in text and "Your server appears to be down" not in text
    for asked in ("/user/ada/", "/services/gpus/", ""):
        assert "Your server appears to be down" in said(asked), asked


def test_where_the_service_is_away_the_hub_answers_programs_in_json(hub: Hub) -> None:
    """Its proxy hands on no ``Accept``: then the address decides."""
    nothing, page, program = "", "text/html,application/json;q=0.9", "application/json"
    for asked, accept, is_json in (
        ("/services/gpu/api/offers%3Fa=1", nothing, True),
        ("/services/gpu/health", nothing, True),
        ("/services/gpu/api/offers", page, False),
        ("/services/gpu/", program, True),
        ("/services/gpu/admin", nothing, False),
        ("/user/ada/api/status", program, False),
    ):
        headers = {"Accept": accept}
        answer = requests.get(f"{hub.url}/hub/error/503?url={asked}", headers=headers, timeout=patient(10))
        kind = answer.headers["Content-Type"].partition(";")[0]
        assert kind == ("application/json" if is_json else "text/html"), (asked, accept)
        if is_json:
            away = {"message": "The GPU service is not answering. Nothing was changed.", "reason": "away"}
            assert answer.json() == {**away, "field": "", "params": {}}


def test_an_admin_gets_the_machine_and_orders_by_its_page_with_a_reason(hub: Hub) -> None:
    """What the hub says about a login has no ``admin`` in it; the service asks with its own token."""
    session, _ = page_of(hub, "root-admin")
    text = session.get(f"{hub.url}/services/gpu/admin", timeout=patient(20)).text
    assert "All GPUs" in text and "Who waits and why" in text

    def answer(**sent: str) -> int:
        url = f"{hub.url}/services/gpu/admin/drain"
        return session.post(url, data={"place": "no-such-card", **sent}, timeout=patient(10)).status_code

    assert answer(why="a new fan") == answer(why="a new fan", _xsrf="2|x|y|1") == 403
    assert answer(why=" ", _xsrf=xsrf_of(text)) == 400 and answer(why="a new fan", _xsrf=xsrf_of(text)) == 409


def test_a_form_needs_the_pages_own_xsrf(hub: Hub) -> None:
    session, text = page_of(hub, "ada")
    url = f"{hub.url}/services/gpu/leave"
    without = session.post(url, data={"ticket": "nothere"}, timeout=patient(10))
    assert without.status_code == 403
    wrong = session.post(url, data={"ticket": "nothere", "_xsrf": "2|x|y|1"}, timeout=patient(10))
    assert wrong.status_code == 403
    right = session.post(url, data={"ticket": "nothere", "_xsrf": xsrf_of(text)}, timeout=patient(10))
    assert right.status_code == 404
    assert "There is no such ticket" in right.text


def test_a_script_reads_with_the_pages_xsrf_and_not_without(hub: Hub) -> None:
    """JupyterHub's own rule: a fetch by script from the same origin (another user's server) is not a visit."""
    session, text = page_of(hub, "ada")
    fetch = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
    for path in ("", "api/offers", "api/tickets"):
        url = f"{hub.url}/services/gpu/{path}"
        assert session.get(url, headers=fetch, timeout=patient(10)).status_code == 403
        answer = session.get(url, headers={**fetch, "X-XSRFToken": xsrf_of(text)}, timeout=patient(10))
        assert answer.status_code == 200, answer.text


def test_a_delete_by_cookie_needs_the_xsrf_too(hub: Hub) -> None:
    session, text = page_of(hub, "ada")
    url = f"{hub.url}/services/gpu/api/tickets/nothere"
    assert session.delete(url, timeout=patient(10)).status_code == 403
    assert session.delete(url, headers={"X-XSRFToken": xsrf_of(text)}, timeout=patient(10)).status_code == 404


def test_a_users_api_token_works_and_one_without_the_scope_does_not(hub: Hub) -> None:
    for scopes, status in ((("access:services!service=gpu",), 200), ((), 200), (("read:users!user=ben",), 403)):
        token = token_of(hub, "ben", *scopes)
        headers = {"Authorization": f"token {token}"}
        answer = requests.get(f"{hub.url}/services/gpu/api/offers", headers=headers, timeout=patient(10))
        assert answer.status_code == status, scopes
    assert requests.get(f"{hub.url}/services/gpu/api/offers", timeout=patient(10)).status_code == 403


def test_a_servers_own_token_is_its_server_and_only_that(hub: Hub) -> None:
    assert hub.spawn("ben", {}, "lab").status_code in (201, 202)
    hub.wait_ready("ben", "lab")
    token = hub.environ("ben", "lab")["JUPYTERHUB_API_TOKEN"]
    headers = {"Authorization": f"Bearer {token}"}
    base = f"{hub.url}/services/gpu"
    # the service does not know the server (a stock spawner started it): known by its token, and no state yet
    known = requests.get(f"{base}/api/server", headers=headers, timeout=patient(10))
    assert known.status_code in (200, 404), known.text
    assert requests.get(f"{base}/api/offers", headers=headers, timeout=patient(10)).status_code == 200
    for path in ("api/tickets", "api/leases", "metrics", "hub/form?user=ben"):
        assert requests.get(f"{base}/{path}", headers=headers, timeout=patient(10)).status_code == 403, path
    hub.stop_server("ben", "lab")


def test_a_ticket_by_api_makes_the_hub_start_that_users_server(hub: Hub) -> None:
    headers = {"Authorization": f"token {token_of(hub, 'ada', ACCESS, 'servers!user=ada')}"}
    body = {"offers": ["mig-1g.5gb"], "server": "by-api"}
    answer = requests.post(f"{hub.url}/services/gpu/api/tickets", json=body, headers=headers, timeout=patient(20))
    assert answer.status_code == 202, answer.text
    until(lambda: hub.server("ada", "by-api"), 20, "the hub starts the server")
    assert (hub.server("ada", "by-api") or {})["user_options"] == {"offers": ["mig-1g.5gb"]}
    hub.wait_ready("ada", "by-api")
    hub.stop_server("ada", "by-api")


def test_a_token_does_no_more_here_than_at_the_hub(hub: Hub) -> None:
    """403 there, so 403 here; an admin's token without an admin's scopes is no admin's."""
    mine, admins = token_of(hub, "ada", ACCESS), token_of(hub, "root-admin", ACCESS)
    headers = {"Authorization": f"token {mine}"}
    there = requests.post(f"{hub.url}/hub/api/users/ada/servers/less", json={}, headers=headers, timeout=patient(20))
    here = requests.post(
        f"{hub.url}/services/gpu/api/tickets",
        json={"offers": ["cpu"], "server": "less"},
        headers=headers,
        timeout=patient(20),
    )
    assert (there.status_code, here.status_code) == (403, 403)
    assert here.json()["reason"] == "scope-needed"
    assert hub.server("ada", "less") is None
    assert statuses(hub, admins) == {"api/tickets": 200, "api/leases": 403, "metrics": 403}
    assert set(health(hub, admins)) == {"ready"}


@pytest.mark.whole
def test_an_admins_token_of_all_rights_is_an_admins(hub: Hub) -> None:
    token = token_of(hub, "root-admin")
    assert statuses(hub, token) == {"api/tickets": 200, "api/leases": 200, "metrics": 200}
    assert "store" in health(hub, token)


@pytest.mark.whole
def test_a_services_token_for_metrics_needs_access_too(hub: Hub) -> None:
    """As docs/admin.md says it: the service "tests" of this hub has both scopes."""
    assert statuses(hub, hub.token)["metrics"] == 200
    assert statuses(hub, token_of(hub, "root-admin", "read:metrics"))["metrics"] == 403


def statuses(hub: Hub, token: str) -> dict[str, int]:
    headers = {"Authorization": f"token {token}"}
    return {
        path: requests.get(f"{hub.url}/services/gpu/{path}", headers=headers, timeout=patient(10)).status_code
        for path in ("api/tickets", "api/leases", "metrics")
    }


def health(hub: Hub, token: str) -> dict[str, object]:
    headers = {"Authorization": f"token {token}"}
    found: dict[str, object] = requests.get(
        f"{hub.url}/services/gpu/health", headers=headers, timeout=patient(10)
    ).json()
    return found


@pytest.mark.whole
def test_no_token_and_no_oauth_code_is_in_the_services_log(hub: Hub) -> None:
    session, _ = page_of(hub, "ada")
    cookie = session.cookies.get("service-gpu", path="/services/gpu/") or ""
    assert cookie
    ours = [line for line in hub.log().splitlines() if line.startswith('{"time"')]
    assert ours
    for line in ours:
        assert "code=" not in line
        assert hub.secret not in line  # type: ignore[attr-defined]
        assert "api-token-api-token" not in line
