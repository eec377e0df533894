"""What a user chose: one reading of ``user_options`` for the form, the REST API and ``?opt-`` links alike.

Says whether a choice is well written. Not here: whether such an offer exists or is for this user
(``queue/admission.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hub_extensions.core.offers.offer_id import CPU, OfferId, OfferIdError
from hub_extensions.core.wording import foreign

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
        text: what is wrong and what would be right, naming the field.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field
        self.text = text


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
        raise UserOptionsError("user_options", 'user_options is an object such as {"offer": "mig-1g.5gb"}.')
    for key in user_options:
        if key not in OWN_KEYS and key not in also:
            name = foreign(key)
            raise UserOptionsError(name, f"'{name}' is not known here: use offer (one id) or offers (a list of ids).")
    if "offer" in user_options and "offers" in user_options:
        raise UserOptionsError(
            "offers", "offer and offers were both given: use offer for one id, or offers for a list."
        )
    if "offers" in user_options:
        return _several(user_options["offers"])
    if "offer" in user_options:
        return (_one(user_options["offer"]),)
    return (CPU,)


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
        raise UserOptionsError(NOTIFY, f"{NOTIFY} is true or false (1 or 0 in a link).")
    return value


def check_several(offers: Sequence[object]) -> None:
    """Refuse what is no list of acceptable offers.

    Raises:
        UserOptionsError: none, more than 8, or one twice.
    """
    if not 1 <= len(offers) <= MOST_OFFERS:
        raise UserOptionsError("offers", f"offers lists 1 to {MOST_OFFERS} ids, not {len(offers)}.")
    for number, offer in enumerate(offers):
        if offer in offers[:number]:
            raise UserOptionsError("offers", f"offers names {foreign(offer)} twice: once is enough.")


def _one(value: object) -> OfferId:
    if isinstance(value, list | tuple):
        if len(value) != 1:
            raise UserOptionsError("offer", f"offer is one id, not {len(value)}: for a list use offers.")
        (value,) = value
    return _id(value, "offer")


def _several(value: object) -> tuple[OfferId, ...]:
    if not isinstance(value, list | tuple):
        raise UserOptionsError("offers", 'offers is a list of ids in order, e.g. ["mig-2g.10gb", "mig-1g.5gb"].')
    check_several(value)
    return tuple(_id(item, "offers") for item in value)


def _id(value: object, field: str) -> OfferId:
    if not isinstance(value, str):
        raise UserOptionsError(
            field, f"{field} has something that is not a text: an offer's id is one, e.g. mig-1g.5gb."
        )
    if not value:
        raise UserOptionsError(field, f"{field} is empty: write for example cpu, gpu or mig-1g.5gb.")
    try:
        return OfferId(value)
    except OfferIdError as error:
        raise UserOptionsError(field, f"{field}: {error}.") from error
