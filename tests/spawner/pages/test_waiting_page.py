"""The waiting page in a real browser: what it says where it could be misread, its buttons, and its notification."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route

from hub_extensions.core.messages import Ended
from tests.fakes.service import GpuServiceInATest
from tests.hubs import Hub, until
from tests.patience import patient
from tests.spawner.browser import browser_page, leave, log_in
from tests.spawner.real_hub import ours

pytestmark = [pytest.mark.hub, pytest.mark.needs("browser")]
ONE = "mig-1g.5gb"
BIG = "mig-2g.10gb"
FULL = "The GPU service cannot write its records now: its disk is full."
EXAM_IS_SLOW = """
c.Spawner.environment = {"FAKE_SINGLEUSER_SLOW": lambda spawner: "60" if spawner.name == "exam" else "0"}
"""
BEN_IS_SLOW = """
c.Spawner.environment = {"FAKE_SINGLEUSER_SLOW": lambda spawner: "60" if spawner.user.name == "ben" else "0"}
c.Spawner.http_timeout = 6
"""
RECORDER = """
window.Notification = class {
  constructor(title, more) { window.shown(title + ": " + more.body); }
  static get permission() { return sessionStorage.getItem("permission") || "default"; }
  static requestPermission() {
    window.shown("may I?");
    sessionStorage.setItem("permission", "%s");
    return Promise.resolve("%s");
  }
};
"""


@pytest.fixture
def service() -> Iterator[GpuServiceInATest]:
    with GpuServiceInATest({ONE: 1, BIG: 1}) as running:
        running.simulated = True
        yield running


@contextmanager
def hub_with_ada(tmp_path: Path, service: GpuServiceInATest, more: str = "") -> Iterator[Hub]:
    """Ada has the only small one."""
    with Hub(tmp_path / "hub", ours(service, more)) as hub:
        hub.add_users("ada", "ben", "cem")
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        until(lambda: not service.tickets)
        yield hub


@pytest.mark.whole
@pytest.mark.hub("6.1")
def test_who_agreed_is_notified_when_the_server_starts(
    tmp_path: Path, service: GpuServiceInATest, browser: Browser
) -> None:
    shown: list[str] = []
    recorder = RECORDER.replace("%s", "granted")
    with hub_with_ada(tmp_path, service) as hub, browser_page(browser, recorder=recorder) as page:
        page.expose_function("shown", lambda text: shown.append(text))  # noqa: PLW0108  playwright needs a function of Python
        hub.spawn("ben", {"offer": ONE})
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        page.wait_for_selector("#gpu-notify-line:not([hidden])")
        assert "this page has to stay open" in page.inner_text("#gpu-notify-line")
        assert shown == []
        page.check("#gpu-notify")
        service.release("ada")
        page.wait_for_url("**/user/ben/**", timeout=patient(20000))
    assert shown[:2] == ["may I?", "JupyterHub: Your server is starting: MIG 1g.5gb."]


@pytest.mark.hub("6.1")
@pytest.mark.whole
def test_nobody_is_notified_who_did_not_agree_or_whose_browser_does_not(
    tmp_path: Path, service: GpuServiceInATest, browser: Browser
) -> None:
    shown: list[str] = []
    recorder = RECORDER.replace("%s", "denied")
    with hub_with_ada(tmp_path, service) as hub, browser_page(browser, recorder=recorder) as page:
        page.expose_function("shown", lambda text: shown.append(text))  # noqa: PLW0108  playwright needs a function of Python
        hub.spawn("ben", {"offer": ONE})
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        page.wait_for_selector("#gpu-notify-line:not([hidden])")
        page.click("#gpu-notify")
        page.wait_for_selector("text=The browser does not allow it for this page.")
        assert not page.is_checked("#gpu-notify")
        service.release("ada")
        page.wait_for_url("**/user/ben/**", timeout=patient(20000))
    assert shown == ["may I?"]


@pytest.mark.whole
def test_form_and_waiting_page_speak_the_language_of_their_readers_browser(
    tmp_path: Path, service: GpuServiceInATest, browser: Browser
) -> None:
    """Two readers of one start, each in a language of their own; the events that the hub sends are of both."""
    with hub_with_ada(tmp_path, service) as hub:
        hub.spawn("ben", {"offer": ONE})
        with browser_page(browser, language="fi-FI") as page:
            log_in(page, hub, "cem", "/hub/spawn/cem")
            form = page.locator("#gpu-form")
            assert form.get_attribute("lang") == "fi-FI"
            assert "Mitä palvelin saa" in form.inner_text() and "Vain suoritin" in form.inner_text()
            page.check(f'input[type=radio][value="{ONE}"]')
            page.wait_for_selector("[type=submit]:has-text('Liity jonoon')")
            page.goto(f"{hub.url}/hub/spawn/cem/exam")
            page.context.clear_cookies()
            log_in(page, hub, "ben", "/hub/spawn-pending/ben")
            page.wait_for_selector("#gpu-headline:has-text('Olet jonossa sijalla 1: MIG 1g.5gb')")
            page.wait_for_function("document.title.startsWith('(1) jonossa')")
            assert page.locator("#gpu-waiting").get_attribute("lang") == "fi-FI"
            assert page.inner_text("#gpu-leave-words") == "Poistu jonosta …"
            assert "liityit jonoon sijalla 1" in page.text_content("#gpu-history")
            assert "Take" not in page.inner_text("#gpu-waiting")
        ben, address = hub.login("ben"), f"{hub.url}/hub/spawn-pending/ben"
        plain = ben.get(address, headers={"Accept-Language": "ja,en;q=0.5"}).content.decode()
        assert 'MIG 1g.5gb の列で <span class="gpu-place">1 番目</span> です' in plain and 'lang="ja-JP"' in plain, (
            "also without script"
        )
        english = ben.get(address).text
        assert (
            'You are <span class="gpu-place">1st</span> in line for MIG 1g.5gb' in english
            and 'id="gpu-waiting" lang="en"' in english
        )


@pytest.mark.whole
def test_a_start_says_that_its_gpu_is_simulated_and_its_button_stops_the_right_server(
    tmp_path: Path, service: GpuServiceInATest, browser: Browser
) -> None:
    """T9: the named server that is starting is stopped, the default one runs on."""
    with hub_with_ada(tmp_path, service, EXAM_IS_SLOW) as hub, browser_page(browser) as page:
        hub.spawn("ben", {"offer": "cpu"})
        hub.wait_ready("ben")
        hub.spawn("ben", {"offer": BIG}, "exam")
        log_in(page, hub, "ben", "/hub/spawn-pending/ben/exam")
        page.wait_for_selector("#gpu-headline:has-text('Your server is starting: MIG 2g.10gb.')")
        assert page.is_visible("text=simulated GPU")
        assert page.inner_text("#gpu-leave-words") == "Cancel the start …"
        assert page.is_hidden("#gpu-close"), "nothing is promised of a place that is not waited in"
        plain = hub.login("ben").get(f"{hub.url}/hub/spawn-pending/ben/exam").text
        assert '<p id="gpu-simulated"><span' in plain, "also without script"
        assert "Cancel the start" in plain and "GPU reserved" in plain
        leave(page)
        page.wait_for_url("**/hub/spawn/ben/exam", timeout=patient(30000))
        assert hub.ready("ben")
        assert hub.server("ben", "exam") is None
        until(lambda: ("ben", "exam") not in service.held, 15, "its GPU is given back")
        assert [ended.how for ended in service.told_of(Ended)] == ["left"]


@pytest.mark.whole
@pytest.mark.hub
def test_a_start_that_failed_is_told_alike_live_after_a_reload_and_by_the_next_hub(
    tmp_path: Path, service: GpuServiceInATest, browser: Browser
) -> None:
    """The stock hub says "Server at http://127.0.0.1:… didn't respond", and after a restart nothing at all."""
    told = "Your server was started and did not answer within 6 s, so it was ended. Your GPU was given back."
    with hub_with_ada(tmp_path, service, BEN_IS_SLOW) as hub:
        with browser_page(browser) as page:
            log_in(page, hub, "ben", "/hub/home")  # takes longer than the start may, on a busy machine
            hub.spawn("ben", {"offer": BIG})
            page.goto(f"{hub.url}/hub/spawn-pending/ben")

            def shown() -> list[str]:
                page.wait_for_selector(f"#gpu-refused-text:text-is('{told}')")
                assert "127.0.0.1" not in page.inner_text("body") and "Spawn failed" not in page.inner_text("body")
                assert page.inner_text("h1") == "Your server was not started"
                return page.locator("#gpu-refused p, #gpu-refused button, #gpu-refused a").all_inner_texts()

            live = shown()
            assert page.text_content("#gpu-status") == "", "no screen reader finds that it is starting"
            assert live[-2:] == ["Try again with MIG 2g.10gb", "Choose another"] and "Your place is kept" in live[1]
            page.reload()
            assert shown() == live
            hub.terminate()
            hub.start()
            page.goto(f"{hub.url}/hub/spawn-pending/ben")
            assert shown() == live
            page.goto(f"{hub.url}/hub/home")
            assert told in page.inner_text("#gpu-home [data-kind=failed]")
            page.click("#gpu-home [data-kind=failed] a")
            page.wait_for_selector("#gpu-form")
        assert "Traceback" not in hub.log()
        assert [(each.how, each.reason, each.seconds) for each in service.told_of(Ended)] == [
            ("failed", "no-answer", 6.0)
        ]


@pytest.mark.whole
def test_a_hub_that_ends_just_when_the_server_is_ready_is_waited_for(
    tmp_path: Path, service: GpuServiceInATest, browser: Browser
) -> None:
    """A page that followed at once would be the proxy's own, which has no way on."""
    asked: list[str] = []
    away = ["the hub"]

    def as_the_proxy(route: Route) -> None:
        if away:
            asked.append(route.request.url)
            route.fulfill(status=503 if len(asked) % 2 else 404, body="<h1>not found</h1>")
        else:
            route.continue_()

    with hub_with_ada(tmp_path, service) as hub, browser_page(browser) as page:
        hub.spawn("ben", {"offer": ONE})
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        page.wait_for_function("document.title.startsWith('(1) in line')")
        page.route("**/hub/spawn-pending/ben", as_the_proxy)
        service.release("ada")
        page.wait_for_selector("text=This page opens your server as soon as the hub answers.")
        assert page.inner_text("#gpu-headline") == "Your server is ready"
        assert page.locator("#gpu-actions button:visible").count() == 0
        until(lambda: len(asked) > 2, rest=lambda seconds: page.wait_for_timeout(1000 * seconds))
        away.clear()
        page.wait_for_url("**/user/ben/**", timeout=patient(20000))


