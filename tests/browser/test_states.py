"""What a person sees, in every state, theme and width: pictures, words that fit, axe, the keyboard, and what it costs.

The messages are ``states.py``'s, put into the page's websocket. Whether a server sends such messages is the business of
``test_panel.py`` and of the extension's own tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect

from hub_extensions.core.messages import Keep, Numbers, Problem, Push
from hub_extensions.core.text.reasons import explain
from hub_extensions.server_extension.codec import PROTOCOL_VERSION
from tests.browser.lab import (
    PATIENCE_MS,
    PICTURES,
    Picture,
    a_language_pack,
    a_server,
    a_tab,
    choose,
    end_kernels,
    until,
)
from tests.browser.live_page import LivePage, axe_source
from tests.browser.states import STATES, UUID, a_run, countdown_with, due, many, now, push, reading, runs
from tests.fakes.panel_service import GIB, PanelService, a_countdown
from tests.fakes.user_server import UserServer

pytestmark = [pytest.mark.needs("browser"), pytest.mark.whole]

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark", "high-contrast": "JupyterLab Dark High Contrast"}
OF_A_THEME = {"light": (), "dark": ("color-contrast",), "high-contrast": ("color-contrast",)}
"""The rules of axe: all of them, and of each other theme the one that its colours can break."""
WIDTHS = (280, 600)
TRAININGS = [state for state in STATES if state.startswith("run")]
HEARD = "#jupyterhub-gpu-panel .jp-gpu-Heard"
COUNT_CHANGES = """([selector, name]) => {
  window[name] = 0;
  const seen = new MutationObserver(changes => { window[name] += changes.length; });
  for (const node of document.querySelectorAll(selector)) {
    seen.observe(node, {subtree: true, childList: true, characterData: true, attributes: true});
  }
}"""


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """A page high enough for a picture of the whole panel."""
    with a_tab(browser, 1280, 1300) as tab:
        yield tab


@pytest.fixture
def live(page: Page, server: UserServer) -> LivePage:
    choose(server.directory, "themes", {"theme": "JupyterLab Light"})
    return LivePage(page, server)


def tell(live: LivePage, state: str) -> None:
    """Bring the page into this state, and wait until it is drawn."""
    made, words = STATES[state]
    live.show(made)
    expect(live.panel).to_contain_text(words)
    settle(live.page)


def settle(page: Page) -> None:
    """Two frames later, what was told is drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")


@pytest.mark.whole
@pytest.mark.parametrize("theme", ["light", "dark", "high-contrast"])
def test_every_state_fits_and_has_no_findings_of_axe(
    page: Page, server: UserServer, picture: Picture, theme: str
) -> None:
    choose(server.directory, "themes", {"theme": THEMES[theme]})
    live = LivePage(page, server)
    axe = axe_source()
    panel = live.open()
    wrong: list[str] = []

    def look(state: str, width: int) -> None:
        wrong.extend(f"{state} {width}: cut off: {words}" for words in live.cut_off())
        wrong.extend(f"{state} {width}: {finding}" for finding in live.findings(axe, *OF_A_THEME[theme]))
        picture(panel, f"{state}-{theme}-{width}")

    def look_in_both_widths(state: str) -> None:
        for width in WIDTHS:
            live.widen(width)
            look(state, width)

    expect(panel).to_contain_text("Reading the GPU of this server.")
    look_in_both_widths("loading")
    for width in WIDTHS:
        live.widen(width)
        for state in STATES:
            tell(live, state)
            look(state, width)
    for state, warnings in (("gpu-lost", 1), ("one-lost", 2)):
        tell(live, state)
        expect(panel.locator(".jp-gpu-Warning")).to_have_count(warnings)  # each thing is said once
    for state in ("signs", "monitoring"):
        tell(live, state)
        closed = panel.locator("details:not([open]) > summary")
        while closed.count():
            closed.first.click()
        expect(panel.get_by_role("table")).to_be_visible()
        look_in_both_widths(f"{state}-opened")
    live.hang_up()
    expect(panel).to_contain_text("This page cannot reach its server")
    look_in_both_widths("lost")
    live.refuses, live.makes = False, lambda: replace(push(reading()), version=1)
    expect(panel).to_contain_text("This page is older than its server: reload it.")
    expect(panel).not_to_contain_text("Memory")
    look_in_both_widths("outdated")
    live.refuses = True
    page.route("**/gpu/snapshot*", lambda route: route.fulfill(status=403, body="{}"))
    live.open()
    expect(panel).to_contain_text("You are signed out.")
    expect(panel.get_by_role("link", name="Sign in again")).to_have_attribute("target", "_blank")
    look_in_both_widths("signed-out")
    page.route("**/gpu/snapshot*", lambda route: route.fulfill(status=404, body="{}"))
    live.open()
    expect(panel).to_contain_text("not installed or not switched on. Whoever runs this hub can change that.")
    look_in_both_widths("absent")
    assert wrong == []


