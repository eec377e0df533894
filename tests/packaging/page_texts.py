"""Every text of the pages that a catalogue translates, as the sources have it: who asks `t` for it, and with which."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from hub_extensions.core.culling.sources import TEXTS, text_of
from hub_extensions.core.gpu.dcgm import WHY
from hub_extensions.core.sign_on.failures import FAILURES
from hub_extensions.core.text.reasons import REASON, TO_THE_HUB, TO_THE_PANEL, Plural, key_of, numbered, parameters
from hub_extensions.core.text.translation import CONTEXT

PACKAGE = Path(__file__).parents[2] / "hub_extensions"
PAGES = PACKAGE / "hub_service" / "http" / "pages"
START = PACKAGE / "spawner" / "pages"
SIGN_ON = PACKAGE / "authenticator"
GATE = PACKAGE / "gate"
NOTICES = PACKAGE / "hub_service" / "setup" / "notice_texts.py"
TEMPLATES = (
    *(
        PAGES / "templates" / f"{name}.html"
        for name in (
            "layout",
            "plain_frame",
            "error",
            "your_gpu",
            "help",
            "audit",
            "admin_layout",
            "admin_tabs",
            "admin",
            "admin_days",
            "admin_parts",
        )
    ),
    *(
        START / "templates" / f"{name}.html"
        for name in ("form", "spawn", "gpu_words", "spawn_pending", "not_running", "gpu_failed", "gpu_home", "gpu_away")
    ),
    *(SIGN_ON / "templates").glob("*.html"),
    *(GATE / "templates").glob("portal*.html"),
)
SCRIPTS = tuple(START / "templates" / f"{name}.js" for name in ("gpu_waiting", "gpu_card"))
SOURCES = (
    *START.glob("*.py"),
    NOTICES,
    PAGES / "labels.py",
    PAGES / "pages.py",
    PAGES / "audit.py",
    PAGES / "own_uses.py",
    PAGES / "admin_labels.py",
    PAGES / "not_ready.py",
    PACKAGE / "gate" / "pages.py",
    SIGN_ON / "mixin.py",
    SIGN_ON / "pages.py",
    GATE / "portal.py",
    SIGN_ON / "openid" / "authenticator.py",
    *(PACKAGE / "core" / "sign_on" / f"{name}.py" for name in ("sessions", "failures")),
    *(
        PACKAGE / "core" / f"{name}.py"
        for name in ("messages/offer_texts", "text/wording", "text/reasons", "queue/failed_starts")
    ),
)
NAMED = {
    PACKAGE / "core" / "text" / "glossary.py": ("WORDS", "SENTENCES"),
    PACKAGE / "core" / "text" / "wording.py": ("PLACE",),
    PACKAGE / "core" / "culling" / "sources.py": ("WHO",),
    PACKAGE / "core" / "usage" / "right_size.py": ("NAMED",),
    PACKAGE / "core" / "stops" / "lifecycle.py": ("TO_DO",),
    PAGES / "labels.py": ("STATES",),
    NOTICES: ("WARNED_FOR", "ENDED"),
    START / "spawn_form.py": ("ISOLATION",),
    START / "start_progress.py": ("KEPT_START", "SILENT"),
    PACKAGE / "hub_service" / "engine" / "engine.py": ("UNREAD", "NONE_CAN_BE_GIVEN"),
    PACKAGE / "hub_service" / "engine" / "views" / "server_view.py": ("UNKNOWN",),
    PACKAGE / "hub_service" / "http" / "api" / "answers.py": ("SENTENCES", "HUB_IS_AWAY"),
    PACKAGE / "core" / "sign_on" / "sessions.py": ("WORDS", "SIGNED_OUT"),
    PACKAGE / "core" / "sign_on" / "access.py": ("REASONS",),
    PACKAGE / "gate" / "pages.py": ("FAILURE_TEXTS",),
}
"""Constants that are translated where they are shown."""
BY_REASONS = (
    *(PACKAGE / "core" / "cluster" / f"{name}.py" for name in ("pod_status", "unschedulable", "kueue")),
    *(PACKAGE / "spawner" / "pods" / f"{name}.py" for name in ("launch", "api_rejections", "kueue")),
)
"""What a cluster does to a server is told by these, in reasons alone."""
DATA = (
    "Small GPU",
    "Medium GPU",
    "Large GPU",
    "Extra large GPU",
    "CPU only",
    "Whole GPU",
    "Virtual GPU",
    "a whole GPU",
    "a shared GPU",
    "a GPU",
    "a share of a GPU",
    "a place",
    "GPUs",
    "processors",
    "disk space",
    "servers",
    "memory",
    "fault",
    "compute",
    "access",
    "No GPU: for writing, editing and small computations. It never waits for a GPU.",
    "What it gives is not known now.",
    "A whole card for you alone, with all of its memory and cores.",
    "Your own memory and cores: nobody else on the card can slow you down or crash you.",
    "A GPU. It is not known here whether others use the same card at the same time.",
    "A part of a card that other machines use too, with its own memory; a neighbour can slow you down or crash you.",
    "Shared, no memory or fault isolation: keep to your part of the memory;"
    " a neighbour can slow you down or crash you.",
)
"""Titles and sentences of ours about offers, the four sides on which they are separated, and what a cluster lacks."""
ASKED = re.compile(r"""\b(?:t|timed)\(\s*(?:"([^"]+)"|'([^']+)')""")

