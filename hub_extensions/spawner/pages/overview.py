"""The state of a user's servers on the hub's pages: the block of the home page, and the page of a stopped server.

It shows which servers wait, start or run, when they stop, why a server was stopped, and why a start failed. Only
`overview_of` asks the service; all other functions compute what the templates show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from hub_extensions.adapters.service.gpu_service import ServiceAway, ServiceRefused
from hub_extensions.core.messages import FailedStart, Notice, ServerState, TicketStatus, UserOverview
from hub_extensions.core.messages.offer_texts import at_most_text, default_title, likely_text
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.offers.user_options import ALSO, NOTIFY, UserOptions
from hub_extensions.core.queue.failed_starts import sentence
from hub_extensions.core.text.reasons import Reason, as_text, translated
from hub_extensions.core.text.sentence_pieces import Pieces, SentencePiece, in_pieces, joined, plain_pieces
from hub_extensions.core.text.translation import ENGLISH, Catalogue
from hub_extensions.core.text.wording import about, ordinal
from hub_extensions.spawner.pages.texts import clock, utc

KEPT = "kept"
UNKNOWN = "unknown"
NONE = ""
AWAY = "away"
RUNS = ("running", "lost", "none")
"""Values of `ServerState.lease_state` with which a server counts as running; ``none`` is a CPU-only server."""


@dataclass(frozen=True, slots=True)
class HomeEntry:
    """A server's entry on the hub's home page.

    Attributes:
        server: name of the server.
        kind: ``waiting``, ``starting``, ``running``, ``ended``, ``failed``, or ``away`` if the GPU service does not
            answer.
        pieces: the main sentence, such as "You are 2nd in line for …"; in parts, because some may be untranslated.
        more: text after it, such as the expected wait or when the server stops; "" without such a text.
        at: when the server ended or failed to start, in ISO form and as clock time; shown before the sentence. None for
            the other kinds, whose sentence is about the present.
        keep: the server is about to be stopped, and the user can postpone the stop with the button *Keep*.
    """

    server: str
    kind: str
    pieces: Pieces
    more: str = ""
    at: tuple[str, str] | None = None
    keep: bool = False

    @property
    def text(self) -> str:
        """The main sentence of the entry on the home page, its pieces joined to one text."""
        return joined(self.pieces)


@dataclass(frozen=True, slots=True)
class FailedView:
    """The failed start of a server, as the page of the server shows it. `failed_view` makes it.

    Attributes:
        pieces: what happened, why, and that the GPU was given back; in parts, because some may be untranslated.
        at: when it failed, in ISO form and as clock time; None if it is not known.
        title: title of the chosen offer; "" if it is not known.
        again: names and values of form fields with which a button starts the server again with the same choice; empty
            if the user has to fill in the spawn form.
        kept: until when the user's place in line is kept, in ISO form and as clock time; None if it is not kept.
        often: the start before this one failed too.
    """

    pieces: Pieces
    at: tuple[str, str] | None = None
    title: str = ""
    again: tuple[tuple[str, str], ...] = ()
    kept: tuple[str, str] | None = None
    often: bool = False

    @property
    def text(self) -> str:
        """The explanation of the failed start, its pieces joined to one text."""
        return joined(self.pieces)


@dataclass(frozen=True, slots=True)
class NotRunningView:
    """Values for the hub's page of a stopped server, ``not_running.html``.

    Attributes:
        place: whether the server has a place in line: KEPT, NONE, or UNKNOWN if the GPU service does not answer.
        failed: the failed start; None if the last start did not fail.
        ended: the last notice about the end of the server; None if it is missing or if a start failed.
    """

    place: str
    failed: FailedView | None = None
    ended: HomeEntry | None = None


async def overview_of(spawner: Any, language: str = "") -> UserOverview | None:
    """Ask the GPU service for the user's servers, tickets (places in line), notices and failed starts.

    Args:
        language: language of the page that the user reads, which the service uses for later notices; "" if another
            person reads the page.

    Returns:
        None if the service does not answer; an empty overview if it refuses.
    """
    try:
        return await spawner._gpu_service.overview(spawner.user.name, language)  # type: ignore[no-any-return]
    except ServiceAway:
        return None
    except ServiceRefused as error:
        spawner.log.warning("%s: where its user stands is not known: %s", spawner._log_name, error)
        return UserOverview((), ())


def last_offers(spawner: Any) -> tuple[OfferId, ...]:
    """Return the offers of this server's last start, the preferred one first; empty if no choice is stored."""
    options = spawner.gpu_saved(last_user_options(spawner))
    return () if options is None else options.offers


def last_user_options(spawner: Any) -> Any:
    """Return the ``user_options`` of this server's last start as the hub stored them; empty before the first start."""
    return spawner.user_options or getattr(spawner.orm_spawner, "user_options", None) or {}


def place_in_queue(overview: UserOverview | None, server: str, last: Iterable[OfferId]) -> str:
    """Return whether the server has a place in line: KEPT, NONE, or UNKNOWN if the GPU service does not answer.

    Args:
        overview: the service's answer about the user; None if it does not answer.
        server: name of the server.
        last: offers of the server's last start. A CPU-only start had no place, whether the service answers or not.
    """
    if overview is None:
        return UNKNOWN if any(offer != CPU for offer in last) else NONE
    return KEPT if any(ticket.server == server for ticket in overview.tickets) else NONE


