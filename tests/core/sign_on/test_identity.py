"""A person's identity, name and groups."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from hub_extensions.core.sign_on.claims import merged
from hub_extensions.core.sign_on.identity import (
    Adoption,
    ClaimedGroups,
    GroupsProblem,
    Identity,
    JudgedGroups,
    MissingGroups,
    Pinned,
    claimed_groups,
    groups_of,
    judge_groups,
    name_of,
    pin_of,
)
from hub_extensions.core.sign_on.refusal import SignOnRefusal

ISSUER = "https://login.site.example"
ADA, NEW_ADA = Identity(ISSUER, "u-1"), Identity(ISSUER, "u-2")
PINS = {ADA: "ada"}


@pytest.mark.parametrize(
    ("who", "name", "users", "adoption", "expected"),
    [
        (ADA, "ada", {"ada"}, Adoption.FIRST, Pinned("ada")),
        (ADA, "lovelace", set(), Adoption.FIRST, Pinned("ada")),
        (ADA, "lovelace", {"lovelace"}, Adoption.NONE, Pinned("ada")),
        (ADA, "ada", set(), Adoption.NONE, Pinned("ada")),
        (NEW_ADA, "eve", set(), Adoption.NONE, Pinned("eve", new=True)),
        (NEW_ADA, "ben", {"ben"}, Adoption.FIRST, Pinned("ben", new=True, adopted=True)),
        (NEW_ADA, "ben", {"ben"}, Adoption.NONE, "name-from-before"),
        (NEW_ADA, "ada", {"ada"}, Adoption.FIRST, "name-taken"),
        (NEW_ADA, "ada", {"ada"}, Adoption.NONE, "name-taken"),
        (NEW_ADA, "ada", set(), Adoption.FIRST, "name-taken"),
        (Identity("https://another.example", "u-1"), "ada", {"ada"}, Adoption.FIRST, "name-taken"),
    ],
)
def test_a_person_is_an_issuer_and_a_subject_and_not_a_name(
    who: Identity, name: str, users: set[str], adoption: Adoption, expected: Pinned | str
) -> None:
    found = pin_of(who, name, pins=PINS, users=users, adoption=adoption)
    assert (found.code if isinstance(found, SignOnRefusal) else found) == expected


@pytest.mark.parametrize(
    ("claims", "path", "expected"),
    [
        ({"preferred_username": "ada"}, "preferred_username", "ada"),
        ({"preferred_username": "Ada Lovelace"}, "preferred_username", "Ada Lovelace"),
        ({"account": {"name": "ada"}}, "account.name", "ada"),
        ({"https://site.example/name": "ada"}, "https://site.example/name", "ada"),
        ({"mail": "ada@site.example"}, "mail", "ada@site.example"),
        ({"n": "x" * 255}, "n", "x" * 255),
    ],
)
def test_a_name_is_taken_as_the_provider_writes_it(claims: dict[str, Any], path: str, expected: str) -> None:
    assert name_of(claims, path) == expected


@pytest.mark.parametrize(
    ("claims", "path", "code"),
    [
        ({}, "preferred_username", "no-name"),
        ({"n": ""}, "n", "no-name"),
        ({"n": None}, "n", "no-name"),
        ({"account": "ada"}, "account.name", "no-name"),
        ({"n": "a/b"}, "n", "bad-name"),
        ({"n": "a\nb"}, "n", "bad-name"),
        ({"n": "a\x00b"}, "n", "bad-name"),
        ({"n": "a\u202eb"}, "n", "bad-name"),
        ({"n": "x" * 300}, "n", "bad-name"),
        ({"n": " ada"}, "n", "bad-name"),
        ({"n": 5}, "n", "bad-name"),
        ({"n": ".."}, "n", "bad-name"),
        ({"n": "."}, "n", "bad-name"),
        ({"n": ["ada"]}, "n", "bad-name"),
        ({"n": {"name": "ada"}}, "n", "bad-name"),
    ],
)
def test_no_name_and_a_name_that_the_hub_does_not_take_are_refused(
    claims: dict[str, Any], path: str, code: str
) -> None:
    found = name_of(claims, path)
    assert isinstance(found, SignOnRefusal)
    assert found.code == code
    assert len(found.log_message) < 200
    assert found.log_message.isprintable()


@pytest.mark.parametrize(
    ("claims", "path", "expected"),
    [
        ({"groups": ["thesis", "staff"]}, "groups", {"thesis", "staff"}),
        ({"groups": []}, "groups", set()),
        ({"realm_access": {"roles": ["thesis"]}}, "realm_access.roles", {"thesis"}),
        ({"https://site.example/groups": ["thesis"]}, "https://site.example/groups", {"thesis"}),
        ({"groups": ["thesis", "thesis"]}, "groups", {"thesis"}),
        ({"groups": ["thesis", "", "x" * 256, "a\nb"]}, "groups", {"thesis"}),
        ({}, "groups", None),
        ({"groups": None}, "groups", None),
        ({"group": "K8s_P_Group1"}, "group", {"K8s_P_Group1"}),
        ({"groups": "CN=thesis,OU=uni"}, "groups", {"CN=thesis,OU=uni"}),
        ({"groups": ""}, "groups", None),
        ({"groups": "   "}, "groups", None),
        ({"groups": '["thesis", "hub-admins"]'}, "groups", None),
        ({"groups": "[thesis, hub-admins]"}, "groups", None),
        ({"groups": "thesis,hub-admins"}, "groups", None),
        ({"groups": "thesis; staff"}, "groups", None),
        ({"groups": "thesis|staff"}, "groups", None),
        ({"groups": "thesis\nstaff"}, "groups", None),
        ({"groups": ["Physics, staff"]}, "groups", {"Physics, staff"}),
        ({"groups": ["[IT] staff"]}, "groups", {"[IT] staff"}),
        ({"groups": ['["thesis"]']}, "groups", None),
        ({"groups": ["CN=thesis,OU=uni"]}, "groups", {"CN=thesis,OU=uni"}),
        ({"groups": "Domain Users"}, "groups", {"Domain Users"}),
        ({"groups": {"thesis": True}}, "groups", None),
        ({"groups": [{"name": "thesis"}]}, "groups", None),
        ({"groups": True}, "groups", None),
        ({"groups": 7}, "groups", None),
        ({"groups": ["thesis", 5]}, "groups", None),
        ({"groups": ["g"] * 2001}, "groups", None),
        ({"groups": ["thesis"], "_claim_names": {"groups": "src1"}}, "groups", None),
        ({"_claim_names": {"groups": "src1"}}, "groups", None),
        ({"groups": ["thesis"], "_claim_names": {"roles": "src1"}}, "groups", {"thesis"}),
        ({"realm_access": []}, "realm_access.roles", None),
        ({"hasgroups": True}, "groups", None),
        ({"hasgroups": "true", "groups": ["thesis"]}, "groups", None),
        ({"hasgroups": True, "roles": ["thesis"]}, "roles", {"thesis"}),
        ({"hasgroups": False, "groups": ["thesis"]}, "groups", {"thesis"}),
        ({"roles": ["thesis"], "groups": ["staff"]}, "roles", {"thesis"}),
        ({"resource_access": {"hub": {"roles": ["thesis"]}}}, "resource_access.hub.roles", {"thesis"}),
        ({"resource_access": {"hub.site.example": {"roles": ["a"]}}}, "resource_access.hub.site.example.roles", {"a"}),
        ({"a": {"b": {}}, "a.b": {"c": ["thesis"]}}, "a.b.c", {"thesis"}),
        ({"_claim_names": {"a.b": "src1"}, "a.b": ["thesis"]}, "a.b", None),
    ],
)
def test_groups_are_those_of_the_claim_or_unknown(claims: dict[str, Any], path: str, expected: set[str] | None) -> None:
    assert groups_of(claims, path, names={}, kept=()) == expected


@pytest.mark.parametrize(
    ("claims", "problem", "words"),
    [
        ({}, "missing", "it is not there"),
        ({"groups": None}, "missing", "it is not there"),
        ({"groups": ""}, "missing", "it is not there"),
        ({"_claim_names": {"groups": "src1"}}, "left-out", "too many"),
        ({"hasgroups": True}, "left-out", "too many"),
        ({"groups": {"thesis": {}}}, "unreadable", "an object instead of a list"),
        ({"groups": 5}, "unreadable", "a number instead of a list"),
        ({"groups": True}, "unreadable", "true or false instead of a list"),
        ({"groups": [{"name": "thesis"}]}, "unreadable", "a list with an object in it"),
        ({"groups": ["thesis", None]}, "unreadable", "a list with null in it"),
        ({"groups": '["thesis"]'}, "unreadable", "a text that looks like a list"),
        ({"groups": ['["thesis"]']}, "unreadable", "a list with a text that looks like a list"),
        ({"groups": "thesis,staff"}, "unreadable", "a text that looks like several groups"),
        ({"groups": ["g"] * 2001}, "unreadable", "2001 groups"),
    ],
)
def test_why_no_groups_are_named_and_which_shape_the_claim_has(
    claims: dict[str, Any], problem: str, words: str
) -> None:
    found = claimed_groups(claims, "groups", names={}, kept=())
    assert found.names is None and found.problem is not None and found.problem.value == problem
    assert words in found.words


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda claims: [each["name"] for each in claims["teams"]], {"gpu", "lab"}),
        (lambda claims: {"gpu"}, {"gpu"}),
        (lambda claims: claims["urn:zitadel:roles"].keys(), {"thesis"}),
        (lambda claims: claims.get("nothing"), None),
        (lambda claims: claims["nothing"], None),
        (lambda claims: claims, None),
    ],
)
def test_a_function_finds_the_groups_in_any_shape(function: Any, expected: set[str] | None) -> None:
    claims = {"teams": [{"name": "gpu"}, {"name": "lab"}], "urn:zitadel:roles": {"thesis": {"1": "site.example"}}}
    assert groups_of(claims, function, names={}, kept=()) == expected


def test_one_text_that_a_setting_names_is_one_group_whatever_is_in_it() -> None:
    claims, name = {"groups": "Physics, staff"}, "Physics, staff"
    assert groups_of(claims, "groups", names={name: "physics"}, kept=()) == {"physics"}
    assert groups_of(claims, "groups", names={}, kept=(name,)) == {name}
    assert groups_of(claims, "groups", names={}, kept=()) is None


@pytest.mark.parametrize("marker", [{"_claim_names": {"groups": "src1"}}, {"hasgroups": True}])
@pytest.mark.parametrize("found", [None, [], frozenset()])
def test_a_function_that_finds_nothing_where_the_provider_left_a_claim_out(marker: dict[str, Any], found: Any) -> None:
    told = claimed_groups(marker, lambda claims: found, names={}, kept=())
    assert (told.names, told.problem) == (None, GroupsProblem.LEFT_OUT)
    assert groups_of(marker, lambda claims: ["gpu"], names={}, kept=()) == {"gpu"}


MISSING = ClaimedGroups(None, GroupsProblem.MISSING)
LEFT_OUT = ClaimedGroups(None, GroupsProblem.LEFT_OUT)
OTHER_SHAPE = ClaimedGroups(None, GroupsProblem.UNREADABLE, "an object instead of a list")
NAMED = ClaimedGroups(frozenset({"staff"}))
EMPTY = ClaimedGroups(frozenset())
HAD = frozenset({"thesis", "hub-admins"})
NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
KNOWN_NONE, UNKNOWN = JudgedGroups(frozenset()), JudgedGroups(HAD, is_known=False)
ENDED = JudgedGroups(frozenset(), is_known=False, has_ended=True)


@pytest.mark.parametrize("at_sign_in", [True, False])
@pytest.mark.parametrize(
    ("claimed", "setting", "hours_ago", "sign_in", "recheck"),
    [
        (NAMED, None, 1, JudgedGroups(frozenset({"staff"})), JudgedGroups(frozenset({"staff"}))),
        (NAMED, "none", 99, JudgedGroups(frozenset({"staff"})), JudgedGroups(frozenset({"staff"}))),
        (EMPTY, "unknown", 1, KNOWN_NONE, KNOWN_NONE),
        (MISSING, None, 1, KNOWN_NONE, UNKNOWN),
        (MISSING, None, 24, KNOWN_NONE, ENDED),
        (MISSING, None, 23.9, KNOWN_NONE, UNKNOWN),
        (MISSING, None, -25, KNOWN_NONE, ENDED),
        (MISSING, None, None, KNOWN_NONE, UNKNOWN),
        (MISSING, "none", 1, KNOWN_NONE, KNOWN_NONE),
        (MISSING, "unknown", 1, UNKNOWN, UNKNOWN),
        (MISSING, "unknown", 25, ENDED, ENDED),
        (LEFT_OUT, None, 1, UNKNOWN, UNKNOWN),
        (LEFT_OUT, "none", 1, UNKNOWN, UNKNOWN),
        (LEFT_OUT, "none", 25, ENDED, ENDED),
        (OTHER_SHAPE, "none", 1, UNKNOWN, UNKNOWN),
        (OTHER_SHAPE, None, 25, ENDED, ENDED),
    ],
)
def test_what_a_claim_that_names_no_groups_means(
    claimed: ClaimedGroups,
    setting: str | None,
    hours_ago: float | None,
    sign_in: JudgedGroups,
    recheck: JudgedGroups,
    at_sign_in: bool,
) -> None:
    found = judge_groups(
        claimed,
        HAD,
        None if hours_ago is None else NOW - timedelta(hours=hours_ago),
        NOW,
        at_sign_in=at_sign_in,
        missing=None if setting is None else MissingGroups(setting),
        keep=timedelta(hours=24),
    )
    assert found == (sign_in if at_sign_in else recheck)


def test_a_claim_without_a_value_takes_nothing_away_and_objects_are_merged() -> None:
    token = {"groups": ["gpu"], "roles": ["a"], "resource_access": {"hub": {"roles": ["a"]}}, "sub": "s"}
    info = {"groups": None, "roles": "", "resource_access": {"account": {"roles": ["b"]}}, "email": "e", "x": ""}
    assert merged(token, info) == {
        "groups": ["gpu"],
        "roles": ["a"],
        "resource_access": {"hub": {"roles": ["a"]}, "account": {"roles": ["b"]}},
        "sub": "s",
        "email": "e",
        "x": "",
    }
    assert merged(token, {"groups": []})["groups"] == []


def test_groups_are_renamed_and_only_those_kept_are_taken_over() -> None:
    claims = {"groups": ["/uni/thesis", "staff", "parking"]}
    names = {"/uni/thesis": "thesis"}
    assert groups_of(claims, "groups", names=names, kept=()) == {"thesis", "staff", "parking"}
    assert groups_of(claims, "groups", names=names, kept=("thesis", "lab")) == {"thesis"}