ASKED_PLURAL = re.compile(r'''\bt\.plural\(\s*"([^"]+)",\s*"([^"]+)"''')

Key = tuple[str, str]
"""A text, and its plural; "" where it has none."""


def page_texts() -> dict[Key, str]:
    """Each text with where it was found."""
    found: dict[Key, str] = {}
    for path in (*TEMPLATES, *SCRIPTS):
        for match in ASKED.finditer(path.read_text(encoding="utf-8")):
            found.setdefault((match[1] or match[2], ""), path.name)
        for match in ASKED_PLURAL.finditer(path.read_text(encoding="utf-8")):
            found.setdefault((match[1], match[2]), path.name)
    for path in SOURCES:
        for key in asked_in(path):
            found.setdefault(key, path.name)
    for path, names in NAMED.items():
        for text in constants(path, names):
            found.setdefault((text, ""), path.name)
    for reason in (*TEXTS, *WHY):
        found.setdefault((text_of(reason), ""), "sources.py")
    for failure in FAILURES.values():
        for text in (failure.title, key_of(failure.text), failure.advice):
            found.setdefault((text, ""), "failures.py")
    return found | {(text, ""): "offers" for text in DATA}


def reason_texts() -> dict[Key, str]:
    """Each reason of the hub's with parameters, by its sentence; the value is its code."""
    return {
        (key_of(text), numbered(text.many, parameters(text)) if isinstance(text, Plural) else ""): code
        for code, text in TO_THE_HUB.items()
        if parameters(text)
    }


def reason_codes() -> dict[str, str]:
    """Each reason of the hub's without parameters: what a catalogue finds it by, and its English text."""
    return {
        f"{REASON}{CONTEXT}{code}": text
        for code, text in TO_THE_HUB.items()
        if isinstance(text, str) and not parameters(text)
    }


def panel_keys() -> set[str]:
    """What the panel's catalogue has of reasons."""
    return {key_of(text) if parameters(text) else f"{REASON}{CONTEXT}{code}" for code, text in TO_THE_PANEL.items()}


def asked_in(path: Path) -> Iterator[Key]:
    """The literals that a module gives to `t`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        literals = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if ast.unparse(node.func) == "t" and literals:
            yield literals[0], ""
        if ast.unparse(node.func) == "t.plural" and len(literals) > 1:
            yield literals[0], literals[1]


def sentences(path: Path) -> set[str]:
    """What a module has as a sentence, or as the end of one, but for what is written of its code."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    code = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in code]
    made = (node.values for node in nodes if isinstance(node, ast.JoinedStr))
    texts += ["".join(str(getattr(part, "value", "")) if isinstance(part, ast.Constant) else "…" for part in parts)
              for parts in made]  # fmt: skip
    return {text for text in texts if isinstance(text, str) and re.search(r"[a-z] [a-z].*\.\s*\Z", text)}


def constants(path: Path, names: tuple[str, ...]) -> Iterator[str]:
    """The texts in constants of a module; of a table its values."""
    seen = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(target, ast.Name) or target.id not in names:
            continue
        seen.add(target.id)
        values = node.value.values if isinstance(node.value, ast.Dict) else [node.value]  # type: ignore[union-attr]
        yield from map(ast.literal_eval, values)
    assert seen == set(names), path
