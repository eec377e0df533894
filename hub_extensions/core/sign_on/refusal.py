"""Why a token, a claim or a login is not taken: a word for metrics and pages, and a sentence for the log.

The sentence never has a token, a code or another secret in it. Not here: the pages' texts (``failures.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SignOnRefusal:
    """It is not taken.

    Attributes:
        code: one word for it, a label of a metric and a key of the pages' texts.
        log_message: what was wrong, for an admin.
        parameters: what the page's text may name, such as by how much a clock is off.
    """

    code: str
    log_message: str
    parameters: dict[str, str] = field(default_factory=dict)
