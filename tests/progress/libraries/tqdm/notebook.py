"""The bars of a notebook: a subclass whose methods call those of `tqdm.std`."""

from typing import Any

from .std import tqdm as std_tqdm


class tqdm_notebook(std_tqdm):  # noqa: N801
    def update(self, n: float = 1) -> Any:
        return super().update(n)

    def close(self) -> None:
        if not self.disable:
            super().close()


def trange(*args: int, **kwargs: Any) -> tqdm_notebook:
    return tqdm_notebook(range(*args), **kwargs)


tqdm = tqdm_notebook
