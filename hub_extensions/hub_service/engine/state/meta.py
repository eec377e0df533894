"""Single values that the store keeps beside its tables, each under a name, as JSON.

A value that another version of this product wrote in another format is treated as missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hub_extensions.core.culling import RoutesRenewed
from hub_extensions.core.messages import WithoutSessions
from hub_extensions.core.notices import AdminLetter, Sending, TrainingNotice
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.queue.cordons import Cordon
from hub_extensions.core.queue.failed_starts import KeptFailure
from hub_extensions.core.stops import StopRecord

CLOCK = "clock"
POOL_NAMES = "pool-names"
OFFERS = "offers"
TOKEN_NAME = "token-name"
SENDINGS = "sendings"
POOL_SIZES = "pool-sizes"
STOPS = "stops"
ROUTES_RENEWED = "routes-renewed"
FAILED_STARTS = "failed-starts"
CORDONS = "cordons"
LETTERS = "letters"
LANGUAGES = "languages"
WITHOUT_SESSION = "without-session"
MISSED_ENDS = "missed-ends"
TRAININGS = "trainings"
_LETTERS: TypeAdapter[tuple[AdminLetter, ...]] = TypeAdapter(tuple[AdminLetter, ...])
_CORDONS: TypeAdapter[tuple[Cordon, ...]] = TypeAdapter(tuple[Cordon, ...])
_WITHOUT_SESSION: TypeAdapter[WithoutSessions] = TypeAdapter(WithoutSessions)
_OFFERS: TypeAdapter[tuple[GpuOffer, ...]] = TypeAdapter(tuple[GpuOffer, ...])
_STOP: TypeAdapter[StopRecord] = TypeAdapter(StopRecord)
_STOPS: TypeAdapter[tuple[StopRecord, ...]] = TypeAdapter(tuple[StopRecord, ...])
_ROUTES_RENEWED: TypeAdapter[RoutesRenewed] = TypeAdapter(RoutesRenewed)
_FAILURES: TypeAdapter[tuple[KeptFailure, ...]] = TypeAdapter(tuple[KeptFailure, ...])
_LANGUAGES: TypeAdapter[Mapping[str, str]] = TypeAdapter(Mapping[str, str])
_MISSED_ENDS: TypeAdapter[Mapping[str, tuple[datetime, ...]]] = TypeAdapter(Mapping[str, tuple[datetime, ...]])
_TRAININGS: TypeAdapter[tuple[TrainingNotice, ...]] = TypeAdapter(tuple[TrainingNotice, ...])
_SENDINGS: TypeAdapter[Mapping[str, Sending]] = TypeAdapter(Mapping[str, Sending])


def read_sendings(kept: str) -> Mapping[str, Sending]:
    """Parse the stored JSON: channel (e-mail, webhook) -> its last successful and last failed sending of a notice.

    Empty if another version wrote it in another format.
    """
    try:
        return _SENDINGS.validate_json(kept)
    except ValidationError:
        return {}


def write_sendings(sendings: Mapping[str, Sending]) -> str:
    return _SENDINGS.dump_json(sendings).decode()


def read_stops(kept: str) -> tuple[StopRecord, ...]:
    """Parse the stored JSON of the stops that are announced or have begun, also as an earlier version wrote it.

    A stop that a later version wrote in another format is left out.
    """
    found: list[StopRecord] = []
    with suppress(ValueError, TypeError):  # not a JSON list
        for stop in json.loads(kept):
            with suppress(ValidationError, AttributeError, KeyError, TypeError):
                found.append(_STOP.validate_python(_with_causes(stop)))
    return tuple(found)


def _with_causes(stop: dict[str, Any]) -> dict[str, Any]:
    """Convert the JSON of a stop to the present format, in which it has a list of causes.

    An earlier version stored only one cause, and the sentence that explains this cause to the user.
    """
    cause, why = stop.get("cause"), stop.get("why")
    at = next((stop[name] for name in ("began", "asked", "since", "run") if stop.get(name)), None)
    if "causes" in stop or cause is None or at is None:
        return stop
    code, params = ("was-to-end", {}) if why is None else (why["reason"], why["params"])
    return {**stop, "causes": [{"cause": cause, "at": at, "shown": True, "code": code, "params": params}]}


def write_stops(stops: Iterable[StopRecord]) -> str:
    return _STOPS.dump_json(tuple(stops)).decode()


def read_routes_renewed(kept: str) -> RoutesRenewed | None:
    """Parse the stored JSON of the last restart of the proxy, after which it got all its routes again.

    `None` if no restart was seen, or if another version wrote the value in another format.
    """
    try:
        return _ROUTES_RENEWED.validate_json(kept)
    except ValidationError:
        return None


def write_routes_renewed(renewed: RoutesRenewed) -> str:
    return _ROUTES_RENEWED.dump_json(renewed).decode()


def read_offers(kept: str) -> tuple[GpuOffer, ...]:
    """Parse the stored JSON of the offers (options of the spawn form) that the cluster had when it was last read.

    Empty if another version wrote it in another format.
    """
    try:
        return _OFFERS.validate_json(kept)
    except ValidationError:
        return ()


def write_offers(offers: tuple[GpuOffer, ...]) -> str:
    return _OFFERS.dump_json(offers).decode()


def read_failures(kept: str) -> tuple[KeptFailure, ...]:
    """Parse the stored JSON of the failed starts of servers, the oldest first.

    Empty if another version wrote it in another format.
    """
    try:
        return _FAILURES.validate_json(kept)
    except ValidationError:
        return ()


def write_failures(failures: tuple[KeptFailure, ...]) -> str:
    return _FAILURES.dump_json(failures).decode()


def read_cordons(kept: str) -> tuple[Cordon, ...]:
    """Parse the stored JSON of the devices and nodes that administrators have closed to new servers.

    Empty if another version wrote it in another format.
    """
    try:
        return _CORDONS.validate_json(kept)
    except ValidationError:
        return ()


def write_cordons(cordons: tuple[Cordon, ...]) -> str:
    return _CORDONS.dump_json(cordons).decode()


def read_letters(kept: str) -> tuple[AdminLetter, ...]:
    """Parse the stored JSON of the messages that administrators wrote to the users of running servers.

    Empty if another version wrote it in another format.
    """
    try:
        return _LETTERS.validate_json(kept)
    except ValidationError:
        return ()


def write_letters(letters: tuple[AdminLetter, ...]) -> str:
    return _LETTERS.dump_json(letters).decode()


def read_without_session(kept: str) -> WithoutSessions:
    """Parse the stored JSON of the users who have no sign-in session at the hub. Their accounts may no longer exist.

    Without users if another version wrote it in another format.
    """
    try:
        return _WITHOUT_SESSION.validate_json(kept)
    except ValidationError:
        return WithoutSessions(())


def write_without_session(reported: WithoutSessions) -> str:
    return _WITHOUT_SESSION.dump_json(reported).decode()


def read_languages(kept: str) -> Mapping[str, str]:
    """Parse the stored JSON: user -> language of the last page that the user opened.

    Empty if another version wrote it in another format.
    """
    try:
        return _LANGUAGES.validate_json(kept)
    except ValidationError:
        return {}


def write_languages(languages: Mapping[str, str]) -> str:
    return _LANGUAGES.dump_json(languages).decode()


def read_missed_ends(kept: str) -> Mapping[str, tuple[datetime, ...]]:
    """Parse the stored JSON: user -> when ends that the user's programs had reported were missed.

    Empty if another version wrote it in another format.
    """
    try:
        return _MISSED_ENDS.validate_json(kept)
    except ValidationError:
        return {}


def write_missed_ends(missed: Mapping[str, tuple[datetime, ...]]) -> str:
    return _MISSED_ENDS.dump_json(missed).decode()


def read_trainings(kept: str) -> tuple[TrainingNotice, ...]:
    """Parse the stored JSON of the notices about trainings that were sent lately or are being sent.

    Empty if another version wrote it in another format.
    """
    try:
        return _TRAININGS.validate_json(kept)
    except ValidationError:
        return ()


def write_trainings(notices: Iterable[TrainingNotice]) -> str:
    return _TRAININGS.dump_json(tuple(notices)).decode()
