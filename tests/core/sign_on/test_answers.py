"""Refusals of a provider: whether they concern the person, the client or the session, as six providers word them."""

from __future__ import annotations

from typing import Any

import pytest

from hub_extensions.core.sign_on.answers import (
    MUST_ACT,
    About,
    Account,
    account_in_description,
    account_of_record,
    judge_token_error,
    judge_userinfo_error,
)

BOILERPLATE = (
    "The provided authorization grant (e.g., authorization code, resource owner credentials) or refresh token is "
    "invalid, expired, revoked, does not match the redirection URI used in the authorization request, or was issued to "
    "another client."
)


@pytest.mark.parametrize(
    ("status", "answered", "about", "code"),
    [
        # about the person
        (400, {"error": "invalid_grant"}, About.PERSON, "invalid_grant"),
        (401, {"error": "invalid_grant"}, About.PERSON, "invalid_grant"),
        (403, {"error": "invalid_grant", "error_description": "Unknown or invalid refresh token."}, About.PERSON, None),
        (400, {"error": "invalid_grant", "error_description": BOILERPLATE}, About.PERSON, "invalid_grant"),
        (400, {"error": "invalid_grant", "error_description": "User disabled"}, About.PERSON, "invalid_grant"),
        (200, {"error": "bad_refresh_token", "error_description": "It is expired."}, About.PERSON, None),
        # the person has to act
        (400, {"error": "interaction_required"}, About.PERSON, MUST_ACT),
        (400, {"error": "login_required"}, About.PERSON, MUST_ACT),
        (401, {"error": "consent_required"}, About.PERSON, MUST_ACT),
        (403, {"error": "mfa_required", "mfa_token": "x"}, About.PERSON, MUST_ACT),
        (400, {"error": "invalid_grant", "suberror": "basic_action"}, About.PERSON, MUST_ACT),
        (400, {"error": "invalid_grant", "error_description": "Consent required"}, About.PERSON, MUST_ACT),
        (400, {"error": "invalid_grant", "suberror": "bad_token"}, About.PERSON, "invalid_grant"),
        (400, {"error": "invalid_grant", "error_subtype": "invalid_rapt"}, About.PERSON, MUST_ACT),
        (400, {"error": "invalid_grant", "error_description": "Account is not fully set up"}, About.PERSON, MUST_ACT),
        (
            400,
            {"error": "invalid_scope", "error_description": "Client no longer has requested consent from user"},
            About.PERSON,
            MUST_ACT,
        ),
        # about the client
        (401, {"error": "invalid_client"}, About.CLIENT, "invalid_client"),
        (400, {"error": "invalid_client", "error_description": "User disabled"}, About.CLIENT, "invalid_client"),
        (400, {"error": "unauthorized_client", "error_description": "Client disabled"}, About.CLIENT, None),
        (401, {"error": "access_denied"}, About.CLIENT, "access_denied"),
        (429, {"error": "invalid_grant", "error_description": "Too many requests"}, About.NOBODY, "invalid_grant"),
        (401, {}, About.CLIENT, ""),
        (401, {"error": "deleted_client"}, About.CLIENT, "deleted_client"),
        (200, {"error": "incorrect_client_credentials"}, About.CLIENT, "incorrect_client_credentials"),
        (400, {"error": "invalid_grant", "error_description": "Client disabled"}, About.CLIENT, None),
        (
            400,
            {"error": "invalid_grant", "error_description": "Token client and authorized client don't match"},
            About.CLIENT,
            None,
        ),
        # about nobody
        (500, {"error": "invalid_grant", "error_description": "User disabled"}, About.NOBODY, "invalid_grant"),
        (503, {"error": "interaction_required"}, About.NOBODY, None),
        (400, {"error": "invalid_request"}, About.NOBODY, "invalid_request"),
        (429, {"error": "too_many_requests"}, About.NOBODY, None),
        (400, {"error": ["invalid_grant"]}, About.NOBODY, ""),
        (400, {"error": {"code": "invalid_grant"}}, About.PERSON, "invalid_grant"),
        (200, {}, About.NOBODY, ""),
    ],
)
def test_whom_an_answer_without_tokens_is_about(
    status: int, answered: dict[str, Any], about: About, code: str | None
) -> None:
    found = judge_token_error(status, answered)
    assert found.about is about
    assert code is None or found.code == code


