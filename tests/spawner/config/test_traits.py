"""A setting is one field of a value: trait, reference, error and what the service reads follow from it."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal

import jupyterhub.auth  # noqa: F401 - it starts ldconfig once as it is imported, which is no test's doing
import pytest
from traitlets.config import Config

from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.settings import setting, settings_in, spelled
from hub_extensions.hub_service.setup.service_info import to_info
from hub_extensions.hub_service.setup.settings import Settings, SettingsError
from hub_extensions.spawner.config.loader import read_section, wanted
from hub_extensions.spawner.config.traits import section_of

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class LimitsWithNaps(QueueLimits):
    """The limits of the line, and one more."""

    nap: timedelta | None = setting(
        timedelta(minutes=5), "The line rests for this long. None: never.", name="nap_minutes", least=1
    )


@dataclass(frozen=True)
class SettingsWithNaps(Settings):
    queue: LimitsWithNaps = field(default_factory=LimitsWithNaps)


def sent(minutes: float | None) -> SettingsWithNaps:
    queue = read_section(Config(GpuQueue={"nap_minutes": minutes, "max_waiting": 7}), LimitsWithNaps)
    return SettingsWithNaps(hub_secret="h", api_token="t", queue=queue)


@pytest.mark.parametrize(("written", "nap"), [(7, timedelta(minutes=7)), (1.5, timedelta(seconds=90)), (None, None)])
def test_a_setting_that_is_added_arrives_at_the_service(
    tmp_path: Path, written: float | None, nap: timedelta | None
) -> None:
    sent(written).dump(tmp_path / "service.json")
    arrived = SettingsWithNaps.load(tmp_path / "service.json").queue
    assert (arrived.nap, arrived.max_waiting) == (nap, 7)
    assert arrived == sent(written).queue


def test_a_setting_that_is_added_is_told_to_a_service_apart() -> None:
    assert to_info(sent(7))["settings"]["queue"]["nap"] == "PT7M"


@pytest.mark.slow
def test_a_setting_that_is_added_has_its_row_of_the_reference() -> None:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "generate-reference.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    row = "| `nap_minutes` | `5.0` | a number of at least 1 or None | The line rests for this long. None: never. "
    assert row + "Unit: minutes. |" in list(script._settings(section_of(LimitsWithNaps)))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("nap_minute", 5, r"c\.GpuQueue\.nap_minute is not a setting\. Did you mean nap_minutes\?"),
        ("nap_minutes", 0, r"c\.GpuQueue\.nap_minutes is 0: it has to be a number of at least 1 or None\."),
        ("nap_minutes", "5", r"c\.GpuQueue\.nap_minutes is '5': it has to be a number"),
        ("nap_minutes", 1e18, r"c\.GpuQueue\.nap_minutes is too large: at most \d+ days can be counted\."),
    ],
)
def test_what_does_not_fit_it_is_named(key: str, value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_section(Config(GpuQueue={key: value}), LimitsWithNaps)


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ({"nap": "long"}, r"c\.GpuQueue\.nap_minutes: "),
        ({"naps": 1}, r"unknown field 'queue\.naps'\. Known: max_waiting, .*nap\."),
    ],
)
def test_what_arrives_and_does_not_fit_it_is_named(tmp_path: Path, queue: Mapping[str, Any], said: str) -> None:
    (tmp_path / "service.json").write_text(json.dumps({"hub_secret": "h", "api_token": "t", "queue": queue}))
    with pytest.raises(SettingsError, match=said):
        SettingsWithNaps.load(tmp_path / "service.json")


# ------------------------------------------------------------------ kinds


@dataclass(frozen=True)
class AllKinds:
    """One of each kind."""

    section: ClassVar[str] = "GpuKinds"

    told: int = 1
    flag: bool = setting(False, "A flag.")
    count: int = setting(2, "A number.", least=1, most=9)
    percent: float = setting(5.0, "A number.", least=0, most=100)
    text: str = setting("x", "A text.")
    path: str | None = setting(None, "A text.")
    word: Literal["one", "two", ""] = setting("", "A word.")
    words: tuple[str, ...] = setting((), "Some texts.")
    after: timedelta = setting(timedelta(hours=2), "A time.", name="after_hours", least=0)
    until: timedelta | None = setting(timedelta(seconds=90), "A time.", name="until_seconds")
    times: Mapping[str, timedelta] = setting({}, "Times.", name="minutes_by_offer", least=0)
    counts: Mapping[str, int] = setting({}, "Numbers.", least=0)
    shares: Mapping[str, tuple[float, ...]] = setting({}, "Shares.")


KINDS: list[tuple[str, Any, str, Any, Any]] = [
    # setting, default as it is written, what is right in words, something written, what it is in the value
    ("flag", False, "True or False", True, True),
    ("count", 2, "a whole number from 1 to 9", 3, 3),
    ("percent", 5.0, "a number from 0 to 100", 6, 6),
    ("text", "x", "a text", "y", "y"),
    ("path", None, "a text or None", "y", "y"),
    ("word", "", "'one', 'two' or empty", "two", "two"),
    ("words", [], "a list of texts", ["a", "b"], ("a", "b")),
    ("after_hours", 2.0, "a number of at least 0", 0.5, timedelta(minutes=30)),
    ("until_seconds", 90.0, "a number or None", None, None),
    ("minutes_by_offer", {}, "a dict from an offer's id to a number of at least 0", {"a": 2}, {"a": timedelta(0, 120)}),
    ("counts", {}, "a dict from an offer's id to a whole number of at least 0", {"a": 2}, {"a": 2}),
    ("shares", {}, "a dict from an offer's id to a list", {"a": [0.5, 0.25]}, {"a": (0.5, 0.25)}),
]


@pytest.mark.parametrize(("name", "default", "words", "written", "value"), KINDS, ids=[row[0] for row in KINDS])
def test_the_trait_follows_from_the_type(name: str, default: Any, words: str, written: Any, value: Any) -> None:
    trait = section_of(AllKinds).class_traits(config=True)[name]
    assert (trait.default(), wanted(trait)) == (default, words)
    [field_of] = [key for key, about in settings_in(AllKinds).items() if about.name == name]
    assert getattr(read_section(Config(GpuKinds={name: written}), AllKinds), field_of) == value


def test_the_table_has_every_kind_and_what_no_admin_sets_has_no_trait() -> None:
    assert set(section_of(AllKinds).class_traits(config=True)) == {row[0] for row in KINDS}
    assert read_section(Config(), AllKinds) == AllKinds()
    assert (spelled(AllKinds, "after"), spelled(AllKinds, "told")) == ("c.GpuKinds.after_hours", "")