@pytest.mark.whole
@pytest.mark.parametrize("language", ["fi_FI", "ja_JP"])
def test_the_words_fit_in_other_languages_too(
    page: Page, service: PanelService, tmp_path: Path, picture: Picture, language: str
) -> None:
    a_language_pack(tmp_path, language)
    choose(tmp_path, "plugin", {"locale": language}, "@jupyterlab/translation-extension")
    server = a_server(tmp_path, service, python_path=tmp_path / "packs")
    try:
        live = LivePage(page, server)
        live.open()
        live.widen(WIDTHS[0])
        for state in ("countdown", "share", "monitoring", "not-answering", "two-gpus", "few-data", "rough"):
            live.show(STATES[state][0])
            expect(live.panel.get_by_role("meter").first).to_be_visible()
            settle(page)
            assert live.cut_off() == []
            picture(live.panel, f"{state}-{language}")
        assert live.findings(axe_source()) == []
        for state in ("service-away", "detached", "gpu-lost", "monitoring-silent", *TRAININGS):
            made, in_english = STATES[state]
            live.show(made)
            settle(page)
            assert live.cut_off() == []
            expect(live.panel).not_to_contain_text(in_english)
    finally:
        server.stop()


def test_axe_is_there_and_finds_what_is_wrong(live: LivePage) -> None:
    tell_first(live, "training")
    live.panel.locator("section").evaluate("section => section.append(document.createElement('img'))")
    assert any(finding.startswith("image-alt") for finding in live.findings(axe_source()))


def test_the_last_ten_minutes_are_drawn_from_the_first_message(live: LivePage) -> None:
    tell_first(live, "training")
    use = live.panel.get_by_role("img", name="In use in the last 10 min: now 84")
    line = str(use.locator("path.jp-gpu-Line").get_attribute("d"))
    assert line.count("M") == 2, "what was not known breaks the line"
    assert 300 < line.count("L") < 600, "no more points than columns can show"
    expect(live.panel.get_by_role("img", name="Memory in the last 10 min: now 3.1 of 9.75")).to_be_visible()
    tell(live, "unknown")
    expect(live.panel.locator("path")).to_have_count(0)
    expect(live.panel.get_by_role("meter")).to_have_count(0)


def test_everything_is_done_by_keyboard_in_the_order_it_is_read(live: LivePage) -> None:
    tell_first(live, "countdown")
    live.panel.get_by_role("button", name="Shut down the kernel of eda.ipynb").focus()
    walked = [focused(live.page)]
    while len(walked) < 4:
        live.page.keyboard.press("Tab")
        walked.append(focused(live.page))
    assert walked == ["Shut down the kernel of eda.ipynb", "Numbers", "About this GPU", "Keep 30\u00a0min"]
    assert live.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    live.page.keyboard.press("Shift+Tab")
    live.page.keyboard.press("Enter")
    expect(live.panel).to_contain_text("MIG profile")
    live.page.keyboard.press("Shift+Tab")
    live.page.keyboard.press("Space")
    rows = live.panel.get_by_role("table").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("GiB")
    assert 10 <= rows.count() <= 12, "the heading and one row a minute"
    live.page.keyboard.press("Space")
    expect(live.panel.get_by_role("table")).to_have_count(0)


