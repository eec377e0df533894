"""``jupyterhub-gpu cull replay`` over a month in a store: hours freed, and everybody who came back after a stop."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner

from hub_extensions.adapters.store import Changes
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.usage import Minute
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.cli import main
from tests.fakes.empty_store import open_store

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
    assert found["stopped"] == {"idle": 39, "lifetime": 0, "unopened": 0, "cpu-idle": 0, "signed-out": 0}
    assert found["freed_hours"]["idle"] == pytest.approx((20 * 25 + 19 * 30) / 60)
    assert [each["user"] for each in found["came_back"]] == ["ben"] * 19
    assert "2 of 2 people would have been warned, 39 times in all; 39 servers stopped." in said
    assert "19 of them were at work again within 10 min after it." in said


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
