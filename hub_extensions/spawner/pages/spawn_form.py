"""The spawn form: a list of offers, with the resources and the state of each, and the expected wait with its reason.

The form is rendered in the hub and works without its script, which only refreshes the figures. Everything is escaped.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2

from hub_extensions.adapters.files.catalogues import catalogue_of
from hub_extensions.adapters.service.gpu_service import ServiceAway, ServiceRefused, gpu_service
from hub_extensions.core.messages import FormState, OfferState, Wait
from hub_extensions.core.messages.offer_texts import (
    card_share,
    default_title,
    enough_text,
    likely_text,
    pill_text,
    plain_name,
    size,
    technical_text,
    when_text,
)
from hub_extensions.core.offers.model import OWN_CARD, OWN_PART, UNKNOWN_CARD, OfferKind
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.offers.user_options import NOTIFY
from hub_extensions.core.queue.alternatives import smaller
from hub_extensions.core.text import glossary
from hub_extensions.core.text.reasons import Reason, explain, translated
from hub_extensions.core.text.translation import ENGLISH, Catalogue, halves
from hub_extensions.spawner.pages.overview import failed_view, last_user_options
from hub_extensions.spawner.pages.reader import language_of_owner
from hub_extensions.spawner.pages.texts import (
    clock,
    culling_text,
    isolation_text,
    utc,
    wait_text,
)

TEMPLATES = Path(__file__).parent / "templates"
"""The folder to append to ``c.JupyterHub.template_paths``."""
REFRESH_SECONDS = 10
ISOLATION = {
    "hardware": "separated by hardware",
    "soft": "separated softly: it can be passed",
    "none": "shared",
    "unknown": "not known",
    "enforced": "enforced",
    "by agreement": "by agreement: a process could use another device; we report it",
    "none needed": "no GPU, nothing to separate",
}
"""Values of an offer's isolation of memory, faults, compute and access -> the text in the form."""
OURS = (OWN_CARD, OWN_PART, UNKNOWN_CARD)
"""Default descriptions of offers, which the form does not show, because each offer has a line about its isolation."""
KNOWN = {"●": "free", "○": "full", "?": "unknown"}
"""Sign before an offer's count of free devices -> the value of `OfferRow.known`."""


@dataclass(frozen=True, slots=True)
class OfferRow:
    """The row of the form for one offer, which is one of its choices, such as CPU only or a MIG profile.

    Attributes:
        id: id of the offer, which the form submits.
        title, name: both are the plain name of the offer, such as "Small GPU".
        size: the GPU memory, such as "4.75 GiB"; "" if it is not known.
        what: technical name, such as the MIG profile.
        text: the administrator's own description; "" for a default description.
        enough: whether the user's last servers would have fitted into this offer; "" if there is nothing to add.
        percent: share of one device; 0 for CPU only and for several devices.
        known: ``free``, ``full`` or ``unknown``: whether a server with this offer would start now.
        sign: symbol before `free`: ``●`` if a device is free, ``○`` if none is, ``?`` if that is not known.
        free: the number of free devices in words, or the wait if none is free.
        wait: place in line and wait of a user who joined now, or why they are not known; "" if the offer is free.
        now: a server with this offer would start now.
        simulated: the devices do not exist.
        selected: the offer is preselected.
        note: how many devices have disappeared from the machine while a server had them, or are used outside this hub;
            "" if none.
        private: who else uses the device, in words that a student knows.
        isolation: name and value of each kind of isolation, for the details.
        suggestion: a better choice than waiting: the offer's id, its title and a sentence; None if no choice is better.
        closed: that an administrator has taken devices out of use: sentence, time in ISO form and as clock time ("" if
            it is not known), and the administrator's reason. None if no device is closed.
    """

    id: OfferId
    title: str
    name: str
    size: str
    what: str
    text: str
    enough: str
    percent: int
    known: str
    sign: str
    free: str
    wait: str
    now: bool
    simulated: bool
    selected: bool
    note: str
    private: str
    isolation: tuple[tuple[str, str], ...]
    suggestion: tuple[OfferId, str, str] | None
    closed: tuple[str, str, str, str] | None


