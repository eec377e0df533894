"""The pages: whole without script, escaped, every number with its time; names of others for admins only."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from hub_extensions.core import messages
from hub_extensions.core.messages import ForecastRecord, ForecastReport, Health, TicketInfo, Wait
from hub_extensions.core.offer_texts import ahead, free_text, place_text, wait_text
from hub_extensions.core.reasons import explain
from hub_extensions.hub_service.http.pages import labels
from tests.fakes.engine import NOON, offer
from tests.fakes.reasons import because
from tests.hub_service.conftest import SECRET, Running

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
        assert self.open.pop() == tag

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


async def test_a_user_sees_own_servers_place_in_line_and_offers(service: Running) -> None:
    service.engine.run_server("ada", "thesis")
    await join(service, "ada", "other")
    text = await page(service, "ada-token")
    assert 'href="/jh/user/ada/thesis/"' in text
    assert "Idle for 21 min. Stops at" in text
    assert "Keep 30 min" in text and "1 of 2 left in 24\u00a0h" in text
    assert "1st in line" in text and 'href="/jh/hub/spawn-pending/ada/other"' in text
    assert "2 of 5 free" in text and "starts now" in text
    assert "at most 2 h 10 min" in text
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
    (row,) = re.findall(r"<tr>(?:(?!</tr>).)*Prometheus has no series\.(?:(?!</tr>).)*</tr>", text, re.DOTALL)
    said = " ".join(re.sub(r"<[^>]+>", " ", row).split())
    assert said.startswith("mig-1g.5gb DCGM, by your Prometheus 1 of 2 servers, figures at most 12 s old")
    assert "Who measures the use" not in await page(service, "ada-token")


async def test_every_table_says_as_of_when(service: Running) -> None:
    service.engine.run_server("ben", "")
    await join(service, "ada")
    text = await page(service, "admin-token", "admin/parts")
    tables = text.split("<table>")[1:]
    assert len(tables) == 4
    for table in tables:
        assert re.search(r"<caption>[^<]*<time datetime=\"\d{4}-", table)


async def test_an_admin_reads_of_a_stop_that_failed_who_it_is_and_what_to_do(service: Running) -> None:
    failed = messages.FailedStop(
        "ben", "", "gpu", NOON, "alive", 2, NOON + timedelta(minutes=1), "The hub calls it stopped.", "End it by hand."
    )
    service.engine.culling_view = messages.CullingView(NOON, (), (failed,))
    text = " ".join(re.sub(r"<[^>]+>", "", await page(service, "admin-token", "admin/parts")).split())
    assert (
        "ben, default server (gpu): not stopped since 2026-11-20 12:00 UTC, 2 tries. The hub calls it stopped. "
        "It is tried again at 2026-11-20 12:01 UTC. End it by hand." in text
    )
    assert "Stops that have failed" not in await page(service, "ada-token")
    service.engine.culling_view = messages.CullingView(NOON, (), ())
    assert "Stops that have failed" not in await page(service, "admin-token", "admin/parts")


async def test_an_admin_reads_first_that_the_policy_file_cannot_be_used(service: Running) -> None:
    assert "The policy file of culling" not in await page(service, "admin-token", "admin/parts")
    service.engine.policy_problem = "not in force, the 3 rule(s) of before are: policy.yaml: line 4: idel: <not known>"
    text = await page(service, "admin-token", "admin/parts")
    said = "It is not in force, the 3 rule(s) of before are: policy.yaml: line 4: idel: &lt;not known&gt;"
    assert f'<p class="warning">{said}</p>' in text
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
    held_up=("mig-1g.5gb",),
    forgotten=(messages.ForgottenPod("jupyter-old", "hub", "node-a", "old", "", "mig-1g.5gb", 90.0, False),),
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
    assert 'jupyterhub_gpu_pool_devices{pool="mig-1g.5gb",what="free"} 2.0' in text
    assert 'jupyterhub_gpu_pool_nodes{counts="no",pool="mig-1g.5gb"} 1.0' in text
    assert "jupyterhub_gpu_forgotten_pods 1.0" in text


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
    assert outline.all("html")[0]["lang"] == "en"
    assert len(outline.all("main")) == 1


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
            ForecastRecord("mig-1g.5gb", 60, 0.75, 0.5, 300.0, True, 84),
            ForecastRecord("mig-2g.10gb", 200, 0.9, 0.81, 90.0, False, 400),
            ForecastRecord("gpu", 4, 1.0, 1.0, 60.0, False, 30),
            ForecastRecord("mig-3g.20gb", 0, None, None, None, False, 3),
        ),
        NOON,
        12.5,
        0.4,
    )
    text = await page(service, "admin-token", "admin/parts")
    section = text.split('<section id="forecast"')[1].split("</section>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in section.split("<tbody>")[1].split("</tr>")[:-1]]
    assert rows == [
        ["mig-1g.5gb", "84", "60", "75 %", "50 %", "5 min", "told as rough"],
        ["mig-2g.10gb", "400", "200", "90 %", "81 %", "2 min", "told as it is"],
        ["gpu", "30", "4", "100 %", "100 %", "1 min", "few yet: 4 of 50"],
        ["mig-3g.20gb", "3", "0", "not known", "not known", "not known", "few yet: 0 of 50"],
    ]
    assert "computed in 0.4 s" in section
    listed = json.loads((await service.ask("GET", "api/forecasts", "admin-token")).body)
    assert [pool["pool"] for pool in listed["pools"]] == ["mig-1g.5gb", "mig-2g.10gb", "gpu", "mig-3g.20gb"]
    assert "How good the wait forecast is" not in await page(service, "ada-token")


async def test_likely_waits_say_of_when_they_are(service: Running) -> None:
    assert "Likely waits as of" not in await page(service, "ada-token")
    likely = Wait(False, 1500, 2400, 4200, 7800, explain("usually-end", ending=1, total=5, title="T"), NOON)
    service.engine.offers = (replace(service.engine.offers[0], wait=likely), *service.engine.offers[1:])
    text = await page(service, "ada-token")
    assert 'Likely waits as of <time datetime="2026-11-20T12:00:00Z">' in text
    assert "likely 25–70 min, at most 2 h 10 min<p>1 of 5 T usually ends within the hour.</p>" in text


async def test_ones_own_page_speaks_the_language_of_its_readers_browser(service: Running) -> None:
    service.engine.run_server("ada", "thesis", rule=explain("rule-cpu", quiet=3600.0), countdown=None)
    await join(service, "ada", "other")
    for asked, language, words in (
        (
            "fi-FI,fi;q=0.9,en;q=0.8",
            "fi-FI",
            ("Omat palvelimet", "jonossa sijalla 1", "enintään 2 h 10 min", "Tilanne: "),
        ),
        ("ja", "ja-JP", ("あなたのサーバー", "列で 1 番目", "最長 2 時間 10 分", "1 人います", " 時点</span>")),
        ("sv,en", "en", ("Your servers", "1st in line", "at most 2 h 10 min")),
    ):
        answer = await service.ask("GET", "", "ada-token", headers={"Accept-Language": asked})
        text = answer.body.decode()
        assert f'<html lang="{language}">' in text
        for word in words:
            assert word in text, word
    lost = await service.ask("POST", "keep", "ada-token", b"server=nothere", headers={"Accept-Language": "fi"})
    assert "Se ei onnistunut" in lost.body.decode()


async def test_an_error_is_a_page_with_the_way_back(service: Running) -> None:
    answer = await service.ask("POST", "keep", "ada-token", b"server=nothere")
    assert answer.headers["Content-Type"].startswith("text/html")
    assert 'href="/jh/services/gpu/"' in answer.body.decode()
    assert Outline(answer.body.decode()).open == []


def test_a_likely_wait_is_an_interval_and_unknown_is_not_zero() -> None:
    assert wait_text(Wait(False, 1500, 2400, 4200, 7800, None)) == "likely 25–70 min, at most 2 h 10 min"
    assert wait_text(Wait(False, 1500, 2400, 4200, None, None, note="rough")) == "likely 25–70 min (rough)"
    assert wait_text(Wait(False, None, None, None, 7800, None, note="few-data")) == "few data yet, at most 2 h 10 min"
    assert wait_text(Wait(False, None, None, None, None, None, note="few-data")) == "few data yet"
    assert wait_text(Wait(False, None, None, None, None, None)) == "wait not known"


def test_what_is_free_while_others_wait_is_not_said_to_be_there_for_the_taking() -> None:
    asked = Wait(False, None, None, None, None, None)
    one = replace(offer("mig-1g.5gb", "MIG 1g.5gb", 1, asked), waiting=2)
    own = TicketInfo("t1", "ada", "", "waiting", ("mig-1g.5gb",), 1, NOON, "", "")
    assert free_text(one, ahead(one, ()))[1] == "1 of 5 free, 2 ahead"
    assert free_text(one, ahead(one, (own,)))[1] == "1 of 5 free"
    assert free_text(one, ahead(one, (replace(own, position=2),)))[1] == "1 of 5 free, 1 ahead"
    assert free_text(one, ahead(one, (replace(own, offers=("gpu",)),)))[1] == "1 of 5 free, 2 ahead"
    assert free_text(replace(one, free=0), 2)[1] == "0 of 5 free"
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
