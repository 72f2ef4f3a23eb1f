"""From ranked chunks to what a caller gets: one result for each message, file or memory, with what stands beside it.

A memory and the message that it came from are one thing, and the message speaks for both: by its own rank, in which
what was said around it counts. Ranked by the better of the two, notes that an agent took of a conversation pushed what
was said out of the first five (docs/recall.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from retrieval.candidates import Candidates
from retrieval.fusion import Fused
from retrieval.request import RecallRequest
from reverie.clock import from_micros
from reverie.types import Explanation, RecallResult, Turn
from storage.recall.found import FoundChunks
from storage.recall.records import FoundText, FoundTurn, Hit


@dataclass(frozen=True, slots=True)
class Found:
    """One result, the chunk that it stands for, and those of the memories, by id, that it is shown for as well."""

    result: RecallResult
    hit: Hit
    folded: dict[str, Hit] = field(default_factory=dict)


def results_of(candidates: Candidates, request: RecallRequest, *, now: int) -> list[Found]:
    """The results of a request, best first. What has expired by `now` (microseconds) is passed over."""
    results: dict[tuple[str, str], Found] = {}
    folded: list[tuple[tuple[str, str], str, Hit]] = []
    read: set[int] = set()
    wanted = 2 * request.limit
    while len(results) < request.limit:
        # Several chunks of one source become one result, so a few more than asked for are read.
        ranked = candidates.best(wanted)
        # Not a slice: plain scores are normalised over the hits read, so reading more may change the order.
        batch = [item for item in ranked if item.chunk_id not in read]
        folded += _add(results, _Read(candidates, request, batch, now), batch, request.limit)
        if len(ranked) < wanted:
            break
        read |= {item.chunk_id for item in batch}
        wanted *= 4
    for key, memory, hit in folded:
        if key in results:
            results[key].folded.setdefault(memory, hit)
    return list(results.values())


class _Read:
    """What stands behind a batch of ranked chunks."""

    def __init__(self, candidates: Candidates, request: RecallRequest, batch: Sequence[Fused], now: int) -> None:
        self._candidates = candidates
        self._request = request
        self._here = candidates.here.found
        numbers = [item.chunk_id for item in batch]
        texts = self._here.texts([number for number in numbers if number > 0])
        if candidates.account is not None:
            there = candidates.account.found.texts([-number for number in numbers if number < 0])
            texts |= {-chunk_id: text for chunk_id, text in there.items()}
        self.texts = {
            number: text for number, text in texts.items() if text.expires_at is None or text.expires_at > now
        }
        self._messages = self._sources()

    def shown_for(self, text: FoundText) -> FoundText:
        """What is shown for what was found: for a memory the message that it came from, where that may be found."""
        return self._messages.get(text.source_message or "", text)

    def hit(self, number: int, chunk_id: int, score: float) -> Hit:
        """A chunk of the ranking's store with its score as a share."""
        return Hit(chunk_id, self._candidates.share_of(score), self._candidates.side_of(number).store)

    def result(self, text: FoundText, item: Fused) -> RecallResult:
        """A result as a caller gets it."""
        return _beside(self._here, _result(text, item, self._request.explain), text.sequence, self._request.neighbours)

    def _sources(self) -> dict[str, FoundText]:
        """The messages that memories of the batch came from, by id."""
        if self._request.copies or not self._request.finds("message"):
            return {}
        ids = {text.source_message for text in self.texts.values() if text.source_message is not None}
        if not ids:
            return {}
        chunks = self._here.of_messages(sorted(ids), self._candidates.here.within)
        texts = self._here.texts(list(chunks.values()))
        return {message: texts[chunk_id] for message, chunk_id in chunks.items() if chunk_id in texts}


def _add(
    results: dict[tuple[str, str], Found], read: _Read, batch: Sequence[Fused], limit: int
) -> list[tuple[tuple[str, str], str, Hit]]:
    """Add what a batch stands for until there is enough; returns the memories for which a message speaks."""
    folded = []
    for item in batch:
        text = read.texts.get(item.chunk_id)
        if text is None:
            continue
        shown = read.shown_for(text)
        key, hit = (shown.kind, shown.id), read.hit(item.chunk_id, text.chunk_id, item.score)
        if shown is not text:
            folded.append((key, text.id, hit))
        elif key not in results and len(results) < limit:
            results[key] = Found(read.result(text, item), hit)
    return folded


def _result(text: FoundText, item: Fused, explain: bool) -> RecallResult:
    return RecallResult(
        id=text.id,
        kind="memory" if text.kind == "memory" else "file" if text.kind == "file" else "message",
        text=text.text,
        created_at=from_micros(text.created_at),
        session=text.session,
        role=text.role,
        name=text.name,
        tags=list(text.tags),
        tier=text.tier,
        source_message=text.source_message,
        excerpt=text.chunk_text if text.chunk_text != text.text else None,
        explanation=_explanation(item) if explain else None,
    )


def _explanation(item: Fused) -> Explanation:
    return Explanation(score=item.score, **{str(name): one for name, one in item.retriever_scores.items()})


def _beside(found: FoundChunks, memory: RecallResult, sequence: int, count: int) -> RecallResult:
    """A message with its neighbours; a file or a memory has none."""
    if not count or memory.kind != "message" or memory.session is None:
        return memory
    before, after = found.beside(memory.session, sequence, count)
    return msgspec.structs.replace(memory, before=[_turn(one) for one in before], after=[_turn(one) for one in after])


def _turn(turn: FoundTurn) -> Turn:
    return Turn(id=turn.id, role=turn.role, name=turn.name, text=turn.text, created_at=from_micros(turn.created_at))
