"""Writes what a release consists of and brings along, as CycloneDX 1.6.

It runs in the environment of ``requirements/release.txt``.

The components are the packages that the two image contexts install, each with its version and hashes, and the npm
packages that are bundled in the panel. What the wheel's extras ask for stands in its own metadata, as ranges.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from datetime import datetime, timezone
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def locked(lock: Path) -> list[Component]:
    """The packages of a lock file of pip."""
    found = []
    for entry in re.split(r"\n(?=\S)", lock.read_text()):
        if match := PINNED.match(entry):
            name, version = match[1].lower(), match[2]
            hashes = [
                HashType(alg=HashAlgorithm.SHA_256, content=each)
                for each in re.findall(r"sha256:([0-9a-f]{64})", entry)
            ]
            url = PackageURL("pypi", None, name, version)
            found.append(
                Component(
                    name=name, version=version, type=ComponentType.LIBRARY, purl=url, bom_ref=str(url), hashes=hashes
                )
            )
    return found


def bundled(licenses: Path) -> list[Component]:
    """The npm packages in the panel, as its builder lists them."""
    found = []
    for each in json.loads(licenses.read_text())["packages"]:
        namespace, _, name = each["name"].rpartition("/")
        url = PackageURL("npm", namespace or None, name, each["versionInfo"])
        known = [DisjunctiveLicense(id=each["licenseId"])] if each["licenseId"] else []
        found.append(
            Component(
                name=each["name"],
                version=each["versionInfo"],
                type=ComponentType.LIBRARY,
                purl=url,
                bom_ref=str(url),
                licenses=known,
            )
        )
    return found


def main() -> None:
    """Read what ``release.py`` gives, write the list, and check it against the schema."""
    asked, target = json.loads(sys.argv[1]), Path(sys.argv[2])
    version = asked["version"]
    url = PackageURL("pypi", None, "jupyterhub-gpu", version)
    product = Component(
        name="jupyterhub-gpu", version=version, type=ComponentType.APPLICATION, purl=url, bom_ref=str(url),
        licenses=[DisjunctiveLicense(id="BSD-3-Clause")],
    )  # fmt: skip
    files = [
        Component(
            name=file.name, type=ComponentType.FILE, bom_ref=f"file:{file.name}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(file.read_bytes()).hexdigest())],
        )
        for file in map(Path, asked["files"])
    ]  # fmt: skip
    libraries = {str(each.purl): each for lock in asked["locks"] for each in locked(Path(lock))}
    libraries |= {str(each.purl): each for each in bundled(Path(asked["licenses"]))}
    bom = Bom(components=[*files, *libraries.values()])
    bom.metadata.component = product
    bom.metadata.timestamp = datetime.fromtimestamp(asked["seconds"], timezone.utc)
    bom.serial_number = uuid5(NAMESPACE_URL, json.dumps([each.hashes[0].content for each in files]))
    bom.register_dependency(product, [*files, *libraries.values()])
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"The list of components is not valid: {wrong}")
    target.write_text(text + "\n")


if __name__ == "__main__":
    main()
