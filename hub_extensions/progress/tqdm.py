"""tqdm: ``%%gpu_progress [name] [epochs=20]`` above a cell shows its outermost tqdm bar in the GPU panel."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import warnings
from typing import Any, Callable

from hub_extensions.progress.writer import ProgressRun, quiet, whole


class BarWatch:
    """Reports the outermost bar of a cell. A bar of the same length again is the next epoch of the same run."""

    def __init__(self, name: str, epochs: int | None) -> None:
        self.name, self.epochs = name, epochs
        self.run: ProgressRun | None = None
        self.bar: Any = None
        self.lengths: set[int] = set()

    @quiet
    def see(self, bar: Any) -> None:
        """Look at a bar after it was made, updated or closed. An inner bar is made after the outer one."""
        length = whole(bar.total) if bar.total else None
        if self.bar is None and length and not bar.disable:
            self._open(bar, length)
        if bar is self.bar and self.run is not None:
            self.run.count(self.before + int(bar.n) - self.first)
            if bar.disable:  # closed
                self.bar = None

    def _open(self, bar: Any, length: int) -> None:
        again = length in self.lengths
        if self.run is None or self.run.epoch_steps != length:
            if self.run is not None and (self.run.total is None or self.epochs):
                return  # another bar between two epochs, for example of the validation
            if self.run is not None:
                self.run.end()
            self.run = ProgressRun(self.name, "tqdm", epochs=self.epochs, epoch_steps=length, start=bar.n)
            self.run.total = None if again else length * (self.epochs or 1)
        elif not self.epochs:
            self.run.total = None  # nobody knows how many bars will follow
        self.lengths.add(length)
        self.bar, self.before, self.first = bar, self.run.steps, int(bar.n)


def watched(method: Callable[..., Any], see: Callable[[Any], None]) -> Callable[..., Any]:
    """Wrap a method of tqdm so that the watch sees the bar afterwards."""

    @functools.wraps(method)
    def call(bar: Any, *args: Any, **kwargs: Any) -> Any:
        answer = method(bar, *args, **kwargs)
        see(bar)
        return answer

    return call


def run_cell(shell: Any, cell: str) -> None:
    """Run the code of a cell; its exceptions pass, and the value of its last expression is displayed."""
    code = shell.transform_cell(cell)
    name = shell.compile.cache(code)
    tree = shell.transform_ast(shell.compile.ast_parse(code, filename=name))
    last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
    exec(shell.compile(tree, name, "exec"), shell.user_ns)
    exec(shell.compile(ast.Interactive(last), name, "single"), shell.user_ns)


@quiet
def awaits(shell: Any, cell: str) -> bool:
    """Return whether a cell awaits something outside of its functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are shown when the cell runs
        code = compile(shell.transform_cell(cell), "", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return bool(code.co_flags & inspect.CO_COROUTINE)


def register(shell: Any) -> None:
    """Register the magic with IPython."""

    def without_magic(cell: list[str]) -> list[str]:
        """Put a sentence in place of the magic above a cell that awaits: IPython can await, and a magic cannot."""
        if cell and re.match(r"%%gpu_progress\b", cell[0]) and awaits(shell, "".join(cell[1:])):
            sentence = "%%gpu_progress does not show this cell, because it has an await outside of a function."
            return [f"print({sentence!r})\n", *cell[1:]]
        return cell

    shell.input_transformers_cleanup.append(without_magic)

    def gpu_progress(words: str, cell: str) -> None:
        epochs = re.search(r"(?:^|\s)epochs=(\d+)\s*$", words)
        name = words[: epochs.start()] if epochs else words
        try:
            from tqdm.std import tqdm
        except ImportError:
            print("%%gpu_progress shows the progress of tqdm bars, and tqdm is not installed here.")
            run_cell(shell, cell)
            return
        watch = BarWatch(name, int(epochs.group(1)) if epochs else None)
        methods = {name: getattr(tqdm, name) for name in ("__init__", "update", "close")}
        for method, original in methods.items():
            setattr(tqdm, method, watched(original, watch.see))
        try:
            run_cell(shell, cell)
        except BaseException as problem:
            if watch.run is not None:
                quiet(watch.run.fail)(problem)
            raise
        finally:
            for method, original in methods.items():
                setattr(tqdm, method, original)
            if watch.run is not None:
                quiet(watch.run.end)()

    shell.register_magic_function(gpu_progress, "cell", "gpu_progress")
