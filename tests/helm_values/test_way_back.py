"""To us and back: an upgrade from a stock release, ``helm rollback`` with people in line, and the next upgrade.

A rollback is the hub's pod with the values of before; what users' pods, the proxy and the cluster do meanwhile is real
here, as in ``test_rendered.py``. The stock hub is the chart's own, with a profile that asks for a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import requests
from playwright.sync_api import expect

from tests.cluster.played_nodes import PlayedNodes
from tests.helm_values.conftest import Released
from tests.helm_values.release import Release
from tests.helm_values.rendering import OVERLAYS, Values, read
from tests.helm_values.test_rendered import FOUND, choose
from tests.hubs import until
from tests.loop.place import Person, browsers
from tests.patience import patient

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(300), pytest.mark.hub]

SMALL = "mig-1g.5gb"
QUEUE_WAS_OFF = "This hub ran without its line for GPUs for a while"
STOCK: Values = {
    "singleuser": {
        "profileList": [
            {"display_name": "No GPU", "slug": "none", "default": True},
            {
                "display_name": "A small GPU",
                "slug": "small",
                "kubespawner_override": {"extra_resource_limits": {f"nvidia.com/{SMALL}": "1"}},
            },
        ]
    }
}
TWO = {"nvidia.com/gpu": 0, f"nvidia.com/{SMALL}": 2}


def on(in_pod: str, apart: str) -> pytest.MarkDecorator:
    """The service in both places, each on the generation of the hub that is named."""
    places = ((False, "in the hub's pod", in_pod), (True, "apart", apart))
    return pytest.mark.parametrize(
        "apart", [pytest.param(value, id=name, marks=pytest.mark.hub(hub)) for value, name, hub in places]
    )


def ours(apart: bool = False) -> list[dict[str, Any]]:
    files = ["gpu.yaml", "mig.yaml", *(["service-deployment.yaml"] if apart else [])]
    return read(*(OVERLAYS / file for file in files))


def stock_start(release: Release, session: requests.Session, user: str, profile: str) -> None:
    """Choose a profile on KubeSpawner's own form."""
    address = f"{release.hub.url}/hub/spawn/{user}"
    form = session.get(address, timeout=patient(20))
    assert "A small GPU" in form.text and 'name="offer"' not in form.text, form.text
    xsrf = session.cookies.get("_xsrf", path="/hub/") or ""
    assert session.post(address, data={"profile": profile, "_xsrf": xsrf}, timeout=patient(30)).ok
    release.hub.wait_ready(user, seconds=60)


def answers(release: Release, user: str) -> bool:
    """The server is behind the proxy."""
    answer = requests.get(f"{release.hub.url}/user/{user}/", timeout=patient(10))
    return "played" in answer.text


def uids(release: Release) -> dict[str, str]:
    return {user: pod["metadata"]["uid"] for user, pod in release.pods().items()}


def gpu_users(release: Release) -> set[str]:
    return {user for user in release.pods() if release.limits(user)}


@on(in_pod="6.1", apart="5.5")
def test_from_stock_to_us_and_back_and_to_us_again(apart: bool, released: Released, played_nodes: PlayedNodes):
    with played_nodes.node("back", TWO, labels=FOUND["lab-a100-40gb"].labels):
        release = released(f"back-{'apart' if apart else 'in-hub'}", apart=apart)
        hub = release.hub
        release.install(STOCK)
        hub.add_users("ada", "ben", "cem", "dora")
        people = {user: hub.login(user) for user in ("ada", "ben", "cem", "dora")}
        stock_start(release, people["ada"], "ada", "small")
        assert gpu_users(release) == {"ada"}
        before = uids(release)

        print("helm upgrade: our files after the stock ones")
        release.upgrade(STOCK, *ours(apart))
        assert uids(release) == before and hub.ready("ada") and answers(release, "ada")
        release.until_offered(SMALL, 1)
        until(lambda: "ada" in release.leases(), 40, lambda: f"{release.leases()}")
        print(f"ada's server goes on and is counted: {release.leases()}, {SMALL} 1 free of 2")

        choose(release, people["ben"], "ben", SMALL)
        hub.wait_ready("ben", seconds=60)
        for waiter in ("cem", "dora"):
            choose(release, people[waiter], waiter, SMALL)
        until(lambda: release.waiting() == ["cem", "dora"], 30, lambda: f"{release.line()}")
        page = people["cem"].get(f"{hub.url}/hub/spawn-pending/cem", timeout=patient(10))
        assert 'You are <span class="gpu-place">1st</span> in line' in page.text
        running = uids(release)
        assert set(running) == {"ada", "ben"}

        print("helm rollback: the stock values again, two in line")
        release.upgrade(STOCK)
        assert uids(release) == running, "nobody's pod has changed, and no waiter has one"
        for user in ("ada", "ben"):
            assert hub.ready(user) and answers(release, user)
        for waiter in ("cem", "dora"):
            assert hub.server(waiter) is None, "no pending server"
            page = people[waiter].get(f"{hub.url}/hub/spawn-pending/{waiter}", timeout=patient(10))
            assert "gpu-waiting" not in page.text and f"/hub/spawn/{waiter}" in page.text, page.text
            form = people[waiter].get(f"{hub.url}/hub/spawn/{waiter}", timeout=patient(10))
            assert "A small GPU" in form.text and 'name="offer"' not in form.text
        stock_start(release, people["dora"], "dora", "none")
        assert uids(release).items() >= running.items()

        print("helm upgrade once more")
        release.upgrade(STOCK, *ours(apart))
        until(lambda: release.line() == [], 40, lambda: f"{release.line()}")
        form = people["cem"].get(f"{hub.url}/hub/spawn/cem", timeout=patient(10))
        assert QUEUE_WAS_OFF in form.text
        assert hub.server("cem") is None and "cem" not in release.pods()
        assert uids(release).items() >= running.items()
        until(lambda: set(release.leases()) == {"ada", "ben"}, 40, lambda: f"{release.leases()}")
        for user in ("ada", "ben", "dora"):
            assert hub.ready(user) and answers(release, user)
        release.until_offered(SMALL, 0)
        print(f"the old line is ended in words; {release.leases()}")


