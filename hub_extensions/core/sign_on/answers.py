"""Decide what a refusal by the identity provider is about: the person, our OAuth client, or neither.

The token endpoint, the userinfo endpoint and the provider's administration API (`account_url`) can report that an
account is disabled or gone. Only a refusal about the person ends the person's right to sign in. ``recheck.py`` decides
what happens to the session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hub_extensions.core.sign_on.claims import quoted


class About(Enum):
    """The subject of a refusal by the provider: the person, our OAuth client, or neither."""

    PERSON = "person"
    CLIENT = "client"
    NOBODY = "nobody"


class Account(Enum):
    """The state of an account at the provider: it exists and may sign in, it is disabled, or it is gone."""

    THERE = "there"
    DISABLED = "disabled"
    GONE = "gone"


TOO_MANY = 429
"""HTTP status of a rate limit, which does not concern the account."""
MUST_ACT = "must-act"
"""Replaces the provider's error code if the person has to act at the provider; a new sign-in solves this."""
_ACT = frozenset({
    "interaction_required", "login_required", "consent_required", "account_selection_required", "mfa_required",
    "invalid_rapt",
})  # fmt: skip
_ACT_DETAILS = frozenset({
    "basic_action", "additional_action", "message_only", "consent_required", "user_password_expired", "invalid_rapt",
})  # fmt: skip
"""Values of ``suberror`` (Entra ID) and ``error_subtype`` (Google) beside ``invalid_grant``: the person has to act."""
_ACT_WORDS = re.compile(
    r"not fully set up|no longer has requested consent|required action|multi-?factor|has not consented|"
    r"password (has |is )?expired|consent (is )?required",
    re.IGNORECASE,
)
_REFUSED = frozenset({"invalid_grant", "bad_refresh_token", "bad_verification_code"})
"""Error codes for a refused token. The last two are GitHub's; GitHub returns errors with status 200."""
_OF_CLIENT = frozenset({
    "invalid_client", "unauthorized_client", "incorrect_client_credentials", "application_suspended", "deleted_client",
    "disabled_client",
})  # fmt: skip
_CLIENT_WORDS = re.compile(
    r"\b(client|application)\b[^.]{0,120}\b(disabled|deleted|suspended|not found|unknown|does(n.?t| not) exist|"
    r"do(n.?t|es not| not) match)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A refusal of the provider, and whom it is about.

    Attributes:
        code: the provider's error code; "" if the answer lacks one. It is `MUST_ACT` if the person has to act at the
            provider, such as change a password.
        description: the provider's error description; "" if the answer lacks one.
    """

    about: About
    code: str
    description: str


def judge_token_error(status: int, answered: Mapping[str, Any]) -> ErrorResponse:
    """Classify an answer of the token endpoint that contains no tokens.

    Args:
        status: HTTP status of the answer.
        answered: the JSON object of the answer; empty if the answer did not contain one.
    """
    code, words = _error_of(answered)
    details = {answered.get("suberror"), answered.get("error_subtype")} - {None}
    if status >= 500 or status == TOO_MANY:
        return ErrorResponse(About.NOBODY, code, words)
    if code in _ACT or (code == "invalid_scope" and _ACT_WORDS.search(words)):
        return ErrorResponse(About.PERSON, MUST_ACT, words)
    if code in _REFUSED:
        if any(isinstance(each, str) and each in _ACT_DETAILS for each in details) or _ACT_WORDS.search(words):
            return ErrorResponse(About.PERSON, MUST_ACT, words)
        about_client = _CLIENT_WORDS.search(words) is not None and account_in_description(words) is None
        return ErrorResponse(About.CLIENT if about_client else About.PERSON, code, words)
    # a 401 here is always about the client (RFC 6749, 5.2): some providers answer "access_denied" for a wrong secret
    return ErrorResponse(About.CLIENT if status == 401 or code in _OF_CLIENT else About.NOBODY, code, words)


def judge_userinfo_error(status: int, answered: Mapping[str, Any], challenge: str) -> ErrorResponse:
    """Classify an answer of the userinfo endpoint that is not 200.

    Args:
        status: HTTP status of the answer.
        answered: the JSON object of the answer; empty if the answer did not contain one.
        challenge: the header ``WWW-Authenticate``, which contains code and description according to RFC 6750.
    """
    code, words = _error_of(answered)
    in_head = dict(re.findall(r'\b(error|error_description)\s*=\s*"([^"]*)"', challenge[:2000]))
    code, words = code or in_head.get("error", ""), words or in_head.get("error_description", "")
    if status != 401:
        return ErrorResponse(About.NOBODY, code, words)
    about_client = code in _OF_CLIENT or (_CLIENT_WORDS.search(words) and account_in_description(words) is None)
    return ErrorResponse(About.CLIENT if about_client else About.PERSON, code or "invalid_token", words)


def _error_of(answered: Mapping[str, Any]) -> tuple[str, str]:
    """Return code and description of an error, each "" if the answer lacks it.

    The answer has OAuth's form, or the nested form of Microsoft's and Google's APIs (``{"error": {"code": ...,
    "message": ...}}``).
    """
    error = answered.get("error")
    if isinstance(error, Mapping):
        code, words = error.get("code") or error.get("status"), error.get("message")
    else:
        code, words = error, answered.get("error_description")
    return code if isinstance(code, str) else "", words if isinstance(words, str) else ""


# ---------------------------------------------------------------------- sentences about an account

_WHO = r"\b(?:user|account)(?:'s account)?\b"
_GONE = r"deleted|not found|no longer exists?|does(?:n.?t| not) exist(?: any ?more)?|(?:has been|was) removed"
_DISABLED = r"disabled|deactivated|suspended|(?:is|has been|was) blocked"
_OF_ACCOUNT = re.compile(rf"{_WHO}.{{0,300}}?\b(?:(?P<disabled>{_DISABLED})|{_GONE})\b", re.IGNORECASE | re.DOTALL)
_UNKNOWN_USER = re.compile(r"\b(?:unknown|no such) (?:user|account)\b", re.IGNORECASE)
_NOT_SURE = re.compile(
    r"\b(?:session|temporar\w*|locked|lockout|attempts?|may|might|could|if|or|service[- ]account|clients?|tenants?|"
    r"realm|organi[sz]ation|subscription|not|never)\b(?! found)",
    re.IGNORECASE,
)
"""Words before the relevant one that make the sentence unusable: it is about something else, it is uncertain, or it is
a
lock-out, which anybody who knows the user name can cause."""


def account_in_description(words: str) -> Account | None:
    """Return the account's state that the provider's error description reports; `None` if it reports no state.

    Keycloak uses the same sentence for a deleted account and for an expired session, so for that sentence the result is
    `None` too.

    Args:
        words: the provider's error description.
    """
    if re.search(r"\bsession\b|\battempts?\b|\btemporar", words, re.IGNORECASE):
        return None
    if _UNKNOWN_USER.search(words):
        return Account.GONE
    found = _OF_ACCOUNT.search(words)
    if found is None:
        return None
    before = words[: found.end()].replace("does not exist", "").replace("not found", "")
    if _NOT_SURE.search(before):
        return None
    return Account.DISABLED if found["disabled"] else Account.GONE


# ---------------------------------------------------------------------- the provider's administration

_FLAGS = {"enabled": False, "active": False, "accountEnabled": False, "is_active": False, "blocked": True,
          "suspended": True}  # fmt: skip
"""Fields of an account's record -> the value with which the account cannot sign in. Used by Keycloak, SCIM, Entra ID,
authentik, Auth0 and Google."""
_STATES = frozenset({"deprovisioned", "suspended", "deactivated", "blocked", "disabled"})
"""Values of the field ``status`` (Okta) or ``state`` (GitLab). LOCKED_OUT is not among them, because anybody can cause
it."""
_NO_SUCH_CODES = frozenset({"Request_ResourceNotFound", "inexistent_user"})
_NO_SUCH = re.compile(r"\bnot found\b|\bdoes(?:n.?t| not) exist\b", re.IGNORECASE)


def account_of_record(status: int, record: object, account: str) -> Account | None:
    """Return an account's state from an answer of the provider's administration API.

    Args:
        status: HTTP status of the answer.
        record: the JSON of the answer; `None` if the body is not JSON.
        account: the id of the account that was requested.

    Returns:
        `None` if the answer does not show the state of this account.
    """
    if not isinstance(record, Mapping):
        return None
    if status == 200:
        named = record.get("id", record.get("user_id", record.get("sub")))
        if named is not None and str(named).casefold() != account.casefold():
            return None  # the record of another account
        states = {value.casefold() for name in ("status", "state") if isinstance(value := record.get(name), str)}
        if any(record.get(name) is value for name, value in _FLAGS.items()) or states & _STATES:
            return Account.DISABLED
        return Account.THERE if named is not None or _FLAGS.keys() & record.keys() else None
    if status not in (404, 410):
        return None  # about our client, or about something else
    code, message = _error_of(record)
    texts = [record.get(name) for name in ("error", "message", "errorSummary", "detail", "errorMessage")]
    words = " ".join(each for each in (message, *texts) if isinstance(each, str))
    if _NO_SUCH_CODES & {code, record.get("errorCode")}:
        return Account.GONE
    about_user = (
        re.search(r"\buser(?:Key)?\b", words, re.IGNORECASE) is not None or account.casefold() in words.casefold()
    )
    elsewhere = re.search(r"\b(realm|tenant|client|application|route|path|url)\b", words, re.IGNORECASE)
    return Account.GONE if _NO_SUCH.search(words) and about_user and not elsewhere else None


def refusal_sentence(no: ErrorResponse) -> str:
    """Return a sentence for the log about a refusal of the provider.

    It contains the provider's own description of the refusal, shortened and on one line.

    Args:
        no: the refusal.
    """
    return f"The provider says no: {quoted(no.description or no.code)}."
