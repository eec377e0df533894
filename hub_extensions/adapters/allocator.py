"""Keeps this process small: what its C library has freed goes back to the system, by the GNU C library's own calls.

By default each thread gets an arena of its own, and what was freed in the middle of one stays. That was 10 to 20 MiB of
the service. Where there is another C library nothing is done.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h
_LARGE = 128 * 1024
"""Bytes from which a block is a mapping of its own, that is gone when it is freed. Said once, it does not grow."""


def keep_small() -> None:
    """One arena for all threads, of which one runs at a time; large blocks apart. Called before the first thread."""
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for name, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _LARGE)):
            library.mallopt(name, value)


def give_back() -> None:
    """What is free, now; it takes some milliseconds, without the interpreter's lock."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
