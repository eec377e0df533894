"""Asks of a hub on their way: in the order of acceptance, together, again after pauses, one by one after a no."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.adapters.service.outbox import AT_ONCE, Outbox, Rejected, Unanswered
from hub_extensions.core.messages import Ask, TicketStatus
from hub_extensions.core.text.reasons import Reason
from tests.patience import patient

NOON = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)


class Service:
    """Answers while it is `up`; says no to whom it `dislikes`."""

    def __init__(self) -> None:
        self.up = True
        self.dislikes = ""
        self.asked: list[list[str]] = []
        self.outbox = Outbox(self.send, lambda ask: len(ask.user))

    async def send(self, asks: Sequence[Ask]) -> Sequence[TicketStatus]:
        self.asked.append([ask.user for ask in asks])
        if not self.up:
            raise Unanswered("nobody there")
        if self.dislikes in self.asked[-1]:
            raise Rejected("no")
        return [
            TicketStatus(ask.user, 1, ask.user, "", "wait", (), None, 1, 0, NOON, Reason("", ""), None) for ask in asks
        ]

    def put(self, user: str, second: int = 0, patience: float | None = None) -> asyncio.Future[TicketStatus]:
        return self.outbox.put(Ask(user, "", ()), NOON + timedelta(seconds=second), lambda why: None, patience)

    async def answers(self, *asked: asyncio.Future[TicketStatus]) -> list[str]:
        return [state.user for state in await asyncio.wait_for(asyncio.gather(*asked), patient(5))]


async def test_who_was_accepted_first_is_first_however_late_the_ask_came() -> None:
    service = Service()
    asked = [service.put("cem", 3), service.put("ada", 1), service.put("ben", 2)]
    assert await service.answers(*asked) == ["cem", "ada", "ben"]
    assert service.asked == [["ada", "ben", "cem"]]


async def test_the_first_request_that_gets_through_carries_everybody() -> None:
    service = Service()
    service.up = False
    asked = [service.put("ben", 2)]
    await asyncio.sleep(0.01)
    asked += [service.put("ada", 1), service.put("cem", 3)]
    service.up = True
    service.outbox.try_now()
    await service.answers(*asked)
    assert service.asked == [["ben"], ["ada", "ben", "cem"]]


async def test_many_go_in_several_requests_in_order() -> None:
    service = Service()
    names = [f"u{n:03}" for n in range(2 * AT_ONCE + 1)]
    await service.answers(*(service.put(name, second) for second, name in enumerate(names)))
    assert [name for request in service.asked for name in request] == names and len(service.asked) == 3


async def test_one_that_is_rejected_spoils_no_others_answer() -> None:
    service = Service()
    service.dislikes = "ben"
    ada, ben, cem = (service.put(name, second) for second, name in enumerate(("ada", "ben", "cem")))
    assert await service.answers(ada, cem) == ["ada", "cem"]
    with pytest.raises(Rejected):
        await ben


async def test_patience_ends_and_who_has_none_hears_at_once() -> None:
    service = Service()
    service.up = False
    for patience in (0, 0.05):
        with pytest.raises(Unanswered):
            await asyncio.wait_for(service.put("ada", patience=patience), patient(5))
    await service.outbox.close()


async def test_who_comes_while_nobody_answers_hears_it_at_once() -> None:
    service = Service()
    service.up = False
    service.put("ada")
    await asyncio.sleep(0.01)
    heard: list[Unanswered] = []
    service.outbox.put(Ask("ben", "", ()), NOON, heard.append, None)
    assert [str(why) for why in heard] == ["nobody there"]
    await service.outbox.close()


async def test_what_is_withdrawn_is_not_sent() -> None:
    service = Service()
    service.up = False
    ada, ben = service.put("ada"), service.put("ben")
    await asyncio.sleep(0.01)
    service.outbox.withdraw(ada)
    service.up = True
    service.outbox.try_now()
    await service.answers(ben)
    assert service.asked[-1] == ["ben"]
