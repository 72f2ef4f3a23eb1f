"""What is said when somebody asked for a secret: it is one, whatever it looks like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from memory.memories.secrets import REDACTED, announces_secret, asks_for_secret
from storage.memories.extraction import SourceMessage
from storage.pipeline.records import MessageRecord

T = TypeVar("T", MessageRecord, SourceMessage)


def without_given_secrets(messages: Iterable[T], before: str) -> list[T]:
    """These messages in their order; of one that follows a question for a secret no word is left.

    Nor of the next one of somebody who said that a secret follows, or that this was the first part of it. `before` is
    what was said just before the first.
    """
    found: list[T] = []
    announced = ""
    for message in messages:
        is_given = asks_for_secret(before) or message.role == announced or (not found and announces_secret(before))
        found.append(replace(message, content=REDACTED) if is_given else message)
        if announces_secret(message.content):
            announced = message.role
        elif message.role == announced:
            announced = ""
        before = message.content
    return found
