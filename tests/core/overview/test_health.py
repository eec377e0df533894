"""The verdict on the service's health: each fault with its meaning, and none if nothing is wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from hub_extensions.core.messages import Health, OfferEvidence
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.overview.health import judge_health
from tests.fakes.service import an_offer

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
WELL = Health(
    True, "ok", "answers", 1.5, "1", evidence=(OfferEvidence(OfferId("gpu"), "nvml", 3, 3, 1.0, NOW, "measured", ""),)
)


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({}, []),
        ({"store": "disk full"}, ["health-store"]),
        ({"store": "disk full", "ready": False}, ["health-store"]),
        ({"ready": False}, ["health-not-ready"]),
        ({"hub": "does not answer since noon"}, ["health-hub"]),
        ({"inventory_age_seconds": None}, ["health-gpus-never-read"]),
        ({"inventory_age_seconds": 60.0}, []),
        ({"inventory_age_seconds": 61.0}, ["health-gpus-old"]),
        ({"port": "somebody else's"}, ["health-port"]),
        ({"stops_failed": 1}, ["health-stops"]),
        ({"policy_file_valid": False}, ["health-policy-file"]),
        ({"policy_file_valid": True}, []),
        ({"prometheus_up": False}, ["health-prometheus"]),
        ({"notices_sent": False}, ["health-notices"]),
        ({"notices_sent": None}, []),
    ],
)
def test_each_fault_of_the_service_is_reported_once(changed: dict[str, Any], codes: list[str]) -> None:
    line = judge_health(replace(WELL, **changed))
    assert [each.reason for each in line.findings] == codes
    assert line.well is (not codes)


def test_evidence_that_is_missing_says_of_how_many_servers() -> None:
    some = replace(WELL.evidence[0], measured=1, text="Prometheus has no series.")
    (found,) = judge_health(replace(WELL, evidence=(some,))).findings
    assert found.message == (
        "gpu: of 2 servers the use is not known, so they are not stopped as idle. Prometheus has no series."
    )


@pytest.mark.parametrize(
    ("free", "waiting", "lost", "held_up", "codes"),
    [
        (0, 3, 0, False, []),
        (1, 0, 0, False, []),
        (1, 3, 0, False, ["health-line"]),
        (None, 3, 0, False, []),
        (1, 3, 0, True, ["health-held-up"]),
        (0, 0, 2, False, ["health-lost"]),
    ],
)
def test_a_line_stands_still_where_one_is_free_and_somebody_waits(
    free: int | None, waiting: int, lost: int, held_up: bool, codes: list[str]
) -> None:
    offer = an_offer("gpu", free=free, total=3, waiting=waiting, lost=lost)
    cpu = an_offer("cpu", free=None, total=None, waiting=5)
    line = judge_health(WELL, (offer, cpu), (offer.id,) if held_up else ())
    assert [each.reason for each in line.findings] == codes


def test_a_card_in_mig_mode_that_is_not_cut_is_said() -> None:
    (found,) = judge_health(WELL, gpu_problems=["GPU 0 is in MIG mode and has no MIG device."]).findings
    assert found.message == "A GPU of this machine cannot be given: GPU 0 is in MIG mode and has no MIG device."


def test_a_cluster_that_cannot_be_read_is_said() -> None:
    (found,) = judge_health(WELL, cluster_problem="it says 403").findings
    assert found.message == "The cluster cannot be read: it says 403"
