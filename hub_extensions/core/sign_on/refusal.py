"""Why a token, a claim or a sign-in is refused. The log message never contains a token, a code or another secret."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SignOnRefusal:
    """Why a token, a claim or a sign-in is refused.

    Attributes:
        code: label of the metric, and key of the page's text.
        log_message: what was wrong, for an admin.
        parameters: values that the page's text may contain, such as how far a clock is off.
    """

    code: str
    log_message: str
    parameters: dict[str, str] = field(default_factory=dict)
