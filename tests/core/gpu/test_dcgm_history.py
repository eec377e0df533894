"""The past use of pods from series: by the minute, in percent for every version of the exporter, and only for a
named pod.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.gpu.dcgm_history import PodHistory, past_pods, past_use

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
POD = {"namespace": "jhub", "pod": "jupyter-ada"}
OLD, NEW = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"
CARD, NEW_CARD = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"


@pytest.mark.parametrize(
    ("name", "value", "percent"),
    [
        (OLD, 0.42, 42.0),
        (NEW, 0.42, 42.0),
        (CARD, 42.0, 42.0),
        (NEW_CARD, 0.42, 42.0),
        (OLD, 1.2, 100.0),
        (OLD, 140737488355328.0, None),  # DCGM's blank
        (CARD, -1.0, None),
        (CARD, 0.9, None),  # a ratio under the name of percents
        (OLD, None, None),
    ],
)
def test_a_sample_is_percent_of_the_minute_that_ends_with_it(
    name: str, value: float | None, percent: float | None
) -> None:
    found = past_use(name, POD, {(NOON + MINUTE).timestamp(): value})
    assert (None if found is None else dict(found.used)) == (None if percent is None else {NOON: percent})


@pytest.mark.parametrize(
    ("labels", "owner"),
    [
        (POD, ("jhub", "jupyter-ada", "")),
        ({"exported_namespace": "jhub", "exported_pod": "jupyter-ada", "namespace": "gpu", "pod": "dcgm"},
         ("jhub", "jupyter-ada", "")),
        ({**POD, "GPU_I_PROFILE": "1g.5gb"}, ("jhub", "jupyter-ada", "1g.5gb")),
        ({"namespace": "jhub"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_series_is_of_the_pod_that_it_names(labels: dict[str, str], owner: tuple[str, str, str] | None) -> None:
    found = past_use(OLD, labels, {NOON.timestamp(): 0.0})
    assert (None if found is None else (found.namespace, found.pod, found.profile)) == owner


def test_the_cards_figure_says_nothing_of_a_mig_device_and_a_time_that_is_none_is_passed_over() -> None:
    assert past_use(CARD, {**POD, "GPU_I_PROFILE": "1g.5gb"}, {NOON.timestamp(): 0.0}) is None
    assert past_use(OLD, POD, {float("inf"): 0.0, 1e300: 0.0}) is None


def test_parts_of_a_pod_are_one_with_the_highest_of_each_minute_and_a_long_gap_is_another_pod() -> None:
    def part(pod: str, **used: float) -> PodHistory:
        return PodHistory("jhub", pod, "", {NOON + int(at[1:]) * MINUTE: percent for at, percent in used.items()})

    found = [*past_pods([part("b", m3=5.0), part("a", m0=1.0, m1=0.0), part("a", m1=9.0, m10=0.0, m21=7.0)])]
    assert [(each.pod, [int((at - NOON) / MINUTE) for at in each.used]) for each in found] == [
        ("a", [0, 1, 10]),
        ("a", [21]),
        ("b", [3]),
    ]
    assert found[0].used[NOON + MINUTE] == 9.0
