"""A sign-on session: its data, the limits that end it, and how pages show it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from hub_extensions.core.sign_on.config import SignOnConfig
from hub_extensions.core.text.translation import ENGLISH, Catalogue


class EndCause(str, Enum):
    """Why a session ended."""

    SIGN_OUT = "sign-out"
    BY_OWNER = "by-owner"
    BY_ADMIN = "by-admin"
    IDLE = "idle"
    LIFETIME = "lifetime"
    NUMBER = "number"
    REPLACED = "replaced"
    USER_DELETED = "user-deleted"
    PROVIDER = "provider"
    NOT_RENEWED = "not-renewed"
    DISABLED = "disabled"
    DELETED = "deleted"
    NOT_ALLOWED = "not-allowed"
    MUST_ACT = "must-act"


@dataclass(frozen=True, slots=True)
class SignOnSession:
    """A browser that is or was signed in.

    Attributes:
        id: its public id, which is useless as a cookie.
        token_hash: SHA-256 (hex) of the cookie's value.
        hub_session: the value of ``jupyterhub-session-id``, which links OAuth tokens and codes to the session.
        user_id: the hub's id of the session's user, which stays the same if the user is renamed.
        browser: name of the browser, from `browser_name`.
        address: the browser's address, shortened by `short_address`.
        ended: when it ended; `None` while it lasts.
        cause: why it ended, a value of `EndCause`; "" while it lasts.
        by: the admin who ended it; "" if no admin did, or while it lasts.
    """

    id: str
    token_hash: str
    hub_session: str
    user_id: int
    browser: str
    address: str
    begun: datetime
    last_use: datetime
    ended: datetime | None = None
    cause: str = ""
    by: str = ""


def limit_passed(session: SignOnSession, config: SignOnConfig, now: datetime) -> EndCause | None:
    """Return the limit (of lifetime or of idle time) that ends this session now; `None` if no limit is reached."""
    if config.lifetime is not None and now - session.begun >= config.lifetime:
        return EndCause.LIFETIME
    if config.idle is not None and now - session.last_use >= config.idle:
        return EndCause.IDLE
    return None


SIGNED_OUT = "You were signed out."


def return_problem(sessions: Iterable[SignOnSession], config: SignOnConfig, now: datetime) -> str:
    """Return why the hub must not restart a server of this person automatically, that is, without the person's request.

    Returns:
        "" if at least one of the sessions is within its limits; otherwise that the person was signed out.
    """
    return "" if any(limit_passed(each, config, now) is None for each in sessions) else SIGNED_OUT


def surplus_sessions(sessions: Iterable[SignOnSession], config: SignOnConfig) -> Sequence[SignOnSession]:
    """Return the person's oldest sessions that exceed the limit `max_sessions`, so that they have to end."""
    if config.max_sessions is None:
        return ()
    by_age = sorted(sessions, key=lambda each: (each.begun, each.id))
    return by_age[: max(0, len(by_age) - config.max_sessions)]


def short_address(address: str) -> str:
    """Return the /24 or /48 network of an address; "" if it is not an address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if found.version == 6 and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(ipaddress.ip_network((found, 24 if found.version == 4 else 48), strict=False))


def address_of_browser(peer: str, forwarded: str, trusted: Collection[str]) -> str:
    """Return the address of the client, for the log only.

    ``X-Forwarded-For`` is read from its end. An entry counts only if a trusted proxy wrote it.

    Args:
        peer: the address at the other end of the connection.
        forwarded: the header ``X-Forwarded-For``; "" if it was not sent.
        trusted: addresses and networks of proxies.
    """
    networks = [ipaddress.ip_network(each, strict=False) for each in trusted]
    found = peer
    for each in reversed(forwarded.split(",")):
        if not _is_in(found, networks):
            break
        found = each.strip()
    return found


def _is_in(address: str, networks: Collection[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    try:
        return any(ipaddress.ip_address(address) in network for network in networks)
    except ValueError:
        return False


_BROWSERS = (
    ("Edge", r"\bEdg(?:e|A|iOS)?/"),
    ("Opera", r"\bOPR/"),
    ("Firefox", r"\b(?:Firefox|FxiOS)/"),
    ("Chrome", r"\b(?:Chrome|Chromium|CriOS|HeadlessChrome)/"),
    ("Safari", r"\bSafari/"),
)
_SYSTEMS = (
    ("Android", r"\bAndroid\b"),
    ("iPhone", r"\biPhone\b"),
    ("iPad", r"\biPad\b"),
    ("Windows", r"\bWindows\b"),
    ("macOS", r"\bMacintosh\b|\bMac OS X\b"),
    ("ChromeOS", r"\bCrOS\b"),
    ("Linux", r"\bLinux\b"),
)


def browser_name(user_agent: str) -> str:
    """Return a browser's name for its user to recognise, such as ``Firefox on Linux``.

    Only known names in the header are used, so the result contains no text that the client chose.
    """
    header = user_agent[:512]
    browser = next((name for name, sign in _BROWSERS if re.search(sign, header)), "")
    system = next((name for name, sign in _SYSTEMS if re.search(sign, header)), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or (f"A browser on {system}" if system else "Another program")


def browser_text(browser: str, t: Catalogue) -> str:
    """Return the name of a browser, as `browser_name` made it, in the reader's language."""
    name, on, system = browser.partition(" on ")
    name = {"A browser": t("A browser"), "Another program": t("Another program")}.get(name, name)
    return t("%1 on %2", name, system) if on else name


WORDS = {
    EndCause.SIGN_OUT: "You signed out.",
    EndCause.BY_OWNER: "You ended this session from another browser.",
    EndCause.BY_ADMIN: "An admin ended this session.",
    EndCause.IDLE: "This session was not used for too long, so it ended.",
    EndCause.LIFETIME: "This session reached its longest time, so it ended.",
    EndCause.NUMBER: "You signed in on too many browsers. This was the oldest session, so it ended.",
    EndCause.REPLACED: "You signed in again in this browser.",
    EndCause.USER_DELETED: "This account is no longer known here.",
    EndCause.PROVIDER: "Your sign-in service ended this session.",
    EndCause.NOT_RENEWED: "Your sign-in service does not renew this session: you signed out there, it ran out, "
    "or this account is disabled or deleted there.",
    EndCause.DISABLED: "Your sign-in service says that this account is disabled.",
    EndCause.DELETED: "Your sign-in service does not know this account any more.",
    EndCause.NOT_ALLOWED: "This account may not use this hub any more.",
    EndCause.MUST_ACT: "Your sign-in service asks you to sign in again.",
}


def end_sentence(cause: str, t: Catalogue = ENGLISH) -> str:
    """Return a sentence for the user about why a session ended. It does not name an admin who ended it.

    Args:
        cause: a value of `EndCause`.
    """
    return t(WORDS[EndCause(cause)]) if cause in set(EndCause) else t("This session ended.")
