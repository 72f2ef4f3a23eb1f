"""Redact messages that answer a request for a secret: what they say is one, whatever it looks like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from memory.memories.secrets import REDACTED, announces_secret, asks_for_secret
from storage.memories.extraction import SourceMessage
from storage.pipeline.records import MessageRecord

_Message = TypeVar("_Message", MessageRecord, SourceMessage)


def redact_secret_answers(messages: Iterable[_Message], before: str) -> list[_Message]:
    """Return the messages in their order, those redacted that follow a request for a secret.

    Also redacts the next message of a speaker who announced a secret, or the second part of one. `before` is the text
    of the message just before the first.
    """
    result: list[_Message] = []
    announced_by = ""
    for message in messages:
        is_secret = asks_for_secret(before) or message.role == announced_by or (not result and announces_secret(before))
        result.append(replace(message, content=REDACTED) if is_secret else message)
        if announces_secret(message.content):
            announced_by = message.role
        elif message.role == announced_by:
            announced_by = ""
        before = message.content
    return result