def test_one_of_many_gpus_is_opened_by_keyboard(live: LivePage) -> None:
    tell_first(live, "sixty-four-gpus")
    button = live.panel.get_by_role("button", name="GPU 3", exact=True)
    expect(button).to_have_attribute("aria-expanded", "false")
    expect(live.panel.get_by_role("meter", name="GPU 3, memory")).to_be_visible()
    expect(live.panel.get_by_role("meter", name="GPU 5, memory")).to_have_count(0)
    button.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(live.panel.get_by_role("img", name="In use in the last 10 min")).to_be_visible()


def test_a_training_is_asked_more_time_and_a_notice_for_by_keyboard(
    live: LivePage, service: PanelService, picture: Picture
) -> None:
    tell_first(live, "run-ends-too-late")
    panel, page = live.panel, live.page
    bar = panel.get_by_role("progressbar", name="Training mnist")
    expect(bar).to_have_attribute("aria-valuenow", "68")
    expect(panel.get_by_text("Your training ends about")).to_have_count(2)  # on the page, and to be heard
    toast = page.locator(".Toastify").get_by_text("Your training ends about")
    expect(toast).to_have_count(1)
    picture(page, "training-too-long")
    panel.get_by_role("checkbox", name="Tell me when it ends").focus()
    asked: list[str] = []
    page.route(
        "**/gpu/training-notice?*", lambda route: (asked.append(route.request.url), route.fulfill(status=204))[1]
    )
    page.keyboard.press("Space")
    expect(panel.get_by_role("checkbox")).to_be_checked()
    assert "gpu/training-notice?run=a1b2c3d4e5f60718&on=1" in asked[0]
    before = service.extends
    page.keyboard.press("Tab")
    assert focused(page) == "Ask for more time (2\xa0h)"
    page.keyboard.press("Enter")
    until(lambda: service.extends == before + 1, page)
    tell(live, "run")
    expect(panel.get_by_text("Your training ends about")).to_have_count(0)
    expect(toast).to_have_count(0)
    page.unroute_all()


def test_the_end_of_a_training_that_the_page_saw_is_a_notification_and_is_heard(live: LivePage) -> None:
    tell_first(live, "run")
    expect(live.page.locator(".jp-gpu-Status button")).to_contain_text("training 68\u00a0% · 25\u00a0min left")
    polite = live.panel.locator("[aria-live=polite]")
    live.page.evaluate(COUNT_CHANGES, [HEARD, "heard"])
    live.push(runs(a_run(steps=13_700, left_seconds=1470.0)))
    expect(live.panel.get_by_role("progressbar")).to_be_visible()
    assert live.page.evaluate("window.heard") == 0, "what moves is not read out"
    tell(live, "run-done")
    expect(polite).to_contain_text("mnist: Done at")
    expect(live.page.locator(".Toastify").get_by_text("mnist: Done at")).to_have_count(1)


def test_an_example_and_the_test_of_the_gpu_open_as_copies_that_overwrite_nothing(
    live: LivePage, server: UserServer
) -> None:
    mine = server.work / "test-my-gpu.ipynb"
    mine.write_text("mine")
    tell_first(live, "training")
    live.panel.get_by_text("Show the time left of your training").press("Enter")
    live.panel.get_by_role("button", name="any loop").press("Enter")
    expect(live.page.locator(".lm-TabBar-tabLabel", has_text="loop.ipynb")).to_be_visible()
    live.page.evaluate("window.jupyterapp.commands.execute('jupyterhub-gpu:test')")
    expect(live.page.locator(".lm-TabBar-tabLabel", has_text="test-my-gpu-1.ipynb")).to_be_visible()
    assert mine.read_text() == "mine"
    assert sorted(path.name for path in server.work.glob("*.ipynb") if "gpu" in path.name or "loop" in path.name) == [
        "loop.ipynb",
        "test-my-gpu-1.ipynb",
        "test-my-gpu.ipynb",
    ]
    end_kernels(server)


