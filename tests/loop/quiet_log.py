"""What the log of a normal day must not have: a traceback, a page that is not there, a program that chatters.

``faults`` judges the text of a log that hub, service and servers share, at INFO. What people do in their browsers is a
line each, and is not counted; nor is what JupyterLab's open pages ask their own server.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import datetime

_ACCESS = re.compile(
    r"\[[IWE] (?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) JupyterHub log:\d+\] "
    r"(?P<status>\d{3}) (?P<method>[A-Z]+) (?P<path>[^ ?]+)\S* .*\((?P<who>[^@()]*)@"
)
_BY_PROGRAMS = re.compile(r"/hub/api/(gpu/|user$|users$|users/[^/]+/activity$)")
"""Asked by the service or by a server, by the clock."""
AT_FIRST = 3
"""So often something may be asked beside once a minute: at a start, and at a login."""


def faults(log: str, *others: str) -> list[str]:
    """One sentence for each. `others`: who else uses the API by a token, a test's admin."""
    lines = log.splitlines()
    found = [f"a traceback: {_last_word(lines, number)}" for number, each in enumerate(lines) if _begins_trace(each)]
    asked: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for access in filter(None, map(_ACCESS.match, lines)):
        at, path, who = datetime.fromisoformat(access["at"]), access["path"], access["who"]
        if access["status"] == "404" and access["method"] == "GET":
            found.append(f"404: GET {path}")
        elif _BY_PROGRAMS.match(path) and who not in others:
            asked[who, f"{access['method']} {path}"].append(at)
    for (who, question), times in asked.items():
        minutes = (times[-1] - times[0]).total_seconds() / 60
        if len(times) > AT_FIRST + minutes:
            found.append(f"{who} asks too often: {question}, {len(times)} times in {minutes:.1f} min")
    return found


def _begins_trace(line: str) -> bool:
    return "Traceback (most recent call last)" in line


def _last_word(lines: list[str], number: int) -> str:
    """The exception's own line: the first below the frames."""
    below = (each for each in lines[number + 1 :] if each.strip() and not each.startswith(" "))
    return next(below, "without an end")
