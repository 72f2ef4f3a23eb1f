"""From ranked chunks to what a caller gets: one result for each message or file, with what stands beside it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from retrieval.fusion import Fused
from retrieval.request import RecallRequest
from reverie.clock import from_micros
from reverie.types import Explanation, Leg, RecallResult, Turn
from storage.found import FoundChunks
from storage.records import FoundText, FoundTurn, Hit
from storage.stores import Transaction


def results_of(
    tx: Transaction, request: RecallRequest, best: Callable[[int], list[Fused]]
) -> list[tuple[RecallResult, Hit]]:
    """The results of a request, each with the chunk that it stands for. `best(n)` gives the first n chunks."""
    found = tx.for_agent(request.agent).found
    results: dict[tuple[str, str], tuple[RecallResult, Hit]] = {}
    read: set[int] = set()
    wanted = 2 * request.limit
    while len(results) < request.limit:
        # Several chunks of one source become one result, so a few more than asked for are read.
        ranked = best(wanted)
        # Not all beyond those read: the plain legs are normalised over what they bring, so more may change the order.
        batch = [item for item in ranked if item.chunk_id not in read]
        texts = found.texts([item.chunk_id for item in batch])
        for item in batch:
            text = texts.get(item.chunk_id)
            if text is None or (text.kind, text.id) in results or len(results) == request.limit:
                continue
            memory = _beside(found, _memory(text, item, request.explain), text.sequence, request.neighbours)
            results[text.kind, text.id] = (memory, Hit(item.chunk_id, item.score))
        if len(ranked) < wanted:
            break
        read |= {item.chunk_id for item in batch}
        wanted *= 4
    return list(results.values())


def _memory(text: FoundText, item: Fused, explain: bool) -> RecallResult:
    return RecallResult(
        id=text.id,
        kind="file" if text.kind == "file" else "message",
        text=text.text,
        created_at=from_micros(text.created_at),
        session=text.session,
        role=text.role,
        name=text.name,
        tags=list(text.tags),
        excerpt=text.chunk_text if text.chunk_text != text.text else None,
        explanation=_explanation(item) if explain else None,
    )


def _explanation(item: Fused) -> Explanation:
    legs = {name: Leg(rank=s.rank, score=s.score, normalised=s.normalised) for name, s in item.legs.items()}
    return Explanation(score=item.score, **legs)


def _beside(found: FoundChunks, memory: RecallResult, sequence: int, count: int) -> RecallResult:
    """A message with its neighbours; a file has none."""
    if not count or memory.kind != "message" or memory.session is None:
        return memory
    before, after = found.beside(memory.session, sequence, count)
    return msgspec.structs.replace(memory, before=[_turn(one) for one in before], after=[_turn(one) for one in after])


def _turn(turn: FoundTurn) -> Turn:
    return Turn(id=turn.id, role=turn.role, name=turn.name, text=turn.text, created_at=from_micros(turn.created_at))
