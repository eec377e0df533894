"""The admins' pages in a real browser: one card and a thousand, light, dark, wide, 360 px, axe, keyboard, no script.

With ADMIN_PICTURES the pictures of all of them are written into that folder.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from hub_extensions.core.overview.cards import Card, Piece, PieceState
from tests.browser.live_page import axe_source
from tests.fakes.admin_site import a_view, past_uses, served
from tests.fakes.engine import EngineInMemory, an_overview
from tests.fakes.hub_frame import FILES, file_of
from tests.gate.test_portal_in_browser import AXE
from tests.hub_service.http.test_audit_page import row
from tests.machine_needs import CHROMIUM_FLAGS
from tests.patience import patient

pytestmark = [pytest.mark.programs, pytest.mark.whole, pytest.mark.needs("browser")]
KINDS = ("culled", "warned", "drained-card", "stop-ordered", "kept")
WIDE, PHONE = 1280, 360


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    expect.set_options(timeout=patient(10_000))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def engine() -> EngineInMemory:
    engine = EngineInMemory()
    engine.past = past_uses()
    engine.rows = tuple(row(kind, "ada") for kind in KINDS)
    return engine


@pytest.fixture(scope="module")
def url(engine: EngineInMemory) -> Iterator[str]:
    with served(engine) as url:
        yield url


def a_page(browser: Browser, url: str, width: int = WIDE, **more: object) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": 740 if width == PHONE else 900},
        extra_http_headers={"Authorization": "Bearer admin-token"},
        **{"bypass_csp": True, **more},  # type: ignore[arg-type]  # for axe, which is a script
    )
    context.set_default_timeout(patient(30_000))
    context.route(FILES, lambda route: route.fulfill(path=file_of(route.request.url)))
    page = context.new_page()
    page.goto(url)
    return page


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("ADMIN_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.mark.parametrize(("count", "waiting"), [(1, 0), (1000, 500)])
def test_no_page_has_findings_of_axe_or_is_wider_than_the_screen(
    browser: Browser, engine: EngineInMemory, url: str, count: int, waiting: int
) -> None:
    engine.view = a_view(count, waiting, wrong=count > 1)
    for path, name in (("admin", "admin"), ("admin/days", "days"), ("admin/parts", "parts"), ("audit", "audit")):
        if path != "admin" and count > 1:
            continue
        looks = (("light", WIDE), ("dark", PHONE), ("dark", WIDE), ("light", PHONE))
        for scheme, width in looks if os.environ.get("ADMIN_PICTURES") else looks[:2]:
            page = a_page(browser, url + path, width, color_scheme=scheme)
            if path == "admin" and width == PHONE:
                page.get_by_text("Who is on it, and what to do").first.click()
            page.evaluate(axe_source())
            assert page.evaluate(AXE) == [], (path, scheme, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
            picture(page, f"{name}-{count}-{scheme}-{width}")
            page.context.close()
    if count > 1:
        text = page_of(browser, url)
        assert text.count('class="card"') == 20 and text.count('class="person"') == 25
        assert len(gzip.compress(text.encode())) < 25_000


def page_of(browser: Browser, url: str) -> str:
    page = a_page(browser, url + "admin")
    try:
        return page.content()
    finally:
        page.context.close()


def test_by_keyboard_alone_a_card_is_drained_with_a_reason_also_without_script(
    browser: Browser, engine: EngineInMemory, url: str
) -> None:
    engine.view = a_view(1, 0)
    page = a_page(browser, url + "admin", java_script_enabled=False, bypass_csp=False, forced_colors="active")
    card = page.locator("article.card")
    card.get_by_text("Who is on it, and what to do").focus()
    page.keyboard.press("Enter")
    card.get_by_label("Why (the audit keeps it)").last.focus()
    page.keyboard.type("a new fan")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="All GPUs")).to_be_visible()
    assert ("drain", "GPU-0000", "a new fan", "root") in engine.told
    picture(page, "admin-forced-colours")
    page.context.close()


def test_the_page_renews_its_rows_and_leaves_alone_what_somebody_writes(
    browser: Browser, engine: EngineInMemory, url: str
) -> None:
    engine.view = a_view(1, 0)
    page = a_page(browser, url + "admin")
    card = page.locator("article.card")
    card.get_by_text("Who is on it, and what to do").click()
    field = card.get_by_label("Why (the audit keeps it)").last
    field.fill("half a reason")
    engine.view = a_view(1, 3)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#people article")).to_have_count(3)
    expect(field).to_have_value("half a reason")
    waiting: list[Route] = []

    def hang(route: Route) -> None:
        waiting.append(route)  # nobody is answered, and the proxy waits

    page.route("**/admin", hang)
    page.evaluate("{ const later = setTimeout; window.setTimeout = (call, wait) => later(call, wait / 50); }")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#refreshing")).to_contain_text("The service is not answering; trying again.")
    engine.view = a_view(1, 2)
    waiting[0].continue_()  # an answer that comes late counts
    expect(page.locator("#people article")).to_have_count(2)
    expect(page.locator("#refreshing")).to_have_text("")
    page.unroute("**/admin")
    before = page.inner_html("#asof")
    page.locator("#people article").first.hover(position={"x": 4, "y": 4})  # a pointer that rests there uses nothing
    engine.view = a_view(1, 1)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#people article")).to_have_count(1)
    assert page.inner_html("#asof") == before, "what is written stands still, and is as old as it was"
    field.evaluate("field => field.blur()")
    with page.expect_response("**/admin"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.evaluate("new Promise(requestAnimationFrame)")
    expect(field).to_have_value("half a reason")
    field.fill("")
    field.evaluate("field => field.blur()")
    page.evaluate("document.querySelector('#asof').textContent = 'then'")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#asof")).not_to_have_text("then")
    page.context.close()


@pytest.mark.parametrize("scripted", [True, False])
def test_after_an_order_a_receipt_with_undo_stands_above_and_what_was_unfolded_stays_so(
    browser: Browser, engine: EngineInMemory, url: str, scripted: bool
) -> None:
    engine.view = a_view(1, 0)
    page = a_page(browser, url + "admin", java_script_enabled=scripted)
    card = page.locator("article.card")
    card.get_by_text("Who is on it, and what to do").click()
    if scripted:
        page.get_by_text("The whole machine").first.click()
    stop = card.locator("article.holder").first
    stop.get_by_text("Stop or keep").click()
    stop.get_by_label("Why (the audit keeps it)").fill("an exam")
    stop.get_by_role("button", name="Stop").click()
    receipt = page.get_by_role("status").filter(has_text="stops.")
    expect(receipt).to_contain_text("“an exam”")
    expect(stop.get_by_label("Why (the audit keeps it)")).to_be_visible()
    if scripted:
        expect(page.locator("details.whole")).to_have_attribute("open", "")
        engine.view = a_view(1, 3)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator("#people article")).to_have_count(3)
        expect(stop.get_by_label("Why (the audit keeps it)")).to_be_visible()
        page.evaluate(axe_source())
        assert page.evaluate(AXE) == []
    picture(page, f"admin-receipt-{scripted}")
    receipt.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status").filter(has_text="is taken back.")).to_be_visible()
    assert ("undo-stop", "root") in [(each[0], each[-1]) for each in engine.told]
    page.context.close()


def test_a_bar_is_drawn_to_scale_also_as_a_list_on_a_phone(browser: Browser, engine: EngineInMemory, url: str) -> None:
    pieces = tuple(Piece(f"{n}g", 1000 * n // 7, PieceState.FREE) for n in (1, 1, 2, 3))
    engine.view = an_overview(Card("GPU-a", "GPU-a", "", "A100", pieces))
    page = a_page(browser, url + "admin")
    widths = [box["width"] for each in page.locator(".piece").all() if (box := each.bounding_box())]
    assert [round(width / widths[0], 1) for width in widths] == [1, 1, 2, 3]
    picture(page, "admin-scale")
    page.context.close()
    page = a_page(browser, url + "admin", PHONE)
    boxes = [box for each in page.locator(".piece").all() if (box := each.bounding_box())]
    assert len({box["width"] for box in boxes}) == 1 and len({box["y"] for box in boxes}) == 4
    assert [round(box["height"] / boxes[0]["height"], 1) for box in boxes] == [1, 1, 2, 3]
    picture(page, "admin-scale-phone")
    page.context.close()