def test_the_status_bar_opens_the_panel_by_keyboard(live: LivePage) -> None:
    tell_first(live, "countdown")
    item = live.page.locator(".jp-gpu-Status button")
    expect(item).to_have_text("GPU 3.1/9.75\u00a0GiB · 0\u00a0% · stops in 8\u00a0min")
    live.page.locator('.jp-SideBar li[data-id="jupyterhub-gpu-panel"]').click()
    expect(live.panel).to_be_hidden()
    item.focus()
    assert live.page.evaluate("document.activeElement.tabIndex") == 0
    live.page.keyboard.press("Enter")
    expect(live.panel).to_be_visible()
    tell(live, "two-gpus")
    expect(item).to_have_text("2 GPUs 6.2/19.5\u00a0GiB · 48\u00a0%")
    tell(live, "share")
    expect(item).to_have_text("GPU yours 3.1 of 19.75\u00a0GiB · 84\u00a0% by all users")


def test_a_screen_reader_hears_states_and_one_alert_but_no_numbers(live: LivePage) -> None:
    tell_first(live, "training")
    live.page.evaluate(COUNT_CHANGES, [HEARD, "heard"])
    for percent in range(5):
        live.push(numbers(40.0 + percent))
    expect(live.panel).to_contain_text("44\u00a0%")
    assert live.page.evaluate("window.heard") == 0
    alert = live.panel.get_by_role("alert")
    expect(alert).to_have_text("")
    stops = a_countdown(540)
    for minutes in range(21, 25):
        counted = replace(stops, reason=explain("idle", idle=timedelta(minutes=minutes)))
        live.push(push(reading(), server=replace(countdown_with(Keep(30, 1, 2)), countdown=counted)))
        expect(live.panel).to_contain_text(f"Idle for {minutes}")
    expect(alert).to_contain_text("This server stops at")
    assert live.page.evaluate("window.heard") == 1, "said once, however often the reason changes"
    live.page.evaluate(COUNT_CHANGES, [f"{HEARD}[role=alert]", "spoken"])
    counted = countdown_with(Keep(30, 1, 2))
    away = explain("away")
    live.push(push(reading(), server=replace(counted, countdown=stops), service_note=away))
    expect(live.panel).to_contain_text("The countdown and the end of this server stand still")
    live.push(
        push(
            reading(),
            server=replace(counted, countdown=replace(stops, reason=explain("idle", idle=timedelta(minutes=26)))),
        )
    )
    expect(live.panel).to_contain_text("Idle for 26")
    assert live.page.evaluate("window.spoken") == 0, "an outage between does not say it again"
    polite = live.panel.locator("[aria-live=polite]")
    tell(live, "not-answering")
    expect(polite).to_contain_text("The GPU driver is not answering since")
    expect(live.panel.get_by_role("img", name="In use in the last 10 min: last known 84")).to_be_visible()
    live.hang_up()
    expect(polite).to_contain_text("This page cannot reach its server.")


def test_a_lost_connection_blames_no_gpu_and_counts_nothing_down(live: LivePage) -> None:
    tell_first(live, "countdown")
    item = live.page.locator(".jp-gpu-Status button")
    expect(live.panel.get_by_role("button", name="Keep 30")).to_be_visible()
    live.hang_up()
    expect(item).to_have_text("GPU: server not reached")
    expect(live.panel).not_to_contain_text("Stops in")
    expect(live.panel).not_to_contain_text("Waits now")
    expect(live.panel.get_by_role("button", name="Keep 30")).to_have_count(0)
    expect(live.panel.get_by_role("meter", name="Memory")).to_be_visible()
    live.refuses = False
    expect(live.panel).to_contain_text("Stops in")
    expect(item).to_contain_text("stops in 8")


