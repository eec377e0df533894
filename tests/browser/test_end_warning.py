"""What a page knows of its server's end, seen or hidden; the user's settings; commands by palette and menu.

The server's own event stream is real here: JupyterLab keeps it open, and a hidden page has no other connection. What is
warned of and when, and what is saved, is proved over a fake page too: ``labextension/tests/warning.test.mjs``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, WebSocket, expect

from tests.browser.lab import (
    UUID,
    Picture,
    a_language_pack,
    a_server,
    a_tab,
    choose,
    end_kernels,
    notebook,
    open_lab,
    settings_file,
    until,
)
from tests.fakes.panel_service import PanelService, a_countdown, a_state
from tests.fakes.user_server import LOGIN_TOKEN, UserServer
from tests.patience import patient

pytestmark = [pytest.mark.needs("browser"), pytest.mark.whole]

HIDEABLE = """
    window.isHidden = false;
    Object.defineProperty(document, 'hidden', { get: () => window.isHidden });
    Object.defineProperty(document, 'visibilityState', { get: () => (window.isHidden ? 'hidden' : 'visible') });
"""


class Connections:
    """The page's websockets of one route, as the browser's developer tools see them."""

    def __init__(self, page: Page, route: str) -> None:
        self.route = route
        self.opened: list[WebSocket] = []
        self.sent: list[str | bytes] = []
        page.on("websocket", self._take)

    def now_open(self) -> list[WebSocket]:
        return [socket for socket in self.opened if not socket.is_closed()]

    def _take(self, socket: WebSocket) -> None:
        if self.route in socket.url:
            self.opened.append(socket)
            socket.on("framesent", self._note)

    def _note(self, data: str | bytes) -> None:
        self.sent.append(data)


def hide(page: Page, hidden: bool = True) -> None:
    page.evaluate(
        "hidden => { window.isHidden = hidden; document.dispatchEvent(new Event('visibilitychange')); }", hidden
    )


def toast(page: Page, words: str = "This server stops at") -> Locator:
    return page.locator(".Toastify").get_by_text(words)


def open_submenu(page: Page, menu: str, item: str) -> None:
    """Open a menu, and the one in it. A menu that was opened before an extension has added its item does not get it."""
    inner = page.locator(".lm-Menu").get_by_text(item, exact=True)

    def is_shown() -> bool:
        if not inner.is_visible():
            page.keyboard.press("Escape")
            page.locator(".lm-MenuBar").get_by_text(menu, exact=True).click()
        return inner.is_visible()

    until(is_shown, page)
    inner.hover()


@pytest.fixture(scope="module")
def tab(tab: Page) -> Page:
    tab.add_init_script(HIDEABLE)
    return tab


@pytest.fixture
def live(page: Page) -> Connections:
    return Connections(page, "/gpu/live")


@pytest.fixture
def own_settings(server: UserServer) -> Iterator[Path]:
    """The user's settings of the panel; gone after the test."""
    file = settings_file(server.directory, "panel", "jupyterhub-gpu")
    yield file
    file.unlink(missing_ok=True)


def test_a_page_has_one_connection_says_nothing_over_it_and_has_none_while_hidden(
    page: Page, server: UserServer, live: Connections
) -> None:
    panel = open_lab(page, server)
    expect(panel).to_contain_text("of 4.75")
    assert len(live.now_open()) == 1
    hide(page)
    until(lambda: not live.now_open(), page)
    hide(page, False)
    until(lambda: len(live.now_open()) == 1, page)
    assert len(live.opened) == 2
    assert live.sent == []


def test_a_hidden_page_is_warned_by_the_event_stream_and_can_keep(
    page: Page, server: UserServer, service: PanelService, live: Connections
) -> None:
    open_lab(page, server)
    until(live.now_open, page)
    hide(page)
    until(lambda: not live.now_open(), page)
    keeps = service.keeps
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    expect(toast(page)).to_have_count(1)
    assert not live.now_open()
    until(lambda: service.reports[-1]["warned"] is not None, page)
    page.locator(".Toastify").get_by_role("button", name="Keep 30 min").click()
    until(lambda: service.keeps == keeps + 1, page)
    expect(toast(page)).to_have_count(0)
    soon = a_countdown(50)
    service.state = a_state(uuid=UUID, countdown=replace(soon, last_warning=soon.stops_at - timedelta(seconds=60)))
    last = page.locator(".Toastify").get_by_text("Your GPU is idle. The server stops in")
    expect(last).to_have_count(1)
    expect(last).to_contain_text("Files are saved, variables are lost.")
    assert not live.now_open()


