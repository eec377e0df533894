"""A service that starts on a full disk."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_service.test_process import Place, asked
from tests.patience import patient, until

pytestmark = [pytest.mark.needs("root"), pytest.mark.programs]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """4 MiB, mounted for real."""
    words = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "gpu-test", str(tmp_path)]
    subprocess.run(words, check=True, timeout=patient(30))
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True, timeout=patient(30))


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return ballast


def test_it_answers_with_the_reason_and_goes_on_when_there_is_room(small: Path) -> None:
    place = Place(small)
    first = place.start("first")
    until(place.answers, 30, "it answers")
    first.terminate()
    first.wait(patient(20))
    ballast = fill(small)
    second = place.start("second")
    until(lambda: asked(place, "health")[0] == 503, 60, lambda: str(place.log("second")))
    health = json.loads(asked(place, "health")[2])
    assert health["ready"] is False and "gpu.sqlite" in health["store"]
    ballast.unlink()
    until(place.answers, 60, "it goes on")
    second.terminate()
    assert second.wait(patient(20)) == 0
