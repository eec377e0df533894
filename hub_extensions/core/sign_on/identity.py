"""Who somebody is at this hub: the provider's (iss, sub) is a person, a name is not.

The first login pins a user of the hub to an (iss, sub):

====================  =======================  ==========================================================
this (iss, sub) has   the name it brings is    then it is
====================  =======================  ==========================================================
a user                whatever                 that user, also under a new name
no user               nobody's                 a new user
no user               a user's without a pin   that user with ``adopt_existing_users = first``, else refused
no user               pinned to another sub    refused, and shown to admins
====================  =======================  ==========================================================

A pin follows its user to a new name, and outlives it: the name has files, and a new person would get them. An admin
takes it away.
Groups that the provider does not say are *unknown* (None), never none.
Not here: the table of pins, and the hub's own lists of whom it lets in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.sign_on.claims import Claims, claim_at, shown
from hub_extensions.core.sign_on.refusal import SignOnRefusal

LONGEST_NAME = 255
"""Of a user or a group: the hub's columns are as wide."""
MOST_GROUPS = 2_000
MADE_BY_SIGN_IN = timedelta(minutes=1)
"""So long after a first sign-in was pinned the hub has made its account."""


class Adoption(str, Enum):
    """What becomes of users that the hub had before it had this provider."""

    FIRST = "first"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Identity:
    """A person, as the provider knows it."""

    iss: str
    sub: str


@dataclass(frozen=True, slots=True)
class Pinned:
    """Which user of the hub somebody is. `new`: nobody had said so before. `adopted`: the user was there already."""

    user: str
    new: bool = False
    adopted: bool = False


def pin_of(
    identity: Identity, name: str, *, pins: Mapping[Identity, str], users: Collection[str], adoption: Adoption
) -> Pinned | SignOnRefusal:
    """Which user this person is, or why none.

    Args:
        name: what the provider calls it, as the hub writes names.
        pins: at least those of this person and of this name. users: at least this name, if the hub has it.
    """
    if identity in pins:
        return Pinned(pins[identity])
    if name in pins.values():
        return name_taken(name)
    if name not in users:
        return Pinned(name, new=True)
    if adoption is Adoption.FIRST:
        return Pinned(name, new=True, adopted=True)
    return SignOnRefusal(
        "name-from-before",
        f"The user {name!r} is from before this sign-on, and adopt_existing_users is 'none': an admin has to pin it.",
        {"name": name},
    )


def was_there(created: datetime, pinned: datetime) -> bool:
    """Whether a pin may be for the account that has its name now: it was there, or was made by that first sign-in.

    A later one may be somebody else's, to whom an admin gave the name.
    """
    return created <= pinned + MADE_BY_SIGN_IN


def name_taken(name: str) -> SignOnRefusal:
    """This user is another account's."""
    return SignOnRefusal(
        "name-taken", f"The user {name!r} is pinned to another account of the provider.", {"name": name}
    )


def name_of(claims: Claims, path: str) -> str | SignOnRefusal:
    """The name that the provider gives somebody, as it wrote it; or why the hub cannot have it."""
    name = claim_at(claims, path)
    if name is None or name == "":
        return SignOnRefusal("no-name", f"The provider says no name ({path}).", {"claim": path})
    if not isinstance(name, str) or not _is_name(name) or "/" in name:
        problem = f"The hub takes no user of this name ({path}): {shown(name)}."
        return SignOnRefusal("bad-name", problem, {"claim": path})
    return name


def groups_of(claims: Claims, path: str, *, names: Mapping[str, str], kept: Collection[str]) -> frozenset[str] | None:
    """The hub's groups that somebody is in; None: the provider does not say.

    Args:
        names: the provider's name -> the hub's; others keep theirs.
        kept: the hub's names that are taken over; none: all.
    """
    left_out = claims.get("_claim_names")
    if isinstance(left_out, Mapping) and path.split(".")[0] in left_out:
        return None  # too many for a token: the provider says where else to ask
    said = claim_at(claims, path)
    if not isinstance(said, list) or len(said) > MOST_GROUPS or not all(isinstance(one, str) for one in said):
        return None
    found = {names.get(one, one) for one in said}
    return frozenset(one for one in found if _is_name(one) and (not kept or one in kept))


def _is_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and text == text.strip()
