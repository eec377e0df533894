"""What culling did, as a page and as CSV: everybody's for admins with a filter, one's own for everybody else."""

from __future__ import annotations

import csv
import io

import pytest

from hub_extensions.adapters.store import JournalRow
from hub_extensions.core.text.reasons import explain
from hub_extensions.core.text.translation import Catalogue
from hub_extensions.hub_service.engine.views.cull_audit import KINDS
from hub_extensions.hub_service.http.pages.audit import CSV_ROWS, ROWS, kind_text, with_moments
from tests.fakes.engine import NOON
from tests.hub_service.conftest import Running
from tests.hub_service.http.test_pages import Outline


def row(kind: str, user: str, text: str = "Idle for 30 min.", server: str = "") -> JournalRow:
    return JournalRow(NOON, kind, None, "l1", user, server, text, "service", "use 0 % by nvml, by the rule 'classes'")


@pytest.fixture(autouse=True)
def rows(service: Running) -> None:
    service.engine.rows = (
        row("culled", "ada", server="thesis"),
        row("warned", "ben", "Idle for 20 min. <b>"),
        row("kept", "ben", "=cmd|' /C calc'!A0"),
        row("stop-failed", "cem"),
        row("admitted", "ada", "no culling"),
    )


async def page(service: Running, path: str, token: str) -> str:
    answer = await service.ask("GET", path, token)
    assert answer.code == 200, answer.body
    text = answer.body.decode()
    assert Outline(text).open == []
    return text


class Shouting(Catalogue):
    def __call__(self, text: str, *parts: object) -> str:
        return text.upper()


def test_every_kind_has_a_text_for_people() -> None:
    assert [kind for kind in KINDS if kind_text(kind, Shouting()) == kind] == []


async def test_an_admin_sees_everybody_and_filters_by_user_and_kind(service: Running) -> None:
    text = await page(service, "audit", "admin-token")
    for words in ("ada", "thesis", "ben", "cem", "could not be stopped", "by the rule &#39;classes&#39;", "&lt;b&gt;"):
        assert words in text
    assert "no culling" not in text
    asked = await page(service, "audit?user=ben&kind=warned&days=7", "admin-token")
    assert "Idle for 20 min." in asked and "thesis" not in asked and 'value="ben"' in asked
    assert "audit.csv?user=ben&amp;kind=warned&amp;days=7" in asked
    assert service.engine.told[-1] == ("journal", "ben", ("warned",), ROWS, ())
    assert "Nothing of that kind." in await page(service, "audit?user=nobody", "admin-token")


@pytest.mark.parametrize("path", ["audit", "audit?user=ben", "audit.csv?user=ben"])
async def test_everybody_else_sees_what_concerns_himself_alone(service: Running, path: str) -> None:
    answer = await service.ask("GET", path, "ada-token")
    assert answer.code == 200 and b"thesis" in answer.body
    assert b"ben" not in answer.body and b"cem" not in answer.body
    assert service.engine.told[-1][1:3] == ("ada", KINDS)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("kept until 2026-11-20T12:00:10.682278+00:00", ["kept until ", NOON.replace(second=10), ""]),
        ("It stops at 2026-11-20 12:00 UTC: exam", ["It stops at ", NOON, ": exam"]),
        (
            "idle since 2026-11-20T12:00:00+00:00, warned 2026-11-20T12:00:00Z",
            ["idle since ", NOON, ", warned ", NOON, ""],
        ),
        ("at 2026-13-40T12:00:00Z, in 2026-11-20 and 12:00", ["at 2026-13-40T12:00:00Z, in 2026-11-20 and 12:00"]),
        ("", [""]),
    ],
)
def test_a_time_in_a_sentence_is_a_time_for_its_reader(text: str, pieces: list[object]) -> None:
    assert with_moments(text) == pieces


async def test_no_sentence_of_the_page_has_a_time_as_programs_write_it(service: Running) -> None:
    until = row("kept", "ada", "kept until 2026-11-20T14:05:10.682278+00:00 <i>")
    service.engine.rows = (until,)
    text = await page(service, "audit", "admin-token")
    assert 'kept until <time datetime="2026-11-20T14:05:10Z">2026-11-20 14:05 UTC</time> &lt;i&gt;' in text


