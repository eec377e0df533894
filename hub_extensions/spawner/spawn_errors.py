"""Errors of a start, for every supported version of JupyterHub: refusals, and failed starts.

A refusal means that the hub works correctly and the user cannot have this server now. A refusal has a message for the
user, a message for the log, and a reason for the metric. ``SpawnException`` of JupyterHub 6 has the same three, but
JupyterHub shows only the ``jupyterhub_message``. JupyterHub 5 counts every exception as a failed spawn;
`undo_failure_count` reverses that for refusals.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from datetime import datetime
from html import escape
from typing import Any

from tornado import web
from tornado.log import app_log

from hub_extensions.adapters.service.gpu_service import ServiceRefused
from hub_extensions.core.messages import Ended, TicketStatus
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.failed_starts import (
    CRASHED,
    LOG_LENGTH,
    NO_ANSWER,
    TOO_SLOW,
    failure,
    reasons_of,
    sentence,
)
from hub_extensions.core.text.reasons import Reason, as_text, explain, recalled
from hub_extensions.core.text.sentence_pieces import joined
from hub_extensions.spawner.pages.texts import clock

try:  # JupyterHub 6 and later
    from jupyterhub.spawner import SpawnException
except ImportError:  # JupyterHub 5
    SpawnException = None

COUNTS_REFUSALS = SpawnException is None
"""Whether this JupyterHub (5) counts every exception of a start, also a refusal, as a failed spawn."""

LEASE_GONE = explain("lease-gone")
PLACE_ENDED = explain("place-ended")
NOT_ALLOWED = ("not-your-group-any-more", "no-such-user")
"""Reasons with which an ended ticket is answered with the HTTP status 403, because the user lacks a right; else 409."""


class HubMessage(str):
    """The English text of an error. The hub passes it unchanged to the page, which translates it by its reasons.

    Attributes:
        reasons: the sentences with which the text begins, in a form that can be translated; empty for plain text.
    """

    reasons: tuple[Reason, ...] = ()

    @classmethod
    def of(cls, text: str, reasons: Sequence[Reason]) -> HubMessage:
        """Make a message.

        Args:
            text: the English text.
            reasons: the sentences with which the text begins, in a form that can be translated; empty for plain text.
        """
        made = cls(text)
        made.reasons = tuple(reasons)
        return made


def refusal(
    why: str | Sequence[Reason],
    *,
    reason: str,
    log_message: str = "",
    status: int = 400,
    log_tail: str = "",
) -> web.HTTPError:
    """Return the exception to raise from ``Spawner.start`` or ``options_from_form`` if the user cannot have the server.

    Args:
        why: one or two sentences for the user: what happened, why, and what to do. Either plain text, which is escaped
            in HTML, or reasons, which pages translate.
        reason: label of the metric, such as ``unknown-offer``.
        log_message: the hub's log line; "" to log `why`.
        status: the HTTP status of the answer.
        log_tail: the last lines of the server's own log, for administrators; "" without a log.
    """
    error: Any  # the attributes below are JupyterHub's custom, not tornado's
    message = why if isinstance(why, str) else as_text(why)
    if SpawnException is None:
        # JupyterHub 5 answers REST calls with the log message: it has to be the user's text
        error = web.HTTPError(status, message)
    else:
        error = SpawnException(
            message,
            reason=reason,
            log_message=log_message or message,
            message_html=escape(message),
            status_code=status,
        )
    # 6.1 shows these two only, whatever SpawnException was given
    reasons: Sequence[Reason] = () if isinstance(why, str) else why
    error.jupyterhub_message = HubMessage.of(message, reasons)
    error.jupyterhub_html_message = escape(message)
    error.gpu_reason = reason
    error.gpu_reasons = tuple(reasons)
    error.gpu_log_message = log_message or message
    error.gpu_log_tail = log_tail
    return error  # type: ignore[no-any-return]


def place_ended(state: TicketStatus, log_name: str) -> web.HTTPError:
    """Return the refusal for a start whose ticket (place in the line) the GPU service refused or ended.

    Args:
        state: the service's answer, with the reason.
        log_name: names the server in the log.
    """
    reason = state.reason
    explanation: Sequence[Reason] = (reason,) if reason.message else (explain("ended"),)
    if state.answer == "ended" and not explanation[0].message.startswith(PLACE_ENDED.message):
        explanation = (PLACE_ENDED, reason)
    return refusal(
        explanation,
        reason=reason.reason or "ended",
        log_message=f"{log_name}: {reason.log_message or as_text(explanation)}",
        status=403 if reason.reason in NOT_ALLOWED else 409,
    )


def refused_by_service(refused: ServiceRefused, log_name: str) -> web.HTTPError:
    """Return the refusal for a start whose request the GPU service answered with an error.

    Args:
        refused: the service's answer.
        log_name: names the server in the log.
    """
    problem = refused.problem
    log = f"{log_name}: {problem.field}: {problem.message}"
    known = recalled(problem.reason, problem.params)
    explanation = (known,) if known is not None and known.message == problem.message else problem.message
    return refusal(explanation, reason=problem.reason or "refused", log_message=log, status=refused.status)


def service_away(since: datetime, *, kept: bool) -> web.HTTPError:
    """Return the refusal for a GPU start because the GPU service has not answered for too long.

    Args:
        since: when the service stopped answering.
        kept: the start has a ticket, so the user's place in line is kept.
    """
    then = explain("service-away-place-kept" if kept else "service-away-later")
    return refusal((explain("service-away", since=clock(since)), then), reason="service-away", status=503)


def is_refusal(error: BaseException | None) -> bool:
    """Whether this error was made by `refusal`. False for None."""
    return bool(getattr(error, "gpu_reason", ""))


def reason_of(error: BaseException | None) -> str:
    """Return the label with which the metric counts a failed start.

    A refusal has its own label. The label is ``too-slow`` after a timeout, and "" for any other error.

    Args:
        error: the exception of the start; None without one.
    """
    slow = TOO_SLOW if isinstance(error, asyncio.TimeoutError) else ""
    return str(getattr(error, "gpu_reason", "")) or slow


class _ShortEnds(logging.Filter):
    """A log filter that turns the traceback of a refused, failed or cancelled start into one line at level INFO."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        late = record.msg == AFTER_TIMEOUT and isinstance(error, asyncio.CancelledError)
        if late or is_refusal(error) or getattr(error, "gpu_explained", False):
            why = "it was cancelled" if late else getattr(error, "gpu_log_message", error)
            what = "A start ended" if record.msg == AFTER_TIMEOUT else record.getMessage()
            record.msg, record.args = f"{what}: {why}", ()
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            record.exc_info = record.exc_text = None
        return True


