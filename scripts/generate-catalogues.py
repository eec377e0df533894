"""Make the catalogues in ``hub_extensions/locale/<language>/LC_MESSAGES``: the panel's, which JupyterLab reads, and
that of the pages.

Their sources are the files of translators, ``labextension/locale/<language>.po`` and
``hub_extensions/locale/<language>.po``. What is marked fuzzy is left out.
``--check`` changes nothing and fails when a catalogue is not what its source says. Needs babel, which JupyterLab has.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po

ROOT = Path(__file__).resolve().parents[1]
CATALOGUES = ROOT / "hub_extensions" / "locale"
SOURCES = {"jupyterhub_gpu": ROOT / "labextension" / "locale", "jupyterhub_gpu_pages": CATALOGUES}
"""The name of a catalogue -> where the files of translators are that it is made of."""
CONTEXT = "\x04"
"""Between a context and its text, as in gettext's own files."""
FORMS_JUPYTERLAB_WANTS = 2
"""JupyterLab takes a plural for missing when it has one form only, as in Japanese: that one is then written twice."""


def main() -> int:
    """Write the catalogues, or with ``--check`` name those that are old."""
    old = []
    found = [(domain, source) for domain, folder in SOURCES.items() for source in sorted(folder.glob("*.po"))]
    for domain, source in found:
        target = CATALOGUES / source.stem / "LC_MESSAGES" / f"{domain}.json"
        text = catalogue(source, domain)
        if target.exists() and target.read_text(encoding="utf-8") == text:
            continue
        old.append(target)
        if "--check" not in sys.argv:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    for target in old:
        print(target.relative_to(ROOT))
    return 1 if old and "--check" in sys.argv else 0


def catalogue(source: Path, domain: str) -> str:
    """One language as JupyterLab reads it: Jed's format, with the language as browsers write it."""
    with source.open("rb") as file:
        read: Catalog = read_po(file, locale=source.stem, domain=domain)
    made: dict[str, object] = {
        "": {"domain": domain, "language": source.stem.replace("_", "-"), "plural_forms": read.plural_forms}
    }
    for message in read:
        if not message.id or message.fuzzy or not message.string:
            continue
        if isinstance(message.id, str):
            made[f"{message.context}{CONTEXT}{message.id}" if message.context else message.id] = [message.string]
            continue
        forms = list(message.string)
        made[message.id[0]] = forms + forms[-1:] * (FORMS_JUPYTERLAB_WANTS - len(forms))
    return json.dumps(made, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(main())
