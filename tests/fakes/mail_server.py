"""A mail server on loopback that speaks as much SMTP as an e-mail needs. Its failure modes are classes with a name."""

from __future__ import annotations

import email
import socketserver
import ssl
import threading
import time
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import cast

PATIENCE = 20.0


class MailServerAsTold:
    """Takes every message into `messages`, with whom it was for. With `certificate` (and key) it offers STARTTLS.

    `logins` are what clients proved themselves with; `secured`, of each message, whether the line was encrypted.
    """

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.messages: list[tuple[str, EmailMessage]] = []
        self.logins: list[str] = []
        self.secured: list[bool] = []
        self.tls: ssl.SSLContext | None = None
        if certificate is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(*certificate)
        told = self

        class Session(_Session):
            server_as_told = told

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def greet(self, session: _Session) -> None:
        session.say("220 mail.example.org")

    def take_recipient(self, address: str) -> str:
        return "250 ok"


class MailServerThatKnowsNobody(MailServerAsTold):
    def take_recipient(self, address: str) -> str:
        return "550 5.1.1 unknown user"


class MailServerThatDrips(MailServerAsTold):
    """Its greeting never ends: a letter every tenth of a second."""

    def greet(self, session: _Session) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            session.wfile.write(b"2")
            time.sleep(0.1)


class _Session(socketserver.StreamRequestHandler):
    server_as_told: MailServerAsTold

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())

    def handle(self) -> None:
        told, secured, address = self.server_as_told, False, ""
        try:
            told.greet(self)
            while line := self.rfile.readline().decode().strip():
                word = line.split(" ")[0].upper()
                if word == "EHLO":
                    offered = ["AUTH PLAIN"] if secured or told.tls is None else ["STARTTLS"]
                    self.say("250-mail.example.org")
                    self.say(f"250 {offered[0]}")
                elif word == "STARTTLS" and told.tls is not None:
                    self.say("220 go ahead")
                    self.request = told.tls.wrap_socket(self.request, server_side=True)
                    self.setup()
                    secured = True
                elif word == "AUTH":
                    told.logins.append(line)
                    self.say("235 ok")
                elif word == "RCPT":
                    address = line.partition("<")[2].partition(">")[0]
                    self.say(told.take_recipient(address))
                elif word == "DATA":
                    self.say("354 go on")
                    message = email.message_from_bytes(self._data(), policy=default)
                    told.messages.append((address, cast(EmailMessage, message)))
                    told.secured.append(secured)
                    self.say("250 taken")
                else:
                    self.say("221 bye" if word == "QUIT" else "250 ok")
        except OSError:
            return  # the client is gone
        finally:
            self.request.close()

    def _data(self) -> bytes:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line[1:] if line.startswith(b"..") else line)
        return b"".join(lines)