def test_a_closed_panel_is_not_redrawn(live: LivePage) -> None:
    tell_first(live, "training")
    tab = live.page.locator('.jp-SideBar li[data-id="jupyterhub-gpu-panel"]')
    tab.click()
    expect(live.panel).to_be_hidden()
    live.page.evaluate(COUNT_CHANGES, ["#jupyterhub-gpu-panel", "drawn"])
    live.push(numbers(12.0))
    expect(live.page.locator(".jp-gpu-Status")).to_contain_text("12")
    assert live.page.evaluate("window.drawn") == 0
    tab.click()
    expect(live.panel).to_contain_text("12\u00a0%")


def test_nothing_moves_by_itself_and_forced_colours_keep_bars_and_lines(live: LivePage, picture: Picture) -> None:
    tell_first(live, "training")
    moving = "() => document.querySelector('#jupyterhub-gpu-panel').getAnimations({subtree: true}).length"
    live.push(numbers(3.0))
    expect(live.panel).to_contain_text("3\u00a0%")
    assert live.page.evaluate(moving) == 0
    live.page.emulate_media(forced_colors="active")
    bar = live.panel.get_by_role("meter", name="Memory").locator("div")
    line = live.panel.locator("path.jp-gpu-Line").first
    ground = live.panel.evaluate("panel => getComputedStyle(panel).backgroundColor")
    assert bar.evaluate("bar => getComputedStyle(bar).backgroundColor") != ground
    assert line.evaluate("line => getComputedStyle(line).stroke") != ground
    picture(live.panel, "training-forced-colors")


@pytest.mark.whole
def test_at_twice_the_size_nothing_is_cut_off(browser: Browser, server: UserServer, picture: Picture) -> None:
    context = browser.new_context(viewport={"width": 640, "height": 480}, device_scale_factor=2, locale="en-GB")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    try:
        live = LivePage(page, server)
        live.open()
        expect(page.locator("#jp-left-stack")).to_be_hidden()  # so narrow a window has room for one of the two
        live.widen(280)
        for state in ("countdown", "share", "monitoring", "run-ends-too-late", "runs", "sixty-four-gpus"):
            tell(live, state)
            assert live.cut_off() == []
        picture(live.panel, "zoomed")
    finally:
        context.close()


@pytest.mark.whole
def test_eight_gpus_with_ten_minutes_each_are_drawn_in_one_go(live: LivePage) -> None:
    live.open()
    gpus = many(8)
    live.show(lambda: push(*gpus))
    expect(live.panel).to_contain_text("GPU 8")
    for line in live.panel.locator(".jp-gpu-OfMany button").all():
        line.click()
    expect(live.panel.locator("svg")).to_have_count(14)  # of two of the eight nothing is known
    session = live.page.context.new_cdp_session(live.page)
    session.send("Performance.enable")
    each = []
    for step in range(10):
        before = layouts(session)
        live.push(numbers(float(step), *(gpu.uuid for gpu in gpus)))
        expect(live.panel).to_contain_text(f"{step}\u00a0%")
        settle(live.page)
        each.append(layouts(session) - before)
    assert max(each) <= 5, f"eight GPUs are drawn at once, not one after the other: {each}"


