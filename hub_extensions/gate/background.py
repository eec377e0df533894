"""The gate's background work: health checks of apps, the audit, and reading a changed catalogue."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from hub_extensions.adapters.apps.audit_accounts import AuditGate, AuditHub
from hub_extensions.adapters.apps.audit_run import AuditConfig, AuditRun, own_addresses
from hub_extensions.adapters.hub.person_sources import PersonSources
from hub_extensions.core.sign_on.apps import AppCatalogue
from hub_extensions.core.sign_on.audit import AuditResult
from hub_extensions.gate.audit_loop import PeriodicAudit
from hub_extensions.gate.catalogue import follow_catalogue
from hub_extensions.gate.gate import Gate
from hub_extensions.gate.health import HealthWatch
from hub_extensions.gate.others import follow_others
from hub_extensions.gate.portal import PortalParts, portal_routes


@dataclass(frozen=True)
class GateBackground:
    """The front page and the background work that a gate runs in addition to its server. Made by `background_of`.

    Attributes:
        portal: the handlers of the front page, as tornado takes them; empty without a front page.
        work: coroutines, each of which runs until it is cancelled.
    """

    portal: Sequence[Any]
    work: Sequence[Coroutine[Any, Any, None]]


def background_of(gate: Gate) -> GateBackground:
    """Build the front page and the background work of a gate from its settings."""
    settings, health = gate.settings, HealthWatch(gate.settings.catalogue)

    def use(apps: AppCatalogue) -> None:
        gate.use_catalogue(apps)
        health.use(apps)

    gate.audits = PeriodicAudit(lambda: _audit(gate), settings.audit)
    sources = PersonSources(settings.hub_api_url, settings.gpu_service_url)
    parts = PortalParts(health, sources, settings.hub_url, has_sessions=bool(settings.ended_secret))
    work = [follow_catalogue(settings, use), gate.audits.run()]
    if gate.sessions.is_shared:
        work.append(follow_others(gate))
    if settings.portal:
        work.append(health.run())
    return GateBackground(portal_routes(parts) if settings.portal else (), work)


async def _audit(gate: Gate) -> Sequence[AuditResult]:
    settings = gate.settings
    config = AuditConfig(
        tuple(gate.apps.values()),
        settings.url,
        settings.hub_url,
        AuditHub(settings.hub_api_url, settings.client_secret),
        cookie_name=gate.cookie_name,
        from_gate=True,
        addresses=await asyncio.to_thread(own_addresses),  # a slow name server must not block the event loop
        session_for=AuditGate(settings.connect_url, settings.client_secret).session_for
        if settings.connect_url
        else None,
        key=gate.signer.key,
    )
    return await AuditRun(config).results()
