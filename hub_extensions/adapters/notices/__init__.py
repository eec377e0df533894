"""Who carries a notice out of this hub: a webhook of the admin's, a mail server. Both may hang, refuse or lie."""


class NotSent(Exception):
    """It was not taken.

    Attributes:
        message: why, for log, ``health`` and journal: without an address, a token or a password.
        again: another try may help.
    """

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.again = again
