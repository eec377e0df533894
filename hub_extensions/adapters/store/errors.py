"""What can go wrong with the store, as a sentence for an admin. Not here: what the service does about it."""

from __future__ import annotations


class StoreUnavailable(Exception):
    """The store cannot be read or written now; nothing of what was asked is half-written.

    Attributes:
        sentence: what is wrong and what to do, without passwords.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class StoreTooNew(StoreUnavailable):
    """The database was written by a newer version of this product.

    Attributes:
        found, ours: the schema numbers, e.g. ``0007`` and ``0002``.
    """

    def __init__(self, found: str, ours: str) -> None:
        super().__init__(
            f"The database of database_url has schema {found}, and this version knows schemas up to {ours}. "
            f"Start the newer version again, or name another database in database_url."
        )
        self.found = found
        self.ours = ours
