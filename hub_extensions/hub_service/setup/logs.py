"""Logs as one JSON object a line, with ticket and server where a line is about one, and never a secret.

Not here: what is logged (the parts do that with ``extra={"ticket": …, "server": …}``).
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TextIO

from tornado.web import RequestHandler

FIELDS = ("ticket", "lease", "user", "server", "offer", "device", "cause", "method", "path", "status", "milliseconds")
HIDDEN = "[hidden]"
LOOKS_SECRET = re.compile(r"(?i)\b(authorization:?\s*(?:bearer|token)\s+|(?:bearer|token)[ =]+|code=)[\w.~+/=-]{8,}")

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
        return LOOKS_SECRET.sub(lambda found: found.group(1) + HIDDEN, text)


def log_json(secrets: Iterable[str], stream: TextIO | None = None, level: int = logging.INFO) -> logging.Handler:
    """Send every log line of this process through `JsonLines` to standard error; returns the handler."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(secrets))
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
    return handler


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
