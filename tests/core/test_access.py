"""Rights of a login by its account, and of a token by its own scopes. Code in a notebook has almost none."""

from __future__ import annotations

import pytest

from hub_extensions.core.access import ACCESS, NEEDED, ApiAction, Person, has_access, refusal

OWN, OTHERS = ("ada", "thesis"), ("ben", "")
DOOR = ACCESS[1]
OF_ALL = {ApiAction.LIST_ALL, ApiAction.GIVE_UP, ApiAction.ORDER, ApiAction.METRICS, ApiAction.HEALTH}
LOOKS = {ApiAction.READ, ApiAction.LIST_OWN}
ON_OWN = {ApiAction.START, ApiAction.KEEP, ApiAction.LEAVE}
SERVERS = ("servers!user=ada", "start:servers!user=ada", "delete:servers!user=ada")
ADMINS = ("list:users", "servers", "start:servers", "delete:servers", "admin:servers", "read:metrics", "read:hub")


def token(*scopes: str, admin: bool = True, kind: str = "user") -> Person:
    """The token of an admin. A token does not have the account's rights by itself."""
    return Person("ada", kind, admin, ("course",), frozenset((DOOR, *scopes)))


# who -> what it may with its own server, what with another's
TABLE: dict[str, tuple[Person, set[ApiAction], set[ApiAction]]] = {
    "a login": (Person("ada"), LOOKS | ON_OWN, set()),
    "an admin's login": (Person("ada", admin=True), set(ApiAction), set(ApiAction)),
    "a token with access alone, an admin's too": (token(), LOOKS, LOOKS),
    "a token of a user's whole rights": (token(*SERVERS, admin=False), LOOKS | ON_OWN, LOOKS),
    "a token to start, of JupyterHub 5": (token("servers!user=ada"), LOOKS | {ApiAction.START, ApiAction.KEEP}, LOOKS),
    "a token to start, of JupyterHub 6": (
        token("start:servers!user=ada"),
        LOOKS | {ApiAction.START, ApiAction.KEEP},
        LOOKS,
    ),
    "a token to stop": (token("delete:servers!user=ada"), LOOKS | {ApiAction.LEAVE}, LOOKS),
    "a token to stop one server": (token("delete:servers!server=ada/thesis"), LOOKS | {ApiAction.LEAVE}, LOOKS),
    "a token to stop another server": (token("delete:servers!server=ada/other"), LOOKS, LOOKS),
    "a token to stop a group's servers": (token("delete:servers!group=course"), LOOKS | {ApiAction.LEAVE}, LOOKS),
    "a token to stop another group's": (token("delete:servers!group=others"), LOOKS, LOOKS),
    "a token to stop somebody's": (token("delete:servers!user=ben"), LOOKS, LOOKS | {ApiAction.LEAVE}),
    "a token to list some users": (token("list:users!group=course"), LOOKS, LOOKS),
    "a token to list users": (token("list:users"), LOOKS | {ApiAction.LIST_ALL}, LOOKS | {ApiAction.LIST_ALL}),
    "an admin's token of all rights": (token(*ADMINS), set(ApiAction), set(ApiAction)),
    "a service's token": (
        token("read:metrics", kind="service"),
        LOOKS | {ApiAction.METRICS},
        LOOKS | {ApiAction.METRICS},
    ),
    "a server's own token": (token("access:servers!server=ada/", *SERVERS), {ApiAction.READ}, {ApiAction.READ}),
    "an admin's token that somebody's server keeps": (
        token("access:servers!server=ben/", *ADMINS),
        {ApiAction.READ},
        {ApiAction.READ},
    ),
}


@pytest.mark.parametrize("who", TABLE)
def test_what_each_may(who: str) -> None:
    person, own, others = TABLE[who]
    assert {action for action in ApiAction if person.may(action, OWN)} - OF_ALL == own - OF_ALL
    assert {action for action in ApiAction if person.may(action, OTHERS)} - OF_ALL == others - OF_ALL
    assert {action for action in OF_ALL if person.may(action)} == own & OF_ALL


def test_without_a_server_it_is_the_callers_default_one() -> None:
    assert token("servers!server=ada/").may(ApiAction.START)
    assert not token("servers!server=ada/thesis").may(ApiAction.START)


def test_a_refusal_names_the_scope_and_nobody() -> None:
    why = refusal(token(), ApiAction.LEAVE, OTHERS)
    assert why is not None
    assert (why.reason, why.params) == ("scope-needed", {"scope": "delete:servers"})
    assert "ben" not in why.message


def test_a_service_is_nobodys_user_whatever_its_name() -> None:
    assert not Person("ada", "service").may(ApiAction.START, OWN)
    assert not token("delete:servers!group=course", kind="service").may(ApiAction.LEAVE, OWN)


def test_every_action_has_its_row() -> None:
    assert set(NEEDED) == set(ApiAction)


@pytest.mark.parametrize("scope", ACCESS)
def test_access_is_to_all_services_or_to_this_one(scope: str) -> None:
    assert has_access(frozenset({scope}))
    assert not has_access(frozenset({f"{scope}x", "access:services!service=other"}))
