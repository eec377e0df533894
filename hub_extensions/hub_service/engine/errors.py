"""The one exception by which the service says no: a status, a sentence, the field and a word."""

from __future__ import annotations


class Refused(Exception):
    """A request that is not granted.

    Attributes:
        status: HTTP status, 4xx or 503.
        message: what is wrong and what would be right, for a person.
        field: the field of the request it is about; "" for none.
        word: for metrics and programs.
    """

    def __init__(self, status: int, message: str, field: str = "", word: str = "refused") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.word = word
