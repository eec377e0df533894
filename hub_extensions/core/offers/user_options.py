"""What a user chose: one reading of ``user_options`` for the form, the REST API and ``?opt-`` links alike.

Says whether a choice is well written. Not here: whether such an offer exists or is for this user
(``queue/admission.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hub_extensions.core.offers.offer_id import CPU, OfferId, OfferIdError
from hub_extensions.core.text.reasons import Reason, as_text, explain
from hub_extensions.core.text.wording import foreign

NOTIFY = "notify_when_ready"
"""The key by which a user asks to be told when the server is ready, with the page closed."""
OWN_KEYS = ("offer", "offers", NOTIFY)
"""Keys of ``user_options`` that are ours."""
MOST_OFFERS = 8
"""How many acceptable offers one choice can list."""


class UserOptionsError(ValueError):
    """A choice that cannot be followed.

    Attributes:
        field: the key of ``user_options`` it is about.
        reasons: what is wrong and what would be right, naming the field; `text` is that in English.
    """

    def __init__(self, field: str, *reasons: Reason) -> None:
        self.field, self.reasons, self.text = field, reasons, as_text(reasons)
        super().__init__(self.text)


def parse_user_options(user_options: object, also: Collection[str] = ()) -> tuple[OfferId, ...]:
    """The acceptable offer ids in order of preference; without any option CPU only.

    Args:
        user_options: ``{"offer": id}`` or ``{"offers": [id, ...]}``; from a form or a link every value comes as a list,
            and ``{"offer": [id]}`` is read as ``{"offer": id}``. None is no option.
        also: keys of others that are left alone, e.g. KubeSpawner's ``profile``.

    Raises:
        UserOptionsError: an unknown key, both keys, no text, not an offer's id, one twice, none or more than 8.
    """
    if user_options is None:
        return (CPU,)
    if not isinstance(user_options, Mapping):
        raise UserOptionsError("user_options", explain("choice-is-an-object", example='{"offer": "mig-1g.5gb"}'))
    for key in user_options:
        if key not in OWN_KEYS and key not in also:
            name = foreign(key)
            raise UserOptionsError(name, explain("choice-unknown-key", key=name))
    if "offer" in user_options and "offers" in user_options:
        raise UserOptionsError("offers", explain("choice-by-both"))
    if "offers" in user_options:
        return _several(user_options["offers"])
    if "offer" in user_options:
        return (_one(user_options["offer"]),)
    return (CPU,)


def others_of(user_options: object) -> dict[str, Any]:
    """What of ``user_options`` is not ours: KubeSpawner's ``profile`` and its choices, a site's own keys."""
    found = user_options if isinstance(user_options, Mapping) else {}
    return {str(key): value for key, value in found.items() if key not in OWN_KEYS}


def parse_notify(user_options: object) -> bool:
    """Does its user want to be told when the server is ready? Not asked for is no.

    Args:
        user_options: ``{"notify_when_ready": true}``; a form or a link brings ``["1"]`` or ``["0"]``.

    Raises:
        UserOptionsError: it is neither.
    """
    value = user_options.get(NOTIFY, False) if isinstance(user_options, Mapping) else False
    if isinstance(value, list | tuple) and len(value) == 1:
        (value,) = value
    if value in ("0", "1"):
        return bool(value == "1")
    if not isinstance(value, bool):
        raise UserOptionsError(NOTIFY, explain("choice-yes-or-no", field=NOTIFY))
    return value


def check_several(offers: Sequence[object]) -> None:
    """Refuse what is no list of acceptable offers.

    Raises:
        UserOptionsError: none, more than 8, or one twice.
    """
    if not 1 <= len(offers) <= MOST_OFFERS:
        raise UserOptionsError("offers", explain("choice-of-so-many", most=MOST_OFFERS, count=len(offers)))
    for number, offer in enumerate(offers):
        if offer in offers[:number]:
            raise UserOptionsError("offers", explain("choice-twice", offer=foreign(offer)))


def _one(value: object) -> OfferId:
    if isinstance(value, list | tuple):
        if len(value) != 1:
            raise UserOptionsError("offer", explain("choice-of-one", count=len(value)))
        (value,) = value
    return _id(value, "offer")


def _several(value: object) -> tuple[OfferId, ...]:
    if not isinstance(value, list | tuple):
        raise UserOptionsError("offers", explain("choice-is-a-list", example='["mig-2g.10gb", "mig-1g.5gb"]'))
    check_several(value)
    return tuple(_id(item, "offers") for item in value)


def _id(value: object, field: str) -> OfferId:
    if not isinstance(value, str):
        raise UserOptionsError(field, explain("choice-no-text", field=field))
    if not value:
        raise UserOptionsError(field, explain("choice-empty", field=field))
    try:
        return OfferId(value)
    except OfferIdError as error:
        raise UserOptionsError(field, explain("choice-of", field=field), error.reason) from error
