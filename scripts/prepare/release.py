"""``scripts/release``: build wheel, sdist, image contexts and the list of components twice, compare, install."""

from __future__ import annotations

import argparse
import filecmp
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from demo import WAITING, prepare
from kept import command
from place import NPM, ROOT, VENV, WORK, environment
from python_env import install, uv
from steps import NOTE, beating, digest, interpreter, only_one, report, step

RELEASE = WORK / "release"
TOOLS = RELEASE / "tools"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
EXTRAS = "hub,server"
IMAGES = ("hub", "singleuser")
LEFT_OUT = {".git", ".work", "build", "dist", "node_modules", "__pycache__"}
ZIP_BEGINS = 315532800
"""Seconds, 1980-01-01: the time of all files where no commit has one. A zip file knows no earlier one."""
USES_IT = """
import sys
from traitlets.config import Config
from hub_extensions import configure
c = Config()
configure(c)
print(c.JupyterHub.spawner_class)
"""


def release(words: list[str]) -> int:
    """Build twice, compare, check. Returns 0 when both builds are equal and every installation works."""
    parser = argparse.ArgumentParser(
        prog="./scripts/release",
        description="Build what a release consists of, twice, and install it into empty environments. It publishes "
        "nothing.",
        allow_abbrev=False,
    )
    parser.add_argument("--dir", metavar="FOLDER", type=Path, default=ROOT / "dist", help="where it goes, ./dist")
    parser.add_argument(
        "--python",
        metavar="PROGRAM",
        action="append",
        type=Path,
        help="install with this Python; may be given several times. Without it: every Python from 3.10 to 3.14 that "
        "is found",
    )
    parser.add_argument("--build-only", action="store_true", help="install nothing")
    asked = parser.parse_args(words)
    env = environment()
    report(f"Setting up in {WORK}")
    with only_one("set-up", WAITING), beating("Setting up"):
        prepare(env, "demo")
        prepare_release(env)
    with only_one("release", "Another release is built in this clone; waiting for it"):
        commit, seconds = _source()
        env = {**env, "SOURCE_DATE_EPOCH": str(seconds), "PYTHONHASHSEED": "0"}
        report(f"Building twice{f', from commit {commit[:12]}' if commit else ''}")
        began = time.monotonic()
        builds = [
            _build(RELEASE / name / "tree", RELEASE / name / "dist", commit, env) for name in ("first", "second-build")
        ]
        report(f"  Built in {time.monotonic() - began:.0f} s")
        equal = _compare(*builds)
        _publish(builds[0], asked.dir)
        if not equal:
            report("The two builds differ: this is no release.")
            return 1
        works = asked.build_only or _install_everywhere(asked.dir, asked.python)
    report(f"{'Ready' if works else 'Not ready'}: {asked.dir}")
    return 0 if works else 1


def prepare_release(env: Mapping[str, str]) -> None:
    """``.work/release/tools``: what writes the list of components."""
    title = "The tool for the list of components"

    def make() -> None:
        uv(title, ["venv", "--relocatable", "--no-project", "--python", sys.executable, TOOLS], env)
        install(title, "release", ["--python", TOOLS], env)

    step(title, TOOLS / NOTE, digest(interpreter(), ROOT / "requirements" / "release.txt"), make, shared=True)


def _source() -> tuple[str, int]:
    """The commit that is built, empty outside a clone, and the time that all files get, in seconds since 1970."""
    named = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not (ROOT / ".git").exists():
        return "", int(named or ZIP_BEGINS)
    commit, seconds = _git("log", "-1", "--format=%H %ct").split()
    if changed := _git("status", "--porcelain").splitlines():
        report(f"  Not in it, for it is not committed: {len(changed)} files ({changed[0][3:]}, ...)")
    return commit, int(named or seconds)


