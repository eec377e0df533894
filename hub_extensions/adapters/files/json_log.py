"""Log lines as JSON objects without secrets, with the ticket (a user's place in the line) and the server they are
about.

A line that repeats is written once a minute, with the number of repetitions. Callers pass ``extra={"ticket": …,
"server": …}``.
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
MAX_KINDS = 500  # number of kinds of lines that are distinguished; if strangers cause more, all counts start again
LINES_A_STATUS = 10  # number of lines per minute for requests that ended with the same status

access = logging.getLogger("hub_extensions.hub_service.access")


class JsonLines(logging.Formatter):
    """A log formatter that writes a record as one line of JSON.

    The given secrets, and every text that looks like a secret, are replaced.

    Args:
        secrets: texts to replace; empty texts are ignored.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._secrets = tuple(sorted((secret for secret in secrets if secret), key=len, reverse=True))

    def format(self, record: logging.LogRecord) -> str:
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
    """A log filter that passes a repeated line only once a minute, and adds to it how many were suppressed.

    Lines are the same if they report the same failure at the same place in the code, or have the same text; request
    lines are the same if they have the same status. After an information line of a logger (such as *can be read
    again*), the same warning of that logger counts as new.

    Args:
        clock: returns the monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[object, ...], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False if the record has to be suppressed, because enough lines like it were written within this
        minute.
        """
        limit = _lines_a_minute(record)
        if limit is None:
            self._forget_warnings_of(record.name)
            return True
        now = self._clock()
        if len(self._kinds) >= MAX_KINDS:
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
        """Count the next warning of this logger as new; failures with a traceback are still remembered."""
        for kind in [kind for kind in self._kinds if kind[0] == name and isinstance(kind[-1], str)]:
            del self._kinds[kind]


@dataclass
class _Kind:
    since: float
    written: int = 0
    left_out: int = 0


def _lines_a_minute(record: logging.LogRecord) -> int | None:
    """Return how many lines like this record may be written per minute.

    `None` for no limit, which is for information lines except those about requests.
    """
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
    """Write all log lines of this process through `JsonLines`; returns the handler.

    Args:
        secrets: texts that are replaced in every line.
        stream: where the lines are written; `None` for standard error.
        level: the lowest level that is written.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(secrets))
    handler.addFilter(Repeated())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # these log per request or per second what the parts log once
    for loud in ("alembic", "sqlalchemy.engine", "asyncio"):
        logging.getLogger(loud).setLevel(logging.WARNING)
    # JupyterHub's auth logs a warning here for each request of a browser that does not send Sec-Fetch-Mode
    tornado = logging.getLogger("tornado.application")
    tornado.setLevel(logging.ERROR)
    tornado.addFilter(_is_wanted)
    hide_malformed_headers()
    return handler


def hide_malformed_headers() -> None:
    """Remove malformed headers from the log lines in which tornado quotes them, because such a header may be a user's
    cookie.
    """
    logging.getLogger("tornado.general").addFilter(_remove_quoted_header)


def _remove_quoted_header(record: logging.LogRecord) -> bool:
    if isinstance(record.msg, str) and record.msg.startswith("Malformed HTTP message") and record.args:
        record.msg, record.args = "Malformed HTTP message", ()
    return True


def _is_wanted(record: logging.LogRecord) -> bool:
    """Return False for a log line of tornado about the failure of a cancelled request, for which nobody waits
    any more.
    """
    return record.msg != "Exception after Future was cancelled"


def log_request(handler: RequestHandler) -> None:
    """Log one line for a request, without its query (which may contain an OAuth code). Successful requests are
    logged at DEBUG.
    """
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
