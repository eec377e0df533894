"""A service that starts on a full disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.fakes.signed import Signs
from tests.hub_service.test_process import Place, asked, children, command_of
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


def order(place: Place, user: str) -> requests.Response:
    ask = {"user": user, "server": "", "offers": ["mig-1g.5gb"]}
    return requests.post(
        f"{place.settings.url}/hub/tickets", json=ask, auth=Signs(place.settings.hub_secret), timeout=patient(10)
    )


def form(place: Place) -> dict[str, Any]:
    answer = requests.get(
        f"{place.settings.url}/hub/form?user=ada", auth=Signs(place.settings.hub_secret), timeout=patient(10)
    )
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def end(place: Place, service: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """SIGKILL leaves the log of the database and its index; SIGTERM leaves neither."""
    if number is signal.SIGTERM:
        service.terminate()
    else:
        (pid,) = [child for child in children(service.pid) if b"hub_service" in command_of(child)]
        service.kill()  # the supervisor first: it would start another
        os.kill(pid, number)
    service.wait(patient(20))


@pytest.mark.parametrize(
    ("number", "lost"),
    [(signal.SIGTERM, ()), (signal.SIGKILL, ()), (signal.SIGKILL, ("gpu.sqlite-shm",))],
    ids=["stopped", "killed", "killed-without-index"],
)
def test_it_shows_what_is_there_and_takes_orders_when_there_is_room(
    small: Path, number: signal.Signals, lost: tuple[str, ...]
) -> None:
    place = Place(small)
    first = place.start("first")
    until(place.answers, 30, "it answers")
    assert order(place, "ada").status_code == 200
    end(place, first, number)
    for name in lost:
        (small / name).unlink()
    ballast = fill(small)
    second = place.start("second")
    until(lambda: asked(place, "health")[0] == 503, 60, lambda: str(place.log("second")))
    health = json.loads(asked(place, "health")[2])
    assert health["ready"] is False and "gpu.sqlite" in health["store"] and "full" in health["store"]
    seen = form(place)
    assert seen["in_line"] == [""] and any(offer["id"] == "mig-1g.5gb" for offer in seen["offers"])
    refused = order(place, "ben")
    assert refused.headers["Retry-After"] == "5" and "full" in refused.json()["message"]
    ballast.unlink()
    until(place.answers, 60, "it goes on")
    assert form(place)["in_line"] == [""]
    assert order(place, "ben").json()["answer"] == "wait"
    second.terminate()
    assert second.wait(patient(20)) == 0