def layouts(session: CDPSession) -> int:
    """How often the page was laid out so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return int(next(one["value"] for one in metrics if one["name"] == "LayoutCount"))


def numbers(percent: float, *uuids: str) -> Push:
    """A message with numbers only."""
    at = now()
    told = tuple(Numbers(uuid, at, int(3.1 * GIB), None, percent) for uuid in uuids or (UUID,))
    return Push(PROTOCOL_VERSION, at, None, None, told)


def focused(page: Page) -> str:
    """What has the focus, as it is called."""
    name: str = page.evaluate(
        "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
    )
    return name


def tell_first(live: LivePage, state: str) -> None:
    """Open the page in this state."""
    live.makes = STATES[state][0]
    live.open()
    expect(live.panel).to_contain_text(STATES[state][1])
    settle(live.page)


@pytest.mark.parametrize("theme", THEMES if PICTURES else ["light"])
def test_a_server_that_was_stopped_says_why_in_the_place_of_the_hubs_box(
    page: Page, server: UserServer, picture: Picture, theme: str
) -> None:
    """Its panel is closed, as it may be. What starts it again is the hub's form, as it was or without a GPU."""
    choose(server.directory, "themes", {"theme": THEMES[theme]})
    live = LivePage(page, server)
    live.makes = lambda: push(reading(used_percent=0.0), server=due(seconds=2))
    live.open()
    expect(live.panel).to_contain_text("Idle for 2")
    side = page.locator('.jp-SideBar li[data-id="jupyterhub-gpu-panel"]')
    side.click()
    expect(live.panel).to_be_hidden()
    live.stop_server()
    box = page.get_by_role("dialog")
    expect(box).to_contain_text("Your server was stopped at")
    expect(box).to_contain_text("Its GPU was idle for 3\u00a0min. Your notebooks are saved; variables are lost.")
    expect(page.get_by_text("Server unavailable or unreachable")).to_have_count(0)
    expect(page.locator(".Toastify").get_by_text("This server stops at")).to_have_count(0)
    assert live.findings(axe_source(), of=".jp-Dialog") == []
    picture(page, f"stopped-{theme}")
    assert focused(page) == "Start again", "what most want is one key away"
    page.keyboard.press("Escape")
    page.mouse.click(30, 600)
    expect(box).to_be_visible()
    assert page.evaluate("window.jupyterapp.info.isConnected") is False, "JupyterLab asks nothing meanwhile"
    box.get_by_role("button", name="Close").click()
    expect(box).to_have_count(0)
    live.page.locator(".jp-gpu-Status button").click()
    expect(live.panel).to_contain_text("Its GPU was idle for 3\u00a0min.")
    expect(live.panel).to_contain_text("Your notebooks are saved; variables are lost.")
    expect(live.panel.get_by_role("link", name="Work on CPU")).to_have_attribute(
        "href", re.compile(r"^/hub/spawn/ada\?opt-offer=cpu&next=%2Fuser%2Fada%2Flab")
    )
    assert live.cut_off() == []
    picture(live.panel, f"stopped-panel-{theme}")
    assert live.findings(axe_source()) == []
    live.start_server()
    expect(live.panel).to_contain_text("Stops in")
    assert page.evaluate("window.jupyterapp.info.isConnected") is True


def test_the_box_of_the_hub_stays_where_nobody_said_why(live: LivePage) -> None:
    tell_first(live, "training")
    live.stop_server()
    box = live.page.get_by_role("dialog")
    expect(box).to_contain_text("Server unavailable or unreachable")
    expect(box).to_contain_text("is not running. Would you like to restart it?")
    expect(live.panel).to_contain_text("This server does not run any more.")
    expect(live.panel.get_by_role("link", name="Start again")).to_be_visible()
    live.page.context.route("**/hub/spawn*", lambda route: route.fulfill(body="the hub's form"))
    with live.page.context.expect_page() as opened:
        box.get_by_role("button", name="Restart").click()
    expect(opened.value.get_by_text("the hub's form")).to_be_visible()
    opened.value.close()
    live.start_server()
    expect(live.panel).to_contain_text("idle for 12")


def test_the_gpu_is_given_back_after_one_question(live: LivePage, service: PanelService, picture: Picture) -> None:
    tell_first(live, "training")
    button = live.panel.get_by_role("button", name="Give the GPU back")
    box = live.page.get_by_role("dialog")
    before = len(service.given_back)
    for answer in ("Cancel", "Go On as CPU Only", "Stop the Server"):
        button.press("Enter")
        expect(box).to_contain_text("Your notebooks are saved; variables are lost")
        picture(live.page, "give-back")
        box.get_by_role("button", name=answer).press("Enter")
        expect(box).to_have_count(0)
        expect(button).to_be_visible()
    until(lambda: len(service.given_back) == before + 2, live.page)
    assert service.given_back[before:] == [True, False]
    service.refuse = (409, asdict(Problem.of(explain("keep-stopping"))))
    button.click()
    box.get_by_role("button", name="Stop the Server").click()
    expect(live.page.locator(".Toastify").get_by_text("This server is already stopping.")).to_be_visible()
    tell(live, "no-gpu")
    expect(button).to_have_count(0)
