"""The file with a user's finished training runs, in the user's Jupyter data directory.

Several servers of the user may write to it. It is replaced as a whole, so that a reader never sees half of it.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from hub_extensions.core.forecast.training_history import VERSION, PastRun, TrainingHistory
from hub_extensions.server_extension.codec import CodecError, decode, encode

NAME = "gpu-training-history.json"
MAX_BYTES = 1024 * 1024  # 200 runs are about 200 KB
ABANDONED_SECONDS = 60.0  # a server that writes for longer than this has ended

log = logging.getLogger(__name__)


class TrainingHistoryFile:
    """Keeps the finished training runs of a user. Its methods may block, because a home can be on a slow disk.

    Args:
        path: the file, which need not exist.

    Attributes:
        history: the runs as of the last `load` or `add`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._problem = ""
        self.history = TrainingHistory()

    def load(self) -> bool:
        """Read the file, and return whether its content is known. A damaged file is set aside."""
        try:
            data = _read(self._path)
            self.history = TrainingHistory() if data is None else _parsed(data)
        except CodecError as error:
            return self._set_aside(str(error))
        except OSError as error:
            self._note_problem(f"it cannot be read ({error.strerror or error})")
            return False
        return True

    def add(self, run: PastRun) -> bool:
        """Add a finished run, and return whether it is stored. If not, the caller tries again later."""
        # this file is also the lock: one server at a time reads, adds and replaces
        new = self._path.with_name(f".{NAME}.new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                if time.time() - new.lstat().st_mtime > ABANDONED_SECONDS:
                    new.unlink()
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return False
        except OSError as error:
            self._note_problem(f"it cannot be written ({error.strerror})")
            return False
        try:
            with os.fdopen(file, "wb") as opened:
                if not self.load():
                    return False
                after = self.history.add(run)
                if after is not self.history:
                    opened.write(encode(after).encode())
                    opened.flush()
                    os.fsync(opened.fileno())
                    os.replace(new, self._path)
                    self.history = after
        except OSError as error:
            self._note_problem(f"it cannot be written ({error.strerror})")
            return False
        finally:
            with suppress(OSError):
                new.unlink()
        self._problem = ""
        return True

    def _set_aside(self, why: str) -> bool:
        """Rename a damaged file, so that nothing in it is lost, and begin anew."""
        number, aside = 0, self._path.with_name(f"{NAME}.damaged")
        while os.path.lexists(aside) and number < 100:
            number += 1
            aside = self._path.with_name(f"{NAME}.damaged-{number}")
        try:
            os.rename(self._path, aside)
        except OSError as error:
            self._note_problem(f"it is damaged and cannot be renamed ({error.strerror})")
            return False
        log.warning("The history of trainings %s is damaged (%s). It is kept as %s.", self._path, why, aside.name)
        self.history = TrainingHistory()
        return True

    def _note_problem(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("The history of trainings is not kept: %s: %s.", self._path, problem)
        self._problem = problem


def _read(path: Path) -> bytes | None:
    """Return the content of the file; `None` if it does not exist.

    Raises:
        CodecError: it is too long for a history.
        OSError: it cannot be read, or it is not a plain file.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(0, "it is not a plain file")
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise CodecError("it is too long")
    return data


def _parsed(data: bytes) -> TrainingHistory:
    history = decode(TrainingHistory, data)
    if history.version != VERSION:
        raise CodecError(f"version {history.version}")
    return history
