"""Reads the folder in which training programs report their progress, one file for each run.

Every program of the user can write into it. Symbolic links, files of other accounts, files that are not plain files and
files that are too long are left out, with one line in the log for each. Nothing here follows a link or can be made to
wait by a pipe.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from heapq import nlargest
from pathlib import Path
from time import monotonic, thread_time
from typing import NamedTuple

from hub_extensions.adapters.linux import procfs
from hub_extensions.core.forecast.progress_file import (
    MAX_READ_BYTES,
    RUNNING,
    ProgressFile,
    ProgressFileError,
    read_progress_file,
)

VARIABLE = "JUPYTERHUB_GPU_PROGRESS"  # environment variable with the folder, for kernels and terminals
NAME = "gpu-progress"
MAX_FILES = 20
MAX_LIVING = MAX_FILES // 2  # files of runs that go on which are read although `MAX_FILES` others are newer
YOUNG_SECONDS = 600.0  # if all files are older, they are not looked at again until the folder changes
SEARCH_SECONDS = 60.0
"""Interval at which all files are looked at. Between, it is the newest ones and those with a new name."""
LISTING_SHARE = 1000.0
"""The folder is not listed again for this many times as long as listing it took, if that is more than `CHEAP_SECONDS`.
The programs that write it remove old files, so it is small unless something else fills it."""
CHEAP_SECONDS = 0.005
NAME_LOGGED = 40  # characters of a file's name in the log
FORBIDDEN = (errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EPERM)
"""Errors after which nothing of the folder counts any more; others, such as of a disk that is away, may pass."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

log = logging.getLogger(__name__)


def folder_in(environ: Mapping[str, str], runtime_dir: str) -> Path:
    """Return the folder of progress files.

    Args:
        environ: environment variables, which may name another folder.
        runtime_dir: Jupyter's runtime directory of the user.
    """
    named = environ.get(VARIABLE, "")
    return Path(named) if os.path.isabs(named) else Path(runtime_dir).absolute() / NAME


class _Seen(NamedTuple):
    """A file as it was listed. If all values are the same at the next look, so is its content."""

    inode: int
    modified: int
    size: int
    mode: int


