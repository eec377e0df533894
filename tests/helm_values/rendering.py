"""Values files to a running hub, without the chart: our reading of them written as a configuration file and started.

A test's machine differs from a cluster in some values (addresses, storage, the cluster's scheduler for users): these
are one more values file, the last (``Machine.values``), so that everything else is as an admin would have it. With the
chart at hand (``--chart``), ``of_chart`` says what its own configuration makes of the same values.
"""

from __future__ import annotations

import base64
import copy
import importlib
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from traitlets.config import Config

from hub_extensions.tools.helm_check.chart_config import merge
from hub_extensions.tools.helm_check.chart_facts import packed_facts
from tests.helm_values.chart_config import config_files, extra_config, hub_config
from tests.hubs import ROOT

OVERLAYS = ROOT / "helm-values"
EXAMPLES = OVERLAYS / "examples"
Values = Mapping[str, Any]


def read(*files: Path) -> list[dict[str, Any]]:
    """The content of values files."""
    return [yaml.safe_load(file.read_text(encoding="utf-8")) or {} for file in files]


def over_chart(*given: Values) -> dict[str, Any]:
    """Values files over the chart's own."""
    return merge([copy.deepcopy(packed_facts().defaults), *given])


def as_file(values: Values, *, namespace: str, tokens: Mapping[str, str]) -> str:
    """The text of a ``jupyterhub_config.py`` that is to its hub what the chart's is: our reading, then the Python."""
    config = hub_config(values, namespace=namespace, release="jhub", tokens=tokens)
    python = [*config_files(values), *extra_config(values)]
    return f"""
import json
c = get_config()  # noqa
for section, settings in json.loads({json.dumps(config)!r}).items():
    c[section].update(settings)
for name, text in json.loads({json.dumps(python)!r}):
    print("Loading", name, flush=True)
    exec(compile(text, name, "exec"))
"""


# ------------------------------------------------------------------ the chart's own


def rendered(chart: Path, values: Values) -> list[dict[str, Any]]:
    """All objects that the chart makes of values given with ``-f``, as Helm renders them."""
    import helm_python

    opened = helm_python.Chart.load(str(chart))
    texts = opened.render(dict(values), name="jhub", namespace="jhub")
    objects = (each for name, text in texts.items() if "NOTES" not in name for each in yaml.safe_load_all(text))
    return [each for each in objects if each]


def of_chart(chart: Path, values: Values, folder: Path) -> tuple[Config, dict[str, Any], dict[str, str]]:
    """What the chart's own configuration sets for its hub before the admin's Python; its values; its services' tokens.

    Its files are read from `folder` instead of the places where the hub's pod has them; the one line that asks for
    pycurl, which is not needed to read a configuration, is left out.
    """
    objects = {key: each["data"] for each in rendered(chart, values) for key in each.get("data") or ()}
    secret = {key: base64.b64decode(text).decode() for key, text in objects["values.yaml"].items()}
    merged = yaml.safe_load(secret["values.yaml"])
    without = {**merged, "hub": {**merged["hub"], "extraConfig": {}}}
    texts = objects["jupyterhub_config.py"]
    for below, content in (("secret", secret | {"values.yaml": yaml.safe_dump(without)}), ("config", texts)):
        (folder / below).mkdir(parents=True)
        for key, text in content.items():
            (folder / below / key).write_text(text, encoding="utf-8")
    for name in ("z2jh.py", "jupyterhub_config.py"):
        text = texts[name].replace("/usr/local/etc/jupyterhub", str(folder))
        (folder / name).write_text(re.sub(r"^AsyncHTTPClient\.configure.*$", "", text, flags=re.MULTILINE))
    tokens = {
        key.removeprefix("hub.services.").removesuffix(".apiToken"): text
        for key, text in secret.items()
        if key.startswith("hub.services.")
    }
    return _run(folder), merged, tokens


def _run(folder: Path) -> Config:
    """Runs the chart's configuration as JupyterHub does."""
    path = folder / "jupyterhub_config.py"
    config = Config()
    kept = os.environ.copy()
    os.environ["POD_NAMESPACE"] = "jhub"
    for service, port in (("proxy-api", "8001"), ("hub", "8081")):
        name = (folder / "config" / service).read_text(encoding="utf-8")
        os.environ[f"{name.upper().replace('-', '_')}_SERVICE_PORT"] = port
    try:
        code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
        exec(code, {"get_config": lambda: config, "__file__": str(path), "__name__": "jupyterhub_config"})
    finally:
        os.environ.clear()
        os.environ.update(kept)
        sys.path.remove(str(folder))
        sys.modules.pop("z2jh", None)
        importlib.invalidate_caches()
    return config
