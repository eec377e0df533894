"""Logs as one JSON object a line, with ticket and server where a line is about one, and never a secret.

A line that repeats itself is written once a minute, with how often it came meanwhile. Not here: what is logged (the
parts do that with ``extra={"ticket": …, "server": …}``).
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TextIO

from tornado.web import RequestHandler

FIELDS = ("ticket", "lease", "user", "server", "offer", "device", "cause", "method", "path", "status", "milliseconds")
HIDDEN = "[hidden]"
SECRET_PATTERN = re.compile(r"(?i)\b(authorization:?\s*(?:bearer|token)\s+|(?:bearer|token)[ =]+|code=)[\w.~+/=-]{8,}")

REPEATED_SECONDS = 60.0
MOST_KINDS = 500
"""So many kinds of lines are told apart; where strangers make more of them, all are counted anew."""
LINES_A_STATUS = 10
"""Of requests that ended with one status so many lines are written a minute."""

access = logging.getLogger("hub_extensions.hub_service.access")


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON; the given secrets and whatever looks like one are taken out."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets = tuple(sorted((secret for secret in secrets if secret), key=len, reverse=True))

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._clean(record.getMessage()),
        }
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                line[name] = self._clean(value) if isinstance(value, str) else value
        if record.exc_info:
            line["traceback"] = self._clean(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False, default=str)

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return SECRET_PATTERN.sub(lambda found: found.group(1) + HIDDEN, text)


class Repeated(logging.Filter):
    """Passes a line that comes again only once a minute, and says in it how many were left out.

    The same line is: the same failure at the same place in the code, or the same words; a request's is its status.
    After a line of what went on (*can be read again*) the same warning of that logger is a new one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[object, ...], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """False: it was written within this minute."""
        limit = _lines_a_minute(record)
        if limit is None:
            self._forget_warnings_of(record.name)
            return True
        now = self._clock()
        if len(self._kinds) >= MOST_KINDS:
            self._kinds.clear()
        kind = self._kinds.setdefault(_kind_of(record), _Kind(now))
        left_out = kind.left_out
        if now - kind.since >= REPEATED_SECONDS:
            kind.since, kind.written, kind.left_out = now, 0, 0
        if kind.written >= limit:
            kind.left_out += 1
            return False
        kind.written += 1
        if left_out and not kind.left_out:
            record.msg, record.args = f"{record.getMessage()} (and {left_out} more like it before)", ()
        return True

    def _forget_warnings_of(self, name: str) -> None:
        """Of one logger; a failure at a place in the code stays the same failure."""
        for kind in [kind for kind in self._kinds if kind[0] == name and isinstance(kind[-1], str)]:
            del self._kinds[kind]


@dataclass
class _Kind:
    since: float
    written: int = 0
    left_out: int = 0


def _lines_a_minute(record: logging.LogRecord) -> int | None:
    """None: as many as there are, as of what the parts say once."""
    if record.name == access.name:
        return LINES_A_STATUS
    if record.exc_info or record.levelno >= logging.WARNING or record.name.startswith(("tornado", "asyncio")):
        return 1
    return None


def _kind_of(record: logging.LogRecord) -> tuple[object, ...]:
    words: object = record.msg if record.name.startswith("tornado") else record.getMessage()
    if record.exc_info and record.exc_info[2] is not None:
        trace = record.exc_info[2]
        while trace.tb_next is not None:
            trace = trace.tb_next
        words = (record.exc_info[0], trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    if record.name == access.name:
        words = getattr(record, "status", None)
    return record.name, record.levelno, words


def log_json(secrets: Iterable[str], stream: TextIO | None = None, level: int = logging.INFO) -> logging.Handler:
    """Send every log line of this process through `JsonLines` to standard error; returns the handler."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(secrets))
    handler.addFilter(Repeated())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # these say per request or per second what the parts say once
    for loud in ("alembic", "sqlalchemy.engine", "asyncio"):
        logging.getLogger(loud).setLevel(logging.WARNING)
    # JupyterHub's auth warns once a request here, about browsers that do not send Sec-Fetch-Mode
    tornado = logging.getLogger("tornado.application")
    tornado.setLevel(logging.ERROR)
    tornado.addFilter(_still_wanted)
    leave_out_what_was_sent()
    return handler


def leave_out_what_was_sent() -> None:
    """tornado quotes the header that it cannot read, which may be somebody's cookie."""
    logging.getLogger("tornado.general").addFilter(_without_the_quote)


def _without_the_quote(record: logging.LogRecord) -> bool:
    if isinstance(record.msg, str) and record.msg.startswith("Malformed HTTP message") and record.args:
        record.msg, record.args = "Malformed HTTP message", ()
    return True


def _still_wanted(record: logging.LogRecord) -> bool:
    """False for the failure of a request that we had given up: tornado reports it, and nobody waits for it."""
    return record.msg != "Exception after Future was cancelled"


def log_request(handler: RequestHandler) -> None:
    """One line a request, without its query (an OAuth code is in one). What went well is for debugging only."""
    status = handler.get_status()
    level = logging.ERROR if status >= 500 and status != 503 else logging.INFO if status >= 400 else logging.DEBUG
    request = handler.request
    extra = {
        "method": request.method,
        "path": request.path,
        "status": status,
        "milliseconds": round(1000 * request.request_time(), 1),
    }
    access.log(level, "%s %s %d", request.method, request.path, status, extra=extra)
