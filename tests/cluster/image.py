"""The images of the real node, made without a builder: JupyterLab with our package, and the sandboxes' pause program.

The base (Debian, Python, JupyterHub and JupyterLab as ``requirements/demo.txt`` locks them) is made once and kept in
the cache of the cluster tests; our package is a thin second layer, made again whenever its sources change. Everything
that has to be mounted while an image is made is mounted in a mount namespace of its own, so nothing can stay behind.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.machine_needs import TREE, built_panel
from tests.patience import patient

BASE = "docker.io/local/jupyterlab-base:1"
JUPYTERLAB = "docker.io/local/jupyterlab:1"
PAUSE = "docker.io/local/pause:1"
USER, GROUP, HOME = 1000, 100, "/home/jovyan"
LOCK = TREE / "requirements" / "demo.txt"
PACKED = ("hub_extensions", "jupyter-config", "setup.py", "pyproject.toml", "package.json", "LICENSE", "README.md")
PACKED_FILES = ("MANIFEST.in", "labextension/install.json")
LEFT_OUT = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
    "root/.cache",
    "tmp",
)
PREPARED = TREE / ".work" / "venv"
"""What ``scripts/prepare`` makes: it can build the package, and has the panel."""
PREPARED_PANEL = PREPARED / "share" / "jupyter" / "labextensions" / "jupyterhub-gpu"
PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RECIPE = "1"
"""Changes when this file makes a different base from the same inputs."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: an uncompressed tar, and the SHA-256 of it."""

    tar: Path
    digest: str
    size: int


def base_key() -> str:
    """What the base depends on: the lock file, the machine's architecture, the recipe."""
    return _digest(RECIPE.encode(), platform.machine().encode(), LOCK.read_bytes())


def base_layer(cache: Path) -> Layer:
    """Debian with JupyterLab, from the cache below ``cache``, else made: needs root, debootstrap and the network."""
    folder = cache / f"image-{base_key()}"
    with _alone(cache):
        if not (folder / "layer.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            _make_base(folder / "root", folder / "log")
            _pack(folder, folder / "root", LEFT_OUT)
        return _packed(folder)


def package_layer(cache: Path) -> Layer:
    """Our package with the built panel, installed on the base: a few files, keyed by their sources."""
    panel = next((each for each in (built_panel(), PREPARED_PANEL) if (each / "package.json").exists()), None)
    if panel is None:
        raise RuntimeError("the panel is not built: run ./scripts/prepare, or npm run build")
    folder = cache / f"package-{_digest(base_key().encode(), *_contents(panel))}"
    base_layer(cache)
    with _alone(cache):
        if not (folder / "layer.json").exists():
            for old in cache.glob("package-*"):
                shutil.rmtree(old)
            folder.mkdir(parents=True)
            _install_package(cache / f"image-{base_key()}" / "root", folder, panel)
            _pack(folder, folder / "upper", (*LEFT_OUT, "mnt"))
        return _packed(folder)


def write_jupyterlab(archive: Path, base: Layer, package: Layer, *, without_base: bool) -> None:
    """The image :data:`JUPYTERLAB` as an OCI archive; ``without_base`` where the base is in the image store already."""
    carried = [package] if without_base else [base, package]
    _write_image(archive, JUPYTERLAB, [base, package], _server_config(), carried)


def write_base(archive: Path, base: Layer) -> None:
    """The image :data:`BASE` as an OCI archive: the base layer alone."""
    _write_image(archive, BASE, [base], _server_config(), [base])


def write_pause(archive: Path, program: Path) -> None:
    """The image :data:`PAUSE` as an OCI archive: one static program."""
    folder = archive.with_suffix(".layer")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "root").mkdir(parents=True)
    shutil.copy2(program, folder / "root" / "pause")
    (folder / "root" / "pause").chmod(0o755)
    layer = _pack(folder, folder / "root", ())
    _write_image(archive, PAUSE, [layer], {"Entrypoint": ["/pause"], "User": "65535:65535"}, [layer])
    shutil.rmtree(folder)


