"""What all tests share: the *not run* mechanism, free ports, a browser, a PostgreSQL server, the fake NVML library.

``pytest.mark.needs("browser")`` and its like say what a test needs of the machine (tests/machine_needs.py); where it is
missing the test is *not run*, with the reason, and CI counts that as a failure. ``pytest.mark.hub`` runs a test again
on the older JupyterHub.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import costs, ports, report, secret_search, stopping, tiers
from tests.cluster.fixtures import (  # noqa: F401  (fixtures: pytest finds them here)
    cluster_folder,
    control_plane,
    kueue,
    namespace,
    played_nodes,
)
from tests.cluster.lanes import pytest_xdist_make_scheduler  # noqa: F401  (a hook: pytest finds it here)
from tests.machine_needs import chromium, full_chromium, missing, postgresql_programs
from tests.patience import patient
from tests.stopping import pytest_keyboard_interrupt, pytest_testnodeready  # noqa: F401  (hooks)

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
# jsonschema imports it for formats that nobody here asks for: 38 grammars, a second of each process

UNPRIVILEGED = 65534
MAY_BE_AWAY = {"gpu": "TEST_GPU", "chart": "TEST_CHART", "kube-router": "TEST_KUBE_ROUTER"}
"""What nobody can be asked to have, and what says that it is there: without it a test is *not run*, also for CI."""
LONGEST = tuple(Path(__file__).parent / name for name in ("loop", "spawner", "tools/helm_check"))
"""Folders whose long modules begin first. In the whole run only the first: the others' peaks would be at one time."""
FAKE_NVML_SOURCE = Path(__file__).parent / "fakes" / "nvml" / "fake_nvml.c"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--only-root``, ``--without-root``, ``--only-hub``: what a pass has. ``--cluster=existing``: that of KUBECONFIG.

    ``--chart``: the packed chart of zero-to-jupyterhub, or its folder; ``--kube-router``: the program.
    No package registry has them built. ``--shuffle``: modules, and the tests of each, in a random order; the same
    number is the same order.
    """
    parser.addoption(
        "--tier",
        choices=[tiers.QUICK, tiers.USUAL, tiers.WHOLE],
        default=tiers.WHOLE,
        help="which tests: tests/tiers.py (default: all)",
    )
    parser.addoption("--half", choices=tiers.HALVES, help="only the folders of one half of the quick run")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run in a random order: each test stands alone")
    parser.addoption("--only-root", action="store_true", help="run only the tests that need root")
    parser.addoption("--without-root", action="store_true", help="leave those to another pass")
    parser.addoption("--only-hub", action="store_true", help="run only the tests of both generations of JupyterHub")
    parser.addoption("--cluster", choices=["existing"], help="existing: test on the cluster of the current KUBECONFIG")
    parser.addoption("--chart", help="the zero-to-jupyterhub chart 4.4.0: a .tgz or its folder")
    parser.addoption("--kube-router", help="the program of kube-router 2, which enforces network policies")


def pytest_configure(config: pytest.Config) -> None:
    """What a test needs of the machine is asked without pytest's options (tests/machine_needs.py)."""
    config.pluginmanager.register(report)
    config.pluginmanager.register(costs)
    config.pluginmanager.register(secret_search)
    tiers.watch_programs()
    stopping.listen()
    slow_is_no_fault = [hypothesis.HealthCheck.too_slow]
    few = {} if config.getoption("--tier") == tiers.WHOLE else {"max_examples": 25}
    hypothesis.settings.register_profile("ours", deadline=None, suppress_health_check=slow_is_no_fault, **few)
    hypothesis.settings.load_profile("ours")
    if config.getoption("--cluster") == "existing":
        os.environ["TEST_CLUSTER_EXISTING"] = "1"
    if chart := config.getoption("--chart"):
        os.environ["TEST_CHART"] = str(Path(chart).resolve())
    if kube_router := config.getoption("--kube-router"):
        os.environ["TEST_KUBE_ROUTER"] = str(Path(kube_router).resolve())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """To collect makes next to no garbage, and to look for it takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A pass that has few of the tests reads their files only; a tier, those that have one of its tests."""
    if not collection_path.match("test_*.py") or not collection_path.is_relative_to(tiers.TESTS):
        return None
    if why := tiers.not_read(config.getoption("--tier"), collection_path, config.getoption("--half")):
        if why != tiers.IN_THE_OTHER_HALF:
            report.leave_out(config, {collection_path.relative_to(config.rootpath).as_posix(): f"its tests: {why}"})
        return True
    passes = [name for name in tiers.IN_A_PASS if config.getoption(name)]
    return tiers.has_none(collection_path, passes) or None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What this tier has, the longest first; of that, what this pass has.

    Its limit of time is a patience like any other.
    """
    if (seed := config.getoption("--shuffle")) is not None:
        shuffle(items, seed)
    else:
        in_order(items, config.getoption("--tier"))
    seconds = float(config.getini("timeout") or 0)
    tier, older = config.getoption("--tier"), tiers.older_hub()
    chosen, left_out = [], {}
    for item in items:
        marks = {marker.name for marker in item.iter_markers()}
        file = item.nodeid.partition("::")[0]
        if config.getoption("timeout") is None:  # pytest-timeout's own
            own = item.get_closest_marker("timeout")
            item.add_marker(pytest.mark.timeout(patient(own.args[0] if own else seconds)), append=False)
        passes = tiers.passes_of(marks, _needs(item))
        if tiers.has_none(item.path, passes):
            raise pytest.UsageError(f"{file} does not show what {passes} look for (tests/tiers.py, IN_A_PASS)")
        if tiers.not_read(tiers.QUICK, item.path) and not tiers.left_out(tiers.QUICK, marks, file, older_hub=False):
            raise pytest.UsageError(
                f"{item.nodeid} is quick, and its file says that none is (tests/tiers.py, not_read)"
            )
        if config.getoption("--without-root" if "--only-root" in passes else "--only-root"):
            continue
        if config.getoption("--only-hub") and "hub" not in marks:
            continue
        generations = [generation for marker in item.iter_markers("hub") for generation in marker.args]
        if tiers.of_another_hub(generations, older_hub=older):
            continue
        if why := tiers.left_out(tier, marks, file, older_hub=older):
            left_out[item.nodeid] = why
        else:
            chosen.append(item)
    report.leave_out(config, left_out)
    items[:] = chosen


def pytest_collection_finish() -> None:
    """What was collected stays to the end: it need not be looked through again and again for what is garbage."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str | None:
    """Which order it was."""
    seed = config.getoption("--shuffle")
    return None if seed is None else f"order: --shuffle {seed}"


