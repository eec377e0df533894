"""Keeps the memory of the process that calls it small, with calls of the GNU C library.

By default each thread allocates from its own arena (a heap of its own), and memory freed in the middle of an arena is
not returned to the system, which cost the service 10 to 20 MiB. With another C library the functions do nothing.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h
_LARGE = 128 * 1024
"""Blocks of at least this many bytes become mappings of their own, which are returned to the system when freed. Setting
the threshold explicitly keeps the library from raising it while the process runs.
"""


def limit_arenas() -> None:
    """Use one arena for all threads and separate mappings for large blocks. Call it before the first thread starts."""
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for name, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _LARGE)):
            library.mallopt(name, value)


def trim_memory() -> None:
    """Return free memory to the system. It takes some milliseconds, during which other threads can run."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
