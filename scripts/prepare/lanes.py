"""Runs checks and passes of the tests: lanes beside each other, the jobs of a lane one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from kept import STOP, watched
from place import ROOT
from steps import Trouble, beating, noted, pass_on


@dataclass(frozen=True)
class Job:
    """One check, or one run of pytest, with what it adds to the environment.

    Attributes:
        title: what stands above its output; a job without one says nothing by itself.
        loud: its output is shown as it comes, and not when it is over.
        note: where it is kept that it passed with these `inputs`: then it is not run again.
    """

    name: str
    words: tuple[str | Path, ...]
    folder: Path = ROOT
    env: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    loud: bool = False
    nice: int = 0
    unprivileged: bool = False
    note: Path | None = None
    inputs: str = ""


@dataclass(frozen=True)
class Over:
    """How a job ended, and what it said unless it was loud. `before`: it passed earlier, with the same inputs."""

    code: int
    output: bytes
    before: bool = False


def run_lanes(lanes: Sequence[Sequence[Job]], env: Mapping[str, str], doing: Callable[[], str]) -> dict[str, Over]:
    """Run all of it. Whatever stops us ends those that still run, and waits for that."""
    over: dict[str, Over] = {}

    def run(lane: Sequence[Job]) -> None:
        for job in lane:
            if not STOP.is_set():
                over[job.name] = _run(job, {**env, **job.env})

    with beating(doing), ThreadPoolExecutor(len(lanes)) as pool:
        try:
            for done in as_completed([pool.submit(run, lane) for lane in lanes]):
                done.result()
        except BaseException:
            STOP.set()
            raise
    return over


def _run(job: Job, env: Mapping[str, str]) -> Over:
    if job.note and noted(job.note) == job.inputs:
        return Over(0, b"", before=True)
    parts: list[bytes] = []
    take = pass_on if job.loud else parts.append
    take(f"\n== {job.title}\n".encode() if job.title else b"")
    try:
        code = watched(job.words, job.folder, env, take, nice=job.nice, unprivileged=job.unprivileged)
    except Trouble as trouble:
        take(f"{trouble}\n".encode())
        code = 127
    if job.title and not job.loud:
        pass_on(b"".join(parts))
    if job.note and code == 0:
        job.note.write_text(job.inputs, encoding="ascii")
    return Over(code, b"".join(parts))
