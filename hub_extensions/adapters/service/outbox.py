"""The asks of a hub that the GPU service has not answered yet: sent together, in the order of acceptance.

One sender for all of them. While nobody answers it tries again after pauses that grow; who comes meanwhile joins the
same list, so that the first request that gets through carries everybody in the right order. Not here: the connection
(``service_connection.py``), and what an answer means for a start (``spawner/base.py``).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.core.messages import Ask, TicketStatus

AT_ONCE = 50
"""So many asks go in one request; more of them would reach the service's limit of a body."""
LARGE_BYTES = 48 * 1024
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0


class Unanswered(Exception):
    """A request that nobody answered, or not now. `answers`: somebody is there, and asking again later helps."""

    answers = False


class Rejected(Exception):
    """A request that was answered with no."""


Hear = Callable[[Unanswered], None]


@dataclass(eq=False)
class _Entry:
    ask: Ask
    answer: asyncio.Future[TicketStatus]
    hear: Hear
    patience: float | None
    order: tuple[datetime, int]
    size: int
    alone: bool = False
    giving_up: asyncio.TimerHandle | None = None

    def note(self, why: Unanswered) -> None:
        """Nobody answers: its patience runs from the first time on, but not while somebody says *later*."""
        self.hear(why)
        if why.answers and self.patience != 0:
            self.stop_clock()
        elif self.patience is not None and self.giving_up is None:
            self.giving_up = asyncio.get_running_loop().call_later(self.patience, self.fail, why)

    def stop_clock(self) -> None:
        """Somebody answers."""
        if self.giving_up is not None:
            self.giving_up.cancel()
        self.giving_up = None

    def fail(self, why: Exception) -> None:
        """It is over, without an answer."""
        if not self.answer.done():
            self.answer.set_exception(why)
            self.answer.exception()  # nobody may be there to hear it


@dataclass
class Outbox:
    """The list and its sender.

    Attributes:
        send: sends some asks and gives their answers, in the same order. Raises Unanswered, Rejected.
        size_of: how many bytes an ask takes.
    """

    send: Callable[[Sequence[Ask]], Awaitable[Sequence[TicketStatus]]]
    size_of: Callable[[Ask], int]
    _waiting: list[_Entry] = field(default_factory=list)
    _under_way: Sequence[_Entry] = ()
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _sender: asyncio.Task[None] | None = None
    _try_now: asyncio.Event = field(default_factory=asyncio.Event)
    _silent: Unanswered | None = None

    def put(self, ask: Ask, accepted: datetime, hear: Hear, patience: float | None) -> asyncio.Future[TicketStatus]:
        """Have it sent until it is answered.

        Args:
            accepted: its place in the list.
            hear: called each time that nobody answers.
            patience: fails with the reason when nobody has answered for so many seconds; None: never.
        """
        answer: asyncio.Future[TicketStatus] = asyncio.get_running_loop().create_future()
        entry = _Entry(ask, answer, hear, patience, (accepted, next(self._numbers)), self.size_of(ask))
        self._waiting.append(entry)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.ensure_future(self._run())
        if patience == 0:
            self.try_now()  # it does not wait for the end of a pause
        elif self._silent is not None:
            entry.note(self._silent)
        return answer

    def withdraw(self, answer: asyncio.Future[TicketStatus]) -> None:
        """Not wanted any more. One that is under way stays: its answer is heard."""
        under_way = {id(entry) for entry in self._under_way}
        self._waiting = [each for each in self._waiting if each.answer is not answer or id(each) in under_way]

    def try_now(self) -> None:
        """End the pause: somebody answers again."""
        self._try_now.set()

    async def close(self) -> None:
        """End the sender."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while self._forget_answered():
            self._try_now.clear()
            self._under_way = self._next()
            try:
                self._hand_out(await self.send([entry.ask for entry in self._under_way]))
                failures, self._silent = 0, None
            except Rejected as no:
                self._hand_back(no)
            except Unanswered as why:
                failures, self._silent = failures + 1, why
                self._under_way = ()
                for entry in tuple(self._waiting):
                    entry.note(why)
                await self._pause(failures)
            finally:
                self._under_way = ()

    def _forget_answered(self) -> bool:
        self._waiting = [entry for entry in self._waiting if not entry.answer.done()]
        return bool(self._waiting)

    def _next(self) -> Sequence[_Entry]:
        """The first ones that fit into one request; one whose company was rejected goes alone."""
        self._waiting.sort(key=lambda entry: entry.order)
        chosen, size = self._waiting[:1], self._waiting[0].size
        for entry in self._waiting[1:AT_ONCE]:
            size += entry.size
            if chosen[0].alone or entry.alone or size > LARGE_BYTES:
                break
            chosen.append(entry)
        return chosen

    def _hand_out(self, answers: Sequence[TicketStatus]) -> None:
        for entry, answer in zip(self._under_way, answers, strict=True):
            if not entry.answer.done():
                entry.answer.set_result(answer)
            entry.stop_clock()

    def _hand_back(self, no: Rejected) -> None:
        """One of them was meant; which one is found by sending them one by one."""
        self._silent = None
        if len(self._under_way) == 1:
            self._under_way[0].fail(no)
        for entry in self._under_way:
            entry.alone = True

    async def _pause(self, failures: int) -> None:
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 10))
        try:
            await with_timeout(longest * random.uniform(0.5, 1.0), self._try_now.wait())
        except asyncio.TimeoutError:
            return
