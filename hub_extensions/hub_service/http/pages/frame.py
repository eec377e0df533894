"""The frame of our pages: the hub's own page layout (header, menu, footer) around our content.

If the hub does not provide its layout, `pages.py` uses a plain template that looks like it. The hub's script files
(``src``) are kept. Inline scripts are removed, because the pages' content security policy allows none.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import time
from dataclasses import dataclass
from html.parser import HTMLParser

from hub_extensions.adapters.hub.jupyterhub_api import HubApi, HubAway, HubRefused
from hub_extensions.hub_service.http.auth import ShortMemory

log = logging.getLogger("hub_extensions.hub_service.http.pages")

TITLE, HEAD, MAIN = "@@gpu-title@@", "@@gpu-head@@", "@@gpu-main@@"
"""Placeholders in the hub's page layout; the second one is at the end of the head."""
PLACES = {"title": TITLE, "head": HEAD, "main": MAIN}  # the placeholders by their name in a template
REMEMBERED_SECONDS, REMEMBERED = 60.0, 512
PAUSE_SECONDS = 30.0  # the hub is not asked again for this long after it provided none


@dataclass(frozen=True, slots=True)
class Frame:
    """The hub's page layout (header, menu, footer) around a page's content.

    Attributes:
        html: the layout as HTML, with the placeholders `TITLE`, `HEAD` and `MAIN`.
        styles: hashes of the layout's inline styles, for the content security policy.
    """

    html: str
    styles: tuple[str, ...] = ()

    def around(self, title: str, head: str, main: str) -> str:
        """Return the whole page: the layout with its placeholders filled in.

        Args:
            title: title of the page, as HTML.
            head: HTML that is added at the end of the head.
            main: the page's content, as HTML.
        """
        filled = self.html.replace(TITLE, str(title).strip(), 1).replace(HEAD, str(head), 1)
        return filled.replace(MAIN, str(main), 1)


class Frames:
    """Gets the hub's page layout (header, menu, footer) for each user and language, and caches it for a minute."""

    def __init__(self, hub: HubApi) -> None:
        self._hub = hub
        self._known: ShortMemory[Frame] = ShortMemory(REMEMBERED_SECONDS, REMEMBERED)
        self._silent_until = 0.0

    async def of(self, user: str, language: str) -> Frame | None:
        """Return the hub's page layout as this user sees it in this language; `None` if the hub provides none now."""
        if time.monotonic() < self._silent_until:
            return None

        async def ask() -> Frame:
            return cleaned(await self._hub.page_frame(user, language))

        try:
            return await self._known.get(f"{language} {user}", ask)
        except (HubAway, HubRefused, ValueError) as problem:
            self._silent_until = time.monotonic() + PAUSE_SECONDS
            log.debug("the hub gives no frame for a page: %s", problem)
            return None


def cleaned(page: str) -> Frame:
    """Make a `Frame` of a page that the hub has rendered with placeholders, without the page's inline scripts.

    Raises:
        ValueError: a placeholder is missing.
    """
    reading = _HubPage()
    reading.feed(page)
    reading.close()
    html = "".join(reading.kept)
    missing = [place for place in (TITLE, HEAD, MAIN) if place not in html]
    if missing:
        raise ValueError(f"the hub's page has no {', '.join(missing)}")
    return Frame(html, tuple(reading.styles))


class _HubPage(HTMLParser):
    """Copies a page of the hub without inline scripts, and without the note that scripts are required.

    Attributes:
        kept: the parts of the copy.
        styles: hashes of the page's inline styles, for the content security policy.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.kept: list[str] = []
        self.styles: list[str] = []
        self._left_out = ""
        self._style: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._left_out:
            return
        if tag == "noscript" or (tag == "script" and not dict(attrs).get("src")):
            self._left_out = tag
            return
        if tag == "style":
            self._style = []
        self.kept.append(self.get_starttag_text() or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self._left_out and tag != "script":
            self.kept.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if self._left_out:
            if tag == self._left_out:
                self._left_out = ""
            return
        if tag == "style" and self._style is not None:
            digest = hashlib.sha256("".join(self._style).encode()).digest()
            self.styles.append(f"'sha256-{base64.b64encode(digest).decode()}'")
            self._style = None
        self.kept.append(f"{HEAD}</head>" if tag == "head" else f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self._keep(data)
        if self._style is not None:
            self._style.append(data)

    def handle_entityref(self, name: str) -> None:
        self._keep(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._keep(f"&#{name};")

    def handle_comment(self, data: str) -> None:
        """Leave comments out of the copy of the hub's page."""

    def handle_decl(self, decl: str) -> None:
        self._keep(f"<!{decl}>")

    def _keep(self, text: str) -> None:
        if not self._left_out:
            self.kept.append(text)
