"""What is said of a wrong value in our sections where it may be a secret: the sentence ends in the hub's log."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets.config import Config

from hub_extensions.authenticator.setup_checks import ProviderSettingsWrong, check_settings
from hub_extensions.core.settings import RENAMED
from hub_extensions.core.sign_on.provider_settings import CLASS, OWN
from hub_extensions.spawner.base import GpuSpawnerMixin
from hub_extensions.spawner.config.loader import SECRET, read_sections
from hub_extensions.spawner.config.traits import SECTIONS
from hub_extensions.spawner.kube import GpuKubeSpawner

WORD = "hunter2-never-told"
SETTINGS = [(section.__name__, name) for section in SECTIONS for name in section.class_traits(config=True)]
MASKED = [(section, name) for section, name in SETTINGS if name.endswith(SECRET)]


def test_tokens_and_addresses_are_among_them() -> None:
    names = {name for _, name in MASKED}
    assert names >= {"database_url", "prometheus_url", "prometheus_token", "metrics_token", "url"}
    assert "service_connect_url" in names


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
def test_an_earlier_name_is_refused_with_the_new_one(section: str, key: str, now: str) -> None:
    with pytest.raises(ValueError, match=now.replace(".", r"\.")):
        read_sections(Config({section: {key: 3}}))


@pytest.mark.parametrize(("old", "new"), [each for each in RENAMED.items() if "." in each[0]])
def test_every_earlier_setting_is_refused_and_its_new_name_exists(old: str, new: str) -> None:
    section, _, key = old.partition(".")
    c = Config({section: {key: 3}})
    if section == CLASS:
        with pytest.raises(ProviderSettingsWrong) as refused:
            check_settings(c)
    else:
        if section == "GpuKubeSpawner":
            c.JupyterHub.spawner_class = "gpu"
        with pytest.raises(ValueError, match="is called") as refused:  # type: ignore[assignment]
            read_sections(c)
    assert str(refused.value) == f"c.{old} is called c.{new} now."
    own = {f"{each.__name__}.{name}" for each in SECTIONS for name in each.class_traits(config=True)}
    own |= {f"{each.__name__}.{name}" for each in (GpuSpawnerMixin, GpuKubeSpawner) for name in each.class_traits()}
    assert new in own | {f"{CLASS}.{name}" for name in OWN}


def test_a_subclass_of_a_spawner_is_told_the_new_name_too() -> None:
    c = Config(GpuKubeSpawner={"gpu_patience_seconds": 5.0}, JupyterHub={"spawner_class": "gpu"})
    with pytest.raises(ValueError, match=r"gpu_patience_seconds is called c\.GpuSpawnerMixin\.gpu_service_timeout"):
        read_sections(c)
