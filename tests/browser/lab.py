"""A user's JupyterLab for the browser tests: a simulated MIG device, the built panel, settings, notebooks, waiting.

Not here: the fixtures (``conftest.py``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Dialog, Locator, Page

from hub_extensions.adapters.simulated.layouts import load_layout
from tests import patience
from tests.fakes.panel_service import TOKEN, PanelService
from tests.fakes.user_server import LOGIN_TOKEN, ROOT, UserServer
from tests.machine_needs import built_panel

BUILT = built_panel()
UUID = next(device.uuid for device in load_layout("lab-a100").devices if device.profile == "1g.5gb")
APPUTILS = "@jupyterlab/apputils-extension"
PATIENCE_MS = patience.patient(40_000)
HUB = {"hubHost": "", "hubPrefix": "/hub/", "hubUser": "ada", "hubServerName": ""}
"""What a server under a hub tells its pages of it."""
PICTURES = os.environ.get("PANEL_PICTURES", "")
THEMES = ("Light", "Dark") if PICTURES else ("Light",)
"""In which a picture is taken; that each theme is as good to read is proved in ``test_states.py``."""
Picture = Callable[[Page | Locator, str], None]


def a_server(directory: Path, service: PanelService, port: int = 0, *, python_path: Path | None = None) -> UserServer:
    """A server with the built panel on a simulated MIG device; `python_path` has packages of its own."""
    assert (BUILT / "package.json").exists(), "the panel is not built: npm run build"
    extensions = directory / "share" / "labextensions"
    if not extensions.exists():
        extensions.mkdir(parents=True)
        (extensions / "jupyterhub-gpu").symlink_to(BUILT)
    choose(directory, "notification", {"fetchNews": "false", "checkForUpdates": False})
    (directory / "config" / "labconfig").mkdir(parents=True, exist_ok=True)
    (directory / "config" / "labconfig" / "page_config.json").write_text(json.dumps(HUB))
    environ = {
        "JUPYTER_PATH": str(directory / "share"),
        "JUPYTERHUB_GPU_SERVICE_URL": service.url,
        "JUPYTERHUB_API_TOKEN": TOKEN,
        "JUPYTERHUB_GPU_LEASE": "lease-of-this-test",
        "JUPYTERHUB_GPU_SIMULATED": "lab-a100",
        "CUDA_VISIBLE_DEVICES": UUID,
    }
    if python_path is not None:
        environ["PYTHONPATH"] = f"{python_path}{os.pathsep}{ROOT}"
    return UserServer(directory, environ, "--LabApp.expose_app_in_browser=True", port=port)


def settings_file(directory: Path, plugin: str, extension: str = APPUTILS) -> Path:
    """Where JupyterLab keeps a user's own settings of a plugin."""
    folder = directory / "config" / "lab" / "user-settings" / extension
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{plugin}.jupyterlab-settings"


def choose(directory: Path, plugin: str, settings: dict[str, object], extension: str = APPUTILS) -> None:
    """Write a user's own JupyterLab settings."""
    settings_file(directory, plugin, extension).write_text(json.dumps(settings))


def a_language_pack(directory: Path, language: str) -> None:
    """What ``pip install`` of a language pack and of our package leaves: their entry points.

    JupyterLab takes an extension's catalogue only where a pack of that language is installed.
    """
    pack = directory / "packs" / f"pack_of_{language.lower()}"
    pack.mkdir(parents=True)
    (pack / "__init__.py").write_text("")
    info = directory / "packs" / "a_language_pack-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a-language-pack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[jupyterlab.languagepack]\n{language} = {pack.name}\n[jupyterlab.locale]\njupyterhub_gpu = hub_extensions\n"
    )


def open_lab(page: Page, server: UserServer, path: str = "lab") -> Locator:
    """JupyterLab with the panel open; returns the panel.

    JupyterLab itself has finished then: what it still opens takes the focus, and moves what one drags.
    """
    page.goto(f"{server.url}{path}?reset&token={LOGIN_TOKEN}")
    page.wait_for_function("window.jupyterapp?.restored.then(() => true)")
    page.locator(".jp-MainAreaWidget:visible").first.wait_for()
    panel = page.locator("#jupyterhub-gpu-panel")
    page.evaluate("window.jupyterapp.commands.execute('jupyterhub-gpu:open')")
    panel.wait_for()
    return panel


@contextmanager
def a_tab(browser: Browser, width: int, height: int) -> Iterator[Page]:
    """A page of a profile of its own, so large."""
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-GB", timezone_id="Asia/Tokyo")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    yield page
    context.close()


def empty(page: Page) -> None:
    """As a new page, for the next test: nothing loaded, kept, played or forced."""
    if page.url.startswith("http"):
        page.evaluate("localStorage.clear(); sessionStorage.clear()")

    def leave(dialog: Dialog) -> None:  # "Leave site?", where something is not saved
        dialog.accept()

    page.on("dialog", leave)
    page.goto("about:blank")
    page.remove_listener("dialog", leave)
    page.unroute_all()
    page.emulate_media(forced_colors="none")


def until(true: Callable[[], object], page: Page, seconds: float = 40.0) -> None:
    """Wait for it, while the page goes on."""
    patience.until(true, seconds, rest=lambda between: page.wait_for_timeout(between * 1000))


def notebook(server: UserServer, name: str, source: str) -> None:
    """Write a notebook with one cell into the server's root."""
    cell = {"cell_type": "code", "id": "one", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    content = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (server.work / name).write_text(json.dumps(content))


def end_kernels(server: UserServer) -> None:
    """Shut every kernel down."""
    for kernel in server.request("api/kernels")[1]:
        server.request(f"api/kernels/{kernel['id']}", "DELETE")
