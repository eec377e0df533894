"""The admins' pages: whole without script, each action a form with a reason, for admins only, in their language."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from datetime import timedelta

import pytest

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.core import messages
from hub_extensions.core.gpu.devices import WHOLE, Device, DeviceState, Foreign, Placement
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.overview.cards import Card, Piece, PieceHolder, PieceState, cards_of_machine, emptying
from hub_extensions.core.overview.days import CountedUse
from hub_extensions.core.overview.health import HealthVerdict, judge_health
from hub_extensions.core.overview.view import Asked
from hub_extensions.core.queue.cordons import MACHINE, Cordon
from hub_extensions.core.queue.failed_starts import failure
from hub_extensions.core.text.reasons import explain
from hub_extensions.core.usage.right_size import FittingHours
from hub_extensions.hub_service.http.auth import Who
from hub_extensions.hub_service.http.pages import admin_labels
from hub_extensions.hub_service.http.pages.admin import ADMIN_PAGES
from hub_extensions.hub_service.http.pages.pages import Form
from hub_extensions.hub_service.http.pages.pictures import bars
from tests.fakes.engine import FULL, NOON, an_overview
from tests.hub_service.conftest import SECRET, Running
from tests.hub_service.http.test_pages import Outline

pytestmark = pytest.mark.slow

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SMALL = OfferId("mig-1g.5gb")
ORDERS = tuple(path for path, handler in ADMIN_PAGES if issubclass(handler, Form))


def piece(n: int, foreign: Foreign = Foreign.NONE, card: str = "GPU-a") -> DeviceState:
    place = Placement(n, 1)
    device = Device(
        f"MIG-{n}", "A100 40GB", profile="1g.5gb", gpu_instance_id=n, placement=place, parent_uuid=card,
        compute_slices=1, simulated=True,
    )  # fmt: skip
    return DeviceState(device, foreign)


def holder(n: int, user: str, use: float | None, state: str = "running") -> PieceHolder:
    device = piece(n).device.identity
    end = NOON + timedelta(hours=8)
    return PieceHolder(f"lease-{user}", user, "", SMALL, device, WHOLE, state, NOON, use, 5.0, end)


HOLDERS = (holder(0, "ada", 84.0), holder(1, "ben", 0.0), holder(2, "cem", None), holder(3, "dan", None, "ending"))
DEVICES = (*(piece(n) for n in range(5)), piece(5, Foreign.SOME))


def the_cards(*cordons: Cordon) -> tuple[Card, ...]:
    return cards_of_machine(DEVICES, HOLDERS, cordons)


def lease(each: PieceHolder) -> messages.LeaseInfo:
    stops = NOON + timedelta(minutes=9) if each.user == "ben" else None
    why = explain("idle", idle=timedelta(minutes=21)) if stops else None
    return messages.LeaseInfo(
        each.lease, each.user, "", each.offer, "MIG-0", "1g.5gb", 1.0, each.state, NOON, NOON, 4711, each.use_percent,
        stops, why.message if why else "", False, stop_why=why,
    )  # fmt: skip


WAITS = messages.TicketInfo(
    "t1", "eva", "lab", "waiting", (SMALL,), 1, NOON - timedelta(minutes=23),
    explain("in-use", total=5, title="X", ahead=0), "/jh/user/eva/",
)  # fmt: skip


def view(*cordons: Cordon, **changed: object) -> object:
    known = {each.lease: lease(each) for each in HOLDERS}
    starts = replace(WAITS, ticket="t2", user="fay", state="admitted", position=0)
    cards = the_cards(*cordons)
    plain = an_overview(*cards, people=(WAITS, starts), leases=known, machine=emptying(HOLDERS), cordons=cordons)
    return replace(plain, **changed)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def shown(service: Running) -> None:
    service.engine.view = view()


async def page(service: Running, path: str = "admin", language: str = "en") -> str:
    answer = await service.ask("GET", path, "admin-token", headers={"Accept-Language": language})
    assert answer.code == 200, answer.body
    text = answer.body.decode()
    assert Outline(text).open == []
    return text


def said(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


async def test_one_line_says_what_is_going_on_and_no_number_stands_twice_in_it(service: Running) -> None:
    text = await page(service)
    figures = re.findall(r"<b>(\d+)</b> ([^<]+)", text.split('<ul class="figures">')[1].split("</ul>")[0])
    assert [(number, words.strip()) for number, words in figures] == [
        ("1", "of 1 card in use"),
        ("4", "of 6 GPUs and parts of GPUs in use"),
        ("1", "busy"),
        ("1", "held but idle"),
        ("1", "held, use not known"),
        ("1", "starting or ending"),
        ("1", "free"),
        ("1", "used by other programs"),
        ("2", "in line, the longest 23 min"),
        ("0", "failed starts in 24 h"),
    ]
    assert "As of 2026-11-20 12:00 UTC · GPUs read at 2026-11-20 12:00 UTC" in said(text)
    assert "Simulated GPUs: there are no such cards." in text
    service.engine.view = view(on_cluster=True)
    assert "card in use" not in await page(service), "nobody counts the cards of a cluster's nodes"


async def test_health_is_one_line_that_unfolds_when_something_is_wrong(service: Running) -> None:
    assert '<details id="health"><summary class="well">✓ All is well' in await page(service)
    service.engine.view = view(health=HealthVerdict((explain("health-stops", stops=2), explain("health-notices"))))
    text = await page(service)
    assert '<details id="health" open><summary class="warning">⚠ 2 things are wrong' in text
    assert "2 stops have failed and are tried again." in text


async def test_a_card_is_a_bar_of_its_pieces_with_who_use_and_stop(service: Running) -> None:
    text = await page(service)
    bar = text.split('<ul class="bar">')[1].split("</ul>")[0]
    pieces = re.findall(r'<li class="piece ([\w-]+) w1">(.*?)</li>', bar, re.DOTALL)
    found = [(kind, said(words)) for kind, words in pieces]
    assert found == [
        ("busy", "ada 1g.5gb 84 %"),
        ("idle", "ben 1g.5gb idle, stops 2026-11-20 12:09 UTC"),
        ("use-unknown", "cem 1g.5gb use not known"),
        ("ending", "dan 1g.5gb ending"),
        ("free", "free 1g.5gb"),
        ("others", "used by other programs 1g.5gb"),
    ]
    assert "Idle for 21 min." in text and "ends at 2026-11-20 20:00 UTC at the latest" in said(text)
    assert text.index('<details class="uuid">') < text.index("<code>GPU-a</code>")
    assert text.count("admin/stop") == 3, "nothing is to be stopped that does not run"


@pytest.mark.parametrize(
    ("widths", "parts", "spans"),
    [
        ((142,) * 7, 7, [1] * 7),  # seven 1g
        ((285, 142, 142, 428), 7, [2, 1, 1, 3]),  # a 2g is twice a 1g
        ((571, 428), 7, [4, 3]),
        ((714, 285), 7, [5, 2]),
        ((1000,), 7, [7]),
        ((500, 250, 250), 56, [28, 14, 14]),
        ((100,) * 10, 56, [5] * 10),
        ((333,) * 3, 56, [18] * 3),
        ((71, 71), 56, [4, 4]),  # halves of a 1g
    ],
)
def test_a_bar_is_to_scale_and_never_longer_than_its_card(
    widths: tuple[int, ...], parts: int, spans: list[int]
) -> None:
    card = Card("GPU-a", "GPU-a", "", "A100", tuple(Piece("", width, PieceState.FREE) for width in widths))
    assert admin_labels.parts(card) == parts
    assert [admin_labels.width(each, parts) for each in card.pieces] == spans and sum(spans) <= parts


async def test_who_waits_is_told_why_and_can_be_taken_out_unless_the_server_starts(service: Running) -> None:
    text = (await page(service)).split('<section id="people"')[1]
    assert "1st in line · eva / lab" in said(text) and "X: all 5 are in use." in said(text)
    assert text.count("admin/take-out") == 1
    await service.ask("POST", "hub/tickets", SECRET, {"user": "eva", "server": "", "offers": ["mig-2g.10gb"]})
    answer = await service.ask("POST", "admin/take-out", "admin-token", b"ticket=t1&why=exam", FORM)
    assert answer.code == 303 and service.engine.ended_by == ["root: exam"]


async def test_a_drained_card_says_since_when_by_whom_why_and_when_it_is_empty_at_the_latest(service: Running) -> None:
    service.engine.view = view(Cordon("GPU-a", "root", "a new <fan>", NOON))
    text = await page(service)
    assert "Drained: nothing new starts. Since 2026-11-20 12:00 UTC . root: a new &lt;fan&gt;" in said(text)
    assert "4 servers are on it. It is empty at 2026-11-20 20:00 UTC at the latest." in said(text)
    assert 'name="place" value="GPU-a"' in text and "admin/undrain" in text
    assert '<li class="piece closed w1">' in text
    endless = [replace(each, ends_at=None) for each in HOLDERS]
    service.engine.view = view(Cordon(MACHINE, "root", "it moves", NOON), machine=emptying(endless))
    assert "When it is empty nobody can say: a server on it has no time limit." in said(await page(service))


@pytest.mark.parametrize(
    ("path", "body", "heard"),
    [
        ("admin/drain", "place=GPU-a&why=fan", ("drain", "GPU-a", "fan", "root")),
        ("admin/undrain", "place=machine&why=done", ("undrain", "machine", "done", "root")),
        ("admin/stop", "lease=lease-ada&minutes=5&why=exam", ("stop", "lease-ada", 5, "exam", "root")),
        ("admin/undo-stop", "lease=lease-ada", ("undo-stop", "lease-ada", "root")),
        ("admin/keep", "lease=lease-ada&hours=2&why=exam", ("keep", "lease-ada", 2, "exam", "root")),
        ("admin/letter", "place=GPU-a&why=six", ("letter", "GPU-a", "six", "root")),
        ("give-up", "lease=lease-dan&why=burnt", ("give-up", "lease-dan", "root", "burnt")),
    ],
)
async def test_each_order_has_the_admins_name_and_reason_and_leads_back_where_it_was(
    service: Running, path: str, body: str, heard: tuple[object, ...]
) -> None:
    sent = f"{body}&search=a%26b&show=idle&cards=2".encode()
    answer = await service.ask("POST", path, "admin-token", sent, FORM)
    assert (answer.code, answer.headers.get("Location")) == (
        303,
        "/jh/services/gpu/admin?search=a%26b&show=idle&cards=2",
    )
    assert service.engine.told[-1] == heard


@pytest.mark.parametrize(
    ("path", "body", "done", "told", "undo"),
    [
        ("admin/stop", "lease=lease-ada&minutes=5", "The server of ada stops. It stops at", "“an <exam>”", "undo-stop"),
        ("admin/keep", "lease=lease-ada&hours=2", "The server of ada is kept for 2 h.", "told nothing", ""),
        ("admin/undo-stop", "lease=lease-ada", "The order to stop the server of ada is taken back.", "next page", ""),
        ("admin/drain", "place=GPU-a", "Nothing new starts on ada.", "closed it: “an <exam>”", "undrain"),
        ("admin/undrain", "place=GPU-a", "Servers start on ada again.", "Nobody is told.", ""),
        ("admin/letter", "place=GPU-a", "The message went to 1 server on ada.", "cannot be taken back", ""),
        ("give-up", "lease=lease-dan", "The GPU of ada is given up.", "cannot be taken back", ""),
    ],
)
async def test_after_an_order_the_page_says_what_was_done_who_is_told_what_and_how_it_is_taken_back(
    service: Running, path: str, body: str, done: str, told: str, undo: str
) -> None:
    sent = f"{body}&about=ada&why=an <exam>".encode()
    assert (await service.ask("POST", path, "admin-token", sent, FORM)).code == 303
    text = await page(service)
    part = text.split('id="receipt"')[1].split("</div>")[0]
    receipt = html.unescape(said(part))
    assert done in receipt and told in receipt, receipt
    assert re.findall(
        r'action="/jh/services/gpu/admin/([a-z-]+)"', text.split('id="receipt"')[1].split("</div>")[0]
    ) == ([undo] if undo else [])
    unfolded = re.findall(r"<details open><summary>([^<]+)", text)
    assert "Who is on it, and what to do" in unfolded, "the card that it was about"
    await service.ask("POST", "admin/undo-stop", "admin-token", b"lease=lease-ada&about=ada", FORM)
    later = (await page(service)).split('id="receipt"')[1].split("</div>")[0]
    assert "admin/undo-stop" not in later, "there is nothing to take back any more"


@pytest.mark.parametrize(("path", "body"), [("admin/take-out", b"ticket=t1"), ("give-up", b"lease=lease-dan&why=%20")])
async def test_an_end_that_an_admin_makes_needs_a_reason(service: Running, path: str, body: bytes) -> None:
    await service.ask("POST", "hub/tickets", SECRET, {"user": "eva", "server": "", "offers": ["mig-2g.10gb"]})
    heard = list(service.engine.told)
    assert (await service.ask("POST", path, "admin-token", body, FORM)).code == 400
    assert (service.engine.told, service.engine.ended_by) == (heard, [])


@pytest.mark.parametrize("token", ["ada-token", "admin-access", "ada-default"])
async def test_nobody_but_an_admin_orders_anything(service: Running, token: str) -> None:
    before = list(service.engine.told)
    for path in ORDERS:
        body = b"place=GPU-a&lease=lease-ben&ticket=t1&minutes=0&hours=2&why=fan"
        answer = await service.ask("POST", path, token, body, FORM)
        assert answer.code == 403, path
    assert service.engine.told == before and service.engine.ended_by == []


async def test_every_form_of_the_pages_is_an_order_that_asks_for_the_pages_own_proof(service: Running) -> None:
    """Each reads the body, then asks who it is again, with the form's proof where it is a browser's cookie."""
    assert len(ORDERS) == 8
    for path, handler in ADMIN_PAGES:
        assert handler.who is Who.ADMIN
        if path in ORDERS:
            assert handler.post is Form.post and handler.authenticate is Form.authenticate
    service.engine.view = view(Cordon("GPU-a", "root", "fan", NOON))
    asked = set(
        re.findall(r'<(?:form method="post"|button type="submit")[^>]* (?:form)?action="([^"]+)"', await page(service))
    )
    assert asked <= {f"/jh/services/gpu/{path}" for path in ORDERS} and len(asked) > 3


async def test_an_order_that_cannot_be_is_a_page_that_says_why(service: Running) -> None:
    for path, body, code, words in (
        ("drain", b"place=refused&why=x", 409, "There is no such card in this machine."),
        ("stop", b"lease=l&minutes=now&why=x", 400, "minutes has to be a number."),
    ):
        answer = await service.ask("POST", f"admin/{path}", "admin-token", body, FORM)
        assert answer.code == code and words in answer.body.decode()


@pytest.mark.parametrize("path", ["admin", "admin/days", "admin/parts"])
async def test_nobody_but_an_admin_sees_the_pages(service: Running, path: str) -> None:
    assert (await service.ask("GET", path)).code == 302
    for token in ("ada-token", "admin-access"):
        assert (await service.ask("GET", path, token)).code == 403
    own = (await service.ask("GET", "", "ada-token")).body.decode()
    assert "services/gpu/admin" not in own
    assert 'href="/jh/services/gpu/admin"' in (await service.ask("GET", "", "admin-token")).body.decode()


async def test_rows_are_asked_for_by_the_address_and_a_word_that_is_none_is_refused(service: Running) -> None:
    await page(service, "admin?search=Ada&show=idle&cards=3&people=x")
    assert service.engine.told[-1] == ("overview", Asked("Ada", "idle", 3, 1))
    answer = await service.ask("GET", "admin?show=all", "admin-token")
    assert answer.code == 400 and "show has to be one of held, idle" in answer.body.decode()
    assert (await service.ask("GET", "admin/days?span=year", "admin-token")).code == 400


async def test_a_failed_start_shows_its_reason_and_the_last_lines_of_its_log(service: Running) -> None:
    failed = messages.FailedStart(
        NOON, "gus", "", SMALL, "Small GPU", failure("no-answer", "", 30), log="Traceback\nKeyError: 'x'"
    )
    service.engine.view = view(failed=messages.FailedStarts(14, (failed,)))
    text = await page(service)
    assert "14 failed starts in 24 h" in said(text)
    assert f"gus : {failed.reason.message}" in said(text) and "KeyError: &#39;x&#39;</pre>" in text


async def test_on_a_cluster_a_node_is_drained_by_a_button_only_where_the_service_may(service: Running) -> None:
    service.engine.view = view(on_cluster=True, may_drain=False)
    text = await page(service)
    assert "admin/drain" not in text and "kubectl cordon" in text and "admin/letter" in text
    service.engine.view = view(on_cluster=True)
    text = await page(service)
    assert "admin/drain" in text and "kubectl" not in text and "of no other program of the cluster either" in text


async def test_the_last_days_are_drawn_without_script_or_style_in_the_page(service: Running) -> None:
    began = NOON - timedelta(days=2)
    service.engine.past = (
        CountedUse(SMALL, ("ml",), began, began + timedelta(hours=6), "idle", True, 1.0, 600.0),
        CountedUse(SMALL, (), began, None, "", True, 0.5, 60.0),
        CountedUse(SMALL, (), began, began + timedelta(minutes=1), "failed", False, 1.0, None),
    )
    text = await page(service, "admin/days")
    assert "MIG 1g.5gb · 30 h" in said(text) and "ml · 6 h" in said(text) and "without a group · 24 h" in said(text)
    assert "2 starts · half of them waited no longer than 1 min · the longest 10 min" in said(text)
    assert "1 stopped as idle" in said(text) and text.count("<rect") >= 6
    assert not re.search(r"<svg[^>]*style=|<style|<script(?! src)", text)
    empty = await page(service, "admin/days?span=month")
    assert "30 h" in said(empty) and 'aria-current="true">30 days' in empty


async def test_the_share_of_hours_that_fitted_a_smaller_gpu_stands_by_pool_without_names(service: Running) -> None:
    assert "Sizes" not in said(await page(service, "admin/days"))
    service.engine.fitting = (
        FittingHours(SMALL, 12, 90.0, 0.0, 0.0),
        FittingHours("mig-2g.10gb", 41, 200.0, 62.0, 24.0),
    )
    text = said(await page(service, "admin/days"))
    assert ": 31 % of the hours fitted a smaller one, 12 % were not used 41 uses, 200 h" in text
    assert text.count("of the hours fitted") == 1, "the smallest has no smaller one"


@pytest.mark.parametrize("path", ["admin", "admin/days", "admin/parts"])
async def test_the_pages_are_whole_without_script_and_every_control_has_a_name(service: Running, path: str) -> None:
    service.engine.view = view(Cordon("GPU-a", "root", "fan", NOON))
    text = await page(service, path)
    outline = Outline(text)
    assert not re.search(r"\s(on\w+|style)=", text)
    assert all("aria-labelledby" in each for each in outline.all("section"))
    for form in re.findall(r"<form method=\"post\".*?</form>", text, re.DOTALL):
        assert 'name="_xsrf"' in form
    fields = re.sub(r"<label>.*?</label>|<input type=\"hidden\"[^>]*>", "", text, flags=re.DOTALL)
    assert "<input" not in fields and "<select" not in fields
    ids = [each["id"] for _, each in outline.seen if "id" in each]
    assert len(ids) == len(set(ids))


NODE = messages.NodePart("node-b", 7, 0, "it is cordoned", explain("node-cordoned"))
CLUSTER = messages.ClusterInfo(
    "", False, "", (messages.PoolInfo("mig-1g.5gb", "mig", "r", "A100", 5, 2, 1, ("mig-1g.5gb",), (NODE,)),),
    (messages.LeftOutInfo("node-b", NODE.why, NODE.reason),), ("mig-1g.5gb",), (),
)  # fmt: skip
DENIED = "denied by a policy"
RAW = {"answers, with figures of 2 of 2 devices", "1.2.3", "mig", "node-b"}
"""What another program said, and names."""


@pytest.mark.parametrize(("language", "words"), [("fi", "käytössä"), ("ja", "使用中")])
async def test_an_admin_reads_it_in_the_own_language_but_for_what_other_programs_said(
    service: Running, language: str, words: str
) -> None:
    """No text that the catalogue knows stands there in English, and what is marked as English is none of ours."""
    texts = [key for key in catalogue_for(language).texts if "\x04" not in key]
    ours = {piece.strip() for key in texts for piece in re.split(r"%\d", key) if len(piece.split()) > 2}
    ours -= {FULL.reason.message} if FULL.reason else set()  # of a newer version, whose code nobody here knows
    then = explain("server-crashed-with", code=1), explain("cluster-refuses", answer=DENIED)
    why = failure("no-answer", "", 30)
    failed = messages.FailedStart(NOON, "gus", "", SMALL, "Small GPU", why, log="KeyError: x", then=then)
    service.engine.cluster_info = CLUSTER
    service.engine.view = view(
        Cordon("GPU-a", "root", "uusi", NOON),
        failed=messages.FailedStarts(1, (failed,)),
        health=HealthVerdict(tuple(judge_health(service.engine.health()).findings)),
    )
    for path in ("admin", "admin/parts", "admin/days", "audit"):
        text = await page(service, path, language)
        english = re.findall(r'<(\w+)[^>]* lang="en"[^>]*>([^<]*)', text)
        marked = {raw for tag, raw in english if tag not in ("pre", "html")}
        assert marked <= {DENIED, *RAW} and (DENIED in marked) == (path == "admin"), path
        whole = html.unescape(said(re.sub(r"<(?:pre|script).*?</(?:pre|script)>", "", text, flags=re.DOTALL)))
        assert [piece for piece in ours if piece in whole] == [], path
    assert words in await page(service, language=language)


def test_a_bar_is_never_higher_than_its_picture_and_what_is_little_is_seen() -> None:
    found = bars([0.0, 5.0, None, 10.0, 0.001], 10.0)
    assert [(bar.x, bar.y, bar.height) for bar in found] == [(10, 20.0, 20.0), (30, 0.0, 40.0), (40, 39.0, 1.0)]
    assert bars([1.0], 0.0) == ()
