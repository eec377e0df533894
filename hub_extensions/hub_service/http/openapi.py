"""Builds the OpenAPI 3.1 document from the routes and the dataclasses of their messages.

The service builds it at the first request for it. ``python -m hub_extensions.hub_service.http.openapi`` prints it.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from typing import Any

from pydantic import TypeAdapter

from hub_extensions.core.access import NEEDED
from hub_extensions.core.messages import Problem, WebhookNotice
from hub_extensions.core.signing import SCHEME, SIGN_AGAIN
from hub_extensions.hub_service.http.api.codec import OF_ANY_VERSION
from hub_extensions.hub_service.http.api.routes import ID, ROUTES, Address, Method

SECURITY: dict[str, list[dict[str, list[str]]]] = {
    "ANYBODY": [{}],
    "HUB": [{"hubSignature": []}],
    "SERVER": [{"serverToken": []}],
    "READER": [{"hubToken": []}, {"login": []}, {"serverToken": []}],
    "PERSON": [{"hubToken": []}, {"login": []}],
    "ADMIN": [{"hubToken": []}, {"login": []}],
    "METRICS": [{"hubSignature": []}, {"metricsToken": []}, {"hubToken": []}],
}
SCHEMES = {
    "serverToken": ("http", "A server's own token (JUPYTERHUB_API_TOKEN): good for its own server only."),
    "hubToken": (
        "http",
        "A token of JupyterHub: access:services!service=gpu, and the scope that the route names.",
    ),
    "metricsToken": ("http", "The token for metrics, fixed in configuration."),
    "webhookToken": ("http", "c.GpuNotices.webhook_token, which this service sends to the receiver of notices."),
}
ERRORS = {
    401: "The hub has to sign again, with the time and life that the answer's header tells.",
    400: "A field is missing, unknown, or of the wrong kind; the body names it.",
    403: "This caller may not do this.",
    404: "There is no such thing, or it is not the caller's.",
    409: "It cannot be done now; the body says why.",
    413: "The body is too large.",
    429: "The hub starts too many servers at once.",
    500: "A fault of the service; its log has more.",
    502: "The hub failed.",
    503: "Hub or store are not answering, or the service is not ready.",
}


def document() -> dict[str, Any]:
    """Build the OpenAPI document of all routes as a JSON object."""
    schemes: dict[str, Any] = {
        name: {"type": kind, "scheme": "bearer", "description": text} for name, (kind, text) in SCHEMES.items()
    }
    schemes["hubSignature"] = {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": f"The hub's signature ({SCHEME}) by a secret that is never sent. Answers are signed too.",
    }
    schemes["login"] = {
        "type": "apiKey",
        "in": "cookie",
        "name": "service-gpu",
        "description": "The cookie of a login at the hub; what changes something also needs the _xsrf of the page.",
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "JupyterHub GPU service",
            "version": "1",
            "description": "Offers, tickets, leases and servers of one JupyterHub. Errors are a Problem.",
        },
        "servers": [{"url": "/services/gpu", "description": "below the hub's base URL"}],
        "paths": {f"/{address.path}": _path(address) for address in ROUTES},
        "webhooks": {"notice": {"post": _webhook()}},
        "components": {"schemas": _schemas(ROUTES), "securitySchemes": schemes},
    }


def _webhook() -> dict[str, Any]:
    """Describe the request that the service sends to a receiver of notices, if ``c.GpuNotices.webhook_url`` is set."""
    return {
        "operationId": "webhook_notice",
        "summary": "Tell a user that the server is ready.",
        "description": (
            "To c.GpuNotices.webhook_url, at least once: the header Idempotency-Key is the notice's id, and a repeat "
            "has the same. Any 2xx takes it; nothing but the status is read. A redirect is not followed, and what is "
            "not taken within 10 seconds is sent again, with pauses that grow, for 18 minutes."
        ),
        "security": [{}, {"webhookToken": []}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(WebhookNotice)}}},
        "responses": {"2XX": {"description": "Taken."}},
    }


@functools.cache
def document_text() -> str:
    """Return the OpenAPI document as JSON text. Building it takes about 0.2 s, so it is cached."""
    return json.dumps(document(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _path(address: Address) -> dict[str, Any]:
    return {name: _operation(address, name, method) for name, method in address.methods.items()}


def _operation(address: Address, name: str, method: Method) -> dict[str, Any]:
    who = address.handler.who
    operation: dict[str, Any] = {
        "operationId": f"{name}_{address.path.replace('/', '_').replace('{', '').replace('}', '').replace('.', '_')}",
        "summary": method.does,
        "description": f"For {who.value}.",
        "security": SECURITY[who.name],
        "responses": _responses(method, open_to_all=who.name == "ANYBODY", by_hub=who.name == "HUB"),
    }
    if needed := NEEDED[method.action or address.handler.action]:
        operation["x-token-scopes"] = list(needed)
        operation["description"] += f" A token needs the scope {' or '.join(needed)}."
    parameters = _parameters(address, method)
    if parameters:
        operation["parameters"] = parameters
    if method.takes is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(method.takes)}}}
    return operation


def _parameters(address: Address, method: Method) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in re.findall(r"{(\w+)}", address.path):
        found.append({"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": f"^{ID}$"}})
    for name, description in method.query:
        schema: dict[str, Any] = {"type": "string"}
        if "repeated" in description:
            schema = {"type": "array", "items": schema}
        needed = name in method.needed
        found.append({"name": name, "in": "query", "required": needed, "description": description, "schema": schema})
    return found


def _responses(method: Method, *, open_to_all: bool, by_hub: bool) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "Done."}
    if method.gives is not None:
        schema = _ref(method.gives)
        good["content"] = {method.media: {"schema": {"type": "array", "items": schema} if method.many else schema}}
    elif method.status != 204:
        good["content"] = {method.media: {}}
    responses = {str(method.status): good}
    statuses = {*method.errors, 500} if open_to_all else {*method.errors, 403, 500}
    if by_hub:
        statuses |= {SIGN_AGAIN, 503}
    for status in sorted(statuses):
        content = {"application/json": {"schema": _ref(Problem)}}
        responses[str(status)] = {"description": ERRORS[status], "content": content}
    if open_to_all and "503" in responses:
        responses["503"] = {"description": "Not ready.", "content": good["content"]}
    return responses


def _ref(kind: type[Any]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _schemas(routes: tuple[Address, ...]) -> dict[str, Any]:
    methods = [method for address in routes for method in address.methods.values()]
    taken = {method.takes for method in methods if method.takes is not None}
    given = {method.gives for method in methods if method.gives is not None} | {Problem, WebhookNotice}
    kinds = sorted(taken | given, key=lambda kind: kind.__name__)
    _, found = TypeAdapter.json_schemas(
        [(kind.__name__, "validation" if kind in taken else "serialization", TypeAdapter(kind)) for kind in kinds],
        ref_template="#/components/schemas/{model}",
    )
    schemas: dict[str, Any] = found["$defs"]
    for kind in taken - OF_ANY_VERSION:
        schemas[kind.__name__]["additionalProperties"] = False
    return schemas


if __name__ == "__main__":
    sys.stdout.write(document_text())
