"""``jupyterhub-gpu cull replay`` over a month in a store: hours freed, and everybody who came back after a stop."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hub_extensions.adapters.store import Changes
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.usage import Minute
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.cli import main
from tests.fakes.empty_store import open_store
from tests.fakes.prometheus import USE, PrometheusAsTold

pytestmark = pytest.mark.slow

MINUTE = timedelta(minutes=1)
TODAY = datetime.now(timezone.utc).replace(second=0, microsecond=0)


def a_month() -> Changes:
    """Forty hours of use: ada works for the first quarter, ben pauses for 25 minutes; one is of last year."""
    chance = random.Random(1)
    records, minutes = [], []
    for number in range(40):
        user = ("ada", "ben")[number % 2]
        began = TODAY - timedelta(days=400) if number == 39 else TODAY - timedelta(hours=2 + 12 * number)
        works = {"ada": range(15), "ben": (*range(10), *range(35, 60))}[user]
        records.append(
            UsageRecord(
                f"l{number}", user, "", OfferId("gpu"), "gpu", 1000, began + 60 * MINUTE, "user",
                asked=began, admitted=began, ready=began, first_used=began, held_seconds=3600.0, ran_seconds=3600.0,
            )
        )  # fmt: skip
        for at in range(60):
            percent = chance.uniform(30, 99) if at in works else 0.0
            minutes.append(Minute(f"l{number}", began + at * MINUTE, "GPU-1", "nvml", percent / 2, percent, None, 60.0))
    never_ready = UsageRecord("l99", "cem", "", OfferId("gpu"), "gpu", 1000, TODAY, "failed", asked=TODAY)
    without_gpu = UsageRecord("l98", "cem", "", OfferId("cpu"), "cpu", 0, TODAY, "user", devices=0, ready=TODAY)
    return Changes(usage=(*records, never_ready, without_gpu), samples=tuple(minutes))


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    settings = Settings(state_dir=str(folder), hub_secret="s" * 64, api_token="t" * 64)
    settings.dump(folder / "service.json")
    store = open_store(settings.store_url)
    asyncio.run(store.commit(a_month()))
    store.close()
    return folder


def run(state: Path, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["cull", "replay", *words, "--state-dir", str(state)], catch_exceptions=False)
    return result.exit_code, result.output


def test_a_month_is_played_again_under_other_limits(state: Path, tmp_path: Path) -> None:
    code, said = run(state, "--idle-minutes", "20", "--lifetime-hours", "0", "--json", str(tmp_path / "all.json"))
    assert code == 0
    found = json.loads((tmp_path / "all.json").read_text())
    assert (found["uses"], found["people"], found["held_hours"]) == (39, 2, 39.0)
    assert found["stopped"] == {"idle": 39, "lifetime": 0, "unopened": 0, "cpu-idle": 0, "signed-out": 0,
                                "given-back": 0, "admin": 0, "reclaimed": 0}  # fmt: skip
    assert found["freed_hours"]["idle"] == pytest.approx((20 * 25 + 19 * 30) / 60)
    assert [each["user"] for each in found["came_back"]] == ["ben"] * 19
    assert "2 of 2 people would have been warned, 39 times in all; 39 servers stopped." in said
    hits = said.partition("19 of them were at work again within 10 min after it.\n")[2].splitlines()[:19]
    assert hits == sorted(hits) and all(hit.endswith("ben, gpu, idle, a use of 1 h") for hit in hits)


def test_a_longer_limit_hits_nobody_and_a_shorter_span_has_fewer(state: Path, tmp_path: Path) -> None:
    _, said = run(state, "--idle-minutes", "30", "--lifetime-hours", "0")
    assert "0 of them were at work again" in said
    run(state, "--since", "48h", "--json", str(tmp_path / "two.json"))
    assert json.loads((tmp_path / "two.json").read_text())["uses"] == 4


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--since", "a month"), "--since: 'a month' is not a span like 30d or 12h."),
        (("--since", "0d"), "--since: '0d' is not a span"),
        (("--idle-minutes", "2", "--warn-minutes", "5"), "idle"),
        (("--idle-minutes", "0"), "--idle-minutes"),
    ],
)
def test_what_cannot_be_played_is_refused_by_name(state: Path, words: tuple[str, ...], sentence: str) -> None:
    code, said = run(state, *words)
    assert code == 2 and sentence in said


def test_without_a_store_it_says_so(tmp_path: Path) -> None:
    code, said = run(tmp_path)
    assert code == 2 and "service.json" in said


# ------------------------------------------------------------------ a seeded month, by the rules of a policy file

POLICY = """\
rules:
  - name: theses
    groups: [thesis]
    idle: 2 h
  - name: while others wait
    pools: [gpu]
    contended_idle: 15 min
