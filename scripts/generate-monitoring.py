"""Write the manifests of dashboard and alerts from the files in ``docs/monitoring``: a ConfigMap that Grafana's sidecar
finds by its label, and a PrometheusRule for the Prometheus operator.

``--check`` changes nothing and fails when one is not what its source says.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "docs" / "monitoring"
MANIFESTS = ROOT / "helm-values" / "manifests"
MADE = "# Made by scripts/generate-monitoring.py from {source}: change it there.\n"
DASHBOARD = """\
# The Grafana dashboard, for a Grafana whose sidecar looks for this label (that of kube-prometheus-stack does).
# Change before, where yours differ: the namespace (jhub) and the label.
{made}apiVersion: v1
kind: ConfigMap
metadata:
  name: jupyterhub-gpu-dashboard
  namespace: jhub
  labels:
    grafana_dashboard: "1"
data:
  jupyterhub-gpu.json: |
{text}"""
RULES = """\
# The alerts, for the Prometheus operator. Change before, where yours differ: the namespace (jhub), and the labels
# that your Prometheus selects rules by.
{made}apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: jupyterhub-gpu
  namespace: jhub
spec:
{text}"""


def main() -> int:
    """Write the files, or with ``--check`` name those that are old."""
    wanted = manifests()
    found = {name: MANIFESTS / name for name in wanted}
    old = [n for n, path in found.items() if not path.exists() or path.read_text(encoding="utf-8") != wanted[n]]
    for name in old:
        if "--check" not in sys.argv:
            found[name].write_text(wanted[name], encoding="utf-8")
        print(found[name].relative_to(ROOT))
    return 1 if old and "--check" in sys.argv else 0


def manifests() -> dict[str, str]:
    """What the files have to say, by their names."""
    return {
        "grafana-dashboard.yaml": manifest(DASHBOARD, "grafana-dashboard.json", "    "),
        "prometheus-rules.yaml": manifest(RULES, "alerts.yaml", "  "),
    }


def manifest(frame: str, source: str, indent: str) -> str:
    """The file of `docs/monitoring` within its manifest; comments at its head stay out."""
    lines = (SOURCES / source).read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(indent + line for line in lines if not line.startswith("#"))
    return frame.format(made=MADE.format(source=f"docs/monitoring/{source}"), text=text)


if __name__ == "__main__":
    sys.exit(main())
