"""The whole way, as an admin sets it up (``apps_lab.py``): sign-in and sign-out, and the audit of all of it.

People sign in at the hub once; a sign-out there closes app and front page at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import pytest
import requests

from hub_extensions.adapters.apps.audit_run import AuditRun
from hub_extensions.core.sign_on.audit import AuditResult, Outcome
from tests.authenticator import killed_at
from tests.gate.apps_lab import (
    AUDITOR,
    FAULTS,
    HOST,
    LEFT_OVER,
    ONLY_HEADERS,
    OPEN_SERVICE,
    AppsLab,
    apps_lab,
    with_faults,
)
from tests.gate.gate_browser import FETCH, PAGE
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.programs, pytest.mark.whole, pytest.mark.hub, pytest.mark.needs("nginx")]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppsLab]:
    with apps_lab(tmp_path_factory.mktemp("apps"), more=killed_at.config()) as lab:
        yield lab


def test_one_sign_in_opens_ones_own_apps_and_one_sign_out_closes_them_at_once(lab: AppsLab) -> None:
    ada, ben, stranger = lab.place.hub.login("ada"), lab.place.hub.login("ben"), requests.Session()
    assert lab.get(stranger, "/apps/echo/", **PAGE).url.startswith(f"{lab.place.hub.url}/hub/login")
    assert lab.get(stranger, "/apps/echo/", **FETCH, **{"X-Auth-Request-User": "ada"}).status_code == 401
    opened = lab.get(ada, "/apps/echo/runs?x=1", **PAGE, **{"X-Auth-Request-User": "root"})
    assert opened.url == f"{lab.origin}/apps/echo/runs?x=1"
    reached = opened.json()
    sent = {name.lower(): value for name, value in reached["headers"]}
    assert (reached["uri"], sent["x-auth-request-user"]) == ("/apps/echo/runs?x=1", "ada")
    assert not set(ada.cookies.get_dict(HOST).values()) & set(json.dumps(sent).split('"'))
    assert lab.get(ben, "/apps/echo/", **PAGE).status_code == 403

    front = lab.get(ada, "/", **PAGE).text
    assert "Experiments" in front and "Boards" not in front
    assert "Small GPU" in front, "the waits, from the GPU service"
    assert "Experiments" not in lab.get(ben, "/", **PAGE).text

    ada.get(f"{lab.place.hub.url}/hub/logout", timeout=patient(20))
    # what the hub said is believed for a minute; that it is over was reported
    until(lambda: lab.get(ada, "/apps/echo/", **FETCH).status_code == 401)


def opened(results: Iterable[AuditResult]) -> dict[str, set[str]]:
    """app -> the cases that say it is open."""
    found: dict[str, set[str]] = defaultdict(set)
    for result in results:
        if result.outcome is Outcome.OPEN:
            found[result.app].add(result.case)
    return dict(found)


def audited(lab: AppsLab, *names: str, cases: frozenset[str] = frozenset()) -> list[AuditResult]:
    return asyncio.run(AuditRun(lab.audit(*names, cases=cases)).results())


@pytest.mark.hub("6.1")
def test_the_audit_finds_each_planted_fault_and_nothing_where_there_is_none(lab: AppsLab) -> None:
    """The apps with a fault, which stand in the hub too, are those that this catalogue lacks: A13."""
    results = audited(lab, "echo", LEFT_OVER)
    assert opened(results) == {name: {"A13"} for name in FAULTS}
    untried = {(result.case, result.came_back) for result in results if result.outcome is Outcome.NOT_TRIED}
    assert untried == {
        ("A7", "its programs, users' servers too, reach it as the proxy does"),
        ("A14", "plain http"),
        ("A14", "a script of one may read the others in its reader's name"),
    }
    safe = {result.case: result.came_back for result in results if result.outcome is Outcome.SAFE}
    assert set(safe) == {f"A{number}" for number in range(1, 15)} - {"A13"}
    of_assertions = {result.tried for result in results if result.case == "A6" and result.app == "echo"}
    assert of_assertions == {"an assertion that is not the gate's: 7 ways"}, "two of them signed by the gate's own key"

    hub, app = lab.place.hub, lab.settings.catalogue[0].upstream
    at_hub = {"Authorization": f"Bearer {AUDITOR}"}
    service = f"{hub.url}/hub/api/services/{OPEN_SERVICE}"
    made = requests.post(service, json={"url": app, "api_token": "0" * 32}, headers=at_hub, timeout=patient(30))
    assert made.status_code == 201, made.text
    try:
        requests.post(f"{hub.url}/hub/api/proxy", headers=at_hub, timeout=patient(30))  # it has its routes at once
        public = f"{hub.url}/services/{OPEN_SERVICE}/"
        until(lambda: requests.get(public, timeout=patient(20)).status_code == 200)
        with lab.nginx.changed(with_faults(lab.nginx.text, app, lab.nginx.folder / "cache")):
            cases = frozenset(f"A{number}" for number in range(1, 15)) - {"A3"}
            found = opened(audited(lab, *FAULTS, "echo", cases=cases))
            headers = opened(audited(lab, *ONLY_HEADERS, "echo", cases=frozenset({"A3"})))
    finally:
        requests.delete(service, headers=at_hub, timeout=patient(30))
    for name, said in headers.items():
        found.setdefault(name, set()).update(said)
    assert found == {**FAULTS, OPEN_SERVICE: {"A10"}, LEFT_OVER: {"A13"}}


@pytest.mark.hub("6.1")
def test_whatever_is_killed_nobody_comes_in_and_nobody_has_to_sign_in_again(lab: AppsLab) -> None:
    hub, stranger, ben = lab.place.hub, requests.Session(), lab.place.hub.login("ben")
    ada, cem = hub.login("ada"), hub.login("cem")
    for browser in (ada, cem, ben):
        lab.get(browser, "/apps/echo/", **PAGE)
    copy = requests.Session()
    copy.cookies.update(cem.cookies)
    out = [stranger, ben]

    def back(also: Callable[[], bool] = lambda: True) -> bool:
        """Ada is in again, with the cookie that she had; whoever was out is out, whenever it is looked."""
        cookies = ada.cookies.get_dict(HOST)
        assert {lab.status(each) for each in out} <= {0, 401, 403, 503}
        is_in = lab.status(ada) == 200 and also()
        assert ada.cookies.get_dict(HOST) == cookies
        return is_in

    def stands_still(pids: list[int]) -> None:
        """Whoever is out is out meanwhile, too, and whoever is in is in again when it goes on."""
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            assert {lab.status(each, seconds=0.2) for each in out} <= {0, 401, 403, 503}
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        until(back, 60)

    assert back() and lab.status(copy) == 200
    for slow in (lab.nginx.pids, lab.gates(), [hub.process.pid]):  # type: ignore[union-attr]
        stands_still(slow)
    lab.nginx.end(signal.SIGKILL)
    assert lab.status(ada) == 0
    lab.nginx.start()
    until(back)
    gates = lab.gates()
    os.kill(*gates, signal.SIGKILL)
    until(lambda: lab.gates() not in ([], gates) and back(), 60)
    assert "died of SIGKILL" in hub.log(), "by its supervisor: the hub looks every 30 s"
    hub.kill()  # the gate that it started goes with it
    until(lambda: lab.status(ada) == 503)
    hub.start()
    until(back, 60)
    # signed out, and the hub dies before it has told the gate
    killed_at.dies_before(hub, "the gate is told")
    with contextlib.suppress(requests.ConnectionError):
        cem.get(f"{hub.url}/hub/logout", timeout=patient(20))
    until(lambda: lab.status(copy) == 503, 60, "hub and gate are dead")
    out += [cem, copy]
    killed_at.again(hub)
    until(back, 60)
    assert [lab.status(each) for each in out] == [401, 403, 401, 401]
    assert ada.get(f"{hub.url}/hub/home", allow_redirects=False, timeout=patient(20)).status_code == 200