@dataclass(frozen=True, slots=True)
class NothingFree:
    """The block above the offers if no GPU starts now.

    Attributes:
        sentence: why no GPU starts now.
        join: the offer with the shortest line, and the text of a button that joins it. None if it is not known which
            devices are free.
    """

    sentence: str
    join: tuple[OfferId, str] | None


async def render_form(spawner: Any) -> str:
    """Return the HTML of the spawn form for a spawner's user.

    This function is the default of ``Spawner.options_form``.
    """
    handler = getattr(spawner, "handler", None)
    t = catalogue_of(handler)
    service = gpu_service(spawner.gpu_service_url, spawner.gpu_hub_secret, spawner.gpu_service_uid)
    away = ""
    state: FormState | None
    try:
        # the user's offers, also if an administrator starts the server: admission checks the user's groups too
        language = language_of_owner(handler, spawner, t)
        state = await service.form(spawner.user.name, spawner.name, spawner.gpu_groups, admin=False, language=language)
    except ServiceAway as error:
        away, state = utc(error.since), service.last_form(spawner.gpu_groups)
    except ServiceRefused as error:
        spawner.log.warning("No figures for the form of %s: %s", spawner.user.name, error)
        away, state = utc(datetime.now(timezone.utc)), None
    linked = spawner.gpu_linked
    last = spawner.gpu_saved(last_user_options(spawner))
    chosen = linked or last
    profiles = await spawner.gpu_profiles_form()
    spawner.gpu_linked = None
    above = f'<fieldset class="gpu-profiles text-start mb-3">{profiles}</fieldset>' if profiles else ""
    return above + form_html(
        state,
        saved=() if chosen is None else chosen.offers,
        linked=linked is not None,
        away_since=away,
        notice_hint=spawner.gpu_notice_channel_text,
        notify=any(each.notify_when_ready for each in (linked, last) if each is not None),
        help_url=f"{urlsplit(spawner.gpu_service_url).path}/help",
        server=spawner.name,
        t=t,
    )


def form_html(
    state: FormState | None,
    *,
    saved: tuple[OfferId, ...] = (),
    linked: bool = False,
    away_since: str = "",
    notice_hint: str = "",
    notify: bool = False,
    help_url: str = "",
    server: str = "",
    t: Catalogue = ENGLISH,
) -> str:
    """Return the HTML of the form in one language.

    Args:
        state: the GPU service's last answer; None before the first.
        saved: offers of the user's last choice, or of the link that led to the form. They are preselected if they are
            offered, else named as missing.
        linked: `saved` comes from a link.
        away_since: ISO time since when the service has not answered; then the form shows no counts and no waits. "" if
            it answers.
        notice_hint: how users can be notified that their GPU is ready; "" hides the check box for it.
        notify: that check box is checked.
        help_url: URL of the help page; "" shows no link.
        server: name of the server, to show why its last start failed.
        t: the catalogue (the texts in one language).
    """
    offers = _known_offers(state, saved, away=bool(away_since))
    listed = {offer.id for offer in offers}
    wanted = [offer for offer in (*saved, *(state.last_offers if state else ())) if offer in listed]
    default = state.default_offer if state else None
    gpus = [offer for offer in offers if offer.id != CPU]
    # if no GPU starts now, nothing is preselected and the user has to choose
    first_free = next((offer.id for offer in gpus if offer.wait.now), None if gpus else CPU)
    chosen = wanted[0] if wanted else default if default in listed else first_free
    also = [offer for offer in wanted[1:] if offer in saved and offer != chosen]
    as_of, peak = (state.as_of, state.peak_memory_bytes) if state else (None, None)
    forecasts = [offer.wait.as_of for offer in offers if offer.wait.as_of is not None and likely_text(offer.wait)]
    oldest = min(forecasts, default=None)
    running = state.gpu_servers if state else ()
    return _template().render(
        t=t,
        rows=[_row(offer, offers, selected=offer.id == chosen, peak=peak, t=t) for offer in offers],
        nothing_free=None if chosen else _nothing_free(offers, t),
        also=also,
        simulated=bool(state and state.simulated),
        as_of=utc(as_of) if as_of else "",
        as_of_clock=clock(as_of) if as_of else "",
        away_since=away_since,
        away_clock=clock(datetime.fromisoformat(away_since.replace("Z", "+00:00"))) if away_since else "",
        likely_as_of=None if oldest is None else (utc(oldest), clock(oldest)),
        caution=t(state.caution) if state else "",
        culling=culling_text(translated(state.rule, t) if state.rule else state.culling, t) if state else "",
        held_by=", ".join(t("server %1", name) if name else t("the default server") for name in running),
        halves=halves,
        notices=[(utc(each.at), clock(each.at), each.in_language(t)) for each in (state.notices if state else ())],
        notify_key=NOTIFY,
        failed=failed_view(state.failed, server, "", None, t) if state else None,
        gone=_gone(() if away_since else [each for each in saved if each not in listed], t, linked=linked),
        notice_hint=notice_hint,
        notify=notify,
        help_url=help_url,
        explained=glossary.explainer(t),
        words=glossary.listed(t),
        refresh_seconds=REFRESH_SECONDS,
        cpu=CPU,
    )


