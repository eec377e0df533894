"""Loads an administrator's YAML file as strings, lists and dicts, with the line of each value.

Scalars are kept as they are written: a group called ``no`` does not become a boolean, and ``10:00`` is not a number
of base 60. Symbolic links are followed, because a mounted ConfigMap is one. Anchors are refused, because a few of
them can expand to a billion values.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

MAX_BYTES = 256 * 1024  # a file with a thousand rules is smaller
MAX_DEPTH = 8

YamlPath = tuple[str | int, ...]
Lines = Mapping[YamlPath, int]


class YamlError(Exception):
    """A YAML file that cannot be used.

    Attributes:
        text: what is wrong and what would be right.
        line: number of the wrong line; 0 if no single line is wrong.
        field: name of the wrong field, or "the file".
    """

    def __init__(self, text: str, line: int = 0, field: str = "the file") -> None:
        super().__init__(text)
        self.text, self.line, self.field = text, line, field


@dataclass(frozen=True, slots=True)
class FileStamp:
    """The metadata of a file that are compared to find out whether the file has changed.

    Attributes:
        modified: time of the last change of the content (``st_mtime_ns``).
        changed: time of the last change of content or metadata (``st_ctime_ns``).
        size: size in bytes.
        inode: differs if another file has replaced the file.
    """

    modified: int
    changed: int
    size: int
    inode: int


def stamp_of(path: str) -> FileStamp | None:
    """Return the stamp (the metadata that show a change) of a file; `None` if it does not exist or cannot be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileStamp(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


def read_text(path: str) -> str:
    """Return the content of a file. Raises YamlError."""
    try:
        with open(path, "rb", opener=_opener) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise YamlError("it is no file: it has to be a plain one, or a link to one")
            content: bytes = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise YamlError(f"it cannot be read ({problem.strerror}); the service's account has to be able to") from None
    if len(content) > MAX_BYTES:
        raise YamlError(f"it has more than {MAX_BYTES // 1024} KiB, the most that is read")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = content[: problem.start].count(b"\n") + 1
        raise YamlError("it has to be text in UTF-8", line) from None


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # do not wait for the writer of a pipe


def load_yaml(text: str) -> tuple[Any, Lines]:
    """Parse YAML into strings, `None`, lists and dicts.

    Returns:
        The content, which is `None` if the text is empty, and the line of each value.

    Raises:
        YamlError: it is not YAML, or uses anchors.
    """
    try:
        _check_events(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        tabs = "\\t" in str(problem.problem)
        advice = "indent with spaces, not with tabs" if tabs else f"it is not YAML ({problem.problem})"
        raise YamlError(advice, 0 if mark is None else mark.line + 1) from None
    except yaml.YAMLError as problem:
        raise YamlError(f"it is not YAML ({str(problem).splitlines()[0]})") from None
    lines: dict[YamlPath, int] = {}
    return (None if root is None else _plain(root, (), lines)), lines


def _check_events(text: str) -> None:
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark is not None else 0
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise YamlError("anchors (&) and aliases (*) are not read; write the value out", line)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if documents > 1:
            raise YamlError("it has to hold one document, without a second ---", line)
        if depth > MAX_DEPTH:
            raise YamlError("it is nested too deeply", line)


def _plain(node: yaml.Node, place: YamlPath, lines: dict[YamlPath, int]) -> Any:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        null = node.tag == "tag:yaml.org,2002:null" or (node.style is None and node.value == "none")
        return None if null else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(each, (*place, index), lines) for index, each in enumerate(node.value)]
    found: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise YamlError("a key has to be a word", line)
        if key.value in found:
            raise YamlError("it stands twice; leave one out", line, key.value)
        inner = (*place, key.value)
        lines[inner] = line
        found[key.value] = _plain(value, inner, lines)
    return found


def find_line(place: YamlPath, lines: Lines) -> int:
    """Return the line of a value, or of the nearest enclosing value that is in the file, for an error message.

    Args:
        place: the keys and indexes that lead to the value.
        lines: line of each value, from `load_yaml`.

    Returns:
        0 if the file contains neither.
    """
    for length in range(len(place), -1, -1):
        if place[:length] in lines:
            return lines[place[:length]]
    return 0


EXPECTED: Mapping[str, str] = {
    "bool_parsing": "it has to be true or false",
    "bool_type": "it has to be true or false",
    "int_parsing": "it has to be a whole number",
    "int_type": "it has to be a whole number",
    "float_parsing": "it has to be a number",
    "float_type": "it has to be a number",
    "list_type": "it has to be a list",
    "string_type": "it has to be a text",
    "string_too_short": "it has to be a name",
    "model_type": "it has to have fields, as in the example",
    "model_attributes_type": "it has to have fields, as in the example",
    "date_from_datetime_parsing": "it has to be a date, such as 2026-09-01",
    "date_parsing": "it has to be a date, such as 2026-09-01",
}
"""pydantic's error type -> the expected value as a sentence for an administrator."""
