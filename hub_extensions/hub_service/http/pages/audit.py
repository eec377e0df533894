"""The page of the actions of culling and administrators on servers, also as CSV.

Its rows come from the journal, the store's log of the service's decisions. Administrators see all rows, other users
only those about their own servers. ``jupyterhub-gpu audit`` prints the whole journal.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from hub_extensions.adapters.store import JournalFilter, JournalRow
from hub_extensions.core.access import ApiAction
from hub_extensions.core.text.reasons import codes_with_words
from hub_extensions.core.text.translation import Catalogue
from hub_extensions.hub_service.engine.stops.orders import ORDERS
from hub_extensions.hub_service.engine.views.cull_audit import KINDS
from hub_extensions.hub_service.http.api.codec import BadInput
from hub_extensions.hub_service.http.api.people import user_of
from hub_extensions.hub_service.http.pages.labels import with_moments
from hub_extensions.hub_service.http.pages.pages import Page

ROWS = 200  # number of rows on the page
CSV_ROWS = 50_000
DAYS = (1, 7, 30, 365)
ADMINS_KINDS = (*KINDS, *ORDERS, "drained", "no-session", "session-again", "failed", "given-up")
"""The kinds of rows for administrators: orders contain an administrator's name, and users never read other users'
names.
"""
LONGEST_WORDS = 100
COLUMNS = ("at", "kind", "user", "server", "actor", "text", "evidence")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet evaluates a cell that begins with one of these, and users choose the names of their servers."""


class Audit(Page):
    """GET: which servers were warned, kept and stopped, and why: by which rule, on what evidence.

    The page also shows how the servers' users were notified.
    """

    async def get(self) -> None:
        """Answer with a page of the newest rows of the journal (the log of decisions) that match the query."""
        found = await self.rows(ROWS)
        user = self.get_query_argument("user", "") if self.everybody else ""
        values = {
            "rows": found,
            "with_moments": with_moments,
            "most": ROWS,
            "admin": self.everybody,
            "kinds": {kind: kind_text(kind, self.catalogue) for kind in self.kinds},
            "days": self.days,
            "all_days": DAYS,
            "query": {"user": user, "kind": self.get_query_argument("kind", ""), "words": self.words},
            "xsrf": self.xsrf_token.decode(),
        }
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(self.rendered("audit.html", **values))

    @property
    def everybody(self) -> bool:
        """Whether the caller may read rows about other users."""
        return self.person.may(ApiAction.LIST_ALL)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of rows of the journal (the service's log of decisions) that the caller may read."""
        return ADMINS_KINDS if self.everybody else KINDS

    @property
    def words(self) -> str:
        """The search words in the query; "" if the caller is not an administrator. Only administrators can search."""
        return self.get_query_argument("words", "")[:LONGEST_WORDS] if self.everybody else ""

    @property
    def days(self) -> int:
        """For how many days up to now the page shows rows.

        Raises:
            BadInput: the query has a number that is not in `DAYS`.
        """
        written = self.get_query_argument("days", "30")
        if written not in map(str, DAYS):
            raise BadInput(f"days has to be one of {', '.join(map(str, DAYS))}.", "days")
        return int(written)

    async def rows(self, most: int) -> tuple[JournalRow, ...]:
        """Return the requested rows of the journal (the service's log of decisions), the newest first.

        Users who are not administrators get only their own.

        Args:
            most: maximum number of rows.

        Raises:
            BadInput: the query has an unknown kind or number of days.
        """
        kind, user = self.get_query_argument("kind", ""), self.get_query_argument("user", "")
        if kind and kind not in self.kinds:
            raise BadInput(f"kind has to be one of {', '.join(self.kinds)}.", "kind")
        since = datetime.now(timezone.utc) - timedelta(days=self.days)
        about = (user or None) if self.everybody else user_of(self.person)
        codes = codes_with_words(self.words, self.catalogue)
        which = JournalFilter(since, None, about, (kind,) if kind else self.kinds, self.words, codes)
        return await self.engine.journal(which, most)


class AuditFile(Audit):
    """GET: the rows of the audit page (decisions about servers, and why) as a CSV file."""

    framed = False

    async def get(self) -> None:
        """Answer with the newest rows of the journal (the log of decisions) as CSV, up to 50,000."""
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", 'attachment; filename="gpu-audit.csv"')
        self.finish(as_csv(await self.rows(CSV_ROWS)))


def as_csv(rows: Sequence[JournalRow]) -> str:
    """Return rows of the journal (the service's log of decisions) as CSV.

    Cells that a spreadsheet would evaluate as formulas are escaped.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        cells = (row.at.isoformat(), *(getattr(row, name) or "" for name in COLUMNS[1:]))
        writer.writerow([f"'{cell}" if cell.startswith(FORMULA) else cell for cell in cells])
    return out.getvalue()


def kind_text(kind: str, t: Catalogue) -> str:
    """Return as text what a kind of the journal's rows means. An unknown kind is returned unchanged.

    Args:
        kind: the code of the kind, such as ``culled``.
        t: translates into the reader's language.
    """
    return {
        "warned": t("warned"),
        "kept": t("kept on"),
        "extended": t("given more time"),
        "progress-not-trusted": t("reports not trusted"),
        "culled": t("stopped"),
        "stop-failed": t("could not be stopped"),
        "back": t("runs on after a failed stop"),
        "returned": t("came back without a GPU"),
        "not-returned": t("could not come back"),
        "adopted": t("found running"),
        "future-activity": t("activity ahead of the clock"),
        "drained-card": t("drained: nothing new starts"),
        "undrained-card": t("no longer drained"),
        "stop-ordered": t("a stop was ordered"),
        "stop-withdrawn": t("a stop was taken back"),
        "kept-by-admin": t("kept by an administrator"),
        "letter": t("message to those on a card"),
        "drained": t("stops after a sign-out"),
        "no-session": t("no session any more"),
        "session-again": t("signed in again"),
        "failed": t("did not start"),
        "given-up": t("given up by an administrator"),
    }.get(kind, kind)
