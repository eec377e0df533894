"""What the store keeps beside its tables: a few texts, each under a name.

What another version of ours wrote otherwise counts as not kept. Not here: when they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import TypeAdapter, ValidationError

from hub_extensions.core.culling import RoutesRenewed
from hub_extensions.core.messages import WithoutSessions
from hub_extensions.core.notices import AdminLetter, Sending
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
_LETTERS: TypeAdapter[tuple[AdminLetter, ...]] = TypeAdapter(tuple[AdminLetter, ...])
_CORDONS: TypeAdapter[tuple[Cordon, ...]] = TypeAdapter(tuple[Cordon, ...])
_WITHOUT_SESSION: TypeAdapter[WithoutSessions] = TypeAdapter(WithoutSessions)
_OFFERS: TypeAdapter[tuple[GpuOffer, ...]] = TypeAdapter(tuple[GpuOffer, ...])
_STOPS: TypeAdapter[tuple[StopRecord, ...]] = TypeAdapter(tuple[StopRecord, ...])
_ROUTES_RENEWED: TypeAdapter[RoutesRenewed] = TypeAdapter(RoutesRenewed)
_FAILURES: TypeAdapter[tuple[KeptFailure, ...]] = TypeAdapter(tuple[KeptFailure, ...])
_LANGUAGES: TypeAdapter[Mapping[str, str]] = TypeAdapter(Mapping[str, str])
_SENDINGS: TypeAdapter[Mapping[str, Sending]] = TypeAdapter(Mapping[str, Sending])


def read_sendings(kept: str) -> Mapping[str, Sending]:
    """How the last sendings went, by channel; nothing where another version wrote it otherwise."""
    try:
        return _SENDINGS.validate_json(kept)
    except ValidationError:
        return {}


def write_sendings(sendings: Mapping[str, Sending]) -> str:
    """As `read_sendings` reads them."""
    return _SENDINGS.dump_json(sendings).decode()


def read_stops(kept: str) -> tuple[StopRecord, ...]:
    """Read the stops that have begun; none if another version wrote them differently."""
    try:
        return _STOPS.validate_json(kept)
    except ValidationError:
        return ()


def write_stops(stops: Iterable[StopRecord]) -> str:
    """Write them as `read_stops` reads them."""
    return _STOPS.dump_json(tuple(stops)).decode()


def read_routes_renewed(kept: str) -> RoutesRenewed | None:
    """When the proxy was given its routes anew last; None: never, or another version wrote it otherwise."""
    try:
        return _ROUTES_RENEWED.validate_json(kept)
    except ValidationError:
        return None


def write_routes_renewed(renewed: RoutesRenewed) -> str:
    """As `read_routes_renewed` reads it."""
    return _ROUTES_RENEWED.dump_json(renewed).decode()


def read_offers(kept: str) -> tuple[GpuOffer, ...]:
    """The offers of before; none where another version wrote them otherwise."""
    try:
        return _OFFERS.validate_json(kept)
    except ValidationError:
        return ()


def write_offers(offers: tuple[GpuOffer, ...]) -> str:
    """As `read_offers` reads them."""
    return _OFFERS.dump_json(offers).decode()


def read_failures(kept: str) -> tuple[KeptFailure, ...]:
    """Starts that failed, the oldest first; none where another version wrote them otherwise."""
    try:
        return _FAILURES.validate_json(kept)
    except ValidationError:
        return ()


def write_failures(failures: tuple[KeptFailure, ...]) -> str:
    """As `read_failures` reads them."""
    return _FAILURES.dump_json(failures).decode()


def read_cordons(kept: str) -> tuple[Cordon, ...]:
    """The cards that are being emptied; none where another version wrote them otherwise."""
    try:
        return _CORDONS.validate_json(kept)
    except ValidationError:
        return ()


def write_cordons(cordons: tuple[Cordon, ...]) -> str:
    """As `read_cordons` reads them."""
    return _CORDONS.dump_json(cordons).decode()


def read_letters(kept: str) -> tuple[AdminLetter, ...]:
    """What admins have written to servers that run; nothing where another version wrote it otherwise."""
    try:
        return _LETTERS.validate_json(kept)
    except ValidationError:
        return ()


def write_letters(letters: tuple[AdminLetter, ...]) -> str:
    """As `read_letters` reads them."""
    return _LETTERS.dump_json(letters).decode()


def read_without_session(kept: str) -> WithoutSessions:
    """Read whose servers have nobody signed in; nobody's where another version wrote it otherwise."""
    try:
        return _WITHOUT_SESSION.validate_json(kept)
    except ValidationError:
        return WithoutSessions(())


def write_without_session(reported: WithoutSessions) -> str:
    """Write it as `read_without_session` reads it."""
    return _WITHOUT_SESSION.dump_json(reported).decode()


def read_languages(kept: str) -> Mapping[str, str]:
    """User -> the language of that user's last page; nothing where another version wrote it otherwise."""
    try:
        return _LANGUAGES.validate_json(kept)
    except ValidationError:
        return {}


def write_languages(languages: Mapping[str, str]) -> str:
    """As `read_languages` reads them."""
    return _LANGUAGES.dump_json(languages).decode()
