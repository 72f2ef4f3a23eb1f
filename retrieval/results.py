"""Turns ranked chunks into results: one for each message, file or memory, with its neighbours if requested.

A memory and the message that it came from are one result: the message, at its own rank, which takes the text around it
into account. Ranked by the better of the two, notes taken during a conversation displaced the conversation itself from
the first five results (docs/recall.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from retrieval.candidates import Candidates
from retrieval.ranking.fusion import Fused
from reverie.clock import from_micros
from reverie.recall.types import Explanation, RecallResult, Turn
from storage.recall.records import ChunkSource, Hit, NeighbourMessage


@dataclass(frozen=True, slots=True)
class FoundResult:
    """A result, the hit behind it, and the hits, by memory id, of memories that it is returned in place of."""

    result: RecallResult
    hit: Hit
    folded: dict[str, Hit] = field(default_factory=dict)


def find_results(candidates: Candidates, *, now: int) -> list[FoundResult]:
    """Return the results of a request, best first, without what has expired by `now` (microseconds)."""
    request = candidates.request
    results: dict[tuple[str, str], FoundResult] = {}
    folded: list[tuple[tuple[str, str], str, Hit]] = []
    read: set[int] = set()
    count = 2 * request.limit  # several chunks may belong to one result
    while len(results) < request.limit:
        ranked = candidates.best(count)
        # Not a slice: plain scores are normalised over the hits read, so reading more may change the order.
        batch = [item for item in ranked if item.chunk_id not in read]
        texts = {
            number: text
            for number, text in candidates.texts([item.chunk_id for item in batch]).items()
            if text.expires_at is None or text.expires_at > now
        }
        sources = _source_messages(candidates, texts.values())
        for item in batch:
            text = texts.get(item.chunk_id)
            if text is None:
                continue
            shown = sources.get(text.source_message or "", text)
            key = (shown.kind, shown.id)
            if shown is not text:
                folded.append((key, text.id, candidates.hit(item)))
            elif key not in results and len(results) < request.limit:
                results[key] = FoundResult(_result(candidates, item, text), candidates.hit(item))
        if len(ranked) < count:
            break
        read |= {item.chunk_id for item in batch}
        count *= 4
    for key, memory, hit in folded:
        if key in results:
            results[key].folded.setdefault(memory, hit)
    return list(results.values())


def _source_messages(candidates: Candidates, texts: Iterable[ChunkSource]) -> dict[str, ChunkSource]:
    """Return the messages that these memories came from, by message id, as far as the request may find them."""
    request, query = candidates.request, candidates.query
    if request.separate_memories or not request.finds("message"):
        return {}
    ids = {text.source_message for text in texts if text.source_message is not None}
    if not ids:
        return {}
    found = query.repositories.chunk_sources
    chunks = found.first_of_messages(sorted(ids), query.filter)
    messages = found.texts(list(chunks.values()))
    return {message: messages[chunk_id] for message, chunk_id in chunks.items() if chunk_id in messages}


def _result(candidates: Candidates, item: Fused, text: ChunkSource) -> RecallResult:
    request = candidates.request
    before: list[NeighbourMessage] = []
    after: list[NeighbourMessage] = []
    if request.neighbours and text.kind == "message" and text.session is not None:
        before, after = candidates.query.repositories.chunk_sources.neighbours(
            text.session, text.sequence, request.neighbours
        )
    explanation = None
    if request.explain:
        explanation = Explanation(score=item.score, **{str(name): one for name, one in item.retriever_scores.items()})
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
        before=[_turn(one) for one in before],
        after=[_turn(one) for one in after],
        explanation=explanation,
    )


def _turn(turn: NeighbourMessage) -> Turn:
    return Turn(id=turn.id, role=turn.role, name=turn.name, text=turn.text, created_at=from_micros(turn.created_at))
