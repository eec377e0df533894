"""Write the progress of a training to a file that the server extension reads. Standard library only, Python 3.8.

One JSON file per run, at most 4 KiB, in the folder ``$JUPYTERHUB_GPU_PROGRESS``. A file and not a request, because a
kernel knows neither the server's address nor its token, and because scripts in a terminal can write one as well.
Nothing here raises an exception into a training. If the file cannot be written, the training runs without reports. Only
`track` refuses wrong values of `epochs` and `start`, when it is called and before the first step.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import math
import operator
import os
import re
import sys
import threading
import time
import weakref
from itertools import islice
from typing import Any, Callable, Generator, Iterable, Iterator, TypeVar

RUNNING, DONE, LEFT, FAILED = "running", "done", "left", "failed"
WRITE_SECONDS = 2.0
APART_SECONDS = 2.0  # a run that begins sooner after another one of this process writes its first file this much later
MAX_SHARE_OF_TIME = 0.01  # on a slow disk the file is written less often, so that writing takes no larger share
MAX_BYTES = 4096
MAX_NAME = 80
GROUPS = 64
KEEP_SECONDS = 7 * 86_400.0
MAX_FILES = 200  # all but the newest are removed, also of running runs, whose next report writes them again
FILE_NAME = re.compile(r"[0-9a-f]{16}\.(json|tmp)")
CLEAN_SECONDS = 60.0  # at most one look for old files in this time
LARGEST = 2**53

Wrapped = TypeVar("Wrapped", bound=Callable[..., Any])


def quiet(function: Wrapped) -> Wrapped:
    """Wrap a function so that it returns `None` instead of raising an exception. Ctrl-C passes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever is wrong with the progress, the training goes on
            return None

    return call  # type: ignore[return-value]


def never_raises(hook: type) -> type:
    """Make all methods of a library's hook `quiet`."""
    for name, method in list(vars(hook).items()):
        if callable(method) and not name.startswith("__"):
            setattr(hook, name, quiet(method))
    return hook


def progress_folder() -> str:
    """Return the folder of the progress files. Jupyter's runtime folder is found as jupyter_core does."""
    folder = os.environ.get("JUPYTERHUB_GPU_PROGRESS")
    if folder:
        return folder
    runtime = os.environ.get("JUPYTER_RUNTIME_DIR")
    if not runtime:
        home = os.path.expanduser("~")
        if sys.platform == "darwin":
            data = os.path.join(home, "Library", "Jupyter")
        elif os.name == "nt":
            data = os.path.join(os.environ.get("APPDATA", home), "jupyter")
        else:
            data = os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share"), "jupyter")
        runtime = os.path.join(os.environ.get("JUPYTER_DATA_DIR") or data, "runtime")
    return os.path.join(runtime, "gpu-progress")


def may_write() -> bool:
    """Return whether this process is the one of a training that writes: rank 0, and no worker that loads data."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        if distributed.get_rank() != 0:
            return False
    elif any(os.environ.get(rank, "0").strip() not in ("", "0") for rank in ("RANK", "LOCAL_RANK")):
        return False
    process = sys.modules.get("multiprocessing.process")
    return process is None or not process.current_process().daemon


def process_start() -> int | None:
    """Return when this process started, in clock ticks after boot; `None` where there is no /proc."""
    try:
        with open("/proc/self/stat", "rb") as file:
            return int(file.read().rsplit(b")", 1)[1].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def whole(value: Any) -> int | None:
    """Return a count as a whole number; `None` if it is unknown, infinite, negative or no number."""
    try:
        number = math.ceil(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < LARGEST else None


def required_count(argument: str, value: Any) -> int:
    """Return an argument of `track` that decides which steps a loop has, because a guess could train too few.

    Raises:
        TypeError: the value is no whole number.
        ValueError: it is negative or too large.
    """
    sentence = f"track: {argument} must be a whole number from 0, not "
    try:
        number = int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    except TypeError:
        raise TypeError(sentence + type(value).__name__) from None
    if not 0 <= number < LARGEST:
        raise ValueError(f"{sentence}{number}")
    return number


def clean_name(name: Any) -> str:
    """Return the name of a run in at most 80 printable characters."""
    text = "".join(char if char.isprintable() else " " for char in str(name)[: 4 * MAX_NAME])
    return " ".join(text.split())[:MAX_NAME]


def patience_of(callbacks: Iterable[Any]) -> int | None:
    """Return the patience of the early stopping in a library's list of callbacks; `None` without early stopping."""
    found = [
        whole(getattr(callback, "patience", getattr(callback, "early_stopping_patience", None)))
        for callback in callbacks
        if any(kind.__name__.startswith("EarlyStopping") for kind in type(callback).__mro__)
    ]
    return min((patience for patience in found if patience is not None), default=None)


