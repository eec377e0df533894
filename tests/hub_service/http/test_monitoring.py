"""The dashboard and the alerts of ``docs/monitoring``: every query asked of a Prometheus that reads the service."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import yaml

from hub_extensions.core import messages
from hub_extensions.core.messages import FailedStop, ForecastRecord, ForecastReport, Health
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.usage.right_size import FittingHours
from tests.fakes.admin_site import served
from tests.fakes.engine import NOON, EngineInMemory
from tests.fakes.real_prometheus import RealPrometheus
from tests.hub_service.conftest import METRICS
from tests.hub_service.http.test_pages import CLUSTER
from tests.patience import patient

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "docs" / "monitoring"
DASHBOARD = json.loads((SOURCES / "grafana-dashboard.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((SOURCES / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]
SILENT = "GpuServiceSilent"
"""This alert alone is about what Prometheus has not."""


def test_the_manifests_are_made_of_the_files_and_grafanas_sidecar_finds_the_dashboard() -> None:
    manifests = ROOT / "helm-values" / "manifests"
    wanted = runpy.run_path(str(ROOT / "scripts" / "generate-monitoring.py"))["manifests"]()
    assert {name: (manifests / name).read_text(encoding="utf-8") for name in wanted} == wanted
    found = yaml.safe_load((manifests / "grafana-dashboard.yaml").read_text(encoding="utf-8"))
    assert found["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert json.loads(found["data"]["jupyterhub-gpu.json"]) == DASHBOARD
    rules = yaml.safe_load((manifests / "prometheus-rules.yaml").read_text(encoding="utf-8"))
    assert rules["kind"] == "PrometheusRule" and rules["spec"]["groups"][0]["rules"] == RULES


def test_every_alert_is_a_sentence_with_what_to_do() -> None:
    for rule in RULES:
        told = rule["annotations"]
        assert told["summary"].endswith(".") and told["description"].endswith((".", ").")), rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")


class ScrapingPrometheus(RealPrometheus):
    """It reads one service each second, with the alerts loaded."""

    def __init__(self, folder: Path, url: str) -> None:
        address, path = re.fullmatch(r"http://([^/]+)(/.*)", url + "metrics").groups()  # type: ignore[union-attr]
        super().__init__(folder, SimpleNamespace(port=1))  # type: ignore[arg-type]
        config = {
            "global": {"scrape_interval": "1s"},
            "rule_files": [str(SOURCES / "alerts.yaml")],
            "scrape_configs": [
                {
                    "job_name": "gpu",
                    "metrics_path": path,
                    "authorization": {"type": "Bearer", "credentials": METRICS},
                    "static_configs": [{"targets": [address]}],
                }
            ],
        }
        self._config.write_text(yaml.safe_dump(config), encoding="utf-8")

    def asked(self, query: str) -> list[Any]:
        answer = requests.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=patient(10))
        if answer.status_code == 503:  # it is still starting
            return []
        assert answer.status_code == 200, (query, answer.text)
        return list(answer.json()["data"]["result"])


class SickEngine(EngineInMemory):
    """Something of everything has happened to it, and its counters go on."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster_info = CLUSTER
        self.forecast = ForecastReport((ForecastRecord("mig-1g.5gb", 60, 0.9, 0.8, 30.0, False, 84),), NOON, 12.5, 0.4)
        failed = FailedStop("ada", "", OfferId("gpu"), NOON, "refused", 1, None, "500: locked", "")
        self.culling_view = replace(self.culling_view, failed_stops=(failed,))
        self.run_server("ada", "")
        self.run_server("ben", "")
        self.held[1] = replace(self.held[1], last_use_percent=None, use_source="none")
        self.fitting = (FittingHours("mig-2g.10gb", 41, 200.0, 62.0, 24.0),)
        for what, label in (
            ("start-failed", "timeout"), ("store", "write"), ("notice-sent", "mail"), ("notice-failed", "mail"),
            ("progress", "accepted"), ("progress", "ahead"),
        ):  # fmt: skip
            self.state.counts[what, label] = 1

    def health(self) -> Health:
        """Asked in each scrape: each time more has failed."""
        self.state.counts = {key: count + 2 for key, count in self.state.counts.items()}
        self.state.culls = {key: count + 1 for key, count in self.state.culls.items()}
        return replace(super().health(), ready=False, inventory_age_seconds=90.0, policy_file_valid=False)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScrapingPrometheus]:
    engine = SickEngine()
    waits = messages.TicketStatus(
        "t1", 1, "eva", "", "wait", ("mig-1g.5gb",), None, 1, 0, NOON, replace(engine.offers[0].wait.reason), None,  # type: ignore[arg-type, type-var]
    )  # fmt: skip
    engine.queue["t1"] = waits
    with served(engine) as url:
        found = ScrapingPrometheus(tmp_path_factory.mktemp("prometheus"), url)
        found.start()
        try:
            yield found
        finally:
            found.stop()


def non_empty(prometheus: ScrapingPrometheus, queries: dict[str, str]) -> dict[str, str]:
    """Those of these that found nothing; what grows is there from the second reading on."""
    until, missing = time.monotonic() + patient(20), dict(queries)
    while missing and time.monotonic() < until:
        missing = {name: query for name, query in missing.items() if not tried(prometheus, query)}
        time.sleep(0.3)
    return missing


def tried(prometheus: ScrapingPrometheus, query: str) -> list[Any]:
    try:
        return prometheus.asked(query)
    except requests.ConnectionError:  # it is not there yet
        return []


@pytest.mark.programs
@pytest.mark.whole
@pytest.mark.needs("prometheus")
def test_every_query_of_dashboard_and_alerts_finds_what_it_asks_for(
    prometheus: ScrapingPrometheus,
) -> None:
    panels = {
        f"{panel['title']} {target['refId']}": target["expr"].replace("$job", ".*")
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    }
    assert len(panels) > 20
    alerts = {rule["alert"]: rule["expr"] for rule in RULES}
    silent = alerts.pop(SILENT)
    assert non_empty(prometheus, {**panels, **alerts}) == {}
    assert prometheus.asked(silent) == []
    unused = prometheus.asked(alerts["GpuTrainingReportsNotUsed"])
    assert [each["metric"] for each in unused] == [{"outcome": "ahead"}]
    groups = requests.get(f"{prometheus.url}/api/v1/rules", timeout=patient(10)).json()["data"]["groups"]
    assert [rule["name"] for rule in groups[0]["rules"]] == [rule["alert"] for rule in RULES]
    checked = subprocess.run(
        ["promtool", "check", "rules", SOURCES / "alerts.yaml"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