def _git(*words: str) -> str:
    git = ["git", "-c", f"safe.directory={ROOT}", *words]
    return subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _build(tree: Path, made: Path, commit: str, env: Mapping[str, str]) -> Path:
    """Everything from a fresh copy of the sources in ``tree``; returns the folder ``made``."""
    for folder in (tree, made):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    _copy_sources(tree, commit)
    for folder in ("node_modules", "labextension/node_modules"):
        (tree / folder).symlink_to(NPM / "node_modules")
    command("release", "The panel", ["npm", "run", "build"], env=env, cwd=tree)
    for file in tree.rglob("*"):
        if file.is_file() and not file.is_symlink():
            file.chmod(0o755 if os.access(file, os.X_OK) else 0o644)
    words = ["--no-build-isolation", "--offline", "--python", VENV, "--out-dir", made]
    uv("sdist", ["build", "--sdist", *words, tree], env)
    [sdist] = made.glob("*.tar.gz")
    unpacked = tree.parent / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    seconds = int(env["SOURCE_DATE_EPOCH"])
    [sources] = unpacked.iterdir()
    _pack(sdist, seconds, {sources.name: sources})
    uv("wheel", ["build", "--wheel", *words, sdist], env)  # from the sdist: nothing is missing in that
    [wheel] = made.glob("*.whl")
    (made / ".gitignore").unlink(missing_ok=True)  # uv puts it there
    version = wheel.name.split("-")[1]
    for image in IMAGES:
        context = {image: tree / "images" / image, f"dist/{wheel.name}": wheel}
        _pack(made / f"jupyterhub-gpu-{image}-{version}.context.tar.gz", seconds, context)
    static = tree / "hub_extensions" / "labextension" / "static" / "third-party-licenses.json"
    inputs = {
        "version": version,
        "seconds": seconds,
        "licenses": str(static),
        "files": sorted(map(str, made.iterdir())),
        "locks": [str(tree / "images" / image / "requirements.txt") for image in IMAGES],
    }
    target = made / f"jupyterhub_gpu-{version}.cdx.json"
    script = Path(__file__).with_name("components.py")
    command(
        "release",
        "The list of components",
        [TOOLS / "bin" / "python", "-B", script, json.dumps(inputs), target],
        env=env,
    )
    small = [VENV / "bin" / "python", "-B", tree / "scripts" / "progress-wheel.py", made]
    command("release", "The small wheel for kernels", small, env=env)
    return made


def _copy_sources(tree: Path, commit: str) -> None:
    """The files of ``commit`` into ``tree``; without one, outside a clone, all that is no product."""
    if commit:
        packed = tree.parent / "sources.tar"
        _git("archive", commit, "--format=tar", f"--output={packed}")
        with tarfile.open(packed) as archive:
            archive.extractall(tree, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        return
    for name in sorted(set(os.listdir(ROOT)) - LEFT_OUT):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=lambda _, names: LEFT_OUT & set(names))
        else:
            shutil.copy2(ROOT / name, tree / name)
    shutil.rmtree(tree / "hub_extensions" / "labextension", ignore_errors=True)


def _pack(target: Path, seconds: int, contents: Mapping[str, Path]) -> None:
    """A tar file that is the same for the same contents (name in it -> file or folder): no times, owners, orders."""
    files = {}
    for name, source in contents.items():
        below = source.rglob("*") if source.is_dir() else [source]
        files |= {
            f"{name}/{file.relative_to(source)}" if source.is_dir() else name: file for file in below if file.is_file()
        }
    fresh = target.with_suffix(".new")
    with (
        fresh.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, seconds) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = files[name].stat().st_size, seconds
            entry.mode = 0o755 if os.access(files[name], os.X_OK) else 0o644
            with files[name].open("rb") as content:
                archive.addfile(entry, content)
    fresh.replace(target)


def _compare(first: Path, second: Path) -> bool:
    """Whether both folders have the same files; prints a line for each."""
    equal = True
    for name in sorted({file.name for folder in (first, second) for file in folder.iterdir()}):
        same = (first / name).exists() and (second / name).exists() and filecmp.cmp(first / name, second / name, False)
        equal &= same
        size = (first / name).stat().st_size if (first / name).exists() else 0
        report(f"  {'equal' if same else 'DIFFERS'}  {size / 1000:9.1f} kB  {name}")
    return equal


