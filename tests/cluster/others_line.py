"""A hub that leaves its line to somebody else (Kueue, KAI), on played nodes; and what its users are told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from tests.cluster.control_plane import ControlPlane
from tests.cluster.place import ClusterPlace
from tests.hubs import until

START_SECONDS = 8


class OthersLine(ClusterPlace):
    """``where``: labels of the played nodes its servers go to. ``port``: at which somebody answers for its pods."""

    def __init__(
        self,
        control_plane: ControlPlane,
        namespace: str,
        folder: Path,
        *,
        where: Mapping[str, str],
        port: int,
        config: str,
    ) -> None:
        settings = f"""
c.KubeSpawner.port = {port}
c.KubeSpawner.node_selector = {dict(where)!r}
c.KubeSpawner.start_timeout = {START_SECONDS}
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 1}}
{config}
"""
        super().__init__(control_plane, namespace, folder, config=settings)

    def up(self, user: str, offer: str) -> None:
        """Start a server and wait until it is ready."""
        self.hub.spawn(user, {"offer": offer})
        self.hub.wait_ready(user, seconds=60)

    def lease_states(self) -> dict[str, str]:
        """user -> state of the lease."""
        return {lease["user"]: lease["state"] for lease in self.as_admin("api/leases")}

    def said(self, user: str) -> dict[str, Any]:
        """What the waiting page shows now."""
        last: dict[str, Any] = {}
        try:
            for event in self.hub.progress(user, seconds=0.5):
                last = event
        except requests.RequestException:
            return last  # no news: the last one is what it shows
        return last

    def until_said(self, user: str, text: str, seconds: float = 30.0) -> dict[str, Any]:
        """Wait until the waiting page says this. Gives the event."""

        def look() -> dict[str, Any]:
            said = self.said(user)
            return said if text in said.get("html_message", "") else {}

        return until(look, seconds, lambda: f"{user} is told: {text}; but: {self.said(user)}")

    def notices(self, user: str) -> list[str]:
        """What the user's next form says of servers that ended."""
        answer = self.service(f"hub/form?user={user}")
        answer.raise_for_status()
        return [notice["text"] for notice in answer.json()["notices"]]

    def ends(self) -> dict[str, float]:
        """word -> how many servers ended by themselves so, by the service's metrics."""
        start = "jupyterhub_gpu_server_ends_total{reason="
        lines = [line for line in self.service("metrics").text.splitlines() if line.startswith(start)]
        return {line.split('"')[1]: float(line.rsplit(" ", 1)[1]) for line in lines}
