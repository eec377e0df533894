"""Find the events of one pod in KubeSpawner's watch of the namespace's events, indexed once for all starts."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

EVENTS_SECONDS = 1.0  # the index of events by pod is rebuilt at most this often

_BY_POD: weakref.WeakKeyDictionary[Any, tuple[float, dict[str, list[Mapping[str, Any]]]]] = weakref.WeakKeyDictionary()


def events_of(reflector: Any, uid: str, *, fresh: bool = False) -> Sequence[Mapping[str, Any]]:
    """Return the events of one pod by its uid, because an earlier pod of the same name has its own events (T20).

    Args:
        fresh: read the events now. Otherwise they may be `EVENTS_SECONDS` old.
    """
    if reflector is None or not uid:
        return ()
    now = asyncio.get_running_loop().time()
    at, by_pod = _BY_POD.get(reflector, (float("-inf"), {}))
    if fresh or now - at >= EVENTS_SECONDS:
        by_pod = {}
        for event in list(reflector.resources.values()):
            by_pod.setdefault((event.get("involvedObject") or {}).get("uid") or "", []).append(event)
        _BY_POD[reflector] = (now, by_pod)
    return by_pod.get(uid, ())
