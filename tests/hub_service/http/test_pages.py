"""The pages: whole without script, escaped, every number with its time; names of others for admins only."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.core import messages
from hub_extensions.core.messages import ForecastRecord, ForecastReport, Health, TicketInfo, Wait
from hub_extensions.core.messages.offer_texts import ahead, free_text, place_text, wait_text
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.failed_starts import failure
from hub_extensions.core.text.reasons import explain
from hub_extensions.core.usage import UseEnd
from hub_extensions.hub_service.http.pages import labels
from hub_extensions.hub_service.http.pages.own_uses import busy_text, end_text
from tests.fakes.engine import NOON, offer
from tests.fakes.reasons import because
from tests.hub_service.conftest import SECRET, Running
from tests.hubs import ROOT

VOID = {"meta", "link", "input", "br", "img"}


class Outline(HTMLParser):
    """Checks that tags close in order and collects what a test wants to know."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]


async def page(service: Running, token: str, path: str = "") -> str:
    answer = await service.ask("GET", path, token)
    assert answer.code == 200
    text = answer.body.decode()
    outline = Outline(text)
    assert outline.open == []
    return text


async def join(service: Running, user: str, server: str = "") -> None:
    await service.ask("POST", "hub/tickets", SECRET, {"user": user, "server": server, "offers": ["mig-2g.10gb"]})


async def test_the_one_screen_for_students_is_that_of_the_docs_or_the_admins_own(service: Running) -> None:
    written = re.sub(r"[|\n]+", " ", (ROOT / "docs" / "student.md").read_text(encoding="utf-8").replace("*", ""))
    main = re.search(r"<h1>.*?(?=<p class=.actions)", await page(service, "ada-token", "help"), re.DOTALL)
    assert main
    parts = re.split(r"</?(?:p|div|t[rhd]|thead|tbody|table|h1)\b[^>]*>", main[0])
    read = [" ".join(unescape(re.sub(r"<[^>]+>", "", part)).split()) for part in parts if part.strip()]
    assert len(read) > 20 and [part for part in read if part not in " ".join(written.split())] == []
    service.parts.help_url = "https://lab.example/gpu"
    answer = await service.ask("GET", "help", "ada-token")
    assert (answer.code, answer.headers["Location"]) == (302, "https://lab.example/gpu")


async def test_a_user_sees_own_servers_place_in_line_and_offers(service: Running) -> None:
    service.engine.run_server("ada", "thesis")
    await join(service, "ada", "other")
    text = await page(service, "ada-token")
    assert 'href="/jh/user/ada/thesis/"' in text
    assert re.search(r"Stops at <time[^>]*>[^<]*</time>, in .*Idle for 21 min\.", text, re.DOTALL)
    assert "Keep 30 min" in text and "Keep: 1 of 2 left in 24\u00a0h" in text
    assert "1st in line" in text and 'href="/jh/hub/spawn-pending/ada/other"' in text
    assert "2 of 5 free" in text and "starts now" not in text, "free says it"
    assert "wait at most 2 h 10 min" in text
    assert "not known" in text
    assert "Simulated GPU." in text


async def test_nobody_but_an_admin_reads_another_users_name_or_device(service: Running) -> None:
    service.engine.run_server("ben", "bens-work")
    await join(service, "ben", "bens-other")
    text = await page(service, "ada-token")
    for word in ("ben", "bens-work", "MIG-ben", "All GPUs", "4711"):
        assert not re.search(rf"\b{word}\b", text), word


async def test_an_admin_reads_for_each_offer_who_measures_it_and_what_to_do(service: Running) -> None:
    text = await page(service, "admin-token", "admin/parts")
    (row,) = re.findall(
        r"<tr>(?:(?!</tr>).)*Prometheus has no series that names its pod(?:(?!</tr>).)*</tr>", text, re.DOTALL
    )
    said = " ".join(re.sub(r"<[^>]+>", " ", row).split())
    assert said.startswith("mig-1g.5gb DCGM, by your Prometheus 1 of 2 servers, figures at most 12 s old")
    assert "Who measures the use" not in await page(service, "ada-token")


