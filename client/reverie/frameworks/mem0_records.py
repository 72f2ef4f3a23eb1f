"""How what mem0 keeps is kept in Reverie, and what its calls take.

Scopes, ids, messages and the dictionaries that mem0's calls return; the arguments and the configuration that Reverie
takes in another way, or not at all; and the filters of `search` and `get_all`.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from reverie.contract import MAX_NAME_CHARACTERS, ROLES
from reverie.errors import NotFound, Rejected
from reverie.memories.types import EXTRACTION, MAX_MEMORY_BYTES, Memory

# The source of memories, and of what `reverie import mem0` reads, which has the same metadata.
SOURCE: Final = "mem0"
IDENTITIES: Final = ("user_id", "agent_id", "run_id")
_IDENTITY_KEYS: Final = (*IDENTITIES, "actor_id")
_KEPT: Final = ("agent_id", "run_id", "actor_id", "role")
# The prefix of a fact's id after its text was changed: facts cannot have free text, so it became another memory.
REWRITTEN: Final = "mem0-rewritten-"
# When `update` last changed the text of a memory.
TEXT_CHANGED_AT: Final = "text_changed_at"


class InvalidCall(Rejected, ValueError):
    """An argument is invalid or has no counterpart in Reverie. It is a `ValueError`, as mem0 raises one here."""


class MemoryNotFound(NotFound, ValueError):
    """There is no such memory. Also a `ValueError`, as mem0 raises."""


class Scope(NamedTuple):
    """Whose memories a call is about: an end user of Reverie or nobody, and labels that narrow it."""

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None

    @property
    def session(self) -> str:
        """Return the session that holds messages of this scope. Raises `InvalidCall` if its name is too long."""
        name = ":".join((SOURCE, *(quote(part or "", safe="") for part in self)))
        if len(name) > MAX_NAME_CHARACTERS:
            raise InvalidCall(
                f"user_id, agent_id and run_id have {len(name)} characters together, in percent-encoding; "
                f"the limit is {MAX_NAME_CHARACTERS}",
                field="run_id",
            )
        return name

    @property
    def tags(self) -> list[str]:
        """Return the tags by which the server finds memories of an agent and a run: hashes, as names may be long."""
        labels = (("agent", self.agent_id), ("run", self.run_id))
        return [f"{SOURCE}-{kind}-{_digest(name)}" for kind, name in labels if name is not None]

    def covers(self, other: Scope) -> bool:
        """Return whether another scope has the same user, and each label that this one names."""
        return self.user_id == other.user_id and all(
            own in (None, theirs) for own, theirs in zip(self[1:], other[1:], strict=True)
        )


def scope_of(user_id: object, agent_id: object, run_id: object, *, hint: str = "") -> Scope:
    """Return the scope of a call. Raises `InvalidCall` if no id is given, or one is blank or has whitespace."""
    named = zip(IDENTITIES, (user_id, agent_id, run_id), strict=True)
    scope = Scope(*(_identity(name, value) for name, value in named))
    if not any(scope):
        raise InvalidCall(f"name at least one of user_id, agent_id and run_id{hint}", field="user_id")
    return scope


def scope_of_session(name: str) -> Scope | None:
    """Return the scope of a session by its name, None for a session of something else."""
    parts = name.split(":")
    if len(parts) != 1 + len(IDENTITIES) or parts[0] != SOURCE:
        return None
    return Scope(*(unquote(part) or None for part in parts[1:]))


def _identity(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise InvalidCall(f"{name} must be a text, not {type(value).__name__}", field=name)
    text = str(value).strip()
    if not text or any(character.isspace() for character in text):
        raise InvalidCall(f"{name} is {text!r}; it must not be empty or contain whitespace", field=name)
    return text


def public_id(user: str | None, stored_id: str) -> str:
    """Return the id that callers of mem0 get. It contains the user, because calls such as `get(id)` name none."""
    stored_id = stored_id.removeprefix(REWRITTEN)
    if user is None and ":" not in stored_id:
        return stored_id
    return f"{quote(user or '', safe='')}:{stored_id}"


def user_and_id(memory_id: object) -> tuple[str | None, str]:
    """Return the user and the id in the store of an id from `public_id`. Raises `InvalidCall`."""
    if not isinstance(memory_id, str) or not memory_id.strip():
        raise InvalidCall("memory_id must be an id that add, search or get_all returned", field="memory_id")
    user, colon, stored_id = memory_id.partition(":")
    return (unquote(user) or None, stored_id) if colon and stored_id else (None, memory_id)


def messages_of(messages: object) -> list[dict[str, Any]]:
    """Return messages with role, content and name; those without content are left out. Raises `InvalidCall`."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    elif isinstance(messages, Mapping):
        messages = [messages]
    if not isinstance(messages, (list, tuple)):
        raise InvalidCall("messages must be a text, a message or a list of messages", field="messages")
    checked = [_message(number, message) for number, message in enumerate(messages)]
    return [message for message in checked if message["content"].strip()]


