"""What mem0's calls and its configuration take that Reverie takes in another way, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reverie.frameworks.mem0_records import InvalidCall

# What mem0's configuration sets up and Reverie's server has of its own.
_SERVERS_OWN: Final = {
    "vector_store": "Reverie's server stores the memories",
    "graph_store": "Reverie's server stores the memories",
    "history_db_path": "Reverie's server stores the memories",
    "llm": "set extraction_model in the server's configuration",
    "embedder": "set embedding_provider in the server's configuration",
    "reranker": "set reranker_base_url in the server's configuration",
    "custom_instructions": "extraction has instructions of its own",
    "custom_fact_extraction_prompt": "extraction has instructions of its own",
    "custom_update_memory_prompt": "extraction has instructions of its own",
}
_REASONS: Final = {
    "timestamp": "the server notes when a message arrives; ingest messages with created_at by a reverie.Reverie",
    "memory_type": "the server decides on the kinds of memories that it extracts",
    "llm": "set extraction_model in the server's configuration",
    "prompt": "extraction has instructions of its own",
    "reference_date": "search at an earlier time by search_memories(as_of=...) of a reverie.Reverie",
    "show_expired": "what has expired is removed",
    "explain": "recall(explain=True) of a reverie.Reverie explains its ranking",
}


def connection_of(config: object) -> dict[str, Any]:
    """Return the arguments of `Reverie` in a configuration. Raises `InvalidCall` for what it cannot have."""
    if not isinstance(config, Mapping):
        raise InvalidCall(f"a configuration must be an object, not {type(config).__name__}", field="config_dict")
    for name, value in config.items():
        if value is None or name in ("reverie", "version"):
            continue
        reason = _SERVERS_OWN.get(name, 'there are "reverie" and "version"')
        raise InvalidCall(f"{name!r} cannot be configured here: {reason}", field=str(name))
    if config.get("version") not in (None, "v1.1"):
        raise InvalidCall(f"version is {config['version']!r}; results have the shape of v1.1", field="version")
    connection = config.get("reverie") or {}
    if not isinstance(connection, Mapping):
        raise InvalidCall('"reverie" must be an object with arguments of reverie.Reverie', field="reverie")
    return dict(connection)


def count_of(top_k: object, most: int | None = None) -> int:
    """Return how many results a call wants. Raises `InvalidCall`."""
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 0 or (most is not None and top_k > most):
        bounds = "0 or more" if most is None else f"from 0 to {most}"
        raise InvalidCall(f"top_k is {top_k!r}; it must be a whole number, {bounds}", field="top_k")
    return top_k


def refuse(**arguments: object) -> None:
    """Raise `InvalidCall` for the first of these arguments that is given, and say what to do instead."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise InvalidCall(f"{name} is not supported: {_REASONS[name]}", field=name)


def refuse_unknown(call: str, arguments: Mapping[str, Any]) -> None:
    """Raise `InvalidCall` for identities that belong into filters, and `TypeError` for other arguments."""
    for name in arguments:
        if name in ("user_id", "agent_id", "run_id"):
            raise InvalidCall(f"{call} takes {name} in filters: filters={{{name!r}: ...}}", field=name)
        raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
