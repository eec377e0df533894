"""Adds a fault to the proxy of a running demo, or removes it: ``python -m … FOLDER plant|mend``.

A button on the page of the sign-in service runs it, so that the audit has something to find.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hub_extensions.tools.demo import DemoRefused
from hub_extensions.tools.demo.proxy import DemoProxy


def main(folder: str, wanted: str) -> int:
    """Add or remove the fault. Return the exit status; a failure is printed."""
    try:
        DemoProxy.load(Path(folder)).change(has_fault=wanted == "plant")
    except (DemoRefused, OSError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