AFTER_TIMEOUT = "Exception in Future %r after timeout"
"""Tornado's log message for a start that fails after JupyterHub 5 has already answered the request."""
_SHORT_ENDS = _ShortEnds()


def install_short_logs(hub_log: logging.Logger) -> None:
    """Shorten the log lines about refused, failed and cancelled starts, in the hub's log and in tornado's.

    JupyterHub 5 uses the latter. The function can be called repeatedly.
    """
    hub_log.addFilter(_SHORT_ENDS)
    app_log.addFilter(_SHORT_ENDS)


def is_lease_gone(refused: ServiceRefused | None) -> bool:
    """Whether the GPU service refused the report that a server has started, because its lease is gone.

    The start's ticket has ended, or the service has begun another attempt (a new try to start the server) with it.

    Args:
        refused: the service's answer to the report; None if it accepted the report.
    """
    return refused is not None and refused.status in (404, 409)


def explain_failure(error: BaseException | None, offer: OfferId, http_seconds: float) -> Ended:
    """Return the report of a failed start for the GPU service, and set the same text on `error` for the hub's page.

    Args:
        error: the exception of the spawn; None if the spawn ended without one although the server is not ready.
        offer: the offer that the start was admitted to.
        http_seconds: how long the hub waits for a server's first answer.
    """
    cause, message, seconds = reason_of(error), getattr(error, "jupyterhub_message", ""), 0.0
    log: str = getattr(error, "gpu_log_tail", "")
    reasons: tuple[Reason, ...] = getattr(error, "gpu_reasons", ())
    if isinstance(error, StartTookTooLong):
        seconds = error.limit
    elif isinstance(error, asyncio.TimeoutError):
        cause, seconds = NO_ANSWER, http_seconds
    elif isinstance(error, ServerEnded):
        cause = CRASHED
    elif error is not None and not message:
        log = "".join(traceback.format_exception(error))[-LOG_LENGTH:]
    words = "" if reasons else message
    ended = Ended(0, "failed", words, cause, seconds, log, tuple(replace(each, log_message="") for each in reasons))
    if error is not None and not is_refusal(error):
        text = joined(sentence(reasons_of(ended), offer))
        shown: Any = error  # the hub's page shows jupyterhub_message and jupyterhub_html_message
        shown.gpu_reasons = reasons_of(ended)
        shown.jupyterhub_message, shown.jupyterhub_html_message = HubMessage.of(text, shown.gpu_reasons), escape(text)
        shown.gpu_explained = isinstance(error, (asyncio.TimeoutError, ServerEnded))
    return ended


