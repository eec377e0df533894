"""Check a user's choice of a KubeSpawner profile before the start, and the choice of an earlier start.

KubeSpawner itself does not check listed choices, checks only the beginning of a free text, and counts a wrong choice as
a failed spawn, as if the hub were broken.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from slugify import slugify

from hub_extensions.core.offers.user_options import OWN_KEYS, UserOptionsError, others_of
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.text.wording import foreign

PROFILE = "profile"
UNLISTED = "--unlisted-choice"
Profile = Mapping[str, Any]


def in_order(profiles: Any) -> list[Profile]:
    """Return profiles as a list. KubeSpawner 7.1 also accepts a dict, which it sorts by key."""
    if isinstance(profiles, Mapping):
        profiles = [profiles[key] for key in sorted(profiles)]
    return list(profiles or ())


def slug_of(profile: Profile) -> str:
    """Return the name (`slug`) by which a form chooses a profile. If missing, KubeSpawner makes it from the title."""
    return str(profile["slug"] if "slug" in profile else slugify(str(profile.get("display_name", ""))))


def check_profile(profiles: Iterable[Profile], options: Mapping[str, Any], also: Collection[str] = ()) -> None:
    """Check a choice of a profile and its options.

    Args:
        profiles: KubeSpawner's profiles in order. If there are none, a chosen profile is refused here, because
            KubeSpawner 7 would refuse it only after the wait in line.
        options: ``profile``, one key for each of its options, and ``<option>--unlisted-choice``.
        also: names of further options (`gpu_extra_user_options`), which are not checked here.

    Raises:
        UserOptionsError: the profile, option or choice does not exist, or the profile does not accept a free text.
    """
    known = list(profiles)
    mine = {key: value for key, value in options.items() if key not in OWN_KEYS and key not in also}
    if not known:
        if mine.pop(PROFILE, None):
            raise _error(PROFILE, explain("profile-none"))
        if mine:
            _refuse_unknown(next(iter(mine)), ())
        return
    profile = _chosen(known, mine.pop(PROFILE, None))
    choices: Mapping[str, Any] = profile.get("profile_options") or {}
    for key in mine:
        if key not in choices and not (key.endswith(UNLISTED) and key.removesuffix(UNLISTED) in choices):
            _refuse_unknown(key, choices)
    for name, option in choices.items():
        if name in OWN_KEYS:
            raise UserOptionsError(name, explain("profile-has-our-key", name=name))
        _check_option(name, option, mine.get(name), mine.get(f"{name}{UNLISTED}"))


def still_valid(profiles: Iterable[Profile], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the profile and its options from a saved choice; empty if the current profiles do not accept them."""
    kept = others_of(options)
    try:
        check_profile(profiles, kept)
    except UserOptionsError:
        return {}
    return kept


def _chosen(profiles: list[Profile], slug: object) -> Profile:
    if not slug:
        return next((profile for profile in profiles if profile.get("default")), profiles[0])
    for profile in profiles:
        if slug_of(profile) == slug:
            return profile
    there = ", ".join(slug_of(profile) for profile in profiles)
    raise _error(PROFILE, explain("profile-not-there", slug=_short(slug), there=there))


def _check_option(name: str, option: Profile, choice: object, free: object) -> None:
    choices: Mapping[str, Any] = option.get("choices") or {}
    unlisted: Mapping[str, Any] = option.get("unlisted_choice") or {}
    for value in (choice, free):
        if value is not None and not isinstance(value, str):
            raise UserOptionsError(name, explain("profile-no-text", name=name))
    if free:
        if not unlisted.get("enabled"):
            there = ", ".join(choices)
            none = explain("profile-no-value-of-your-own")
            raise _error(name, explain("profile-none-of-your-own", there=there) if there else none)
        pattern = unlisted.get("validation_regex")
        # match the whole text: a pattern's $ would accept a line break, and KubeSpawner anything after a match
        if pattern and not re.fullmatch(pattern, str(free)):
            value, why = _short(free), unlisted.get("validation_message")
            of_no_form = explain("profile-value-of-no-form", value=value)
            raise _error(name, explain("profile-value-refused", value=value, why=str(why)) if why else of_no_form)
        return
    if choice and choice not in choices:
        there, wrong = ", ".join(choices), _short(choice)
        none = explain("profile-has-no-choice", choice=wrong)
        raise _error(name, explain("profile-no-such-choice", choice=wrong, there=there) if there else none)
    if not choice and not choices:
        raise _error(name, explain("profile-needs-a-value"))


def _refuse_unknown(key: str, options: Collection[str]) -> None:
    names = [*OWN_KEYS, PROFILE, *options]
    unknown = explain("profile-unknown-key", key=_short(key), names=", ".join(names[:-1]), last=names[-1])
    raise UserOptionsError(foreign(key), unknown)


def _error(name: str, reason: Reason) -> UserOptionsError:
    return UserOptionsError(name, explain("choice-of", field=name), reason)


def _short(value: object) -> str:
    return repr(str(value)[:60])