@pytest.mark.whole
def test_the_warning_on_a_hidden_page_is_taken_back_when_the_end_is_off(
    page: Page, server: UserServer, service: PanelService, live: Connections
) -> None:
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    open_lab(page, server)
    expect(toast(page)).to_have_count(1)
    hide(page)
    until(lambda: not live.now_open(), page)
    service.state = a_state(uuid=UUID)
    expect(toast(page)).to_have_count(0)


def test_a_hidden_page_saves_its_notebooks_before_the_stop(
    page: Page, server: UserServer, service: PanelService, live: Connections
) -> None:
    notebook(server, "hidden.ipynb", "")
    service.state = a_state(uuid=UUID, countdown=a_countdown(120))
    open_lab(page, server, "lab/tree/hidden.ipynb")
    page.locator(".jp-Notebook .jp-Cell .cm-content").first.click()
    page.keyboard.type("the_work_of_a_night = 1")
    hide(page)
    until(lambda: not live.now_open(), page)
    service.state = a_state(uuid=UUID, countdown=a_countdown(30, can_keep=False), save=True)
    until(lambda: "the_work_of_a_night" in (server.work / "hidden.ipynb").read_text(), page)
    until(lambda: service.reports[-1]["saved"], page)
    end_kernels(server)


def test_a_page_opened_in_the_background_asks_nothing_before_it_is_seen(browser: Browser, server: UserServer) -> None:
    asked: list[str] = []
    with a_tab(browser, 1180, 760) as page:
        page.add_init_script(HIDEABLE + "window.isHidden = true;")
        live = Connections(page, "/gpu/live")
        page.on("request", lambda request: asked.append(request.url) if "/gpu/" in request.url else None)
        panel = open_lab(page, server)
        assert not live.opened
        assert asked == []
        hide(page, False)
        expect(panel).to_contain_text("of 4.75")


@pytest.mark.whole
def test_a_keep_that_is_refused_outside_the_panel_says_why(
    page: Page, server: UserServer, service: PanelService, live: Connections
) -> None:
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    service.refuse = (409, {"message": "Both are used for today.", "field": "", "reason": "keeps"})
    open_lab(page, server)
    hide(page)
    page.locator(".Toastify").get_by_role("button", name="Keep 30 min").click()
    expect(toast(page, "Both are used for today.")).to_have_count(1)


@pytest.mark.whole
def test_the_same_end_is_notified_once(
    page: Page, server: UserServer, service: PanelService, live: Connections
) -> None:
    """It comes by the socket and by the event stream, and again after an outage; a moved end is a new one."""
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    open_lab(page, server)
    expect(toast(page)).to_have_count(1)
    hide(page)
    hide(page, False)
    until(live.now_open, page)
    page.locator(".Toastify .jp-Notification-Toast-Close").click()
    expect(toast(page)).to_have_count(0)
    hide(page)
    hide(page, False)
    until(lambda: len(live.now_open()) == 1, page)
    expect(page.locator("#jupyterhub-gpu-panel")).to_contain_text("Stops in")
    expect(toast(page)).to_have_count(0)
    service.go()
    try:
        expect(page.locator("#jupyterhub-gpu-panel")).to_contain_text("The GPU service is not answering since")
    finally:
        service.come()
    expect(page.locator("#jupyterhub-gpu-panel")).to_contain_text("Stops in")
    expect(toast(page)).to_have_count(0)
    service.state = a_state(uuid=UUID, countdown=a_countdown(300))
    expect(toast(page)).to_have_count(1)


