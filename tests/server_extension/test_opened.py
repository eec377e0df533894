"""What a real server's extension reports as an opening, where no panel has connected."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub_extensions.adapters.simulated.layouts import load_layout
from tests.fakes.panel_service import TOKEN, PanelService, a_state
from tests.fakes.user_server import LOGIN_TOKEN, UserServer
from tests.patience import until

pytestmark = [pytest.mark.programs, pytest.mark.whole]
UUID = next(device.uuid for device in load_layout("lab-a100").devices if device.profile == "1g.5gb")


def test_an_authenticated_request_of_its_api_opens_a_server_and_no_other_does(tmp_path: Path) -> None:
    service = PanelService().come()
    service.state = a_state(uuid=UUID, save=True)  # the server asks every 2 s then
    environ = {"JUPYTERHUB_GPU_SIMULATED": "lab-a100", "CUDA_VISIBLE_DEVICES": UUID, "JUPYTERHUB_GPU_LEASE": "lease"}
    environ |= {"JUPYTERHUB_GPU_SERVICE_URL": service.url, "JUPYTERHUB_API_TOKEN": TOKEN}
    server = UserServer(tmp_path, environ)

    def opened() -> bool:
        before = len(service.reports)
        until(lambda: len(service.reports) >= before + 2, what="a report of after the request")
        return bool(service.reports[-1]["opened"])

    try:
        for path, token in (
            ("api/contents", None),
            ("static/favicon.ico", LOGIN_TOKEN),
            ("api/contents?no_track_activity=1", LOGIN_TOKEN),
        ):
            server.request(path, token=token)
        assert not opened()
        assert server.request("api/contents", token=LOGIN_TOKEN)[0] == 200
        assert opened()
    finally:
        server.stop()
        service.go()
