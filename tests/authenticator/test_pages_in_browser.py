"""The pages about sessions in a real browser: what they say, the keyboard, axe in light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.authenticator.signed_hub import sessions
from tests.browser.live_page import axe_source
from tests.hubs import Hub
from tests.machine_needs import CHROMIUM_FLAGS
from tests.patience import patient
from tests.spawner.browser import log_in

pytestmark = [pytest.mark.hub, pytest.mark.whole, pytest.mark.needs("browser")]
AXE = """() => axe.run(['main', 'a[href$="sso/sessions"]'], {resultTypes: ['violations']}).then(
  found => found.violations.map(each => `${each.id}: ${each.nodes.map(node => node.html).join(' ')}`))"""


@pytest.fixture
def browser(chromium_path: str) -> Iterator[Browser]:
    expect.set_options(timeout=patient(10_000))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


def a_page(browser: Browser, scheme: str = "light") -> Page:
    """Of a browser of its own: its cookies are nobody else's."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1000, "height": 800})  # type: ignore[arg-type]
    context.set_default_timeout(patient(30_000))
    return context.new_page()


def findings(page: Page) -> list[str]:
    """What axe finds on a page of ours, and in our line of the hub's menu."""
    page.evaluate(axe_source())
    found: list[str] = page.evaluate(AXE)
    return found


def test_both_pages_show_end_and_tell_and_have_no_findings_of_axe(tmp_path: Path, browser: Browser) -> None:
    with Hub(tmp_path / "hub", sessions()) as hub:
        light, dark, admin = a_page(browser), a_page(browser, "dark"), a_page(browser, "dark")
        log_in(light, hub, "ada", "/hub/home")
        log_in(dark, hub, "ada", "/hub/home")
        wrong: list[str] = []
        # from the hub's menu to the page
        light.get_by_role("link", name="Sessions", exact=True).click()
        dark.goto(f"{hub.url}/hub/sso/sessions")
        expect(light.get_by_role("heading", name="Where you are signed in")).to_be_visible()
        rows = light.get_by_role("row")
        expect(rows).to_have_count(3)
        expect(rows.filter(has_text="(this one)")).to_have_count(1)
        expect(rows.nth(1)).to_contain_text("Chrome on Linux")
        expect(rows.nth(1)).to_contain_text("127.0.0.0/24")
        assert "UTC" not in rows.nth(1).inner_text(), "times are the reader's"
        wrong += findings(light) + findings(dark)
        # the other one ends by the keyboard, and is told by whom
        end = light.get_by_role("button", name="End the session of Chrome on Linux")
        end.focus()
        light.keyboard.press("Enter")
        expect(light.get_by_role("status")).to_have_text("One session was ended.")
        expect(light.get_by_role("row")).to_have_count(2)
        dark.reload()
        expect(dark.get_by_role("heading", name="Your session ended")).to_be_visible()
        expect(dark.get_by_text("You ended this session from another browser.")).to_be_visible()
        wrong += findings(dark)
        dark.get_by_role("link", name="Sign in again").click()
        dark.fill("input[name=username]", "ada")
        dark.fill("input[name=password]", "any")
        dark.click("[type=submit]")
        dark.wait_for_url("**/hub/sso/sessions")
        # an admin
        log_in(admin, hub, "root-admin", "/hub/sso/admin")
        admin.get_by_role("textbox", name="Name").fill("AD")
        admin.get_by_role("button", name="Search").click()
        expect(admin.get_by_role("heading", level=2)).to_have_text(["ada", "root-admin", "What happened lately"])
        wrong += findings(admin)
        admin.get_by_role("button", name="End everywhere: ada").click()
        expect(admin.get_by_role("status")).to_contain_text("Ended for ada in")
        expect(admin.get_by_role("status")).to_contain_text("2 sessions")
        expect(admin.get_by_role("row").nth(1)).to_contain_text("by-admin")
        wrong += findings(admin)
        for page in (light, dark):
            page.goto(f"{hub.url}/hub/home")
            expect(page.get_by_text("An admin ended this session.")).to_be_visible()
        assert wrong == []
