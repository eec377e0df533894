"""The package's translations (gettext catalogues in ``locale/<language>/LC_MESSAGES/``), read once.

The panel's catalogue translates the reasons that the panel shows, the pages' catalogue everything else; a page uses
both. ``scripts/generate-catalogues.py`` generates them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from gettext import c2py
from importlib.resources import files

from hub_extensions.core.text.translation import ENGLISH, Catalogue, preferred

DOMAINS = ("jupyterhub_gpu", "jupyterhub_gpu_pages")


def catalogue_for(accept_language: str) -> Catalogue:
    """Return the translations for the language that a browser prefers; English if that language has not been
    translated.

    Args:
        accept_language: the browser's header ``Accept-Language``.
    """
    return catalogues().get(preferred(accept_language, catalogues().keys()), ENGLISH)


def catalogue_of(handler: object) -> Catalogue:
    """Return the translations for the browser that sent a handler's request; English if the handler has no request."""
    request = getattr(handler, "request", None)
    return catalogue_for(request.headers.get("Accept-Language", "") if request is not None else "")


@functools.cache
def catalogues() -> dict[str, Catalogue]:
    """Return the translations of every language by its language tag (``fi-FI``).

    English is not among them, because the source texts are English.
    """
    folder = files("hub_extensions") / "locale"
    found = (_read(each.name) for each in folder.iterdir() if each.is_dir() and not each.name.startswith("_"))
    return {each.language: each for each in found if each.texts}


def _read(name: str) -> Catalogue:
    texts: dict[str, list[str]] = {}
    language, plurals = name.replace("_", "-"), "nplurals=1; plural=0;"
    for domain in DOMAINS:
        file = files("hub_extensions") / "locale" / name / "LC_MESSAGES" / f"{domain}.json"
        if not file.is_file():
            continue  # a translation may exist for only one of the two
        read = json.loads(file.read_text(encoding="utf-8"))
        head = read.pop("")
        language, plurals = head["language"], head["plural_forms"]
        texts |= read
    return Catalogue(language, texts, plural_form(plurals))


def plural_form(plural_forms: str) -> Callable[[float], int]:
    """Return the function that chooses the plural form of a translation for a number.

    Args:
        plural_forms: the catalogue's header ``Plural-Forms``.
    """
    form = c2py(plural_forms.partition("plural=")[2].strip(" ;"))
    # gettext's rules are for whole numbers; 0.5 or 1.5 of something takes the form of several
    return lambda count: form(int(count) if float(count).is_integer() else 2)
