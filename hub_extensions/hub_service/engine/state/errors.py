"""The one exception by which the service says no: a status, a message, the field and a reason."""

from __future__ import annotations

from collections.abc import Mapping

from hub_extensions.core.text.reasons import Reason


class Refused(Exception):
    """A request that is not granted.

    Attributes:
        status: HTTP status, 4xx or 503.
        message: what is wrong and what would be right, for a person.
        field: the field of the request it is about; "" for none.
        reason: a stable code, for metrics and programs; params: what the message was made with, where it is a reason's.
    """

    def __init__(
        self,
        status: int,
        message: str,
        field: str = "",
        reason: str = "refused",
        params: Mapping[str, str | float] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.reason = reason
        self.params = params or {}

    @classmethod
    def because(cls, status: int, why: Reason, field: str) -> Refused:
        """With a reason that people are told."""
        return cls(status, why.message, field, why.reason, why.params)