def in_order(items: list[pytest.Item], tier: str) -> None:
    """The longest first, then modules with more than quick tests: the last are short on every worker."""
    long = {item.path for item in items if tiers.tier_of({mark.name for mark in item.iter_markers()}) != tiers.QUICK}
    longest = {
        path
        for path in long
        if any(path.is_relative_to(each) for each in (LONGEST[:1] if tier == tiers.WHOLE else LONGEST))
    }
    items.sort(key=lambda item: (item.path not in longest, item.path not in long))


def shuffle(items: list[pytest.Item], seed: int) -> None:
    """The modules in a random order, and the tests of each."""
    chance = random.Random(seed)
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    order = list(modules.values())
    chance.shuffle(order)
    for tests in order:
        chance.shuffle(tests)
    items[:] = itertools.chain.from_iterable(order)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What starts a program says so, or the quick run would soon be slow."""
    tiers.started()
    stopping.listen()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """See above: what its fixtures started counts too."""
    result = yield
    started = tiers.started()
    if started and tiers.marks_are_quick({marker.name for marker in item.iter_markers()}):
        if record := os.environ.get("TEST_RECORD_PROGRAMS"):
            with open(record, "a") as out:
                out.write(f"{item.nodeid}\t{started[0]}\n")
            return result
        pytest.fail(f"it starts a program, so mark it `programs`: {started[0]}", pytrace=False)
    return result


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test whose needs are not met is not run, and says why."""
    for thing in _needs(item):
        if reason := missing(thing):
            if thing in MAY_BE_AWAY and not os.environ.get(MAY_BE_AWAY[thing]):
                item.user_properties.append((report.ALLOWED, True))
            pytest.skip(reason)


