"""The result of one check of ``doctor``."""

from __future__ import annotations

from dataclasses import dataclass

from hub_extensions.tools.use_sources import Level


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check.

    Attributes:
        check: a stable code for programs, e.g. ``gpus`` or ``port``.
        text: what was found. fix: what to do about it; empty if nothing is wrong.
    """

    check: str
    state: Level
    text: str
    fix: str = ""


def failed(findings: tuple[Diagnosis, ...]) -> bool:
    """Return whether a finding prevents the hub from working."""
    return any(finding.state == "problem" for finding in findings)


def sentence(text: str) -> str:
    """Capitalize a sentence, unless it begins with the name of a setting."""
    return text if text.startswith("c.") else text[:1].upper() + text[1:]