def _message(number: int, message: object) -> dict[str, Any]:
    where = f"messages[{number}]"
    if not isinstance(message, Mapping):
        raise InvalidCall(f"{where} must be an object with role and content", field="messages")
    if message.get("role") not in ROLES:
        raise InvalidCall(f"{where} has the role {message.get('role')!r}; it must be one of {', '.join(ROLES)}")
    content = message.get("content")
    if isinstance(content, Mapping):
        content = [content]
    if isinstance(content, list):
        if not all(isinstance(part, Mapping) and part.get("type") == "text" for part in content):
            raise InvalidCall(f"{where} has content that is no text: describe images in words", field="messages")
        content = "\n".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, (str, type(None))):
        raise InvalidCall(f"{where} has content of type {type(content).__name__}; it must be a text", field="messages")
    checked = {"role": message["role"], "content": content or ""}
    return {**checked, "name": str(message["name"])} if message.get("name") else checked


def check_size(text: str) -> None:
    """Raise `InvalidCall` for a text that no memory can have."""
    if len(text.encode(errors="replace")) > MAX_MEMORY_BYTES:
        raise InvalidCall(f"a memory has at most {MAX_MEMORY_BYTES:,} bytes: shorten the text", field="messages")


def metadata_of(scope: Scope, custom: Mapping[str, Any], message: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the metadata of a memory as it is stored; `message` is the message that its text comes from."""
    message = message or {}
    values = (scope.agent_id, scope.run_id, message.get("name"), message.get("role"))
    kept: dict[str, Any] = {name: value for name, value in zip(_KEPT, values, strict=True) if value is not None}
    return {"source": SOURCE, **kept, **({"metadata": dict(custom)} if custom else {})}


def custom_metadata(metadata: object, current: Mapping[str, Any]) -> dict[str, Any]:
    """Return a caller's metadata without identities; `current` are those of the memory. Raises `InvalidCall`."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidCall(f"metadata must be an object, not {type(metadata).__name__}", field="metadata")
    for name in _IDENTITY_KEYS:
        if name in metadata and metadata[name] != current.get(name):
            raise InvalidCall(
                f"metadata[{name!r}] cannot say whose a memory is: {name} is set when it is added", field="metadata"
            )
    return {name: value for name, value in metadata.items() if name not in _IDENTITY_KEYS}


def changed_metadata(memory: Memory, custom: Mapping[str, Any], *, text_changed: bool) -> dict[str, Any]:
    """Return the metadata of a memory as it is stored after a change: what a caller gives is added to it."""
    if memory.metadata.get("source") != SOURCE:
        return {**memory.metadata, **custom}
    changed = {**memory.metadata, "metadata": {**memory.metadata.get("metadata", {}), **custom}}
    return {**changed, TEXT_CHANGED_AT: datetime.now(UTC).isoformat()} if text_changed else changed


def fields_of(memory: Memory) -> dict[str, Any]:
    """Return what mem0 keeps of a memory beside its text: identities, role, and the caller's metadata apart."""
    own = memory.metadata if memory.metadata.get("source") == SOURCE else None
    fields: dict[str, Any] = {name: own[name] for name in _KEPT if name in own} if own else {}
    if own is None and (scope := scope_of_session(memory.session or "")):  # extracted, but not labelled yet
        fields |= {name: value for name, value in scope._asdict().items() if value is not None}
    if memory.owner_user_id is not None:
        fields["user_id"] = memory.owner_user_id
    if memory.provenance is not None and memory.provenance.made_by == EXTRACTION and memory.provenance.role:
        fields["attributed_to"] = memory.provenance.role
    if memory.expires_at is not None:
        fields["expiration_date"] = _expiration_date(memory.expires_at)
    custom = own.get("metadata", {}) if own is not None else memory.metadata
    return {**fields, "metadata": custom} if custom else fields


def item_of(memory: Memory, **score: float | None) -> dict[str, Any]:
    """Return a memory as mem0 returns it."""
    return {
        "id": public_id(memory.owner_user_id, memory.id),
        "memory": memory.content,
        "hash": _digest_of_text(memory.content),
        "metadata": None,
        **score,
        "created_at": memory.created_at.isoformat(),
        "updated_at": memory.updated_at.isoformat(),
        **fields_of(memory),
    }


def expiry_of(expiration_date: object) -> datetime | None:
    """Return the end of the last day on which a memory is there, in UTC. Raises `InvalidCall`."""
    if expiration_date is None:
        return None
    try:
        day = date.fromisoformat(expiration_date) if isinstance(expiration_date, str) else expiration_date
    except ValueError:
        day = None
    if isinstance(day, datetime):
        day = day.date()
    if not isinstance(day, date):
        raise InvalidCall("expiration_date must be a date, such as 2027-05-01", field="expiration_date")
    if day < datetime.now(UTC).date():
        raise InvalidCall(f"expiration_date is {day}, which is over", field="expiration_date")
    return datetime.combine(day, time(), UTC) + timedelta(days=1)


def _expiration_date(expires_at: datetime) -> str:
    return (expires_at.astimezone(UTC) - timedelta(microseconds=1)).date().isoformat()


def history_of(memory: Memory) -> list[dict[str, Any]]:
    """Return a memory's addition, and the last change of its text if there was one: no earlier text is kept."""
    fields = fields_of(memory)
    changed_at = memory.metadata.get(TEXT_CHANGED_AT) if memory.metadata.get("source") == SOURCE else None
    rows = [("ADD", None if changed_at else memory.content, memory.created_at.isoformat())]
    if changed_at:
        rows.append(("UPDATE", memory.content, changed_at))
    memory_id = public_id(memory.owner_user_id, memory.id)
    return [
        {
            "id": f"{memory_id}#{number}",
            "memory_id": memory_id,
            "old_memory": None,
            "new_memory": text,
            "event": event,
            "created_at": memory.created_at.isoformat(),
            "updated_at": updated_at,
            "is_deleted": False,
            "actor_id": fields.get("actor_id"),
            "role": fields.get("role"),
        }
        for number, (event, text, updated_at) in enumerate(rows)
    ]


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="replace")).hexdigest()[:24]


