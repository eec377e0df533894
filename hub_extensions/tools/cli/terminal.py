"""Functions of all commands for output, and for the exit after an error."""

from __future__ import annotations

import sys
from typing import NoReturn

import click
from rich.console import Console


def console() -> Console:
    """Return a console for the standard output. If it is not a terminal, lines are not wrapped."""
    return Console(highlight=False, soft_wrap=True) if sys.stdout.isatty() else Console(highlight=False, width=200)


def write(text: str) -> None:
    """Write a text to the standard output, without rich's markup or wrapping, and flush it."""
    console().print(text, markup=False, soft_wrap=True)
    sys.stdout.flush()


def refuse(text: str, code: int = 2) -> NoReturn:
    """Print why the command cannot go on, and exit with this code."""
    click.echo(text, err=True)
    sys.exit(code)
