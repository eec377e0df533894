"""Health and metrics. Neither contains names of users."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from hub_extensions.adapters.hub.jupyterhub_api import HubAway
from hub_extensions.core.access import ApiAction
from hub_extensions.core.signing import clock_problem
from hub_extensions.hub_service.http.api.base import JsonRoute
from hub_extensions.hub_service.http.api.requests import NotReady, Ready
from hub_extensions.hub_service.http.auth import Who
from hub_extensions.hub_service.http.metrics import registry


class HealthRoute(JsonRoute):
    """GET: whether the service is ready, for everybody; the hub and a token with ``read:hub`` also get the details."""

    who = Who.ANYBODY

    async def get(self) -> None:
        """Answer with status 200 if the service is ready, and 503 if not."""
        listed, signed = self.engine.state.hub_view.clock_ahead, self.parts.auth.signatures.hub_clock_ahead
        ahead = signed if listed is None else listed
        clock = None if ahead is None else clock_problem(ahead) or "as the hub's"
        health = replace(self.engine.health(), clock=clock)
        status = 200 if health.ready else 503
        read_only = self.engine.read_only
        for_anybody: Ready | NotReady = NotReady(False, read_only) if read_only else Ready(health.ready)
        self.answer(health if await self._may_see_more() else for_anybody, status)

    async def _may_see_more(self) -> bool:
        if self.signed is not None:
            return True
        try:
            return await self.parts.auth.may_read_health(self.request.headers)
        except HubAway:
            # the caller cannot be identified now; readiness is for everybody
            return False


class MetricsRoute(JsonRoute):
    """GET: metrics in Prometheus' text format."""

    who = Who.METRICS
    action = ApiAction.METRICS

    async def get(self) -> None:
        self.set_header("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)
        self.finish(generate_latest(registry(self.engine)))
