"""What is there before anybody looks: the time to import each extension, and the JavaScript a page loads."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

from benchmarks.figures import quantile
from benchmarks.panel.servers import EXTENSIONS, eight_gpus
from tests.fakes.user_server import ROOT
from tests.machine_needs import built_panel

STARTS = 7
READER = "hub_extensions.adapters.nvml.reader"
FOLDERS = {"nvdashboard": "jupyterlab-nvdashboard", "resource-usage": "@jupyter-server/resource-usage"}
IMPORT = """
import importlib, sys, time
from time import perf_counter
began = perf_counter()
import jupyter_server.serverapp
import jupyter_server.extension.application
own = perf_counter() - began
began = perf_counter()
module = importlib.import_module(sys.argv[1])
points = getattr(module, "_jupyter_server_extension_points", None) or module._jupyter_server_extension_paths
for point in points():
    importlib.import_module(point["module"])
for later in sys.argv[2:]:
    importlib.import_module(later)
print(own, perf_counter() - began)
"""
Table = tuple[list[str], list[list[str]]]


def imports(python: str, library: Path) -> Table:
    """Each extension as a server loads it, in fresh interpreters in turn, after the server's own modules."""
    machine = eight_gpus(library)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(library), "FAKE_NVML_STATE": str(machine.path)}
    own: list[float] = []
    modules = {name: [module] for name, module in EXTENSIONS.items() if module}
    modules["ours and what reads the driver"] = [
        *modules["ours"],
        READER,
    ]  # that one in the sampler's own thread, later
    took: dict[str, list[float]] = {name: [] for name in modules}
    for number in range(STARTS + 1):
        for name, times in took.items():
            command = [python, "-c", IMPORT, *modules[name]]
            said = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.split()
            if number:  # the first of each only warms the disk
                own.append(float(said[0]))
                times.append(float(said[1]))
    rows = [_said("jupyter_server itself", own), *(_said(name, times) for name, times in took.items())]
    return ["import of", "starts", "p50 ms", "p95 ms"], rows


def bundles(python: str) -> Table:
    """All JavaScript of each panel as installed."""
    peers = Path(python).parents[1] / "share" / "jupyter" / "labextensions"
    places = {"ours": built_panel(), **{name: peers / folder for name, folder in FOLDERS.items()}}
    rows = []
    for name, place in places.items():
        files = [file.read_bytes() for file in sorted((place / "static").glob("*.js"))]
        packed = [len(gzip.compress(file, 9, mtime=0)) for file in files]
        rows.append(
            [name, str(len(files)), *(f"{sum(sizes):,}" for sizes in (map(len, files), packed)), f"{max(packed):,}"]
        )
    return ["JavaScript of", "files", "bytes", "gzip -9", "largest file, gzip -9"], rows


def _said(name: str, seconds: list[float]) -> list[str]:
    return [name, str(len(seconds)), *(f"{quantile(seconds, share) * 1000:.1f}" for share in (0.5, 0.95))]
