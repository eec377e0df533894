"""``python -m hub_extensions.tools.cli``: runs the command if its script is not on the path."""

from __future__ import annotations

from hub_extensions.tools.cli import main

if __name__ == "__main__":
    main()
