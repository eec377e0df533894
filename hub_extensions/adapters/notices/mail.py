"""Sends a notice as an e-mail by SMTP, in a daemon thread that does not delay the end of the service.

The connection is encrypted before a name or password is sent, and the server's certificate is verified. A server
that is too slow is cut off after `SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

from hub_extensions.adapters.notices import NotSent

SECONDS = 30.0
STEP_SECONDS = 10.0  # longest silence of the server


@dataclass(frozen=True)
class MailServer:
    """A mail server by which notices are sent, with its settings.

    Attributes:
        host, port: where it listens.
        security: ``starttls``, ``tls`` or ``none``.
        user, password: with which the service signs in; "" to send without signing in.
        ca_file: file of accepted authorities; "" for the system's.
        seconds: time limit of a delivery.
    """

    host: str
    port: int
    security: str = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    seconds: float = SECONDS

    async def send(self, message: EmailMessage) -> None:
        """Deliver the message to the mail server. Raises NotSent."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[NotSent | None] = loop.create_future()

        def report(problem: NotSent | None) -> None:
            if not done.done():
                done.set_result(problem)

        def work() -> None:
            problem = self._sent(message)
            with contextlib.suppress(RuntimeError):  # the service has ended meanwhile
                loop.call_soon_threadsafe(report, problem)

        threading.Thread(target=work, name="gpu-mail", daemon=True).start()
        problem = await done
        if problem is not None:
            raise problem

    def _sent(self, message: EmailMessage) -> NotSent | None:
        late = threading.Event()
        try:
            self._talk(message, late)
        except (smtplib.SMTPException, OSError, ValueError) as error:
            if late.is_set():
                return NotSent(f"The mail server does not answer (nothing within {self.seconds:g} s).")
            return _problem_of(error)
        return None

    def _talk(self, message: EmailMessage, late: threading.Event) -> None:
        tls = ssl.create_default_context(cafile=self.ca_file or None)
        watched: list[smtplib.SMTP] = []
        timer = threading.Timer(self.seconds, _cut, (watched, late))
        timer.daemon = True
        timer.start()
        try:
            with self._connected(watched, tls) as opened:
                if self.user:
                    opened.login(self.user, self.password)
                opened.send_message(message)
                with contextlib.suppress(smtplib.SMTPException, OSError):
                    opened.quit()  # the message is already accepted
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def _connected(self, watched: list[smtplib.SMTP], tls: ssl.SSLContext) -> Iterator[smtplib.SMTP]:
        opened: smtplib.SMTP
        try:
            if self.security == "tls":
                opened = _SecureServer(watched, self.host, self.port, timeout=STEP_SECONDS, context=tls)
            else:
                opened = _Server(watched, self.host, self.port, timeout=STEP_SECONDS)
            if self.security == "starttls":
                opened.starttls(context=tls)
            yield opened
        finally:
            for each in watched:
                each.close()


class _Server(smtplib.SMTP):
    """An SMTP client that the time limit can cut off even if the server's greeting never ends.

    Args:
        watched: the client adds itself to this list before it connects. When the time is over, a timer shuts down the
            connection of each client in the list.
    """

    def __init__(self, watched: list[smtplib.SMTP], *args: Any, **more: Any) -> None:
        watched.append(self)
        super().__init__(*args, **more)


class _SecureServer(smtplib.SMTP_SSL):
    def __init__(self, watched: list[smtplib.SMTP], *args: Any, **more: Any) -> None:
        watched.append(self)
        super().__init__(*args, **more)


def _cut(watched: Sequence[smtplib.SMTP], late: threading.Event) -> None:
    late.set()
    for opened in watched:
        if opened.sock is not None:
            with contextlib.suppress(OSError):
                opened.sock.shutdown(socket.SHUT_RDWR)


def _problem_of(error: Exception) -> NotSent:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code = min(status for status, _ in error.recipients.values())
        return NotSent(f"The mail server does not take the address ({code}).", again=code < 500)
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return NotSent(f"The mail server does not let us log in ({error.smtp_code}).")
    if isinstance(error, smtplib.SMTPResponseException):
        return NotSent(f"The mail server refuses it ({error.smtp_code}).")
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return NotSent("The mail server cannot do what smtp_security and smtp_user ask for.")
    silent = f"nothing within {STEP_SECONDS:g} s" if isinstance(error, TimeoutError) else ""
    why = silent or getattr(error, "strerror", None) or str(error) or type(error).__name__
    return NotSent(f"The mail server does not answer ({why}).")
