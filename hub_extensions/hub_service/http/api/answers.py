"""Converts exceptions to HTTP answers, each with a status and a `Problem`. Only faults of this service get 500."""

from __future__ import annotations

from http import HTTPStatus

from tornado.web import HTTPError, MissingArgumentError

from hub_extensions.adapters.hub.jupyterhub_api import HubAway, HubRefused
from hub_extensions.adapters.store import StoreUnavailable
from hub_extensions.core.messages import Problem
from hub_extensions.core.signing import SIGN_AGAIN
from hub_extensions.core.text.reasons import explain
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.http.api.codec import BadInput
from hub_extensions.hub_service.http.auth import Forbidden, SignAgain

OUR_FAULT = Problem.of(explain("our-fault"))
HUB_IS_AWAY = "The hub is not answering, so nobody can tell who you are. Try again in a minute."
HUB_AWAY = Problem(HUB_IS_AWAY, reason="hub-away")

AGAIN = Problem("Sign this again, with the time and life of this answer.", reason="sign-again")

SENTENCES = {
    400: "This request cannot be read.",
    403: "You may not do this.",
    404: "There is nothing at this address.",
    405: "This address does not take this method.",
    413: "The body is too large.",
}


def problem_of(error: BaseException | None, status: int = 500) -> tuple[int, Problem]:
    """Return the HTTP status and the body that answer an error.

    An unexpected exception is a fault of this service (500).

    Args:
        error: the exception; `None` if the answer follows from `status` alone.
        status: HTTP status of an error without an exception.
    """
    if isinstance(error, BadInput):
        return error.status, Problem(error.message, error.field, error.reason)
    if isinstance(error, Refused):
        return error.status, Problem(error.message, error.field, error.reason, error.params)
    if isinstance(error, Forbidden):
        return 403, Problem.of(error.why)
    if isinstance(error, SignAgain):
        return SIGN_AGAIN, AGAIN
    if isinstance(error, HubAway):
        return 503, HUB_AWAY
    if isinstance(error, StoreUnavailable):
        return 503, Problem(f"{error.message} Nothing was changed.", reason="store-away")
    if isinstance(error, HubRefused):
        return _hub_refusal(error)
    if isinstance(error, MissingArgumentError):
        return 400, Problem(f"{error.arg_name} is missing.", error.arg_name, "bad-input")
    if isinstance(error, HTTPError):
        return _plain(error.status_code)
    return (500, OUR_FAULT) if error is not None else _plain(status)


def is_our_fault(error: BaseException | None) -> bool:
    """Return whether an exception is a fault of this service. Such exceptions are logged with their traceback.

    False if `error` is `None`, which means that nothing was raised.
    """
    return problem_of(error)[1] is OUR_FAULT


def _hub_refusal(error: HubRefused) -> tuple[int, Problem]:
    if error.status == 429:
        return 429, Problem.of(explain("hub-busy"))
    if 400 <= error.status < 500:
        # the hub's message concerns only the caller's own server, so it is passed on
        return 409, Problem.of(explain("hub-refused", answer=error.message))
    return 502, Problem.of(explain("hub-failed"))


def _plain(status: int) -> tuple[int, Problem]:
    if status >= 500:
        return status, OUR_FAULT
    sentence = SENTENCES.get(status, f"{HTTPStatus(status).phrase}.")
    return status, Problem(sentence, reason=HTTPStatus(status).phrase.lower().replace(" ", "-"))