async def test_the_same_rows_are_a_file_in_which_nothing_is_computed(service: Running) -> None:
    answer = await service.ask("GET", "audit.csv", "admin-token")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="gpu-audit.csv"'
    first, *found = csv.reader(io.StringIO(answer.body.decode()))
    assert first == ["at", "kind", "user", "server", "actor", "text", "evidence"]
    assert [each[1:3] for each in found] == [
        ["culled", "ada"],
        ["warned", "ben"],
        ["kept", "ben"],
        ["stop-failed", "cem"],
    ]
    assert found[2][5] == "'=cmd|' /C calc'!A0"
    assert service.engine.told[-1][3] == CSV_ROWS


@pytest.mark.parametrize("query", ["days=31", "days=x", "kind=admitted"])
async def test_a_filter_that_is_none_is_refused_by_its_name(service: Running, query: str) -> None:
    answer = await service.ask("GET", f"audit?{query}", "admin-token")
    assert answer.code == 400 and f"{query.partition('=')[0]} has to be one of" in answer.body.decode()


async def test_it_is_found_from_ones_own_page_and_speaks_the_readers_language(service: Running) -> None:
    assert 'href="/jh/services/gpu/audit"' in (await service.ask("GET", "", "ada-token")).body.decode()
    answer = await service.ask("GET", "audit", "ada-token", headers={"Accept-Language": "fi"})
    text = answer.body.decode()
    assert "Varoitukset ja pysäytykset" in text and "pysäytetty" in text


@pytest.mark.slow
async def test_what_happened_is_told_in_the_readers_language_and_an_admins_own_words_as_they_are(
    service: Running,
) -> None:
    about, now = ("l1", "ada", ""), NOON
    service.engine.rows = (
        JournalRow.because(now, "stop-ordered", about, [explain("stop-ordered", at=now, why="<Exam>.")], "admin root"),
        JournalRow.because(
            now, "culled", about, [explain("idle", idle=1800.0)], "service",
            [explain("seen-use", percent=0.0, source="nvml"), explain("seen-idle", at=now)],
        ),
        row("warned", "ada", "Written by an older version."),
        JournalRow.because(now, "failed", about, [explain("start-failed-why", why="No image.")], "hub"),
        JournalRow.because(now, "failed", about, [explain("server-crashed-with", code=1)], "hub"),
        JournalRow.because(now, "failed", about, [explain("cluster-refuses", answer="denied")], "hub"),
    )  # fmt: skip
    moment = '<time datetime="2026-11-20T12:00:00Z">2026-11-20 12:00 UTC</time>'
    for language, told in {
        "fi": (
            f"<span>Se pysäytetään {moment}: &lt;Exam&gt;.</span>",
            f"käyttö 0 %, mitannut nvml, käyttämättä {moment}",
            "<span>Palvelin kaatui paluukoodilla 1.</span>",
            '<span>Klusteri ei ota tätä palvelinta: <span lang="en">denied</span>.</span>',
        ),
        "en": (
            f"<span>It stops at {moment}: &lt;Exam&gt;.</span>",
            f"use 0 % by nvml, idle since {moment}",
            "<span>The server crashed with exit code 1.</span>",
        ),
    }.items():
        answer = await service.ask("GET", "audit", "admin-token", headers={"Accept-Language": language})
        text = answer.body.decode()
        assert all(sentence in text for sentence in told), text
        assert ("Idle for" in text) == (language == "en")
        marked = "<span>" if language == "en" else '<span lang="en">'
        assert f"{marked}No image.</span>" in text, "it is read as what it is"
        for path in ("audit", "audit.csv"):
            header = {"Accept-Language": language}
            await service.ask("GET", f"{path}?words=joutilaana", "admin-token", headers=header)
            assert ("idle" in service.engine.told[-1][4]) == (language == "fi"), "what is shown is searched"
        assert '<span lang="en">Written by an older version.</span>' in text


@pytest.mark.parametrize("path", ["audit", "audit.csv"])
async def test_a_stranger_is_led_to_the_login(service: Running, path: str) -> None:
    assert (await service.ask("GET", path)).code == 302
    assert (await service.ask("GET", path, "unknown-token")).code == 403
