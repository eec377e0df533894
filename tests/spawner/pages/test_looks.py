"""How every page of ours at the hub looks, in each of its states: axe, widths, the keyboard, and what it weighs.

Our templates in JupyterHub's own page, with its own style, from values: no hub and no service. With
PICTURES=<folder> each state is kept as a picture, light and dark, 1280 and 360 px wide. What the pages do is the
business of ``test_in_browser.py`` and ``test_waiting_page.py``.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
from jupyterhub._data import DATA_FILES_PATH
from playwright.sync_api import Browser, Page, Route

from hub_extensions.adapters.service.gpu_service import ServiceAway
from hub_extensions.core.messages import (
    Countdown,
    FailedStart,
    FormState,
    Notice,
    OfferClosing,
    OfferState,
    ServerState,
    TicketStatus,
    UserOverview,
    Wait,
)
from hub_extensions.core.offers.model import cpu_offer
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.user_options import UserOptions
from hub_extensions.core.queue.failed_starts import failure
from hub_extensions.core.text import glossary
from hub_extensions.core.text.reasons import explain
from hub_extensions.core.text.translation import ENGLISH, halves
from hub_extensions.spawner.pages.overview import NotRunningView, ended_view, failed_view, home_entries
from hub_extensions.spawner.pages.spawn_form import TEMPLATES, form_html
from hub_extensions.spawner.pages.start_progress import Start, report_starting, report_unanswered, report_waiting
from tests.browser.live_page import axe_source
from tests.fakes.service import an_offer

pytestmark = [pytest.mark.whole, pytest.mark.needs("browser")]

NOW = datetime(2026, 11, 20, 14, 2, tzinfo=timezone.utc)
FEW = OfferId("mig-1g.5gb")
HUB = "http://hub.test/hub/"
STOCK = Path(DATA_FILES_PATH)
PICTURES = os.environ.get("PICTURES", "")
MOST_BYTES = 25_000
AXE = """only => axe.run([['#spawn_form'], ['.gpu-waiting'], ['#gpu-home'], ['#gpu-refused'], ['#gpu-ended']]
  .filter(([each]) => document.querySelector(each)),
  {resultTypes: ['violations'], ...(only.length ? {runOnly: only} : {})})
  .then(found => found.violations.flatMap(
    rule => rule.nodes.map(node => `${rule.id}: ${node.failureSummary} in ${node.html}`)))"""
CLIPPED = """[...document.querySelectorAll('#gpu-form *, .gpu-waiting *, #gpu-home *')].filter(each =>
  each.offsetParent && getComputedStyle(each).overflowX === 'hidden' && each.scrollWidth > each.clientWidth + 1
  && each.innerText?.trim() && !each.matches('.visually-hidden')).map(each => each.outerHTML)"""
UNMARKED = """[...document.querySelectorAll('.gpu-pill, .gpu-share, .gpu-bar, .gpu-dots li:not(.gpu-rest), .gpu-row')]
  .filter(each => each.offsetParent && getComputedStyle(each).borderTopWidth === '0px')
  .map(each => `no border with forced colours: ${each.outerHTML}`)
  .concat([...document.querySelectorAll('#gpu-form input, .gpu-waiting input')]
    .filter(each => each.offsetParent && getComputedStyle(each).appearance === 'none')
    .map(each => `no choice is seen with forced colours: ${each.outerHTML}`))"""
FAINT = """[...document.querySelectorAll('#gpu-form input, .gpu-waiting input')].filter(each => {
  if (!each.offsetParent || each.checked) { return false; }
  const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const light = (...colours) => {
    for (const colour of colours) { paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1); }
    const [red, green, blue] = [...paint.getImageData(0, 0, 1, 1).data].map(
      part => part / 255 > .04045 ? ((part / 255 + .055) / 1.055) ** 2.4 : part / 255 / 12.92);
    return .2126 * red + .7152 * green + .0722 * blue + .05;
  };
  const ground = getComputedStyle(document.body).backgroundColor;
  const [less, more] = [light(ground), light(ground, getComputedStyle(each).borderTopColor)].sort((a, b) => a - b);
  return more / less < 3;
}).map(each => `a choice that is hardly seen: ${each.outerHTML}`)"""
LONG = Wait(False, 25 * 60, 40 * 60, 70 * 60, 130 * 60, explain("in-use", total=1, title="Medium GPU", ahead=1))


def full(offer: OfferState, waiting: int = 1) -> OfferState:
    return replace(offer, free=0, waiting=waiting, wait=LONG)


SMALL = an_offer(FEW, free=2, total=5, name="Small GPU", product="A100")
MEDIUM = an_offer("mig-2g.10gb", free=1, total=1, gib=9.75, name="Medium GPU", product="A100", sm_count=28)
LARGE = an_offer("mig-3g.20gb", free=1, total=2, gib=19.62, name="Large GPU", product="A100", sm_count=42)
WHOLE = an_offer("gpu", free=1, total=1, gib=39.4, kind="whole", title="Whole GPU", product="A100", sm_count=98)
NO_GPU = replace(an_offer("cpu", free=None, total=None, gib=None), description=cpu_offer().description)
NOT_KNOWN = replace(WHOLE, free=None, wait=replace(LONG, p10_seconds=None, at_most_seconds=None,
                                                   reason=explain("not-known-which-free")))  # fmt: skip
TITLES = {OfferId("mig-1g.5gb"): "Small GPU", OfferId("mig-2g.10gb"): "Medium GPU"}
CLOSED = replace(full(MEDIUM), closed=OfferClosing(1, True, NOW, "a new fan"))
NOTICES = (Notice(NOW - timedelta(hours=3), "", "Your server was stopped: its GPU was idle for 30 min."),
           Notice(NOW - timedelta(hours=1), "", "An administrator wrote: “The exam begins at 14:00.”"),
           Notice(NOW, "", "Your server was stopped: an administrator needs its GPU."))  # fmt: skip
OF_A_COURSE = "Course notebooks: small is enough."
MANY = tuple(replace(WHOLE, title=f"Course {number}", description=OF_A_COURSE) for number in range(8))


def form(*offers: OfferState, **more: Any) -> FormState:
    return FormState(offers, simulated=False, as_of=NOW, culling="Stops when its GPU is idle for 30 min.",
                     gpu_servers=(), **more)  # fmt: skip


def waiting(position: int) -> Start:
    start = Start(UserOptions((OfferId("mig-2g.10gb"),)))
    start.ticket = "t"
    report_waiting(start, ticket(position), TITLES)
    return start


def ticket(position: int, server: str = "", answer: str = "wait") -> TicketStatus:
    return TicketStatus("t", 1, "ben", server, answer, (OfferId("mig-2g.10gb"),), OfferId("mig-2g.10gb"), position,
                        position - 1, NOW, explain("in-use", total=1, title="Medium GPU", ahead=float(position - 1)),
                        LONG, (SMALL,), usual_start_seconds=20.0)  # fmt: skip


def starting(usual: float = 20.0) -> Start:
    start = Start(UserOptions((OfferId("mig-2g.10gb"),)))
    start.last = replace(ticket(0, answer="admit"), usual_start_seconds=usual)
    start.grant = SimpleNamespace(offer=OfferId("mig-2g.10gb"))  # type: ignore[assignment]
    report_starting(start, TITLES)
    return start


def away(kept: bool) -> Start:
    start = Start(UserOptions((OfferId("mig-2g.10gb"),)), ticket="t" if kept else None)
    report_unanswered(start, ServiceAway("no answer", NOW))
    return start


FAILURE = FailedStart(NOW, "ben", "", OfferId("mig-2g.10gb"), "Medium GPU", failure("no-answer", "", 120.0),
                      kept_until=NOW + timedelta(minutes=15))  # fmt: skip


def a_server(server: str, minutes: float) -> ServerState:
    end = Countdown(NOW + timedelta(minutes=minutes), "idle", explain("idle", idle=1320.0), True, True)
    return ServerState("ben", server, FEW, "Small GPU", None, 1 / 7, None, True, False, "running", end, None, None,
                       False, (), ())  # fmt: skip


OVERVIEW = UserOverview(
    (ticket(2), ticket(0, "exam", "admit")),
    (a_server("thesis", 8),),
    (Notice(NOW, "old", "Your server was stopped: its GPU was idle for 30 min."),),
    (replace(FAILURE, server="lab"),),
)


def page_of(name: str, **values: Any) -> str:
    """As the hub renders it, in its own page."""
    stock = jinja2.FileSystemLoader(STOCK / "templates")
    loaders = [jinja2.PrefixLoader({"templates": stock}, "/"), jinja2.FileSystemLoader(TEMPLATES), stock]
    env = jinja2.Environment(loader=jinja2.ChoiceLoader(loaders), autoescape=True, enable_async=True)
    names = {"base_url": "/hub/", "prefix": "/", "spawn_url": "/hub/spawn/ben", "xsrf": "x", "parsed_scopes": {},
             "static_url": lambda path, **_: f"/hub/static/{path}", "server_name": "", "services": [],
             "default_server": SimpleNamespace(active=True), "url": "/user/ben", "login_url": "/hub/login"}  # fmt: skip
    with ThreadPoolExecutor(1) as apart:  # the browser's driver runs a loop in this thread
        rendered = env.get_template(name).render_async(**{**names, **values})
        return apart.submit(asyncio.run, rendered).result()  # type: ignore[arg-type]


def last_of(start: Start | None) -> Any:
    """The last event, as if it had happened now."""
    last = start.latest if start else None
    moments = {"at": NOW.isoformat(), "since": NOW.isoformat()}
    return last and {**last, "gpu": {**last["gpu"], **moments}}


def a_user(start: Start | None = None, overview: NotRunningView | None = None) -> dict[str, Any]:
    event = last_of(start)

    async def gpu_not_running(*_: object) -> NotRunningView:
        return overview or NotRunningView("")

    async def gpu_home(t: Any) -> object:
        return home_entries(OVERVIEW, TITLES, NOW, t)

    spawner = SimpleNamespace(
        name="",
        gpu_page={"options": {}, "event": event,
                  "gpu": event["gpu"] if event else {}, "wants_gpu": True, "unopened_minutes": "15",
                  "now": (NOW + timedelta(seconds=12)).isoformat(), "notify": "", "notice_hint": "",
                  "cpu_server": "cpu"},
        gpu_explainer=glossary.explainer, gpu_glossary=glossary.listed,
        gpu_not_running=gpu_not_running, gpu_home=gpu_home, gpu_halves=halves, gpu_catalogue=lambda _: ENGLISH,
    )  # fmt: skip
    user = SimpleNamespace(name="ben", escaped_name="ben", spawner=spawner, spawners={"": spawner},
                           json_escaped_name="ben", server_url=lambda name="": f"/user/ben/{name}")  # fmt: skip
    return {"user": user, "spawner": spawner}


def spawn(state: FormState | None, **more: Any) -> Callable[[], str]:
    return lambda: page_of("spawn.html", spawner_options_form=form_html(state, **more), **a_user())


def pending(start: Start | None) -> Callable[[], str]:
    """With a stream of events that says the last one, and then nothing."""
    event = (
        ""
        if start is None
        else f"window.again = () => this.onmessage({{data: {json.dumps(json.dumps(last_of(start)))}}});"
        "setTimeout(again);"
    )
    stream = f"<script>window.EventSource = function () {{ this.close = () => null; {event} }};</script>"
    return lambda: stream + page_of("spawn_pending.html", progress_url="/hub/progress", **a_user(start))


def failed() -> str:
    view = failed_view((FAILURE,), "", "", UserOptions((OfferId("mig-2g.10gb"),)))
    return page_of("not_running.html", failed=True, failed_message="", **a_user(None, NotRunningView("", view)))


def stopped() -> str:
    view = NotRunningView("", ended=ended_view(OVERVIEW, "old"))
    return page_of("not_running.html", failed=False, **a_user(None, view))


STATES: dict[str, Callable[[], str]] = {
    "form-2": spawn(form(SMALL, NO_GPU, peak_memory_bytes=3 * 2**30)),
    "form-5": spawn(form(SMALL, full(MEDIUM), LARGE, NOT_KNOWN, NO_GPU)),
    "form-12": spawn(form(SMALL, full(MEDIUM), LARGE, *MANY, NO_GPU)),
    "form-notices": spawn(form(SMALL, CLOSED, LARGE, full(WHOLE), NO_GPU, notices=NOTICES)),
    "form-failed": spawn(form(SMALL, MEDIUM, NO_GPU, failed=(FAILURE,))),
    "form-full": spawn(form(full(SMALL, 3), full(MEDIUM), NO_GPU), notice_hint="yes"),
    "form-unknown": spawn(form(SMALL, MEDIUM, NO_GPU), away_since="2026-11-20T14:02:00Z"),
    "asking": pending(None),
    "waiting-1": pending(waiting(1)),
    "waiting-7": pending(waiting(7)),
    "waiting-20": pending(waiting(20)),
    "starting": pending(starting()),
    "away": pending(away(True)),
    "away-not-kept": pending(away(False)),
    "failed": failed,
    "stopped": stopped,
    "home": lambda: page_of("home.html", **a_user()),
}


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(timezone_id="UTC", locale="en-GB", reduced_motion="reduce")
    page = context.new_page()
    page.clock.install(time=NOW + timedelta(seconds=12))
    yield page
    context.close()


def show(page: Page, html: str) -> None:
    """The page as a hub would serve it; a stream of events never says anything, and nothing else is asked."""

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix("http://hub.test/hub/")
        file = STOCK / path.split("?")[0]
        if path == "page":
            route.fulfill(body=html, content_type="text/html")
        elif path.startswith("static/") and file.is_file():
            route.fulfill(path=file)
        elif path.startswith("logo"):
            route.fulfill(path=STOCK / "static/images/jupyterhub-80.png")
        else:
            route.fulfill(status=404, body="")

    page.unroute_all(behavior="ignoreErrors")
    page.route("**/*", answer)
    page.goto(f"{HUB}page", wait_until="load")


def look(page: Page, scheme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 740 if width < 500 else 900})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.evaluate("scheme => document.documentElement.setAttribute('data-bs-theme', scheme)", scheme)


@pytest.mark.parametrize("state", STATES)
def test_every_state_fits_and_has_no_findings_of_axe(tab: Page, state: str) -> None:
    show(tab, STATES[state]())
    tab.evaluate(axe_source())
    wrong: list[str] = []
    for scheme in ("light", "dark"):
        for width in (1280, 360):
            look(tab, scheme, width)
            if PICTURES:
                Path(PICTURES).mkdir(parents=True, exist_ok=True)
                tab.screenshot(path=Path(PICTURES) / f"{state}-{scheme}-{width}.png", full_page=True)
        wrong += [f"{scheme}: {each}" for each in tab.evaluate(AXE, [] if scheme == "light" else ["color-contrast"])]
        wrong += [f"{scheme}: {each}" for each in tab.evaluate(FAINT)]
    for width, at in ((320, "at 400 %"), (640, "at 200 %")):
        look(tab, "light", width)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, f"nothing is cut off {at}"
        assert tab.evaluate(CLIPPED) == [], f"no text is cut off {at}"
    tab.emulate_media(forced_colors="active")
    if PICTURES:
        tab.screenshot(path=Path(PICTURES) / f"{state}-forced-640.png", full_page=True)
    wrong += tab.evaluate(UNMARKED)
    tab.emulate_media(forced_colors="none")
    assert wrong == []


def test_two_offers_and_the_button_are_in_reach_on_a_phone(tab: Page) -> None:
    show(tab, STATES["form-2"]())
    look(tab, "light", 360)
    for item in (*tab.locator(".gpu-row").all(), tab.locator("#spawn_form [type=submit]")):
        box = item.bounding_box()
        assert box is not None and box["y"] + box["height"] <= 740, item
    show(tab, STATES["form-5"]())
    free = tab.locator(".gpu-pill").first.bounding_box()
    tab.locator(".gpu-pill-full").first.evaluate("pill => pill.lastChild.data = ' full · at most 35 min'")
    for row in tab.locator(".gpu-row:has(.gpu-share)").all():
        pill, share = row.locator(".gpu-pill").bounding_box(), row.locator(".gpu-share").bounding_box()
        assert pill and share and pill["y"] < share["y"] < pill["y"] + pill["height"], "no line for itself"
        assert free and pill["height"] == free["height"], "one line, also of a longer wait"


@pytest.mark.parametrize(("width", "height"), [(360, 740), (640, 700)])
def test_start_stands_below_every_row_wherever_one_has_scrolled_to(tab: Page, width: int, height: int) -> None:
    """On a phone, and at twice the size."""
    show(tab, STATES["form-12"]())
    look(tab, "light", width)
    tab.set_viewport_size({"width": width, "height": height})
    start, last = tab.locator("#spawn_form [type=submit]"), tab.locator(".gpu-row").last
    for scrolled in (0, 300, 100_000):
        tab.evaluate("top => scrollTo(0, top)", scrolled)
        button, row = start.bounding_box(), last.bounding_box()
        assert button and row and button["y"] >= row["y"] + row["height"], scrolled


def test_a_message_is_closed_for_good_and_the_earlier_ones_are_folded(tab: Page) -> None:
    show(tab, STATES["form-notices"]())
    tab.evaluate("localStorage.clear()")
    show(tab, STATES["form-notices"]())
    visible = tab.locator("[data-notice]:visible")
    assert visible.count() == 1 and "needs its GPU" in visible.inner_text()
    tab.get_by_text("2 earlier messages").click()
    assert visible.count() == 3
    for left in (2, 1, 0):
        tab.locator(".gpu-close:visible").first.click()
        assert visible.count() == left
    assert not tab.get_by_text("2 earlier messages").is_visible(), "nothing is folded any more"
    show(tab, STATES["form-notices"]())
    assert tab.locator(".gpu-notices [data-notice]:visible, .gpu-notices summary:visible").count() == 0


def test_without_a_choice_nothing_can_be_started_and_the_button_says_so(tab: Page) -> None:
    show(tab, STATES["form-full"]())
    submit = tab.locator("#spawn_form [type=submit]")
    assert (submit.is_disabled(), submit.inner_text()) == (True, "Choose one first")
    off = tab.evaluate("getComputedStyle(document.querySelector('.btn-jupyter')).backgroundColor")
    tab.check("input[value='mig-2g.10gb']")
    assert (submit.is_disabled(), submit.inner_text()) == (False, "Join the line")
    assert tab.evaluate("getComputedStyle(document.querySelector('.btn-jupyter')).backgroundColor") != off
    tab.check("input[value=cpu]")
    assert (submit.is_disabled(), submit.inner_text()) == (False, "Start")


def test_nothing_is_promised_before_the_service_has_answered_and_a_start_counts_its_seconds(tab: Page) -> None:
    show(tab, STATES["asking"]())
    assert tab.inner_text("#gpu-headline") == "Asking for your GPU …"
    assert "kept" not in tab.inner_text("#gpu-card") and tab.title() == "Waiting – JupyterHub"
    for state, words in (("asking", "Cancel the start …"), ("away-not-kept", "Cancel the start …"),
                         ("away", "Leave the line …")):  # fmt: skip
        show(tab, STATES[state]())
        tab.wait_for_selector(f"#gpu-leave-words:has-text('{words}')")
        assert tab.inner_text("#gpu-leave-words") == words, "a place that is not known is not left"
    show(tab, STATES["starting"]())
    assert "kept" not in tab.inner_text("#gpu-card")
    tab.wait_for_selector("#gpu-step-server[data-step=now]:has-text('(12 s, usually 20 s)')")
    assert tab.get_attribute("#gpu-bar span", "style") == "width: 60%;", "the bar says how much of it is over"
    assert tab.inner_text("#gpu-step-reserved") == "GPU reserved"
    show(tab, pending(starting(usual=9.0))())
    tab.wait_for_selector("#gpu-step-server:has-text('(12 s, longer than usual: usually 9 s)')")
    said = "Your server is starting: Medium GPU. It takes longer than usual: usually 9 s."
    assert tab.text_content("#gpu-status") == said, "a screen reader says it once"
    tab.evaluate("again()")  # another event of the same start, as of its pod
    assert tab.text_content("#gpu-status") == said


@pytest.mark.parametrize(("state", "word"), [("form-5", "mig"), ("waiting-7", "likely")])
def test_a_word_is_explained_by_the_keyboard_and_to_a_screen_reader(tab: Page, state: str, word: str) -> None:
    show(tab, STATES[state]())
    before = tab.locator("input[name=offer]:checked").count()
    button, sentence = tab.locator(f"[popovertarget=gpu-word-{word}]"), tab.locator(f"#gpu-word-{word}")
    assert button.count() == 1 and button.get_attribute("aria-describedby") == f"gpu-word-{word}"
    assert not sentence.is_visible()
    button.focus()
    tab.keyboard.press("Enter")
    assert sentence.inner_text() == f"{glossary.WORDS[word]}: {glossary.SENTENCES[word]}"
    box, near = sentence.bounding_box(), button.bounding_box()
    assert box and near and abs(box["y"] - near["y"]) < 200, "beside the word"
    tab.keyboard.press("Escape")
    assert not sentence.is_visible()
    assert tab.locator("input[name=offer]:checked").count() == before, "nothing was chosen or sent"


def test_leaving_is_asked_by_the_keyboard_alone(tab: Page) -> None:
    show(tab, STATES["waiting-7"]())
    tab.focus("#gpu-leave-words")
    tab.keyboard.press("Enter")
    assert tab.inner_text("#gpu-leave-question") == "You are 7th. Leave?"
    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "gpu-stay"
    tab.keyboard.press("Enter")
    assert not tab.is_visible("#gpu-leave-question")


def test_without_script_and_with_forced_colours_everything_is_said_and_has_a_way_on(browser: Browser) -> None:
    context = browser.new_context(
        java_script_enabled=False, forced_colors="active", viewport={"width": 360, "height": 740}
    )
    page = context.new_page()
    show(page, STATES["waiting-7"]())
    assert page.inner_text("#gpu-headline") == "You are 7th in line for Medium GPU"
    assert page.inner_text("#gpu-figures") == "likely 25 min to 1 h 10 min · wait at most 2 h 10 min"
    page.click("#gpu-leave-words")
    assert page.get_attribute("#gpu-leave-ask a:visible", "href") == "/services/gpu/"
    show(page, STATES["failed"]())
    assert page.locator("#gpu-refused form[method=post] button").is_visible()
    show(page, STATES["stopped"]())
    assert "its GPU was idle for 30 min" in page.inner_text("#gpu-ended")
    assert page.get_attribute("#gpu-without", "href") == "/hub/spawn/ben?opt-offer=cpu"
    show(page, STATES["form-full"]())
    assert page.locator("input[name=offer]:checked").count() == 0 and page.is_visible("#spawn_form [type=submit]")
    assert page.evaluate("getComputedStyle(document.querySelector('.gpu-pill')).borderTopColor") != "rgba(0, 0, 0, 0)"
    context.close()


@pytest.mark.parametrize("state", ["form-12", "waiting-20", "failed", "home"])
def test_a_page_of_ours_weighs_little(state: str) -> None:
    whole = STATES[state]()
    weight = len(gzip.compress(whole.encode()))
    print(f"{state}: {weight} bytes with the hub's own markup, gzip")
    assert weight < MOST_BYTES
    assert re.search(r"<script[^>]+src=\"(?!/hub/static/)", whole) is None, "nothing comes from elsewhere"
