"""A stand-in for tqdm 4: the iteration calls `update` only when it prints, and `close` at its end."""

from .std import tqdm, trange

__all__ = ["tqdm", "trange"]