@pytest.mark.whole
def test_a_proxy_that_knows_no_way_to_its_hub_is_not_taken_for_a_hub_without_the_line(
    tmp_path: Path, service: GpuServiceInATest, browser: Browser
) -> None:
    """404: so a proxy answers of everything until a hub that starts has told it of itself."""
    asked: list[str] = []
    away = ["the hub"]

    def as_the_proxy(route: Route) -> None:
        asked.append(route.request.url)
        of_the_service = "/services/gpu/" in route.request.url
        headers = {} if away or of_the_service else {"X-JupyterHub-Version": "6.1.0"}
        status = 503 if away and len(asked) % 2 else 404
        route.fulfill(status=status, headers=headers, body="<h1>not found</h1>")

    quick = "const later = setTimeout; window.setTimeout = (call, wait) => later(call, wait / 20);"
    with hub_with_ada(tmp_path, service) as hub, browser_page(browser, recorder=quick) as page:
        hub.spawn("ben", {"offer": ONE})
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        page.wait_for_function("document.title.startsWith('(1) in line')")
        for path in ("**/hub/spawn-pending/ben", "**/services/gpu/health", "**/server/progress*"):
            page.route(path, as_the_proxy)
        hub.kill()
        until(lambda: len(asked) > 12, rest=lambda seconds: page.wait_for_timeout(1000 * seconds))
        assert "The hub is restarting. Your place is kept." in page.inner_text("#gpu-reconnecting")
        assert page.is_hidden("#gpu-refused") and not any("/services/gpu/" in url for url in asked)
        away.clear()
        page.wait_for_selector("#gpu-refused-text:has-text('This hub runs without its line for GPUs now')")