async def test_what_is_read_at_another_time_than_the_page_says_so(service: Running) -> None:
    service.engine.cluster_info = CLUSTER
    text = await page(service, "admin-token", "admin/parts")
    assert re.search(r'id="asof">As of <time', text)
    assert re.search(r"<caption>GPUs as read at <time", text)
    assert '<th scope="col">Free' in text and text.count(">Free<") == 1, "a machine's figures stand under Now"


async def test_the_parts_are_in_the_admins_language_and_what_programs_say_is_marked_as_english(
    service: Running,
) -> None:
    service.engine.cluster_info = CLUSTER
    answer = await service.ask("GET", "admin/parts", "admin-token", headers={"Accept-Language": "fi"})
    text = answer.body.decode()
    assert '<h2 id="evidence-title">Kuka mittaa käytön</h2>' in text and "Who measures" not in text
    assert re.search(r'<td data-name="[^"]+" lang="en">it is cordoned</td>', text)


async def test_an_admin_reads_of_a_stop_that_failed_who_it_is_and_what_to_do(service: Running) -> None:
    failed = messages.FailedStop(
        "ben", "", "gpu", NOON, "alive", 2, NOON + timedelta(minutes=1), "The hub calls it stopped.", "End it by hand."
    )
    service.engine.culling_view = messages.CullingView(NOON, (), (failed,))
    text = " ".join(re.sub(r"<[^>]+>", "", await page(service, "admin-token", "admin/parts")).split())
    assert (
        "ben / Default server (gpu): not stopped since 2026-11-20 12:00 UTC, 2 tries. The hub calls it stopped. "
        "It is tried again at 2026-11-20 12:01 UTC. End it by hand." in text
    )
    assert "Stops that have failed" not in await page(service, "ada-token")
    service.engine.culling_view = messages.CullingView(NOON, (), ())
    assert "Stops that have failed" not in await page(service, "admin-token", "admin/parts")


async def test_an_admin_reads_first_that_the_policy_file_cannot_be_used(service: Running) -> None:
    assert "The policy file of culling" not in await page(service, "admin-token", "admin/parts")
    service.engine.policy_problem = "not in force, the 3 rule(s) of before are: policy.yaml: line 4: idel: <not known>"
    text = await page(service, "admin-token", "admin/parts")
    said = "not in force, the 3 rule(s) of before are: policy.yaml: line 4: idel: &lt;not known&gt;"
    assert f'<p class="warning" lang="en">{said}</p>' in text
    assert said not in await page(service, "ada-token")


CLUSTER = messages.ClusterInfo(
    problem="",
    configured=False,
    queue="",
    pools=(
        messages.PoolInfo(
            "mig-1g.5gb",
            "mig",
            "nvidia.com/mig-1g.5gb",
            "NVIDIA-A100",
            5,
            2,
            1,
            ("mig-1g.5gb",),
            (messages.NodePart("node-a", 5, 2, ""), messages.NodePart("node-b", 7, 0, "it is cordoned")),
        ),
    ),
    left_out=(messages.LeftOutInfo("node node-b", "it is cordoned"),),
    blocked_offers=("mig-1g.5gb",),
    orphaned_pods=(messages.ForgottenPod("jupyter-old", "hub", "node-a", "old", "", "mig-1g.5gb", 90.0, False),),
)


async def test_an_admin_of_a_cluster_sees_where_the_offers_are_from_and_what_the_hub_has_forgotten(
    service: Running,
) -> None:
    service.engine.cluster_info = CLUSTER
    text = await page(service, "admin-token", "admin/parts")
    for told in ("node-a", "it is cordoned", "jupyter-old", "something outside this hub took the GPU"):
        assert told in text
    assert "jupyter-old" not in await page(service, "ada-token")


