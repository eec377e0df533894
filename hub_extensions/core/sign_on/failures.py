"""The pages that are shown when a sign-in fails: what happened, what the user can do, and which button the page has.

Such a page never redirects, so that no redirect loop can arise. Its text contains no token, no address and no name of
another person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hub_extensions.core.text.reasons import key_of, parameters
from hub_extensions.core.text.translation import ENGLISH, Catalogue
from hub_extensions.core.text.wording import about


class FailureAction(str, Enum):
    """The button on the page of a failed sign-in."""

    AGAIN = "again"
    OTHER_ACCOUNT = "other-account"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SignOnFailure:
    """The page of a failed sign-in.

    Attributes:
        status: HTTP status of the page.
        text: what happened.
        advice: what the user can do.
        action: the button of the page.
    """

    status: int
    title: str
    text: str
    advice: str
    action: FailureAction = FailureAction.AGAIN


_TRY_AGAIN = "Sign in again."
_ADMIN = "Tell an administrator of this hub, with the number below."
_OTHER_LOGIN = (
    "The page to sign in was open in another tab or browser, or you went back to it. "
    "Nothing is wrong with your account."
)
_UNUSABLE = SignOnFailure(
    502, "Signing in does not work now", "This hub and your sign-in service do not fit together.", _ADMIN
)

FAILURES: Mapping[str, SignOnFailure] = {
    "provider-away": SignOnFailure(
        503,
        "Your sign-in service is not answering",
        "This hub cannot reach the service where you sign in. Who is signed in already stays signed in.",
        "Try again in a few minutes.",
    ),
    "other-issuer": _UNUSABLE,
    "bad-document": _UNUSABLE,
    "no-document": _UNUSABLE,
    "redirects": _UNUSABLE,
    "client-unknown": SignOnFailure(
        502,
        "Your sign-in service does not know this hub",
        "It refuses this hub's name, secret or address.",
        _ADMIN,
    ),
    "clock": SignOnFailure(
        502,
        "The clocks do not agree",
        "The clock of your sign-in service is {off} ahead of this hub's, so its answer is not taken.",
        _ADMIN,
    ),
    "clock-behind": SignOnFailure(
        502,
        "The clocks do not agree",
        "The clock of your sign-in service is {off} behind this hub's, so its answer is not taken.",
        _ADMIN,
    ),
    "token": SignOnFailure(
        502, "The answer of your sign-in service is not taken", "It is not what this hub asked for.", _TRY_AGAIN
    ),
    "code": SignOnFailure(
        400,
        "This sign-in was over already",
        "Your sign-in service does not take it any more. It may have been used, or too old.",
        _TRY_AGAIN,
    ),
    "other-login": SignOnFailure(400, "This sign-in does not belong to this page", _OTHER_LOGIN, _TRY_AGAIN),
    "used": SignOnFailure(400, "This sign-in was used already", _OTHER_LOGIN, _TRY_AGAIN),
    "too-late": SignOnFailure(
        400, "The page to sign in was open too long", "A sign-in has to be done within an hour.", _TRY_AGAIN
    ),
    "cookies": SignOnFailure(
        400,
        "Your browser kept no cookie of this hub",
        "Without it the hub does not know that it was you who wanted to sign in. The page to sign in may also have "
        "been opened in another browser.",
        "Allow cookies for this site, and sign in again.",
    ),
    "consent": SignOnFailure(
        403,
        "You did not agree at your sign-in service",
        "It gives this hub your name only when you agree.",
        "Sign in again and agree, or close this page.",
    ),
    "not-allowed": SignOnFailure(
        403,
        "This account may not use this hub",
        "You are {account} at your sign-in service, and that account is not among those this hub lets in.",
        "Sign in with another account, or ask an administrator of this hub, with the number below.",
        FailureAction.OTHER_ACCOUNT,
    ),
    "disabled": SignOnFailure(
        403,
        "This account is disabled",
        "Your sign-in service does not let it in any more.",
        "Ask those who run your sign-in service.",
        FailureAction.OTHER_ACCOUNT,
    ),
    "deleted": SignOnFailure(
        403,
        "This account is not known any more",
        "Your sign-in service does not know it any more: it was deleted or disabled there.",
        "Ask those who run your sign-in service.",
        FailureAction.OTHER_ACCOUNT,
    ),
    "name-taken": SignOnFailure(
        403,
        "Your name belongs to another account here",
        "Somebody else signed in to this hub under the name {name} before. You do not get that person's files.",
        "If that was you, with an account that was made anew since, an administrator can give you the name again. "
        "Tell them the number below.",
        FailureAction.OTHER_ACCOUNT,
    ),
    "name-from-before": SignOnFailure(
        403,
        "Your name has to be given to you first",
        "There is a user {name} here from before this way to sign in.",
        "If that is you, an administrator can give you the name. Tell them the number below.",
        FailureAction.OTHER_ACCOUNT,
    ),
    "no-name": SignOnFailure(
        403,
        "Your sign-in service gives no name for you",
        "This hub needs one ({claim}).",
        _ADMIN,
        FailureAction.OTHER_ACCOUNT,
    ),
    "bad-name": SignOnFailure(
        403,
        "This hub cannot take your name",
        "The name that your sign-in service has for you ({claim}) has a character that cannot be in a name here, or is "
        "too long.",
        _ADMIN,
        FailureAction.OTHER_ACCOUNT,
    ),
}
"""Code of a failure -> its page; unknown codes use ``token``."""

PARAMETERS = ("off", "account", "name", "claim")


def failure_of(code: str, known: Mapping[str, str], t: Catalogue = ENGLISH) -> SignOnFailure:
    """Return the page of a failed sign-in in the reader's language.

    Args:
        code: code of the failure (`SignOnRefusal.code`).
        known: values for the placeholders of the text, by name. ``off`` is a number of seconds.
        t: the catalogue of the reader's language.
    """
    behind = code == "clock" and known.get("where") == "behind"
    found = FAILURES["clock-behind"] if behind else FAILURES.get(code, FAILURES["token"])
    named = {name: known.get(name) or t("not known") for name, _ in parameters(found.text)}
    if known.get("off"):
        named["off"] = about(float(known["off"]), t)
    text = t(key_of(found.text), *(named[name] for name, _ in parameters(found.text)))
    return SignOnFailure(found.status, t(found.title), text, t(found.advice), found.action)
