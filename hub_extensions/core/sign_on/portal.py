"""The front page of the apps' host: the apps that a user may open, and the user's servers and tickets (places in line).

If the hub or the GPU service did not answer, the values that it would have given are `None` and are shown as "not
known". ``gate/portal.py`` renders the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from hub_extensions.core.messages import FormState, OfferState, ServerState, TicketInfo
from hub_extensions.core.messages.offer_texts import ahead
from hub_extensions.core.sign_on.apps import App

HealthState = Literal["up", "down", "unknown"]
HEALTH_EVERY = timedelta(seconds=30)
HEALTH_EXPIRES = 4 * HEALTH_EVERY
"""Age from which the result of an app's health check counts as unknown."""
SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class AppHealth:
    """Whether an app answers the gate's health checks.

    Attributes:
        since: when the state last changed; `None` if the app has been up since its first check.
        asked: time of the last check; `None` before the first.
    """

    state: HealthState = "unknown"
    since: datetime | None = None
    asked: datetime | None = None


NOT_CHECKED = AppHealth()


def next_health(before: AppHealth, status: int | None, now: datetime) -> AppHealth:
    """Return an app's health after a check.

    Args:
        before: the health before the check.
        status: HTTP status of the answer, which means *up* below 500; `None` if no answer came, which means *down*.
    """
    state: HealthState = "up" if status is not None and status < SERVER_ERROR else "down"
    if before.state == state:
        return replace(before, asked=now)
    return AppHealth(state, None if before.state == "unknown" and state == "up" else now, now)


def health_now(health: AppHealth, now: datetime) -> AppHealth:
    """Return an app's last known health; `NOT_CHECKED` if its last check is longer ago than `HEALTH_EXPIRES`."""
    return health if health.asked is not None and now - health.asked <= HEALTH_EXPIRES else NOT_CHECKED


@dataclass(frozen=True, slots=True)
class RunningServer:
    """One of a user's servers, as the hub reports it."""

    name: str
    ready: bool


@dataclass(frozen=True, slots=True)
class Sources:
    """The reports of hub and GPU service about one user; a value is `None` if its source did not answer.

    Attributes:
        gpu_service: whether the hub has the GPU service.
        hub: the user's servers, as the hub reports them.
        servers: the user's servers, as the GPU service reports them.
        form: the user's offers with their waits.
        tickets: tickets (places in line), of all users if the reader is an admin.
    """

    gpu_service: bool
    hub: tuple[RunningServer, ...] | None = None
    servers: tuple[ServerState, ...] | None = None
    form: FormState | None = None
    tickets: tuple[TicketInfo, ...] | None = None


@dataclass(frozen=True, slots=True)
class AppTile:
    """An app on a user's front page.

    Attributes:
        where: the app's public address.
        sign: an emoji or the first letter of the title, shown if the app lacks a picture.
        picture: address of the app's icon; "" without an icon.
    """

    name: str
    title: str
    where: str
    sign: str
    picture: str
    health: AppHealth


@dataclass(frozen=True, slots=True)
class ServerTile:
    """A server of the user on the front page.

    Attributes:
        title: name of its offer (the option of the spawn form that it was started with); "" if unknown.
        ends: when it stops; `None` if unknown.
    """

    name: str
    ready: bool
    title: str
    ends: datetime | None


@dataclass(frozen=True, slots=True)
class OfferWait:
    """An offer, and the number of users in line who would be ahead of this user."""

    offer: OfferState
    ahead: int


@dataclass(frozen=True, slots=True)
class Portal:
    """The front page of one user. Without a GPU service it does not mention places in line and waits.

    Attributes:
        apps: the apps that the user may open.
        servers: the user's servers; `None` if not known.
        gpu_service: whether the hub has the GPU service.
        places: the user's places in line; `None` if not known.
        waits: the wait for each of the user's offers; `None` if not known.
        titles: id of an offer -> title.
    """

    user: str
    apps: tuple[AppTile, ...]
    servers: tuple[ServerTile, ...] | None
    gpu_service: bool
    places: tuple[TicketInfo, ...] | None
    waits: tuple[OfferWait, ...] | None
    titles: Mapping[str, str]


def portal_of(
    user: str, apps: Sequence[App], health: Mapping[str, AppHealth], sources: Sources, now: datetime
) -> Portal:
    """Build the page of one user.

    Args:
        apps: exactly the apps that the user may open.
        health: name of an app -> result of its health checks.
        sources: what hub and GPU service reported about the user.
    """
    offers = sources.form.offers if sources.form is not None else ()
    # an admin's token reads the tickets of all users; the page shows the admin's own
    places = None if sources.tickets is None else tuple(each for each in sources.tickets if each.user in (None, user))
    return Portal(
        user,
        tuple(_tile(app, health_now(health.get(app.name, NOT_CHECKED), now)) for app in _shown(apps, sources)),
        _servers(user, sources),
        sources.gpu_service,
        places,
        None if sources.form is None else tuple(OfferWait(each, ahead(each, places or ())) for each in offers),
        {str(offer.id): offer.plain_name for offer in offers},
    )


def _shown(apps: Sequence[App], sources: Sources) -> list[App]:
    """Return the apps to show on the front page, sorted by title.

    An app without a list of offers is shown. An app with such a list is shown if the user may choose one of these
    offers, or if the user's offers are not known. This decides only what is shown; the user may open each of `apps`.

    Args:
        apps: the apps that the user may open.
        sources: what hub and GPU service reported about the user, such as the user's offers.
    """
    known = None if sources.form is None else {str(offer.id) for offer in sources.form.offers}
    shown = [app for app in apps if not app.offers or known is None or known & set(app.offers)]
    return sorted(shown, key=lambda app: (app.title.casefold(), app.name))


def _tile(app: App, health: AppHealth) -> AppTile:
    picture = app.icon if app.icon.startswith("/") and not app.icon.startswith("//") else ""
    sign = app.icon if app.icon and len(app.icon) <= 8 and not picture else app.title[:1].upper()
    return AppTile(app.name, app.title, app.where, sign, picture, health if app.health else NOT_CHECKED)


def _servers(user: str, sources: Sources) -> tuple[ServerTile, ...] | None:
    """Return the user's servers; `None` if neither the hub nor the GPU service has answered.

    The hub reports which servers exist. The GPU service reports their offers and ends. One of the two answers suffices.

    Args:
        sources: what hub and GPU service reported about the user.
    """
    if sources.hub is None and sources.servers is None:
        return None
    known = {each.server: each for each in sources.servers or () if each.user == user}
    ready = {each.name: each.ready for each in sources.hub} if sources.hub is not None else dict.fromkeys(known, True)
    return tuple(
        ServerTile(name, ready[name], known[name].title, _end(known[name]))
        if name in known
        else ServerTile(name, ready[name], "", None)
        for name in sorted(ready)
    )


def _end(server: ServerState) -> datetime | None:
    ends = [each for each in (server.ends_at, server.countdown.stops_at if server.countdown else None) if each]
    return min(ends, default=None)