@pytest.mark.whole
@pytest.mark.hub("6.1")
def test_leaving_shows_no_new_buttons(tmp_path: Path, service: GpuServiceInATest, browser: Browser) -> None:
    with hub_with_ada(tmp_path, service) as hub, browser_page(browser) as page:
        hub.spawn("cem", {"offer": BIG})
        hub.wait_ready("cem")
        hub.spawn("ben", {"offer": ONE})
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        other = page.context.new_page()
        other.goto(f"{hub.url}/hub/spawn-pending/ben")
        held: list[object] = []
        page.route("**/hub/api/users/ben/server?*", lambda route: held.append(route))  # noqa: PLW0108  as above
        page.wait_for_function("document.title.startsWith('(1) in line')")
        assert page.inner_text("#gpu-leave-words") == "Leave the line …"
        leave(page)
        page.wait_for_selector("text=Leaving the line.")
        service.release("cem")
        other.wait_for_selector("text=Take MIG 2g.10gb: now")
        assert page.locator("#gpu-actions button:enabled:visible").count() == 0
        assert page.inner_text("#gpu-alternatives") == ""
        held[0].continue_()  # type: ignore[attr-defined]
        page.wait_for_url("**/hub/spawn/ben", timeout=patient(20000))


@pytest.mark.parametrize("ended", [False, True], ids=["still in line", "ended all the same"])
@pytest.mark.whole
def test_a_hub_too_busy_for_a_cancel_is_asked_again_before_anything_is_said(
    tmp_path: Path, service: GpuServiceInATest, browser: Browser, ended: bool
) -> None:
    """JupyterHub gives a cancel one second, and answers 500 when the start ends only after it."""
    asked: list[str] = []

    def too_busy(route: Route) -> None:
        if route.request.method != "DELETE" or len(asked) == 2:
            route.continue_()
            return
        asked.append(route.request.method)
        if ended:
            hub.stop_server("ben")
        route.fulfill(status=500, json={"status": 500, "message": "Internal Server Error"})

    with hub_with_ada(tmp_path, service) as hub, browser_page(browser) as page:
        hub.spawn("ben", {"offer": ONE})
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        page.wait_for_selector("#gpu-headline:has-text('You are 1st in line')")
        page.route("**/hub/api/users/ben/server?*", too_busy)
        leave(page)
        page.wait_for_url("**/hub/spawn/ben", timeout=patient(20000))
    assert len(asked) == (1 if ended else 2)


