"""A page of a start always leads on: it leaves only for what leads on, whatever hub and proxy do between two looks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.hubs import until
from tests.spawner.browser import browser_page
from tests.spawner.pages.played_hub import PENDING, QUICK, PlayedHub, at_server

pytestmark = pytest.mark.needs("browser")


@pytest.fixture(scope="module")
def browser(browser: Browser) -> Iterator[Page]:
    with browser_page(browser, recorder=QUICK) as page:
        yield page


@pytest.fixture
def hub() -> Iterator[PlayedHub]:
    with PlayedHub() as hub:
        yield hub


def waits(page: Page, hub: PlayedHub) -> None:
    page.goto(hub.url + PENDING)
    page.wait_for_selector("#gpu-headline:has-text('You are 1st in line')")


def gets_ready(hub: PlayedHub) -> None:
    hub.server_ready, hub.pending = True, False


def looked(page: Page, hub: PlayedHub, what: str, times: int = 2) -> None:
    until(lambda: hub.looks.count(what) >= times, rest=lambda seconds: page.wait_for_timeout(1000 * seconds))


@pytest.mark.whole
def test_a_hub_that_ends_between_the_last_look_and_the_leaving_strands_nobody(browser: Page, hub: PlayedHub) -> None:
    """The proxy knows the way to the server without the hub."""
    waits(browser, hub)
    hub.to_script, hub.to_window = "ready", "proxy"
    gets_ready(hub)
    at_server(browser)


@pytest.mark.whole
@pytest.mark.parametrize("restarted", ["none", "kept"])
def test_a_restarted_hub_that_does_not_know_the_ready_server_yet_is_waited_for(
    browser: Page, hub: PlayedHub, restarted: str
) -> None:
    waits(browser, hub)
    hub.to_script = hub.to_window = restarted
    gets_ready(hub)
    looked(browser, hub, restarted)
    hub.to_script = hub.to_window = "ready"
    at_server(browser)


def test_a_server_that_was_ready_at_one_look_and_not_at_the_next_is_waited_for(browser: Page, hub: PlayedHub) -> None:
    waits(browser, hub)
    hub.to_script, hub.to_window = "ready", "none"
    hub.pending = False
    looked(browser, hub, "ready")
    hub.to_script = hub.to_window = "waiting"
    hub.pending = True
    browser.wait_for_selector("#gpu-reconnecting", state="hidden")
    hub.to_script = hub.to_window = "ready"
    gets_ready(hub)
    at_server(browser)


def test_a_failed_start_is_told_on_the_page_itself(browser: Page, hub: PlayedHub) -> None:
    """Loaded anew, the page could be the proxy's."""
    waits(browser, hub)
    hub.to_script, hub.to_window = "failed", "proxy"
    hub.pending = False
    browser.wait_for_selector("#gpu-refused-text:text-is('The disk is <full>.')")


@pytest.mark.whole
def test_who_has_a_place_in_line_never_reads_that_the_server_does_not_run(browser: Page, hub: PlayedHub) -> None:
    """After a restart of the hub, in the seconds before the service has asked for the start again."""
    hub.pending = False
    hub.to_script = hub.to_window = "kept"
    browser.goto(f"{hub.url}/hub/user/ben/lab/tree/x")
    browser.wait_for_selector("#gpu-headline:text-is('Your place in line is kept')")
    browser.wait_for_selector("#gpu-reconnecting:has-text('The server comes back in line by itself')")
    assert browser.locator("#gpu-actions button:visible").count() == 0
    assert "Launch" not in browser.inner_text("body")
    looked(browser, hub, "kept", 6)
    hub.pending = True
    hub.to_script = "waiting"
    browser.wait_for_selector("#gpu-headline:has-text('You are 1st in line')")
    hub.to_script = "ready"
    gets_ready(hub)
    browser.wait_for_url("**/user/ben/lab/tree/x", wait_until="commit")


@pytest.mark.whole
def test_a_place_that_is_not_known_yet_is_told_as_soon_as_it_is(browser: Page, hub: PlayedHub) -> None:
    hub.pending = False
    hub.to_script = hub.to_window = "unknown"
    browser.goto(hub.url + PENDING)
    browser.wait_for_selector("#gpu-reconnecting:has-text('The GPU service is not answering yet')")
    assert "is kept" not in browser.inner_text("body")
    assert browser.is_visible("text=Choose what to start")
    hub.to_script = "none"
    browser.wait_for_selector("#gpu-refused-text:text-is('This server has no place in line.')")


@pytest.mark.whole
def test_a_page_about_a_stopping_server_waits_for_a_hub_that_is_away(browser: Page, hub: PlayedHub) -> None:
    hub.pending = False
    hub.to_window = "stopping"
    browser.goto(hub.url + PENDING)
    hub.to_script = hub.to_window = "proxy"
    looked(browser, hub, "proxy")
    assert browser.is_visible("text=Your server is stopping.")
    hub.to_script = hub.to_window = "none"
    browser.wait_for_selector("text=Server not running")