def _publish(made: Path, folder: Path) -> None:
    """Copy the build to where it was asked for, with the checksums; earlier files of ours there go."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("jupyterhub?gpu[-_]*"), *folder.glob("SHA256SUMS")]:
        old.unlink()
    lines = []
    for file in sorted(made.iterdir()):
        shutil.copyfile(file, folder / file.name)
        lines.append(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
    (folder / "SHA256SUMS").write_text("".join(lines))


def _pythons() -> dict[str, Path]:
    """Version -> the first interpreter of it on the path, or among those that pyenv or uv keeps."""
    found: dict[str, Path] = {}
    home = Path(os.environ.get("HOME", "/"))
    kept = [Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions", home / ".local/share/uv/python"]
    for version in PYTHONS:
        candidates = [shutil.which(f"python{version}"), sys.executable]
        candidates += [str(each) for folder in kept for each in sorted(folder.glob(f"*{version}*/bin/python{version}"))]
        for candidate in filter(None, candidates):
            ask = "import sys, ssl, venv, ensurepip; print('%d.%d' % sys.version_info[:2], sys.executable)"
            said = subprocess.run([candidate, "-I", "-c", ask], capture_output=True, text=True, check=False)
            if said.stdout.startswith(f"{version} "):  # the interpreter itself, for a shim of pyenv needs a shell
                found[version] = Path(said.stdout.strip().partition(" ")[2])
                break
    return found


def _install_everywhere(folder: Path, chosen: Sequence[Path] | None) -> bool:
    """Install the wheel by each Python, and the sdist by one, each into an empty environment without Node."""
    [wheel], [sdist] = folder.glob("jupyterhub_gpu-*.whl"), folder.glob("jupyterhub_gpu-*.tar.gz")
    pythons = dict(enumerate(chosen)) if chosen else _pythons()
    jobs = [(python, wheel) for python in pythons.values()]
    jobs += [(python, sdist) for python in list(pythons.values())[-1:]]
    report("Installing into empty environments, without Node")
    worked = [_installs(python, package) for python, package in jobs]  # all are tried
    if missing := [] if chosen else [version for version in PYTHONS if version not in pythons]:
        report(f"  not tried, for it is not on this machine: Python {', '.join(missing)}")
    return bool(worked) and all(worked)


def _installs(python: Path, package: Path) -> bool:
    """Whether ``package`` works in a new virtual environment; prints what it said."""
    place = RELEASE / "empty"
    shutil.rmtree(place, ignore_errors=True)
    began = time.monotonic()
    inside = place / "bin"
    env = {name: value for name, value in environment().items() if name not in ("PATH", "PYTHONPATH")}
    env |= {"PATH": str(inside), "HOME": str(place), "PIP_NO_CACHE_DIR": ""}
    steps = (
        ("venv", [python, "-I", "-m", "venv", place]),
        ("pip install", [inside / "pip", "install", "--quiet", f"{package}[{EXTRAS}]"]),
        ("pip check", [inside / "pip", "check"]),
        ("jupyterhub-gpu --version", [inside / "jupyterhub-gpu", "--version"]),
        ("configure(c)", [inside / "python", "-c", USES_IT]),
        ("jupyter server extension list", [inside / "jupyter", "server", "extension", "list"]),
    )
    said = ""
    for name, words in steps:
        with beating(f"{python.name}, {name}"):
            done = subprocess.run(
                list(map(str, words)), env=env, cwd=place.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, check=False,
            )  # fmt: skip
        said = done.stdout
        if done.returncode:
            report(f"  FAILED  {python}: {package.name}, {name}:\n{said[-2000:]}")
            return False
    panel = place / "share/jupyter/labextensions/jupyterhub-gpu/install.json"
    server = re.search(r"hub_extensions\.server_extension .*OK", re.sub(r"\x1b\[\d+m", "", said))
    version = subprocess.run(
        [inside / "python", "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not (panel.exists() and server):
        lacks = "the server extension is not enabled" if panel.exists() else "the panel is missing"
        report(f"  FAILED  {version}: {package.name}: {lacks}")
        return False
    took = f"{time.monotonic() - began:.0f} s; panel, server extension, command, configure(c)"
    report(f"  works   {version:14} {package.name}[{EXTRAS}]: {took}")
    return True
