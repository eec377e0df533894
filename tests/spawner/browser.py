"""A browser's page on a real hub, for the tests beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

from tests.hubs import Hub
from tests.machine_needs import CHROMIUM_FLAGS
from tests.patience import patient


@contextmanager
def browser_page(
    chromium: str, *, script: bool = True, scheme: str = "light", recorder: str = "", language: str = "en-GB"
) -> Iterator[Page]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        try:
            context = browser.new_context(java_script_enabled=script, color_scheme=scheme, locale=language)
            if recorder:
                context.add_init_script(recorder)
            context.set_default_timeout(patient(30_000))
            yield context.new_page()
        finally:
            browser.close()


def log_in(page: Page, hub: Hub, name: str, then: str = "/hub/spawn") -> None:
    page.goto(f"{hub.url}/hub/login?next={then}")
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", "any")
    page.click("[type=submit]")
    page.wait_for_url(lambda url: "/login" not in url)
