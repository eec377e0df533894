"""The audit on a lab of its own: all safe, then each planted fault is found, and no other."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hub_extensions.adapters.apps import audit_run
from hub_extensions.adapters.apps.audit_accounts import AuditHub
from hub_extensions.adapters.apps.audit_run import AuditConfig, AuditRun
from hub_extensions.adapters.provider.assertions import AssertionKey, KeyFolder, rotate
from hub_extensions.core.sign_on.audit import EVERYWHERE, AuditResult, Outcome
from hub_extensions.gate.audit_loop import PeriodicAudit
from hub_extensions.tools.cli import gate_audit
from tests.fakes.audit_lab import FAULTS, OF_HOST, AuditLab
from tests.patience import patient

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> AssertionKey:
    return rotate(KeyFolder(tmp_path_factory.mktemp("keys")))[0]


@pytest.fixture(autouse=True)
def slow_answers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a machine that is busy: what does not answer is not tried, and here everything answers."""
    monkeypatch.setattr(audit_run, "SECONDS", patient(20.0))


async def audited(lab: AuditLab, key: AssertionKey | None = None, **more: Any) -> list[AuditResult]:
    hub = AuditHub(f"{lab.url}hub/api", "admin")
    # another address of loopback stands for those by which others reach this machine
    config = AuditConfig(
        lab.apps,
        lab.url,
        f"{lab.url}hub/",
        hub,
        cookie_name="gate-without-https",
        addresses=("127.0.0.2",),
        dead_seconds=patient(1.0),
        key=key,
        **{"session_for": lab.session_for, **more},
    )
    return await AuditRun(config).results()


def opened(lines: list[AuditResult]) -> set[tuple[str, str]]:
    return {(line.case, line.app) for line in lines if line.outcome is Outcome.OPEN}


async def test_where_all_is_safe_nothing_is_found_and_what_was_not_tried_is_said(key: AssertionKey) -> None:
    async with AuditLab() as lab:
        lines = await audited(lab, key)
    assert opened(lines) == set()
    safe = {line.case for line in lines if line.outcome is Outcome.SAFE}
    assert safe == {"A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8", "A9", "A10", "A11", "A12", "A14"}
    assert {line.case: line.came_back for line in lines if line.outcome is Outcome.NOT_TRIED} == {
        "A7": "its programs, users' servers too, reach it as the proxy does",
        "A14": "plain http",
    }
    assert len(lab.made) == 2 and lab.users == {}, "both accounts were removed"


@pytest.mark.whole
@pytest.mark.slow
async def test_each_planted_fault_is_found_and_no_other(key: AssertionKey) -> None:
    async with AuditLab([*FAULTS, *OF_HOST]) as lab:
        lines = await audited(lab, key)
    of_host = {("A10", "tb"), ("A13", "left-over"), ("A12", "good")}
    assert opened(lines) == {(case, name) for name, case in FAULTS.items()} | of_host
    assert all(line.advice for line in lines if line.outcome is Outcome.OPEN)


async def test_a_token_that_may_make_no_accounts_leaves_what_they_are_for_untried() -> None:
    async with AuditLab(hub_refuses=True) as lab:
        lines = await audited(lab)
    untried = {line.case: line.came_back for line in lines if line.outcome is Outcome.NOT_TRIED}
    assert set(untried) == {"A2", "A3", "A4", "A5", "A7", "A10", "A11", "A12", "A13", "A14"}
    assert untried["A2"] == "the hub answers POST users with 403"
    assert "--cookie-file" in untried["A11"]
    assert opened(lines) == set() and lab.made == []


async def test_only_the_cases_that_were_asked_for_are_tried() -> None:
    async with AuditLab(["page-open", "header-not-cleared"]) as lab:
        lines = await audited(lab, cases=frozenset({"A1", "A5"}), session_for=None)
        lab.made.clear()
        past = await audited(lab, cases=frozenset({"A7"}))
    assert {line.case for line in past} == {"A7"} and lab.made == [], "it may run in a user's pod"
    assert {line.case for line in lines} == {"A1", "A5"} and opened(lines) == {("A1", "page-open")}
    assert "the gate's own address is not known" in str(lines)


async def test_an_app_that_does_not_answer_is_not_said_to_be_safe() -> None:
    lab = AuditLab()
    lines = await audited(lab)
    assert {line.outcome for line in lines if line.app == "good" and line.case != "A7"} == {Outcome.NOT_TRIED}
    assert EVERYWHERE in {line.app for line in lines}


@pytest.mark.slow
async def test_no_token_and_no_cookie_stands_in_the_report() -> None:
    async with AuditLab(["page-open"]) as lab:
        report = repr(await audited(lab))
    assert "token-of-" not in report and not [each for each in lab.cookies if each in report] and "Bearer" not in report


async def test_the_gates_own_audit_counts_what_is_open_and_says_it(caplog: pytest.LogCaptureFixture) -> None:
    line = AuditResult("A7", "mlflow", "past the proxy", "200", Outcome.OPEN, "Close it.")

    async def finds() -> list[AuditResult]:
        return [line, AuditResult("A1", "mlflow", "a stranger", "401", Outcome.SAFE)]

    async def fails() -> list[AuditResult]:
        raise OSError("no network")

    loop = PeriodicAudit(finds, timedelta(hours=1))
    assert loop.failures is None
    await loop.once()
    assert loop.failures == 1 and "audit A7, app mlflow is open: past the proxy: 200. Close it." in caplog.text
    await PeriodicAudit(finds, timedelta(0)).run()  # returns: only by hand
    loop = PeriodicAudit(fails, timedelta(hours=1))
    await loop.once()
    assert loop.failures is None


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.OPEN, 1), (Outcome.SAFE, 0), (Outcome.NOT_TRIED, 0)])
def test_the_command_ends_with_1_where_something_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, code: int
) -> None:
    async def lines(self: AuditRun) -> list[AuditResult]:
        return [AuditResult("A1", self.config.apps[0].name, "a stranger", "200", outcome, "")]

    monkeypatch.setattr(AuditRun, "results", lines)
    file = tmp_path / "gate.json"
    app = {"name": "mlflow", "title": "MLflow", "where": "https://a.example/mlflow/", "upstream": "http://b:1"}
    known = {"url": "https://a.example/", "hub_url": "https://h.example/hub/", "hub_api_url": "http://h/hub/api"}
    file.write_text(json.dumps({**known, "client_secret": "x", "catalogue": [app]}))
    result = CliRunner().invoke(gate_audit.audit, ["--config", str(file), "--json"])
    assert result.exit_code == code
    assert json.loads(result.output)[0]["outcome"] == outcome.value
    file.write_text("{}")
    assert CliRunner().invoke(gate_audit.audit, ["--config", str(file)]).exit_code == 2
