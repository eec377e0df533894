#!/usr/bin/env python3
"""Write ``docs/reference/`` from the code: settings from the traits, routes from the OpenAPI file, commands from click.

With ``--check`` it only says which page is not current (exit status 1). Needs the extras ``[hub]`` and ``[server]``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import click  # noqa: E402
from traitlets import HasTraits  # noqa: E402

from hub_extensions.authenticator.openid.authenticator import SingleSignOnOIDCAuthenticator  # noqa: E402
from hub_extensions.authenticator.openid.backchannel import BackchannelLogout  # noqa: E402
from hub_extensions.authenticator.pages import PAGES  # noqa: E402
from hub_extensions.authenticator.rest import REST  # noqa: E402
from hub_extensions.hub_service.http.openapi import document_text  # noqa: E402
from hub_extensions.server_extension.extension import GpuExtension  # noqa: E402
from hub_extensions.server_extension.routes import ROUTES  # noqa: E402
from hub_extensions.spawner.base import GpuSpawnerMixin  # noqa: E402
from hub_extensions.spawner.config.loader import wanted  # noqa: E402
from hub_extensions.spawner.config.traits import SECTIONS  # noqa: E402
from hub_extensions.spawner.kube import GpuKubeSpawner  # noqa: E402
from hub_extensions.tools.cli import main as commands  # noqa: E402

OPENID = ((r"/sso/backchannel-logout", BackchannelLogout),)
FOLDER = ROOT / "docs" / "reference"
MADE = "<!-- Made by scripts/generate-reference.py. Change the code, not this page. -->\n"
WHO = {
    "hubSignature": "the hub, by its signature",
    "serverToken": "a user's server, by its own token",
    "hubToken": "a token of JupyterHub",
    "login": "a browser that is logged in",
    "metricsToken": "the metrics token",
}


def main() -> int:
    """Write the pages, or check them."""
    pages = {"configuration.md": configuration(), "routes.md": routes(), "command-line.md": command_line()}
    stale = [name for name, text in pages.items() if not _is_current(FOLDER / name, text)]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"docs/reference/{name} is not current: run scripts/generate-reference.py")
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (FOLDER / name).write_text(pages[name], encoding="utf-8")
        print(f"docs/reference/{name}")
    return 0


def configuration() -> str:
    """One table a section; a setting is a row."""
    lines = [
        "# Settings",
        "",
        MADE,
        "These go into `jupyterhub_config.py`, all of them optional, above the line `configure(c)`. An unknown name, a",
        "wrong type or a number out of range stops the hub's start with a sentence that names the setting.",
    ]
    for section in SECTIONS:
        lines += ["", f"## c.{section.__name__}", "", _first_sentence(section), "", *_settings(section)]
    lines += [
        "",
        "## c.SingleSignOnOIDCAuthenticator",
        "",
        "Of the authenticator `single-sign-on`, beside all of oauthenticator's `GenericOAuthenticator`.",
        "",
        *(row.replace("an offer's id", "a text") for row in _settings(SingleSignOnOIDCAuthenticator)),
        "",
        "## c.GpuSpawnerMixin",
        "",
        "How all our spawners (and one of yours that inherits from `GpuSpawnerMixin`) behave.",
        "",
        *_settings(GpuSpawnerMixin),
        "",
        "## c.GpuKubeSpawner",
        "",
        "Of the spawner `gpu`, beside all of KubeSpawner's own settings, which stand under `c.KubeSpawner` or here.",
        "",
        *_settings(GpuKubeSpawner),
        "",
        "## c.GpuExtension",
        "",
        "Of the users' servers: this goes into their `jupyter_server_config.py` (e.g. `/etc/jupyter`).",
        "",
        *_settings(GpuExtension),
    ]
    return "\n".join(lines) + "\n"


def _settings(section: type[HasTraits]) -> Iterator[str]:
    yield "| setting | default | may be | what it does |"
    yield "| --- | --- | --- | --- |"
    traits = section.class_traits(config=True)
    for name in vars(section):  # as written, and without what the class inherits
        if name not in traits:
            continue
        default = "generated" if name == "gpu_hub_secret" else f"`{traits[name].default()!r}`"
        yield f"| `{name}` | {default} | {wanted(traits[name])} | {_cell(str(traits[name].help))} |"


def routes() -> str:
    """One table, a row a route and method."""
    document = json.loads(document_text())
    lines = [
        "# Routes of the GPU service",
        "",
        MADE,
        "All below the hub's address and `/services/gpu`; for programs: `GET /services/gpu/api/openapi.json`.",
        'A refusal is `{"message": …, "field": …, "reason": …, "params": …}`: what is wrong and what would',
        "be right, in which field, a stable code for programs, and what the message was made with.",
        "",
        "| route | what it does | for whom | takes | gives |",
        "| --- | --- | --- | --- | --- |",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines.append(_route(path, method, operation))
    lines += [
        "",
        "Pages for people: `GET /services/gpu/` (one's own servers and places in line; admins see everybody's).",
        "",
        "# Routes of sign-on sessions",
        "",
        "Of the hub itself, below `/hub`, where `c.SignOn.enabled` is True. A person's own need no scope in a browser;",
        "a token needs the right over the person's tokens. Everybody's: `custom:sign-on:list`, `custom:sign-on:end`.",
        "",
        "| route | what it does |",
        "| --- | --- |",
        *(f"| `{_readable(path)}` | {_cell(handler.__doc__ or '')} |" for path, handler in (*REST, *PAGES, *OPENID)),
        "",
        "# Routes of a user's server",
        "",
        "All below the server's own address (`$JUPYTERHUB_SERVICE_PREFIX`), for its owner, with the server's token or",
        "a login; none counts as use of the server. How to ask them from a script: [scripts](../howto/scripts.md).",
        "",
        "| route | what it does | gives |",
        "| --- | --- | --- |",
        *(f"| `{method} {path}` | {_cell(does)} | {gives} |" for method, path, does, gives in _server_routes()),
    ]
    lines += [
        "",
        "`POST gpu/sign-on/recheck` is the hub's alone, by its signature: the server asks it again who is signed in.",
    ]
    return "\n".join(lines) + "\n"


def _readable(path: str) -> str:
    """A pattern as people write it."""
    return path.replace("([^/]+)", "NAME", 1).replace("([^/]+)", "ID")


def _server_routes() -> Iterator[tuple[str, str, str, str]]:
    """Of each handler: method, path, what it does as its docstring says, what it gives."""
    for route in ROUTES:
        method = "POST" if "post" in vars(route.handler) else "GET"
        does = (route.handler.__doc__ or "").split(":", 1)[1].strip()
        yield (
            method,
            _readable(route.path.lstrip("/")),
            does[0].upper() + does[1:],
            f"`{route.gives}`" if route.gives else "",
        )


def _route(path: str, method: str, operation: Mapping[str, Any]) -> str:
    callers = [name for choice in operation.get("security", [{}]) for name in choice]
    who = ", ".join(dict.fromkeys(WHO[name] for name in callers)) or "anybody"
    if scopes := operation.get("x-token-scopes"):
        named = " or ".join(f"`{scope}`" for scope in scopes)
        who = who.replace(WHO["hubToken"], f"{WHO['hubToken']} with {named}")
    takes = _schema(operation.get("requestBody", {}))
    gives = next((_schema(answer) for code, answer in operation["responses"].items() if code.startswith("2")), "")
    does = operation.get("summary") or operation.get("description", "")
    return f"| `{method.upper()} {path}` | {_cell(does)} | {who} | {takes} | {gives} |"


def _schema(body: Mapping[str, Any]) -> str:
    for media, content in body.get("content", {}).items():
        schema = content.get("schema", {})
        reference = schema.get("$ref") or schema.get("items", {}).get("$ref", "")
        name = reference.rsplit("/", 1)[-1]
        if not name:
            return f"`{media}`"
        return f"list of `{name}`" if "items" in schema else f"`{name}`"
    return ""


def command_line() -> str:
    """What `--help` says, for every command."""
    lines = ["# The command line", "", MADE]
    root = click.Context(commands, info_name="jupyterhub-gpu", max_content_width=100, terminal_width=100)
    lines += ["```text", commands.get_help(root), "```"]
    lines += _helps(commands, root)
    lines += ["", "Exit codes: 0 all is well, 1 something is wrong, 2 the command cannot run as it was typed."]
    return "\n".join(lines) + "\n"


def _helps(group: click.Group, above: click.Context) -> Iterator[str]:
    """A chapter for each command; of a group, one for each of its own."""
    for name, command in sorted(group.commands.items()):
        context = click.Context(command, info_name=name, parent=above, max_content_width=100, terminal_width=100)
        if isinstance(command, click.Group):
            yield from _helps(command, context)
        else:
            yield from ("", f"## {context.command_path}", "", "```text", command.get_help(context), "```")


def _first_sentence(section: type[HasTraits]) -> str:
    return (section.__doc__ or "").strip().splitlines()[0]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    raise SystemExit(main())
