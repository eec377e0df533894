"""The portal in a real browser, as three people: what each sees, 320 px, dark, the keyboard, axe, and no script at all;
and where a browser is led after a sign-in.

With PORTAL_PICTURES the pictures of the docs are written into that folder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from hub_extensions.core.messages import FormState, TicketInfo, Wait
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.sign_on.apps import App
from hub_extensions.core.sign_on.portal import AppHealth
from hub_extensions.core.sign_on.return_address import return_address
from hub_extensions.core.text.reasons import Reason
from tests.authenticator.openid.test_redirects import VECTORS
from tests.browser.live_page import axe_source
from tests.core.sign_on.test_return_address import BELOW, OF_APPS
from tests.fakes.panel_service import a_state
from tests.fakes.portal_lab import PortalLab, Somebody
from tests.fakes.service import an_offer
from tests.machine_needs import CHROMIUM_FLAGS
from tests.patience import patient

pytestmark = [pytest.mark.programs, pytest.mark.whole, pytest.mark.needs("browser")]
NOW = datetime.now(timezone.utc)
AXE = """() => axe.run({resultTypes: ['violations']}).then(
  found => found.violations.map(each => `${each.id}: ${each.nodes.map(node => node.html).join(' ')}`))"""


def an_app(name: str, title: str, icon: str = "") -> App:
    return App(name, title, f"/app/{name}/", "http://127.0.0.1:1", icon=icon, health="/")


def people() -> dict[str, Somebody]:
    likely = Wait(False, 1500, 2400, 4200, 7800, None, NOW)
    offers = (
        an_offer("mig-1g.5gb", free=2, total=5, title="Small GPU", wait=Wait(True, 0, 0, 0, 0, None)),
        an_offer("mig-2g.10gb", free=0, total=1, title="Medium GPU", wait=likely, waiting=2),
    )
    reason = Reason("full", "The one 2g.10gb is in use; 1 person is ahead of you.")
    ticket = TicketInfo("t", "ada", "thesis", "waiting", (OfferId("mig-2g.10gb"),), 2, NOW, reason, "")
    server = a_state(title="Small GPU", ends_at=NOW + timedelta(hours=7))
    apps = (an_app("mlflow", "MLflow"), an_app("tensorboard", "TensorBoard"), an_app("dask", "Dask dashboard"))
    return {
        "ada": Somebody("ada", apps, (server,), FormState(offers, False, NOW, "", ()), (ticket,)),
        "ben": Somebody("ben", (an_app("prometheus", "Prometheus"),), (), FormState((), False, NOW, "", ())),
        "cem": Somebody("cem", (), (), FormState((), False, NOW, "", ())),
    }


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    expect.set_options(timeout=patient(10_000))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def lab() -> Iterator[PortalLab]:
    lab = PortalLab(people())
    now = datetime.now(timezone.utc)
    asked = now + timedelta(hours=1)  # known as long as the test lasts
    down = AppHealth("down", now - timedelta(days=3, minutes=30), asked)
    up = AppHealth("up", None, asked)
    lab.health.states = {"mlflow": up, "tensorboard": down, "dask": up, "prometheus": up}
    yield lab
    lab.close()


def a_page(
    browser: Browser, lab: PortalLab, who: str, scheme: str = "light", width: int = 1000, **more: object
) -> Page:
    context = browser.new_context(
        color_scheme=scheme,  # type: ignore[arg-type]
        viewport={"width": width, "height": 800},
        **{"bypass_csp": True, **more},  # type: ignore[arg-type]  # for axe, which is a script
    )
    context.set_default_timeout(patient(30_000))
    context.add_cookies([{"name": "who", "value": who, "url": lab.url}])
    page = context.new_page()
    page.goto(lab.url)
    return page


def findings(page: Page) -> list[str]:
    page.evaluate(axe_source())
    found: list[str] = page.evaluate(AXE)
    return found


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("PORTAL_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def test_three_people_each_see_their_own_apps_and_an_app_that_is_down_says_so(browser: Browser, lab: PortalLab) -> None:
    ada, ben = a_page(browser, lab, "ada"), a_page(browser, lab, "ben", "dark")
    apps = ada.get_by_role("region", name="Apps").get_by_role("link")
    expect(apps).to_have_text(["DDask dashboard ● up", "MMLflow ● up", "TTensorBoard ○ down for 3 d"])
    for drawn, count in ((".disc", 2), (".ring", 1)):
        expect(ada.locator(f"#apps {drawn}")).to_have_count(count)
        assert ada.locator(f"#apps {drawn}").first.evaluate("it => getComputedStyle(it).fontSize") == "0px", "no glyph"
    expect(ada.get_by_role("link", name="TensorBoard down for 3 d", exact=True)).to_be_visible()
    expect(ben.get_by_role("region", name="Apps").get_by_role("link")).to_have_count(1)
    assert "MLflow" not in ben.content()
    cem = a_page(browser, lab, "cem")
    expect(cem.get_by_text("There is no app that you may open.")).to_be_visible()
    assert not {"MLflow", "Prometheus"} & set(cem.content().split())
    expect(cem.get_by_role("heading", name="Waits now")).to_have_count(0)
    picture(ada, "portal-light")
    picture(cem, "portal-without-apps")
    wrong = findings(ada) + findings(ben) + findings(cem)
    dark = a_page(browser, lab, "ada", "dark")
    picture(dark, "portal-dark")
    wrong += findings(dark)
    forced = a_page(browser, lab, "ada", forced_colors="active")
    picture(forced, "portal-forced-colours")
    assert wrong + findings(forced) == []


def test_on_a_phone_nothing_is_cut_off_and_all_is_reached_by_the_keyboard(browser: Browser, lab: PortalLab) -> None:
    page = a_page(browser, lab, "ada", width=320)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    picture(page, "portal-phone")
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.innerText.split('\\n')[0]"))
    assert reached[:3] == ["JupyterHub home", "Sessions", "Sign out"]
    assert {"Default server", "2nd in line"} <= set(reached) and len(set(reached)) >= 8
    assert findings(page) == []


def test_without_script_an_app_opens_and_a_sign_out_leads_on_to_the_hub(browser: Browser, lab: PortalLab) -> None:
    page = a_page(browser, lab, "ada", java_script_enabled=False, bypass_csp=False)
    page.get_by_role("link", name="MLflow").click()
    page.wait_for_url("**/app/mlflow/")
    page.go_back()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/hub/logout")
    assert lab.signed_out == 1
    page.goto(lab.url)
    page.wait_for_url("**/_gate/start?next=%2F")


def test_while_the_hub_is_away_the_page_says_so_and_comes_back(browser: Browser, lab: PortalLab) -> None:
    lab.gate.away_since = NOW
    page = a_page(browser, lab, "ada")
    expect(page.get_by_role("alert")).to_contain_text("The hub is not answering")
    picture(page, "portal-hub-away")
    assert findings(page) == []
    lab.gate.away_since = None
    page.get_by_role("link", name="Try again").click()
    expect(page.get_by_role("link", name="MLflow")).to_be_visible()


class LeadsBack(BaseHTTPRequestHandler):
    """After a sign-in before MLflow, to where its number among `WANTED` says."""

    def do_GET(self) -> None:
        number = self.path.partition("/to?")[2]
        self.send_response(302 if number else 200)
        if number:
            mlflow = App("mlflow", "MLflow", f"http://{self.headers['Host']}/mlflow/", "http://10.0.0.7:5000")
            self.send_header("Location", return_address(mlflow, WANTED[int(number)]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


WANTED = [*OF_APPS, *BELOW[:: len(BELOW) // 50], *VECTORS[:: len(VECTORS) // 50]]


def test_where_a_sign_in_leads_a_real_browser_stays_with_the_app(browser: Browser) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), LeadsBack)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    front = f"http://127.0.0.1:{server.server_port}/mlflow/"
    page = browser.new_page()
    page.goto(front)
    led = page.evaluate(
        "n => Promise.all([...Array(n).keys()].map(i => fetch('/to?' + i).then(got => got.url, String)))", len(WANTED)
    )
    page.close()
    server.shutdown()
    server.server_close()
    away = [(wanted, got) for wanted, got in zip(WANTED, led, strict=True) if not got.startswith(front)]
    print(f"{len(led)} ways back tried in a browser, {len(away)} led elsewhere")
    assert (len(led) > 100, away) == (True, [])
