"""The administrators' pages (current state, last days, parts of the service) and the forms on them.

A form gives an order, such as to stop a server. Each page works without scripts. Each form has the hub's XSRF token and
a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

from hub_extensions.core.access import ApiAction
from hub_extensions.core.overview.days import Span
from hub_extensions.core.overview.view import SHOWN, Asked
from hub_extensions.core.queue.cordons import MACHINE
from hub_extensions.hub_service.engine.stops.orders import KEEP_HOURS, STOP_MINUTES, reason_of
from hub_extensions.hub_service.http.api.codec import BadInput
from hub_extensions.hub_service.http.auth import Who
from hub_extensions.hub_service.http.pages import admin_labels, pictures
from hub_extensions.hub_service.http.pages.pages import Form, Page

LONGEST_SEARCH = 100
RECEIPT_LASTS = timedelta(minutes=10)
"""An administrator sees the result of the last order for this long, unless another order follows."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of an administrator's order (such as to stop a server), in the administrator's language.

    Attributes:
        at: when the order was given.
        done: what the order did, as a sentence.
        notified: which users are notified, and with which text, as a sentence.
        about: the lease, ticket (place in line), device or node that the order concerns.
        stops: when the server stops because of the order; `None` for other orders.
        undo: the address and the field of the form that withdraws the order; `None` if it cannot be withdrawn.
        fresh: whether no page has shown the result yet; the first page that does so unfolds the entry of `about`.
    """

    at: datetime
    done: str
    notified: str
    about: str
    stops: datetime | None = None
    undo: tuple[str, str] | None = None
    fresh: bool = True


def latest_receipt(receipts: dict[str, Receipt], admin: str) -> Receipt | None:
    """Return the result of an administrator's last order, which the page shows for ten minutes; `None` after that.

    Args:
        receipts: name of an administrator -> the result of the last order.
        admin: name of the administrator.
    """
    found = receipts.get(admin)
    return found if found is not None and datetime.now(timezone.utc) - found.at < RECEIPT_LASTS else None


class OverviewPage(Page):
    """The base class of the administrators' pages."""

    who = Who.ADMIN
    action = ApiAction.LIST_ALL

    def show(self, template: str, tab: str, **values: Any) -> None:
        """Answer with one of the administrators' pages.

        Args:
            template: file name of the template.
            tab: the tab that is marked as the current one.
            values: the values of this template.
        """
        self.set_header("Content-Type", "text/html; charset=utf-8")
        own = {"tab": tab, "xsrf": self.xsrf_token.decode(), "words": admin_labels, "machine_place": MACHINE}
        self.finish(self.rendered(template, **own, **values))

    def number(self, name: str) -> int:
        """Return the page number in the query argument with this name; 1 if it is missing or invalid."""
        written = self.get_query_argument(name, "1")
        return int(written) if written.isdecimal() and len(written) < 7 else 1


class AdminNow(OverviewPage):
    """GET: the current state: who uses which GPU, and who waits and why."""

    async def get(self) -> None:
        """Answer with the requested page of GPUs and of users in line.

        The page also shows the result of the administrator's last order.
        """
        query = {name: self.get_query_argument(name, "") for name in ("search", "show")}
        if query["show"] not in SHOWN:
            raise BadInput(f"show has to be one of {', '.join(filter(None, SHOWN))}.", "show")
        search = query["search"][:LONGEST_SEARCH]
        asked = Asked(search, query["show"], self.number("cards"), self.number("people"))
        view = await self.engine.admin_overview(asked)

        def link(**changed: object) -> str:
            wanted = {**query, "cards": view.cards.page, "people": view.people.page, **changed}
            kept = {name: value for name, value in wanted.items() if value not in ("", 1)}
            return f"{self.parts.prefix}admin{'?' if kept else ''}{urlencode(kept)}"

        receipt = latest_receipt(self.settings["receipts"], self.person.name)
        undo = receipt.undo if receipt is not None else None
        if receipt is not None:
            self.settings["receipts"][self.person.name] = replace(receipt, fresh=False)
        if receipt is not None and undo == UNDO_STOP and not self.engine.admin_orders.may_undo_stop(receipt.about):
            undo = None
        self.show(
            "admin.html",
            "now",
            receipt=receipt,
            undo=undo,
            view=view,
            query=query,
            link=link,
            shown=[word for word in SHOWN if word],
            stop_minutes=STOP_MINUTES,
            keep_hours=KEEP_HOURS,
        )


class AdminDays(OverviewPage):
    """GET: statistics of the use of GPUs in the last day, week or month."""

    async def get(self) -> None:
        """Answer with the statistics of the use of GPUs in the requested time span."""
        written = self.get_query_argument("span", Span.WEEK.value)
        if written not in {each.value for each in Span}:
            raise BadInput(f"span has to be one of {', '.join(each.value for each in Span)}.", "span")
        days = await self.engine.days(Span(written))
        titles = {offer.id: offer.title for offer in self.engine.form("", "", (), True).offers}
        fitting = await self.engine.fitting_hours()
        self.show(
            "admin_days.html",
            "days",
            days=days,
            spans=tuple(Span),
            titles=titles,
            pictures=pictures,
            fitting=[each for each in fitting if each.fitted or each.unused],
        )


class AdminParts(OverviewPage):
    """GET: the parts of the service: what measures the GPUs, accuracy of wait forecasts, the cluster, the health."""

    async def get(self) -> None:
        engine = self.engine
        self.show(
            "admin_parts.html",
            "parts",
            form=engine.form("", "", (), True),
            cluster=engine.cluster(),
            health=engine.health(),
            forecast=engine.forecasts(),
            failed_stops=engine.failed_stops(),
        )


