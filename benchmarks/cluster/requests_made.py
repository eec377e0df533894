"""What hub and service asked of the API server, from its own audit log: by user agent and verb."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path

POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {{level: Metadata, users: ["system:serviceaccount:{namespace}:hub"]}}
  - {{level: None}}
"""
SERVICE = "jupyterhub-gpu"


class AuditLog:
    """`flags` are the API server's; `here` marks a place in the log."""

    def __init__(self, folder: Path, namespace: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        policy = folder / "audit-policy.yaml"
        policy.write_text(POLICY.format(namespace=namespace), encoding="utf-8")
        self._log = folder / "audit.log"
        self.flags = [f"--audit-policy-file={policy}", f"--audit-log-path={self._log}"]

    def here(self) -> int:
        """The end of the log now."""
        return self._log.stat().st_size if self._log.exists() else 0

    def first_list(self) -> float:
        """When the service first asked for a list: the wall clock's seconds."""
        for line in self._log.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["verb"] == "list" and event.get("userAgent", "").startswith(SERVICE):
                return datetime.fromisoformat(event["requestReceivedTimestamp"].replace("Z", "+00:00")).timestamp()
        raise LookupError("the service has asked for no list")

    def since(self, mark: int) -> Counter[tuple[str, str, str]]:
        """(who, verb, what) -> how often since then. A watch counts when it begins."""
        found: Counter[tuple[str, str, str]] = Counter()
        with self._log.open("rb") as log:
            log.seek(mark)
            for line in log:
                event = json.loads(line)
                begins = event["verb"] == "watch"
                if event["stage"] != ("ResponseStarted" if begins else "ResponseComplete"):
                    continue
                who = "service" if event.get("userAgent", "").startswith(SERVICE) else "hub"
                found[who, event["verb"], event.get("objectRef", {}).get("resource", "?")] += 1
        return found


def name_counts(counted: Counter[tuple[str, str, str]]) -> str:
    """In a line; "none"."""
    return ", ".join(f"{who} {verb} {what} {n}" for (who, verb, what), n in sorted(counted.items())) or "none"
