"""What the tests cost, at the end of pytest's summary: those with the most CPU, each tier, and how much they started.

The CPU of a test is that of its worker and of the programs it started and waited for, fixtures included; what a module
shares counts for its first test. Programs that a hub or another program starts are not in the second figure.
"""

from __future__ import annotations

import re
import resource
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests import tiers

COSTS = pytest.StashKey[Counter[str]]()
STARTS = pytest.StashKey[Counter[str]]()
TIERS = pytest.StashKey[Counter[str]]()
MOST, LEAST = 10, 0.5
KINDS = {
    "hubs": r"'-m', 'jupyterhub'",
    "services": r"'hub_extensions\.hub_service'|turned_service|patient_service",
    "servers of Jupyter": r"'jupyter_server'|'jupyterlab'|'jupyterhub\.singleuser'",
    "browsers": r"'run-driver'",
    "control planes": r"kube-apiserver'",
    "PostgreSQL servers": r"/bin/postgres'",
    "warm parents": r"tests/warm\.py'",
}
"""What the words of a program have in them."""


def seconds() -> float:
    """CPU of this process, and of all that it started and waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def kind(started: str) -> str:
    """Which of `KINDS` a program is; empty for others."""
    return next((name for name, words in KINDS.items() if re.search(words, started)), "")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count, fixtures included."""
    before = seconds()
    result = yield
    used = seconds() - before
    item.config.stash.setdefault(COSTS, Counter())[item.nodeid] += round(used, 2)  # type: ignore[assignment]
    tier = tiers.tier_of({marker.name for marker in item.iter_markers()})
    item.config.stash.setdefault(TIERS, Counter()).update({tier: used, f"tests of {tier}": 1})  # type: ignore[dict-item]
    return result


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands over what it has counted."""
    session.config.stash.setdefault(STARTS, Counter()).update(filter(None, map(kind, tiers.all_started())))
    if hasattr(session.config, "workeroutput"):
        costs = session.config.stash.get(COSTS, Counter())
        session.config.workeroutput["costs"] = dict(costs.most_common(MOST))
        session.config.workeroutput["tiers"] = dict(session.config.stash.get(TIERS, Counter()))
        session.config.workeroutput["starts"] = dict(session.config.stash[STARTS])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Above the workers: put together what they had."""
    output = getattr(node, "workeroutput", {})
    for key, name in ((COSTS, "costs"), (STARTS, "starts"), (TIERS, "tiers")):
        node.config.stash.setdefault(key, Counter()).update(output.get(name, {}))


def lines(config: pytest.Config) -> list[str]:
    """For the summary."""
    costs = config.stash.get(COSTS, Counter()).most_common(MOST)
    starts = config.stash.get(STARTS, Counter())
    used = config.stash.get(TIERS, Counter())
    each = [f"{used[tier]:.0f} s in {used[f'tests of {tier}']} of {tier}" for tier in tiers.ALL if used[tier]]
    counted = ", ".join(f"{starts[name]} {name}" for name in KINDS if starts[name])
    return [
        *(f"{cpu:>7.1f} s  {test}" for test, cpu in costs if cpu >= LEAST),
        f"tests: {', '.join(each) or 'none'}",
        f"started: {counted or 'nothing that counts'}",
    ]