def _gone(offers: Sequence[OfferId], t: Catalogue, *, linked: bool) -> str:
    """Return a sentence that names offers which were chosen before but are not in the form; "" if `offers` is empty.

    Args:
        offers: these offers.
        linked: they come from a link. Otherwise they are the user's last choice.
    """
    names = ", ".join(t(default_title(offer)) for offer in offers)
    if not names:
        return ""
    if linked:
        return t("The link asks for %1: not offered to you now.", names)
    return t("You chose %1 last: not offered to you now.", names)


def _known_offers(state: FormState | None, saved: tuple[OfferId, ...], *, away: bool) -> tuple[OfferState, ...]:
    """Return the offers to list in the form. CPU only is always among them.

    Args:
        state: the GPU service's last answer; None before the first one. The `saved` offers are listed then.
        saved: ids of the offers of the user's last choice or of a link.
        away: the service does not answer now. The offers are then listed without counts and waits.
    """
    if state is not None and not away:
        return state.offers
    reason = explain("service-away-join")
    known = state.offers if state is not None else tuple(_named_offer(offer) for offer in saved if offer != CPU)
    gpus = tuple(_unknown(offer, reason) for offer in known if offer.id != CPU)
    cpu = next((offer for offer in known if offer.id == CPU), _named_offer(CPU))
    return (*gpus, cpu)


def _named_offer(offer: OfferId) -> OfferState:
    """Return an offer of which only the id is known, because the GPU service has not answered yet."""
    cpu = offer == CPU
    wait = Wait(now=cpu, p10_seconds=None, p50_seconds=None, p90_seconds=None, at_most_seconds=None, reason=None)
    return OfferState(
        id=offer,
        kind=(OfferKind.CPU if cpu else OfferKind.WHOLE).value,
        title=default_title(offer),
        description="" if cpu else "What it gives is not known now.",
        pool="",
        share=0.0,
        isolation={},
        memory_bytes=None,
        memory_enforced=True,
        sm_count=None,
        sm_total=None,
        product="",
        simulated=False,
        free=None,
        total=None,
        held=0,
        held_by_others=0,
        lost=0,
        waiting=0,
        wait=wait,
    )


def _unknown(offer: OfferState, reason: Reason) -> OfferState:
    wait = Wait(now=False, p10_seconds=None, p50_seconds=None, p90_seconds=None, at_most_seconds=None, reason=reason)
    known = {name: getattr(offer, name) for name in OfferState.__slots__}
    return OfferState(**{**known, "free": None, "wait": wait, "held_by_others": 0, "lost": 0})


def _nothing_free(offers: Sequence[OfferState], t: Catalogue) -> NothingFree:
    """Return the block that stands above the offers of the spawn form if no GPU is free.

    The block has a button for the line that is probably the shortest.
    """
    known = [offer for offer in offers if offer.id != CPU and offer.free is not None]
    known = [offer for offer in known if offer.closed is None or not offer.closed.all] or known
    if not known:
        return NothingFree(t("It is not known which GPUs are free."), join=None)
    best = min(known, key=_latest)
    words = [t("Join the line for %1", plain_name(best, t)), when_text(best.wait, t)]
    theirs = any(offer.free for offer in known)  # free for users who are ahead in line
    sentence = t("No GPU starts now: others are ahead.") if theirs else t("No GPU is free now.")
    return NothingFree(sentence, join=(best.id, ", ".join(filter(None, words))))


