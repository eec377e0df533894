"""What DCGM measured, asked of a Prometheus on loopback: whose figure it is, when it is none, and what goes wrong."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.adapters.prometheus import ANSWER_BYTES, CARD_LABELS, Prometheus, question
from hub_extensions.core.gpu.dcgm import WHY
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.gpu.samples import Counters
from tests.fakes.prometheus import (
    DRAM,
    SM,
    TENSOR,
    PrometheusAsTold,
    PrometheusThatFails,
    PrometheusThatIsSlow,
    PrometheusThatSays,
    PrometheusWithoutEnd,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
CARD = "GPU-a100"
A100 = "NVIDIA A100-PCIE-40GB"


def instance(number: int, profile: str = "1g.5gb", card: str = CARD) -> Device:
    return Device(
        f"MIG-{card}-{number}", A100, profile=profile, gpu_instance_id=number, compute_instance_id=0, parent_uuid=card
    )


ONE, TWO = instance(7), instance(8)
WHOLE = Device("GPU-whole", A100)


@pytest.fixture
async def told() -> AsyncIterator[PrometheusAsTold]:
    server = PrometheusAsTold(NOW.timestamp)
    yield server
    await server.stop()


async def asked(server: PrometheusAsTold, *wanted: Device, **settings: object):  # type: ignore[no-untyped-def]
    client = Prometheus(server.url, **settings)  # type: ignore[arg-type]
    try:
        return await client.query(wanted, wanted, NOW)
    finally:
        client.close()


async def test_a_ratio_of_a_mig_instance_is_percent_of_that_device(told: PrometheusAsTold) -> None:
    told.tell(CARD, 7, 0.42)
    told.tell(CARD, 8, 0.0)
    told.tell(CARD, 7, 0.3, metric=TENSOR)
    told.tell(CARD, 7, 0.2, metric=DRAM)
    reading = await asked(told, ONE, TWO)
    assert reading.reason == "" and reading.missing == {}
    one, two = reading.figures[ONE.uuid], reading.figures[TWO.uuid]
    assert one.used_percent == pytest.approx(42.0) and two.used_percent == 0.0
    assert one.counters == Counters(None, pytest.approx(30.0), pytest.approx(20.0)) and two.counters is None
    assert (one.source, one.uuid) == ("dcgm", ONE.uuid)
    assert one.at == NOW - timedelta(seconds=5), "the sample's own time, not that of the question"


async def test_one_query_for_each_label_asks_for_the_cards_of_the_devices_and_nothing_else(
    told: PrometheusAsTold,
) -> None:
    told.tell("GPU-of-somebody", 7, 0.9)
    reading = await asked(told, ONE, TWO, instance(3, card="GPU-b"))
    assert sorted(told.asked) == sorted(question(label, ["GPU-a100", "GPU-b"]) for label in CARD_LABELS)
    assert reading.figures == {}


async def test_a_whole_gpu_is_the_series_without_an_instance(told: PrometheusAsTold) -> None:
    told.tell("GPU-whole", None, 0.5)
    told.tell("GPU-whole", 7, 0.9)
    assert (await asked(told, WHOLE)).figures["GPU-whole"].used_percent == 50.0


async def test_the_cards_own_series_is_never_taken_for_an_instance(told: PrometheusAsTold) -> None:
    told.tell(CARD, None, 0.0)
    assert (await asked(told, ONE)).missing == {ONE.uuid: "none"}


async def test_a_scale_of_the_card_is_made_one_of_the_instance(told: PrometheusAsTold) -> None:
    half = instance(1, "3g.20gb")
    told.tell(CARD, 1, 3 / 7 * 0.5)
    told.tell(CARD, 7, 0.2)
    reading = await asked(told, half, ONE, scale="card")
    assert reading.figures[half.uuid].used_percent == pytest.approx(50.0)
    assert reading.figures[ONE.uuid].used_percent == 100.0, "never above 100"
    strange = Device("MIG-x", "A card of next year", profile="1g.5gb", gpu_instance_id=7, parent_uuid=CARD)
    assert (await asked(told, strange, scale="card")).missing == {"MIG-x": "no-scale"}
    assert (await asked(told, strange)).figures["MIG-x"].used_percent == pytest.approx(20.0)


async def test_where_the_engine_shows_less_than_its_multiprocessors_the_greater_counts(told: PrometheusAsTold) -> None:
    told.tell(CARD, 7, 0.02)
    told.tell(CARD, 7, 1.294, metric=SM)
    figure = (await asked(told, ONE)).figures[ONE.uuid]
    assert figure.used_percent == 100.0 and figure.counters == Counters(100.0, None, None)


async def test_quiet_multiprocessors_alone_are_no_evidence(told: PrometheusAsTold) -> None:
    told.tell(CARD, 7, 0.0, metric=SM)
    assert (await asked(told, ONE)).missing == {ONE.uuid: "none"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ratio", "ago", "why"),
    [
        ("NaN", 5.0, "no-number"),
        ("+Inf", 5.0, "no-number"),
        ("-0.5", 5.0, "no-number"),
        ("140737488355328", 5.0, "no-number"),
        ("0", 61.0, "old"),
        ("0", 119.0, "old"),
        ("0", -90.0, "old"),
        ("0", 300.0, "none"),
    ],
)
async def test_what_is_no_ratio_or_not_of_now_is_not_known(
    told: PrometheusAsTold, ratio: str, ago: float, why: str
) -> None:
    told.tell(CARD, 7, ratio, ago=ago)
    reading = await asked(told, ONE)
    assert (reading.figures, reading.missing, reading.reason) == ({}, {ONE.uuid: why}, "")
    assert WHY[why]


async def test_series_that_disagree_about_one_device_are_not_known_and_equal_ones_are(told: PrometheusAsTold) -> None:
    told.tell(CARD, 7, 0.0)
    told.tell(CARD, 7, 0.8, pod="another-exporter")
    told.tell(CARD, 8, 0.0)
    told.tell(CARD, 8, 0.004, pod="another-exporter", ago=2.0)
    reading = await asked(told, ONE, TWO)
    assert reading.missing == {ONE.uuid: "differ"}
    assert reading.figures[TWO.uuid].at == NOW - timedelta(seconds=2)


async def test_a_series_that_ended_says_nothing_against_its_successor(told: PrometheusAsTold) -> None:
    told.tell(CARD, 7, 0.0, pod="before", ago=100.0)
    told.tell(CARD, 7, 0.7, pod="after")
    assert (await asked(told, ONE)).figures[ONE.uuid].used_percent == pytest.approx(70.0)


async def test_two_devices_in_one_gpu_instance_are_not_measured_apart(told: PrometheusAsTold) -> None:
    told.tell(CARD, 7, 0.8)
    other = Device("MIG-other", A100, profile="1c.2g.10gb", gpu_instance_id=7, compute_instance_id=1, parent_uuid=CARD)
    assert (await asked(told, ONE, other)).missing == {ONE.uuid: "shared", "MIG-other": "shared"}


async def test_sixty_four_instances_are_told_apart(told: PrometheusAsTold) -> None:
    devices = [instance(number, card=f"GPU-{card}") for card in range(16) for number in (1, 5, 9, 13)]
    for place, device in enumerate(devices):
        told.tell(device.parent_uuid or "", device.gpu_instance_id, place / 100)
    reading = await asked(told, *devices)
    assert len(devices) == 64 and reading.missing == {}
    for place, device in enumerate(devices):
        assert reading.figures[device.uuid].used_percent == pytest.approx(place)
    assert len(told.asked) == len(CARD_LABELS)


async def test_a_device_whose_card_is_not_known_is_not_asked_for(told: PrometheusAsTold) -> None:
    orphan = Device("MIG-x", A100, profile="1g.5gb", gpu_instance_id=7)
    odd = Device('GPU-"}[9y]', A100)
    reading = await asked(told, orphan, odd)
    assert reading.missing == {"MIG-x": "none", odd.uuid: "none"} and told.asked == []


# ------------------------------------------------------------------ what goes wrong


async def test_the_token_is_sent_and_stays_out_of_repr_and_problems(told: PrometheusAsTold) -> None:
    client = Prometheus(told.url, "prometheus-secret")
    await client.query([ONE], [ONE], NOW)
    assert set(told.tokens) == {"Bearer prometheus-secret"}
    await told.stop()
    reading = await client.query([ONE], [ONE], NOW)
    client.close()
    assert "prometheus-secret" not in repr(client) + repr(reading)


async def test_without_a_token_none_is_sent(told: PrometheusAsTold) -> None:
    await asked(told, ONE)
    assert set(told.tokens) == {None}


@pytest.mark.parametrize(
    ("status", "word"), [(500, "failed"), (503, "failed"), (404, "failed"), (302, "failed"), (401, "refused")]
)
async def test_a_status_that_is_no_answer_is_a_sentence_and_a_redirect_is_not_followed(status: int, word: str) -> None:
    server = PrometheusThatFails(NOW.timestamp)
    server.status = status
    reading = await asked(server, ONE, token="secret")
    await server.stop()
    assert (reading.reason, reading.figures) == (word, {})
    assert str(status) in reading.message and len(server.asked) == len(CARD_LABELS)


async def test_a_prometheus_that_is_slow_is_given_up_after_its_time() -> None:
    server = PrometheusThatIsSlow(NOW.timestamp)
    reading = await asked(server, ONE, seconds=0.3)
    await server.stop()
    assert (reading.reason, reading.message) == ("away", "Prometheus does not answer (nothing within 0.3 s).")


async def test_a_prometheus_that_is_not_there_is_a_sentence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = Prometheus(f"http://127.0.0.1:{unused.getsockname()[1]}")
        reading = await client.query([ONE], [ONE], NOW)
        client.close()
    assert reading.reason == "away" and reading.message.startswith("Prometheus does not answer (")


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"<html>Log in</html>",
        b"",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"status": "error", "error": "no"}',
        b'{"status": "success", "data": null}',
        b'{"status": "success", "data": {"resultType": "vector", "result": []}}',
        b'{"status": "success", "data": {"resultType": "matrix", "result": {}}}',
    ],
)
async def test_what_is_no_prometheus_is_told_so(body: bytes) -> None:
    server = PrometheusThatSays(NOW.timestamp)
    server.body = body
    reading = await asked(server, ONE)
    await server.stop()
    assert (reading.reason, reading.figures) == ("no-prometheus", {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "series",
    [
        b"7",
        b"{}",
        b'{"metric": [], "values": [[1, "0"]]}',
        b'{"metric": {}, "values": []}',
        b'{"metric": {}, "values": [[1]]}',
        b'{"metric": {}, "values": [["x", "0"]]}',
        b'{"metric": {}, "values": [[1e999, "0"], [null, "0"]]}',
        b'{"metric": {"UUID": 3}, "values": [[1e300, {"a": 1}]]}',
    ],
)
async def test_a_series_that_cannot_be_read_is_passed_over(series: bytes) -> None:
    server = PrometheusThatSays(NOW.timestamp)
    server.body = b'{"status": "success", "data": {"resultType": "matrix", "result": [' + series + b"]}}"
    reading = await asked(server, ONE)
    await server.stop()
    assert (reading.reason, reading.missing) == ("", {ONE.uuid: "none"})


@pytest.mark.slow
async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    server = PrometheusThatSays(NOW.timestamp)
    server.body = b" " * (ANSWER_BYTES + 1)
    reading = await asked(server, ONE)
    await server.stop()
    assert reading.reason == "away" and reading.figures == {}


async def test_an_answer_that_never_ends_is_given_up_after_its_time_and_its_connection_closed() -> None:
    server = PrometheusWithoutEnd(NOW.timestamp)
    reading = await asked(server, ONE, seconds=0.3)
    await server.stop()
    assert (reading.reason, reading.figures) == ("away", {})