async def test_a_cluster_is_counted_for_prometheus(service: Running) -> None:
    service.engine.cluster_info = CLUSTER
    text = (await service.ask("GET", "metrics", "admin-token")).body.decode()
    assert 'jupyterhub_gpu_pool_devices{pool="mig-1g.5gb",state="free"} 2.0' in text
    assert 'jupyterhub_gpu_pool_nodes{pool="mig-1g.5gb",usable="no"} 1.0' in text
    assert "jupyterhub_gpu_orphaned_pods 1.0" in text


async def test_times_leave_in_utc_and_machine_readable(service: Running) -> None:
    text = await page(service, "ada-token")
    assert '<time datetime="2026-11-20T12:00:00Z">2026-11-20 12:00 UTC</time>' in text


@pytest.mark.parametrize("token", ["ada-token", "admin-token"])
async def test_titles_and_names_are_escaped(service: Running, token: str) -> None:
    """T8: an admin's title with HTML in it stays text."""
    service.engine.run_server("ada", '"><script>alert(1)</script>')
    text = await page(service, token)
    assert "MIG 2g.10gb &lt;b&gt;" in text
    assert "<script>alert" not in text
    assert "MIG 2g.10gb <b>" not in text


async def test_the_page_is_whole_without_script_and_refreshes_itself(service: Running) -> None:
    text = await page(service, "ada-token")
    assert '<noscript><meta http-equiv="refresh" content="20"></noscript>' in text
    assert not re.search(r"\son\w+=", text)


async def test_the_pages_load_nothing_from_elsewhere_and_cannot_be_framed(service: Running) -> None:
    answer = await service.ask("GET", "", "ada-token")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    for name in ("page.css", "page.js"):
        assert (await service.ask("GET", f"static/{name}", "ada-token")).code == 200
    assert (await service.ask("GET", "static/page.map", "ada-token")).code == 404


async def test_every_control_and_column_has_a_name(service: Running) -> None:
    service.engine.run_server("ada", "thesis")
    await join(service, "ada")
    outline = Outline(await page(service, "admin-token", "admin/parts"))
    assert all(attributes.get("scope") in ("col", "row") for attributes in outline.all("th"))
    assert all("aria-labelledby" in attributes for attributes in outline.all("section"))
    assert [each["lang"] for each in outline.all("main")] == ["en"]


async def test_leaving_and_keeping_from_the_page_lead_back_to_it(service: Running) -> None:
    service.engine.run_server("ada", "thesis")
    await join(service, "ada", "other")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    kept = await service.ask("POST", "keep", "ada-token", b"server=thesis", form)
    left = await service.ask("POST", "leave", "ada-token", b"ticket=t1", form)
    assert [(answer.code, answer.headers["Location"]) for answer in (kept, left)] == [(303, "/jh/services/gpu/")] * 2
    assert ("keep", "ada", "thesis") in service.engine.told
    assert service.engine.queue == {}


async def test_nobody_leaves_for_somebody_else_from_the_page(service: Running) -> None:
    await join(service, "ben")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await service.ask("POST", "leave", "ada-token", b"ticket=t1", form)
    assert answer.code == 404
    assert "There is no such ticket of yours." in answer.body.decode()
    assert "t1" in service.engine.queue


async def test_a_service_of_the_same_name_as_a_user_is_not_that_user(service: Running) -> None:
    service.hub.add_token("service-ada", "ada", "access:services!service=gpu", kind="service")
    service.engine.run_server("ada", "thesis")
    await join(service, "ada", "other")
    answers = [
        await service.ask("GET", "", "service-ada"),
        await service.ask("POST", "keep", "service-ada", b"server=thesis"),
        await service.ask("POST", "leave", "service-ada", b"ticket=t1"),
    ]
    assert [answer.code for answer in answers] == [403, 403, 403]
    for answer in answers:
        text = answer.body.decode()
        assert "This is for users" in text
        assert "thesis" not in text and "MIG-ada" not in text
    assert "t1" in service.engine.queue
    assert not [told for told in service.engine.told if told[0] == "keep"]


