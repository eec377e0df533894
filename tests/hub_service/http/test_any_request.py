"""Whatever the OpenAPI document allows or forbids, from whomever: the real service answers, and never with 5xx.

schemathesis makes the requests: what the document describes, and what breaks its rules. A bounded number, the same ones
in every run. The service is the real one over simulated GPUs, in a thread; its hub knows some tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, given
from requests.exceptions import InvalidHeader, InvalidURL
from tornado.netutil import bind_sockets
from tornado.web import create_signed_value

from hub_extensions.adapters.hub.jupyterhub_api import HubApi
from hub_extensions.adapters.store import Store
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.hub_service.engine.engine import Engine
from hub_extensions.hub_service.engine.forecasts.calculator import ForecastCalculator
from hub_extensions.hub_service.http import doorway, limits
from hub_extensions.hub_service.http.app import make_server
from hub_extensions.hub_service.http.auth import cookie_secret
from hub_extensions.hub_service.http.openapi import document
from hub_extensions.hub_service.serve import make_parts, open_gpus
from hub_extensions.hub_service.setup.settings import Settings
from tests.examples import many
from tests.fakes.hub_of_tokens import ACCESS, SERVICE_TOKEN, HubOfTokens
from tests.fakes.signed import Signs
from tests.hub_service.conftest import ADMINS, OWN_SERVERS
from tests.patience import patient, until

pytestmark = pytest.mark.whole

SECRET = "hub-secret-" * 4
METRICS = "metrics-token-" * 2
EXAMPLES = 10
NOTHING_TO_TAKE = ("GET /health", "GET /metrics")
HUB = Signs(SECRET)
CALLERS: dict[str, dict[str, str]] = {
    "the hub": {},
    "a server": {"Authorization": "Bearer ada-server"},
    "a user": {"Authorization": "token ada-token"},
    "an admin": {"Authorization": "token root-token"},
    "a browser": {},
    "Prometheus": {"Authorization": f"Bearer {METRICS}"},
}


@dataclass
class RealService:
    """The service in a thread of its own, and a ticket and a lease that it has."""

    folder: Path
    url: str = ""
    ticket: str = ""
    lease: str = ""
    _loop: asyncio.AbstractEventLoop | None = None
    _stop: asyncio.Event | None = None
    _up: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._up.wait(patient(30))

    def stop(self) -> None:
        assert self._loop is not None and self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(patient(30))

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        hub = known_hub()
        settings_ = Settings(
            state_dir=str(self.folder),
            hub_secret=SECRET,
            api_token=SERVICE_TOKEN,
            metrics_token=METRICS,
            offers=OfferConfig(simulate="lab-a100"),
            hub_api_url=hub.url,
        )
        store, api, gpus = Store.open(settings_.store_url), HubApi(hub.url, SERVICE_TOKEN), open_gpus(settings_)
        engine = await Engine.open(settings_, store, api, gpus, calculator=ForecastCalculator())
        engine.start()
        parts = make_parts(settings_, engine, api)
        server = make_server(parts)
        sockets = bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}{parts.prefix.rstrip('/')}"
        self._up.set()
        await self._stop.wait()
        parts.closing.set()
        server.stop()
        await server.close_all_connections()
        await engine.stop()
        api.close()
        await hub.stop()
        gpus.close()
        store.close()


def known_hub() -> HubOfTokens:
    hub = HubOfTokens()
    hub.add_user("ada", groups=("course",))
    hub.add_user("root", admin=True)
    hub.add_token("ada-token", "ada", ACCESS, *(f"{scope}!user=ada" for scope in OWN_SERVERS))
    hub.add_token("root-token", "root", ACCESS, *OWN_SERVERS, *ADMINS)
    hub.add_token("ada-server", "ada", "access:servers!server=ada/", ACCESS)
    hub.start()
    return hub


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    made = RealService(tmp_path_factory.mktemp("service"))
    with pytest.MonkeyPatch.context() as patched:
        # one who asks a thousand times a second is a flood, and here is meant to be answered at once
        patched.setattr(limits, "REFUSALS_A_SECOND", 10**9)
        patched.setattr(doorway, "CALM_A_SECOND", 10**9)
        made.start()
        until(lambda: requests.get(f"{made.url}/health", timeout=patient(5)).ok, 30, "it is ready")
        with_a_ticket(made)
        yield made
        made.stop()


def with_a_ticket(made: RealService) -> None:
    ask = {"user": "ada", "server": "", "offers": ["mig-1g.5gb"], "options": {}, "groups": []}
    told = requests.post(f"{made.url}/hub/tickets", json=ask, auth=HUB, timeout=patient(10)).json()
    made.ticket = told["ticket"]
    leases = requests.get(f"{made.url}/api/leases", headers=CALLERS["an admin"], timeout=patient(10)).json()
    made.lease = leases[0]["lease"]


def sent(service: RealService, session: requests.Session, case: Any, who: str) -> int | None:
    """The answer's status; None: the library will not send such a thing."""
    if case.path_parameters and len(case.path_parameters.get("ticket", case.path_parameters.get("lease", ""))) % 2:
        case.path_parameters = {"ticket": service.ticket, "lease": service.lease}
    request = case.as_transport_kwargs(base_url=service.url)
    if who in CALLERS:
        request["headers"].pop("Authorization", None)
        request["headers"].update(CALLERS[who])
        request["cookies"] = cookies() if who == "a browser" else {}
        request["auth"] = HUB if who == "the hub" else None
    with (
        contextlib.suppress(InvalidHeader, InvalidURL, UnicodeError),
        session.request(**request, timeout=patient(20), stream=True) as answer,
    ):
        if answer.status_code >= 500:
            # the words are for whoever reads the failure
            raise AssertionError(f"{who}: {case.method} {request['url']}: {answer.status_code} {answer.text}")
        return answer.status_code
    return None


def cookies() -> dict[str, str]:
    signed = create_signed_value(cookie_secret(SECRET), "service-gpu", "ada-token")
    return {"service-gpu": signed.decode()}


@pytest.mark.parametrize("who", [*CALLERS, "nobody"])
def test_no_request_of_anybody_is_answered_with_a_fault_of_ours(
    service: RealService, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    import schemathesis  # takes seconds to load: here only one worker waits for it

    statuses: list[int | None] = []
    schema = schemathesis.openapi.from_dict(document())
    caplog.set_level(logging.WARNING)
    with requests.Session() as session:
        for found in schema.get_all_operations():
            operation = found.ok()
            for mode in schemathesis.GenerationMode:
                if mode is schemathesis.GenerationMode.NEGATIVE and operation.label in NOTHING_TO_TAKE:
                    continue  # it takes nothing that could be wrong

                @many(
                    EXAMPLES,
                    database=None,
                    derandomize=True,
                    suppress_health_check=list(HealthCheck),
                )
                @given(case=operation.as_strategy(generation_mode=mode))
                def ask(case: Any) -> None:
                    statuses.append(sent(service, session, case, who))

                ask()
    assert len(statuses) > 150
    answered = [status for status in statuses if status is not None]
    assert len(answered) > len(statuses) * 0.8
    assert (200 if who in CALLERS else 403) in answered
    assert "Traceback" not in caplog.text
