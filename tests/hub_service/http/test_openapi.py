"""The OpenAPI document is what the code is, and the answers are what the document says."""

from __future__ import annotations

from typing import Any

import pytest

from hub_extensions.hub_service.http.api.routes import ROUTES
from hub_extensions.hub_service.http.openapi import document, document_text
from tests.hub_service.conftest import SECRET, Running, said

pytestmark = pytest.mark.slow

DOCUMENT = document()


def test_every_route_and_method_is_described_and_nothing_else() -> None:
    described = {(path[1:], method) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert described == {(address.path, method) for address in ROUTES for method in address.methods}


def test_every_described_method_is_one_the_handler_has_and_the_other_way_round() -> None:
    for address in ROUTES:
        own = {name for name in ("get", "post", "put", "patch", "delete") if name in vars(address.handler)}
        assert own == set(address.methods), address.path


def test_every_reference_leads_somewhere() -> None:
    known = set(DOCUMENT["components"]["schemas"])
    found: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                found.add(node["$ref"].removeprefix("#/components/schemas/"))
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(DOCUMENT)
    assert found and found <= known


def check(path: str, method: str, status: int, value: object) -> None:
    schema = DOCUMENT["paths"][path][method]["responses"][str(status)]["content"]["application/json"]["schema"]
    from jsonschema import Draft202012Validator  # takes seconds to load: here only one worker waits for it

    Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(value)


@pytest.mark.parametrize(
    ("path", "token"),
    [
        ("health", None),
        ("health", SECRET),
        ("api/offers", "ada-token"),
        ("api/tickets", "admin-token"),
        ("api/leases", "admin-token"),
        ("api/server", "ada-thesis"),
        ("hub/form?user=ada", SECRET),
        ("api/leases", "ada-token"),
        ("api/leases?x=1", "admin-token"),
    ],
)
async def test_answers_are_as_described(service: Running, path: str, token: str | None) -> None:
    service.engine.run_server("ada", "thesis")
    await service.ask("POST", "hub/tickets", SECRET, {"user": "ben", "server": "", "offers": ["cpu"]})
    answer = await service.ask("GET", path, token)
    check("/" + path.partition("?")[0], "get", answer.code, said(answer))


async def test_the_document_is_served_to_who_is_logged_in(service: Running) -> None:
    answer = await service.ask("GET", "api/openapi.json", "ada-token")
    assert answer.body.decode() == document_text()