def test_the_panel_opens_by_itself_at_the_first_visit_and_never_again(
    page: Page, server: UserServer, own_settings: Path
) -> None:
    own_settings.unlink(missing_ok=True)
    panel, side = page.locator("#jupyterhub-gpu-panel"), page.locator('.jp-SideBar li[data-id="jupyterhub-gpu-panel"]')
    page.goto(f"{server.url}lab?reset&token={LOGIN_TOKEN}")
    expect(panel).to_contain_text("of 4.75")
    until(lambda: own_settings.exists() and '"opened": true' in own_settings.read_text(), page)
    page.goto(f"{server.url}lab?reset&token={LOGIN_TOKEN}")
    expect(page.locator(".jp-gpu-Status button")).to_contain_text("4.75")
    expect(side).to_be_visible()
    expect(panel).to_be_hidden()


def test_the_panel_does_not_open_by_itself_where_it_would_be_cut_off(
    browser: Browser, server: UserServer, own_settings: Path
) -> None:
    own_settings.unlink(missing_ok=True)
    with a_tab(browser, 800, 600) as page:
        page.goto(f"{server.url}lab?reset&token={LOGIN_TOKEN}")
        expect(page.locator(".jp-gpu-Status button")).to_contain_text("4.75")
        page.wait_for_function("window.jupyterapp?.restored.then(() => true)")
        expect(page.locator("#jupyterhub-gpu-panel")).to_be_hidden()
        assert not own_settings.exists() or "opened" not in own_settings.read_text(), "it opens once there is room"


def test_settings_change_interval_unit_and_status_bar_while_the_page_is_open(
    page: Page, server: UserServer, live: Connections, own_settings: Path
) -> None:
    choose(server.directory, "panel", {"interval": 5, "unit": "GB", "statusBar": "memory"}, "jupyterhub-gpu")
    panel = open_lab(page, server)
    expect(panel).to_contain_text("of 5.1")
    expect(page.locator(".jp-gpu-Status")).to_contain_text("/5.1")
    expect(page.locator(".jp-gpu-Status")).not_to_contain_text("%")
    assert ["every=5" in socket.url for socket in live.opened] == [True]
    open_submenu(page, "View", "GPU")
    page.locator(".lm-Menu").get_by_text("Settings of the GPU Panel").click()
    field = page.locator(".jp-SettingsPanel").get_by_role("spinbutton").first
    expect(field).to_have_value("5")
    field.fill("2")
    until(lambda: ["every=2" in socket.url for socket in live.now_open()] == [True], page)


@pytest.mark.parametrize("text", ['{"interval": "often"}', '{"interval": 0}', '{"colour": "red"}'])
def test_a_hand_edited_file_of_settings_gives_the_defaults_and_one_sentence(
    page: Page, server: UserServer, live: Connections, own_settings: Path, text: str
) -> None:
    # (a file of any extension that is no JSON at all keeps JupyterLab itself from starting)
    own_settings.write_text(text)
    panel = open_lab(page, server)
    expect(panel).to_contain_text("of 4.75")
    expect(toast(page, "Your settings of the GPU panel cannot be read")).to_have_count(1)
    assert "every=1" in live.now_open()[-1].url


@pytest.mark.whole
def test_the_warning_waits_until_as_little_is_left_as_the_user_chose(
    page: Page, server: UserServer, service: PanelService, own_settings: Path
) -> None:
    choose(server.directory, "panel", {"warnBefore": 1}, "jupyterhub-gpu")
    countdown = a_countdown(105)
    service.state = a_state(uuid=UUID, countdown=countdown)
    panel = open_lab(page, server)
    expect(panel).to_contain_text("Stops in")
    expect(toast(page)).to_have_count(1, timeout=patient(110_000))
    assert (countdown.stops_at - datetime.now(timezone.utc)).total_seconds() <= 61, "no sooner than a minute before"


def test_commands_say_what_they_do_and_only_where_they_can(
    page: Page, server: UserServer, service: PanelService
) -> None:
    open_lab(page, server)
    open_submenu(page, "View", "GPU")
    keep = page.locator(".lm-Menu-item", has_text="Keep This Server for 30")
    expect(keep).to_have_class(re.compile("lm-mod-disabled"))
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    keeps = service.keeps
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    expect(page.locator("#jupyterhub-gpu-panel")).to_contain_text("Stops in")
    page.keyboard.press("Control+Shift+C")
    palette = page.locator(".lm-CommandPalette")
    palette.locator("input").fill("keep this server")
    palette.get_by_text("Keep This Server for 30").first.click()
    until(lambda: service.keeps == keeps + 1, page)


