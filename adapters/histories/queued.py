"""Prompts that a user of Claude Code typed while the model was at work.

Such a prompt waits in a queue. It is in no message of the user: the transcript has it as an attachment of the type
`queued_command`, and before it, or in older versions instead of it, as the operation that took it from the queue.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from adapters.histories.blocks import text_of
from adapters.histories.conversations import stable_id

_T = TypeVar("_T")

_TYPED_IN: Final = (None, "prompt")
_TYPED_BY: Final = (None, "human")


def queued_prompt(attachment: Any) -> Any:
    """Return the content of the prompt in an attachment, None if it has none that a person typed."""
    if not isinstance(attachment, dict) or attachment.get("type") != "queued_command" or attachment.get("isMeta"):
        return None
    origin = attachment.get("origin")
    kind = origin.get("kind") if isinstance(origin, dict) else None
    if attachment.get("commandMode") not in _TYPED_IN or kind not in _TYPED_BY:
        return None
    return attachment.get("prompt") or None


@dataclass(slots=True)
class Queue(Generic[_T]):
    """The prompts taken from the queues of a transcript's sessions: each of them is given out once.

    An id is made of the text and of how often it was typed before, so that it is the same whether a prompt was found
    as an attachment or, in a transcript that was read too early, only as an operation.
    """

    _removed: dict[str, tuple[_T, str, Any]] = field(default_factory=dict)
    _numbers: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Given out for an operation, so that an attachment that follows is not given out again.
    _early: Counter[tuple[str, str]] = field(default_factory=Counter)

    def remove(self, entry: _T, session: str, content: Any) -> None:
        """Keep a prompt that an operation took from the queue until it is clear that no attachment follows."""
        self._removed[f"{session}:{text_of(content)}"] = (entry, session, content)

    def attached(self, session: str, content: Any) -> str | None:
        """Return the id of a prompt in an attachment, None if it was given out already."""
        text = text_of(content)
        self._removed.pop(f"{session}:{text}", None)
        if self._early[session, text]:
            self._early[session, text] -= 1
            return None
        return self._id(session, text)

    def left(self) -> list[tuple[_T, str, Any]]:
        """Return the prompts that only operations told of: the entry, the id and the content of each."""
        found = []
        for entry, session, content in self._removed.values():
            text = text_of(content)
            self._early[session, text] += 1
            found.append((entry, self._id(session, text), content))
        self._removed.clear()
        return found

    def _id(self, session: str, text: str) -> str:
        self._numbers[session, text] += 1
        return f"queued:{stable_id(session, text, str(self._numbers[session, text]))}"
