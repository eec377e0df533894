"""Builds the programs of the tests' cluster from the Go modules beside this file, into a cache outside the checkout.

``python build.py`` builds what is missing and prints the folder; ``python build.py NAME…`` builds those only;
``python build.py --missing`` prints the names that would be built, ``--cache`` where they are kept. Standard library
only: the set-up runs it too.

A program is built again when its module's files or flags change, never because of its age; what older checkouts built
is left where it is. Programs in the folder KUBEBUILDER_ASSETS are taken as they are. No Go is needed for what is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLDEST_GO = (1, 26)
BUILD_SECONDS = 1800.0
_KUBERNETES = "k8s.io/kubernetes/cmd/"
_CONTAINERD = "github.com/containerd/containerd/v2/cmd/"
_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
ENVOY_GATEWAY_KINDS = "charts/gateway-helm/crds/generated"
TRAEFIK_KINDS = "docs/content/reference/dynamic-configuration"


class CannotBuild(Exception):
    """Why a program cannot be had, as a sentence."""


@dataclass(frozen=True)
class Program:
    """One command: the folder of the Go module that pins it, and its package there ("": only its files are wanted).

    Attributes:
        files: a folder of the pinned module (module, folder) kept beside the program: manifests that go with it.
    """

    name: str
    module: str
    package: str
    files: tuple[str, str] | None = None


PINNED = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    Program("kube-apiserver", "kubernetes", _KUBERNETES + "kube-apiserver"),
    Program("kube-scheduler", "kubernetes", _KUBERNETES + "kube-scheduler"),
    Program("kube-controller-manager", "kubernetes", _KUBERNETES + "kube-controller-manager"),
    Program("kubelet", "kubernetes", _KUBERNETES + "kubelet"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    Program("containerd", "containerd", _CONTAINERD + "containerd"),
    Program("ctr", "containerd", _CONTAINERD + "ctr"),
    Program("containerd-shim-runc-v2", "containerd", _CONTAINERD + "containerd-shim-runc-v2"),
    Program("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue", ("sigs.k8s.io/kueue", "config")),
    Program("kustomize", "kustomize", "sigs.k8s.io/kustomize/kustomize/v5"),
    Program("prometheus-operator", "prometheus-operator", "", (_OPERATOR, "example/prometheus-operator-crd")),
    Program("gateway-api", "gateway-api", "", ("sigs.k8s.io/gateway-api", "config/crd/standard")),
    Program("envoy-gateway", "envoy-gateway", "", ("github.com/envoyproxy/gateway", ENVOY_GATEWAY_KINDS)),
    Program("traefik", "traefik", "", ("github.com/traefik/traefik/v3", TRAEFIK_KINDS)),
)
"""Of other projects. A folder beside this file with a ``main.go`` is a program of ours, named like the folder."""


def programs(*names: str) -> Path:
    """The folder with the programs (all of them unless named), built first where missing.

    ``<folder>/kueue-files/config`` holds the manifests of the pinned Kueue, ``<folder>/prometheus-operator-files``,
    ``gateway-api-files``, ``envoy-gateway-files`` and ``traefik-files`` the kinds of those.

    Raises:
        CannotBuild: Go is missing or too old, or a build failed; the text says which and why.
    """
    wanted = _wanted(names)
    places = {program.name: _place(program) for program in wanted}
    for program in wanted:
        if not _is_built(program):
            _build(program)
    together = hashlib.sha256(repr(sorted(places.items())).encode()).hexdigest()[:16]
    folder = cache() / "programs" / together
    folder.mkdir(parents=True, exist_ok=True)
    for program in wanted:
        if program.package:
            _link(folder / program.name, places[program.name])
        if program.files:
            _link(folder / f"{program.name}-files", _files_place(program))
    return folder


def missing(*names: str) -> list[str]:
    """The programs that would have to be built, in the order of building."""
    return [program.name for program in _wanted(names) if not _is_built(program)]


def cache() -> Path:
    """Where built programs are kept: JUPYTERHUB_GPU_CLUSTER, else the user's cache, root's in /var/cache."""
    if named := os.environ.get("JUPYTERHUB_GPU_CLUSTER"):
        return Path(named).absolute()
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"], "jupyterhub-gpu", "cluster")
    if os.geteuid() == 0:
        return Path("/var/cache/jupyterhub-gpu/cluster")
    return Path.home() / ".cache" / "jupyterhub-gpu" / "cluster"


def why_no_go() -> str:
    """Why nothing can be built here: a sentence, empty where Go is there and new enough."""
    needed = ".".join(map(str, OLDEST_GO))
    go = shutil.which("go")
    if go is None:
        return f"the cluster's programs are built with Go {needed} or newer, and there is no go on the path (https://go.dev/dl)"
    said = subprocess.run([go, "version"], capture_output=True, text=True, timeout=60, env=_environment(), check=False)
    found = re.search(r"\bgo(\d+)\.(\d+)", said.stdout)
    if found is None:
        return f"{go} does not say its version: {(said.stderr or said.stdout).strip()[:200]}"
    if (int(found[1]), int(found[2])) < OLDEST_GO:
        has = f"{found[1]}.{found[2]}"
        return f"the cluster's programs need Go {needed} or newer to be built, and {go} is {has} (https://go.dev/dl)"
    return ""


def _wanted(names: Sequence[str]) -> list[Program]:
    ours = [Program(main.parent.name, main.parent.name, ".") for main in sorted(HERE.glob("*/main.go"))]
    known = {program.name: program for program in (*PINNED, *ours)}
    if unknown := [name for name in names if name not in known]:
        raise CannotBuild(f"{', '.join(unknown)}: no such program; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def _place(program: Program) -> Path:
    """Where the program lies once it is built; its name carries a hash of everything it is built from."""
    if given := _given(program.name):
        return given
    return cache() / "built" / f"{program.name}-{_inputs(program)}" / program.name


def _files_place(program: Program) -> Path:
    return cache() / "built" / f"{program.name}-{_inputs(program)}" / "files"


def _given(name: str) -> Path | None:
    """The program in KUBEBUILDER_ASSETS, where that is set and has it."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if folder and os.access(Path(folder, name), os.X_OK):
        return Path(folder, name).absolute()
    return None


