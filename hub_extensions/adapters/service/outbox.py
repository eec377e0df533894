"""The hub's unanswered requests for admission of servers, sent together in the order in which they were accepted.

One sender serves them all. While the service does not answer, it retries after growing pauses. New requests join the
list, so the first attempt that succeeds delivers all of them in the right order.
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

AT_ONCE = 50  # requests in one delivery; more would exceed the service's limit for a body
LARGE_BYTES = 48 * 1024
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0


class Unanswered(Exception):
    """An attempt to send a request got no answer.

    Attributes:
        answers: whether the service is up and asks to try again later.
    """

    answers = False


class Rejected(Exception):
    """The service refused a request, or a delivery because of one of its requests."""


OnUnanswered = Callable[[Unanswered], None]


@dataclass(eq=False)
class _Entry:
    ask: Ask
    answer: asyncio.Future[TicketStatus]
    on_unanswered: OnUnanswered
    patience: float | None
    order: tuple[datetime, int]
    size: int
    alone: bool = False
    giving_up: asyncio.TimerHandle | None = None

    def note(self, why: Unanswered) -> None:
        """Record that an attempt to send the request got no answer.

        The time limit (`patience`) runs from the first such attempt. It pauses while the service asks to try later.

        Args:
            why: whether the service was silent, or asked to try again later.
        """
        self.on_unanswered(why)
        if why.answers and self.patience != 0:
            self.stop_clock()
        elif self.patience is not None and self.giving_up is None:
            self.giving_up = asyncio.get_running_loop().call_later(self.patience, self.fail, why)

    def stop_clock(self) -> None:
        if self.giving_up is not None:
            self.giving_up.cancel()
        self.giving_up = None

    def fail(self, why: Exception) -> None:
        """Let the caller who waits for the answer to this request get the error `why`."""
        if not self.answer.done():
            self.answer.set_exception(why)
            self.answer.exception()  # marks it as retrieved, because nobody may wait for it any more


@dataclass
class Outbox:
    """The hub's requests for admission that the service has not answered yet, and the task that sends them.
    `GpuServiceClient` makes one.

    Attributes:
        send: sends some requests and returns their answers in the same order. Raises Unanswered, Rejected.
        size_of: returns the size of a request in bytes.
    """

    send: Callable[[Sequence[Ask]], Awaitable[Sequence[TicketStatus]]]
    size_of: Callable[[Ask], int]
    _waiting: list[_Entry] = field(default_factory=list)
    _under_way: Sequence[_Entry] = ()
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _sender: asyncio.Task[None] | None = None
    _try_now: asyncio.Event = field(default_factory=asyncio.Event)
    _silent: Unanswered | None = None

    def put(
        self, ask: Ask, accepted: datetime, on_unanswered: OnUnanswered, patience: float | None
    ) -> asyncio.Future[TicketStatus]:
        """Queue a request until it is answered, and return the future answer.

        Args:
            ask: the request.
            accepted: when the user's request was accepted; requests are sent in this order.
            on_unanswered: called after each attempt without an answer.
            patience: the future fails after this many seconds without an answer; `None` for no limit.
        """
        answer: asyncio.Future[TicketStatus] = asyncio.get_running_loop().create_future()
        entry = _Entry(ask, answer, on_unanswered, patience, (accepted, next(self._numbers)), self.size_of(ask))
        self._waiting.append(entry)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.ensure_future(self._run())
        if patience == 0:
            self.try_now()  # do not wait for the end of a pause
        elif self._silent is not None:
            entry.note(self._silent)
        return answer

    def withdraw(self, answer: asyncio.Future[TicketStatus]) -> None:
        """Remove a request from the queue, because its answer is not needed any more. A request that is being sent
        stays.

        Args:
            answer: the future that `put` returned.
        """
        under_way = {id(entry) for entry in self._under_way}
        self._waiting = [each for each in self._waiting if each.answer is not answer or id(each) in under_way]

    def try_now(self) -> None:
        """Send the waiting requests without waiting for the end of the pause, because the service answers again."""
        self._try_now.set()

    async def close(self) -> None:
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
        """Return the requests of the next delivery: the first ones that fit into it.

        A request of a delivery that was rejected is sent alone.
        """
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
        """Handle a rejected delivery. It was rejected because of one request, so its requests are sent again one by
        one.

        Args:
            no: the refusal.
        """
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
