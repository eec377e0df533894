"""The past as Prometheus keeps it: asked in spans, halved where one is too much, and read as it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.adapters.prometheus import DcgmReading, Prometheus, past_question
from hub_extensions.core.gpu.dcgm import USE_NAMES
from hub_extensions.core.gpu.dcgm_history import past_pods
from tests.fakes.prometheus import USE, PrometheusAsTold, PrometheusThatFails, PrometheusThatSays

pytestmark = pytest.mark.slow

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
NEW = "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"


@pytest.fixture
async def told() -> AsyncIterator[PrometheusAsTold]:
    server = PrometheusAsTold(NOON.timestamp)
    yield server
    await server.stop()


def samples(begin: datetime, count: int, value: str) -> dict[float, str]:
    """One in the middle of each minute."""
    return {(begin + at * MINUTE).timestamp() + 30: value for at in range(count)}


async def asked(server: PrometheusAsTold, begin: datetime, **token: str):  # type: ignore[no-untyped-def]
    client = Prometheus(server.url, **token)
    try:
        return await client.pod_history("jhub", begin, NOON)
    finally:
        client.close()


async def test_a_day_is_asked_for_in_two_spans_in_both_dialects_and_generations(told: PrometheusAsTold) -> None:
    begin, exported = NOON - 24 * HOUR, {"exported_namespace": "jhub", "exported_pod": "jupyter-ben"}
    told.past = [
        (USE, {"namespace": "jhub", "pod": "jupyter-ada"}, samples(begin, 24 * 60, "0.5")),
        (NEW, exported, samples(NOON - HOUR, 60, "0")),
        (USE, {"namespace": "others", "pod": "jupyter-eve"}, samples(begin, 60, "0.9")),
        (USE, {"namespace": "jhub", "pod": "jupyter-nan"}, samples(begin, 60, "NaN")),
    ]
    found = [*past_pods(await asked(told, begin, token="secret"))]
    ada, ben = found
    assert (ada.pod, len(ada.used), set(ada.used.values())) == ("jupyter-ada", 24 * 60, {50.0})
    assert (min(ada.used), max(ada.used)) == (begin, NOON - MINUTE), "no minute twice, and none left out"
    assert (ben.pod, len(ben.used), set(ben.used.values())) == ("jupyter-ben", 60, {0.0})
    assert len(told.asked) == 2 * len(USE_NAMES) and told.asked[0] == past_question(USE_NAMES[0], "jhub")
    assert set(told.tokens) == {"Bearer secret"}


async def test_what_is_too_much_at_once_is_asked_for_in_smaller_spans_down_to_an_hour(told: PrometheusAsTold) -> None:
    begin = NOON - 12 * HOUR
    told.past = [(USE, {"namespace": "jhub", "pod": "jupyter-ada"}, samples(begin, 12 * 60, "0.5"))]
    told.most_seconds = 3 * 3600
    (ada,) = past_pods(await asked(told, begin))
    assert len(ada.used) == 12 * 60
    told.most_seconds = 60
    reading = await asked(told, begin)
    assert isinstance(reading, DcgmReading) and "422" in reading.message


@pytest.mark.parametrize(("status", "reason", "questions"), [(401, "refused", 1), (500, "failed", 5)])
async def test_who_is_refused_does_not_ask_again(status: int, reason: str, questions: int) -> None:
    server = PrometheusThatFails(NOON.timestamp)
    server.status = status
    reading = await asked(server, NOON - 12 * HOUR)
    await server.stop()
    assert isinstance(reading, DcgmReading) and (reading.reason, len(server.asked)) == (reason, questions)


@pytest.mark.parametrize(
    "result",
    ["7", "{}", '{"metric": [], "values": []}', '{"metric": {"pod": 3}, "values": [[1], ["x", "0"], [1e999, "0"]]}'],
)
async def test_a_series_that_cannot_be_read_is_passed_over(result: str) -> None:
    server = PrometheusThatSays(NOON.timestamp)
    server.body = f'{{"status": "success", "data": {{"resultType": "matrix", "result": [{result}]}}}}'.encode()
    assert await asked(server, NOON - HOUR) == ()
    await server.stop()
