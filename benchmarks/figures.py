"""Quantiles, said the same way by every benchmark."""

from __future__ import annotations

from collections.abc import Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def latency_row(name: str, seconds: Sequence[float]) -> str:
    """One line: how many, p50, p95 and the worst, in milliseconds."""
    p50, p95 = (quantile(seconds, share) * 1000 for share in (0.5, 0.95))
    return f"{name:<44} n={len(seconds):<5} p50 {p50:8.1f} ms   p95 {p95:8.1f} ms   max {max(seconds) * 1000:8.1f} ms"
