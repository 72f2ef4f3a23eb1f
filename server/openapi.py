"""Describe the API from the declared calls, at /openapi.json, and show it at /docs.

The page loads nothing from other hosts, and the policy sent with it lets no script run but its own. Here are also the
headers by which browsers keep every response to this server.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from reverie import __version__
from reverie.calls import Call, is_repeatable, response_type, route_of, scope_of
from reverie.errors import CONTENT_TYPE, Problem
from reverie.pipeline.calls import IngestMessages
from reverie.pipeline.submission import MessageInput
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
_TITLE: Final = "Reverie"
_REFERENCE: Final = "#/components/schemas/{name}"
_ABOUT: Final = (
    "A memory pipeline for AI agents. Header values and ids in paths are percent-encoded UTF-8. Every call needs a"
    " token with the scope in `x-reverie-scope`; headers may be left out if the token names the value. A workspace is"
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

# The content of a message as OpenAI's messages may have it.
_PARTS: Final[Mapping[str, Any]] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["type", "text"],
        "properties": {"type": {"type": "string"}, "text": {"type": "string"}},
    },
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
        "responses": {
            status: {"description": text, "content": content} for status, text in endpoint.statuses.meanings.items()
        }
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


def description(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the description of the API, with the schemas of these calls and their responses."""
    calls = [endpoint.kind for endpoint in endpoints]
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        route = route_of(endpoint.kind)
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(endpoint)
    schemas = _schemas([*(response_type(kind) for kind in calls), *calls, Problem])
    for kind in calls:
        _remove_path_fields(schemas, kind)
    if IngestMessages in calls:  # which takes whatever is sent, to tell for each message what is wrong with it
        schemas |= _schemas([MessageInput])
        schemas[MessageInput.__name__]["properties"]["content"]["anyOf"].append(_PARTS)
        schemas[IngestMessages.__name__]["properties"]["messages"]["items"] = _reference(MessageInput)
    return {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "description": _ABOUT, "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": _TOKEN}},
    }


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


_DESCRIPTION_PATH: Final = "/openapi.json"
_ASSETS: Final = "/docs/assets"
# Its package would have FastAPI imported. ReDoc, also in it, would load something from elsewhere.
_SWAGGER_PACKAGE: Final = "fastapi_offline"
# Without `validatorUrl: null` in it, the page would ask swagger.io whether the description is valid.
_PAGE: Final = Path(__file__).parent / "page" / "templates" / "docs.html"
# For every response that sets none of these itself: a browser may not run, frame or keep anything in it.
HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_INLINE_SCRIPT: Final = re.compile(rb"<script>([^<]*(?:<(?!/?script>)[^<]*)*)</script>")


def docs_routes(endpoints: Sequence[Endpoint]) -> Iterator[BaseRoute]:
    """Yield the routes of the description of these calls, and of the page that shows it."""
    page = _PAGE.read_bytes()
    # The inline script is allowed by its hash. Swagger UI sets styles by itself.
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _INLINE_SCRIPT.findall(page)]
    scripts = " ".join(f"'sha256-{digest}'" for digest in hashes)
    policy = (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

    @functools.cache
    def encoded() -> bytes:
        return msgspec.json.encode(description(endpoints))

    async def get_description(_: Request) -> Response:
        return Response(encoded(), media_type="application/json")

    async def get_docs(_: Request) -> Response:
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})

    package = importlib.util.find_spec(_SWAGGER_PACKAGE)
    assert package is not None, "a requirement of this distribution"
    assert package.origin is not None, "a package with code"
    yield NamedRoute(_DESCRIPTION_PATH, get_description, "GET", "HEAD")
    yield NamedRoute("/docs", get_docs, "GET")
    yield Mount(_ASSETS, StaticFiles(directory=Path(package.origin).with_name("static")))