def _server_config() -> dict[str, Any]:
    env = [f"PATH={PATH}", f"HOME={HOME}", "LANG=C.UTF-8", "SHELL=/bin/bash", "NB_USER=jovyan"]
    return {"User": f"{USER}:{GROUP}", "Env": env, "WorkingDir": HOME, "Cmd": ["jupyterhub-singleuser"]}


def _make_base(root: Path, log: Path) -> None:
    packages = "python3,python3-venv,ca-certificates"
    words = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(root)]
    _privately(shlex.join(words), log)
    shutil.copy2(LOCK, root / "root" / "lock.txt")
    install = "/opt/venv/bin/python -m pip install --require-hashes --only-binary :all: --no-deps -r /root/lock.txt"
    script = f"""
        mount --rbind / {shlex.quote(str(root / "mnt"))}
        chroot {shlex.quote(str(root))} /bin/sh -ec 'python3 -m venv /opt/venv; {install} --no-cache-dir'
    """
    _privately(script, log, _pip_settings())
    (root / "root" / "lock.txt").unlink()
    with (root / "etc" / "passwd").open("a", encoding="utf-8") as accounts:
        accounts.write(f"jovyan:x:{USER}:{GROUP}::{HOME}:/bin/bash\n")
    home = root / HOME.lstrip("/")
    home.mkdir(parents=True)
    os.chown(home, USER, GROUP)
    for name in ("resolv.conf", "hostname"):
        (root / "etc" / name).unlink(missing_ok=True)


def _install_package(base: Path, folder: Path, panel: Path) -> None:
    for name in ("upper", "work", "merged", "source"):
        (folder / name).mkdir()
    _build_wheel(folder / "source", folder, panel)
    (wheel,) = folder.glob("*.whl")
    lower, upper, work, merged = (
        shlex.quote(str(path)) for path in (base, *(folder / n for n in ("upper", "work", "merged")))
    )
    script = f"""
        mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir={work} {merged}
        cp {shlex.quote(str(wheel))} {merged}/tmp/
        chroot {merged} /opt/venv/bin/python -m pip install --no-deps --no-index --no-cache-dir /tmp/{wheel.name}
    """
    _privately(script, folder / "log", {"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    for name in ("work", "merged", "source"):
        shutil.rmtree(folder / name)


def _build_wheel(source: Path, target: Path, panel: Path) -> None:
    for name in (*PACKED, *PACKED_FILES):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if (TREE / name).is_dir():
            kept = shutil.ignore_patterns("__pycache__", "labextension", "*.pyc")
            shutil.copytree(TREE / name, source / name, ignore=kept)
        else:
            shutil.copy2(TREE / name, source / name)
    # install.json lies beside the panel where it is installed, and comes from the sources here
    shutil.copytree(panel, source / "hub_extensions" / "labextension", ignore=shutil.ignore_patterns("install.json"))
    words = ["wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", target, source]
    with (target / "log").open("wb") as log:
        subprocess.run([packer(), "-m", "pip", *words], check=True, stdout=log, stderr=log, timeout=patient(300))


def packer() -> str:
    """A Python that has what our package is built with: the one that runs the tests, else the one prepared for them.

    Raises:
        RuntimeError: neither has it.
    """
    find = "from importlib.util import find_spec; print(all(map(find_spec, ('jupyter_builder', 'pip', 'setuptools'))))"
    for python in (sys.executable, str(PREPARED / "bin" / "python")):
        asked = [python, "-c", find]
        if (
            shutil.which(python)
            and b"True" in subprocess.run(asked, capture_output=True, timeout=patient(60), check=False).stdout
        ):
            return python
    raise RuntimeError("the package's wheel needs a Python with pip, setuptools and jupyter-builder: ./scripts/prepare")


def _contents(panel: Path) -> Iterator[bytes]:
    """The names and bytes of everything that is packed."""
    places = [TREE / name for name in (*PACKED, *PACKED_FILES)]
    files = {file for place in places for file in ([place] if place.is_file() else place.rglob("*"))}
    files = {file for file in files if not {"__pycache__", "labextension"} & set(file.relative_to(TREE).parts[:-1])}
    for file in sorted(files | set(panel.rglob("*"))):
        if file.is_file() and file.suffix != ".pyc":
            yield str(file.relative_to(panel if file.is_relative_to(panel) else TREE)).encode()
            yield file.read_bytes()


def _privately(script: str, log: Path, more: Mapping[str, str] | None = None) -> None:
    """Run a shell script as root whose mounts nobody else sees, and which are gone with it."""
    words = ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-ec", script]
    env = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **_proxies(), **(more or {})}
    with log.open("ab") as written:
        done = subprocess.run(words, env=env, stdout=written, stderr=written, timeout=patient(900), check=False)
    if done.returncode:
        raise RuntimeError(f"making the image failed, {log} ends:\n{log.read_text(errors='replace')[-1500:]}")


def _proxies() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name.lower() in ("http_proxy", "https_proxy", "no_proxy")
    }


