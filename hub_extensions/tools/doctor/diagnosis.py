"""The results of the checks of ``doctor``."""

from __future__ import annotations

from dataclasses import dataclass

from hub_extensions.tools.use_sources import Level


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One result of a check, good or bad, which the command prints.

    Attributes:
        check: name of the check, such as ``gpus`` or ``port``, which does not change between versions.
        state: ``ok``, ``warning``, or ``problem`` if the hub cannot work with it.
        text: what was found.
        fix: what to do about it; "" if nothing is wrong.
    """

    check: str
    state: Level
    text: str
    fix: str = ""


def failed(findings: tuple[Diagnosis, ...]) -> bool:
    """Return whether one of these diagnoses is a problem with which the hub cannot work."""
    return any(finding.state == "problem" for finding in findings)


def sentence(text: str) -> str:
    """Return a text with its first letter capitalized, unless it begins with the name of a setting (``c.…``)."""
    return text if text.startswith("c.") else text[:1].upper() + text[1:]
