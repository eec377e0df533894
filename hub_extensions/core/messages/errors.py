"""The body of every error answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hub_extensions.core.text.reasons import Reason


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """An error as JSON: what is wrong and what would be right.

    Attributes:
        field: the field that is wrong; "" if the error is not about a single field.
        reason: the error as a stable code; "" for an error without a code.
        params: the parameters of its text; empty for an error without a code.
    """

    message: str
    field: str = ""
    reason: str = ""
    params: Mapping[str, str | float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, reason: Reason) -> Problem:
        return cls(reason.message, "", reason.reason, reason.params)
