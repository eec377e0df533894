"""One's own page in a browser, in the hub's real frame: axe, width, keyboard, colours, the policy; every state of it.

No hub runs: its page is made of its own templates, and its style and scripts come from its files. Pictures are taken
where ``PANEL_PICTURES`` names a folder for them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from jinja2 import Environment, FileSystemLoader
from playwright.async_api import Browser, Page, async_playwright

from hub_extensions.adapters.files.catalogues import catalogues
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.text.translation import ENGLISH
from hub_extensions.spawner.pages.away import AwayAnswer
from hub_extensions.spawner.pages.spawn_form import TEMPLATES
from tests.browser.live_page import axe_source
from tests.fakes.engine import NOW as STARTS_NOW
from tests.fakes.engine import offer
from tests.fakes.hub_frame import FILES, HUB_FILES, file_of, frame
from tests.fakes.reasons import because
from tests.hub_service.conftest import SECRET, Running
from tests.machine_needs import CHROMIUM_FLAGS
from tests.patience import patient

pytestmark = [pytest.mark.whole, pytest.mark.needs("browser")]

PICTURES = os.environ.get("PANEL_PICTURES", "")
WINDOWS = (("light", 1280), ("dark", 360)) + ((("light", 360), ("dark", 1280)) if PICTURES else ())
AXE = """() => axe.run(['main'], {resultTypes: ['violations']}).then(found => found.violations.flatMap(
  rule => rule.nodes.map(node => `${rule.id}: ${node.failureSummary} in ${node.html}`)))"""
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def away() -> str:
    """What the hub shows where the service does not answer."""
    environment = Environment(loader=FileSystemLoader([TEMPLATES, HUB_FILES / "templates"]), autoescape=True)
    return environment.get_template("503.html").render(
        base_url="/jh/hub/", user=None, gpu_away=lambda static_url: AwayAnswer((ENGLISH, *catalogues().values())),
        static_url=lambda path, include_version=True: f"/jh/hub/static/{path}",
    )  # fmt: skip


def use(end: str, hours: float) -> UsageRecord:
    ended = datetime.now(timezone.utc) - timedelta(hours=hours)
    made = UsageRecord("l1", "ada", "", OfferId("mig-1g.5gb"), "mig-1g.5gb", 143, ended, end)
    return replace(made, ready=ended - timedelta(minutes=74), ran_seconds=4440.0, mean_use_percent=62.0)


async def nothing(service: Running) -> None:
    service.engine.uses = ()


async def ended(service: Running) -> None:
    ends = ("idle", "user", "lifetime", "failed", "signed-out")
    service.engine.uses = tuple(use(ends[number % 5], 1 + 20 * number) for number in range(12))


async def waiting(service: Running) -> None:
    await service.ask("POST", "hub/tickets", SECRET, {"user": "ada", "server": "", "offers": ["mig-2g.10gb"]})


async def starting(service: Running) -> None:
    service.engine.admit("t1")


async def running(service: Running) -> None:
    service.engine.queue.clear()
    stops = datetime.now(timezone.utc) + timedelta(minutes=8)
    service.engine.run_server("ada", "")
    known = service.engine.servers[("ada", "")]
    assert known.countdown is not None
    counted = replace(known.countdown, stops_at=stops, reason=because("Idle for 22 min."))
    service.engine.servers[("ada", "")] = replace(known, countdown=counted, ends_at=stops + timedelta(hours=5))


async def not_known(service: Running) -> None:
    service.engine.servers.clear()
    service.engine.offers = tuple(replace(each, free=None, total=None) for each in service.engine.offers)


STATES = (nothing, ended, waiting, starting, running, not_known)


@pytest.fixture
async def browser(chromium_path: str) -> AsyncIterator[Browser]:
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        yield browser
        await browser.close()


async def opened(browser: Browser, service: Running, width: int, scheme: str, blamed: list[str]) -> Page:
    context = await browser.new_context(
        viewport={"width": width, "height": 760},
        color_scheme=scheme,  # type: ignore[arg-type]
        extra_http_headers={"Authorization": "Bearer ada-token"},
    )
    context.set_default_timeout(patient(20_000))
    await context.route(FILES, lambda route: route.fulfill(path=file_of(route.request.url)))
    page = await context.new_page()
    page.on("console", lambda line: blamed.append(line.text) if "Content Security Policy" in line.text else None)
    await page.goto(service.url)
    return page


async def findings(page: Page, state: str) -> list[str]:
    """What axe finds. It tries styles of its own, which the policy forbids as it should."""
    await page.evaluate(axe_source())
    found: list[str] = await page.evaluate(AXE)
    return [f"{state}: {each}" for each in found]


async def too_wide(page: Page, state: str) -> list[str]:
    """Whether it is wider than the window."""
    wider = await page.evaluate(WIDER)
    return [f"{state}: {wider} px too wide"] if wider > 0 else []


async def picture(page: Page, name: str) -> None:
    if PICTURES:
        await page.screenshot(path=f"{PICTURES}/own-{name}.png", full_page=True)


@pytest.mark.timeout(600)
async def test_every_state_of_ones_own_page_can_be_read_in_light_and_dark_and_on_a_phone(
    service: Running, browser: Browser
) -> None:
    service.hub.frame = frame()
    service.engine.offers = (
        *service.engine.offers[:3],
        replace(offer("gpu", "Whole GPU", 1, STARTS_NOW), simulated=False),
        service.engine.offers[3],
    )
    blamed: list[str] = []
    found: list[str] = []
    pages = {f"{scheme}-{width}": await opened(browser, service, width, scheme, blamed) for scheme, width in WINDOWS}
    light = pages["light-1280"]
    # the hub's own theme button works
    before = await light.evaluate("document.documentElement.dataset.bsTheme")
    await light.evaluate("document.getElementById('dark-theme-toggle').click()")
    assert {before, await light.evaluate("document.documentElement.dataset.bsTheme")} == {"light", "dark"}
    await light.evaluate("document.getElementById('dark-theme-toggle').click()")
    # by keyboard: from the heading on, Tab leads to the first offer's Start, which names it
    await light.evaluate("document.querySelector('#offers h2').setAttribute('tabindex', '-1')")
    await light.focus("#offers h2")
    await light.keyboard.press("Tab")
    focused = await light.evaluate("document.activeElement.textContent")
    assert focused.startswith(("Join the line: MIG 2g.10gb", "Start: MIG 2g.10gb")), focused
    assert blamed == []
    for state in STATES:
        await state(service)
        for name, page in pages.items():
            await page.reload()
            found += await too_wide(page, f"{state.__name__}-{name}")
            await picture(page, f"{state.__name__}-{name}")
            if state in (ended, running):
                found += await findings(page, f"{state.__name__}-{name}")
    for name, page in pages.items():
        await page.goto(f"{service.url}help")
        found += await too_wide(page, f"help-{name}")
        found += await findings(page, f"help-{name}")
        await picture(page, f"help-{name}")
        await page.go_back()
    await light.emulate_media(forced_colors="active")
    found += await findings(light, "forced colours")
    await picture(light, "forced")
    await light.emulate_media(forced_colors="none")
    await light.set_viewport_size({"width": 640, "height": 380})  # a window of 1280 at 200 %
    found += await too_wide(light, "200 %")
    assert found == []


async def test_where_the_service_is_away_the_browsers_language_is_spoken_and_english_without_script(
    browser: Browser,
) -> None:
    for language, script, heading in (
        ("fi-FI", True, "GPU-palvelu ei vastaa"),
        ("fi-FI", False, "The GPU service is not answering"),
        ("sv-SE", True, "The GPU service is not answering"),
    ):
        context = await browser.new_context(locale=language, java_script_enabled=script)
        page = await context.new_page()
        await page.set_content(away(), wait_until="commit")
        await page.get_by_role("heading", level=1).wait_for()
        assert await page.get_by_role("heading", level=1).all_inner_texts() == [heading]
        await context.close()
