"""One check of ``doctor`` and its result."""

from __future__ import annotations

from dataclasses import dataclass

from hub_extensions.tools.use_sources import Level


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was checked.

    Attributes:
        check: a stable code for programs, e.g. ``gpus`` or ``port``.
        text: what was found. fix: what to do about it; empty when all is well.
    """

    check: str
    state: Level
    text: str
    fix: str = ""


def as_dict(finding: Diagnosis) -> dict[str, str]:
    """For ``--json``."""
    return {name: getattr(finding, name) for name in ("check", "state", "text", "fix")}


def failed(findings: tuple[Diagnosis, ...]) -> bool:
    """Is anything wrong that keeps the hub from doing its work?"""
    return any(finding.state == "problem" for finding in findings)


def sentence(text: str) -> str:
    """It begins with a capital, but for a setting's name."""
    return text if text.startswith("c.") else text[:1].upper() + text[1:]