def calling_callbacks() -> list[Any]:
    """Return the callbacks of the library that called the hook: its caller has them as ``self.callbacks``."""
    frame = sys._getframe(1)
    for _ in range(8):
        callbacks = getattr(frame.f_locals.get("self"), "callbacks", None)
        if isinstance(callbacks, (list, tuple)):
            return list(callbacks)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return []


class ProgressRun:
    """One run of a training, and its file.

    Args:
        name: what the panel calls the run; runs of the same name are compared with each other.
        library: what reports the steps.
        total: steps until the end, with `start`; `None` if it is not known.
        epochs: number of epochs, and `epoch_steps`: steps of an epoch; `None` if not known.
        start: steps of an earlier run that this one resumes.
        patience: epochs without improvement after which the run stops early; `None` without early stopping.

    Attributes:
        steps: steps done in this run that were reported.
        edge, due: a number of steps, and a time of `time.perf_counter`. `count` need not be called before this number
            of steps, or this time, is reached, so that a step costs next to nothing.
    """

    def __init__(
        self,
        name: str = "",
        library: str = "loop",
        *,
        total: Any = None,
        epochs: Any = None,
        epoch_steps: Any = None,
        start: Any = 0,
        patience: Any = None,
    ) -> None:
        self.name, self.library = quiet(clean_name)(name) or "", library
        self.total, self.epochs, self.epoch_steps, self.patience = total, epochs, epoch_steps, patience
        self.start = start
        self.state, self.steps = RUNNING, 0
        self.first: float | None = None
        self.group_steps = 1
        self.groups: list[float] = []
        self.rest_steps, self.rest = 0, 0.0
        self.edge: float = 1
        self._added = 0
        self.due = self._last = self._latest = time.perf_counter()
        self._started = time.time()
        self._run, self._pid = os.urandom(8).hex(), os.getpid()
        self._lock = threading.Lock()
        self._cell: int | None = None
        self._path = ""
        self._is_written = False
        self._begin()

    @quiet
    def _begin(self) -> None:
        """Prepare the file, and write it unless this process began another run just before.

        So a loop inside a loop does not leave a file for each of its rounds.
        """
        global _last_begun
        if not may_write():
            self.edge = self.due = math.inf
            return
        _last_begun, before = self._last, _last_begun
        self._born = process_start()
        folder = os.path.abspath(progress_folder())
        make_folder(folder)
        remove_old_files(folder)
        self._path = os.path.join(folder, self._run + ".json")
        _open_runs.add(self)
        self._cell = watch_cells()
        if self._last - before < APART_SECONDS:
            self.due = self._last + APART_SECONDS
        else:
            self.write()

    def count(self, steps: int, now: float | None = None) -> None:
        """Record the number of steps done in this run.

        Args:
            steps: number of all steps of this run, without `start`. Those that are new get equal shares of the time
                since the last call.
            now: `time.perf_counter` at the end of the last step, if it was not right now.
        """
        if now is None:
            now = time.perf_counter()
        if steps > self.steps:
            self.steps, self._latest = steps, now
        if steps >= self.edge or now >= self.due:
            with self._lock:
                self._add_steps()
                if now >= self.due:
                    self.write()

    def _add_steps(self) -> None:
        """Add the steps that were reported since the last call to the durations."""
        new = self.steps - self._added
        if new > 0 and self.state == RUNNING:
            each = max(0.0, self._latest - self._last) / new
            self._added, self._last = self.steps, self._latest
            if self.first is None:
                self.first, new = each, new - 1
            while new > 0:
                new = self._fill_group(new, each)
            self.edge = self._added + self.group_steps - self.rest_steps

    def _fill_group(self, steps: int, each: float) -> int:
        """Add steps of `each` seconds to the unfinished group; return how many did not fit into it."""
        taken = min(steps, self.group_steps - self.rest_steps)
        self.rest_steps += taken
        self.rest += taken * each
        if self.rest_steps == self.group_steps:
            self.groups.append(self.rest)
            self.rest_steps, self.rest = 0, 0.0
        if len(self.groups) == GROUPS:
            self.groups = [sum(self.groups[at : at + 2]) for at in range(0, GROUPS, 2)]
            self.group_steps *= 2
        return steps - taken

    def end(self, state: str = DONE) -> None:
        """End the run, and write its file for the last time. A run that has ended stays as it is."""
        with self._lock:
            if self.state == RUNNING:
                self._add_steps()
                self.state, self.edge = state, math.inf
                if self._is_written or time.perf_counter() >= self.due:
                    self.write()
                self.due = math.inf
                _open_runs.discard(self)

    def fail(self, problem: BaseException) -> None:
        """End the run because of an exception: *left* if the user interrupted it, else *failed*."""
        self.end(FAILED if isinstance(problem, Exception) else LEFT)

    def write(self) -> None:
        """Replace the file, if this process may; without one nothing happens."""
        begun = time.perf_counter()
        self._is_written = True
        if self._path and os.getpid() == self._pid:  # a forked process has a copy of this run that is not its own
            self._replace()
            spent = time.perf_counter() - begun
            self.due = begun + max(WRITE_SECONDS, spent / MAX_SHARE_OF_TIME)
        else:
            self.due = math.inf

    @quiet
    def _replace(self) -> None:
        data = json.dumps(self.as_json(), separators=(",", ":"), allow_nan=False).encode()
        if len(data) > MAX_BYTES:
            return
        temporary = self._path[: -len(".json")] + ".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(temporary, flags, 0o600)
            try:
                if os.write(descriptor, data) < len(data):
                    raise OSError("the disk is full")
            finally:
                os.close(descriptor)
            os.replace(temporary, self._path)
        except BaseException:
            quiet(os.unlink)(temporary)
            raise

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "version": 1, "run": self._run, "pid": self._pid, "born": self._born,
            "name": self.name, "library": self.library, "state": self.state,
            "started": round(self._started, 6), "at": round(time.time(), 6),
            "steps": self.steps, "start": whole(self.start) or 0, "total": whole(self.total),
            "epochs": whole(self.epochs), "epoch_steps": whole(self.epoch_steps), "patience": whole(self.patience),
            "first": self.first if self.first is None else short(self.first),
            "group_steps": self.group_steps, "groups": [short(each) for each in self.groups],
            "rest_steps": self.rest_steps, "rest": short(self.rest),
        }  # fmt: skip

    def __reduce__(self) -> Any:
        """Pickle and copy as `None`, so that a copied callback cannot write to this run's file."""
        return type(None), ()

    def __del__(self) -> None:
        try:
            if self._pid == os.getpid():
                self.end(LEFT)
        except Exception:  # noqa: BLE001, S110 - at the end of a program modules are gone
            pass


