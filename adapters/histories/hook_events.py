"""The events that hooks of coding agents get, as messages of a session.

Results get the same ids as from the import of a transcript, so that no result is stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final

import msgspec

from adapters.histories.conversations import (
    TOOL_CHARACTERS,
    is_own_tool,
    label_of,
    result_id,
    shortened,
    shortened_value,
    stored_text,
    text_of,
    typed_in_codex,
    typed_text,
)
from reverie.errors import Rejected

HOOK: Final = "hook"

_STARTS: Final = frozenset({"SessionStart", "sessionStart"})
_PROMPTS: Final = frozenset({"UserPromptSubmit", "BeforeAgent", "beforeSubmitPrompt"})
# The field with the answer.
_ANSWERS: Final[Mapping[str, str]] = {
    "Stop": "last_assistant_message",
    "AfterAgent": "prompt_response",
    "afterAgentResponse": "text",
}
_RESULTS: Final = frozenset({"PostToolUse", "PostToolUseFailure", "AfterTool", "postToolUse", "postToolUseFailure"})
# The fields in which tools return their results, the most informative first.
_OUTPUTS: Final = ("stdout", "output", "content", "llmContent", "text", "result", "stderr", "error")
_MESSAGE_CHARACTERS: Final = 256_000


@dataclass(frozen=True, slots=True)
class HookEvent:
    """An event: its session, the folder in which the agent works, and the messages in it."""

    session: str
    name: str
    cwd: str = ""
    starts: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def project(self) -> str:
        """The name of the folder in which the agent works."""
        return PurePath(self.cwd).name


def read_event(tool: str, id: str, event: Mapping[str, Any], at: datetime | None) -> HookEvent:
    """Return what an event says. Raises `Rejected` unless it names its session."""
    session = event.get("session_id") or event.get("conversation_id")
    if not isinstance(session, str) or not session.strip():
        raise Rejected("the event names no session_id", field="event")
    name = str(event.get("hook_event_name") or "")
    roots = event.get("workspace_roots")
    cwd = event.get("cwd") or (roots[0] if isinstance(roots, list) and roots else "")
    return HookEvent(
        session=f"{tool}:{session}",
        name=name,
        cwd=cwd if isinstance(cwd, str) else "",
        starts=name in _STARTS,
        messages=[message | {"tags": [tool], "created_at": at} for message in _messages(tool, id, name, event)],
    )


def _messages(tool: str, id: str, name: str, event: Mapping[str, Any]) -> list[dict[str, Any]]:
    if name in _PROMPTS:
        # The same text as a transcript has, so that an import recognises the prompt.
        typed = typed_in_codex if tool == "codex" else typed_text
        text = typed(_text(event.get("prompt")))
        return [{"id": f"{tool}:{HOOK}:{id}", "role": "user", "content": text}] if text else []
    if name in _ANSWERS:
        text = _text(event.get(_ANSWERS[name]))
        return [{"id": f"{tool}:{HOOK}:{id}", "role": "assistant", "content": text}] if text else []
    # Results of Reverie's own tools are memories already: a second copy would be found in place of the memory.
    if name in _RESULTS and not is_own_tool(event.get("tool_name")):
        return _result(tool, id, event)
    return []


def _result(tool: str, id: str, event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the message for a tool's result, with the tool's input in its metadata."""
    call, session = event.get("tool_use_id"), str(event.get("session_id") or event.get("conversation_id"))
    output = next((event[name] for name in ("tool_response", "tool_output", "error") if event.get(name)), "")
    text, characters = shortened(stored_text(_output_text(output)), TOOL_CHARACTERS)
    given = shortened_value(event.get("tool_input"))
    metadata = {} if characters is None else {"characters": characters}
    if given and len(msgspec.json.encode(given)) <= TOOL_CHARACTERS:
        metadata["input"] = given
    if not text.strip():
        return []
    return [
        {
            "id": f"{tool}:{result_id(session, call) if isinstance(call, str) and call else f'{HOOK}:{id}'}",
            "role": "tool",
            "content": text,
            "tool_call_id": label_of(call if isinstance(call, str) else None),
            "tool_name": label_of(str(event.get("tool_name") or "")),
            "metadata": metadata,
        }
    ]


def _output_text(output: Any) -> str:
    """Return the text of what a tool returned: a text, blocks, or an object with one of these, else as JSON."""
    if isinstance(output, str):
        return output
    if isinstance(output, list) and (text := text_of(output)):
        return text
    if isinstance(output, dict):
        inner = output["file"] if isinstance(output.get("file"), dict) else output
        texts = [text_of(inner[name]) for name in _OUTPUTS if inner.get(name)]
        if any(texts):
            return "\n".join(filter(None, texts))
    return msgspec.json.encode(output).decode() if output else ""


def _text(value: Any) -> str:
    return shortened(stored_text(value), _MESSAGE_CHARACTERS)[0].strip() if isinstance(value, str) else ""
