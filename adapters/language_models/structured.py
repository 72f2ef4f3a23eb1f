"""Answers as typed structs: the JSON schema that is sent, and the reading of what comes back.

Nothing but JSON that fits the struct passes; a fence round it is the one liberty that is taken with it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import msgspec

from adapters.language_models.base import Completion, Form, LanguageModelRefused, Structured

# Enough to say what was wrong where; an answer's own words, which are in some of the errors, are not for the logs.
_LONGEST_REASON_CHARACTERS: Final = 200
# Keywords that OpenAI's strict schemas do not take; msgspec checks the limits when the answer is read.
_NOT_STRICT: Final = frozenset({"default", "title", "minLength", "maxLength"})
_TYPES: Final[dict[type, str]] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL | re.IGNORECASE)


@cache
def schema_of(form: type[Form]) -> dict[str, Any]:
    """The JSON schema of a struct as OpenAI's strict mode wants it.

    That is: nothing by reference, each property required (one that may be left out may be null, or empty) and no
    other allowed. Raises TypeError for a struct that holds itself.
    """
    schema = msgspec.json.schema(form)
    found: dict[str, Any] = _strict(schema, schema.get("$defs", {}), ())
    if found.get("type") != "object":
        raise TypeError(f"{form.__name__} is no struct of named fields: a model answers with a JSON object")
    return found


def instructions_for(form: type[Form]) -> str:
    """What a model is told of the form. It is told also where the endpoint takes the schema: some ignore that."""
    schema = msgspec.json.encode(schema_of(form)).decode()
    return f"Answer with one JSON object and nothing else. It must fit this JSON schema: {schema}"


def decoded(completion: Completion, form: type[Form], *, source: str) -> Structured[Form]:
    """The struct that an answer holds, in a ```json fence or bare. Raises LanguageModelRefused for anything else."""
    fenced = _FENCE.match(completion.text)
    text = fenced.group(1) if fenced else completion.text
    try:
        return Structured(msgspec.json.decode(text, type=form), completion)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        why = " ".join(str(error).split())[:_LONGEST_REASON_CHARACTERS]
        raise LanguageModelRefused(
            f"{source} did not answer with a {form.__name__}: {why}", completion=completion
        ) from error


def _strict(schema: Any, definitions: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """A schema with its references put in, its objects closed, and without what the strict mode refuses."""
    if isinstance(schema, list):
        return [_strict(one, definitions, inside) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name in inside:
            raise TypeError(f"{name} holds itself: such a form cannot be asked for")
        return _strict(definitions[name], definitions, (*inside, name))
    kept = {key: value for key, value in schema.items() if key not in _NOT_STRICT and key != "$defs"}
    if "enum" in kept:
        kept["type"] = _types(kept["enum"])
        return kept
    if "properties" not in kept:
        return {key: _strict(value, definitions, inside) for key, value in kept.items()}
    properties = {key: _strict(value, definitions, inside) for key, value in kept["properties"].items()}
    return {**kept, "properties": properties, "required": list(properties), "additionalProperties": False}


def _types(values: list[Any]) -> str | list[str]:
    """The JSON types of an enumeration's values: the strict mode wants them said."""
    types = sorted({_TYPES[type(value)] for value in values})
    return types[0] if len(types) == 1 else types
