"""What the hub signed counts once, for this run of the service, near to its time; clocks that differ stop nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone

import pytest
from tornado.httpclient import HTTPResponse

from hub_extensions.adapters.service import signatures as module
from hub_extensions.adapters.service.gpu_service import GpuServiceClient
from hub_extensions.adapters.service.signatures import Signatures, SignatureVerdict
from hub_extensions.adapters.service.signer import Signer
from hub_extensions.core.messages import Ask
from hub_extensions.core.signing import ANSWER_HEADER, SIGN_AGAIN, SignedRequest, hash_of
from hub_extensions.hub_service.http.api.routes import ROUTES
from hub_extensions.hub_service.http.auth import Who
from hub_extensions.hub_service.http.limits import Refusals
from tests.hub_service.conftest import PREFIX, SECRET, Running, said

BODY = b'{"user": "ada", "server": "", "offers": ["mig-1g.5gb"]}'
PATHS = [each.path for each in ROUTES if each.handler.who is Who.HUB and "post" in each.methods]
NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


async def asked(service: Running, header: str, body: bytes = BODY, path: str = "hub/tickets") -> HTTPResponse:
    return await service.ask("POST", path, body=body, headers={"Authorization": header})


async def test_a_request_that_was_recorded_is_worth_nothing(service: Running) -> None:
    recorded = service.signature("POST", "hub/tickets", BODY)
    first = await asked(service, recorded)
    assert (first.code, ANSWER_HEADER in first.headers) == (200, True)
    told = len(service.engine.told)
    again = await asked(service, recorded)
    assert (again.code, ANSWER_HEADER in again.headers, len(service.engine.told)) == (403, False, told)
    for path in ("hub/stopped", "hub/tickets/t1/ended", "hub/tickets?x=1"):
        assert (await asked(service, recorded, path=path)).code == 403
    service.parts.auth.signatures = Signatures(SECRET)  # it was started again, and remembers nothing
    answer = await asked(service, recorded)
    assert (answer.code, said(answer)["reason"], len(service.engine.told)) == (401, "sign-again", told)


class Counted(Refusals):
    """Counts who was slowed down."""

    slowed = 0

    async def slow_down(self) -> None:
        self.slowed += 1


@pytest.mark.parametrize(("method", "path"), [("POST", "hub/tickets"), ("GET", "hub/form?user=ada"), ("GET", "health")])
async def test_who_sends_what_he_recorded_again_and_again_is_slowed_down(
    service: Running, method: str, path: str
) -> None:
    body = BODY if method == "POST" else None
    recorded = service.signature(method, path, body or b"")
    service.parts.auth.signatures = Signatures(SECRET)  # since then the service was started again
    service.parts.refusals = refusals = Counted()
    answers = [await service.ask(method, path, body=body, headers={"Authorization": recorded}) for _ in range(3)]
    assert ([answer.code for answer in answers], refusals.slowed) == ([401] * 3, 3)


async def test_a_body_that_the_hub_did_not_sign_is_refused(service: Running) -> None:
    answer = await asked(service, service.signature("POST", "hub/tickets", BODY), BODY.replace(b"ada", b"eve"))
    assert (answer.code, ANSWER_HEADER in answer.headers, service.engine.told) == (403, False, [])


@pytest.mark.parametrize(
    "path", [each.path for each in ROUTES if each.handler.who is Who.HUB and "post" in each.methods]
)
async def test_what_was_signed_for_another_time_changes_nothing_on_any_route(service: Running, path: str) -> None:
    path = path.replace("{ticket}", "t1")
    life, now = service.parts.auth.signatures.life, datetime.now(timezone.utc)
    for number, at in enumerate((now - timedelta(minutes=6), now + timedelta(minutes=6))):
        request = SignedRequest("POST", PREFIX + path, life, at, now, f"{number:032}", hash_of(b"{}"))
        answer = await asked(service, request.signed(SECRET), b"{}", path)
        assert (answer.code, ANSWER_HEADER in answer.headers) == (401, True)
    assert service.engine.told == []


@pytest.fixture
async def clients() -> AsyncIterator[list[GpuServiceClient]]:
    made: list[GpuServiceClient] = []
    yield made
    for each in made:
        await each.close()


@pytest.mark.parametrize("minutes", [-10, 10])
async def test_clocks_ten_minutes_apart_stop_nothing_and_are_told(
    service: Running, clients: list[GpuServiceClient], minutes: int, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Signer(SECRET, lambda: datetime.now(timezone.utc) + timedelta(minutes=minutes))
    client = GpuServiceClient(service.url, wrong)
    clients.append(client)
    assert (await client.ask(Ask("ada", "", ("mig-1g.5gb",)))).user == "ada"
    assert (await client.form("ada", "", (), False)).offers
    said_in_words = f"the hub's clock is 10 min {'ahead of' if minutes > 0 else 'behind'} the GPU service's"
    assert said(await service.ask("GET", "health", "admin-token"))["clock"].startswith(said_in_words)
    assert [said_in_words in record.message for record in caplog.records].count(True) == 1
    assert client.away_since is None


@pytest.mark.parametrize("minutes", [60, -60])
def test_a_machine_that_slept_or_whose_clock_was_set_raises_no_alarm(
    minutes: int, caplog: pytest.LogCaptureFixture
) -> None:
    wall = [NOW]
    signatures = Signatures(SECRET, lambda: NOW, lambda: wall[0])  # the service's own time stood still meanwhile
    hub = Signer(SECRET, lambda: wall[0])
    for _ in range(2):
        while True:
            outgoing = hub.sign("GET", "/x")
            judged = signatures.verify("GET", "/x", outgoing.headers["Authorization"])
            assert judged is not None
            status = 200 if judged.verdict is SignatureVerdict.GOOD else SIGN_AGAIN
            if outgoing.verify(status, b"", signatures.signed(judged.request, status, b"")):
                break
        wall[0] += timedelta(minutes=minutes)
    assert signatures.hub_clock_ahead == timedelta(0)
    assert caplog.records == []


def a_request(signatures: Signatures, number: int, time: datetime = NOW) -> str:
    return SignedRequest("GET", "/x", signatures.life, time, time, f"{number:032}", hash_of(b"")).signed(SECRET)


def verdict(signatures: Signatures, header: str) -> SignatureVerdict | None:
    judged = signatures.verify("GET", "/x", header)
    return judged and judged.verdict


def test_a_nonce_is_remembered_for_as_long_as_it_would_be_good() -> None:
    now = [NOW]
    signatures = Signatures(SECRET, lambda: now[0])
    header = a_request(signatures, 1)
    assert signatures.may_be_hub("GET", "/x", header)
    assert verdict(signatures, header) is SignatureVerdict.GOOD
    assert not signatures.may_be_hub("GET", "/x", header)
    for minutes, expected in (
        (4, SignatureVerdict.REPLAYED),
        (1, SignatureVerdict.REPLAYED),
        (1, SignatureVerdict.AGAIN),
    ):
        now[0] += timedelta(minutes=minutes)
        assert verdict(signatures, header) is expected
    assert signatures._seen == {}


def test_what_came_too_early_is_not_good_later_either() -> None:
    now = [NOW]
    signatures = Signatures(SECRET, lambda: now[0])
    header = a_request(signatures, 1, NOW + timedelta(minutes=6))
    assert verdict(signatures, header) is SignatureVerdict.AGAIN
    now[0] += timedelta(minutes=6)
    assert verdict(signatures, header) is SignatureVerdict.AGAIN


def test_the_nonces_are_bounded_and_none_that_was_forgotten_is_good_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NONCES", 3)
    signatures = Signatures(SECRET, lambda: NOW)
    headers = [a_request(signatures, number) for number in range(4)]
    assert [verdict(signatures, each) for each in headers] == [*[SignatureVerdict.GOOD] * 3, SignatureVerdict.AGAIN]
    assert len(signatures._seen) == 0
    assert {verdict(signatures, each) for each in headers} == {SignatureVerdict.AGAIN}
    assert verdict(signatures, a_request(signatures, 9)) is SignatureVerdict.GOOD
