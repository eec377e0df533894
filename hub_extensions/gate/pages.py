"""The gate's pages about a refusal or a failed sign-in, and the same as JSON for programs.

Such a page never redirects, so that no redirect loop can arise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from html import escape

from hub_extensions.core.sign_on.access import REASONS, Passage
from hub_extensions.core.text.translation import Catalogue, halves
from hub_extensions.gate.gate import CheckAnswer

FAILURE_TEXTS = {
    "sign-in-over": "This sign-in is over, or was used already. Open the app again.",
    "other-browser": "This sign-in was begun in another browser. Open the app again.",
    "hub-refused": "The hub did not let you in.",
    "app-away": "The app does not answer.",
    "not-found": "There is nothing at this address.",
    "method": "This address takes no such request.",
}
PAGE = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
}
JSON = {"Content-Type": "application/json"}
COMMON_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
RETRY_SECONDS = "5"
"""Value of ``Retry-After`` with a 503."""
_STYLE = (
    ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:12vh auto;"
    "padding:0 1rem}h1{font-size:1.4rem}"
)


@dataclass(frozen=True, slots=True)
class PageFacts:
    """Values that a page about a refusal shows, beside the text of its reason.

    Attributes:
        app: the app's title; "" if the page is not about an app.
        contact: whom to ask for access; "" if unknown.
        since: when the hub stopped answering; `None` if it answers.
        front: address of the front page; "" shows no link.
    """

    app: str = ""
    contact: str = ""
    since: datetime | None = None
    front: str = ""


def page(reason: str, facts: PageFacts, t: Catalogue) -> bytes:
    """Render a page about a refusal or a failed sign-in, in the reader's language.

    Args:
        reason: key of the text in `REASONS` or `FAILURE_TEXTS`.
        facts: further values that the page shows.
        t: the reader's catalogue (the texts in one language).
    """
    text = REASONS.get(reason) or FAILURE_TEXTS[reason]
    parts = [f"<p>{escape(t(text))}</p>"]
    if reason == "not-allowed":
        asked = t("Ask %1 for it.", facts.contact) if facts.contact else t("Ask an administrator of this hub for it.")
        parts.append(f"<p>{escape(asked)}</p>")
    if reason == "hub-away" and facts.since is not None:
        before, behind = halves(t("It has not answered since %1."))
        at = facts.since.isoformat(timespec="seconds")
        stamp = f'<time datetime="{at}">{facts.since:%Y-%m-%d %H:%M} UTC</time>'
        parts.append(f"<p>{escape(before)}{stamp}{escape(behind)}</p>")
    if facts.front:
        parts.append(f'<p><a href="{escape(facts.front)}">{escape(t("My apps"))}</a></p>')
    title = escape(facts.app or t("Apps"))
    return (
        f'<!doctype html><html lang="{escape(t.language)}"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{title}</title><style>{_STYLE}</style></head>'
        f"<body><main><h1>{title}</h1>{''.join(parts)}</main></body></html>\n"
    ).encode()


def message(reason: str, status: int, since: datetime | None = None) -> bytes:
    """Return a refusal as JSON, for a program.

    Args:
        reason: key of the text in `REASONS` or `FAILURE_TEXTS`.
        status: HTTP status of the answer.
        since: when the hub stopped answering; `None` if it answers.
    """
    found: dict[str, object] = {
        "status": status,
        "reason": reason,
        "message": REASONS.get(reason) or FAILURE_TEXTS[reason],
    }
    if reason == "hub-away" and since is not None:
        found["since"] = since.isoformat(timespec="seconds")
    return json.dumps(found).encode()


def refusal(answer: CheckAnswer, facts: PageFacts, t: Catalogue) -> tuple[Mapping[str, str], bytes]:
    """Return headers and body for a check that the gate has refused.

    The body is a page if the request loads a page, otherwise JSON.

    Args:
        answer: the answer to the check.
        facts: values that the page shows.
        t: the reader's catalogue (the texts in one language).
    """
    reason = answer.verdict.reason
    passage = answer.verdict.passage
    status = 401 if passage in (Passage.SIGN_IN, Passage.SILENT_ROUND) else passage.value
    if answer.wants_page and status != 401:
        return PAGE, page(reason, facts, t)
    return JSON, message(reason, status, facts.since)