def _is_built(program: Program) -> bool:
    has_program = not program.package or _place(program).exists()
    return has_program and (program.files is None or _files_place(program).exists())


def _inputs(program: Program) -> str:
    total = hashlib.sha256(repr((program, platform.machine(), _link_flags(program))).encode())
    for file in sorted((HERE / program.module).rglob("*")):
        if file.is_file():
            total.update(str(file.relative_to(HERE)).encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()[:16]


def _link_flags(program: Program) -> str:
    """Small programs; those of Kubernetes say their release, without which clients refuse features."""
    if program.module != "kubernetes":
        return "-s -w"
    text = (HERE / "kubernetes" / "go.mod").read_text(encoding="utf-8")
    release = re.search(r"k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)", text)
    if release is None:
        raise CannotBuild("kubernetes/go.mod names no release of k8s.io/kubernetes")
    values = {"gitVersion": release[1], "gitMajor": release[2], "gitMinor": release[3]}
    return "-s -w " + " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items())


def _build(program: Program) -> None:
    if reason := why_no_go():
        raise CannotBuild(reason)
    place = cache() / "built" / f"{program.name}-{_inputs(program)}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with _alone(place), tempfile.TemporaryDirectory(prefix=f".{program.name}-", dir=place.parent) as made:
        if _is_built(program):
            return  # by somebody else meanwhile
        if program.package and not _given(program.name):
            # -trimpath everywhere: Go takes over compiled packages of another program only with the same flags
            flags = ["-mod=readonly", "-modcacherw", "-trimpath", "-buildvcs=false", "-ldflags", _link_flags(program)]
            _go(program, "build", *flags, "-o", str(Path(made, program.name)), program.package)
        if program.files:
            module, folder = program.files
            lies = json.loads(_go(program, "mod", "download", "-modcacherw", "-json", module))["Dir"]
            shutil.copytree(Path(lies, folder), Path(made, "files", folder), copy_function=shutil.copyfile)
        Path(made).chmod(0o755)
        place.mkdir(exist_ok=True)
        for part in Path(made).iterdir():
            if part.is_dir():
                part.chmod(0o755)
            if part.is_dir() and (place / part.name).exists():
                continue  # another build was quicker with the same files
            os.replace(part, place / part.name)


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One process builds this at a time; another one waits, and finds it built."""
    lock = place.with_name(f".{place.name}.lock")
    held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with contextlib.suppress(OSError):
            os.chmod(lock, 0o666)  # whoever else may build here may wait here
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _go(program: Program, *words: str) -> str:
    try:
        done = subprocess.run(
            ["go", *words],
            cwd=HERE / program.module,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotBuild(f"{program.name}: go {words[0]} was not finished after {BUILD_SECONDS:.0f} s") from None
    if done.returncode:
        sys.stderr.write(done.stderr)
        lines = [line for line in done.stderr.splitlines() if line and not line.startswith("go: downloading")]
        raise CannotBuild(f"{program.name} cannot be built: {(lines or ['go said nothing'])[-1][:300]}")
    return done.stdout


def _environment() -> dict[str, str]:
    """The caller's, with Go as it is: no other toolchain is fetched, no workspace is joined, no C is compiled."""
    env = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    if not env.get("HOME"):  # Go finds its caches by it
        env.setdefault("GOCACHE", str(cache() / "go" / "build"))
        env.setdefault("GOMODCACHE", str(cache() / "go" / "mod"))
    return env


def _link(link: Path, target: Path) -> None:
    """A link that is there at once or not at all, also with two who make it."""
    if link.is_symlink() and os.readlink(link) == str(target):
        return
    new = link.with_name(f".{link.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    os.replace(new, link)


def _give_way() -> None:
    """Everything else on this machine goes first: a build may run beside tests that wait for something else."""
    os.nice(19 - os.nice(0))
    if os.getsid(0) == os.getpid():  # Linux weighs sessions against each other; this one is nobody else's
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text("19", encoding="ascii")


def main(words: Sequence[str]) -> int:
    """See the top of this file."""
    try:
        if words[:1] == ["--missing"]:
            print("\n".join(missing(*words[1:])))
            return 0
        if words[:1] == ["--cache"]:
            print(cache())
            return 0
        for name in missing(*words):
            _give_way()
            print(f"{name} ...", file=sys.stderr, flush=True)
            _build(*_wanted([name]))
        print(programs(*words))
    except CannotBuild as reason:
        print(f"{reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
