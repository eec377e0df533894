"""Rules about the files themselves: a later file that replaces a list of an earlier one, keys that occur twice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hub_extensions.tools.helm_check.model import Finding, Findings, Release, Severity, ValuesFile
from hub_extensions.tools.helm_check.trees import Path, Tree, dotted, few, find, has, kind_of, leaves

SHARED = ("hub.extraConfig", "hub.extraFiles", "singleuser.extraFiles", "singleuser.extraEnv", "hub.services")
"""Mappings whose entries are independent of each other: an entry that replaces one of an earlier file is reported."""
IMAGES = {"hub.image.name": "the hub", "singleuser.image.name": "users' servers"}
PLACEHOLDER = re.compile(
    r"(?i)\bexample\.(?:org|com|net|edu)\b|\bYOUR-[A-Z]+\b|\byour[-_]?(?:domain|host)|\bTENANT[-_]ID\b|"
    r"\bCHANGE[-_]?ME\b"
)
"""Texts that stand for a site's own names in example files, and must be replaced by the administrator."""


def check_files(release: Release) -> Findings:
    """Report each value that is lost when the files are merged, and each key that occurs twice in a file."""
    base = release.base
    for at, later in enumerate(release.files):
        for twice, first, last in later.twice:
            key, lines = dotted(twice), f"in the lines {first} and {last}"
            text = f"{key} stands twice in {later.name}, {lines}: only the last counts."
            yield Finding("twice", "problem", key, text, "Put both parts below one key.", later.name, last)
        for path, value in _nodes(later.values):
            # files after our base override each other's settings of ours on purpose
            is_ours = path[:2] == ("hub", "config") and path[2:] and path[2].startswith("Gpu")
            before = reversed(release.files[: min(at, base) if is_ours else at])
            earlier = next((file for file in before if has(file.values, path)), None)
            default = find(release.facts.defaults, path)
            if value is None and isinstance(default, Mapping) and default:
                text = f"null takes all of {dotted(path)} away, which the chart counts on."
                fix = "Take the line out, or null only the single keys below it that you do not want."
                yield release.found("nulled", path, text, fix)
            elif earlier is not None and find(earlier.values, path):
                yield from _lost(earlier, later, path, earlier in release.files[:base], default)


def _nodes(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of every key in a tree, also of keys whose values are mappings."""
    for name, value in tree.items():
        yield (*path, str(name)), value
        if isinstance(value, Mapping):
            yield from _nodes(value, (*path, str(name)))


def check_placeholders(release: Release) -> Findings:
    """Yield one finding for each file that still has placeholders, such as the host name ``example.org``."""
    for file in release.files:
        named = [path for path, value in leaves(file.values)
                 if path[1:2] not in (("extraConfig",), ("extraFiles",))  # text of the admin's own
                 and PLACEHOLDER.search(str(value)) and release.where(path)[0] == file.name]  # fmt: skip
        if named:
            text = f"{file.name} still has names of hosts that stand for yours ({few(map(dotted, named))})."
            fix = "Write your own names there, or in a later file."
            yield release.found("placeholder", named[0], text, fix, "look at")


def _lost(earlier: ValuesFile, later: ValuesFile, path: Path, is_own: bool, default: Any) -> Findings:
    """Report what an earlier file sets at a key and a later file removes.

    Args:
        earlier: the earlier values file.
        later: the later values file.
        path: the key.
        is_own: the earlier file comes before our file that calls ``configure(c)``, so it is the administrator's own.
        default: the chart's own value at this key. An image that only repeats it is not reported as lost.
    """
    key, old, value = dotted(path), find(earlier.values, path), find(later.values, path)

    def finding(rule: str, text: str, fix: str, severity: Severity = "look at") -> Finding:
        return Finding(rule, severity, key, text, fix, later.name, later.lines.get(path))

    old_is, new_is = kind_of(old).removeprefix("a "), kind_of(value).removeprefix("a ")
    if {old_is, new_is} == {"mapping", "list"} and (value or new_is == "list"):
        names = (few(old) if old_is == "mapping" else _names(path, old)) or "the earlier"
        text = f"{later.name} writes {key} as {kind_of(value)} and {earlier.name} as {kind_of(old)}: "
        text += f"Helm keeps the later alone, and {names} would be gone."
        listing = later.name if new_is == "list" else earlier.name
        fix = f"Write a mapping in {listing} too: {'NAME: value' if key.endswith('Env') else 'a name before each'}."
        yield finding("two-forms", text, fix, "problem")
    if old_is == "list":
        lost = [item for item in old if new_is != "list" or item not in value]
        if lost and not (new_is == "mapping" and value):
            names = _names(path, lost)
            count = f"{len(lost)} of its {len(old)} entries" if len(lost) < len(old) else "all of it"
            which = f" ({names})" if names else ""
            text = f"{later.name} replaces the list {key} of {earlier.name}, and {count} would be gone{which}."
            fix = "Lists are replaced whole by the last file: write in it what both want."
            yield finding("list-replaced", text, fix)
    elif key in IMAGES:
        # ours from another registry is laid over ours on purpose
        is_same = not is_own and str(old).rpartition("/")[2] == str(value).rpartition("/")[2]
        if not is_same and old != default and value not in (None, "", default, old):
            more = ", such as our package or a way to log in" if key.startswith("hub") else ""
            text = f"{later.name} replaces the image that {earlier.name} gives {IMAGES[key]}: "
            text += f"what only that one has is gone{more}."
            fix = f"Build the new one FROM it (images/README.md), and take {key} out of {earlier.name}."
            yield finding("image-replaced", text, fix)
    elif ".".join(path[:-1]) in SHARED and value is not None and old != value and new_is != "mapping":
        fix = "Give one of the two another key, where both are wanted."
        yield finding("entry-replaced", f"{later.name} replaces {key} of {earlier.name}.", fix)


def _names(path: Path, items: list[Any]) -> str:
    """Return the names of at most three entries of a list, for a finding.

    An entry that is a mapping is named by its ``name`` or title, or else by its keys. Entries that are texts are left
    out, because they may be passwords. Only the texts in lists of ``hub.config.GpuOffers`` are named, because they are
    ids of offers.

    Args:
        path: key of the list in the values.
        items: the entries of the list.
    """
    has_texts = path[:3] == ("hub", "config", "GpuOffers")

    def name(item: Any) -> str:
        if not isinstance(item, Mapping):
            return str(item) if has_texts else ""
        known = next((item[key] for key in ("name", "display_name", "slug") if isinstance(item.get(key), str)), None)
        return known or f"one with {', '.join(map(str, item))}"

    return few(filter(None, map(name, items)))
