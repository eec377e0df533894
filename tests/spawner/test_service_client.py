"""The hub's side of the GPU service: away, slow, wrong secret, one stream for all, and how it comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from hub_extensions.adapters.service.gpu_service import (
    FORM_SECONDS,
    STOP_SECONDS,
    Away,
    Back,
    GpuServiceClient,
    ServiceAway,
    ServiceRefused,
    Update,
)
from hub_extensions.core.messages import Ask, Started, Stopped, TicketStatus
from tests.fakes.service import SECRET, GpuServiceInATest, ServiceThatIsSlow
from tests.patience import patient

pytestmark = pytest.mark.slow


@pytest.fixture
async def line() -> AsyncIterator[GpuServiceInATest]:
    with GpuServiceInATest({"gpu": 1}) as running:
        yield running


@pytest.fixture
async def client(line: GpuServiceInATest) -> AsyncIterator[GpuServiceClient]:
    service = GpuServiceClient(line.url, SECRET)
    yield service
    await service.close()


async def soon(queue: asyncio.Queue[Update], kind: type[Update]) -> Update:
    while True:
        update = await asyncio.wait_for(queue.get(), patient(10))
        if isinstance(update, kind):
            return update


async def test_a_waiter_hears_only_of_itself(line: GpuServiceInATest, client: GpuServiceClient) -> None:
    with client.waiting("ben", "") as ben, client.waiting("cem", "") as cem:
        await client.ask(Ask("ada", "", ("gpu",)))
        assert (await client.ask(Ask("ben", "", ("gpu",)))).position == 1
        assert (await client.ask(Ask("cem", "", ("gpu",)))).position == 2
        await client.started("t1", Started(1, ready=True))
        line.release("ada")
        update = await soon(ben, TicketStatus)
        while update.answer != "admit":  # type: ignore[union-attr]
            update = await soon(ben, TicketStatus)
        seen = await soon(cem, TicketStatus)
        assert seen.user == "cem"  # type: ignore[union-attr]
        assert client.going_down is False


async def test_a_stream_that_breaks_is_told_and_comes_back_with_the_whole_line(
    line: GpuServiceInATest, client: GpuServiceClient
) -> None:
    with client.waiting("ben", "") as queue:
        await client.ask(Ask("ada", "", ("gpu",)))
        await client.ask(Ask("ben", "", ("gpu",)))
        await soon(queue, TicketStatus)
        line.close()
        assert isinstance(await soon(queue, Away), Away)
        with pytest.raises(ServiceAway) as problem:
            await client.ask(Ask("ben", "", ("gpu",)))
        assert problem.value.since == client.away_since
        line.open()
        assert isinstance(await soon(queue, Back), Back)
        assert (await soon(queue, TicketStatus)).user == "ben"  # type: ignore[union-attr]
        assert client.away_since is None


@pytest.mark.slow
async def test_a_service_that_is_slow_is_away_and_delays_no_stop() -> None:
    with ServiceThatIsSlow({"gpu": 1}) as line:
        client = GpuServiceClient(line.url, SECRET)
        assert STOP_SECONDS <= 1.0
        with pytest.raises(ServiceAway):
            await client.stopped(Stopped("ada", ""))
        with pytest.raises(ServiceAway):
            await client.form("ada", "", (), False, seconds=0.2)
        await client.close()


@pytest.mark.whole
@pytest.mark.slow
async def test_a_loop_that_something_else_holds_makes_no_service_away(
    line: GpuServiceInATest, client: GpuServiceClient
) -> None:
    asked = asyncio.ensure_future(client.ask(Ask("ada", "", ("gpu",))))
    form = asyncio.ensure_future(client.form("ada", "", (), False))
    await asyncio.sleep(0)
    time.sleep(FORM_SECONDS + 0.5)  # noqa: ASYNC251  the loop is held, while the service answers
    assert (await asked).answer == "admit"
    assert (await form).offers
    assert client.away_since is None


async def test_the_asks_that_wait_together_are_one_request(line: GpuServiceInATest, client: GpuServiceClient) -> None:
    await client.ask(Ask("ada", "", ("gpu",)))
    await asyncio.gather(*(client.ask(Ask(name, "", ("gpu",))) for name in ("ben", "cem", "dan")))
    assert line.requests == [1, 3]
    line.close()
    line.open()
    assert (await client.ask(Ask("eva", "", ("gpu",)))).position == 4, "the service was restarted since the last ask"


async def test_a_refusal_carries_its_problem(client: GpuServiceClient) -> None:
    with pytest.raises(ServiceRefused) as problem:
        await client.ask(Ask("ada", "", ("mig-9g.99gb",)))
    assert (problem.value.status, problem.value.problem.field) == (400, "offer")


async def test_the_end_of_the_hub_is_seen_on_the_endless_task(line: GpuServiceInATest) -> None:
    """T4: everything is cancelled, and nobody closed the client."""
    client = GpuServiceClient(line.url, SECRET)
    with client.waiting("ben", ""):
        await asyncio.sleep(0)
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task() and task.get_name() == "gpu-service-changes":
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        assert client.going_down


async def test_the_secret_stays_out_of_its_repr(client: GpuServiceClient) -> None:
    assert SECRET not in repr(client)
