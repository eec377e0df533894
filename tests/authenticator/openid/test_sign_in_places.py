"""Many come back from the provider at once: some are asked about, the others wait, and nobody waits for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from traitlets.config import Config

from hub_extensions.adapters.provider.oidc import ProviderAway, ProviderRefused, ProviderTokens, ProviderUnreachable
from hub_extensions.authenticator.openid.authenticator import SingleSignOnOIDCAuthenticator
from hub_extensions.authenticator.openid.failure import SignOnFailed
from hub_extensions.authenticator.openid.login_state import new_login
from hub_extensions.authenticator.openid.sign_in_places import SIGN_INS_AT_ONCE, SignInPlaces
from tests.patience import soon

MANY = 200
LOGIN = new_login("https://hub.example/hub/oauth_callback", "")
HANGS = ProviderUnreachable("login.site.example does not answer (time-out).")
Exchange = Callable[[str], Awaitable[None]]


class SignIns:
    """An authenticator whose provider does what a test says, by the code."""

    def __init__(self, exchange: Exchange, seconds: float = 3_600.0) -> None:
        c = Config()
        c.SingleSignOnOIDCAuthenticator.issuer = "https://login.site.example"
        self._made = SingleSignOnOIDCAuthenticator(config=c)
        self._made._places = SignInPlaces(seconds)
        self._made.provider.exchange = self._exchange
        self._made.claims_of = self._claims_of
        self._asked_of = exchange
        self.asked: list[str] = []

    async def _exchange(self, code: str, *_: object) -> ProviderTokens:
        self.asked.append(code)
        await self._asked_of(code)
        return ProviderTokens("access")

    async def _claims_of(self, *_: object, **__: object) -> tuple[str, dict[str, object]]:
        return "token", {}

    def begin(self, *codes: str) -> list[asyncio.Task[str]]:
        """Each task returns "in", or the page that its person sees."""
        return [asyncio.create_task(self._sign_in(code)) for code in codes]

    async def _sign_in(self, code: str) -> str:
        try:
            await self._made._redeem(code, LOGIN)
        except SignOnFailed as failure:
            return failure.code
        return "in"


def codes(number: int, name: str = "code") -> list[str]:
    return [f"{name}-{each}" for each in range(number)]


async def test_of_many_who_come_back_at_once_some_are_asked_about_and_the_others_wait() -> None:
    waiting, most = 0, 0

    async def exchange(_: str) -> None:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        for _turn in range(3):
            await asyncio.sleep(0)
        waiting -= 1

    sign_ins = SignIns(exchange)
    assert await asyncio.gather(*sign_ins.begin(*codes(MANY))) == ["in"] * MANY
    assert most == SIGN_INS_AT_ONCE
    assert sign_ins.asked == codes(MANY)


async def test_at_a_time_out_of_a_provider_that_hangs_all_who_wait_fail_and_who_comes_later_gets_in() -> None:
    times_out, answers = asyncio.Event(), asyncio.Event()

    async def exchange(code: str) -> None:
        if code.startswith("late"):
            await answers.wait()
            return
        await times_out.wait()
        raise HANGS

    sign_ins = SignIns(exchange)
    begun = sign_ins.begin(*codes(MANY))
    await soon(lambda: len(sign_ins.asked) == SIGN_INS_AT_ONCE)
    times_out.set()
    assert await asyncio.gather(*begun) == ["provider-away"] * MANY
    assert sign_ins.asked == codes(SIGN_INS_AT_ONCE)  # nobody else waited for a time-out of their own
    late = sign_ins.begin(*codes(2 * SIGN_INS_AT_ONCE, "late"))
    await soon(lambda: len(sign_ins.asked) == 2 * SIGN_INS_AT_ONCE)  # every place is free again
    answers.set()
    assert await asyncio.gather(*late) == ["in"] * len(late)


@pytest.mark.parametrize(
    ("problem", "page"),
    [
        (ProviderRefused("invalid_grant", "The provider says no: Code not valid."), "code"),
        (ProviderAway("The provider's token address answers with 503 ()."), "provider-away"),
    ],
)
async def test_an_answer_that_is_no_fails_one_and_not_who_waits(problem: Exception, page: str) -> None:
    async def exchange(code: str) -> None:
        await asyncio.sleep(0)
        if code == "code-0":
            raise problem

    assert await asyncio.gather(*SignIns(exchange).begin(*codes(50))) == [page, *["in"] * 49]


async def test_one_time_out_of_a_provider_that_answers_others_fails_one() -> None:
    slow = asyncio.Event()

    async def exchange(code: str) -> None:
        if code == "code-0":
            await slow.wait()
            raise HANGS
        if code == "code-20":
            slow.set()
        await asyncio.sleep(0)

    assert await asyncio.gather(*SignIns(exchange).begin(*codes(50))) == ["provider-away", *["in"] * 49]


async def test_a_wait_for_a_place_has_an_end() -> None:
    answers = asyncio.Event()

    async def exchange(_: str) -> None:
        await answers.wait()

    sign_ins = SignIns(exchange, seconds=0.01)
    begun = sign_ins.begin(*codes(SIGN_INS_AT_ONCE + 5))
    assert await asyncio.gather(*begun[SIGN_INS_AT_ONCE:]) == ["provider-away"] * 5
    answers.set()
    assert await asyncio.gather(*begun[:SIGN_INS_AT_ONCE]) == ["in"] * SIGN_INS_AT_ONCE
    assert sign_ins.asked == codes(SIGN_INS_AT_ONCE)


async def test_a_place_is_not_lost_with_a_request_that_is_cancelled_as_it_gets_it() -> None:
    places, leaves = SignInPlaces(), asyncio.Event()

    async def hold() -> None:
        async with places.taken():
            await leaves.wait()

    async def hold_and_cancel() -> None:
        await hold()
        cancelled.cancel()  # it has the place by now, and does not know yet

    holding = [asyncio.create_task(hold_and_cancel())]
    holding += [asyncio.create_task(hold()) for _ in range(SIGN_INS_AT_ONCE - 1)]
    cancelled = asyncio.create_task(hold())
    holding += [asyncio.create_task(hold()) for _ in range(20)]
    await asyncio.sleep(0)
    leaves.set()
    await asyncio.gather(*holding)
    assert cancelled.cancelled()
    assert places._free == SIGN_INS_AT_ONCE