class ProgressFolder:
    """The folder of progress files. Its methods may block, because the user's home can be on a slow disk.

    Args:
        path: the folder; it is created if it does not exist.

    Attributes:
        problem: why the folder could not be read the last time; "" if it was read.
        left_out: names of files that were left out, with the reason.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._others: set[str] = set()
        self._searched_at = self._lists_at = float("-inf")
        self._many = False
        self._read: dict[str, tuple[_Seen, ProgressFile | None]] = {}
        self._listed: tuple[int, int] | None = None
        self._newest = 0.0
        self.left_out: dict[str, str] = {}
        self.problem = ""

    def read(self, now: datetime) -> tuple[ProgressFile, ...]:
        """Return the content of the `MAX_FILES` newest files that are valid.

        The newest files of runs that go on are among them, even if other files are newer, because a run with slow steps
        writes seldom.

        Args:
            now: wall-clock time.
        """
        try:
            folder = self._open()
        except OSError as error:
            return self._note_problem(f"it cannot be used ({error.strerror})", keep=error.errno not in FORBIDDEN)
        try:
            found = os.fstat(folder)
            if problem := _problem_with(found):
                return self._note_problem(problem)
            listed = (found.st_ino, found.st_mtime_ns)
            # the folder's time changes whenever a file is replaced
            if listed != self._listed or now.timestamp() - max(self._newest, found.st_mtime) < YOUNG_SECONDS:
                self._list(folder, now)
                self._listed = listed
        except OSError as error:
            return self._note_problem(f"it cannot be read ({error.strerror})", keep=True)
        finally:
            os.close(folder)
        return self._note_problem("")

    def _open(self) -> int:
        """Open the folder, and create it first if it does not exist."""
        try:
            return os.open(self.path, _DIRECTORY)
        except FileNotFoundError:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700)
            folder = os.open(self.path, _DIRECTORY)
            os.fchmod(folder, 0o700)  # also where the umask or an access control list of the parent differs
            return folder

    def _list(self, folder: int, now: datetime) -> None:
        """Find the newest files, and read those that have changed.

        The names of a very large folder are listed seldom, so that it costs little. Between, the files that were read
        before are looked at.
        """
        began, cpu = monotonic(), thread_time()
        names = set(self._read)
        lists = began >= self._lists_at
        if lists:
            names = set(os.listdir(folder))
            if began - self._searched_at >= SEARCH_SECONDS:
                self._others, self._searched_at = set(), began
            self._others &= names
            self.left_out = {name: why for name, why in self.left_out.items() if name in names}
            names -= self._others
        found = {name: seen for name in names if (seen := _seen(folder, name)) is not None}
        newest = self._newest_of(found)
        if lists:
            self._others |= names.difference(newest)
            cost = thread_time() - cpu
            self._lists_at = began + (LISTING_SHARE * cost if cost > CHEAP_SECONDS else 0.0)
        if len(found) > MAX_FILES and not self._many:
            log.info("%s: only the %d newest files are read.", self.path, MAX_FILES)
        self._many = self._many or len(found) > MAX_FILES
        self._newest = found[newest[0]].modified / 1e9 if newest else 0.0
        read, self._read = self._read, {}
        for name in newest:
            known = read.get(name)
            if known is None or known[0] != found[name]:
                known = (found[name], self._content(folder, name, found[name], now))
            self._read[name] = known

    def _newest_of(self, found: Mapping[str, _Seen]) -> list[str]:
        """Return the names of the files to read, the newest first."""

        def modified(name: str) -> int:
            return found[name].modified

        newest = nlargest(MAX_FILES, found, key=modified)
        if len(found) > len(newest):
            living = nlargest(MAX_LIVING, (name for name in self._running() if name in found), key=modified)
            others = [name for name in newest if name not in living]
            newest = sorted([*living, *others[: MAX_FILES - len(living)]], key=modified, reverse=True)
        return newest

    def _running(self) -> Iterator[str]:
        """Yield the names of the files whose last content was a run that goes on, and whose process lives."""
        for name, (_, file) in self._read.items():
            if file is not None and file.run.state == RUNNING and is_alive(file):
                yield name

    def _content(self, folder: int, name: str, seen: _Seen, now: datetime) -> ProgressFile | None:
        """Return the content of a file; `None` if it is left out."""
        try:
            return read_progress_file(_bytes(folder, name, seen), name.removesuffix(".json"), now)
        except FileNotFoundError:
            return None  # it was removed meanwhile
        except ProgressFileError as error:
            why = str(error)
        except OSError as error:
            why = "it is a symbolic link" if error.errno == errno.ELOOP else str(error.strerror)
        if name not in self.left_out:
            log.warning("The progress file %r is left out: %s.", name[:NAME_LOGGED], why)
        self.left_out[name] = why
        return None

    def _note_problem(self, problem: str, *, keep: bool = False) -> tuple[ProgressFile, ...]:
        """Log a problem with the folder if it is a new one, and return the content of the files.

        Args:
            problem: why the folder is not read; "" if it was read.
            keep: whether what was read before still counts, because the disk may answer again.
        """
        if problem and problem != self.problem:
            log.warning("The progress of trainings cannot be read: %s: %s.", self.path, problem)
        self.problem = problem
        if problem and not keep:
            self._read, self._listed, self._lists_at = {}, None, float("-inf")
        return tuple(file for _, file in self._read.values() if file is not None)


def is_alive(file: ProgressFile) -> bool | None:
    """Return whether the process of a run exists here; `None` if that cannot be seen."""
    if procfs.start_time(os.getpid()) is None:
        return None  # no /proc
    started = procfs.start_time(file.pid) if file.born is None else file.born
    if started is None:
        return False
    alive = procfs.liveness(file.pid, started)
    if alive and file.born is None:
        begun = datetime.now(timezone.utc).timestamp() - procfs.age_seconds(started)
        alive = begun < file.run.started.timestamp() + 1.0  # otherwise the pid is another process's now
    return alive


def _problem_with(folder: os.stat_result) -> str:
    """Return why the files in a folder are not trusted; "" if they are."""
    if folder.st_uid != os.geteuid():
        return "it belongs to somebody else"
    if folder.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return "others may use it (chmod 700)"
    return ""


def _seen(folder: int, name: str) -> _Seen | None:
    """Return what is known of a file without opening it; `None` if it is not a progress file, or was removed."""
    if not name.endswith(".json") or name.startswith("."):
        return None
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return _Seen(found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)


def _bytes(folder: int, name: str, seen: _Seen) -> bytes:
    """Read a file of the user's.

    Raises:
        ProgressFileError: it is not a plain file of the user's, or too long.
    """
    if not stat.S_ISREG(seen.mode):
        raise ProgressFileError("it is a symbolic link" if stat.S_ISLNK(seen.mode) else "it is not a plain file")
    file = os.open(name, _FILE, dir_fd=folder)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise ProgressFileError("it is not a plain file")
        if found.st_uid != os.geteuid():
            raise ProgressFileError("it belongs to somebody else")
        if found.st_size > MAX_READ_BYTES:
            raise ProgressFileError("it is too long")
        return os.read(file, MAX_READ_BYTES + 1)
    finally:
        os.close(file)
