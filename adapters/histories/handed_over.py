"""Leave out of a transcript what the hooks of its coding agent have handed over already.

A hook does not know the ids that prompts and answers get in the transcript. So what it handed over is recognised by
session, role and text: as many times as it was handed over, it is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, Final

from adapters.histories.hook_events import HOOK
from adapters.histories.reading import Reading
from reverie.errors import NotFound
from reverie.fields import MAX_PAGE
from reverie.sessions.calls import ListMessages
from reverie.trust.export_types import ExportedMessage, ExportedRecord, ExportedSession

_Counts = Counter[tuple[str, bytes]]

_REASON: Final = "messages that hooks have handed over already"


def without_handed_over(
    records: Iterator[ExportedRecord], send: Callable[[Any], Any], source: str, reading: Reading
) -> Iterator[ExportedRecord]:
    """Yield the records of a transcript but what hooks have handed over; raises what `send` raises."""
    known: dict[str, _Counts] = {}
    for record in records:
        if isinstance(record, ExportedSession):
            known[record.id] = _handed_over(send, source, record.id)
        elif isinstance(record, ExportedMessage) and (left := known.get(record.session)):
            key = (record.role, _digest(record.content))
            if left[key]:
                left[key] -= 1
                reading.leave(_REASON)
                continue
        yield record


def _handed_over(send: Callable[[Any], Any], source: str, session: str) -> _Counts:
    """Return how often each text of a session was handed over by role, without keeping the texts."""
    found: _Counts = Counter()
    offset = 0
    while True:
        try:
            page = send(ListMessages(session, limit=MAX_PAGE, offset=offset)).messages
        except NotFound:
            return found
        found.update(
            (message.role, _digest(message.content)) for message in page if message.id.startswith(f"{source}:{HOOK}:")
        )
        if len(page) < MAX_PAGE:
            return found
        offset += len(page)


def _digest(text: str) -> bytes:
    return blake2b(text.strip().encode("utf-8", "replace"), digest_size=16).digest()
