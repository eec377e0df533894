"""Each class has a name of its own, and no name has a word that we write otherwise (``docs/glossary.md``).

Read from the text: nothing is imported.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # two seconds of reading

PACKAGE = Path(__file__).resolve().parents[2] / "hub_extensions"
OLDER = "adapters/store/migrations/versions/"
"""Steps that installations may have taken are never rewritten."""


@cache
def trees() -> dict[str, ast.Module]:
    """Each file's syntax: made once, and not by a worker that has none of these tests."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
        if OLDER not in path.as_posix()
    }


SAME_THING = {"Json", "ServerKey", "T", "Tree", "FloatArray", "Value"}
"""Aliases that mean the same in each of their files, and type variables."""

WORDS = {
    "told": "shown, reported",
    "tell": "notify, report",
    "tells": "notifies, reports",
    "telling": "notice, presenter",
    "say": "report",
    "says": "reports",
    "said": "reported",
    "look": "refresh, check, read",
    "looks": "refreshes",
    "looked": "refreshed",
    "desk": "engine",
    "book": "state",
    "onlooker": "GPU process",
    "stock": "capacity",
    "choice": "user options, wanted offer",
    "choices": "user options, wanted offers",
    "unscheduled": "unschedulable",
    "wire": "codec",
    "within": "timeout",
    "stand": "state, view",
    "word": "message, reason",
    "line": "queue",
    "lines": "queues",
}
"""Word -> what is said instead, in names of classes, functions, attributes and arguments."""

OF_A_TEXT = {
    "adapters/service/change_stream.py", "adapters/service/gpu_service.py", "adapters/kubernetes/api.py",
    "adapters/notices/webhook.py", "adapters/linux/server_processes.py", "adapters/service/signer.py",
    "core/signing.py", "hub_service/http/api/base.py", "hub_service/http/api/hub.py",
    "hub_service/http/limits.py", "adapters/service/signatures.py", "adapters/files/json_log.py",
    "adapters/linux/supervisor.py", "server_extension/attribution.py", "server_extension/broadcast.py",
    "spawner/pods/launch.py", "tools/backtest/report.py", "tools/doctor/service.py", "tools/store.py",
}  # fmt: skip
"""Here a line is one of a text, a log or a stream. So it is in ``tools/helm_check`` and ``tools/usage``."""

NAMED = {
    "core/cluster/model.py": {
        "unscheduled",
        "unscheduled_why",
        "unscheduled_since",
    },  # the condition, whatever its reason
    "core/cluster/pod_status.py": {"_unscheduled"},  # of the code that pages and panel know
    "core/messages/forms.py": {"in_line"},  # a field of the API
    "core/messages/usage.py": {"choice"},  # a field of the API, and a column
    "core/forecast/interval.py": {"within"},  # shares within an hour, a day
    "core/queue/wait_bound.py": {"within_max_wait"},
    "core/usage/course.py": {"choice", "_choice", "CHOICE_LENGTH"},
    "hub_service/engine/line/rights.py": {"ANSWER_WITHIN"},
    "hub_service/http/limits.py": {"room_within"},
    "adapters/linux/port_holder.py": {"stand_in"},
    "adapters/files/yaml_file.py": {"line", "lines", "find_line", "Lines"},  # of a text file
    "adapters/files/policy_file.py": {"line", "lines"},
    "adapters/apps/app_catalogue.py": {"lines"},
    "core/sign_on/apps.py": {"line"},
    "core/sign_on/session_end.py": {"gate_told"},  # a field of the API
    "core/culling/rules.py": {"line", "lines"},
    "spawner/pages/profiles.py": {"choice"},  # KubeSpawner's word for those of its profiles
}
"""Names that stay, by their file."""


def defined(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Names of classes wherever they stand, and of types that a module gives a name; True: a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, True
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and re.fullmatch(r"_?[A-Z][a-z]\w*", target.id):
                yield target.id, False


def names(tree: ast.Module) -> Iterator[str]:
    """What is seen of a module from outside: classes, functions and their arguments, attributes, constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        if isinstance(node, ast.ClassDef):
            yield from (
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            )
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


@cache
def names_of() -> dict[str, set[str]]:
    return {path: set(names(tree)) for path, tree in trees().items()}


@cache
def parts_of() -> dict[str, dict[str, set[str]]]:
    """The parts of each name, in small letters."""
    return {
        path: {name: {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)} for name in found}
        for path, found in names_of().items()
    }


NOUNS_IN_ING = {"boosting", "culling", "lightning", "reading", "signing", "training", "wording"}


def test_no_two_things_have_one_name() -> None:
    classes, places = Counter[str](), defaultdict(set)
    for path, tree in trees().items():
        for name, is_class in defined(tree):
            classes[name] += is_class
            places[name].add(path)
    twice = {name: sorted(found) for name, found in places.items() if len(found) > 1 and name not in SAME_THING}
    assert twice == {}
    assert [name for name, count in classes.items() if count > 1] == []


@pytest.mark.parametrize("word", WORDS)
def test_a_word_with_a_better_one_is_in_no_name(word: str) -> None:
    found = {}
    for path, found_parts in parts_of().items():
        if word in ("line", "lines") and (path in OF_A_TEXT or path.startswith(("tools/helm_check/", "tools/usage/"))):
            continue
        bad = {name for name, parts in found_parts.items() if word in parts} - NAMED.get(path, set())
        if bad:
            found[path] = sorted(bad)
    assert found == {}, f"better: {WORDS[word]}"


def test_a_file_is_called_by_a_noun() -> None:
    words = {path: path.removesuffix(".py").split("/")[-1].split("_") for path in trees()}
    assert [path for path, parts in words.items() if parts[-1].endswith("ing") and parts[-1] not in NOUNS_IN_ING] == []
    assert [path for path, parts in words.items() if parts[0] in {"held", "kept", "owed", "remote"}] == []


def test_what_is_excepted_is_there() -> None:
    for path, excepted in NAMED.items():
        assert excepted <= names_of()[path], path
    assert {path for path in OF_A_TEXT if path not in trees()} == set()
