"""A hub with ``internal_ssl``: the service shows it the certificate that the hub made for it, and all ways work."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from tests.loop.place import Place
from tests.patience import patient, until

pytestmark = [pytest.mark.hub, pytest.mark.whole]

CONFIG = """
c.JupyterHub.internal_ssl = True
c.JupyterHub.internal_certs_location = {folder!r}
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_bind_url.replace("http:", "https:")
c.ConfigurableHTTPProxy.api_url = c.ConfigurableHTTPProxy.api_url.replace("http:", "https:")
"""


def test_the_ways_between_browser_proxy_hub_service_and_server_work(tmp_path: Path) -> None:
    config = CONFIG.format(folder=str(tmp_path / "certificates"))
    # JupyterHub's client reads where the certificates are while it is imported, so nothing is imported before
    with Place(tmp_path / "hub", layout="lab-a100", lab=False, config=config, warm=False).open() as place:
        session = place.hub.login("ada")
        session.headers.pop("X-XSRFToken", None)
        answer = session.get(f"{place.hub.url}/services/gpu/", timeout=patient(20))
        assert answer.status_code == 200 and "Your GPU" in answer.text
        until(lambda: health(place) == "answers", 30, "the service reaches the hub")
        form = session.get(f"{place.hub.url}/hub/spawn", timeout=patient(20)).text
        assert "mig-1g.5gb" in form and "not answering" not in form
        assert place.hub.spawn("ada", {"offer": "mig-1g.5gb"}).status_code in (201, 202)
        place.hub.wait_ready("ada")
        environ = place.hub.environ("ada")
        assert environ["JUPYTERHUB_SERVICE_URL"].startswith("https://")
        asks = {"Authorization": f"Bearer {environ['JUPYTERHUB_API_TOKEN']}"}
        state = requests.get(f"{environ['JUPYTERHUB_GPU_SERVICE_URL']}/api/server", headers=asks, timeout=patient(10))
        assert (state.status_code, state.json()["server"]) == (200, "")


def health(place: Place) -> str:
    headers = {"Authorization": f"token {place.hub.token}"}
    found = requests.get(f"{place.hub.url}/services/gpu/health", headers=headers, timeout=patient(10)).json()
    return str(found.get("hub"))