class AdminOrder(Form):
    """POST: an order of an administrator, such as to stop a server. The browser is redirected back to the page."""

    who = Who.ADMIN
    action = ApiAction.ORDER

    def back(self) -> str:
        """Return the address of the administrators' page, with the same filters as before the order."""
        kept = {name: self.get_body_argument(name, "")[:LONGEST_SEARCH] for name in ("search", "show", "cards")}
        query = urlencode({name: value for name, value in kept.items() if value})
        return f"{self.parts.prefix}admin{'?' if query else ''}{query}"

    def chosen(self, name: str) -> int:
        """Return the number in the form's field with this name.

        Raises:
            BadInput: the field is not a number.
        """
        written = self.get_body_argument(name)
        if not written.isdecimal():
            raise BadInput(f"{name} has to be a number.", name)
        return int(written[:6])

    @property
    def about(self) -> str:
        """The user, device or node that the order concerns, as the page calls it; "" if the form lacks the field."""
        return self.get_body_argument("about", "")[:LONGEST_SEARCH]

    def write_receipt(
        self,
        order: str,
        about: str,
        number: int = 0,
        stops: datetime | None = None,
        undo: tuple[str, str] | None = None,
    ) -> None:
        """Keep the result of the order in memory. The administrator's next page shows it.

        Args:
            order: which order it is: the last part of its address in `ADMIN_PAGES`, such as ``drain``.
            about: the lease, ticket (place in line), device or node that the order concerns.
            number: number of hours, or of servers that received a message; 0 if the order has neither.
            stops: when the server stops because of the order; `None` for other orders.
            undo: the address to which the button *Undo* sends its form, and the name of the form's field whose value is
                `about`; `None` if the order cannot be withdrawn.
        """
        done, notified = admin_labels.receipt(order, self.about or about, self.why, self.catalogue, number)
        receipts: dict[str, Receipt] = self.settings["receipts"]
        now = datetime.now(timezone.utc)
        for name in [name for name, each in receipts.items() if now - each.at > RECEIPT_LASTS]:
            del receipts[name]
        receipts[self.person.name] = Receipt(now, done, notified, about, stops, undo)

    @property
    def why(self) -> str:
        """The reason that the administrator has entered in the form; "" without a reason."""
        return self.get_body_argument("why", "")


class DrainCard(AdminOrder):
    """POST: start no new servers on a GPU, a node or the machine. Running servers go on."""

    async def submitted(self) -> None:
        place = self.get_body_argument("place")
        await self.engine.admin_orders.drain(place, self.why, self.person.name)
        self.write_receipt("drain", place, undo=UNDO_DRAIN)


class UndrainCard(AdminOrder):
    """POST: allow new servers on a GPU, a node or the machine again."""

    async def submitted(self) -> None:
        place = self.get_body_argument("place")
        await self.engine.admin_orders.undrain(place, self.why, self.person.name)
        self.write_receipt("undrain", place)


class StopServer(AdminOrder):
    """POST: stop the server of a lease (a right to a GPU), at once or in some minutes."""

    async def submitted(self) -> None:
        lease, minutes = self.get_body_argument("lease"), self.chosen("minutes")
        await self.engine.admin_orders.stop(lease, minutes, self.why, self.person.name)
        stops = datetime.now(timezone.utc) + timedelta(minutes=minutes)
        self.write_receipt("stop", lease, stops=stops, undo=UNDO_STOP)


class UndoStop(AdminOrder):
    """POST: withdraw an administrator's order to stop the server of a lease (a right to a GPU)."""

    async def submitted(self) -> None:
        lease = self.get_body_argument("lease")
        await self.engine.admin_orders.undo_stop(lease, self.person.name)
        self.write_receipt("undo-stop", lease)


class KeepServer(AdminOrder):
    """POST: protect the server of a lease (a right to a GPU) for some hours from the idle stop and its time limit."""

    async def submitted(self) -> None:
        lease, hours = self.get_body_argument("lease"), self.chosen("hours")
        await self.engine.admin_orders.keep(lease, hours, self.why, self.person.name)
        self.write_receipt("keep", lease, hours)


class WriteTo(AdminOrder):
    """POST: a message to the users of all servers on a GPU or a node."""

    async def submitted(self) -> None:
        place = self.get_body_argument("place")
        count = await self.engine.admin_orders.write_to(place, self.why, self.person.name)
        self.write_receipt("letter", place, count)


class TakeOut(AdminOrder):
    """POST: remove a user from the line."""

    action = ApiAction.LIST_ALL

    async def submitted(self) -> None:
        """Take a user out of the line: end the ticket (place in line), with a reason that the user reads."""
        ticket = self.get_body_argument("ticket")
        self.allowed(self.person, ApiAction.LEAVE, self.engine.owner_of(ticket))
        await self.engine.leave(ticket, None, self.person.name, reason_of(self.why))
        self.write_receipt("take-out", ticket)


class GiveUp(AdminOrder):
    """POST: end a lease (a server's right to its GPU) whose machine is lost for good, or whose end has no proof."""

    action = ApiAction.GIVE_UP

    async def submitted(self) -> None:
        lease = self.get_body_argument("lease")
        await self.engine.give_up(lease, self.person.name, reason_of(self.why))
        self.write_receipt("give-up", lease)


UNDO_STOP, UNDO_DRAIN = ("admin/undo-stop", "lease"), ("admin/undrain", "place")
ADMIN_PAGES = (
    ("admin", AdminNow),
    ("admin/days", AdminDays),
    ("admin/parts", AdminParts),
    ("admin/drain", DrainCard),
    ("admin/undrain", UndrainCard),
    ("admin/stop", StopServer),
    ("admin/undo-stop", UndoStop),
    ("admin/keep", KeepServer),
    ("admin/letter", WriteTo),
    ("admin/take-out", TakeOut),
    ("give-up", GiveUp),
)