async def test_a_server_that_is_not_counted_down_says_when_it_would_stop(service: Running) -> None:
    service.engine.run_server("ada", "thesis", countdown=None, rule=because("Stops when its GPU is idle for 30 min."))
    assert "Stops when its GPU is idle for 30 min." in await page(service, "ada-token")


async def test_an_admin_reads_how_good_the_forecast_is_and_when_it_is_told_as_rough(service: Running) -> None:
    service.engine.forecast = ForecastReport(
        (
            ForecastRecord("mig-1g.5gb", 60, 0.75, 0.5, 300.0, True, 84, 9),
            ForecastRecord("mig-2g.10gb", 200, 0.9, 0.81, 90.0, False, 400, 31),
            ForecastRecord("mig-4g.20gb", 200, 0.9, 0.81, 90.0, True, 400, 31, True),
            ForecastRecord("gpu", 150, 1.0, 1.0, 60.0, True, 30, 1),
            ForecastRecord("mig-3g.20gb", 0, None, None, None, True, 3),
        ),
        NOON,
        12.5,
        0.4,
    )
    text = await page(service, "admin-token", "admin/parts")
    section = text.split('<section id="forecast"')[1].split("</section>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in section.split("<tbody>")[1].split("</tr>")[:-1]]
    assert rows == [
        ["mig-1g.5gb", "84", "60", "9", "75 %", "50 %", "5 min", "marked as rough: P90 covers too few or too many"],
        ["mig-2g.10gb", "400", "200", "31", "90 %", "81 %", "2 min", "shown as it is"],
        [
            "mig-4g.20gb",
            "400",
            "200",
            "31",
            "90 %",
            "81 %",
            "2 min",
            "marked as rough: the median of earlier waits was closer",
        ],
        ["gpu", "30", "150", "1", "100 %", "100 %", "1 min", "marked as rough: 1 of 8 busy times"],
        [
            "mig-3g.20gb",
            "3",
            "0",
            "0",
            "not known",
            "not known",
            "not known",
            "not enough data yet: 3 of 20 finished uses",
        ],
    ]
    assert "They took 0.4 s to compute." in section
    listed = json.loads((await service.ask("GET", "api/forecasts", "admin-token")).body)
    assert [pool["pool"] for pool in listed["pools"]] == [
        "mig-1g.5gb",
        "mig-2g.10gb",
        "mig-4g.20gb",
        "gpu",
        "mig-3g.20gb",
    ]
    assert "How good is the forecast here?" in text
    assert "How good is the forecast here?" not in await page(service, "ada-token")


async def test_likely_waits_say_of_when_they_are(service: Running) -> None:
    assert "Likely waits as of" not in await page(service, "ada-token")
    likely = Wait(False, 1500, 2400, 4200, 7800, explain("usually-end", ending=1, total=5, title="T"), NOON)
    service.engine.offers = (replace(service.engine.offers[0], wait=likely), *service.engine.offers[1:])
    text = await page(service, "ada-token")
    assert 'Likely waits as of <time datetime="2026-11-20T12:00:00Z">' in text
    said = " ".join(re.sub(r"<[^>]+>", " ", text).split())
    assert "likely 25 min to 1 h 10 min, wait at most 2 h 10 min T: 1 of 5 in use usually ends within the hour." in said


async def test_ones_own_page_speaks_the_language_of_its_readers_browser(service: Running) -> None:
    service.engine.run_server("ada", "thesis", rule=explain("rule-cpu", quiet=3600.0), countdown=None)
    await join(service, "ada", "other")
    for asked, language, words in (
        (
            "fi-FI,fi;q=0.9,en;q=0.8",
            "fi-FI",
            (
                "Viimeisimmät käyttösi",
                "jonossa sijalla 1",
                "enintään 2 h 10 min",
                "Tilanne: ",
                "Sen aika oli täynnä",
            ),
        ),
        (
            "ja",
            "ja-JP",
            ("最近の利用", "列で 1 番目", "最長 2 時間 10 分", "1 人います", "終了時刻が来て"),
        ),
        ("sv,en", "en", ("Your last uses", "1st in line", "wait at most 2 h 10 min")),
    ):
        answer = await service.ask("GET", "", "ada-token", headers={"Accept-Language": asked})
        text = answer.body.decode()
        assert f'id="gpu" lang="{language}">' in text
        for word in words:
            assert word in text, word
    lost = await service.ask("POST", "keep", "ada-token", b"server=nothere", headers={"Accept-Language": "fi"})
    assert "Se ei onnistunut" in lost.body.decode()


HUBS_PAGE = """<!DOCTYPE HTML>
<html lang="en"><head><title>@@gpu-title@@</title><style>nav { color: red }</style>
<link rel="stylesheet" href="/jh/hub/static/css/style.min.css?v=1" />
<script src="/jh/hub/static/js/darkmode.js"></script>
<script>window.jhdata = {"user": "<b>"};</script></head>
<body><noscript>JupyterHub requires JavaScript.</noscript><!-- x -->
<nav id="hubs">Fish &amp; chips <a href="/jh/hub/logout">Logout</a></nav>
@@gpu-main@@<footer>Our university</footer><script>require([]);</script></body></html>"""


async def test_a_page_stands_in_the_hubs_own_and_no_script_of_it_comes_along(service: Running) -> None:
    service.hub.frame = HUBS_PAGE
    service.engine.run_server("ada", "@@gpu-head@@")
    answer = await service.ask("GET", "", "ada-token", headers={"Accept-Language": "fi"})
    assert service.engine.languages == {"ada": "fi-FI"}, "mails speak it, too"
    text = answer.body.decode()
    assert Outline(text).open == []
    assert '<nav id="hubs">Fish &amp; chips <a href="/jh/hub/logout">Logout</a></nav>' in text
    assert "<footer>Our university</footer>" in text and 'id="gpu" lang="fi-FI"' in text
    assert "<title>Oma GPU</title>" in text and text.index("page.css") < text.index("</head>")
    scripts = Outline(text).all("script")
    assert [each["src"] for each in scripts] == ["/jh/hub/static/js/darkmode.js", "/jh/services/gpu/static/page.js"]
    assert "jhdata" not in text and "require" not in text
    assert "@@gpu-head@@" in text and "@@gpu-main@@" not in text
    digest = base64.b64encode(hashlib.sha256(b"nav { color: red }").digest()).decode()
    assert f"style-src 'self' 'sha256-{digest}';" in answer.headers["Content-Security-Policy"]
    assert "script-src 'self';" in answer.headers["Content-Security-Policy"]


async def test_the_hub_is_asked_once_for_what_stands_around_a_page_and_not_while_it_gives_none(
    service: Running,
) -> None:
    def times() -> int:
        return service.hub.asked.count("/hub/api/gpu/frame")

    await page(service, "ada-token")
    await page(service, "ada-token")
    assert times() == 1
    text = await page(service, "admin-token")
    assert 'href="/jh/hub/static/css/style.min.css"' in text and 'href="/jh/hub/logout"' in text


async def test_a_wrong_address_is_a_page_for_people_and_json_for_programs(service: Running) -> None:
    service.hub.frame = HUBS_PAGE
    people = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Accept-Language": "fi"}
    for path in ("nowhere", "api/nowhere", "static/page.map"):
        seen = await service.ask("GET", path, "ada-token", headers=people)
        assert seen.code == 404 and seen.headers["Content-Type"].startswith("text/html"), path
        text = seen.body.decode()
        assert ("Tässä osoitteessa ei ole mitään." in text and 'id="hubs"' in text) or path.startswith("static")
        assert 'href="/jh/services/gpu/"' in text and "Content-Security-Policy" in seen.headers
    stranger = await service.ask("GET", "nowhere", headers=people)
    assert stranger.code == 404 and 'id="hubs"' not in stranger.body.decode()
    for accepts in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
        answer = await service.ask("GET", "nowhere", "ada-token", headers=accepts)
        assert json.loads(answer.body)["message"] == "There is nothing at this address."
    refused = await service.ask("GET", "api/leases", "ada-token", headers=people)
    assert refused.code == 403 and refused.headers["Content-Type"].startswith("text/html")


def record(end: str, hours: float, **known: Any) -> messages.UsageRecord:
    ended = datetime.now(timezone.utc) - timedelta(hours=hours)
    made = messages.UsageRecord("l1", "ada", "", OfferId("mig-1g.5gb"), "mig-1g.5gb", 143, ended, end)
    return replace(made, **{"ready": ended - timedelta(minutes=74), "ran_seconds": 4440.0, **known})


async def test_one_reads_when_how_long_how_busy_and_how_the_last_ten_uses_ended(service: Running) -> None:
    service.engine.uses = tuple(record("idle", hours, mean_use_percent=61.6) for hours in range(1, 13))
    text = await page(service, "ada-token")
    said = " ".join(re.sub(r"<[^>]+>", " ", text).split())
    assert said.count("1 h 14 min MIG 1g.5gb, 62 % busy on average stopped: its GPU was idle") == 10
    assert re.search(r"Ended at [-0-9: ]+ UTC . Why: stopped: its GPU was idle\.", said)
    assert 'href="/jh/hub/spawn?opt-offer=mig-1g.5gb">Start again</a>' in text
    service.engine.uses = (replace(record("idle", 1), server="my thesis"),)
    named = await page(service, "ada-token")
    assert 'href="/jh/hub/spawn/ada/my%20thesis?opt-offer=mig-1g.5gb">Start again</a>' in named
    service.engine.run_server("ada", "thesis")
    assert "Start again" not in await page(service, "ada-token")


async def test_after_a_use_one_reads_that_a_smaller_gpu_would_have_been_enough(service: Running) -> None:
    medium = OfferId("mig-2g.10gb")
    service.engine.offers = tuple(
        replace(each, name="Small GPU", memory_bytes=19 * 2**28) if each.id == "mig-1g.5gb" else each
        for each in service.engine.offers
    )
    told = {"smaller_would_do": "mig-1g.5gb", "advice": "enough-was-free", "peak_memory_bytes": int(3.1 * 2**30)}
    service.engine.uses = (record("idle", 1, offer=medium, waited_seconds=725.0, **told), record("user", 4))
    text = await page(service, "ada-token")
    words = "At most 3.1 of 9.75 GiB. <strong>A small GPU (4.75 GiB) would have been enough.</strong> You would have"
    assert text.count(f"{words} waited 12 min less.") == 2, "in the row, and of the server that ended last"
    answer = await service.ask("GET", "", "ada-token", headers={"Accept-Language": "fi"})
    finnish = "<strong>Pieni GPU (4.75 GiB) olisi riittänyt.</strong> Olisit odottanut 12 min vähemmän."
    assert finnish in answer.body.decode()
    service.engine.offers = tuple(each for each in service.engine.offers if each.id != "mig-1g.5gb")
    assert "would have been enough" not in await page(service, "ada-token"), "it is not for this user any more"


async def test_a_start_that_failed_is_told_in_the_sentence_of_the_waiting_page(service: Running) -> None:
    """It has lost no variables, and says what became of its GPU."""
    service.engine.uses = (record("failed", 1, ready=None),)
    offer = OfferId("mig-1g.5gb")
    service.engine.failed = (messages.FailedStart(NOON, "ada", "", offer, "Small GPU", failure("crashed", "")),)
    said = " ".join(re.sub(r"<[^>]+>", " ", await page(service, "ada-token")).split())
    assert "ended by itself before it answered." in said and "Your GPU was given back. It failed at" in said
    assert "variables are lost" not in said and "Your server was not started" in said
    service.engine.failed = ()  # a pod that crashed, of which the hub never said why
    said = " ".join(re.sub(r"<[^>]+>", " ", await page(service, "ada-token")).split())
    assert "Your server was not started It failed at" in said


async def test_what_a_cluster_did_is_told_in_the_readers_language_and_its_words_are_marked(
    service: Running,
) -> None:
    """Also what an older version wrote down, which has English words alone."""
    crash, denied = explain("server-crashed-with", code=1), explain("cluster-refuses", answer="no <gpu>")
    offer = OfferId("mig-1g.5gb")
    service.engine.uses = (record("failed", 1, ready=None),)
    service.engine.failed = (
        messages.FailedStart(NOON, "ada", "", offer, "Small GPU", crash, then=(explain("start-again"), denied)),
    )
    service.engine.notices = (
        messages.Notice(NOON, "", crash.message, (crash,)), messages.Notice(NOON, "", "The machine it ran on failed.")
    )  # fmt: skip
    told = 'Palvelin kaatui paluukoodilla 1. Käynnistä se uudelleen. Klusteri ei ota tätä palvelinta: <span lang="en">'
    answer = await service.ask("GET", "", "ada-token", headers={"Accept-Language": "fi"})
    text = answer.body.decode()
    assert f"{told}no &lt;gpu&gt;</span>." in text
    assert "Palvelin kaatui paluukoodilla 1.</li>" in text
    assert '<span lang="en">The machine it ran on failed.</span></li>' in text


async def test_the_bar_of_an_offer_is_as_long_as_its_share_of_the_card(service: Running) -> None:
    bars = Outline(await page(service, "ada-token")).all("rect")
    assert bars and all(0 < float(str(bar["width"])) <= 100 for bar in bars)


@pytest.mark.parametrize(
    "uses", [(), (record("user", 1),), (record("idle", 25),)], ids=["none", "own wish", "long ago"]
)
async def test_an_end_that_one_wanted_or_that_is_long_ago_is_not_told_first(
    service: Running, uses: tuple[messages.UsageRecord, ...]
) -> None:
    service.engine.uses = uses
    text = await page(service, "ada-token")
    assert "You have no server now." in text and "Ended at" not in text


async def test_an_offer_is_started_from_its_card_unless_a_server_is_there(service: Running) -> None:
    outline = Outline(await page(service, "ada-token"))
    starts = [each["href"] for each in outline.all("a") if "/spawn?" in str(each["href"])]
    assert starts == [f"/jh/hub/spawn?opt-offer={each}" for each in ("mig-2g.10gb", "mig-1g.5gb", "gpu-0.5", "cpu")]
    service.engine.run_server("ada", "")
    text = await page(service, "ada-token")
    assert "/spawn?" not in text and "To change, stop your server" in text


@pytest.mark.parametrize("end", UseEnd)
def test_every_end_of_a_use_has_words(end: UseEnd) -> None:
    assert (end_text(record(end.value, 1)) == "not known how it ended") is (end is UseEnd.UNKNOWN)


def test_a_use_that_was_not_measured_is_not_called_idle() -> None:
    assert busy_text(record("user", 1)) == "use not known"
    assert busy_text(record("user", 1, mean_use_percent=0.0)) == "0 % busy on average"
    partly = record("user", 1, mean_use_percent=40.0, use_measured=0.5)
    assert busy_text(partly) == "40 % busy on average, in the 50 % of the time that was measured"
    assert busy_text(record("failed", 1, ready=None, mean_use_percent=0.0)) == "use not known"
    assert end_text(record("failed", 1, ready=None)) == "the start failed"


async def test_the_pages_own_weight_is_small(service: Running) -> None:
    service.engine.uses = tuple(record("idle", hours) for hours in range(10))
    texts = [(await service.ask("GET", path, "admin-token")).body for path in ("", "static/page.css", "static/page.js")]
    weight = sum(len(gzip.compress(text)) for text in texts)
    print(f"one's own page, style and script: {weight} B gzip")
    assert weight < 25_000


async def test_an_error_is_a_page_with_the_way_back(service: Running) -> None:
    answer = await service.ask("POST", "keep", "ada-token", b"server=nothere")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert 'href="/jh/services/gpu/"' in answer.body.decode()
    assert Outline(answer.body.decode()).open == []


def test_a_likely_wait_is_an_interval_and_unknown_is_not_zero() -> None:
    assert (
        wait_text(Wait(False, 1500, 2400, 4200, 7800, None)) == "likely 25 min to 1 h 10 min, wait at most 2 h 10 min"
    )
    assert wait_text(Wait(False, 1500, 2400, 4200, None, None, note="rough")) == "likely 25 min to 1 h 10 min (rough)"
    wide = Wait(False, 900, 2400, 7200, 7800, None, wide=True)
    assert wait_text(wide) == "likely roughly 15 min to 2 h, wait at most 2 h 10 min"
    few = Wait(False, None, None, None, 7800, None, note="few-data")
    assert wait_text(few) == "not enough data yet, wait at most 2 h 10 min"
    assert wait_text(Wait(False, None, None, None, None, None, note="few-data")) == "not enough data yet"
    assert wait_text(Wait(False, None, None, None, None, None)) == "wait not known"


@pytest.mark.parametrize(
    ("language", "wide", "narrow"),
    [
        ("", "likely roughly 15 min to 2 h", "likely 25 min to 1 h 10 min (rough)"),
        ("fi-FI", "todennäköisesti karkeasti 15 min–2 h", "todennäköisesti 25 min–1 h 10 min (karkea arvio)"),
        ("ja-JP", "おそらく おおよそ 15 分～2 時間", "おそらく 25 分～1 時間 10 分（おおよそ）"),
    ],
)
def test_a_wait_that_is_wide_and_rough_says_so_once(language: str, wide: str, narrow: str) -> None:
    t = catalogue_for(language)
    for note in ("", "rough"):
        assert wait_text(Wait(False, 900, 2400, 7200, None, None, note=note, wide=True), t) == wide
    assert wait_text(Wait(False, 1500, 2400, 4200, None, None, note="rough"), t) == narrow


def test_what_is_free_while_others_wait_is_not_said_to_be_there_for_the_taking() -> None:
    asked = Wait(False, None, None, None, None, None)
    one = replace(offer("mig-1g.5gb", "MIG 1g.5gb", 1, asked), waiting=2)
    own = TicketInfo("t1", "ada", "", "waiting", ("mig-1g.5gb",), 1, NOON, "", "")
    assert free_text(one, ahead(one, ()))[1] == "1 of 5 free, 2 ahead"
    assert free_text(one, ahead(one, (own,)))[1] == "1 of 5 free"
    assert free_text(one, ahead(one, (replace(own, position=2),)))[1] == "1 of 5 free, 1 ahead"
    assert free_text(one, ahead(one, (replace(own, offers=("gpu",)),)))[1] == "1 of 5 free, 2 ahead"
    assert free_text(replace(one, free=0), 2)[1] == "full"
    assert free_text(replace(one, wait=replace(asked, now=True)), 2)[1] == "1 of 5 free"


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd")]
)
def test_places_are_ordinals(number: int, text: str) -> None:
    assert place_text("waiting", number) == f"{text} in line"


def test_health_says_not_known_rather_than_nothing() -> None:
    assert dict(labels.health_rows(Health(False)))["Store"] == "not known"


def test_an_admin_reads_on_the_page_how_the_last_notice_went() -> None:
    failed = {"mail": "none taken yet, failed last at 2026-11-20T12:00:00+00:00: The mail server refuses it (554)."}
    assert ("Notices by mail", failed["mail"]) in labels.health_rows(Health(True, notices=failed))
    assert not [name for name, _ in labels.health_rows(Health(True)) if "Notices" in name]
