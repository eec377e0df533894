"""Mistakes between several values files, or within one: lists that replace lists, keys that stand twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hub_extensions.tools.helm_check.model import (
    ChartFacts,
    Finding,
    Path,
    Release,
    Tree,
    ValuesFile,
    dotted,
    find,
    found,
    has,
    kind_of,
    leaves,
)

SHARED = ("hub.extraConfig", "hub.extraFiles", "singleuser.extraFiles", "singleuser.extraEnv", "hub.services")
"""Mappings in which each entry belongs to whoever wrote it: one file's entry should not take another's place."""

PLACEHOLDER = re.compile(
    r"(?i)\bexample\.(?:org|com|net|edu)\b|\bYOUR-[A-Z]+\b|\byour[-_]?(?:domain|host)|\bTENANT[-_]ID\b|"
    r"\bCHANGE[-_]?ME\b"
)
"""Placeholders for a site's names, in our files and in those of others."""

MERGED_BY_HAND = "Lists are replaced whole by the last file: write in it what both want."


def check_files(release: Release) -> Iterator[Finding]:
    """Everything that is lost on the way from the files to one tree."""
    for file in release.files:
        yield from _twice(file)
    base = release.base
    for at, later in enumerate(release.files):
        for path, value in leaves(later.values):
            # files after our base override each other's settings of ours on purpose
            before = release.files[: min(at, base) if _is_ours(path) else at]
            earlier = _last_with(before, path)
            if earlier is not None:
                yield from _replaced(later, earlier, path, find(earlier.values, path), value)
        yield from _two_forms(later, release.files[:at], later.values, ())
        yield from _entries(later, release.files[:at])
        yield from _images(later, release.files[:at], release.files[:base], release.facts)
    yield from _whole_replaced(release)


def check_placeholders(release: Release) -> Iterator[Finding]:
    """Names of hosts that no site has, as our files have them for others to fill in; one finding for each file."""
    named: dict[str, list[Path]] = {}
    for path, value in leaves(release.values):
        if path[1:2] in (("extraConfig",), ("extraFiles",)):
            continue  # text of the admin's own
        if PLACEHOLDER.search(str(value)):
            file = release.where(path)[0]
            if file:
                named.setdefault(file, []).append(path)
    for file, paths in named.items():
        keys = _few(map(dotted, paths))
        text = f"{file} still has names of hosts that stand for yours ({keys})."
        fix = "Write your own names there, or in a later file."
        yield found(release, "placeholder", paths[0], text, fix, severity="look at")


def _is_ours(path: Path) -> bool:
    return path[:2] == ("hub", "config") and len(path) > 2 and path[2].startswith("Gpu")


def _twice(file: ValuesFile) -> Iterator[Finding]:
    for each in file.twice:
        key = dotted(each.path)
        text = f"{key} stands twice in {file.name}, in the lines {each.first} and {each.last}: only the last counts."
        yield Finding("twice", "problem", key, text, "Put both parts below one key.", file.name, each.last)


def _last_with(files: Any, path: Path) -> ValuesFile | None:
    return next((file for file in reversed(files) if has(file.values, path)), None)


def _replaced(later: ValuesFile, earlier: ValuesFile, path: Path, before: Any, after: Any) -> Iterator[Finding]:
    """A list whose entries a later file does not have; a mapping in the place of a list loses them too."""
    if not isinstance(before, list) or not before:
        return
    kept = after if isinstance(after, list) else []
    lost = [item for item in before if item not in kept]
    if lost:
        key, names = dotted(path), _names(path, lost)
        count = f"{len(lost)} of its {len(before)} entries" if len(lost) < len(before) else "all of it"
        which = f" ({names})" if names else ""
        text = f"{later.name} replaces the list {key} of {earlier.name}, and {count} would be gone{which}."
        yield Finding("list-replaced", "look at", key, text, MERGED_BY_HAND, later.name, later.lines.get(path))


