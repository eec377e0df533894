"""Reads the catalogue of apps from a dict of the hub's configuration or from a YAML file, and reports its errors.

A file is read again when it changes. If it has errors, the last valid apps stay in force.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from hub_extensions.adapters.files.yaml_file import (
    EXPECTED,
    FileStamp,
    Lines,
    YamlError,
    find_line,
    load_yaml,
    read_text,
    stamp_of,
)
from hub_extensions.core.sign_on.apps import App, AppCatalogue, AppProblem

MAX_APPS = 500
KEYS = tuple(each.name for each in fields(App) if each.name != "name")

Check = Callable[[AppCatalogue], Sequence[AppProblem]]
"""Function that returns further problems of apps whose entries are well-formed, such as an address that another app
has.
"""


class CatalogueError(Exception):
    """The catalogue of apps cannot be used.

    Attributes:
        problems: the errors of each app, as sentences for the administrator.
    """

    def __init__(self, source: str, problems: Sequence[AppProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{source}: " + "; ".join(map(str, problems)))


class WatchedCatalogue:
    """A catalogue of apps that is read again when its file changes.

    Attributes:
        apps: the apps in force.
        warnings: problems of these apps that do not prevent their use.
        problem: why the current file cannot be used, so that earlier apps stay in force; "" if it is in force.
    """

    def __init__(
        self, source: Mapping[str, Any] | str, check: Check = lambda apps: (), before: AppCatalogue = ()
    ) -> None:
        """Read `source`, which is ``c.SignOnGate.apps``: the apps as a dict, or the path of a YAML file.

        Args:
            check: finds further problems of apps whose entries are well-formed.
            before: the apps that stay in force if the catalogue has errors.

        Raises:
            CatalogueError: the catalogue has errors, and `before` is empty.
        """
        self._source, self._check = source, check
        self._stamp = self._new_stamp()
        self.problem = ""
        self.apps = before
        self.warnings: tuple[AppProblem, ...] = ()
        try:
            self.apps, self.warnings = checked_catalogue(source, check)
        except CatalogueError as problem:
            if not before:
                raise
            self.problem = str(problem)

    def refresh(self) -> bool:
        """Read the file of the catalogue of apps again if it has changed.

        Return whether the apps in force have changed.
        """
        stamp = self._new_stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            apps, self.warnings = checked_catalogue(self._source, self._check)
        except CatalogueError as problem:
            self.problem = str(problem)
            return False
        before, self.apps, self.problem = self.apps, apps, ""
        return apps != before

    def _new_stamp(self) -> FileStamp | None:
        return stamp_of(self._source) if isinstance(self._source, str) else None


def checked_catalogue(source: Mapping[str, Any] | str, check: Check) -> tuple[AppCatalogue, tuple[AppProblem, ...]]:
    """Return the apps of a valid catalogue, and warnings about them.

    Args:
        source: the apps as a dict, or the path of a YAML file.
        check: finds further problems of apps whose entries are well-formed.

    Raises:
        CatalogueError: the catalogue has errors.
    """
    apps, lines = _read(source)
    found = [replace(each, line=each.line or find_line((each.app, each.key), lines)) for each in check(apps)]
    wrong = [each for each in found if not each.is_warning]
    if wrong:
        raise CatalogueError(_named(source), wrong)
    return apps, tuple(found)


def _read(source: Mapping[str, Any] | str) -> tuple[AppCatalogue, Lines]:
    lines: Lines = {}
    raw: Any = source
    if isinstance(source, str):
        try:
            raw, lines = load_yaml(read_text(source))
        except YamlError as wrong:
            raise CatalogueError(source, [AppProblem("", wrong.field, wrong.text, wrong.line)]) from None
    if not isinstance(raw or {}, Mapping):
        raise CatalogueError(_named(source), [AppProblem("", "", "it has to hold names of apps, each with its keys")])
    if len(raw or {}) > MAX_APPS:
        raise CatalogueError(_named(source), [AppProblem("", "", f"it has more than {MAX_APPS} apps")])
    apps: list[App] = []
    problems: list[AppProblem] = []
    for name, written in (raw or {}).items():
        made = _app(str(name), written, lines)
        if isinstance(made, App):
            apps.append(made)
        else:
            problems += made
    if problems:
        raise CatalogueError(_named(source), problems)
    return tuple(apps), lines


def _named(source: Mapping[str, Any] | str) -> str:
    return source if isinstance(source, str) else "c.SignOnGate.apps"


# ------------------------------------------------------------------ one app


class _CatalogueShape(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _default_of(name: str) -> Any:
    if name == "title":
        return ""
    default = App.__dataclass_fields__[name].default
    return ... if name in ("where", "upstream") else default


_HINTS = get_type_hints(App)
_LENGTHS = {"title": 80, "icon": 200, "where": 500, "upstream": 500, "health": 500}
_AppShape: Any = create_model(
    "_AppShape",
    __base__=_CatalogueShape,
    **cast(Any, {key: (_HINTS[key], Field(_default_of(key), max_length=_LENGTHS.get(key))) for key in KEYS}),
)


def _app(name: str, written: Any, lines: Lines) -> App | list[AppProblem]:
    if not isinstance(written, Mapping):
        text = f"it has to have keys, of which where and upstream are needed. Known: {', '.join(KEYS)}"
        return [AppProblem(name[:60], "", text, find_line((name,), lines))]
    if "mode" in written and written["mode"] is None:  # a bare `none` of YAML
        written = {**written, "mode": "none"}
    try:
        made = _AppShape.model_validate(dict(written))
    except ValidationError as problem:
        return [_problem(name, each, lines) for each in problem.errors(include_url=False)]
    values = {key: getattr(made, key) for key in KEYS}
    where = str(values["where"])
    return App(name=name, **{**values, "title": values["title"] or name, "where": where.rstrip("/") + "/"})


def _problem(name: str, error: Any, lines: Lines) -> AppProblem:
    """Convert a validation error of pydantic to a problem of an app, with the line in the catalogue's file.

    Args:
        name: name of the app.
        error: one of ``ValidationError.errors()``.
        lines: line of each value in the file; empty if the catalogue is a dict.
    """
    place = tuple(error["loc"])
    key, line = str(place[0]) if place else "", find_line((name, *place), lines)
    if error["type"] == "extra_forbidden":
        nearest = difflib.get_close_matches(key, KEYS, n=1)
        hint = f"did you mean {nearest[0]}? " if nearest else ""
        return AppProblem(name[:60], key[:60], f"it is not known here; {hint}Known: {', '.join(KEYS)}", line)
    own = {
        "missing": "it is missing",
        "tuple_type": "it has to be a list",
        "literal_error": f"it has to be {error.get('ctx', {}).get('expected', '')}",
    }
    text = own.get(error["type"]) or EXPECTED.get(error["type"], f"it cannot be used: {error['msg']}")
    return AppProblem(name[:60], key, text, line)
