"""``helm check --evaluate``: runs the administrator's Python in the values to find which settings it makes.

``sandbox.py`` runs the code in a process of its own, for at most 20 s and in 512 MB, with an empty home and only the
variables of ``hub.extraEnv``. If the kernel allows it, the process has no network. It can read this machine's files.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hub_extensions.tools.helm_check import sandbox
from hub_extensions.tools.helm_check.chart_config import object_name
from hub_extensions.tools.helm_check.model import Change, Evaluation, Findings, HookGpu, Release
from hub_extensions.tools.helm_check.trees import Path as KeyPath
from hub_extensions.tools.helm_check.trees import as_tree

SECONDS = 20
MEMORY_BYTES = 512 * 1024 * 1024
PLACE = "/usr/local/etc/jupyterhub"  # where the chart mounts the files that its configuration reads
UNKNOWN = "unknown"  # the value of a variable that comes from a Secret, and of the chart's own secrets
TOKEN = "0" * 64  # 32 bytes in hexadecimal, as the chart makes each token and key
ENTRY_FIX = "Correct it, or try it where the hub runs."


def evaluate(
    release: Release, base: Mapping[str, Any], chart_files: Mapping[str, str], seconds: float = SECONDS
) -> Evaluation:
    """Run the chart's configuration and then the administrator's Python, such as ``hub.extraConfig``.

    Args:
        release: the release to check, with the values that contain the Python.
        base: the hub's settings that follow from the values without any code; used if no chart is given.
        chart_files: the chart's ``jupyterhub_config.py`` and ``z2jh.py``; empty if no chart is given.
        seconds: how long the code may run after the imports of the sandbox.
    """
    labels = {".".join(path): path for path, _ in release.python}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "home").mkdir()
        if chart_files:
            _lay_out(folder, release, chart_files)
        job = {
            "path": [each or os.getcwd() for each in sys.path],
            "codes": {".".join(path): code.replace(PLACE, made) for path, code in release.python},
            "config_file": str(folder / "jupyterhub_config.py") if chart_files else "",
            "base": base,
            "values": release.values,
            "result": str(folder / "result.json"),
            "memory_bytes": MEMORY_BYTES,
            "seconds": SECONDS,
        }
        in_time = _run(job, folder, _environment(release), seconds)
        try:
            result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            result = {}
    return _evaluation(result, labels, in_time)


def _lay_out(folder: Path, release: Release, chart_files: Mapping[str, str]) -> None:
    """Write the files that the chart's configuration reads, as the chart mounts them in the hub's pod.

    Args:
        folder: a temporary folder, to which the files are written.
        release: the release to check, from whose values the contents of Secrets and ConfigMaps follow.
        chart_files: name -> text of the chart's own Python files.
    """
    for name, text in chart_files.items():
        text = re.sub(r"(?m)^AsyncHTTPClient\.configure.*$", "", text)  # needs pycurl, sets nothing here
        (folder / name).write_text(text.replace(PLACE, str(folder)), encoding="utf-8")
    hub = {**release.tree("hub"), "extraConfig": {}}
    facts = {"Name": release.facts.chart, "Version": release.facts.version}
    values = {**release.values, "hub": hub, "Chart": facts, "Release": {"Name": release.name}}
    keys = release.at("hub.config.CryptKeeper.keys") or TOKEN
    secrets = {
        "values.yaml": json.dumps(values),
        "hub.config.JupyterHub.cookie_secret": TOKEN,
        "hub.config.CryptKeeper.keys": keys if isinstance(keys, str) else ";".join(map(str, keys)),
    }
    for name, service in release.tree("hub.services").items():
        own = as_tree(service).get("apiToken") or as_tree(service).get("api_token")
        secrets[f"hub.services.{name}.apiToken"] = str(own or TOKEN)
    shorts = {name for text in chart_files.values() for name in re.findall(r'get_name(?:_env)?\("([\w-]+)"', text)}
    names = {short: object_name(release.values, release.name, short) for short in shorts}
    for below, content in (("secret", secrets), ("config", names)):
        (folder / below).mkdir()
        for name, text in content.items():
            (folder / below / name).write_text(text, encoding="utf-8")


def _environment(release: Release) -> dict[str, str]:
    """Return the environment variables of the hub's container, as far as they follow from the values."""
    given = {
        str(name): str(value.get("value", UNKNOWN)) if isinstance(value, Mapping) else str(value)
        for name, value in release.variables("hub.extraEnv").items()
        if value is not None and name and "=" not in str(name)
    }
    ports = {"proxy-api": "8001", "proxy-public": "80", "hub": "8081"}
    names = {short: object_name(release.values, release.name, short) for short in ports}
    services = {f"{names[short].upper().replace('-', '_')}_SERVICE_PORT": port for short, port in ports.items()}
    return {**services, "POD_NAMESPACE": release.namespace, **given}


