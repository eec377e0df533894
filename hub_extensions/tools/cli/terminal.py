"""What every command says, and how it ends where it cannot go on."""

from __future__ import annotations

import sys
from typing import NoReturn

import click
from rich.console import Console


def console() -> Console:
    """The standard output; what is no terminal, a file or a program, gets whole lines."""
    return Console(highlight=False, soft_wrap=True) if sys.stdout.isatty() else Console(highlight=False, width=200)


def write(text: str) -> None:
    """A text as it is, at once."""
    console().print(text, markup=False, soft_wrap=True)
    sys.stdout.flush()


def refuse(text: str, code: int = 2) -> NoReturn:
    """End with a sentence that says why."""
    click.echo(text, err=True)
    sys.exit(code)
