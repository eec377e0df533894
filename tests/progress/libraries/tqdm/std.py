from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any


class tqdm:  # noqa: N801
    def __init__(
        self,
        iterable: Any = None,
        desc: str = "",
        total: float | None = None,
        *,
        initial: int = 0,
        mininterval: float = 0.1,
        disable: bool = False,
        **kwargs: Any,
    ) -> None:
        if total is None and iterable is not None:
            try:
                total = len(iterable)
            except (TypeError, AttributeError):
                total = None
        self.iterable, self.desc, self.total, self.disable = iterable, desc, total, disable
        self.n = self.last_print_n = initial
        if not disable:
            self.mininterval, self.miniters, self.last_print_t = mininterval, 0.0, time.time()

    def __iter__(self) -> Iterator[Any]:
        if self.disable:
            yield from self.iterable
            return
        n, last_print_n = self.n, self.last_print_n
        try:
            for item in self.iterable:
                yield item
                n += 1  # `update` is not called: that would cost too much
                if n - last_print_n >= self.miniters and time.time() - self.last_print_t >= self.mininterval:
                    self.update(n - last_print_n)
                    last_print_n = self.last_print_n
        finally:
            self.n = n
            self.close()

    def update(self, n: float = 1) -> bool | None:
        if self.disable:
            return None
        self.n += n
        if self.n - self.last_print_n >= self.miniters and time.time() - self.last_print_t >= self.mininterval:
            self.miniters = max(self.miniters, self.n - self.last_print_n)
            self.last_print_n, self.last_print_t = self.n, time.time()
            return True
        return None

    def close(self) -> None:
        self.disable = True

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *problem: Any) -> None:
        self.close()


def trange(*args: int, **kwargs: Any) -> tqdm:
    return tqdm(range(*args), **kwargs)
