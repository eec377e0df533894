"""``jupyterhub-gpu gate audit``: sends requests without a valid sign-in to each app, and reports apps that answer."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from hub_extensions.tools.cli.terminal import console, refuse

CASES = tuple(f"A{number}" for number in range(1, 15))


@click.command("audit")
@click.option(
    "--config", "settings", type=click.Path(path_type=Path), required=True, help="The gate's settings, gate.json."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="A file with a hub token that may make and remove users, put them into the apps' groups and read services. "
    "Without it the gate's own token is used: what that may not do is not tried.",
)
@click.option(
    "--cookie-file", type=click.Path(path_type=Path), help="The Cookie header of a browser that is signed in."
)
@click.option(
    "--connect-to",
    "connect",
    multiple=True,
    metavar="ADDRESS:PORT",
    help="A listener of the proxy; repeated. Else by name.",
)
@click.option(
    "--case", "cases", multiple=True, type=click.Choice(CASES), metavar="A1", help="Only this case; repeated. Else all."
)
@click.option("--json", "as_json", is_flag=True, help="The results as JSON.")
def audit(
    settings: Path,
    token_file: Path | None,
    cookie_file: Path | None,
    connect: tuple[str, ...],
    cases: tuple[str, ...],
    as_json: bool,
) -> None:
    """Try whether an app behind the gate is open; exit code 1 where one is. Nothing is changed but two accounts,
    which are made at the hub and removed. What could not be tried is listed as not tried."""
    from hub_extensions.adapters.apps.audit_run import AuditRun  # its libraries take their time to load

    config = replace(_config(settings, token_file, cookie_file, connect), cases=frozenset(cases))
    results = asyncio.run(AuditRun(config).results())
    if as_json:
        click.echo(json.dumps([asdict(result) for result in results], indent=1))
    else:
        table = Table("", "app", "tried", "came back", "", "what to do", box=None)
        for result in results:
            table.add_row(result.case, result.app, result.tried, result.came_back, result.outcome.value, result.advice)
        console().print(table)
        count = Counter(result.outcome.value for result in results)
        click.echo(", ".join(f"{count[each]} {each}" for each in ("open", "safe", "not tried")))
    if any(result.outcome.value == "open" for result in results):
        raise SystemExit(1)


def _config(settings: Path, token_file: Path | None, cookie_file: Path | None, connect: tuple[str, ...]) -> Any:
    from pydantic import TypeAdapter, ValidationError

    from hub_extensions.adapters.apps.audit_accounts import AuditGate, AuditHub
    from hub_extensions.adapters.apps.audit_run import AuditConfig
    from hub_extensions.adapters.provider.assertions import KeyFolder, signing_key
    from hub_extensions.core.sign_on.apps import AppCatalogue

    try:
        read = json.loads(settings.read_text())
        apps = TypeAdapter(AppCatalogue).validate_python(read["catalogue"])
        token = token_file.read_text().strip() if token_file else read["client_secret"]
        cookie = cookie_file.read_text().strip() if cookie_file else ""
        reached = str(read.get("connect_url") or "")
        secure = str(read["url"]).startswith("https://")
        return AuditConfig(
            apps,
            read["url"],
            read["hub_url"],
            AuditHub(read["hub_api_url"], token),
            listeners=connect,
            cookie=cookie,
            cookie_name="__Host-gate" if secure else "gate-without-https",
            session_for=AuditGate(reached, read["client_secret"]).session_for if reached else None,
            key=signing_key(KeyFolder(Path(str(read.get("state_dir") or ".")))),
        )
    except OSError as problem:
        refuse(f"{problem.filename}: {problem.strerror}")
    except (ValueError, KeyError, TypeError, ValidationError) as problem:
        refuse(f"{settings}: these are no settings of the gate ({type(problem).__name__}: {problem})")
