"""Every command of ours that a page or a values file tells an admin to type: it runs as it stands there.

Run page by page and in the page's order, in a folder with the files that ship and small stand-ins for what an admin
has (``Desk``). A command that cannot run here is listed with the reason (`ELSEWHERE`); its words are read by the real
command line all the same, so an option that there is not fails here, too. Not here: kubectl, helm and the like.
"""

from __future__ import annotations

import asyncio
import random
import re
import shlex
import shutil
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import click
import jupyterhub.auth  # noqa: F401  # its import asks a program where PAM is
import pytest
import sqlalchemy
import yaml
from click.testing import CliRunner
from jupyterhub import orm
from traitlets.config import Config

from hub_extensions import configure
from hub_extensions.adapters.store import Changes, JournalRow, Store
from hub_extensions.adapters.store.copies import copy_of_today
from hub_extensions.adapters.store.sign_on import migrate
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.cli import main
from tests.hubs import ROOT

PAGES = (
    *(
        ROOT / name
        for name in ("README.md", "docs/admin.md", "docs/student.md", "docs/student-more.md", "docs/more.md")
    ),
    *sorted((ROOT / "docs" / "howto").glob("*.*")),
    *sorted((ROOT / "helm-values").rglob("*.md")),
    *sorted((ROOT / "helm-values").rglob("*.yaml")),
)
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
OURS = re.compile(r"(?:^|[\s`])(?:jupyterhub-gpu|python3 -m hub_extensions\.tools\.cli) +([a-z][^`|#\n]*)")
SHELLS = ("sh", "bash", "")
WRITTEN_FOR = {
    "/etc/nginx/conf.d/apps.conf": "apps.conf",
    "/usr/local/etc/jupyterhub/jupyterhub_config.py": "jupyterhub_config.py",
    "3f1c…": "3f1c",
    "USER SUB": "ada 3f1c",
    "--issuer …": "--issuer https://login.example.org/realms/uni",
    "--database-url …": "--database-url sqlite:///jupyterhub.sqlite",
    "--config …": "--config jupyterhub_config.py",
    "--state-dir …": "--state-dir gpu-state",
    "--manifests …": "--manifests helm-values/manifests",
    "-f …": "-f your-values.yaml -f helm-values/gpu.yaml -f own-images.yaml",
    " …": " -f own-images.yaml",
}
"""What an admin writes for it, here. The longer one comes first."""

SAYS = {
    "audit": "1 entries were written to",
    "cull replay": "had a GPU",
    "doctor": "JupyterHub",
    "forecast backtest": "history/gpu",
    "gate config": "mlflow",
    "helm check": "All is well",
    "offers": "No NVIDIA driver was found on this machine|memory kept apart",
    "sign-on drop-tables": "Dropped|There are no tables",
    "sign-on list": "",  # nobody is pinned, or who was before
    "sign-on pin": "ada",
    "sign-on unpin": "ada",
    "store backup": "was copied to",
    "store check": "whole",
    "store restore": "was put back as",
    "training evaluate": "mnist_classification",
    "usage export": "uses were written to",
    "usage import": "were imported as",
    "usage samples": "minutes were written to",
}
"""Command -> what (a pattern) it says when it did what the page promises. Each ends with 0, save `MAY_END_WITH_1`."""
MAY_END_WITH_1 = {"doctor": "a machine without a card has a finding", "offers": "and no offer"}
ASKS_THE_SERVICE = "asks a running service: tests/tools/test_cli.py does, with one"
ON_A_CLUSTER = "reads a cluster: tests/tools/test_cli.py does, with an API server as told"
ELSEWHERE = {
    "cull --dry-run --state-dir gpu-state": ASKS_THE_SERVICE,
    "offers --state-dir gpu-state": ASKS_THE_SERVICE,
    "offers --cluster": ON_A_CLUSTER,
    "gate audit --config gpu-state/gate.json --token-file admin-token": "asks a hub, a gate and its apps: "
    "tests/gate/test_audit.py does, with all three",
}
"""Cannot run here, and why."""


def commands_of(page: Path) -> list[str]:
    """What the page has an admin type, in its order: the words behind ``jupyterhub-gpu``.

    In a block, or a comment that is one, it is a command; within a sentence only with something behind its name.
    """
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".yaml":
        lines = [line.lstrip(" #") for line in text.splitlines() if line.lstrip().startswith("#  ")]
        return [words for line in lines for words in _words(line)] + _said(text)
    found: list[str] = []
    last = 0
    for fence in FENCE.finditer(text):
        found += _said(text[last : fence.start()])
        if fence[1] in SHELLS:
            found += [each for line in fence[2].replace("\\\n", " ").splitlines() for each in _words(line)]
        last = fence.end()
    return found + _said(text[last:])


def _said(text: str) -> list[str]:
    spans = [words for span in re.findall(r"`([^`\n]+)`", text) for words in _words(span)]
    return [words for words in spans if len(named(typed(words))[2]) > 1]


def _words(line: str) -> list[str]:
    return [each.strip() for each in OURS.findall(line)]


def typed(words: str) -> list[str]:
    for written, meant in WRITTEN_FOR.items():
        words = words.replace(written, meant)
    return shlex.split(words)


def named(words: list[str]) -> tuple[click.Command, list[str], list[str]]:
    """The command of these words, its name, and what is left for it."""
    command: click.Command = main
    name: list[str] = []
    while isinstance(command, click.Group) and len(words) > len(name) and words[len(name)] in command.commands:
        command = command.commands[words[len(name)]]
        name.append(words[len(name)])
    return command, name, words[len(name) :]


DOCUMENTED = {str(page.relative_to(ROOT)): found for page in PAGES if (found := commands_of(page))}


