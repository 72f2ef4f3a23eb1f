"""Turns ranked chunks into results: one for each message, file or memory, with its neighbours if requested.

A memory and the message that it came from are one result: the message, at its own rank, which takes the text around it
into account. Ranked by the better of the two, notes taken during a conversation displaced the conversation itself from
the first five results (docs/recall.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from retrieval.candidates import Candidates
from retrieval.ranking.fusion import Fused
from retrieval.ranking.relevance import Relevance, shown_relevance
from retrieval.twins import Twin, Twins
from reverie.clock import from_micros
from reverie.recall.types import Explanation, RecallResult, Turn
from storage.recall.records import ChunkSource, Hit, NeighbourMessage

# Chunks that are looked at for results that reach a floor, at least.
_DEPTH_WITH_FLOOR: Final = 100

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FoundResult:
    """A result, the hit behind it, and the hits that it is returned in place of: of its memories, and of duplicates.

    Both by the key of the result that they would have been.
    """

    result: RecallResult
    hit: Hit
    folded: dict[_Key, Hit] = field(default_factory=dict)
    duplicates: dict[_Key, Hit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Found:
    """A ranked chunk with its text, the key of its result, and its hit; folded: its result is its source message."""

    item: Fused
    text: ChunkSource
    key: _Key
    is_folded: bool
    hit: Hit


def find_results(candidates: Candidates, *, now: int) -> list[FoundResult]:
    """Return the results of a request, best first, without what has expired by `now` (microseconds).

    With a `min_score`, results below it are left out, and only the best chunks are looked at: what ranks lower than
    `_DEPTH_WITH_FLOOR` others hardly ever fits better than they do.
    """
    request = candidates.request
    results: dict[_Key, FoundResult] = {}
    folded: list[_Found] = []
    duplicates = None if request.separate_duplicates else _Duplicates(candidates)
    read: set[int] = set()
    count = 2 * request.limit  # several chunks may belong to one result
    if request.min_score is not None:
        count = max(_DEPTH_WITH_FLOOR, 2 * count)
    while len(results) < request.limit:
        ranked = candidates.best(count)
        # Not a slice: plain scores are normalised over the hits read, so reading more may change the order.
        batch = [item for item in ranked if item.chunk_id not in read]
        if duplicates is not None:
            duplicates.read(batch)
        for found in _found(candidates, batch, now):
            if found.hit.relevance < (request.min_score or 0.0):
                continue
            if found.is_folded:
                folded.append(found)
            elif duplicates is not None and duplicates.take(found, results):
                continue
            elif found.key not in results and len(results) < request.limit:
                results[found.key] = FoundResult(_result(candidates, found), found.hit)
        if len(ranked) < count or request.min_score is not None:
            break
        read |= {item.chunk_id for item in batch}
        count *= 4
    for found in folded:
        if found.key in results:
            results[found.key].folded.setdefault(_key(found.text), found.hit)
    return [_with_duplicates(found) for found in results.values()]


class _Duplicates:
    """Adds what says the same as a result to the duplicates of that result."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._twins = Twins()
        self._keys: list[_Key] = []

    def read(self, batch: Sequence[Fused]) -> None:
        """Read the vectors of the chunks of a batch, for their comparison."""
        self._twins.vectors |= self._candidates.vectors([item.chunk_id for item in batch])

    def take(self, found: _Found, results: Mapping[_Key, FoundResult]) -> bool:
        """Add a chunk to the duplicates of a result; False if it says the same as none, or belongs to a result."""
        twin = Twin(found.item.chunk_id, found.text)
        if found.key not in results:
            place = self._twins.find(twin)
            if place is not None and self._keys[place] in results:
                results[self._keys[place]].duplicates.setdefault(found.key, found.hit)
                return True
        self._twins.accept(twin)
        self._keys.append(found.key)
        return False


def _with_duplicates(found: FoundResult) -> FoundResult:
    if not found.duplicates:
        return found
    return replace(found, result=msgspec.structs.replace(found.result, duplicates=len(found.duplicates)))


def _found(candidates: Candidates, batch: Sequence[Fused], now: int) -> list[_Found]:
    """Return the unexpired chunks of a batch, each with the key of its result.

    A message is as relevant as the memory made from it, if that is the more relevant one.
    """
    texts = {
        number: text
        for number, text in candidates.texts([item.chunk_id for item in batch]).items()
        if text.expires_at is None or text.expires_at > now
    }
    sources = _source_messages(candidates, texts.values())
    batch = [item for item in batch if item.chunk_id in texts]
    relevances = candidates.relevances(batch, texts)
    shown = {
        item.chunk_id: sources.get(texts[item.chunk_id].source_message or "", texts[item.chunk_id]) for item in batch
    }
    of_memories: dict[_Key, Relevance] = {}
    for item in batch:
        if shown[item.chunk_id] is not texts[item.chunk_id]:
            key = _key(shown[item.chunk_id])
            of_memories[key] = relevances[item.chunk_id].at_least(of_memories.get(key, relevances[item.chunk_id]))
    found = []
    for item in batch:
        text, source = texts[item.chunk_id], shown[item.chunk_id]
        relevance = relevances[item.chunk_id].at_least(of_memories.get(_key(text), relevances[item.chunk_id]))
        found.append(_Found(item, text, _key(source), source is not text, candidates.hit(item, relevance)))
    return found


def _key(source: ChunkSource) -> _Key:
    return source.kind, source.id


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
    messages = found.texts(list(chunks.values()), until=query.prepared.until)
    return {message: messages[chunk_id] for message, chunk_id in chunks.items() if chunk_id in messages}


def _result(candidates: Candidates, found: _Found) -> RecallResult:
    request, item, text = candidates.request, found.item, found.text
    before: list[NeighbourMessage] = []
    after: list[NeighbourMessage] = []
    if request.neighbours and text.kind == "message" and text.session is not None:
        before, after = candidates.query.repositories.chunk_sources.neighbours(
            text.session, text.sequence, request.neighbours
        )
        if (until := candidates.query.prepared.until) is not None:
            before, after = ([turn for turn in turns if turn.created_at <= until] for turns in (before, after))
    explanation = None
    if request.explain:
        by_retriever: dict[str, Any] = {str(name): one for name, one in item.retriever_scores.items()}
        explanation = Explanation(score=item.score, **by_retriever)
    return RecallResult(
        id=text.id,
        kind="memory" if text.kind == "memory" else "file" if text.kind == "file" else "message",
        text=text.text,
        created_at=from_micros(text.created_at),
        relevance=shown_relevance(found.hit.relevance),
        session=text.session,
        ref_code=text.ref_code,
        role=text.role,
        name=text.name,
        tags=list(text.tags),
        tier=text.tier,
        source_message=text.source_message,
        valid_to=from_micros(text.valid_to) if text.valid_to is not None else None,
        excerpt=text.chunk_text if text.chunk_text != text.text else None,
        before=[_turn(one) for one in before],
        after=[_turn(one) for one in after],
        explanation=explanation,
    )


def _turn(turn: NeighbourMessage) -> Turn:
    return Turn(id=turn.id, role=turn.role, name=turn.name, text=turn.text, created_at=from_micros(turn.created_at))
