"""The user of the hub, and the groups, that a person gets who signed in at the identity provider.

The provider's (iss, sub) identifies the person; the name does not. The first sign-in makes a pin, the permanent
assignment of a user of the hub to an (iss, sub):

====================  ==========================  ==========================================================
this (iss, sub) has   the name from the provider  result
====================  ==========================  ==========================================================
a pinned user         is any name                 that user, even if the name changed
no pinned user        is unused                   a new user
no pinned user        is a user without a pin     that user if ``adopt_existing_users = first``, else refused
no pinned user        is pinned to another sub    refused, and shown to admins
====================  ==========================  ==========================================================

A pin follows its user to a new name and remains after the user is deleted: the name has files, which a new person must
not get. An admin can remove a pin.

`judge_groups` decides what applies if the provider reports no groups:

======================================  ==============================  =========================================
the groups claim                        at a sign-in                    at a re-check
======================================  ==============================  =========================================
is a list, or one text                  these groups                    these groups
is missing (absent, null or empty)      no groups                       unknown: the groups stay for a while
was omitted as too large, or cannot be  unknown: the groups stay for a  unknown: the groups stay for a while
read                                    while
======================================  ==============================  =========================================

Unknown groups stay until `unknown_groups_hours` after the provider last reported them, and never give admin rights.
``missing_groups`` overrides the second row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Set, Sized
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from hub_extensions.core.sign_on.claims import ABSENT, Claims, claim_at, quoted
from hub_extensions.core.sign_on.refusal import SignOnRefusal

MAX_NAME_LENGTH = 255
"""Maximum length of the name of a user or group, because the columns of the hub's database have this size."""
MAX_GROUPS = 2_000
MADE_BY_SIGN_IN = timedelta(minutes=1)
"""Time within which the hub creates the account after its first sign-in was pinned."""


class Adoption(str, Enum):
    """Whether a person gets an existing user of the hub with the same name, made before this provider was set up.

    FIRST: the first person with this name gets the user. NONE: nobody does; an admin has to assign the user.
    """

    FIRST = "first"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Identity:
    """A person, as the provider identifies them: issuer and subject of the id token."""

    iss: str
    sub: str


@dataclass(frozen=True, slots=True)
class Pinned:
    """The user of the hub that a person's account at the provider is permanently assigned (pinned) to.

    Attributes:
        user: name of the user.
        new: whether this sign-in makes the assignment.
        adopted: whether the user already existed before the assignment.
    """

    user: str
    new: bool = False
    adopted: bool = False


