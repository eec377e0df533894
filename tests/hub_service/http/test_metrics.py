"""Metrics: read from the engine at the scrape, without anybody's name."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from hub_extensions.core.messages import FailedStop, ForecastRecord, ForecastReport
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.hub_service.http.metrics import COUNTERS
from tests.fakes.engine import NOON
from tests.hub_service.conftest import METRICS, SECRET, Running


async def scraped(service: Running) -> dict[tuple[str, str], float]:
    answer = await service.ask("GET", "metrics", METRICS)
    assert answer.code == 200
    found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            found[(sample.name, next(iter(sample.labels.values()), ""))] = sample.value
    return found


async def test_the_line_the_leases_and_the_offers_are_counted(service: Running) -> None:
    service.engine.run_server("ada", "thesis")
    await service.ask("POST", "hub/tickets", SECRET, {"user": "ben", "server": "", "offers": ["mig-2g.10gb"]})
    numbers = await scraped(service)
    assert numbers[("jupyterhub_gpu_offer_free", "mig-1g.5gb")] == 2
    assert numbers[("jupyterhub_gpu_offer_capacity", "mig-1g.5gb")] == 5
    assert numbers[("jupyterhub_gpu_tickets_waiting", "mig-2g.10gb")] == 1
    assert numbers[("jupyterhub_gpu_tickets", "waiting")] == 1
    assert numbers[("jupyterhub_gpu_leases", "running")] == 1
    assert numbers[("jupyterhub_gpu_leases", "lost")] == 0
    assert numbers[("jupyterhub_gpu_admissions_total", "mig-1g.5gb")] == 4
    assert numbers[("jupyterhub_gpu_refusals_total", "line-full")] == 2
    assert numbers[("jupyterhub_gpu_inventory_age_seconds", "")] == 1.5
    assert numbers[("jupyterhub_gpu_last_admission_duration_seconds", "")] == 0.012
    assert numbers[("jupyterhub_gpu_ready", "")] == 1


def test_a_cause_has_one_label() -> None:
    labels = {name: label for name, label, _ in COUNTERS.values()}
    causes = {"refusals", "stop_attempt_failures", "server_ends", "start_failures", "pods_removed"}
    assert {name for name, label in labels.items() if label == "reason"} == causes
    assert {labels[name] for name in labels.keys() - causes} == {"offer", "outcome", "operation", "channel"}


async def test_culls_are_counted_by_cause_and_rule_and_failed_stops_by_what_is_wrong(service: Running) -> None:
    failed = FailedStop("ada", "", OfferId("gpu"), NOON, "alive", 1, None, "Its pod is there.", "")
    service.engine.culling_view = replace(service.engine.culling_view, failed_stops=(failed,))
    body = (await service.ask("GET", "metrics", METRICS)).body.decode()
    assert 'jupyterhub_gpu_culls_total{cause="idle",rule="classes"} 3.0' in body
    assert 'jupyterhub_gpu_culls_total{cause="lifetime",rule=""} 1.0' in body
    numbers = await scraped(service)
    failed = {key[1]: value for key, value in numbers.items() if key[0] == "jupyterhub_gpu_stops_failed"}
    assert failed == {"refused": 0, "hangs": 0, "alive": 1}


async def test_the_use_of_leased_devices_is_told_by_offer_with_who_measured_it(service: Running) -> None:
    service.engine.run_server("ada", "thesis")
    service.engine.run_server("ben", "")
    service.engine.held[1] = replace(service.engine.held[1], last_use_percent=None, use_source="none")
    numbers = await scraped(service)
    assert numbers[("jupyterhub_gpu_offer_utilization_ratio", "mig-1g.5gb")] == 0.03
    assert ("jupyterhub_gpu_offer_utilization_ratio", "mig-2g.10gb") not in numbers
    measured = {key[1]: value for key, value in numbers.items() if key[0] == "jupyterhub_gpu_leases_measured"}
    assert measured == {"nvml": 0, "gpm": 0, "dcgm": 1, "report": 0, "simulated": 0, "none": 1}
    assert numbers[("jupyterhub_gpu_prometheus_up", "")] == 1
    body = (await service.ask("GET", "metrics", METRICS)).body.decode()
    said = {family.name: [each.labels for each in family.samples] for family in text_string_to_metric_families(body)}
    offer = {"offer": "mig-1g.5gb", "source": "dcgm", "reason": "pod-not-named"}
    assert said["jupyterhub_gpu_offer_measurement_info"] == [offer]


async def test_how_good_the_forecast_is_is_told_by_pool(service: Running) -> None:
    known = ForecastRecord("mig-1g.5gb", 60, 0.75, 0.5, 300.0, True, 84, 9, True)
    young = ForecastRecord("gpu", 0, None, None, None, False, 3)
    service.engine.forecast = ForecastReport((known, young), NOON, 12.5, 0.4)
    numbers = await scraped(service)
    told = {name.removeprefix("jupyterhub_gpu_forecast_"): value for (name, pool), value in numbers.items() if
            pool == "mig-1g.5gb" and "forecast" in name}  # fmt: skip
    assert told == {"evaluated": 60, "coverage_p90": 0.75, "coverage_p10_p90": 0.5, "median_error_seconds": 300,
                    "busy_periods": 9, "worse_than_baseline": 1, "rough": 1, "finished_uses": 84}  # fmt: skip
    assert numbers["jupyterhub_gpu_forecast_evaluated", "gpu"] == 0
    assert ("jupyterhub_gpu_forecast_coverage_p90", "gpu") not in numbers
    assert numbers["jupyterhub_gpu_forecast_age_seconds", ""] == 12.5
    assert numbers["jupyterhub_gpu_forecast_cpu_seconds", ""] == 0.4


async def test_before_a_forecast_was_made_its_age_is_absent(service: Running) -> None:
    assert ("jupyterhub_gpu_forecast_age_seconds", "") not in await scraped(service)


async def test_what_is_not_known_is_absent_and_not_zero(service: Running) -> None:
    assert ("jupyterhub_gpu_offer_free", "gpu-0.5") not in await scraped(service)


async def test_no_name_of_a_user_or_a_server_is_in_the_metrics(service: Running) -> None:
    service.engine.run_server("ada", "thesis")
    await service.ask("POST", "hub/tickets", SECRET, {"user": "ben", "server": "lab", "offers": ["mig-2g.10gb"]})
    body = (await service.ask("GET", "metrics", METRICS)).body
    for name in (b"ada", b"ben", b"thesis", b'"lab"', b"MIG-"):
        assert name not in body


async def test_every_metric_has_the_products_prefix_and_help(service: Running) -> None:
    body = (await service.ask("GET", "metrics", METRICS)).body.decode()
    families = list(text_string_to_metric_families(body))
    assert families
    assert all(family.name.startswith("jupyterhub_gpu_") and family.documentation for family in families)