def failed_view(
    known: Iterable[FailedStart],
    server: str,
    hub_message: str,
    options: UserOptions | None,
    t: Catalogue = ENGLISH,
    *,
    hub_reasons: Sequence[Reason] = (),
) -> FailedView | None:
    """Return the view of a server's failed start, or None if no failed start is known.

    Args:
        known: failed starts of all of the user's servers, as the GPU service reports them.
        server: name of the server.
        hub_message: why the last start failed, as the hub knows it; "" if no start failed in this hub process.
        options: options of the last start; None if they are not known.
        hub_reasons: the sentences with which `hub_message` begins, in a form that can be translated; empty if it is
            plain text.
    """
    start = next((each for each in known if each.server == server), None)
    again = _fields(options)
    if start is not None and hub_message and not joined(sentence(start.reasons, start.offer)).startswith(hub_message):
        start = None  # the service reports an earlier start
    if start is None:
        return FailedView(hub_pieces(hub_message, hub_reasons, t), again=again) if hub_message else None
    return FailedView(
        sentence(start.reasons, start.offer, t),
        _moment(start.at),
        t(start.title),
        again,
        None if start.kept_until is None else _moment(start.kept_until),
        start.before > 0,
    )


def hub_pieces(message: str, reasons: Sequence[Reason], t: Catalogue) -> Pieces:
    """Return the hub's error message in pieces, each translated, or marked as English if no translation is known.

    Args:
        reasons: the sentences with which `message` begins, in a form that can be translated; empty if it is plain text.
    """
    english = as_text(reasons)
    if not english or not message.startswith(english):
        return plain_pieces(message, t)
    rest = plain_pieces(message.removeprefix(english).strip(), t)
    return (*in_pieces(reasons, t), *((SentencePiece(" "), *rest) if rest else ()))


def ended_view(overview: UserOverview | None, server: str, t: Catalogue = ENGLISH) -> HomeEntry | None:
    """Return the last notice about the end of this server, as an entry for the pages.

    None if the notice is missing or the GPU service does not answer.

    Args:
        overview: the service's answer about the user; None if it does not answer.
        server: name of the server.
        t: the catalogue (the texts in one language).
    """
    notices = [notice for notice in overview.notices if notice.server == server] if overview is not None else []
    last = max(notices, key=lambda notice: notice.at, default=None)
    return None if last is None else _ended(last, t)


def _ended(notice: Notice, t: Catalogue) -> HomeEntry:
    return HomeEntry(notice.server, "ended", notice.in_language(t), at=_moment(notice.at))


def home_entries(
    overview: UserOverview | None, titles: Mapping[str, str], now: datetime, t: Catalogue = ENGLISH
) -> tuple[HomeEntry, ...]:
    """Return the entries of the hub's home page, ordered by server name, with ended servers last.

    Args:
        overview: the GPU service's answer about the user. None if the service does not answer; the only entry then
            reports that.
        titles: offer id -> the administrator's title.
        now: the current time.
    """
    if overview is None:
        return (HomeEntry("", AWAY, (SentencePiece(t("Your GPU: not known now, the GPU service does not answer.")),)),)
    live = {server.server: _server(server, now, t) for server in overview.servers if server.lease_state in RUNS}
    live |= {ticket.server: _ticket(ticket, titles, t) for ticket in overview.tickets}
    over = {each.server: (each.at, _failed(each, t)) for each in overview.failed}
    for notice in sorted(overview.notices, key=lambda notice: notice.at):
        if notice.server not in over or over[notice.server][0] < notice.at:
            over[notice.server] = (notice.at, _ended(notice, t))
    past = (over[server][1] for server in sorted(over) if server not in live)
    return (*(live[server] for server in sorted(live)), *past)


def _ticket(ticket: TicketStatus, titles: Mapping[str, str], t: Catalogue) -> HomeEntry:
    offer = ticket.offer or (ticket.offers[0] if ticket.offers else CPU)
    title = t(titles.get(offer, default_title(offer)))
    if ticket.answer != "wait":
        return HomeEntry(ticket.server, "starting", (SentencePiece(t("Your server is starting: %1.", title)),))
    if ticket.position < 1:
        waits = (SentencePiece(t("Waiting for %1.", title)),)
        return HomeEntry(ticket.server, "waiting", waits, translated(ticket.reason, t))
    figures = [] if ticket.wait is None else [likely_text(ticket.wait, t), at_most_text(ticket.wait, t)]
    text = t("You are %1 in line for %2", ordinal(ticket.position, t), title)
    return HomeEntry(ticket.server, "waiting", (SentencePiece(text),), ", ".join(filter(None, figures)))


def _server(server: ServerState, now: datetime, t: Catalogue) -> HomeEntry:
    title = t(server.name or server.title or default_title(server.offer))
    runs = (SentencePiece(t("Running on %1", title) if server.offer != CPU else t("Running without a GPU")),)
    end = server.countdown
    if end is None:
        return HomeEntry(server.server, "running", runs)
    left = about(max(0.0, (end.stops_at - now).total_seconds()), t)
    return HomeEntry(
        server.server, "running", runs, t("stops in %1. %2", left, translated(end.reason, t)), keep=end.can_keep
    )


def _failed(start: FailedStart, t: Catalogue) -> HomeEntry:
    return HomeEntry(start.server, "failed", sentence(start.reasons, start.offer, t), at=_moment(start.at))


def _moment(at: datetime) -> tuple[str, str]:
    return utc(at.astimezone(timezone.utc)), clock(at)


def _fields(options: UserOptions | None) -> tuple[tuple[str, str], ...]:
    """Return names and values of the spawn form's fields for these options.

    Empty if the options are not known, or include options of the spawner behind our mixin (such as a profile), which
    has its own form.
    """
    if options is None or options.others:
        return ()
    first, *rest = options.offers
    return (
        ("offer", first),
        *((ALSO, offer) for offer in rest),
        *([(NOTIFY, "1")] if options.notify_when_ready else []),
    )
