"""What a user is shown of each sign of use: busy, idle or unknown, by whom, and which one decides."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.culling import (
    CullPolicy,
    cpu_signs,
    decisive_use,
    gpu_signs,
    proves_idle,
    training_sign,
    with_training,
)
from hub_extensions.core.gpu.samples import DeviceSample, ServerReport, UseSign
from hub_extensions.core.messages import Progress

NOON = datetime(2026, 3, 2, 12, tzinfo=timezone.utc)
ON = CullPolicy(enabled=True)


@pytest.mark.parametrize(
    ("measured", "own", "gpu", "report", "decides"),
    [
        (0.0, None, "idle", None, "gpu"),
        (5.0, None, "busy", None, "gpu"),
        (None, None, "unknown", None, "gpu"),
        (0.0, 0.0, "idle", "idle", "gpu"),
        (0.0, 60.0, "idle", "busy", "report"),  # it protects
        (70.0, 60.0, "busy", "busy", "gpu"),
        (None, 60.0, "unknown", "busy", "report"),
        (None, 1.0, "unknown", "idle", "gpu"),  # it condemns nobody
    ],
)
def test_of_a_gpu_the_measured_use_decides_or_the_servers_own_report_that_protects(
    measured: float | None, own: float | None, gpu: str, report: str | None, decides: str
) -> None:
    sample = None if measured is None else DeviceSample("GPU-0", NOON, measured, 0, (), "nvml")
    said = ServerReport(NOON, True, 1, 1, used_percent=own, busy_terminals=None)
    signs = gpu_signs(sample, said, ON, used=decisive_use(measured, said, ON))
    assert {sign.kind: sign.value for sign in signs} == {
        "gpu": gpu, **({} if report is None else {"report": report}), "kernels": "busy", "terminals": "unknown",
    }  # fmt: skip
    assert [sign.kind for sign in signs if sign.decides] == [decides]
    assert signs[0].source == ("none" if measured is None else "nvml")
    assert len(gpu_signs(sample, None, ON, used=measured)) == 1


@pytest.mark.parametrize(
    ("measured", "own", "decides"),
    [
        (0.0, 100.0, 0.0),
        (2.0, 100.0, 2.0),
        (70.0, 100.0, 70.0),
        (0.0, 0.0, 0.0),
        (None, 100.0, 100.0),
        (math.nan, 100.0, 100.0),
        (None, None, None),
    ],
)
def test_a_fresh_measurement_is_raised_by_no_report_and_one_that_is_not_there_is(
    measured: float | None, own: float | None, decides: float | None
) -> None:
    said = ServerReport(NOON, True, 1, 1, used_percent=own)
    assert decisive_use(measured, said, ON, fresh=True) == decides


@pytest.mark.parametrize(("ago", "value"), [(None, "unknown"), (60, "busy"), (61, "idle")])
def test_without_a_gpu_activity_kernels_and_terminals_decide(ago: int | None, value: str) -> None:
    last = None if ago is None else NOON - timedelta(seconds=ago)
    signs = cpu_signs(last, ServerReport(NOON, True, 1, 0, busy_terminals=2), NOON)
    assert [(sign.kind, sign.value, sign.source, sign.decides) for sign in signs] == [
        ("activity", value, "hub", True), ("kernels", "idle", "report", True), ("terminals", "busy", "report", True),
    ]  # fmt: skip
    assert signs[0].at == last


@pytest.mark.parametrize(
    ("mib", "claimed_seconds_before", "proves"),
    [
        (12, 60, True),
        (12, 59, False),
        (12, -5, False),
        (12, None, False),
        (47, 90, True),
        (48, 90, False),
        (None, 90, False),
    ],
)
def test_an_exporter_proves_idle_only_with_its_memory_and_after_the_claim(
    mib: int | None, claimed_seconds_before: float | None, proves: bool
) -> None:
    memory = None if mib is None else mib * 2**20
    sample = DeviceSample("MIG-1", NOON, 0.0, memory, None, "dcgm")
    claimed = None if claimed_seconds_before is None else NOON - timedelta(seconds=claimed_seconds_before)
    assert proves_idle(sample, claimed) is proves


COUNTS = replace(ON, count_progress=True)
TRAINS = Progress(NOON, 600.0, 0.2)


@pytest.mark.parametrize(
    ("policy", "training", "busy", "counted"),
    [
        (ON, TRAINS, 0, 0),
        (COUNTS, TRAINS, 0, 1),
        (COUNTS, TRAINS, None, 1),
        (COUNTS, TRAINS, 3, 3),
        (COUNTS, None, 0, 0),
        (ON, TRAINS, None, None),
    ],
)
def test_a_training_counts_like_a_busy_kernel_only_if_the_administrator_says_so(
    policy: CullPolicy, training: Progress | None, busy: int | None, counted: int | None
) -> None:
    said = ServerReport(NOON, True, 1, busy, used_percent=0.0)
    after = with_training(said, training, policy)
    assert after == replace(said, busy_kernels=counted)
    assert with_training(None, training, policy) is None
    trusting = replace(policy, trust_reports=True)
    assert decisive_use(None, after, trusting) == (0.0 if counted == 0 else None)
    assert decisive_use(0.0, after, trusting) == 0.0, "what is measured decides as before"


@pytest.mark.parametrize(("policy", "decides"), [(ON, False), (COUNTS, True)])
def test_a_training_is_shown_among_the_signs(policy: CullPolicy, decides: bool) -> None:
    assert training_sign(TRAINS, policy) == (UseSign("training", "busy", "report", NOON, decides),)
    assert training_sign(None, policy) == ()
