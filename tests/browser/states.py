"""Every state of the panel as the message that brings it: what a picture is taken of.

Times are made at the call, so that a state can be told again to a page that connects anew. Reasons are the product's
own (``tests/packaging/test_catalogues.py`` looks that they are).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from math import sin
from typing import Any

from hub_extensions.adapters.nvml.states import MEANINGS
from hub_extensions.core.gpu.samples import Counters, UseSign
from hub_extensions.core.messages import (
    Figures,
    GpuReading,
    Holder,
    Keep,
    Push,
    Series,
    ServerState,
    Snapshot,
    Training,
    Wait,
)
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.server_extension.attribution import NOT_HOW_MUCH, NOT_WHOSE
from hub_extensions.server_extension.codec import PROTOCOL_VERSION
from hub_extensions.server_extension.readings import NOT_MEASURABLE, NOT_READ
from hub_extensions.server_extension.sampler import NO_GPU, NOT_UNDER_A_HUB
from hub_extensions.server_extension.service_client import NOT_KNOWN
from tests.fakes.panel_service import GIB, a_countdown, a_state, offer

STILL = 3600.0
"""A period so long that a state that is told once does not grow old."""

UUID = "MIG-00000000-0000-0000-0000-000000000001"


def now() -> datetime:
    return datetime.now(timezone.utc)


def holder(name: str, gib: float | None, idle_minutes: float | None = None) -> Holder:
    idle = None if idle_minutes is None else now() - timedelta(minutes=idle_minutes)
    return Holder(name, name, f"kernel-of-{name}", None if gib is None else int(gib * GIB), idle)


def reading(**changes: Any) -> GpuReading:
    """A MIG instance on which a training runs beside a forgotten notebook."""
    one = GpuReading(
        uuid=UUID,
        product="NVIDIA H100 80GB HBM3",
        profile="1g.10gb",
        memory_used_bytes=int(3.1 * GIB),
        memory_total_bytes=int(9.75 * GIB),
        used_percent=84.0,
        source="gpm",
        at=now(),
        counters=Counters(sm_percent=71.0, tensor_percent=38.0, dram_percent=44.0),
        holders=(holder("train.ipynb", 2.9), holder("eda.ipynb", 0.2, 12.5)),
    )
    return replace(one, **changes)


def part(**changes: Any) -> GpuReading:
    """Half of a card by agreement, with neighbours on it."""
    values: dict[str, Any] = {
        "product": "NVIDIA A100-PCIE-40GB",
        "profile": None,
        "memory_used_bytes": int(28.6 * GIB),
        "memory_total_bytes": int(39.5 * GIB),
        "own_memory_bytes": int(3.1 * GIB),
        "limit_bytes": int(19.75 * GIB),
        "limit_source": "share",
        "source": "nvml",
        "counters": None,
        "shared": True,
    }
    return reading(**{**values, **changes})


def history(gpus: tuple[GpuReading, ...], points: int, silent: float) -> tuple[Series, ...]:
    """A training that began seven minutes ago; nothing was known for a minute and a half, nor for the last seconds."""
    ages = [600.0 * (points - place) / points for place in range(points)]
    ages = [age for age in ages if age >= silent] if points > 1 else [0.0]
    return tuple(
        Series(
            uuid=gpu.uuid,
            ages_seconds=tuple(ages),
            used_percent=tuple(None if gpu.used_percent is None else _use(age, gpu.used_percent) for age in ages),
            memory_bytes=tuple(
                _bytes(age, gpu.own_memory_bytes if gpu.shared else gpu.memory_used_bytes) for age in ages
            ),
        )
        for gpu in gpus
    )


def _use(age: float, last: float) -> float | None:
    if 130 < age < 220:
        return None
    return 0.0 if age > 430 else min(100.0, max(0.0, last + 12 * sin(age / 3) + 6 * sin(age)))


def _bytes(age: float, last: int | None) -> int | None:
    if last is None or 130 < age < 220:
        return None
    return int(last * (0.05 if age > 440 else min(1.0, 0.4 + (440 - age) / 300)))


def server(**changes: Any) -> ServerState:
    """A server with three other offers: a likely range, an unknown wait, a free one."""
    busy = Wait(False, 1500.0, 2400.0, 4200.0, 7800.0, explain("limits-ahead"))
    unknown = Wait(False, None, None, None, None, explain("no-limit"))
    free = Wait(True, 0.0, 0.0, 0.0, 0.0, explain("one-free"))
    always = Wait(True, 0.0, 0.0, 0.0, 0.0, explain("starts-now"))
    waits = (
        offer("mig-2g.20gb", "MIG 2g.20gb", busy, waiting=2),
        offer("gpu-0.5", "Half of a GPU", unknown, free=None),
        replace(offer("mig-1g.10gb", "MIG 1g.10gb", free), free=2, total=5),
        replace(offer("cpu", "CPU only", always, free=None), total=None, share=0.0),
    )
    own: dict[str, Any] = {"uuid": UUID, "title": "MIG 1g.10gb", "simulated": False, "waits": waits}
    return a_state(**{**own, **changes})


def push(*gpus: GpuReading, points: int = 600, silent: float = 0.0, **changes: Any) -> Push:
    values: dict[str, Any] = {"state": "ok", "reason": None, "server": server(), "period_seconds": STILL}
    snapshot = Snapshot(version=PROTOCOL_VERSION, at=now(), gpus=gpus, **{**values, **changes})
    return Push(PROTOCOL_VERSION, snapshot.at, snapshot, history(gpus, points, silent), ())


def without_gpu(state: str, reason: Reason, **changes: Any) -> Push:
    return push(state=state, reason=reason, **changes)


def cpu_server(**changes: Any) -> ServerState:
    own: dict[str, Any] = {"rule": None, "ends_at": None, "memory_bytes": None, "share": 0.0}
    return server(uuid=None, offer="cpu", title="CPU only", **{**own, **changes})


def shared_server(**changes: Any) -> ServerState:
    return server(title="Half of a GPU", offer="gpu-0.5", share=0.5, memory_bytes=int(19.75 * GIB), **changes)


def many(count: int) -> tuple[GpuReading, ...]:
    """So many whole cards, every fifth of them unknown to us."""
    return tuple(
        reading(
            uuid=f"GPU-{place}",
            profile=None,
            memory_used_bytes=None if place % 5 == 4 else int((2 + place * 7 % 70) * GIB),
            memory_total_bytes=80 * GIB,
            used_percent=None if place % 5 == 4 else float(place * 37 % 101),
            source="nvml",
            holders=(holder("train.ipynb", None),),
            holders_note=NOT_HOW_MUCH,
        )
        for place in range(count)
    )


def countdown_with(keep: Keep, seconds: float = 540) -> ServerState:
    return server(countdown=a_countdown(seconds), keep=keep)


def lifetime_with(keep: Keep, seconds: float = 540) -> ServerState:
    """A server at work whose lifetime ends, which its user may put off."""
    why = explain("lifetime", limit=timedelta(hours=12))
    end = replace(a_countdown(seconds), cause="lifetime", reason=why, can_keep=keep.left > 0)
    end = end if end.can_keep else replace(end, no_keep=explain("extend-none-left"))
    return server(countdown=end, keep=keep, ends_at=end.stops_at)


def due(seconds: float) -> ServerState:
    """A server that stops in so many seconds, idle for three minutes then."""
    stops = replace(a_countdown(seconds), reason=explain("idle", idle=timedelta(minutes=2)))
    rule = explain("rule", idle=timedelta(minutes=3), warn=timedelta(minutes=1))
    return server(countdown=stops, keep=Keep(30, 0, 2), rule=rule)


def a_run(**changes: Any) -> Training:
    """A training in its 14th epoch of 20, with 25 minutes left."""
    values: dict[str, Any] = {
        "run": "a1b2c3d4e5f60718",
        "name": "mnist",
        "library": "loop",
        "state": "running",
        "outside": False,
        "started": now() - timedelta(minutes=53),
        "at": now(),
        "steps": 13_600,
        "total_steps": 20_000,
        "epoch": 14,
        "epochs": 20,
        "step_seconds": 0.2342,
        "left_seconds": 1500.0,
        "low_seconds": 1200.0,
        "high_seconds": 2400.0,
        "bound": "about",
    }
    return Training(**{**values, **changes})


def runs(*trainings: Training, **changes: Any) -> Push:
    """Trainings on a server whose user can be notified and may ask for two hours more once."""
    state: dict[str, Any] = {"can_notify": True, "extend": Keep(120, 1, 1, of_server=True), **changes}
    return push(reading(), server=server(**state), trainings=trainings)


def ends_first(**changes: Any) -> Push:
    """A training that goes on for 15 minutes after the end of its server, of which the service warns as well."""
    at = now()
    stops = at + timedelta(minutes=10)
    late = explain("training-too-long", ends=at + timedelta(minutes=25), stops=stops)
    return runs(a_run(), ends_at=stops, warnings=(late,), **changes)


NOT_KNOWN_WHEN: dict[str, Any] = {"left_seconds": None, "low_seconds": None, "high_seconds": None, "bound": ""}


def signs_of(*signs: tuple[str, str, str, float, bool]) -> tuple[UseSign, ...]:
    """Kind, value, source, age in seconds, and whether it decides."""
    return tuple(
        UseSign(kind, value, by, now() - timedelta(seconds=age), decides) for kind, value, by, age, decides in signs
    )


def figures() -> ServerState:
    return server(figures=Figures(UUID, now() - timedelta(seconds=25), 61.0, "dcgm"))


NO_USE = {"used_percent": None, "source": "none", "counters": None, "note": NOT_MEASURABLE}
UNKNOWN = {"memory_used_bytes": None, "used_percent": None, "holders": None, "counters": None}
AGE = timedelta(seconds=40)
NOT_LOADED, DETACHED = MEANINGS[9], MEANINGS[999]


def since(reason: str) -> Reason:
    """With the time at which the last numbers came."""
    return explain(reason, since=now() - AGE)


def without_news(state: str, reason: Reason) -> Push:
    """The last numbers, and why there are no newer ones."""
    old = reading(at=now() - AGE)
    return push(old, state=state, reason=reason, silent=AGE.total_seconds(), period_seconds=10.0)


FEW_DATA = (
    offer("mig-2g.20gb", "MIG 2g.20gb", Wait(False, None, None, None, None, explain("few-data"), note="few-data")),
    offer("gpu-0.5", "Half of a GPU", Wait(False, None, None, None, 7800.0, explain("limits-ahead"), note="few-data")),
)
ROUGH = (
    offer(
        "mig-2g.20gb",
        "MIG 2g.20gb",
        Wait(
            False, 1500.0, 2400.0, 4200.0, 7800.0, explain("usually-end", ending=2, total=3, title="MIG 2g.20gb"),
            now(), (0.05, 0.8, 1.0), "rough",
        ),
    ),
    offer("gpu-0.5", "Half of a GPU", Wait(False, 0.0, 120.0, 300.0, None, explain("usually-longer", title="GPU"))),
)  # fmt: skip

STATES: dict[str, tuple[Callable[[], Push], str]] = {
    "training": (lambda: push(reading()), "idle for 12"),
    "first-second": (
        lambda: push(reading(used_percent=0.0, memory_used_bytes=0, holders=()), points=1),
        "No notebook or program of yours uses it.",
    ),
    "signs": (
        lambda: push(
            reading(used_percent=0.0, holders=(holder("train.ipynb", 2.9),)),
            server=server(
                signs=signs_of(
                    ("gpu", "idle", "gpm", 2, False),
                    ("report", "busy", "report", 8, True),
                    ("kernels", "busy", "report", 8, False),
                    ("terminals", "unknown", "report", 8, False),
                )
            ),
        ),
        "What is known of its use",
    ),
    "back-without-gpu": (
        lambda: without_gpu(
            "no-gpu",
            NO_GPU,
            server=cpu_server(
                warnings=(explain("runs-without-gpu"),),
                signs=signs_of(("activity", "idle", "hub", 5400, True), ("kernels", "busy", "report", 8, True)),
            ),
        ),
        "runs again, without the GPU that it had",
    ),
    "few-data": (lambda: push(reading(), server=server(waits=FEW_DATA)), "not enough data yet"),
    "rough": (lambda: push(reading(), server=server(waits=ROUGH)), "(rough)"),
    "countdown": (
        lambda: push(
            reading(used_percent=0.0, holders=(holder("eda.ipynb", 0.2, 21.5),)),
            server=countdown_with(Keep(minutes=30, left=1, of=2)),
        ),
        "Stops in 8",
    ),
    "lifetime": (
        lambda: push(reading(), server=lifetime_with(Keep(minutes=120, left=1, of=1, of_server=True))),
        "1 of 1 left",
    ),
    "lifetime-put-off": (
        lambda: push(reading(), server=lifetime_with(Keep(minutes=120, left=0, of=1, of_server=True))),
        "was put off as often as it can be. Stops in",
    ),
    "countdown-no-keep-left": (
        lambda: push(reading(used_percent=0.0), server=countdown_with(Keep(minutes=30, left=0, of=2), 75)),
        "Keep is used up: 2 of 2",
    ),
    "share": (lambda: push(part(), server=shared_server()), "yours 3.1 of about 19.8"),
    "share-own-unknown": (
        lambda: push(
            part(own_memory_bytes=None, holders=(holder("train.ipynb", None),), holders_note=NOT_WHOSE),
            server=shared_server(),
        ),
        "yours unknown of about 19.8",
    ),
    "share-in-doubt": (
        lambda: push(part(limit_bytes=None, limit_source=""), server=None, service_note=NOT_KNOWN),
        "GiB, limit unknown",
    ),
    "share-exceeded": (
        lambda: push(part(own_memory_bytes=int(22.4 * GIB)), server=shared_server()),
        "yours 22.4 of about 19.8",
    ),
    "hami": (
        lambda: push(part(limit_bytes=10 * GIB, limit_source="hami"), server=shared_server()),
        "Your limit is set by HAMi.",
    ),
    "not-measurable": (lambda: push(reading(**NO_USE)), "not measurable on this card"),
    "monitoring": (
        lambda: push(reading(source="dcgm", used_percent=61.0), server=figures()),
        "Use is measured by the cluster's monitoring",
    ),
    "monitoring-silent": (
        lambda: push(
            reading(source="dcgm", used_percent=None, counters=None, note=since("figures-old")), server=server()
        ),
        "which has said nothing new since",
    ),
    "unknown": (lambda: push(reading(**UNKNOWN, source="nvml", note=NOT_READ)), "unknown of 9.75"),
    "not-answering": (lambda: without_news("not-answering", since("driver-silent")), "Numbers from 4"),
    "detached": (lambda: without_news(DETACHED.state, DETACHED.reason), "the GPU has been taken away from it"),
    "no-driver": (lambda: without_gpu(NOT_LOADED.state, NOT_LOADED.reason), "installed but not loaded"),
    "no-gpu": (
        lambda: without_gpu("no-gpu", NO_GPU, server=cpu_server()),
        "Free now: MIG 1g.10gb (2 of 5 free). To get a GPU:",
    ),
    "service-away": (
        lambda: push(reading(), service_note=since("away-since")),
        "The GPU service is not answering since",
    ),
    "no-service": (
        lambda: push(reading(), server=None, service_note=NOT_UNDER_A_HUB),
        "not started by a hub",
    ),
    "gpu-lost": (
        lambda: without_gpu(
            "lost", explain("gpu-lost"), server=server(lease_state="lost", warnings=(explain("gpu-lost"),))
        ),
        "The GPU of this server is gone",
    ),
    "one-lost": (
        lambda: push(
            reading(),
            state="lost",
            reason=explain("one-gpu-gone"),
            server=server(warnings=(explain("gpu-lost"), explain("other-program"))),
        ),
        "One of this server's GPUs is gone",
    ),
    "simulated": (
        lambda: push(reading(source="simulated", counters=None), server=server(simulated=True)),
        "simulated GPU",
    ),
    "two-gpus": (
        lambda: push(
            reading(), reading(uuid="MIG-2", used_percent=12.0, holders=()), server=server(title="2 × MIG 1g.10gb")
        ),
        "GPU 2",
    ),
    "run": (lambda: runs(a_run()), "25 min left"),
    "run-ends-too-late": (ends_first, "Ask for more time"),
    "run-ends-too-late-no-more-time": (lambda: ends_first(extend=None), "Save checkpoints"),
    "run-of-unknown-end": (
        lambda: runs(a_run(steps=1240, total_steps=None, epoch=None, epochs=None, **NOT_KNOWN_WHEN)),
        "1,240 steps, 0.23 s each",
    ),
    "run-begins": (
        lambda: runs(a_run(steps=400, epoch=1, bound="at-least", usual_seconds=720.0, usual_runs=4, high_seconds=None)),
        "Your last 4 runs took 12 min here.",
    ),
    "run-may-stop-early": (
        lambda: runs(a_run(bound="at-most", step_seconds=0.9, usual_step_seconds=0.4, outside=True, notify=True)),
        "Slower than before: 0.9 s per step instead of 0.4 s.",
    ),
    "run-silent": (lambda: runs(a_run(at=now() - timedelta(minutes=5))), "No report for 5 min"),
    "run-done": (
        lambda: runs(
            a_run(state="done", steps=20_000, ended_at=now() - timedelta(minutes=22), left_seconds=0.0),
            countdown=a_countdown(540),
        ),
        "This server stops at",
    ),
    "runs": (
        lambda: runs(
            a_run(),
            a_run(run="b2", name="cifar10 with a rather long name of its own", left_seconds=400.0),
            a_run(run="c3", name="", epoch=None, state="vanished", ended_at=now()),
            a_run(run="d4", name="deep", state="left", ended_at=now()),
        ),
        "Ended unexpectedly at",
    ),
    "sixty-four-gpus": (lambda: push(*many(64), points=60, server=server(title="64 GPUs")), "GPU 64"),
}
"""Each state, and words that it alone shows."""