def _names(path: Path, items: list[Any]) -> str:
    """Names of list entries for a finding. Plain texts are left out, because they may be keys or passwords."""
    has_texts = path[:3] == ("hub", "config", "GpuOffers")

    def name(item: Any) -> str:
        if not isinstance(item, Mapping):
            return str(item) if has_texts else ""
        known = next((item[key] for key in ("name", "display_name", "slug") if isinstance(item.get(key), str)), None)
        return known or f"one with {', '.join(map(str, item))}"

    return _few(filter(None, map(name, items)))


def _few(names: Iterable[object]) -> str:
    shown = list(map(str, names))
    return ", ".join([*shown[:3], "…"] if len(shown) > 3 else shown)


def _two_forms(later: ValuesFile, before: Sequence[ValuesFile], tree: Tree, path: Path) -> Iterator[Finding]:
    """A key that takes a list or a mapping, written as one here and as the other before: they never merge."""
    for name, value in tree.items():
        here = (*path, name)
        earlier = _last_with(before, here)
        if earlier is None:
            continue
        old = find(earlier.values, here)
        if not any(isinstance(old, one) and isinstance(value, two) for one, two in ((list, Mapping), (Mapping, list))):
            if isinstance(value, Mapping):
                yield from _two_forms(later, before, value, here)
        elif old and (value or isinstance(value, list)):
            key, names = dotted(here), _few(old) if isinstance(old, Mapping) else _names(here, old)
            text = (
                f"{later.name} writes {key} as {kind_of(value)} and {earlier.name} as {kind_of(old)}: Helm keeps the "
                f"later alone, and {names or 'the earlier'} would be gone."
            )
            listing = later.name if isinstance(value, list) else earlier.name
            fix = f"Write a mapping in {listing} too: {'NAME: value' if key.endswith('Env') else 'a name before each'}."
            yield Finding("two-forms", "problem", key, text, fix, later.name, later.lines.get(here))


def _last_part(image: object) -> str:
    return str(image).rpartition("/")[2]


def _images(
    later: ValuesFile, before: Sequence[ValuesFile], own: Sequence[ValuesFile], facts: ChartFacts
) -> Iterator[Finding]:
    """An image of an earlier file, in whose place another is put; `own`: the admin's, before our base."""
    for section, whose in (("hub", "the hub"), ("singleuser", "users' servers")):
        path = (section, "image", "name")
        earlier, image = _last_with(before, path), find(later.values, path)
        old = None if earlier is None else find(earlier.values, path)
        stock = find(facts.defaults, path)
        if earlier is not None and earlier not in own and _last_part(old) == _last_part(image):
            continue  # ours from another registry: laid over each other on purpose
        if earlier is not None and old not in (None, "", stock) and image not in (None, "", stock, old):
            key = dotted(path)
            text = f"{later.name} replaces the image that {earlier.name} gives {whose}: what only that one has is gone."
            if section == "hub":
                text = f"{text[:-1]}, such as our package or a way to log in."
            fix = f"Build the new one FROM it (images/README.md), and take {key} out of {earlier.name}."
            yield Finding("image-replaced", "look at", key, text, fix, later.name, later.lines.get(path))


def _entries(later: ValuesFile, before: Any) -> Iterator[Finding]:
    for place in SHARED:
        mine = find(later.values, place.split("."))
        for name, value in mine.items() if isinstance(mine, Mapping) else ():
            path = (*place.split("."), name)
            earlier = _last_with(before, path)
            old = None if earlier is None else find(earlier.values, path)
            if earlier is None or old is None or value is None or old == value or isinstance(value, Mapping):
                continue
            key = dotted(path)
            text = f"{later.name} replaces {key} of {earlier.name}."
            fix = "Give one of the two another key, where both are wanted."
            yield Finding("entry-replaced", "look at", key, text, fix, later.name, later.lines.get(path))


def _whole_replaced(release: Release) -> Iterator[Finding]:
    """A mapping of the chart for which a file puts null: everything below is gone."""
    for file in release.files:
        for path, value in leaves(file.values):
            default = find(release.facts.defaults, path)
            if value is None and isinstance(default, Mapping) and default:
                text = f"null takes all of {dotted(path)} away, which the chart counts on."
                fix = "Take the line out, or null only the single keys below it that you do not want."
                yield found(release, "nulled", path, text, fix)
