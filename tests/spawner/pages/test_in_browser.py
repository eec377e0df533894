"""The form and the waiting page in a real browser: what moves, what is said, and a hub that is killed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from hub_extensions.core.messages import Ask
from tests.fakes.service import GpuServiceInATest
from tests.hubs import Hub, until
from tests.patience import patient
from tests.spawner.browser import browser_page, leave, log_in
from tests.spawner.real_hub import ours

pytestmark = [pytest.mark.hub, pytest.mark.needs("browser")]
ONE = "mig-1g.5gb"
BIG = "mig-2g.10gb"


@pytest.fixture
def service() -> Iterator[GpuServiceInATest]:
    with GpuServiceInATest({ONE: 1, BIG: 1}) as running:
        yield running


@pytest.fixture
def hub(tmp_path: Path, service: GpuServiceInATest) -> Iterator[Hub]:
    told = (
        'c.GpuSpawnerMixin.gpu_notice_channel_text = "by e-mail"\n'
        'c.GpuSpawnerMixin.gpu_extra_user_options = ["profile"]'
    )
    with Hub(tmp_path / "hub", f"{ours(service)}\n{told}\n") as running:
        running.add_users("ada", "ben", "cem")
        yield running


def fill(hub: Hub, service: GpuServiceInATest, user: str = "ada", offer: str = ONE) -> None:
    """Somebody takes the only one."""
    hub.spawn(user, {"offer": offer})
    hub.wait_ready(user)
    until(lambda: (user, "") not in service.tickets)


def test_from_the_form_into_the_line_and_out_of_it_into_the_server(
    hub: Hub, service: GpuServiceInATest, browser: Browser
) -> None:
    fill(hub, service)
    with browser_page(browser) as page:
        log_in(page, hub, "ben")
        submit = page.locator("#spawn_form [type=submit]")
        assert submit.inner_text() == "Start"
        page.click(f"[data-offer='{ONE}']", position={"x": 300, "y": 40})  # the whole card chooses
        assert submit.inner_text() == "Join the line"
        page.get_by_label("Tell me by e-mail when my GPU is ready").check()
        submit.click()
        page.wait_for_selector("#gpu-waiting")
        assert "You are told by e-mail when it is ready." in page.inner_text("#gpu-close")
        page.wait_for_function("document.title.startsWith('(1) in line')")
        assert page.inner_text("#gpu-headline") == "You are 1st in line for MIG 1g.5gb"
        assert "Why: All 1 are in use" in page.inner_text("#gpu-why")
        page.wait_for_function("document.getElementById('gpu-history').textContent.includes('joined as 1st')")
        expect(page.locator("#gpu-alternatives")).to_have_text("Take MIG 2g.10gb: now", timeout=patient(20_000))
        service.release("ada")
        page.wait_for_url("**/user/ben/**", timeout=patient(20000))
        assert service.told_of(Ask)[-1].options == {"offer": ONE, "notify_when_ready": True}
        hub.stop_server("ben")
        until(lambda: hub.server("ben") is None)
        page.goto(f"{hub.url}/hub/spawn/ben")
        assert page.get_by_label("Tell me by e-mail").is_checked(), "remembered"
    assert service.told_of(Ask)[-1].offers == (ONE,)


@pytest.mark.whole
def test_taking_another_offer_goes_to_the_server_without_another_click(
    hub: Hub, service: GpuServiceInATest, browser: Browser
) -> None:
    fill(hub, service)
    hub.spawn("ben", {"offer": ONE, "profile": 'it\'s "torch"'}, "exam")
    with browser_page(browser) as page:
        log_in(page, hub, "ben", "/hub/spawn-pending/ben/exam")
        page.focus("text=Take MIG 2g.10gb: now")
        service.capacity["mig-3g.20gb"] = 1
        service.release("nobody")
        page.wait_for_selector("text=Take MIG 3g.20gb: now")
        page.keyboard.press("Enter")  # the button that had the focus has it still
        page.wait_for_url("**/user/ben/exam/**", timeout=patient(30000))
    asked = service.told_of(Ask)[-1]
    assert asked.offers == (BIG, ONE) and asked.options["profile"] == 'it\'s "torch"', "its profile stays"
    assert hub.server("ben") is None


@pytest.mark.whole
def test_leaving_the_line_leaves_with_the_right_server(hub: Hub, service: GpuServiceInATest, browser: Browser) -> None:
    """T9."""
    fill(hub, service)
    hub.spawn("ben", {"offer": "cpu"})
    hub.wait_ready("ben")
    hub.spawn("ben", {"offer": ONE}, "exam")
    with browser_page(browser) as page:
        log_in(page, hub, "ben", "/hub/spawn-pending/ben/exam")
        leave(page)
        page.wait_for_url("**/hub/spawn/ben/exam", timeout=patient(20000))
    assert hub.ready("ben")
    until(lambda: ("ben", "exam") not in service.tickets, 10)


@pytest.mark.whole
def test_working_on_cpu_meanwhile_starts_a_named_server_and_keeps_the_place(
    hub: Hub, service: GpuServiceInATest, browser: Browser
) -> None:
    fill(hub, service)
    hub.spawn("ben", {"offer": ONE, "profile": "torch"})
    with browser_page(browser) as page:
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        page.click("#gpu-cpu")
        page.wait_for_selector("text=Open server cpu", timeout=patient(20000))
        hub.wait_ready("ben", "cpu")
        assert service.told_of(Ask)[-1].options == {"profile": "torch", "offer": "cpu"}
        assert ("ben", "") in service.tickets
        assert page.inner_text("#gpu-headline").startswith("You are 1st")


@pytest.mark.whole
def test_the_waiting_page_survives_a_killed_hub_by_itself(
    hub: Hub, service: GpuServiceInATest, browser: Browser
) -> None:
    """T3: no click from the kill to the server."""
    fill(hub, service)
    hub.spawn("ben", {"offer": ONE})
    with browser_page(browser) as page:
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        page.wait_for_function("document.title.startsWith('(1) in line')")
        hub.kill()
        page.wait_for_selector(
            "text=The hub is restarting. Your place is kept. Trying again in 3 s.", timeout=patient(40000)
        )
        hub.start()
        page.wait_for_selector("text=The server comes back in line by itself", timeout=patient(20000))
        hub.spawn("ben", {"offer": ONE})  # as the service does
        page.wait_for_function("document.title.startsWith('(1) in line')", timeout=patient(20000))
        assert page.is_hidden("#gpu-reconnecting")
        service.release("ada")
        page.wait_for_url("**/user/ben/**", timeout=patient(20000))


@pytest.mark.whole
def test_a_hub_that_is_stopped_in_order_loses_no_waiting_page(
    hub: Hub, service: GpuServiceInATest, browser: Browser
) -> None:
    """T4: "Spawn cancelled" at a hub's end is not a person's stop."""
    fill(hub, service)
    hub.spawn("ben", {"offer": ONE})
    with browser_page(browser) as page:
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        page.wait_for_function("document.title.startsWith('(1) in line')")
        hub.terminate()  # it takes ada's server along, and says so to the service
        assert ("ben", "") in service.tickets
        hub.start()
        hub.spawn("ben", {"offer": ONE})
        page.wait_for_url("**/user/ben/**", timeout=patient(30000))


@pytest.mark.whole
def test_a_refusal_says_what_why_and_the_way_back(hub: Hub, service: GpuServiceInATest, browser: Browser) -> None:
    """T5, T8."""
    fill(hub, service)
    hub.spawn("ben", {"offer": ONE})
    with browser_page(browser) as page:
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        page.wait_for_function("document.title.startsWith('(1) in line')")
        service.refuse("ben", "Your group <b>ml</b> may not use it any more.")
        page.wait_for_selector("#gpu-refused:not([hidden])")
        assert page.inner_text("#gpu-refused-text") == "Your group <b>ml</b> may not use it any more."
        page.click("#gpu-back")
        page.wait_for_selector("#gpu-form")


@pytest.mark.whole
def test_the_form_refreshes_its_figures_and_moves_nothing(
    hub: Hub, service: GpuServiceInATest, browser: Browser
) -> None:
    with browser_page(browser) as page:
        log_in(page, hub, "ben")
        page.check(f"input[value='{BIG}']")
        place = page.locator(f"[data-offer='{BIG}']").bounding_box()
        assert "1 of 1 free" in page.inner_text(f"[data-offer='{ONE}'] [data-live=free]")
        fill(hub, service)
        page.wait_for_selector(f"[data-offer='{ONE}'] [data-live=free]:has-text('full')", timeout=patient(25000))
        assert page.is_checked(f"input[value='{BIG}']")
        assert page.locator(f"[data-offer='{BIG}']").bounding_box() == place


@pytest.mark.whole
def test_both_pages_work_without_script(hub: Hub, service: GpuServiceInATest, browser: Browser) -> None:
    fill(hub, service)
    hub.spawn("ben", {"offer": ONE})
    ben = hub.login("ben")
    waiting = ben.get(f"{hub.url}/hub/spawn-pending/ben").text
    assert 'You are <span class="gpu-place">1st</span> in line for MIG 1g.5gb' in waiting
    for page, language in (("home", "ja-JP"), ("spawn-pending/ben", "fi-FI")):
        service.spoken.clear()
        ben.get(f"{hub.url}/hub/{page}", headers={"Accept-Language": language})
        until(lambda language=language: ("ben", language) in service.spoken)  # mails speak it from now on
    cem = hub.login("cem")
    form = cem.get(f"{hub.url}/hub/spawn").text
    assert "</span> full" in form and "1 of 1 free" in form
    cem.post(f"{hub.url}/hub/spawn?_xsrf={cem.headers['X-XSRFToken']}", data={"offer": BIG})
    hub.wait_ready("cem")