@on(in_pod="5.5", apart="6.1")
def test_a_new_service_keeps_the_line_and_who_has_what(apart: bool, released: Released, played_nodes: PlayedNodes):
    with played_nodes.node("service", TWO, labels=FOUND["lab-a100-40gb"].labels):
        release = released(f"service-{'apart' if apart else 'in-hub'}", apart=apart)
        hub = release.hub
        release.install(*ours(apart))
        people = ("ada", "ben", "cem", "dora")
        hub.add_users(*people)
        release.until_offered(SMALL, 2)
        for user in people:
            choose(release, hub.login(user), user, SMALL)
            if user in ("ada", "ben"):
                hub.wait_ready(user, seconds=60)
        until(lambda: release.waiting() == ["cem", "dora"], 30, lambda: f"{release.line()}")
        leases, running = release.leases(), uids(release)

        release.end_service()
        if apart:
            release.start_service()
        release.wait_service()
        assert (release.leases(), release.waiting()) == (leases, ["cem", "dora"])
        assert uids(release) == running and hub.pending("cem") == hub.pending("dora") == "spawn"

        hub.stop_server("ada")
        hub.wait_ready("cem", seconds=60)
        assert release.waiting() == ["dora"]

        print("a new hub with the same values: the line is kept as well")
        release.upgrade(*ours(apart))
        until(lambda: release.waiting() == ["dora"] and hub.pending("dora") == "spawn", 60, lambda: f"{release.line()}")
        assert set(release.leases()) == {"ben", "cem"} and "dora" not in release.pods()


@pytest.mark.hub("5.5")  # as the chart's
@pytest.mark.needs("browser")
def test_a_waiting_page_that_is_open_leads_to_the_stock_form(
    released: Released, played_nodes: PlayedNodes, chromium_path: str
):
    one = {"nvidia.com/gpu": 0, f"nvidia.com/{SMALL}": 1}
    with (
        played_nodes.node("page", one, labels=FOUND["lab-a100-40gb"].labels),
        browsers(chromium_path) as browser,
    ):
        release = released("waiting-page")
        release.install(STOCK, *ours())
        release.hub.add_users("ada", "ben")
        release.until_offered(SMALL, 1)
        choose(release, release.hub.login("ada"), "ada", SMALL)
        release.hub.wait_ready("ada", seconds=60)
        ben = Person(browser, release.hub.url, "ben")
        ben.take(SMALL)
        ben.waits("1st")
        release.upgrade(STOCK)
        expect(ben.page.locator("#gpu-refused-text")).to_contain_text(
            "without its line for GPUs", timeout=patient(60_000)
        )
        ben.page.click("#gpu-back")
        expect(ben.page.locator("#spawn_form")).to_contain_text("A small GPU")
        expect(ben.page.locator('input[name="offer"]')).to_have_count(0)
        release.upgrade(STOCK, *ours())

        def the_form_says_so() -> bool:
            ben.form()
            return ben.page.locator(".gpu-notice").filter(has_text=QUEUE_WAS_OFF).count() > 0

        until(the_form_says_so, 60, "said once the service has compared its line with the hub")
        ben.leave()


def test_what_ran_under_us_is_reached_without_us_and_ends_as_any_other(released: Released, played_nodes: PlayedNodes):
    with played_nodes.node("without", TWO, labels=FOUND["lab-a100-40gb"].labels):
        release = released("without-us")
        hub = release.hub
        release.install(STOCK, *ours())
        hub.add_users("ada", "ben")
        session = hub.login("ada")
        release.until_offered(SMALL, 2)
        choose(release, session, "ada", SMALL)
        hub.wait_ready("ada", seconds=60)
        release.upgrade(STOCK)
        assert hub.ready("ada") and answers(release, "ada")
        page = session.get(f"{hub.url}/services/gpu/", timeout=patient(10))
        assert page.status_code == 404, page.text
        assert hub.stop_server("ada").status_code in (202, 204)
        until(lambda: not release.pods(), 30, lambda: f"{release.pods()}")
        stock_start(release, session, "ada", "small")
        assert gpu_users(release) == {"ada"}
