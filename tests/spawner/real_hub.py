"""Configuration texts for real hubs with our demo spawner and a small service, shared by the tests beside it."""

from __future__ import annotations

from tests.fakes.service import SECRET, GpuServiceInATest


def ours(service: GpuServiceInATest, more: str = "") -> str:
    """What ``configure(c)`` sets for the spawner, by hand, so that these tests need no real service."""
    return f"""
import hub_extensions.spawner.pages.spawn_form as form
c.JupyterHub.spawner_class = "hub_extensions.spawner.local.GpuDemoSpawner"
c.GpuSpawnerMixin.gpu_service_url = {service.url!r}
c.GpuSpawnerMixin.gpu_hub_secret = {SECRET!r}
c.JupyterHub.template_paths = [str(form.TEMPLATES)]
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 1}}
{more}
"""
