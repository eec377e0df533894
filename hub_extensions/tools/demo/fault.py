"""Plants a fault in the proxy of a demo that runs, or takes it back: ``python -m … FOLDER plant|mend``.

For the button on the page of the sign-in service: the audit then has something to find.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hub_extensions.tools.demo import DemoRefused
from hub_extensions.tools.demo.proxy import DemoProxy


def main(folder: str, wanted: str) -> int:
    """Returns the exit status; why it failed is written for a person."""
    try:
        DemoProxy.load(Path(folder)).change(has_fault=wanted == "plant")
    except (DemoRefused, OSError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