def _pip_settings() -> dict[str, str]:
    """This machine's settings of pip, as environment variables; its files are below /mnt while the base is made."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=patient(60)
    )
    settings = {}
    for name, value in re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed.stdout, re.MULTILINE):
        settings["PIP_" + name.upper().replace("-", "_")] = f"/mnt{value}" if value.startswith("/") else value
    certificates = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    settings.setdefault("PIP_CERT", f"/mnt{certificates}")
    return settings


def _pack(folder: Path, root: Path, left_out: tuple[str, ...]) -> Layer:
    """Pack ``root`` as ``folder/layer.tar``; what is below the names of ``left_out`` stays out."""
    tar = folder / "layer.tar"

    def member(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = info.name.removeprefix("./")
        if any(name.startswith(f"{prefix}/") for prefix in left_out):
            return None
        return None if info.ischr() or info.isblk() or info.isfifo() else info

    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as packed:
        packed.add(root, arcname=".", filter=member)
    facts = {"digest": _sha256(tar), "size": tar.stat().st_size}
    (folder / "layer.json").write_text(json.dumps(facts), encoding="utf-8")
    return _packed(folder)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _packed(folder: Path) -> Layer:
    facts = json.loads((folder / "layer.json").read_text(encoding="utf-8"))
    return Layer(folder / "layer.tar", facts["digest"], facts["size"])


def _write_image(archive: Path, name: str, layers: list[Layer], config: dict[str, Any], carried: list[Layer]) -> None:
    """An OCI archive: https://github.com/opencontainers/image-spec, image-layout.md."""
    kind = "application/vnd.oci.image"
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    diffs = {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]}
    config_blob = json.dumps({"architecture": machine, "os": "linux", "config": config, "rootfs": diffs}).encode()
    described = [_descriptor(f"{kind}.layer.v1.tar", layer.digest, layer.size) for layer in layers]
    about = _descriptor(f"{kind}.config.v1+json", hashlib.sha256(config_blob).hexdigest(), len(config_blob))
    manifest = {"schemaVersion": 2, "mediaType": f"{kind}.manifest.v1+json", "config": about, "layers": described}
    manifest_blob = json.dumps(manifest).encode()
    entry = _descriptor(f"{kind}.manifest.v1+json", hashlib.sha256(manifest_blob).hexdigest(), len(manifest_blob))
    entry |= {"annotations": {"io.containerd.image.name": name}, "platform": {"architecture": machine, "os": "linux"}}
    with tarfile.open(archive, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
        for blob in (config_blob, manifest_blob):
            _add(tar, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
        for layer in carried:
            tar.add(layer.tar, arcname=f"blobs/sha256/{layer.digest}")


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Only one process makes an image in this cache at a time."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
