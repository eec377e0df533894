"""Random stories of a server against an oracle: those of `tests/core/culling/test_stories.py`, and many more."""

from __future__ import annotations

import time

import hypothesis

from tests.examples import HUNDRED


def main(count: int) -> None:
    """So many of the first, of others half as many; one that breaks a promise is shown, as short as can be."""
    share = max(1, count * HUNDRED // EXAMPLES)
    hypothesis.settings.register_profile(
        "many", max_examples=share, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    hypothesis.settings.load_profile("many")
    from tests.core.culling import test_stories  # how many it tries is settled when it is read

    for name in [name for name in vars(test_stories) if name.startswith("test_")]:
        story, began = getattr(test_stories, name), time.monotonic()
        story()
        tried = story._hypothesis_internal_use_settings.max_examples
        print(f"{name}: {tried:,} stories, no exception ({time.monotonic() - began:.0f} s)", flush=True)


EXAMPLES = 200
"""What `many` says there."""
