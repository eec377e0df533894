"""The exceptions of the engine: a refused request, and a forecast worker that ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from hub_extensions.core.text.reasons import Reason


class Refused(Exception):
    """The service refuses a request; the HTTP API answers with these values.

    Attributes:
        status: HTTP status, 4xx or 503.
        message: what is wrong and what would be right, for a person.
        field: the field of the request that is wrong; "" if the whole request is wrong.
        reason: a stable code, for metrics and programs.
        params: name -> value of the placeholders in the message; empty without placeholders.
        again_after: with status 429, how long to wait before the next try; `None` with another status.
    """

    again_after: timedelta | None = None

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
        """Create a refusal whose message, code and parameters come from `why`.

        Args:
            status: HTTP status, 4xx or 503.
            why: the reason that is shown to people.
            field: the field of the request that is wrong; "" if the whole request is wrong.
        """
        return cls(status, why.message, field, why.reason, why.params)

    @classmethod
    def too_often(cls, message: str, reason: str, again_after: timedelta) -> Refused:
        """Create the refusal of a request that came too soon after earlier ones; its status is 429."""
        refused = cls(429, message, "", reason)
        refused.again_after = again_after
        return refused


class CalculationEnded(Exception):
    """The worker process that computes forecasts ended without an answer.

    The history that it had loaded is lost, so the caller sends the history to a new worker and asks again.
    """