def _row(
    offer: OfferState, offers: Sequence[OfferState], *, selected: bool, peak: int | None, t: Catalogue
) -> OfferRow:
    sign, free = pill_text(offer, offer.waiting, t)
    return OfferRow(
        id=offer.id,
        title=plain_name(offer, t),
        name=plain_name(offer, t),
        size=size(offer, t),
        what=technical_text(offer, t),
        text="" if offer.description in OURS else t(offer.description),
        enough=enough_text(offer, offers, peak, t),
        percent=round(100 * (card_share(offer) or 0)),
        known="full" if offer.free and not offer.wait.now else KNOWN[sign],
        sign=sign,
        free=free,
        wait=wait_text(offer, t),
        now=offer.wait.now,
        simulated=offer.simulated,
        selected=selected,
        note=_note(offer, t),
        private=isolation_text(offer, t),
        isolation=tuple((t(name), t(ISOLATION.get(value, value))) for name, value in offer.isolation.items()),
        suggestion=_suggestion(offer, offers, t),
        closed=_closed(offer, t),
    )


def _closed(offer: OfferState, t: Catalogue) -> tuple[str, str, str, str] | None:
    """Return what the form shows about devices of an offer that an administrator has taken out of use (closed).

    Returns:
        The sentence, the time of the closing in ISO form and as clock time (both "" if it is not known), and the
        administrator's reason. None if no device of the offer is closed.
    """
    closed = offer.closed
    if closed is None:
        return None
    when = ("", "") if closed.since is None else (utc(closed.since), clock(closed.since))
    if closed.all:
        sentence = t("An administrator closed it at %1.") if when[0] else t("An administrator closed it.")
        return sentence, *when, closed.why
    if when[0]:
        sentence = t.plural(
            "An administrator closed 1 of them at %2.", "An administrator closed %1 of them at %2.", closed.count, "%1"
        )
    else:
        sentence = t.plural("An administrator closed 1 of them.", "An administrator closed %1 of them.", closed.count)
    return sentence, *when, closed.why


def _note(offer: OfferState, t: Catalogue) -> str:
    parts = []
    if offer.held_by_others:
        parts.append(t("%1 in use outside this hub", offer.held_by_others))
    if offer.lost:
        parts.append(t("%1 lost", offer.lost))
    return ", ".join(parts)


def _suggestion(offer: OfferState, offers: Sequence[OfferState], t: Catalogue) -> tuple[OfferId, str, str] | None:
    """Return another offer that is a better choice than waiting for this one.

    The choice is the largest smaller offer that starts now, else the offer that probably starts first.

    Args:
        offer: the offer for which the user would wait.
        offers: all offers of the form.

    Returns:
        Id and title of the better offer, and a sentence about when it starts. None if `offer` itself starts now, or if
        no other offer is likely to start sooner.
    """
    if offer.wait.now:
        return None
    best = next(iter(smaller(offer, (other for other in offers if other.wait.now))), None)
    if best is not None:
        return best.id, plain_name(best, t), t("If %1 is enough: it starts now.", plain_name(best, t))
    own = offer.wait.p50_seconds
    if own is None:
        return None
    sooner = [other for other in offers if other.id != CPU and likely_text(other.wait) and _latest(other) < own]
    if not sooner:
        return None
    best = min(sooner, key=_latest)
    return best.id, plain_name(best, t), t("%1: %2.", plain_name(best, t), when_text(best.wait, t))


def _latest(offer: OfferState) -> float:
    """Return the wait in seconds for an offer that nine of ten starts do not exceed; infinite if it is not known."""
    return math.inf if offer.wait.p90_seconds is None else offer.wait.p90_seconds


@functools.cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(TEMPLATES)
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template(
        "form.html"
    )
