"""Output that all commands share, and their exit when they cannot go on."""

from __future__ import annotations

import sys
from typing import NoReturn

import click
from rich.console import Console


def console() -> Console:
    """The standard output. A file or a program, which is not a terminal, gets whole lines."""
    return Console(highlight=False, soft_wrap=True) if sys.stdout.isatty() else Console(highlight=False, width=200)


def write(text: str) -> None:
    """A text as it is, at once."""
    console().print(text, markup=False, soft_wrap=True)
    sys.stdout.flush()


def refuse(text: str, code: int = 2) -> NoReturn:
    """Exit with a sentence about the reason."""
    click.echo(text, err=True)
    sys.exit(code)
