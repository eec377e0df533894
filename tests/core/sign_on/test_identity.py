"""Who somebody is, what they are called, and in which groups they are."""

from __future__ import annotations

from typing import Any

import pytest

from hub_extensions.core.sign_on.identity import (
    Adoption,
    Identity,
    Pinned,
    groups_of,
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
        ({"groups": "thesis"}, "groups", None),
        ({"groups": {"thesis": True}}, "groups", None),
        ({"groups": ["thesis", 5]}, "groups", None),
        ({"groups": ["g"] * 2001}, "groups", None),
        ({"groups": ["thesis"], "_claim_names": {"groups": "src1"}}, "groups", None),
        ({"_claim_names": {"groups": "src1"}}, "groups", None),
        ({"groups": ["thesis"], "_claim_names": {"roles": "src1"}}, "groups", {"thesis"}),
        ({"realm_access": []}, "realm_access.roles", None),
    ],
)
def test_groups_are_those_of_the_claim_or_unknown(claims: dict[str, Any], path: str, expected: set[str] | None) -> None:
    assert groups_of(claims, path, names={}, kept=()) == expected


def test_groups_are_renamed_and_only_those_kept_are_taken_over() -> None:
    claims = {"groups": ["/uni/thesis", "staff", "parking"]}
    names = {"/uni/thesis": "thesis"}
    assert groups_of(claims, "groups", names=names, kept=()) == {"thesis", "staff", "parking"}
    assert groups_of(claims, "groups", names=names, kept=("thesis", "lab")) == {"thesis"}