def _needs(item: pytest.Item) -> tuple[str, ...]:
    return tuple(thing for marker in item.iter_markers("needs") for thing in marker.args)


@pytest.fixture
def free_port() -> int:
    """A port on 127.0.0.1 that nothing listens on."""
    return ports.free_port()


@pytest.fixture
def free_ports() -> Callable[[int], list[int]]:
    """``free_ports(n)``: n different ports on 127.0.0.1 that nothing listens on."""
    return ports.free_ports


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """A Chromium that starts. The test carries ``needs("browser")``."""
    path = chromium()
    if path is None:
        pytest.skip(missing("browser"))
    return path


@pytest.fixture(scope="session")
def full_chromium_path(chromium_path: str) -> str:
    """The Chromium that people have, where it is there, too: for the one walk that says that it is no other."""
    return full_chromium() or chromium_path


@pytest.fixture(scope="session")
def hub5_python() -> str:
    """The Python of the environment with JupyterHub 5.5. The test carries ``needs("hub5")``."""
    if reason := missing("hub5"):
        pytest.skip(reason)
    return os.environ["HUB5_PYTHON"]


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake ``libnvidia-ml.so.1``; put its folder on LD_LIBRARY_PATH. The test carries ``needs("c-compiler")``."""
    built = Path(os.environ.get("FAKE_NVML") or "/nowhere", "libnvidia-ml.so.1")
    if built.exists():
        return built
    if reason := missing("c-compiler"):
        pytest.skip(reason)
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, FAKE_NVML_SOURCE], check=True, timeout=patient(120)
    )
    return library


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """A PostgreSQL server of this test run on loopback: the URL of its first database, ending in ``/postgres``.

    Never run by root: PostgreSQL refuses, so its processes drop to an unprivileged uid. The test carries
    ``needs("postgresql")``.
    """
    programs = postgresql_programs()
    if programs is None:
        pytest.skip(missing("postgresql"))
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    if os.geteuid() == 0:
        os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    port = ports.free_port()
    data, log = folder / "data", folder / "log"
    _as_plain_user([programs / "initdb", "-A", "trust", "-U", "test", "-E", "UTF8", "--no-sync", "-D", data], folder)
    with log.open("wb") as out:
        server = subprocess.Popen(
            [
                programs / "postgres",
                "-D",
                data,
                "-k",
                folder,
                "-h",
                "127.0.0.1",
                "-p",
                str(port),
                "-F",
                "-c",
                "max_connections=40",
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            **_without_root(),
        )
    try:
        _wait_for_postgresql(server, f"postgresql://test@127.0.0.1:{port}/postgres", log)
        yield f"postgresql+psycopg://test@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        try:
            server.wait(timeout=patient(15))
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(timeout=patient(5))
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgresql_url(postgresql_server: str) -> Iterator[str]:
    """The SQLAlchemy URL of an empty PostgreSQL database for one test, which carries ``needs("postgresql")``."""
    import psycopg

    name = f"t{uuid.uuid4().hex}"
    plain = postgresql_server.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"create database {name}")
    yield postgresql_server.rsplit("/", 1)[0] + "/" + name
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)")


def _without_root() -> dict[str, Any]:
    return {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []} if os.geteuid() == 0 else {}


def _as_plain_user(words: list[Path | str], folder: Path) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=patient(120), check=False, **_without_root())
    if done.returncode:
        raise RuntimeError(f"{words[0]} failed: {done.stderr.decode('utf-8', 'replace')[-500:]}")


def _wait_for_postgresql(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Until it lets somebody in: it listens a moment before that, and says "starting up" to who comes too early."""
    import psycopg

    deadline = time.monotonic() + patient(60)
    while server.poll() is None:
        try:
            psycopg.connect(url, connect_timeout=int(patient(5))).close()
            return
        except psycopg.OperationalError as refused:
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL let nobody in within 60 s: {refused}") from None
            time.sleep(0.05)
    raise RuntimeError(f"PostgreSQL ended: {log.read_text(errors='replace')[-500:]}")
