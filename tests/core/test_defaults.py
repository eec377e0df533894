"""Default values: no and none. The exceptions are listed here by name."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator

from hub_extensions.core import __path__ as core
from hub_extensions.core.cluster import __path__ as cluster
from hub_extensions.core.culling import __path__ as culling
from hub_extensions.core.forecast import __path__ as forecast
from hub_extensions.core.gpu import __path__ as gpu
from hub_extensions.core.messages import __path__ as messages
from hub_extensions.core.notices import __path__ as notices
from hub_extensions.core.offers import __path__ as offers
from hub_extensions.core.queue import __path__ as queue
from hub_extensions.core.settings import settings_in
from hub_extensions.core.sign_on import __path__ as sign_on
from hub_extensions.core.stops import __path__ as stops
from hub_extensions.core.text import __path__ as text
from hub_extensions.core.usage import __path__ as usage

FOLDERS = {
    "": core, "cluster.": cluster, "culling.": culling, "forecast.": forecast, "gpu.": gpu, "messages.": messages,
    "notices.": notices, "offers.": offers, "queue.": queue, "sign_on.": sign_on, "stops.": stops,
    "text.": text, "usage.": usage,
}  # fmt: skip


def defaults() -> Iterator[tuple[str, object]]:
    for folder, path in FOLDERS.items():
        for found in pkgutil.iter_modules(path):
            module = importlib.import_module(f"hub_extensions.core.{folder}{found.name}")
            for value in vars(module).values():
                if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.__name__:
                    by_an_admin = settings_in(value)
                    for field in dataclasses.fields(value):
                        if isinstance(field.default, int) and field.name not in by_an_admin:
                            yield f"{value.__name__}.{field.name}", field.default


def test_where_nobody_said_anything_it_is_no_and_none() -> None:
    assert {name: value for name, value in defaults() if value} == {
        **dict.fromkeys(("NodeFacts.ready", "PoolSurvey.known", "Device.usable", "DeviceState.present"), True),
        **dict.fromkeys(("Sight.whole", "JudgedGroups.is_known"), True),
        **dict.fromkeys(
            ("GpuOffer.memory_enforced", "HeldShares.frees", "Wish.shown", "App.prefix", "Accuracy.rough"), True
        ),
        **dict.fromkeys(("TemplateFacts.count", "DeviceKind.replicas", "Pool.replicas", "PodGpu.devices"), 1),
        **dict.fromkeys(("UsageRecord.devices", "Use.devices", "Wish.devices"), 1),
        **dict.fromkeys(("Ticket.attempt", "RecheckFailure.times", "TrainingHistory.version"), 1),
        "SimulationState.whole": 1000,
        "Rules.shift_counts": 20,
        "Rules.batches": 2,
        "Rules.limit_after": 8,  # of the forecast's interval
        "RuleWindow.ends": 24 * 60,
    }
