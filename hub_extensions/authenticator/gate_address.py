"""Where the hub reaches the gate. Not here: what it says there (``gate_caller.py``)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GateAddress:
    """Where the hub reaches the gate, and the secret that both have."""

    url: str
    secret: str = field(repr=False)
