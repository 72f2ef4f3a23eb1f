"""Structured completions: the JSON schema to request, and the decoding of the answer into a struct.

Only JSON that fits the struct is accepted, bare or in a code fence.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from adapters.language_models.base import Completion, Form, LanguageModelRefused, Structured

# Enough to locate the error; the text of the answer, which some errors contain, must not appear in logs.
_MAX_REASON_CHARACTERS: Final = 200
# Keywords that OpenAI's strict schemas do not support; msgspec checks the limits when the answer is decoded.
_NOT_STRICT: Final = frozenset({"default", "title", "minLength", "maxLength"})
_TYPES: Final[dict[type, str]] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@cache
def strict_schema(form: type[Form]) -> dict[str, Any]:
    """Return the JSON schema of a struct for OpenAI's strict mode.

    It has no references, requires every property (optional ones may be null or empty) and allows no others. Raises
    TypeError for a recursive struct.
    """
    schema = msgspec.json.schema(form)
    found: dict[str, Any] = _strict(schema, schema.get("$defs", {}), ())
    if found.get("type") != "object":
        raise TypeError(f"{form.__name__} is not a struct with named fields: a model answers with a JSON object")
    return found


def json_instructions(form: type[Form]) -> str:
    """Return the instructions to answer in this form, used even with a schema, because some endpoints ignore it."""
    schema = msgspec.json.encode(strict_schema(form)).decode()
    return f"Answer with one JSON object and nothing else. It must fit this JSON schema: {schema}"


def unfenced(answer: str) -> str:
    """Return an answer without the Markdown fence around it, if it has one."""
    text = answer.strip()
    first, _, rest = text.partition("\n")
    return rest.removesuffix("```") if first.rstrip().lower() in ("```", "```json") and rest.endswith("```") else text


def decode_struct(completion: Completion, form: type[Form], *, source: str) -> Structured[Form]:
    """Decode the JSON of a completion, bare or in a ```json fence. Raises LanguageModelRefused for anything else."""
    text = unfenced(completion.text)
    try:
        return Structured(msgspec.json.decode(text, type=form), completion)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:_MAX_REASON_CHARACTERS]
        raise LanguageModelRefused(
            f"{source} did not answer with a {form.__name__}: {reason}", completion=completion
        ) from error


def _strict(schema: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """Return a schema with references inlined, objects closed, and unsupported keywords removed."""
    if isinstance(schema, list):
        return [_strict(item, definitions, inside) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name in inside:
            raise TypeError(f"{name} is recursive: a strict schema cannot express it")
        return _strict(definitions[name], definitions, (*inside, name))
    strict = {key: value for key, value in schema.items() if key not in _NOT_STRICT and key != "$defs"}
    if "enum" in strict:
        strict["type"] = _types(strict["enum"])
        return strict
    if "properties" not in strict:
        return {key: _strict(value, definitions, inside) for key, value in strict.items()}
    properties = {key: _strict(value, definitions, inside) for key, value in strict["properties"].items()}
    return {**strict, "properties": properties, "required": list(properties), "additionalProperties": False}


def _types(values: list[Any]) -> str | list[str]:
    """Return the JSON types of an enumeration's values, which the strict mode requires."""
    types = sorted({_TYPES[type(value)] for value in values})
    return types[0] if len(types) == 1 else types
