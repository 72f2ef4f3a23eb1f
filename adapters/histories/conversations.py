"""Make the records of a conversation: the session before its first message, and messages numbered from 1."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, Literal

from adapters.histories.reading import Reading
from reverie.trust.export_types import ExportedFile, ExportedMessage, ExportedRecord, ExportedSession

Role = Literal["user", "assistant", "system", "tool"]

# What a tool returned, or was given, is mostly files and logs: their beginning says what they were about, and each 640
# characters more are one more text to embed.
TOOL_CHARACTERS: Final = 4_000
# The most that fits the limit of a message, at four bytes a character.
_MESSAGE_CHARACTERS: Final = 256_000
_MAX_TOOL_CALLS: Final = 64
_MAX_CALL_CHARACTERS: Final = 200
_RANDOM: Final = re.compile(r"[0-9A-Za-z]{16}|[0-9a-f]{8}-[0-9a-f]{4}-")
_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_REF_CODE_CHARACTERS: Final = 11


class Conversation:
    """One session of a history. `source` is the format's name; it is the tag of every message.

    `own_id` is the id that the other program has for it.
    """

    def __init__(
        self,
        reading: Reading,
        source: str,
        id: str,
        *,
        started_at: datetime,
        updated_at: datetime,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self._reading = reading
        self._source = source
        self.own_id = id
        self.id = f"{source}:{id}"
        self._started_at = started_at
        self._updated_at = updated_at
        kept = {name: value for name, value in (metadata or {}).items() if value not in (None, "", {})}
        self._metadata = {"source": source, **kept}
        self._count = 0
        self.at = started_at
        # The calls of Reverie's own tools: what these return is remembered already.
        self._own_calls: set[str] = set()

    def message(
        self,
        id: str,
        role: Role,
        content: str,
        at: datetime | None,
        *,
        tool_calls: Sequence[Mapping[str, Any]] = (),
        tool: tuple[str | None, str | None] = (None, None),
        attached: Sequence[str] = (),
    ) -> Iterator[ExportedRecord]:
        """Yield a message, after its session if it is the first one. A message without a time has that of the last.

        `tool` is the id of the call that the message answers, and the name of the tool. `attached` are names of files.
        """
        if tool[0] is not None and tool[0] in self._own_calls:
            self._reading.leave("results of Reverie's own tools")
            return
        self._own_calls.update(str(call.get("id")) for call in tool_calls if is_own_tool(call.get("name")))
        content = stored_text(content)
        kept, characters = shortened(content, TOOL_CHARACTERS if role == "tool" else _MESSAGE_CHARACTERS)
        calls = [_shortened_call(call) for call in tool_calls[:_MAX_TOOL_CALLS]]
        if not kept.strip() and not calls:
            self._reading.leave("messages without a text")
            return
        self._reading.cut += characters is not None
        self.at = at or self.at
        if not self._count:
            yield self._session()
        self._count += 1
        metadata: dict[str, Any] = {} if characters is None else {"characters": characters}
        if attached:
            metadata["attachments"] = [label for name in attached[:_MAX_TOOL_CALLS] if (label := label_of(name))]
        yield ExportedMessage(
            workspace=self._reading.workspace,
            agent=self._reading.agent,
            id=f"{self._source}:{id}",
            session=self.id,
            sequence=self._count,
            role=role,
            content=kept,
            created_at=self.at,
            tool_calls=calls,
            tool_call_id=label_of(tool[0]),
            tool_name=label_of(tool[1]),
            tags=[self._source],
            metadata=metadata,
        )

    def document(
        self, message: str, number: int, name: Any, content: Any, at: datetime | None
    ) -> Iterator[ExportedFile]:
        """Yield a text that was attached to a message, or written in one, as a document; nothing if it has none.

        `number` counts the documents of the message from 0; no two of them may have the same name.
        """
        if not isinstance(content, str) or not content.strip():
            return
        label = label_of(name if isinstance(name, str) else None) or f"attachment {number + 1}"
        yield ExportedFile(
            workspace=self._reading.workspace,
            agent=self._reading.agent,
            id=f"{self._source}:{message}:file:{number}",
            source_uri=f"{self.id}/{message}/{label}",
            content=stored_text(content),
            created_at=at or self.at,
            tags=[self._source],
            metadata={"source": self._source, "session": self.id},
        )

    def _session(self) -> ExportedSession:
        return ExportedSession(
            workspace=self._reading.workspace,
            agent=self._reading.agent,
            id=self.id,
            ref_code=_ref_code(self._reading.workspace, self._reading.agent, self.id),
            started_at=self._started_at,
            updated_at=max(self._started_at, self._updated_at),
            metadata=self._metadata,
        )


def is_own_tool(name: Any) -> bool:
    """Return whether a tool is one of Reverie's MCP server, such as `mcp__reverie__recall`."""
    return isinstance(name, str) and name.startswith("mcp") and "reverie" in name


def result_id(session: str, call: str) -> str:
    """Return the id of what a call of a tool returned, the same from a hook and from a transcript.

    Most ids of calls are random, and what a fork of a session repeats has them, too. Some models only count the calls
    of a session, as in `functions.Bash:0`.
    """
    found = call if _RANDOM.search(call) else f"{session}:{call}"
    return f"result:{found if len(found) <= _MAX_CALL_CHARACTERS else stable_id(found)}"


def stored_text(text: str) -> str:
    """Return a text as it can be stored: without NUL characters and lone surrogates."""
    text = text.replace("\x00", "\ufffd")
    return text.encode("utf-8", "replace").decode() if not _is_encodable(text) else text


def shortened(text: str, limit: int) -> tuple[str, int | None]:
    """Return the beginning of a text, and how many characters it had, None if it is whole."""
    if len(text) <= limit:
        return text, None
    return text[: limit - 1] + "…", len(text)


def stable_id(*parts: str) -> str:
    """Return an id made of texts, the same every time, of 32 characters."""
    return blake2b("\x1f".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()


def _shortened_call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: shortened_value(value) for name, value in call.items() if value is not None}


def shortened_value(value: Any, depth: int = 0) -> Any:
    """Return what a tool was given with its texts shortened, and nothing nested deeper than eight levels."""
    if isinstance(value, str):
        return shortened(stored_text(value), TOOL_CHARACTERS)[0]
    if not isinstance(value, (dict, list)):
        return value
    if depth == 8:
        return "…"
    if isinstance(value, dict):
        items = list(value.items())[:_MAX_TOOL_CALLS]
        return {stored_text(str(name)): shortened_value(inner, depth + 1) for name, inner in items}
    return [shortened_value(inner, depth + 1) for inner in value[:_MAX_TOOL_CALLS]]


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def label_of(text: str | None) -> str | None:
    """Return a name as it can be stored, None for a blank one."""
    cleaned = "".join(" " if ord(character) < 32 or character == "\x7f" else character for character in text or "")
    return stored_text(cleaned)[:200].strip() or None


def _ref_code(*parts: str) -> str:
    number = int(stable_id(*parts), 16)
    digits = ""
    for _ in range(_REF_CODE_CHARACTERS):
        number, digit = divmod(number, len(_BASE62))
        digits += _BASE62[digit]
    return digits
