"""What every interface answers where it cannot do what it was asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hub_extensions.core.text.reasons import Reason


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """An error's body: what is wrong and what would be right, in which field, a stable code, and its parameters."""

    message: str
    field: str = ""
    reason: str = ""
    params: Mapping[str, str | float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, reason: Reason) -> Problem:
        """A reason as an error's body."""
        return cls(reason.message, "", reason.reason, reason.params)