@pytest.mark.parametrize(
    ("status", "answered", "challenge", "about", "account"),
    [
        (401, {}, "", About.PERSON, None),
        (401, {"error": {"code": "InvalidAuthenticationToken"}}, "Bearer", About.PERSON, None),
        (401, {"error": "invalid_token", "error_description": "User disabled"}, "", About.PERSON, Account.DISABLED),
        (401, {}, 'Bearer error="invalid_token", error_description="User not found"', About.PERSON, Account.GONE),
        (401, {"error": "invalid_client", "error_description": "Client disabled"}, "", About.CLIENT, None),
        (401, {}, 'Bearer error="invalid_token", error_description="Client not found"', About.CLIENT, None),
        (401, {"error": "invalid_token", "error_description": "User session not found"}, "", About.PERSON, None),
        (403, {"error": "insufficient_scope"}, "", About.NOBODY, None),
        (404, {"error": "User not found"}, "", About.NOBODY, None),
        (500, {}, 'Bearer error_description="User disabled"', About.NOBODY, None),
    ],
)
def test_whom_a_no_of_the_user_information_is_about(
    status: int, answered: dict[str, Any], challenge: str, about: About, account: Account | None
) -> None:
    found = judge_userinfo_error(status, answered, challenge)
    assert found.about is about
    assert about is not About.PERSON or account_in_description(found.description) is account


@pytest.mark.parametrize(
    ("status", "record", "account"),
    [
        # Keycloak
        (200, {"id": "u-1", "username": "ada", "enabled": True}, Account.THERE),
        (200, {"id": "u-1", "username": "ada", "enabled": False}, Account.DISABLED),
        (404, {"error": "User not found"}, Account.GONE),
        (404, {"error": "Realm not found."}, None),
        (404, {"error": "HTTP 404 Not Found"}, None),
        (403, {"error": "HTTP 403 Forbidden"}, None),
        # Entra ID (Microsoft Graph)
        (200, {"accountEnabled": True}, Account.THERE),
        (200, {"accountEnabled": False}, Account.DISABLED),
        (200, {"accountEnabled": None}, Account.THERE),
        (
            404,
            {"error": {"code": "Request_ResourceNotFound", "message": "Resource 'u-1' does not exist"}},
            Account.GONE,
        ),
        (401, {"error": {"code": "InvalidAuthenticationToken", "message": "User not found"}}, None),
        # Okta
        (200, {"id": "u-1", "status": "ACTIVE"}, Account.THERE),
        (200, {"id": "u-1", "status": "DEPROVISIONED"}, Account.DISABLED),
        (200, {"id": "u-1", "status": "SUSPENDED"}, Account.DISABLED),
        (200, {"id": "u-1", "status": "LOCKED_OUT"}, Account.THERE),
        (200, {"id": "u-1", "status": "PASSWORD_EXPIRED"}, Account.THERE),
        (404, {"errorCode": "E0000007", "errorSummary": "Not found: Resource not found: u-1 (User)"}, Account.GONE),
        (404, {"errorCode": "E0000007", "errorSummary": "Not found: Resource not found: app (AppInstance)"}, None),
        # Auth0, GitLab, SCIM
        (200, {"user_id": "u-1", "blocked": True}, Account.DISABLED),
        (404, {"statusCode": 404, "error": "Not Found", "errorCode": "inexistent_user"}, Account.GONE),
        (200, {"id": "u-1", "state": "blocked"}, Account.DISABLED),
        (404, {"message": "404 User Not Found"}, Account.GONE),
        (200, {"id": "u-1", "active": False}, Account.DISABLED),
        (404, {"detail": "Resource u-1 not found", "status": "404"}, Account.GONE),
        # Google
        (200, {"id": "u-1", "suspended": True}, Account.DISABLED),
        (404, {"error": {"code": 404, "message": "Resource Not Found: userKey"}}, Account.GONE),
        (404, {"error": {"code": 404, "message": "Resource Not Found: groupKey"}}, None),
        # not about this account, or about nobody
        (200, {"id": "u-2", "enabled": False}, None),
        (200, {"enabled": "false", "id": "u-1"}, Account.THERE),
        (200, {}, None),
        (200, [], None),
        (200, {"totalResults": 0, "Resources": []}, None),
        (404, None, None),
        (404, {"message": "Route GET:/users/u-1 not found", "error": "Not Found"}, None),
        (404, {"error": "Client not found"}, None),
        (410, {"message": "user u-1 does not exist"}, Account.GONE),
        (500, {"error": "User not found"}, None),
        (302, {"id": "u-1", "enabled": False}, None),
    ],
)
def test_what_the_administration_says_of_an_account(status: int, record: Any, account: Account | None) -> None:
    assert account_of_record(status, record, "u-1") is account