class Desk:
    """What an admin has in the folder where the commands are typed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "helm-values").symlink_to(ROOT / "helm-values")
        own = (ROOT / "helm-values" / "own-images.yaml").read_text(encoding="utf-8")
        self.write("own-images.yaml", own.replace("registry.example.org", "registry.lab.edu"))
        self.write("your-values.yaml", "{}")
        self.write("admin-token", "a-token-of-an-admin")
        self.write("jupyterhub_config.py", CONFIG)
        self.write("jobs.txt", SACCT)
        self.write("trace.csv", "submit,duration,num_gpu,slices,user,limit\n0.0,600.0,1,1,u1,3600\n")
        self.write("cluster.swf.gz", "; UnixStartTime: 1767225600\n" + SWF)
        (folder / "trainings").mkdir()
        self.write("trainings/mnist_classification.csv", "".join(trainings()))
        self._gate()
        self._store()
        engine = sqlalchemy.create_engine(f"sqlite:///{folder / 'jupyterhub.sqlite'}")
        orm.Base.metadata.create_all(engine)
        migrate(engine)
        engine.dispose()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def _gate(self) -> None:
        """The settings that a hub with our own gate.yaml writes."""
        values = yaml.safe_load((ROOT / "helm-values" / "gate.yaml").read_text(encoding="utf-8"))
        c = Config(values["hub"]["config"])
        c.GpuService.state_dir = str(self.folder / "gpu-state")
        c.JupyterHub.spawner_class = "gpu"
        c.JupyterHub.services = [{"name": "gate", "api_token": "0123456789abcdef"}]
        configure(c)
        (self.folder / "gate.json").write_bytes((self.folder / "gpu-state" / "gate.json").read_bytes())

    def _store(self) -> None:
        """A store with uses of one GPU, for which people waited."""
        settings = Settings.load(self.folder / "gpu-state" / "service.json")
        store = Store.open(settings.store_url)
        asyncio.run(store.commit(Changes(usage=tuple(uses()), journal=(STOP,))))
        store.close()
        copy_of_today(self.folder / "gpu-state" / "gpu.sqlite", self.folder / "gpu-state", date.today())

    def moved_to(self, folder: Path) -> Path:
        """A copy, whose settings name the new place."""
        shutil.copytree(self.folder, folder, symlinks=True)
        for file in (folder / "gpu-state").glob("*.json"):
            file.write_text(file.read_text(encoding="utf-8").replace(str(self.folder), str(folder)), encoding="utf-8")
        return folder


def uses() -> Iterator[UsageRecord]:
    rng = random.Random(7)
    asked = free = datetime.now(timezone.utc) - timedelta(days=20)
    for number in range(300):
        asked += timedelta(minutes=rng.expovariate(1 / 70))
        admitted = max(asked, free)
        free = admitted + timedelta(minutes=rng.uniform(20, 90))
        yield UsageRecord(
            f"l{number}", f"u{number % 17}", "", OfferId("gpu"), "gpu", 1000, free, "user", asked=asked,
            admitted=admitted, ready=admitted, held_seconds=(free - admitted).total_seconds(),
            ran_seconds=(free - admitted).total_seconds(), waited_seconds=(admitted - asked).total_seconds(),
        )  # fmt: skip


def trainings() -> Iterator[str]:
    """Rows with batch size, epochs, two mean uses, seconds, loss and accuracy."""
    for number in range(40):
        batch, epochs = 32 << number % 4, 1 + number % 5
        yield f"{batch},{epochs},30.0,50.0,{8 + epochs * (2 + 240 / batch):.2f},0.1,0.97\n"


STOP = JournalRow(datetime.now(timezone.utc), "culled", None, "l7", "u7", "", "Idle for 21 min.", "service", "use 0 %")
CONFIG = """
c = get_config()
c.JupyterHub.spawner_class = "gpu-demo"
c.GpuOffers.simulate = "lab-a100"
from hub_extensions import configure
configure(c)
"""
SACCT = (
    "JobID|Cluster|User|Group|Submit|Start|End|Timelimit|AllocTRES|State\n"
    "101|lab|ada|ml|2026-01-05T09:00:00|2026-01-05T09:05:00|2026-01-05T10:00:00|02:00:00|"
    "billing=8,cpu=8,gres/gpu=1,mem=64G,node=1|COMPLETED\n"
)
SWF = "1 0 10 600 8 -1 -1 8 3600 -1 1 3 1 1 1 1 -1 -1\n"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("desk"))


def test_each_command_is_in_one_of_the_lists_and_no_list_has_more() -> None:
    every = [typed(words) for found in DOCUMENTED.values() for words in found]
    assert len(every) > 35
    here = {" ".join(named(words)[1]) for words in every if " ".join(words) not in ELSEWHERE}
    assert here == SAYS.keys() >= MAY_END_WITH_1.keys()
    assert ELSEWHERE.keys() <= {" ".join(words) for words in every}


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("page", DOCUMENTED)
def test_each_command_of_a_page_runs_as_it_stands_there(
    page: str, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.moved_to(tmp_path / "desk"))
    for words in DOCUMENTED[page]:
        whole = typed(words)
        command, name, rest = named(whole)
        if " ".join(whole) in ELSEWHERE:
            command.make_context(name[-1], rest)  # the options are there
            continue
        done = CliRunner().invoke(main, whole, catch_exceptions=False)
        about = " ".join(name)
        assert done.exit_code in ((0, 1) if about in MAY_END_WITH_1 else (0,)), f"{words}: {done.output}"
        written = Path(rest[rest.index("-o") + 1]).read_text() if "-o" in rest else ""
        assert re.search(SAYS[about], done.output + written), f"{words}: {done.output}"
