#!/usr/bin/env python3
"""Build the small wheel for kernels in environments of their own: ``scripts/progress-wheel.py FOLDER``.

It holds ``hub_extensions/progress`` only, without an ``__init__.py`` above it, so that the import name is the same as
with jupyterhub-gpu: ``from hub_extensions.progress import track``. It needs Python 3.8 and nothing else. Two builds are
equal byte for byte. Standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATE = (1980, 1, 1, 0, 0, 0)
METADATA = """\
Metadata-Version: 2.1
Name: jupyterhub-gpu-progress
Version: {version}
Summary: Show the progress of a training in the GPU panel of jupyterhub-gpu
License: BSD-3-Clause
License-File: LICENSE
Requires-Python: >=3.8
Description-Content-Type: text/plain

{about}
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: scripts/progress-wheel.py
Root-Is-Purelib: true
Tag: py3-none-any
"""


def build(folder: Path) -> Path:
    """Write the wheel into a folder, and return its path."""
    version = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["version"]
    package = ROOT / "hub_extensions" / "progress"
    about = (package / "__init__.py").read_text(encoding="utf-8").split('"""')[1].strip()
    info = f"jupyterhub_gpu_progress-{version}.dist-info"
    files = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in sorted(package.glob("*.py"))}
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = METADATA.format(version=version, about=about).encode()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    rows = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}\n")
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"jupyterhub_gpu_progress-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return target


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(build(Path(sys.argv[1])))
