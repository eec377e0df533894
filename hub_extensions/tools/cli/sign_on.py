"""Commands about single sign-on, which work on the hub's database.

They show and change which account at the identity provider a hub user belongs to, and drop the tables of sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import click

from hub_extensions.tools.cli.terminal import refuse, write


@click.group("sign-on")
def sign_on() -> None:
    """Sign-on sessions (c.SignOn), which are kept in the hub's own database."""


_hub_database = click.option(
    "--database-url",
    default="sqlite:///jupyterhub.sqlite",
    show_default=True,
    help="The hub's database, as c.JupyterHub.db_url has it.",
)


@sign_on.command("list")
@_hub_database
def sign_on_list(database_url: str) -> None:
    """List each user with the account of the provider that is pinned to it (c.SingleSignOnOIDCAuthenticator)."""
    for user, identity in _pin_table(database_url, lambda pins: pins.all()):
        click.echo(f"{user}\t{identity.sub}\t{identity.iss}")


@sign_on.command("pin")
@click.argument("user")
@click.argument("sub")
@click.option("--issuer", required=True, help="The provider, as c.SingleSignOnOIDCAuthenticator.issuer has it.")
@_hub_database
def sign_on_pin(user: str, sub: str, issuer: str, database_url: str) -> None:
    """Pin a user to an account of the provider, by its sub. The account that was pinned before loses the user."""
    from hub_extensions.core.sign_on.identity import Identity

    now = datetime.now(timezone.utc)
    _pin_table(database_url, lambda pins: pins.pin(user, Identity(issuer, sub), now))
    write(f"{user} is the account {sub} now. Open sessions stay: end them on the page sso/admin.")


@sign_on.command("unpin")
@click.argument("user")
@_hub_database
def sign_on_unpin(user: str, database_url: str) -> None:
    """Remove the pin of a user. The next person who signs in with this name may get the user."""
    there = _pin_table(database_url, lambda pins: pins.unpin(user))
    write(f"{user} is nobody's now." if there else f"{user} was nobody's.")


def _pin_table(database_url: str, work: Callable[[Any], Any]) -> Any:
    from hub_extensions.adapters.store.sign_on_provider import PinTable  # the database's library takes its time to load

    try:
        return work(PinTable(database_url))
    except ValueError as problem:
        refuse(f"Nothing was done: {problem}.", code=1)


@sign_on.command("drop-tables")
@_hub_database
def sign_on_drop_tables(database_url: str) -> None:
    """Drop the tables of sessions and their audit log, while the hub is stopped.

    Everybody signs in once afterwards: a session that was ended would go on otherwise, by the hub's own cookie.
    """
    from hub_extensions.adapters.store.sign_on import forget  # the database's library takes its time to load

    try:
        gone = forget(database_url)
    except ValueError as problem:
        refuse(f"Nothing was dropped: {problem}.", code=1)
    write(f"Dropped: {', '.join(gone)}." if gone else "There are no tables of sign-on sessions in it.")
