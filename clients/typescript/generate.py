"""Write src/generated.ts from the OpenAPI of the server and the methods of the Python client, which have its names.

`make docs` runs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from reverie.client import Method, Reverie, Subject

_PRIMITIVES: Final = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_HEAD: Final = "// Written by generate.py from /openapi.json: do not edit.\n"


def generated(document: Mapping[str, Any]) -> str:
    """Return the TypeScript of all schemas, of each call's arguments and result, its route, and the subjects."""
    schemas = document["components"]["schemas"]
    parts = [_HEAD, *(f"export type {name} = {_type(schema)};\n" for name, schema in sorted(schemas.items()))]
    calls, routes = [], []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if not path.startswith("/v1/"):
                continue
            name = operation["operationId"]
            calls.append(f"  {name}: {{ args: {_arguments(operation)}; result: {_result(operation)} }};\n")
            routes.append(f'  {name}: ["{method.upper()}", "{path}"],\n')
    parts += ["export interface Calls {\n", *sorted(calls), "}\n"]
    parts += ["export const routes: Record<keyof Calls, readonly [string, string]> = {\n", *sorted(routes), "};\n"]
    served = {line.strip().partition(":")[0] for line in calls}
    subjects = json.dumps(_subjects(Reverie, served), indent=2)
    parts.append(f"export const subjects = {subjects} as const;\n")
    return "".join(parts)


def _subjects(owner: type, served: set[str]) -> dict[str, Any]:
    """Return the operations of a client's methods, with those of its subjects by their names."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for base in reversed(owner.__mro__) for name in vars(base)):
        # A method is replaced by a function in the class on first use, and stays in the class that declares it.
        declared = [vars(base)[name] for base in owner.__mro__ if name in vars(base)]
        sends = next((one.sends for one in declared if isinstance(one, Method)), None)
        if sends is not None:
            operation = "_".join(re.findall("[A-Z][a-z]*", sends.__name__)).lower()
            if operation in served:
                found[_camel(name)] = operation
        elif isinstance(kind := getattr(owner, name, None), type) and issubclass(kind, Subject):
            found[_camel(name)] = _subjects(kind, served)
    return found


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _arguments(operation: Mapping[str, Any]) -> str:
    parts = [
        f"{json.dumps(one['name'])}{'' if one.get('required') else '?'}: {_type(one['schema'])}"
        for one in operation["parameters"]
        if one["in"] != "header"
    ]
    own = f"{{ {'; '.join(parts)} }}" if parts else ""
    body = operation.get("requestBody")
    taken = _type(body["content"]["application/json"]["schema"]) if body else ""
    return " & ".join(filter(None, (own, taken))) or "{}"


def _result(operation: Mapping[str, Any]) -> str:
    found = (response for status, response in operation["responses"].items() if status.startswith("2"))
    return _type(next(found)["content"]["application/json"]["schema"])


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "anyOf" in schema or "oneOf" in schema:
        return "(" + " | ".join(dict.fromkeys(map(_type, schema.get("anyOf") or schema["oneOf"]))) + ")"
    kind = schema.get("type")
    if isinstance(kind, list):
        return "(" + " | ".join(_PRIMITIVES[one] for one in kind) + ")"
    if kind == "array":
        return f"Array<{_type(schema.get('items') or {})}>"
    if kind == "object" or "properties" in schema:
        return _object(schema)
    return _PRIMITIVES.get(str(kind), "unknown")


def _object(schema: Mapping[str, Any]) -> str:
    if not schema.get("properties"):
        more = schema.get("additionalProperties")
        return f"Record<string, {_type(more) if isinstance(more, dict) else 'unknown'}>"
    return "{ " + " ".join(_fields(schema)) + " }"


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        text = field.get("description", "")
        comment = f"/** {text.replace('*/', '')} */ " if text else ""
        yield f"{comment}{json.dumps(name)}{'' if name in required else '?'}: {_type(field)};"


def _main() -> None:
    from server.app import endpoints
    from server.openapi import description

    document = description(list(endpoints()))
    Path(__file__).with_name("src").joinpath("generated.ts").write_text(generated(document), encoding="utf-8")


if __name__ == "__main__":
    _main()
