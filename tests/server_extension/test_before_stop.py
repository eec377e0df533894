"""What a server does once its stop has begun, with real programs as its user's hook."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.core.stops import ORDERED, Cause
from hub_extensions.core.stops.drain import OTHER_PAGES
from hub_extensions.server_extension import before_stop
from hub_extensions.server_extension.before_stop import (
    HOOK,
    INTERRUPTED,
    MAX_OUTPUT_BYTES,
    OUTPUT,
    BeforeStop,
    run_hook,
)
from tests.fakes.panel_service import a_countdown, a_state
from tests.patience import soon

pytestmark = pytest.mark.programs


class Kernels:
    """Jupyter Server's kernel manager, of which one kernel may be stubborn."""

    def __init__(self, *busy: str, stubborn: bool = False, broken: bool = False) -> None:
        self.busy, self.stubborn, self.broken = set(busy), stubborn, broken
        self.interrupted: list[str] = []

    def list_kernels(self) -> list[dict[str, Any]]:
        return [{"id": each, "execution_state": "busy" if each in self.busy else "idle"} for each in ("one", "two")]

    async def interrupt_kernel(self, kernel: str) -> None:
        if self.broken:
            raise RuntimeError("a kernel provider of the site's own")
        self.interrupted.append(kernel)
        if not self.stubborn:
            self.busy.discard(kernel)


def hook(folder: Path, text: str, mode: int = 0o700) -> Path:
    made = folder / HOOK
    made.write_text("#!/bin/sh\n" + text)
    made.chmod(mode)
    return made


def output(folder: Path) -> str:
    return (folder / OUTPUT).read_text()


def test_each_end_that_comes_whatever_runs_interrupts_the_cells_before() -> None:
    assert {each.value for each in {*ORDERED, Cause.LIFETIME}} == INTERRUPTED


