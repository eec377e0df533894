"""What is said of a wrong value in our sections where it may be a secret: the sentence ends in the hub's log."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets.config import Config

from hub_extensions.spawner.config.loader import SECRET, read_sections
from hub_extensions.spawner.config.traits import SECTIONS

WORD = "hunter2-never-told"
SETTINGS = [(section.__name__, name) for section in SECTIONS for name in section.class_traits(config=True)]
MASKED = [(section, name) for section, name in SETTINGS if name.endswith(SECRET)]


def test_tokens_and_addresses_are_among_them() -> None:
    names = {name for _, name in MASKED}
    assert {"database_url", "prometheus_url", "prometheus_token", "public_metrics_token", "url", "servers_url"} <= names


@pytest.mark.parametrize(("section", "name"), MASKED)
@pytest.mark.parametrize("value", [{"a": WORD}, [WORD], [[WORD]]], ids=["mapping", "list", "lists"])
def test_a_secret_of_a_wrong_kind_is_told_by_its_kind_alone(section: str, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"c\.{section}\.{name} is of the type \w+: it has to be a text") as refused:
        read_sections(Config({section: {name: value}}))
    assert WORD not in str(refused.value)


def test_what_holds_no_secret_is_told_as_it_was_written() -> None:
    with pytest.raises(ValueError, match=r"c\.GpuQueue\.max_waiting is 'many': it has to be a whole number"):
        read_sections(Config({"GpuQueue": {"max_waiting": "many"}}))


@pytest.mark.parametrize(
    ("section", "key", "now"),
    [
        ("GpuLine", "max_starting", "c.GpuLine is called c.GpuQueue now"),
        ("GpuQueue", "max_line", "c.GpuQueue.max_line is called c.GpuQueue.max_waiting now"),
    ],
)
def test_a_name_of_before_is_answered_with_the_new_one(section: str, key: str, now: str) -> None:
    with pytest.raises(ValueError, match=now.replace(".", r"\.")):
        read_sections(Config({section: {key: 3}}))