def spawn_reasons(spawn: asyncio.Future[Any] | None) -> Sequence[Reason]:
    """Return the reasons why a spawn failed; empty if it did not fail or its error gives none.

    Args:
        spawn: the hub's future of the spawner's last start; None if this hub process has not started it.
    """
    if spawn is None or not spawn.done() or spawn.cancelled():
        return ()
    return getattr(spawn.exception(), "gpu_reasons", ())


class StartTookTooLong(asyncio.TimeoutError):
    """A server did not get ready within ``start_timeout`` after its start was admitted.

    JupyterHub counts this as a failed start.

    Args:
        seconds: the timeout.
        why: what the start waited for last; empty if that is not known.

    Attributes:
        limit: the timeout, in seconds.
        gpu_reasons: `why`, and that the start took too long.
    """

    def __init__(self, seconds: float, why: Sequence[Reason] = ()) -> None:
        self.limit = seconds
        self.gpu_reasons = (*why, failure(TOO_SLOW, "", seconds))
        super().__init__(as_text(self.gpu_reasons))


class ServerEnded(Exception):
    """A server's process ended before it answered a request. JupyterHub counts this as a failed start.

    Args:
        log_name: names the server in the log.
        status: exit status of the process.
    """

    gpu_explained = True

    def __init__(self, log_name: str, status: int) -> None:
        super().__init__(f"{log_name} ended by itself with status {status} before it answered")


def undo_failure_count(spawner: Any, error: BaseException) -> None:
    """Keep JupyterHub 5 from counting a refusal as a failed spawn, which could end the hub.

    JupyterHub counts in a callback of the spawn's future, and ends itself if the count reaches
    ``consecutive_failure_limit``. So the limit is removed until a second callback, which runs after JupyterHub's, has
    decreased the count again.

    Args:
        spawner: the spawner whose start has ended.
        error: the exception of the start. If it is not a refusal, nothing is done.
    """
    spawn: asyncio.Future[Any] | None = spawner._spawn_future
    if not COUNTS_REFUSALS or not is_refusal(error) or spawn is None or spawner.handler is None:
        return
    settings: MutableMapping[str, Any] = spawner.handler.settings
    limit, spawner.consecutive_failure_limit = spawner.consecutive_failure_limit, 0

    def uncount(_: asyncio.Future[Any]) -> None:
        settings["failure_count"] = max(0, settings.get("failure_count", 0) - 1)
        spawner.consecutive_failure_limit = limit

    spawn.add_done_callback(uncount)
