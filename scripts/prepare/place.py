"""Where everything lies below ``.work``, and the environment the set-up and what it starts are run in.

The caller's settings for pip, npm, proxies and certificates are kept; what could change how our hub, its servers or
this Python behave is left out.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".work"
LOGS = WORK / "logs"
VENV = WORK / "venv"
VENV_HUB5 = WORK / "venv-hub5"
UV = WORK / "uv"
NODE = WORK / "node"
NPM = WORK / "npm"
SSO = WORK / "sso"
APPS = WORK / "apps"
BUILD = WORK / "build"
WHEEL = WORK / "wheel"
RUN = WORK / "run"

_IGNORED = ("JUPYTER", "CONFIGPROXY_", "PYTHON", "IPYTHON", "VIRTUAL_ENV", "CONDA_", "NODE_PATH", "NODE_OPTIONS")
_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def environment() -> dict[str, str]:
    """The caller's environment without what must not reach us; caches go into ``.work`` unless named."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_IGNORED)}
    env.setdefault("UV_CACHE_DIR", str(WORK / "cache" / "uv"))
    if not any(name.lower() == "npm_config_cache" for name in env):
        env["npm_config_cache"] = str(WORK / "cache" / "npm")
    certificate = next((env[name] for name in _CERTIFICATES if env.get(name)), None)
    if certificate:
        env.setdefault("NODE_EXTRA_CA_CERTS", certificate)
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"  # the tests use pip
    env["PIP_NO_INPUT"] = "1"
    env["JUPYTER_CONFIG_DIR"] = str(RUN / "home" / ".jupyter")
    env["PYTHONNOUSERSITE"] = "1"
    env.setdefault("LANG", "C.UTF-8")
    return env


def search_path(*, node_folder: Path | None) -> str:
    """``PATH`` with our programs first: the virtual environment, the npm programs, our Node if we fetched one."""
    folders = [VENV / "bin", NPM / "node_modules" / ".bin"]
    if node_folder is not None:
        folders.append(node_folder)
    return os.pathsep.join([*map(str, folders), os.environ.get("PATH", os.defpath)])
