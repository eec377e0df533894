"""A browser's page on a real hub, for the tests beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page

from tests.hubs import Hub
from tests.patience import patient


@contextmanager
def browser_page(
    browser: Browser, *, script: bool = True, recorder: str = "", language: str = "en-GB"
) -> Iterator[Page]:
    """A page of a profile of its own."""
    context = browser.new_context(java_script_enabled=script, locale=language)
    try:
        if recorder:
            context.add_init_script(recorder)
        context.set_default_timeout(patient(30_000))
        yield context.new_page()
    finally:
        context.close()


def log_in(page: Page, hub: Hub, name: str, then: str = "/hub/spawn") -> None:
    page.goto(f"{hub.url}/hub/login?next={then}")
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", "any")
    page.click("[type=submit]")
    page.wait_for_url(lambda url: "/login" not in url)


def leave(page: Page) -> None:
    """Leave the line, or cancel a start: the page asks."""
    page.click("#gpu-leave-words")
    page.click("#gpu-leave")