@pytest.mark.parametrize(
    ("cause", "busy", "pages", "interrupted"),
    [
        ("lifetime", (), False, []),
        ("lifetime", ("two",), False, ["two"]),
        ("signed-out", ("two",), True, ["two"]),
        ("admin", ("two",), True, ["two"]),
        ("given-back", ("two",), True, ["two"]),
        ("idle", ("two",), True, []),  # a cell that begins now keeps the server
        ("unopened", ("two",), True, []),
    ],
)
async def test_cells_are_interrupted_then_pages_save_then_the_hook_runs(
    tmp_path: Path,
    cause: str,
    busy: tuple[str, ...],
    pages: bool,
    interrupted: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(before_stop, "OTHER_PAGES_SECONDS", 0.0)
    kernels, heard = Kernels(*busy), []
    stop = BeforeStop(kernels, hook(tmp_path, 'echo "cause $JUPYTERHUB_GPU_STOP_CAUSE"'), has_pages=lambda: pages)
    stop.on_change = lambda: heard.append((stop.draining, stop.take(asked).save))
    asked = a_state(save=True, countdown=replace(a_countdown(), cause=cause))
    calm = a_state(save=False)
    assert stop.take(calm) == calm and not stop.draining
    assert stop.take(asked).save is False, "the pages wait for the cells"
    await soon(lambda: stop.take(asked).save)
    assert kernels.interrupted == interrupted and stop.asked is pages
    if pages:
        assert stop.draining and not (tmp_path / OUTPUT).exists()
        stop.saved()
    await soon(lambda: not stop.draining and len(heard) > 4)  # the change is heard a moment after
    assert output(tmp_path) == f"cause {cause}\ngpu-before-stop ended with status 0.\n"
    assert heard == [(True, False), *3 * [(True, True)], (False, True)] and stop.hook_ran
    # the stop was given up; the next one is another
    (tmp_path / OUTPUT).unlink()
    assert stop.take(calm) == calm and not stop.asked
    stop.take(asked)
    await soon(lambda: stop.take(asked).save)
    stop.saved()
    await soon((tmp_path / OUTPUT).exists)


async def test_the_first_page_that_has_saved_leaves_the_others_time_before_the_hook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert OTHER_PAGES.total_seconds() == before_stop.OTHER_PAGES_SECONDS
    monkeypatch.setattr(before_stop, "OTHER_PAGES_SECONDS", 0.5)
    stop = BeforeStop(Kernels(), hook(tmp_path, "true"), has_pages=lambda: True)
    await soon(lambda: stop.take(a_state(save=True)).save)
    stop.saved()
    await asyncio.sleep(0.2)
    stop.saved()
    assert stop.draining and not (tmp_path / OUTPUT).exists()
    await soon((tmp_path / OUTPUT).exists)


@pytest.mark.parametrize("kernels", [Kernels("one", broken=True), Kernels("one", stubborn=True)])
async def test_a_cell_that_goes_on_or_cannot_be_interrupted_holds_nothing_up_for_ever(
    tmp_path: Path, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(before_stop, "INTERRUPT_SECONDS", 0.3)
    monkeypatch.setattr(before_stop, "PAGES_SECONDS", 0.1)
    stop = BeforeStop(kernels, hook(tmp_path, "echo here"), has_pages=lambda: True)
    stop.take(a_state(save=True, countdown=replace(a_countdown(), cause="lifetime")))
    await soon(lambda: not stop.draining)
    assert "here" in output(tmp_path)


class FarKernels(Kernels):
    """Those of a gateway that is slow."""

    listed = 0

    async def list_kernels(self) -> list[dict[str, Any]]:  # type: ignore[override]
        self.listed += 1
        await asyncio.sleep(0.4)
        return super().list_kernels()


async def test_a_slow_gateway_takes_no_more_than_the_time_for_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(before_stop, "INTERRUPT_SECONDS", 1.0)
    kernels = FarKernels("one", stubborn=True)
    stop = BeforeStop(kernels, tmp_path / HOOK, has_pages=lambda: False)
    stop.take(a_state(save=True, countdown=replace(a_countdown(), cause="lifetime")))
    await soon(lambda: not stop.draining)
    assert kernels.interrupted == ["one"] and kernels.listed <= 3


async def test_a_stop_that_does_not_come_ends_the_hook_and_the_next_one_begins_anew(tmp_path: Path) -> None:
    stop = BeforeStop(Kernels(), hook(tmp_path, f"echo begun >> {tmp_path}/runs; sleep 300"), has_pages=lambda: False)
    for count in (1, 2):
        stop.take(a_state(save=True))
        await soon(lambda count=count: _lines(tmp_path / "runs") == count)  # type: ignore[misc]
        stop.take(a_state(save=False))
        assert not stop.draining and stop.take(a_state(save=False)).save is False
        await soon((tmp_path / OUTPUT).exists)
        assert "was ended with its server, or as the stop did not come" in output(tmp_path)
        (tmp_path / OUTPUT).unlink()


async def test_the_service_hears_of_a_hook_while_a_countdown_is_shown(tmp_path: Path) -> None:
    heard: list[bool] = []
    stop = BeforeStop(Kernels(), tmp_path / HOOK, has_pages=lambda: False)
    stop.on_change = lambda: heard.append(stop.has_hook)
    counted = a_state(save=False, countdown=a_countdown())

    async def seen(expected: list[bool]) -> None:
        await soon(lambda: stop.take(counted) is not None and heard == expected)

    await seen([])
    hook(tmp_path, "true")
    await seen([True])
    (tmp_path / HOOK).chmod(0o600)
    await seen([True, False])


async def test_no_hook_is_no_fault(tmp_path: Path) -> None:
    await run_hook(tmp_path / HOOK, os.environ, 5)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [(0o600, "it is not executable (chmod u+x)"), (0o720, "others can write to it"), (0o702, "others can write to it")],
)
async def test_a_hook_that_is_not_its_users_own_program_is_not_run(tmp_path: Path, mode: int, sentence: str) -> None:
    made = hook(tmp_path, "touch ran", mode)
    await run_hook(made, os.environ, 5)
    assert f"gpu-before-stop was not run: {sentence}" in output(tmp_path)


async def test_what_is_no_file_or_belongs_to_somebody_else_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / HOOK).mkdir()
    await run_hook(tmp_path / HOOK, os.environ, 5)
    assert "it is not a file" in output(tmp_path)
    (tmp_path / HOOK).rmdir()
    (tmp_path / HOOK).symlink_to(tmp_path / "gone")
    await run_hook(tmp_path / HOOK, os.environ, 5)
    assert "it cannot be read" in output(tmp_path)
    (tmp_path / HOOK).unlink()
    made = hook(tmp_path, "true")
    monkeypatch.setattr(before_stop.os, "geteuid", lambda: os.stat(made).st_uid + 1)
    await run_hook(made, os.environ, 5)
    assert "it belongs to somebody else" in output(tmp_path)


async def test_a_hook_without_a_right_first_line_says_so(tmp_path: Path) -> None:
    made = hook(tmp_path, "")
    made.write_bytes(b"\x7fELF and nothing")
    await run_hook(made, os.environ, 5)
    assert "gpu-before-stop cannot be run" in output(tmp_path)


async def test_a_hook_that_hangs_is_ended_with_what_it_forked(tmp_path: Path) -> None:
    made = hook(tmp_path, f"echo begun\nsleep 300 &\necho $! > {tmp_path}/child\nsleep 300\n")
    waiting = asyncio.ensure_future(run_hook(made, os.environ, 0.5))
    await soon(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip())
    await waiting
    assert output(tmp_path) == "begun\ngpu-before-stop was ended after 0.5 s.\n"
    child = int((tmp_path / "child").read_text())
    await soon(lambda: _ended(child))


async def test_a_hook_that_leaves_a_program_behind_is_over_when_it_is(tmp_path: Path) -> None:
    began = time.monotonic()
    await run_hook(hook(tmp_path, "sleep 300 &\necho done\n"), os.environ, 200)
    assert time.monotonic() - began < 100
    assert output(tmp_path) == "done\ngpu-before-stop ended with status 0.\n"


async def test_a_hook_that_prints_without_end_fills_no_disk(tmp_path: Path) -> None:
    await run_hook(hook(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x; exit 3\n"), os.environ, 60)
    text = output(tmp_path)
    assert len(text) < MAX_OUTPUT_BYTES + 100 and text.endswith("gpu-before-stop ended with status 3.\n")
    assert (tmp_path / OUTPUT).stat().st_mode & 0o077 == 0


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
