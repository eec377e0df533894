"""Notes every secret of sign-on that a run's tests make, where it is made. `tests/secret_search.py` looks for them.

`watch` has a process note the cookies that it sets, what stands in the addresses that it leads browsers to, and the
tokens, codes and verifiers between a client and a provider. Hubs, gates and users' servers of the tests are watched,
and the tests' own process where gates and providers run in it. Fakes note what they make.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

FOLDER = "TEST_SECRETS"
"""The environment variable that names the folder of the notes; without it nothing is noted."""
LEAST = 16
"""Shorter ones are no random secrets, and would be found by chance."""
OPEN_COOKIES = ("_xsrf", "jupyterhub-session-id", "op-session")
"""By purpose: pages hold the first, JupyterHub logs and keeps the second, the third is a provider's `sid`."""
IN_ADDRESSES = ("code", "state", "nonce", "id_token_hint", "logout_token", "access_token", "refresh_token", "id_token")
IN_FORMS = (*IN_ADDRESSES, "code_verifier", "client_secret", "password")
IN_ANSWERS = ("access_token", "refresh_token", "id_token")
_folder = os.environ.get(FOLDER, "")
_is_watched = False


def note(kind: str, *secrets: str) -> None:
    """These may stand nowhere. A line each in a file of this process, which is not itself searched."""
    folder = os.environ.get(FOLDER) or _folder  # a hub's service has an environment of its own
    long = [each for each in secrets if len(each) >= LEAST]
    if folder and long:
        file = Path(folder) / f"notes-{os.getpid()}"
        with suppress(OSError), file.open("a", encoding="utf-8") as notes:  # no byte is left in a test of a full disk
            notes.writelines(json.dumps([kind, each]) + "\n" for each in long)


def read_notes(folder: Path) -> dict[str, str]:
    """Secret -> its kind."""
    lines = (line for file in folder.glob("notes-*") for line in file.read_text(encoding="utf-8").splitlines())
    return {secret: kind for kind, secret in map(json.loads, lines)}


class NotedSet(set[str]):
    """A set of secrets, each of which is noted."""

    def __init__(self, kind: str, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._kind = kind
        self.update(secrets)

    def add(self, secret: str) -> None:
        self.update([secret])

    def update(self, *secrets: Iterable[str]) -> None:
        new = set().union(*secrets) - self
        note(self._kind, *new)
        super().update(new)

    def __ior__(self, secrets: Any) -> NotedSet:  # type: ignore[override,misc]
        self.update(secrets)
        return self


def watch() -> None:
    """From now on, in this process."""
    global _is_watched
    if _is_watched or not (os.environ.get(FOLDER) or _folder):
        return
    _is_watched = True
    from tornado.httpclient import AsyncHTTPClient
    from tornado.web import RequestHandler

    _before(RequestHandler, "set_cookie", _note_cookie)
    _before(RequestHandler, "redirect", _note_redirect)
    _before(AsyncHTTPClient, "fetch", _note_request, _note_answer)


def _before(owner: Any, name: str, look: Callable[..., None], look_after: Callable[[Any], None] | None = None) -> None:
    """A method of a library, and what looks at its arguments first, at what it brings afterwards."""
    method = getattr(owner, name)

    def watched(self: Any, *args: Any, **options: Any) -> Any:
        look(*args, **options)
        result = method(self, *args, **options)
        if look_after is not None:
            result.add_done_callback(look_after)
        return result

    setattr(owner, name, watched)


def _note_cookie(name: str, value: str | bytes, *_: Any, **__: Any) -> None:
    if name not in OPEN_COOKIES:
        note(f"cookie {name}", value.decode() if isinstance(value, bytes) else value)


def _note_redirect(url: str, *_: Any, **__: Any) -> None:
    parts = urlsplit(url)
    _note_named("address", dict(parse_qsl(parts.query)), IN_ADDRESSES)


def _note_request(request: Any, *_: Any, **options: Any) -> None:
    body = options.get("body") if isinstance(request, str) else request.body
    if body and (text := body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)).count("="):
        _note_named("form", dict(parse_qsl(text[:100_000])), IN_FORMS)


def _note_answer(answer: Any) -> None:
    if answer.cancelled() or answer.exception() or b'"access_token"' not in (answer.result().body or b""):
        return
    try:
        said = json.loads(answer.result().body)
    except ValueError:
        return
    if isinstance(said, dict):
        _note_named("answer", said, IN_ANSWERS)


def _note_named(where: str, found: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if isinstance(value := found.get(name), str):
            note(f"{name} in an {where}" if where[0] in "aeiou" else f"{name} in a {where}", value)


def keep_command_lines(folder: Path, pids: Iterable[int]) -> None:
    """As anybody on the machine could read them, to be searched too."""
    lines = []
    for pid in pids:
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "))
        except OSError:
            continue
    with (folder / "command-lines").open("ab") as kept:
        kept.write(b"\n".join([*lines, b""]))
