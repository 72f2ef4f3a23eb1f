"""Describe the API from the declared calls, at /openapi.json, and show it at /docs.

The page loads nothing from other hosts, and the policy sent with it lets no script run but its own. Here are also the
headers by which browsers keep every response to this server.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi

from reverie.calls import Call, is_repeatable, response_type, route_of, scope_of
from reverie.errors import CONTENT_TYPE, Problem
from server.caller import (
    AGENT_HEADER,
    IDEMPOTENCY_HEADER,
    TRACE_HEADER,
    USER_HEADER,
    WORKSPACE_HEADER,
    Subject,
    required_header,
)
from server.endpoints import Endpoint
from server.responses import NamedRoute

# The words of a call's name: AddSchedule is `add_schedule`, "Add schedule".
_WORDS: Final = re.compile("[A-Z][a-z]*")
_REFERENCE: Final = "#/components/schemas/{name}"
_ABOUT: Final = (
    "A memory pipeline for AI agents. Header values and ids in paths are percent-encoded UTF-8. Every call needs a"
    " token with the scope in `x-reverie-scope`; headers may be left out where the token names one. A workspace is"
    " created when something is first stored in it; until then it reads as empty. Errors are problem details (RFC 9457)"
    " with a stable `type`, `urn:reverie:problem:...`. A request that may have been carried out"
    " can be sent again with the same `Idempotency-Key`: within ten minutes it gets the first answer."
)
_TOKEN: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of `reverie tokens create`, or the one that `reverie tokens show-local` prints.",
}
_HEADERS: Final[Mapping[Subject, tuple[str, ...]]] = {
    "agent": (AGENT_HEADER, WORKSPACE_HEADER, USER_HEADER, TRACE_HEADER),
    "workspace": (WORKSPACE_HEADER, TRACE_HEADER),
    "server": (TRACE_HEADER,),
}


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    """Return the OpenAPI operation of a call: its parameters, its body, and its responses by HTTP status."""
    kind, subject = endpoint.kind, endpoint.subject
    route = route_of(kind)
    arguments = _schemas([kind])[kind.__name__]
    parameters = [
        {
            "name": name,
            "in": "header",
            "required": name == required_header(subject, route.method),
            "schema": {"type": "string"},
        }
        for name in (*_HEADERS[subject], *((IDEMPOTENCY_HEADER,) if is_repeatable(kind) else ()))
    ]
    parameters += [_parameter(name, "path", arguments) for name in route.path_fields]
    content = {"application/json": {"schema": _reference(response_type(kind))}}
    described: dict[str, Any] = {
        "responses": {status: {"description": text, "content": content} for status, text in endpoint.statuses.items()}
    }
    described["responses"]["default"] = {
        "description": "An error",
        "content": {CONTENT_TYPE: {"schema": _reference(Problem)}},
    }
    in_query = [name for name in arguments["properties"] if name not in route.path_fields]
    if route.has_body and in_query:
        described["requestBody"] = {
            "required": bool(set(arguments.get("required", ())) & set(in_query)),
            "content": {"application/json": {"schema": _reference(kind)}},
        }
    elif not route.has_body:
        parameters += [_parameter(name, "query", arguments) for name in in_query]
    words = _WORDS.findall(kind.__name__)
    return {
        "tags": [endpoint.tag],
        "summary": " ".join(words).capitalize(),
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "operationId": "_".join(words).lower(),
        "parameters": parameters,
        "security": [{"token": []}],
        "x-reverie-scope": scope_of(kind),
        **described,
    }


def describe(app: FastAPI, endpoints: Iterable[Endpoint]) -> None:
    """Make the application serve /openapi.json with the schemas of these calls and their responses."""
    served = list(endpoints)
    calls = [endpoint.kind for endpoint in served]

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=app.routes)
            for endpoint in served:
                route = route_of(endpoint.kind)
                schema["paths"].setdefault(route.path, {})[route.method.lower()] = _operation(endpoint)
            schemas = _schemas([*(response_type(kind) for kind in calls), *calls, Problem])
            for kind in calls:
                _remove_path_fields(schemas, kind)
            schema["components"] = {"schemas": schemas, "securitySchemes": {"token": _TOKEN}}
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # the way FastAPI documents it


def _schemas(kinds: Iterable[type]) -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components(list(dict.fromkeys(kinds)), ref_template=_REFERENCE)
    return schemas


def _remove_path_fields(schemas: dict[str, Any], kind: type[Call[Any]]) -> None:
    """Remove path fields from the schema of a call's body, and the whole schema if the call has no body."""
    route, schema = route_of(kind), schemas[kind.__name__]
    for name in route.path_fields:
        schema["properties"].pop(name, None)
    schema["required"] = [name for name in schema.get("required", ()) if name not in route.path_fields]
    if not route.has_body or not schema["properties"]:
        del schemas[kind.__name__]


def _parameter(name: str, location: str, arguments: dict[str, Any]) -> dict[str, Any]:
    schema = {key: value for key, value in arguments["properties"][name].items() if value is not None}
    described = {"name": name, "in": location, "required": location == "path" or name in arguments.get("required", ())}
    text = schema.pop("description", None)
    return {**described, **({"description": text} if text else {}), "schema": schema}


def _reference(kind: type) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}


ASSETS: Final = "/docs/assets"
# For every response without a policy of its own: nothing in it is to be run, shown in a frame, or kept.
HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_INLINE_SCRIPT: Final = re.compile(rb"<script>([^<]*(?:<(?!/?script>)[^<]*)*)</script>")


def docs_page(title: str, openapi_url: str) -> NamedRoute:
    """Return the route of /docs."""
    page = bytes(
        get_swagger_ui_html(
            openapi_url=openapi_url,
            title=title,
            swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{ASSETS}/favicon.png",
            # Otherwise the page would ask swagger.io whether the description is valid.
            swagger_ui_parameters={"validatorUrl": None},
        ).body
    )
    policy = _policy(page)

    async def get_docs(_: Request) -> Response:
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})

    return NamedRoute("/docs", get_docs, "GET")


def _policy(page: bytes) -> str:
    """Return the policy of the page: its inline script is allowed by its hash. Swagger UI sets styles by itself."""
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _INLINE_SCRIPT.findall(page)]
    scripts = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