@pytest.mark.whole
@pytest.mark.hub("6.1")
def test_a_kept_place_is_said_once_while_the_service_is_away(
    tmp_path: Path, service: GpuServiceInATest, browser: Browser
) -> None:
    with hub_with_ada(tmp_path, service) as hub, browser_page(browser) as page:
        hub.spawn("ben", {"offer": ONE})
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        page.wait_for_function("document.title.startsWith('(1) in line')")
        service.close()
        page.wait_for_selector("#gpu-why:has-text('The GPU service is not answering, since')", timeout=patient(20000))
        assert page.inner_text("#gpu-headline") == "Your place in line is kept"
        assert page.inner_text("#gpu-waiting").count("is kept") == 1
        plain = hub.login("ben").get(f"{hub.url}/hub/spawn-pending/ben").text
        seen = plain[plain.index('id="gpu-headline"') : plain.index('id="gpu-close" hidden')]
        assert seen.count("is kept") == 1
        service.open()
        page.wait_for_selector("#gpu-headline:has-text('You are 1st')", timeout=patient(20000))
        page.wait_for_selector("#gpu-history li:has-text('it goes on: still 1st')", state="attached")
        assert page.is_visible("#gpu-close")


@pytest.mark.whole
def test_a_full_disk_is_said_on_the_page_that_waits_for_it(
    tmp_path: Path, service: GpuServiceInATest, browser: Browser
) -> None:
    with hub_with_ada(tmp_path, service) as hub, browser_page(browser) as page:
        service.disk_full = FULL
        hub.spawn("ben", {"offer": BIG})
        log_in(page, hub, "ben", "/hub/spawn-pending/ben")
        page.wait_for_selector(f"#gpu-why:has-text('{FULL}')")
        page.wait_for_selector("#gpu-headline:text-is('Waiting to join the line')")
        assert "is kept" not in page.inner_text("#gpu-waiting")
        service.disk_full = ""
        page.wait_for_url("**/user/ben/**", timeout=patient(20000))