def pin_of(
    identity: Identity, name: str, *, pins: Mapping[Identity, str], users: Collection[str], adoption: Adoption
) -> Pinned | SignOnRefusal:
    """Return the hub user of this person, or the reason why the person gets none.

    Args:
        name: the person's name from the provider, in the hub's spelling.
        pins: person -> name of the hub user that is assigned to the person. It has to contain at least the entries of
            this person and of this name.
        users: names of the hub's users; at least this name, if the hub has such a user.
        adoption: whether the person may get an existing user without a pin.
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


def existed_at_pin(created: datetime, pinned: datetime) -> bool:
    """Return whether a pin (user name -> provider account) belongs to the hub account that has this name now.

    It does if the hub account existed when the pin was made, or was created by the same sign-in. An account that was
    created later may belong to another person, because an admin can give a name away.

    Args:
        created: when the hub account was created.
        pinned: when the pin was made.
    """
    return created <= pinned + MADE_BY_SIGN_IN


def name_taken(name: str) -> SignOnRefusal:
    """Return the refusal for a user name that is pinned (permanently assigned) to another account of the provider."""
    return SignOnRefusal(
        "name-taken", f"The user {name!r} is pinned to another account of the provider.", {"name": name}
    )


def name_of(claims: Claims, path: str) -> str | SignOnRefusal:
    """Return the user name in the claims as the provider wrote it, or the reason why the hub cannot use it.

    Args:
        path: name or dotted path of the claim.
    """
    name = claim_at(claims, path)
    if name is None or name == "":
        return SignOnRefusal("no-name", f"The provider says no name ({path}).", {"claim": path})
    if not isinstance(name, str) or not _is_name(name) or "/" in name or name in (".", ".."):
        problem = f"The hub takes no user of this name ({path}): {quoted(name)}."
        return SignOnRefusal("bad-name", problem, {"claim": path})
    return name


class MissingGroups(str, Enum):
    """The meaning of a missing groups claim: NONE, the person is in no group; UNKNOWN, the groups are not known."""

    NONE = "none"
    UNKNOWN = "unknown"


class GroupsProblem(str, Enum):
    """Why the claims contain no groups: the claim is missing, was omitted as too large, or cannot be read."""

    MISSING = "missing"
    LEFT_OUT = "left-out"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class ClaimedGroups:
    """The groups in the provider's claims.

    Attributes:
        names: the groups by their names at the hub; `None` if the claims contain no groups.
        problem: why the claims contain no groups; `None` if they contain some.
        shape: the wrong type or form of the claim, for the log; "" if `problem` suffices.
    """

    names: frozenset[str] | None
    problem: GroupsProblem | None = None
    shape: str = ""

    @property
    def words(self) -> str:
        """Why the claims contain no groups, as a text for the log."""
        if self.problem is GroupsProblem.LEFT_OUT:
            return "the provider left it out, because there are too many"
        return self.shape or "it is not there"


GroupsClaim = str | Callable[[dict[str, Any]], Any]
"""Name or path of the claim, or a function that extracts the groups from all claims."""


def claimed_groups(
    claims: Claims, claim: GroupsClaim, *, names: Mapping[str, str], kept: Collection[str]
) -> ClaimedGroups:
    """Read the groups of a person from the provider's claims.

    Args:
        claim: name or path of the groups claim, or a function that extracts the groups.
        names: the provider's name of a group -> the hub's name. A group that is not listed keeps its name.
        kept: the hub's names of the groups to use; if empty, all are used.
    """
    if isinstance(claim, str):
        if _is_left_out(claims, claim):
            return ClaimedGroups(None, GroupsProblem.LEFT_OUT)
        value = claim_at(claims, claim, ABSENT)
    else:
        try:
            value = claim(dict(claims))
        except Exception as problem:  # noqa: BLE001  the admin's own function may raise anything
            return _unreadable(f"the function groups_claim raised {type(problem).__name__}")
        if (value is None or (isinstance(value, Sized) and not value)) and _has_left_out(claims):
            return ClaimedGroups(None, GroupsProblem.LEFT_OUT)
    if isinstance(value, str):
        value = value.strip()
        if problem_words := _names_several(value, {*names, *kept}):
            return _unreadable(problem_words)
        value = [value] if value else None  # ADFS sends a single group as a text
    if value is ABSENT or value is None:
        return ClaimedGroups(None, GroupsProblem.MISSING)
    if not isinstance(value, (list, tuple, Set)):
        return _unreadable(f"{_KINDS.get(type(value), type(value).__name__)} instead of a list")
    strange = next((each for each in value if not isinstance(each, str)), None)
    if strange is not None or None in value:
        return _unreadable(f"a list with {_KINDS.get(type(strange), type(strange).__name__)} in it")
    if len(value) == 1 and (one := next(iter(value)).strip())[:1] + one[-1:] in ("[]", "{}"):
        return _unreadable(f"a list with a text that looks like a list: {quoted(one)}")
    if len(value) > MAX_GROUPS:
        return _unreadable(f"a list of {len(value)} groups, more than {MAX_GROUPS}")
    found = {names.get(one, one) for one in value}
    return ClaimedGroups(frozenset(one for one in found if _is_name(one) and (not kept or one in kept)))


_KINDS = {dict: "an object", bool: "true or false", int: "a number", float: "a number", list: "a list",
          type(None): "null"}  # fmt: skip


def _unreadable(shape: str) -> ClaimedGroups:
    return ClaimedGroups(None, GroupsProblem.UNREADABLE, shape)


_SEVERAL = re.compile(r"[^,;|\n]+(?:[,;|\n][^,;|\n]+)+")


def _names_several(text: str, known: Set[str]) -> str:
    """Describe why a text cannot be the name of one group; "" if it may be one.

    A distinguished name (``CN=thesis,OU=uni``) contains commas, and a name may contain spaces.

    Args:
        known: group names in the configuration, which are always accepted.
    """
    if text in known:
        return ""
    if text[:1] in ("[", "{"):
        return f"a text that looks like a list: {quoted(text)}"
    if "=" not in text and _SEVERAL.fullmatch(text):
        return f"a text that looks like several groups, which a function as groups_claim can take apart: {quoted(text)}"
    return ""


def _has_left_out(claims: Claims) -> bool:
    """Return whether the provider omitted any claim as too large.

    This serves a groups claim that is a function, because it is unknown which claims the function reads.
    """
    return bool(claims.get("_claim_names")) or claims.get("hasgroups") in (True, "true", "True")


def _is_left_out(claims: Claims, path: str) -> bool:
    """Return whether the provider omitted the claim `path` as too large (OpenID Connect Core 5.6.2; Entra ID)."""
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, Mapping) and (path in elsewhere or path.split(".")[0] in elsewhere):
        return True
    return path == "groups" and claims.get("hasgroups") in (True, "true", "True")


def groups_of(
    claims: Claims, claim: GroupsClaim, *, names: Mapping[str, str], kept: Collection[str]
) -> frozenset[str] | None:
    """Return the groups in the provider's claims, or `None` if they contain none.

    Args:
        claim: name or path of the groups claim, or a function that extracts the groups.
        names: the provider's name of a group -> the hub's name. A group that is not listed keeps its name.
        kept: the hub's names of the groups to use; if empty, all are used.
    """
    return claimed_groups(claims, claim, names=names, kept=kept).names


@dataclass(frozen=True, slots=True)
class JudgedGroups:
    """The groups that a person has at the hub now.

    Attributes:
        groups: names of the hub's groups.
        is_known: True if the provider reported the groups, or omitted the claim in a way that means *no groups*. Only
            known groups give admin rights.
        has_ended: whether the groups were unknown for too long, so that the person has lost them.
    """

    groups: frozenset[str]
    is_known: bool = True
    has_ended: bool = False


def judge_groups(
    claimed: ClaimedGroups,
    before: Collection[str],
    named: datetime | None,
    now: datetime,
    *,
    at_sign_in: bool,
    missing: MissingGroups | None,
    keep: timedelta,
) -> JudgedGroups:
    """Decide which groups a person has now.

    Args:
        claimed: the groups in the provider's claims.
        before: the person's groups at the hub until now.
        named: when the provider last reported the groups. `None` if that was not recorded; the groups then stay.
        at_sign_in: True for a sign-in, False for a later re-check of a session.
        missing: what a missing claim means. `None` means *no groups* at a sign-in, and *unknown* at a re-check.
        keep: how long unknown groups stay after `named`.
    """
    if claimed.names is not None:
        return JudgedGroups(claimed.names)
    means = missing or (MissingGroups.NONE if at_sign_in else MissingGroups.UNKNOWN)
    if claimed.problem is GroupsProblem.MISSING and means is MissingGroups.NONE:
        return JudgedGroups(frozenset())
    if named is not None and abs(now - named) >= keep:  # setting the clock back extends nothing
        return JudgedGroups(frozenset(), is_known=False, has_ended=bool(before))
    return JudgedGroups(frozenset(before), is_known=False)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME_LENGTH and text.isprintable() and text == text.strip()