"""


def a_seeded_month(seed: int = 18) -> Changes:
    """Thirty days of six people: one of a group, one who forgets his server, one who waits each second day."""
    chance = random.Random(seed)
    records: list[UsageRecord] = []
    minutes: list[Minute] = []
    for day in range(30):
        for place, user in enumerate(("ada", "ben", "cem", "dan", "eve", "fay")):
            if chance.random() < 0.75:
                continue
            began = TODAY - timedelta(days=day, hours=9) + timedelta(minutes=chance.randrange(60))
            waited = timedelta(minutes=40 if user == "fay" and day % 2 else 0)
            length = chance.randrange(90, 200)
            key, ready = f"m{day}-{place}", began + waited
            records.append(
                UsageRecord(
                    key, user, "", OfferId("gpu"), "gpu", 1000, ready + length * MINUTE, "user",
                    groups=("thesis",) if user == "ada" else (), asked=began, admitted=ready, ready=ready,
                )
            )  # fmt: skip
            works = chance.randrange(30, 60)
            back = works + chance.randrange(20, 40) if chance.random() < 0.3 else length
            for at in range(length):
                busy = at < works or back <= at < back + 30
                percent = chance.uniform(30, 99) if busy else 0.0
                minutes.append(
                    Minute(key, ready + at * MINUTE, "GPU-1", "dcgm", percent / 2, percent, 2**30 if busy else 0, 60.0)
                )
    return Changes(usage=tuple(records), samples=tuple(minutes))


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("month")
    settings = Settings(state_dir=str(folder), hub_secret="s" * 64, api_token="t" * 64)
    settings.dump(folder / "service.json")
    (folder / "policy.yaml").write_text(POLICY)
    store = open_store(settings.store_url)
    asyncio.run(store.commit(a_seeded_month()))
    store.close()
    return folder


@pytest.mark.whole
@pytest.mark.slow
def test_a_month_is_played_by_the_rules_of_a_file_with_groups_and_waits(month: Path, tmp_path: Path) -> None:
    def figures(*words: str) -> dict[str, Any]:
        code, said = run(month, *words, "--json", str(tmp_path / "all.json"))
        assert code == 0, said
        found: dict[str, Any] = json.loads((tmp_path / "all.json").read_text())
        return {**found, "printed": said}

    plain, ruled = figures(), figures("--policy", str(month / "policy.yaml"))
    assert (ruled["uses"], ruled["people"]) == (plain["uses"], plain["people"]) and ruled["people"] == 6
    by_rule = {each["rule"]: each["stopped"] for each in ruled["by_rule"]}
    assert sum(by_rule.values()) == ruled["stopped"]["idle"] and by_rule["while others wait"] > 0
    assert "ada" not in {each["user"] for each in ruled["came_back"]}, "a thesis may rest for 2 h"
    assert sum(each["user"] == "ada" for each in plain["came_back"]) > 0
    assert f"By the rules of {month / 'policy.yaml'}, and c.GpuCulling." in ruled["printed"]
    assert "by rule while others wait: idle" in ruled["printed"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--policy", "nowhere.yaml"), 2, "nowhere.yaml: it cannot be read"),
        (("--prometheus", "http://127.0.0.1:9"), 1, "--prometheus: Prometheus does not answer"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(state: Path, words: tuple[str, ...], code: int, sentence: str) -> None:
    found, said = run(state, *words)
    assert (found, sentence in said) == (code, True), said


async def test_what_prometheus_keeps_is_played_without_a_store(tmp_path: Path) -> None:
    server = PrometheusAsTold(TODAY.timestamp)
    begin = TODAY - timedelta(hours=5)
    for pod, works in (("jupyter-ada", range(180)), ("jupyter-ben", range(60)), ("jupyter-cem", (*range(60), 95))):
        used = {(begin + at * MINUTE).timestamp() + 30: "0.8" if at in works else "0" for at in range(180)}
        server.past.append((USE, {"namespace": "jhub", "pod": pod}, used))
    (tmp_path / "policy.yaml").write_text(POLICY)
    words = ("--since", "9h", "--prometheus", server.url, "--json", str(tmp_path / "all.json"))
    code, said = await asyncio.to_thread(run, tmp_path, *words)
    ruled = await asyncio.to_thread(run, tmp_path, *words[:-2], "--policy", str(tmp_path / "policy.yaml"))
    await server.stop()
    assert code == 0, said
    found = json.loads((tmp_path / "all.json").read_text())
    assert (found["uses"], found["held_hours"], found["stopped"]["idle"]) == (3, 9.0, 2)
    assert [each["user"] for each in found["came_back"]] == ["jupyter-cem"]
    assert "Each pod is one use of a whole device" in said
    assert ruled[0] == 0 and "3 uses were left alone: rules are by group" in ruled[1]