def _run(job: Mapping[str, Any], folder: Path, environment: Mapping[str, str], seconds: float) -> bool:
    """Run the sandbox process; return whether it ended in time. Afterwards all its processes are killed.

    Args:
        job: the input of the sandbox: the pieces of code, the hub's settings, and the file for the result.
        folder: the temporary folder of the run, with the home of the process.
        environment: environment variables of the process.
        seconds: how long the process may run after its imports.
    """
    fixed = {"HOME": str(folder / "home"), "PATH": os.defpath, "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-I", "-B", sandbox.__file__],
        env={**environment, **fixed},
        cwd=folder / "home",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(job, default=str).encode())
            process.stdin.close()
        process.stdout.read()  # closed when the imports are done: their time does not count
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def _evaluation(result: Mapping[str, Any], labels: Mapping[str, KeyPath], in_time: bool) -> Evaluation:
    """Convert the result of the sandbox to an `Evaluation`.

    The sandbox names each piece of code by a label. The evaluation names it by its key in the values.

    Args:
        result: the content of the file that the sandbox has written; empty if it has written none.
        labels: label -> key of the piece of code.
        in_time: whether the sandbox process ended within its time limit.
    """

    def path(label: str) -> KeyPath:
        return labels.get(label, ("hub", "config"))

    def rows(name: str) -> list[Any]:
        return [(path(label), *rest) for label, *rest in result.get(name, ())]

    unfinished = "" if result.get("ended") else str(result.get("running") or "jupyterhub_config.py")
    return Evaluation(
        changes=[Change(*row) for row in rows("changes")],
        hooks=[HookGpu(*row) for row in rows("hooks")],
        failed=rows("failed"),
        missing=rows("missing"),
        configured=[path(label) for label in result.get("configured", ())],
        sentences=[(rule, text) for rule, text in result.get("sentences", ())],
        unfinished=path(unfinished) if unfinished else None,
        in_time=in_time,
        isolated=bool(result.get("isolated")),
    )


def with_changes(release: Release, evaluation: Evaluation) -> Release:
    """Return the release with the settings of the administrator's code in ``hub.config``, where all rules see them.

    Args:
        release: the release to check.
        evaluation: the result of running the code, with the changed settings.
    """
    sections: dict[str, Any] = {**release.tree("hub.config")}
    for change in evaluation.changes:
        section = sections.get(change.section, {})
        if isinstance(section, Mapping):
            sections[change.section] = {**section, change.trait: change.value}
    values = {**release.values, "hub": {**release.tree("hub"), "config": sections}}
    return replace(release, values=values, evaluation=evaluation)


def check_evaluation(release: Release) -> Findings:
    """Yield a finding for each piece of the administrator's Python whose effect is not known, or not completely.

    Such a piece failed, did not end in time, or imports a module that is not installed here.
    """
    evaluation = release.evaluation
    if evaluation is None:
        return
    for path, module in evaluation.missing:
        text = f"It imports {module}, which is not installed here: what it does with {module} is not judged."
        fix = f"Install {module} where this command runs, to have it judged too."
        yield release.found("missing-module", path, text, fix, "look at")
    for path, kind, line, module in evaluation.failed:
        where = f" in its line {line}" if line else ""
        if module:
            text = f"It ends{where}, because {module} is not installed here: what comes after that is not judged."
            yield release.found("missing-module", path, text, f"Install {module} where this command runs.", "look at")
        elif path[1] == "config":
            text = f"The chart's configuration ends with {kind}{where} before any code of yours: the hub may not start."
            yield release.found("hub-start", path, text, "Correct the values.", "look at")
        elif kind != "SyntaxError":  # reported by another rule, without --evaluate too
            text = f"It ends with {kind}{where}: what comes after that is not judged, and the hub may not start."
            yield release.found("code-failed", path, text, ENTRY_FIX, "look at")
    if evaluation.unfinished is not None:
        why = "It ended this process by itself" if evaluation.in_time else f"It did not end within {SECONDS} s"
        text = f"{why}, or needed more than {MEMORY_BYTES >> 20} MB: what comes after it is not judged."
        yield release.found("code-failed", evaluation.unfinished, text, ENTRY_FIX, "look at")
