"""Which terminals of a server run a program, by real shells."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hub_extensions.server_extension.terminals import busy_terminals
from tests.patience import soon

pytestmark = [pytest.mark.programs, pytest.mark.quick]


@pytest.fixture
def shells() -> Iterator[list[subprocess.Popen[str]]]:
    made = [subprocess.Popen(["sh"], stdin=subprocess.PIPE, text=True) for _ in range(2)]
    yield made
    for each in made:
        each.kill()
        each.communicate()


def typed(shell: subprocess.Popen[str], text: str) -> None:
    assert shell.stdin is not None
    shell.stdin.write(text)
    shell.stdin.flush()


async def test_a_terminal_is_busy_while_a_program_runs_in_it(shells: list[subprocess.Popen[str]]) -> None:
    """Here as Jupyter Server has them: in its manager's `terminals`, each with a `ptyproc`."""
    manager = SimpleNamespace(terminals={str(each.pid): SimpleNamespace(ptyproc=each) for each in shells})
    one, other = shells
    assert busy_terminals(manager) == 0, "a shell that waits is no work"
    typed(other, "sleep 100 &\n")  # in the background, and silent
    await soon(lambda: busy_terminals(manager) == 1)
    typed(one, "cat\n")
    await soon(lambda: busy_terminals(manager) == 2)
    typed(other, "kill $!; wait\n")
    await soon(lambda: busy_terminals(manager) == 1)


def test_what_cannot_be_seen_is_not_known() -> None:
    assert busy_terminals(None) is None
    assert busy_terminals(SimpleNamespace(terminals={"1": object()})) is None