@pytest.mark.whole
def test_a_kernel_is_shut_down_from_the_panel_after_a_question(page: Page, server: UserServer) -> None:
    notebook(server, "done.ipynb", "print(1)")
    panel = open_lab(page, server, "lab/tree/done.ipynb")
    button = panel.get_by_role("button", name="Shut down the kernel of done.ipynb")
    button.click()
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Its variables are lost")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert len(server.request("api/kernels")[1]) == 1
    button.click()
    dialog.get_by_role("button", name="Shut Down Kernel").click()
    until(lambda: server.request("api/kernels")[1] == [], page)
    expect(button).to_have_count(0)


@pytest.mark.whole
def test_each_part_can_be_disabled_by_itself(page: Page, service: PanelService, tmp_path: Path) -> None:
    server = a_server(tmp_path, service)
    folder = tmp_path / "config" / "labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    parts = ("panel", "status", "commands", "warning", "save")
    try:
        for part in parts:
            off = {"disabledExtensions": {f"jupyterhub-gpu:{part}": True}}
            (folder / "page_config.json").write_text(json.dumps(off))
            page.goto(f"{server.url}lab?reset&token={LOGIN_TOKEN}")
            page.locator("#jp-main-dock-panel").wait_for()
            expect(page.locator(".jp-gpu-Status button")).to_have_count(0 if part == "status" else 1)
            tab = page.locator('.jp-SideBar li[data-id="jupyterhub-gpu-panel"]')
            expect(tab).to_have_count(0 if part == "panel" else 1)
            assert errors == [], part
    finally:
        server.stop()


@pytest.mark.whole
def test_in_jupyter_notebook_the_panel_opens_from_the_menu_and_warns(
    page: Page, server: UserServer, service: PanelService, live: Connections, picture: Picture
) -> None:
    notebook(server, "seven.ipynb", "")
    logged: list[str] = []
    page.on("console", lambda message: logged.append(message.text))
    page.goto(f"{server.url}notebooks/seven.ipynb?token={LOGIN_TOKEN}")
    page.locator(".jp-Notebook").wait_for()
    open_submenu(page, "View", "GPU")
    page.locator(".lm-Menu").get_by_text("Show the GPU Panel").click()
    panel = page.locator("#jupyterhub-gpu-panel")
    expect(panel).to_contain_text("of 4.75")
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    expect(toast(page)).to_have_count(1)
    picture(page, "notebook-7")
    keeps = service.keeps
    page.locator(".Toastify").get_by_role("button", name="Keep 30 min").click()
    until(lambda: service.keeps == keeps + 1, page)
    assert len(live.now_open()) == 1
    assert [text for text in logged if "jupyterhub-gpu" in text] == []
    end_kernels(server)


LANGUAGES = {
    "fi_FI": (
        "4,75",
        "Tämä palvelin",
        "Muisti",
        "Joutilaana 21\u00a0min.",
        "Pidä 30\u00a0min",
        "Tämä palvelin pysähtyy klo",
    ),
    "ja_JP": ("4.75", "このサーバー", "メモリ", "21\u00a0分 使われていません。", "30\u00a0分 残す", "このサーバーは"),
}


@pytest.mark.whole
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_panel_speaks_the_language_of_jupyterlab(
    page: Page, service: PanelService, tmp_path: Path, picture: Picture, language: str
) -> None:
    a_language_pack(tmp_path, language)
    choose(tmp_path, "plugin", {"locale": language}, "@jupyterlab/translation-extension")
    service.state = a_state(uuid=UUID, countdown=a_countdown(540))
    server = a_server(tmp_path, service, python_path=tmp_path / "packs")
    try:
        panel = open_lab(page, server)
        limit, heading, memory, reason, keep, warning = LANGUAGES[language]
        expect(panel.get_by_role("heading", name=heading)).to_be_visible()
        expect(panel.get_by_role("meter", name=memory)).to_be_visible()
        expect(panel).to_contain_text(limit)
        expect(panel).to_contain_text(reason)
        expect(panel.get_by_role("button", name=keep)).to_be_visible()
        expect(toast(page, warning)).to_have_count(1)
        picture(page, f"panel-{language}")
    finally:
        server.stop()