def short(seconds: float) -> float:
    """Return a duration with four significant digits."""
    return float("%.4g" % seconds)


_open_runs: weakref.WeakSet[ProgressRun] = weakref.WeakSet()
_cleaned: dict[str, float] = {}
_last_begun = -math.inf  # time of `time.perf_counter` at which this process began its last run
_notes: set[str] = set()
_shells: list[Any] = []
_cells = 0


def make_folder(folder: str) -> None:
    """Make the folder of the progress files, for this user only. One that exists keeps its mode: it may be shared."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o700)  # also where an access control list of the parent gives it another mode


@quiet
def remove_old_files(folder: str) -> None:
    """Remove this user's progress files that are older than seven days, and all but the newest of very many.

    The folder may be one that holds other files, so only names that this module gives are removed.
    """
    if time.monotonic() - _cleaned.get(folder, -math.inf) < CLEAN_SECONDS:
        return
    _cleaned[folder] = time.monotonic()
    user, found = getattr(os, "getuid", lambda: 0)(), []
    with os.scandir(folder) as entries:
        for entry in entries:
            if FILE_NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):  # another run has just renamed or removed it
                    status = entry.stat(follow_symlinks=False)
                    if status.st_uid == user:
                        found.append((status.st_mtime, entry.path))
    found.sort(reverse=True)
    for at, (written, path) in enumerate(found):
        if at >= MAX_FILES or written < time.time() - KEEP_SECONDS:
            quiet(os.unlink)(path)


@atexit.register
def end_open_runs() -> None:
    """End the runs of a program that ends: *failed* after an exception that nobody caught, else *left*."""
    uncaught = getattr(sys, "last_type", None) if _shell() is None else None
    failed = isinstance(uncaught, type) and issubclass(uncaught, Exception)
    for run in list(_open_runs):
        if run._pid == os.getpid():
            quiet(run.end)(FAILED if failed else LEFT)


def _shell() -> Any:
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def watch_cells() -> int | None:
    """Ask IPython to report cells that fail, because most libraries call no hook after an exception.

    Returns:
        Number of cells that have ended so far; `None` outside of IPython and in other threads.
    """
    shell = _shell()
    if shell is None or threading.current_thread() is not threading.main_thread():
        return None
    if shell not in _shells:
        _shells.append(shell)
        shell.events.register("post_run_cell", _cell_ended)
    return _cells


@quiet
def _cell_ended(result: Any) -> None:
    global _cells
    _cells, ended = _cells + 1, _cells
    for run in list(_open_runs) if result.error_in_exec is not None else ():
        if run._cell == ended:
            run.fail(result.error_in_exec)


@quiet
def note(text: str) -> None:
    """Print a hint for the user, once in a program."""
    if text not in _notes:
        _notes.add(text)
        print(text, file=sys.stderr)


class TrackedLoop:
    """What `track` returns: the items of an iterable, whose steps are reported."""

    def __init__(self, iterable: Iterable[Any], epochs: Any, name: str, start: Any, total: Any, patience: Any) -> None:
        self._iterable, self._name, self._given_total, self._patience = iterable, name, total, patience
        self._epochs = None if epochs is None else required_count("epochs", epochs)
        self._start = required_count("start", start)
        self._length: int | None = quiet(len)(iterable)  # type: ignore[arg-type]
        self._run: ProgressRun | None = None
        self._finished = False

    def __iter__(self) -> Iterator[Any]:
        if self._run is not None:
            return self._one_pass(self._run)
        return self._all_passes()

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("the length of this loop is not known")
        if self._run is not None or self._epochs is None:
            return self._length
        return max(0, self._epochs * self._length - self._start)

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        """Give what the iterable has, for example ``loader.dataset``."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._iterable, name)

    def _all_passes(self) -> Iterator[Any]:
        if self._finished and self._epochs is not None:
            note(
                f"track(…, epochs={self._epochs}) has run all its epochs and gives nothing more. In a loop of your own "
                "over the epochs write: for epoch in batches.by_epoch(): for batch in batches: …"
            )
            return
        passes = self.by_epoch() if self._epochs is not None else self._passes(1)
        try:
            for epoch in passes:
                before = self._run.steps if self._run is not None else 0
                yield from self
                if self._run is not None and self._run.steps == before and epoch > 0:
                    note(
                        f"track(…, epochs={self._epochs}) could go through its data only once. Give it the loader "
                        "itself, for example: enumerate(track(loader, epochs=20))."
                    )
                    break
        finally:
            self._finished = True
            passes.close()

    def by_epoch(self) -> Generator[int, None, None]:
        """Iterate over the numbers of the epochs; in between, a loop over this object gives one epoch."""
        return self._passes(self._epochs)

    def _passes(self, epochs: int | None) -> Generator[int, None, None]:
        length, start = self._length, self._start
        fixed = whole(self._given_total)
        of_epochs = self._epochs is not None
        total = fixed
        if total is None and length is not None and epochs is not None:
            total = epochs * length if of_epochs else start + length
        self._run = run = ProgressRun(
            self._name,
            total=total,
            epochs=self._epochs,
            epoch_steps=length if of_epochs else None,
            start=start,
            patience=self._patience,
        )
        epoch = start // length if length and of_epochs else 0
        self._skip = start % length if length and of_epochs else 0
        state = DONE
        try:
            while epochs is None or epoch < epochs:
                before = run.steps
                yield epoch
                taken = run.steps - before + self._skip
                self._skip = 0
                epoch += 1
                if of_epochs and taken and length is None:  # the first epoch has shown how long one is
                    length = taken
                    epoch += start // length
                if of_epochs and taken and fixed is None and epochs is not None:
                    run.epoch_steps = taken
                    run.total = start + run.steps + taken * max(0, epochs - epoch)
        except BaseException:
            state = LEFT
            raise
        finally:
            self._run = None
            quiet(run.end)(state)

    def _one_pass(self, run: ProgressRun) -> Iterator[Any]:
        clock = time.perf_counter
        report = quiet(run.count)
        steps, edge, due, now = run.steps, run.edge, run.due, clock()
        try:
            for item in islice(self._iterable, self._skip, None) if self._skip else self._iterable:
                yield item
                steps += 1
                now = clock()
                if steps >= edge or now >= due:
                    report(steps, now)
                    edge, due = run.edge, run.due
        except GeneratorExit:
            raise
        except BaseException as problem:  # from the iterable itself
            report(steps, now)
            quiet(run.fail)(problem)
            raise
        finally:
            report(steps, now)


def track(
    iterable: Iterable[Any],
    *,
    epochs: int | None = None,
    name: str = "",
    start: int = 0,
    total: int | None = None,
    patience: int | None = None,
) -> TrackedLoop:
    """Iterate over something, and show in the GPU panel how far the loop is and when it is likely done.

    With `epochs`, one loop gives the items of all epochs, so it takes the place of two nested loops. Do not put it into
    a loop over the epochs of your own: use `TrackedLoop.by_epoch` for that, in between of which a loop over the same
    object gives one epoch.

    Args:
        iterable: the data, for example a DataLoader. It is iterated once per epoch.
        epochs: how often; `None` for one loop over the data, whatever it gives.
        name: what the panel calls the run. Runs of the same name are compared with each other.
        start: steps that an earlier run did, which this one resumes. With `epochs`, these steps are left out; without,
            the data holds what is still to be done.
        total: number of steps until the end, with `start`, where it is not the length of the data times the epochs.
        patience: epochs without improvement after which your loop stops early.

    A loop that is left by `break`, and one that an exception ends, cannot be told apart: both are shown as *left*.

    Raises:
        TypeError, ValueError: `epochs` or `start` is not a whole number from 0.
    """
    return TrackedLoop(iterable, epochs, name, start, total, patience)
