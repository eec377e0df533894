"""The channels by which a notice (a message to a user) leaves this hub: a webhook or a mail server.

Either of them may hang, refuse, or report a wrong result.
"""


class NotSent(Exception):
    """The receiver did not accept the notice.

    Attributes:
        message: the cause, for the log, the service's report of its own state (``health``) and the journal; without an
            address, a token or a password.
        again: whether another attempt may succeed.
    """

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.message = message
        self.again = again