def _digest_of_text(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


# Parts of mem0's configuration that Reverie's server provides itself.
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
    "reference_date": "search at an earlier time by memories.search(as_of=...) of a reverie.Reverie",
    "show_expired": "what has expired is removed",
    "explain": "recall(explain=True) of a reverie.Reverie explains its ranking",
}


def connection_of(config: object) -> dict[str, Any]:
    """Return the arguments of `Reverie` in a configuration. Raises `InvalidCall` for others."""
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
    """Raise `InvalidCall` for the first of these arguments that is given; the error says what to do instead."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise InvalidCall(f"{name} is not supported: {_REASONS[name]}", field=name)


def refuse_unknown(call: str, arguments: Mapping[str, Any]) -> None:
    """Raise `InvalidCall` for identities that belong into filters, and `TypeError` for other arguments."""
    for name in arguments:
        if name in ("user_id", "agent_id", "run_id"):
            raise InvalidCall(f"{call} takes {name} in filters: filters={{{name!r}: ...}}", field=name)
        raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")


_ANY: Final = "*"
_HINT: Final = " in filters, such as filters={'user_id': 'kate'}"


def _contains(value: Any, part: Any) -> bool:
    return str(part) in value if isinstance(value, str) else part in value


def _contains_ignoring_case(value: Any, part: Any) -> bool:
    return str(part).casefold() in str(value).casefold()


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, options: value in options,
    "nin": lambda value, options: value not in options,
    "contains": _contains,
    "icontains": _contains_ignoring_case,
}
# The operators that also match a memory without the field.
_NEGATIONS: Final = ("ne", "nin")


class Filters:
    """The filters of a call, checked. `scope` names the user, agent or run whose memories are meant."""

    def __init__(self, filters: object) -> None:
        """Raise `InvalidCall` for filters without an identity, and for conditions that cannot be checked."""
        if not isinstance(filters, (Mapping, type(None))):
            raise InvalidCall(f"filters must be an object, not {type(filters).__name__}", field="filters")
        named = dict(filters or {})
        identities = {name: named.pop(name, None) for name in IDENTITIES}
        if identities["user_id"] == _ANY:
            raise InvalidCall("user_id cannot be '*': the memories of each user are kept apart", field="filters")
        scope = scope_of(*identities.values(), hint=_HINT)
        present = {name: _ANY for name in ("agent_id", "run_id") if getattr(scope, name) == _ANY}
        self.scope: Scope = scope._replace(**dict.fromkeys(present))
        self._conditions = {**present, **named}
        _check(self._conditions)

    def match(self, memory: Memory) -> bool:
        """Return whether a memory belongs to the scope and meets the conditions."""
        fields = fields_of(memory)
        if not self.scope.covers(Scope(*(fields.get(name) for name in IDENTITIES))):
            return False
        return _all_match(self._conditions, {**fields.pop("metadata", {}), **fields})


def _check(conditions: Mapping[str, Any]) -> None:
    for name, condition in conditions.items():
        if name in ("AND", "OR", "NOT"):
            if not isinstance(condition, list) or not all(isinstance(part, Mapping) for part in condition):
                raise InvalidCall(f"{name} in filters must be a list of filters", field="filters")
            if not condition and name != "AND":
                raise InvalidCall(f"{name} in filters needs at least one filter", field="filters")
            for part in condition:
                _check(part)
        elif name == "user_id":
            raise InvalidCall("user_id must be named once, outside of AND, OR and NOT", field="filters")
        elif isinstance(condition, Mapping):
            for unknown in condition.keys() - _OPERATORS.keys():
                raise InvalidCall(
                    f"filters[{name!r}] has the operator {unknown!r}; there are {', '.join(_OPERATORS)}",
                    field="filters",
                )


def _all_match(conditions: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    return all(_matches(name, condition, fields) for name, condition in conditions.items())


def _matches(name: str, condition: Any, fields: Mapping[str, Any]) -> bool:
    if name == "AND":
        return all(_all_match(part, fields) for part in condition)
    if name == "OR":
        return any(_all_match(part, fields) for part in condition)
    if name == "NOT":
        return not any(_all_match(part, fields) for part in condition)
    if not isinstance(condition, Mapping):
        return name in fields and (condition == _ANY or bool(fields[name] == condition))
    return all(_compare(key, fields, name, value) for key, value in condition.items())


def _compare(key: str, fields: Mapping[str, Any], name: str, value: Any) -> bool:
    if name not in fields:
        return key in _NEGATIONS
    try:
        return bool(_OPERATORS[key](fields[name], value))
    except TypeError:  # values of different types cannot be compared
        return False
