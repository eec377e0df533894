"""Collects what our ``configure(c)`` would report about a hub's settings: wrong ones, and ones that it leaves alone."""

from __future__ import annotations

import copy
import re
from typing import Any

from traitlets.config import Config

from hub_extensions.configuration import apply, dry_run
from hub_extensions.core.offers.pod_request import is_gpu_resource
from hub_extensions.core.sign_on.provider_settings import SECTIONS
from hub_extensions.hub_service.setup.settings import SERVICE_NAME
from hub_extensions.spawner.config.spawner_classes import FORM_SETTINGS, load_own_class
from hub_extensions.tools.helm_check.trees import as_tree

__all__ = ["apply", "dry_run", "is_gpu_resource", "key_of", "load_own_class", "report_own_settings"]

COVERED_BY_RULES = (
    *("concurrent_spawn_limit", "active_server_limit", "consecutive_failure_limit", "server_token_scopes"),
    *("spawner_class", "stops idle servers too", "your role", "the name of this machine", "has a url: the hub's proxy"),
    *FORM_SETTINGS.values(),
)
"""Parts of notes of ``configure`` that are left out: a rule reports the same better, or the note is about this machine
and not the cluster."""

MOST_SETTINGS = 25  # wrong settings that are reported in one run
APPS = "hub.config.SignOnGate.apps"
SUBSTITUTES = {
    "hub.config.JupyterHub.public_url": "https://hub.invalid/",
    "hub.config.SignOnGate.url": "https://apps.invalid",
    "hub.config.SignOnGate.connect_url": "http://gate:8192",
    **{f"hub.config.{section}.issuer": "https://provider.invalid/" for section in SECTIONS},
}
"""Settings that other settings depend on -> a valid value. If such a setting is wrong, it is reported, and the value
replaces it so that the others can be checked."""

Sentence = tuple[str, str]


def report_own_settings(given: Any) -> list[Sentence]:
    """Return rule and sentence of everything that ``configure(c)`` would report. The configuration is not modified.

    ``configure`` stops at the first wrong setting. So each wrong setting is corrected in a copy, and ``configure`` is
    called again until it finds no more.

    Args:
        given: the hub's configuration.
    """
    config = given
    found: list[Sentence] = []
    for _ in range(MOST_SETTINGS):
        try:
            with dry_run() as notes:
                apply(_copy(config))
        except ValueError as problem:
            sentence = _as_values(str(problem))
            found.append(("own-settings", sentence))
            config = _copy(config)
            if not _correct(config, sentence):
                break
        except Exception as problem:  # noqa: BLE001  values of any shape: what stops the hub is a finding
            found.append(("hub-start", f"The hub would not start: {type(problem).__name__}: {problem}"))
            break
        else:
            kept = [note for note in notes if not any(text in note for text in COVERED_BY_RULES)]
            return found + [("left-alone", _as_values(note)) for note in kept]
    return found


def _copy(config: Config) -> Config:
    """Copy a configuration. Config's own copy fails if a capitalized name has a value that is not a section."""
    copied = Config()
    for key, value in config.items():
        copied.update({key: _copy(value) if isinstance(value, Config) else copy.deepcopy(value)})
    return copied


def key_of(sentence: str) -> str:
    """Return the first values key that a sentence names; ``hub.config`` if it names none."""
    named = re.search(r"\b(?:hub|singleuser|scheduling|proxy)\.[A-Za-z_][\w.]*\w", sentence)
    return named[0] if named else "hub.services.gpu" if f"service {SERVICE_NAME!r}" in sentence else "hub.config"


def _as_values(text: str) -> str:
    """Return a sentence with each ``c.Class.trait`` replaced by its values key ``hub.config.Class.trait``."""
    named = re.sub(r"\bc\.(?=[A-Z])", "hub.config.", text)
    return named if named.startswith("hub.") else named[:1].upper() + named[1:]


def _correct(config: Any, sentence: str) -> bool:
    """Correct or remove the wrong setting that a sentence names; return whether that was possible.

    Args:
        config: the hub's configuration, which is modified.
        sentence: a report of ``configure(c)``, which names the key of the setting.
    """
    key = key_of(sentence)
    for needed, right in SUBSTITUTES.items():
        _, _, section, name = needed.split(".")
        if needed in sentence and config[section].get(name) != right:
            config[section][name] = right
            return True
    if key == APPS:
        apps = as_tree(config.SignOnGate.get("apps"))
        kept = {name: app for name, app in apps.items() if f"app {str(name)!r}" not in sentence}
        if len(kept) < len(apps):
            config.SignOnGate.apps = kept
            return True
    parts = key.split(".")
    if parts[:2] != ["hub", "config"] or len(parts) < 3 or parts[2] not in config:
        return False
    if len(parts) == 3:
        return config.pop(parts[2], None) is not None
    return parts[3] in config[parts[2]] and config[parts[2]].pop(parts[3], parts) is not parts
