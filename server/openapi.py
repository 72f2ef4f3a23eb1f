"""Describe the API at /openapi.json from the declared calls: arguments, limits, documentation and responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from reverie.calls import Call, is_repeatable, response_type, route_of, scope_of
from reverie.problems import CONTENT_TYPE, Problem
from server.caller import (
    AGENT_HEADER,
    IDEMPOTENCY_HEADER,
    TRACE_HEADER,
    USER_HEADER,
    WORKSPACE_HEADER,
    Subject,
    required_header,
)

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


def operation(kind: type[Call[Any]], *, subject: Subject, statuses: Mapping[str, str]) -> dict[str, Any]:
    """Return the OpenAPI operation of a call: its parameters, its body, and its responses by HTTP status."""
    route, schemas = route_of(kind), _schemas([kind])
    arguments = schemas[kind.__name__]
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
        "responses": {status: {"description": text, "content": content} for status, text in statuses.items()}
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
    return {"parameters": parameters, "security": [{"token": []}], "x-reverie-scope": scope_of(kind), **described}


def describe(app: FastAPI, kinds: Iterable[type[Call[Any]]]) -> None:
    """Make the application serve /openapi.json with the schemas of these calls and their responses."""
    calls = list(kinds)

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=app.routes)
            schemas = _schemas([*(response_type(kind) for kind in calls), *calls, Problem])
            for kind in calls:
                _remove_path_fields(schemas, kind)
            schema["components"] = {"schemas": schemas, "securitySchemes": {"token": _TOKEN}}
            for path in schema["paths"].values():
                for described in path.values():
                    # Added by the framework for bodies that it decodes itself.
                    described["responses"].pop("422", None)
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
    schema = dict(arguments["properties"][name])
    described = {"name": name, "in": location, "required": location == "path" or name in arguments.get("required", ())}
    text = schema.pop("description", None)
    return {**described, **({"description": text} if text else {}), "schema": schema}


def _reference(kind: type) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}
