"""A user's choice for a server as one validated value, read from ``user_options``.

These options come from the spawn form, a link, the REST API or the hub's database. Only their form is checked here.
Whether the offer exists, and whether this user may have it, is decided at admission (``queue/admission.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hub_extensions.core.offers.offer_id import CPU, OfferId, OfferIdError
from hub_extensions.core.text.reasons import Reason, as_text, explain
from hub_extensions.core.text.wording import foreign

NOTIFY = "notify_when_ready"
"""Key of ``user_options`` by which a user asks to be notified when the server is ready, with the page closed."""
OWN_KEYS = ("offer", "offers", NOTIFY)
"""Keys of ``user_options`` that this package reads. All others belong to KubeSpawner or to a site's own hooks."""
ALSO = "also"
"""Field of the form that names further acceptable offers; it never stands in ``user_options``."""
MOST_OFFERS = 8
"""Maximum number of acceptable offers in one choice."""


class UserOptionsError(ValueError):
    """User options that are not well formed.

    Attributes:
        field: the key of ``user_options`` that is wrong.
        reasons: what is wrong and what would be right; they name the field.
        text: the reasons as one English text.
    """

    def __init__(self, field: str, *reasons: Reason) -> None:
        self.field, self.reasons, self.text = field, reasons, as_text(reasons)
        super().__init__(self.text)


@dataclass(frozen=True, slots=True)
class UserOptions:
    """A user's validated choice for a server.

    Attributes:
        offers: acceptable offers in order of preference, at least one.
        notify_when_ready: the user wants a notification when the server is ready.
        others: options that this package does not read: KubeSpawner's ``profile`` and its choices, a site's own keys.
    """

    offers: tuple[OfferId, ...] = (CPU,)
    notify_when_ready: bool = False
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, user_options: object, also: Collection[str] | None = ()) -> UserOptions:
        """Parse ``user_options`` as the REST API, a link or the hub's database gives them.

        Args:
            user_options: ``{"offer": id}`` or ``{"offers": [id, ...]}``, and ``{"notify_when_ready": true}``. A link
                gives every value as a list, so ``{"offer": [id]}`` and ``{"notify_when_ready": ["1"]}`` are accepted
                too. Without an offer, or if it is None, the choice is CPU only.
            also: keys that are kept in `others`; any other unknown key is refused. None keeps every key.

        Raises:
            UserOptionsError: a key is unknown, or a value is not of the form above.
        """
        if user_options is None:
            return cls()
        if not isinstance(user_options, Mapping):
            raise UserOptionsError("user_options", explain("choice-is-an-object", example='{"offer": "mig-1g.5gb"}'))
        others = others_of(user_options)
        for key in user_options:
            if key not in OWN_KEYS and also is not None and key not in also:
                name = foreign(key)
                raise UserOptionsError(name, explain("choice-unknown-key", key=name))
        if "offer" in user_options and "offers" in user_options:
            raise UserOptionsError("offers", explain("choice-by-both"))
        offers: tuple[OfferId, ...] = (CPU,)
        if "offers" in user_options:
            offers = _several(user_options["offers"])
        elif "offer" in user_options:
            offers = (_one(user_options["offer"]),)
        return cls(offers, _notify(user_options.get(NOTIFY, False)), others)

    @classmethod
    def from_form(
        cls,
        fields: Mapping[str, Sequence[Any]],
        also: Collection[str] | None = (),
        others: Mapping[str, Any] | None = None,
    ) -> UserOptions:
        """Parse the fields of the spawn form: the chosen offer, then the offers under *More choices*, in order.

        Args:
            fields: name of a field -> its values.
            also: keys that are kept in `others`; any other unknown key is refused. None keeps every key.
            others: options that the spawner which this package extends has read from its own fields; None without such
                options.

        Raises:
            UserOptionsError: a field is unknown, or a value is not of the form that `from_dict` accepts.
        """
        options: dict[str, Any] = {
            key: values for key, values in fields.items() if key not in ("_xsrf", ALSO) and list(values) != [""]
        }
        if more := [value for value in fields.get(ALSO, ()) if value]:
            options["offers"] = list(dict.fromkeys([*options.pop("offer", ()), *more]))
        return cls.from_dict({**(others or {}), **options}, also)

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as ``user_options``, in the form that the hub stores and REST clients send."""
        chosen: dict[str, Any] = {"offer": self.offers[0]} if len(self.offers) == 1 else {"offers": list(self.offers)}
        if self.notify_when_ready:
            chosen[NOTIFY] = True
        return {**self.others, **chosen}


def others_of(user_options: object) -> dict[str, Any]:
    """Return the part of ``user_options`` that this package does not read, such as KubeSpawner's ``profile``."""
    found = user_options if isinstance(user_options, Mapping) else {}
    return {str(key): value for key, value in found.items() if key not in OWN_KEYS}


def check_several(offers: Sequence[object]) -> None:
    """Check the length of a list of acceptable offers, and that no offer is repeated.

    Raises:
        UserOptionsError: the list is empty, has more than `MOST_OFFERS` offers, or names one twice.
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


def _notify(value: object) -> bool:
    if isinstance(value, list | tuple) and len(value) == 1:
        (value,) = value
    if value in ("0", "1"):
        return bool(value == "1")
    if not isinstance(value, bool):
        raise UserOptionsError(NOTIFY, explain("choice-yes-or-no", field=NOTIFY))
    return value
