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

What the provider names no groups for is another question, which `judge_groups` answers:

======================================  ==============================  =========================================
the groups claim                        at a sign-in                    at a re-check
======================================  ==============================  =========================================
is a list, or one text                  these groups                    these groups
is missing (not there, null or empty)   no groups                       unknown: the groups stay for a while
is left out as too large, or cannot     unknown: the groups stay for a  unknown: the groups stay for a while
be read                                 while
======================================  ==============================  =========================================

Groups that are unknown stay until `groups_keep_hours` after the provider last named them, and make nobody an
administrator. ``missing_groups`` overrides the second row.
Not here: the table of pins, and the hub's own lists of whom it lets in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Set, Sized
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from hub_extensions.core.sign_on.claims import ABSENT, Claims, claim_at, shown
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
    if not isinstance(name, str) or not _is_name(name) or "/" in name or name in (".", ".."):
        problem = f"The hub takes no user of this name ({path}): {shown(name)}."
        return SignOnRefusal("bad-name", problem, {"claim": path})
    return name


class MissingGroups(str, Enum):
    """What a groups claim that is missing means."""

    NONE = "none"
    UNKNOWN = "unknown"


class GroupsProblem(str, Enum):
    """Why the provider names no groups."""

    MISSING = "missing"
    LEFT_OUT = "left-out"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class ClaimedGroups:
    """The groups that the provider's claims name.

    Attributes:
        names: as the hub calls them; None if the claims name none.
        problem: why they name none; None if they do.
        shape: what the claim is instead, for the log; "" if `problem` says it.
    """

    names: frozenset[str] | None
    problem: GroupsProblem | None = None
    shape: str = ""

    @property
    def words(self) -> str:
        """The problem, for the log."""
        if self.problem is GroupsProblem.LEFT_OUT:
            return "the provider left it out, because there are too many"
        return self.shape or "it is not there"


GroupsClaim = str | Callable[[dict[str, Any]], Any]
"""The name or path of the claim, or a function that finds the groups in all claims."""


def claimed_groups(
    claims: Claims, claim: GroupsClaim, *, names: Mapping[str, str], kept: Collection[str]
) -> ClaimedGroups:
    """Read the groups of a person.

    Args:
        names: the provider's name -> the hub's; others keep theirs.
        kept: the hub's names that are taken over; if empty, all of them.
    """
    if isinstance(claim, str):
        if _is_left_out(claims, claim):
            return ClaimedGroups(None, GroupsProblem.LEFT_OUT)
        said = claim_at(claims, claim, ABSENT)
    else:
        try:
            said = claim(dict(claims))
        except Exception as problem:  # noqa: BLE001  whatever the admin's own function does
            return _unreadable(f"the function groups_claim raised {type(problem).__name__}")
        if (said is None or (isinstance(said, Sized) and not said)) and _has_left_out(claims):
            return ClaimedGroups(None, GroupsProblem.LEFT_OUT)
    if isinstance(said, str):
        said = said.strip()
        if problem_words := _names_several(said, {*names, *kept}):
            return _unreadable(problem_words)
        said = [said] if said else None  # ADFS writes one group as a text
    if said is ABSENT or said is None:
        return ClaimedGroups(None, GroupsProblem.MISSING)
    if not isinstance(said, (list, tuple, Set)):
        return _unreadable(f"{_KINDS.get(type(said), type(said).__name__)} instead of a list")
    strange = next((each for each in said if not isinstance(each, str)), None)
    if strange is not None or None in said:
        return _unreadable(f"a list with {_KINDS.get(type(strange), type(strange).__name__)} in it")
    if len(said) == 1 and (one := next(iter(said)).strip())[:1] + one[-1:] in ("[]", "{}"):
        return _unreadable(f"a list with a text that looks like a list: {shown(one)}")
    if len(said) > MOST_GROUPS:
        return _unreadable(f"a list of {len(said)} groups, more than {MOST_GROUPS}")
    found = {names.get(one, one) for one in said}
    return ClaimedGroups(frozenset(one for one in found if _is_name(one) and (not kept or one in kept)))


_KINDS = {dict: "an object", bool: "true or false", int: "a number", float: "a number", list: "a list",
          type(None): "null"}  # fmt: skip


def _unreadable(shape: str) -> ClaimedGroups:
    return ClaimedGroups(None, GroupsProblem.UNREADABLE, shape)


_SEVERAL = re.compile(r"[^,;|\n]+(?:[,;|\n][^,;|\n]+)+")


def _names_several(text: str, known: Set[str]) -> str:
    """How a text looks that is no name of one group; "" if it may be one.

    The name of an entry in a directory (``CN=thesis,OU=uni``) has commas, and a name may have spaces.
    """
    if text in known:
        return ""
    if text[:1] in ("[", "{"):
        return f"a text that looks like a list: {shown(text)}"
    if "=" not in text and _SEVERAL.fullmatch(text):
        return f"a text that looks like several groups, which a function as groups_claim can take apart: {shown(text)}"
    return ""


def _has_left_out(claims: Claims) -> bool:
    """Whether the provider left any claim out as too large: which one a function reads is not known."""
    return bool(claims.get("_claim_names")) or claims.get("hasgroups") in (True, "true", "True")


def _is_left_out(claims: Claims, path: str) -> bool:
    """Whether the claim is too large for a token, and stands elsewhere (OpenID Connect Core 5.6.2; Entra ID)."""
    elsewhere = claims.get("_claim_names")
    if isinstance(elsewhere, Mapping) and (path in elsewhere or path.split(".")[0] in elsewhere):
        return True
    return path == "groups" and claims.get("hasgroups") in (True, "true", "True")


def groups_of(
    claims: Claims, claim: GroupsClaim, *, names: Mapping[str, str], kept: Collection[str]
) -> frozenset[str] | None:
    """Return the groups that the claims name, or None if they name none; see `claimed_groups`."""
    return claimed_groups(claims, claim, names=names, kept=kept).names


@dataclass(frozen=True, slots=True)
class JudgedGroups:
    """The groups that a person has now.

    Attributes:
        is_known: the provider says so, or names none and that means none. Only then can a group give admin rights.
        has_ended: they were unknown for too long, so none are left.
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
        before: the groups that the hub has of this person.
        named: when the provider last named the groups; None if nobody noted it, so that the time begins now.
        missing: what a missing claim means; None: none at a sign-in, and unknown at a re-check.
        keep: how long unknown groups stay.
    """
    if claimed.names is not None:
        return JudgedGroups(claimed.names)
    means = missing or (MissingGroups.NONE if at_sign_in else MissingGroups.UNKNOWN)
    if claimed.problem is GroupsProblem.MISSING and means is MissingGroups.NONE:
        return JudgedGroups(frozenset())
    if named is not None and abs(now - named) >= keep:  # a clock that was set back prolongs nothing
        return JudgedGroups(frozenset(), is_known=False, has_ended=bool(before))
    return JudgedGroups(frozenset(before), is_known=False)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and text == text.strip()
