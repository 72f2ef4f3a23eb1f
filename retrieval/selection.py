"""What goes into a context before tokens are counted: turns of the conversation, and what is remembered elsewhere.

Two recalls, one over all that can be seen from the session and one within it; everything read is one agent's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.dedup import distinct
from retrieval.recaller import RecallOutcome
from retrieval.request import MAX_LIMIT, MAX_QUERY_CHARACTERS, RecallRequest
from retrieval.scopes import Candidate, ranked, tier_of
from retrieval.trihybrid import IMPORTANT, MOST_IMPORTANT, MOST_RELEVANT, RELEVANT, Conversation, choose
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Rejected
from reverie.types import RecallResult
from storage.memories.records import Tier
from storage.pipeline.records import MessageRecord
from storage.recall.records import ChunkAttributes, Hit
from storage.sessions.records import SessionRecord
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction

# A recall of one request, over an embedder and indexes that this module knows nothing of.
Search = Callable[[RecallRequest], RecallOutcome]

# A turn taken as the query may be a whole document: its beginning says what it is about.
_QUERY_CHARACTERS: Final = 2_000
_NOTHING_ASKED: Final = "no query, and the session has no turn of a user's: nothing was looked up"


@dataclass(frozen=True, slots=True)
class Asking:
    """Whose context, of which session, for what, and how much of it."""

    agent: str
    session: str
    query: str | None
    channel: str | None
    recency_window: int
    most_messages: int
    most_memories: int
    rates: Mapping[Tier, float]
    now: int


@dataclass(frozen=True, slots=True)
class Selected:
    """What was chosen: the session, its summary, its turns, and what is remembered, the best first."""

    session: SessionRecord
    channel: str | None
    summary: str
    query: str
    conversation: Conversation
    memories: tuple[Candidate, ...]
    degraded: str


@dataclass(frozen=True, slots=True)
class _Start:
    session: SessionRecord
    summary: str
    query: str
    recent: list[MessageRecord]


@dataclass(frozen=True, slots=True)
class _Found:
    everywhere: RecallOutcome
    within: RecallOutcome

    @property
    def degraded(self) -> str:
        return self.everywhere.response.degraded or self.within.response.degraded


def select(store: Store, search: Search, asking: Asking, *, account: Store | None = None) -> Selected:
    """Choose what a context is made of. `account` holds what `search` finds across workspaces.

    Raises `NotFound` for an unknown session and `Rejected` for a wrong query.
    """
    start = _begin(store, asking)
    channel = asking.channel if asking.channel is not None else start.session.channel
    found = _search(search, start.query, asking) if start.query else None
    abroad = _abroad(account, found.everywhere, asking) if account is not None and found else _Abroad()
    with store.reading() as tx:
        rows = tx.for_agent(asking.agent)
        conversation = _conversation(rows, start, found, asking)
        memories = _memories(tx, found.everywhere, abroad, conversation, asking, channel) if found else []
    degraded = found.degraded if found else _NOTHING_ASKED
    return Selected(start.session, channel, start.summary, start.query, conversation, tuple(memories), degraded)


def _begin(store: Store, asking: Asking) -> _Start:
    with store.reading() as tx:
        rows = tx.for_agent(asking.agent)
        session = rows.sessions.get(asking.session)
        recent = rows.messages.in_session(session.row_id, limit=asking.recency_window, newest=True)
        query = (asking.query or "").strip()
        if not query:
            asked = next((m for m in reversed(recent) if m.role == "user"), None)
            asked = asked or rows.messages.newest_with_role(session.row_id, "user")
            query = asked.content[:_QUERY_CHARACTERS].strip() if asked else ""
        elif len(query) > MAX_QUERY_CHARACTERS:
            raise Rejected(f"query has {len(query):,} characters; the limit is {MAX_QUERY_CHARACTERS:,}", field="query")
        first = rows.messages.in_session(session.row_id, limit=1)
        if first:  # what was handed in later may have been said long before the session was made
            session = replace(session, started_at=min(session.started_at, first[0].created_at))
        return _Start(session, rows.sessions.summary(session.row_id) or "", query, recent)


def _search(search: Search, query: str, asking: Asking) -> _Found:
    """The best of all that can be seen from the session, memories beside what they came from, and its nearest turns.

    Of these enough that some are left when those that are recent or important are passed over.
    """
    depth = min(MAX_LIMIT, asking.recency_window + MOST_IMPORTANT + MOST_RELEVANT)
    everywhere = RecallRequest(
        query=query,
        agent=asking.agent,
        session=asking.session,
        scope="account",
        at_hand=asking.channel,
        limit=MAX_LIMIT,
        copies=True,
    )
    within = RecallRequest(
        query=query,
        agent=asking.agent,
        session=asking.session,
        kinds=("message",),
        mode="vector",
        limit=depth,
        explain=True,
    )
    return _Found(search(everywhere), search(within))


def _conversation(rows: AgentRepositories, start: _Start, found: _Found | None, asking: Asking) -> Conversation:
    important = rows.messages.important(
        start.session.row_id,
        min_importance=IMPORTANT,
        limit=MOST_IMPORTANT,
        exclude=[message.id for message in start.recent],
    )
    wanted = [memory.id for memory in _relevant(found.within)] if found else []
    there = rows.messages.with_ids(wanted)
    relevant = [there[message_id] for message_id in wanted if message_id in there]
    return choose(start.recent, important, relevant, most=asking.most_messages)


def _relevant(within: RecallOutcome) -> list[RecallResult]:
    """The messages that are near enough to the query; without vectors, those that its words find, best first."""
    results = list(within.response)
    if within.response.degraded:
        return results
    return [memory for memory in results if _cosine(memory) > RELEVANT]


def _cosine(memory: RecallResult) -> float:
    vector = memory.explanation.vector if memory.explanation else None
    return vector.score if vector else 0.0


@dataclass(frozen=True, slots=True)
class _Abroad:
    """What was found across workspaces: standings and, by the model that made them, vectors; both by chunk."""

    standings: Mapping[int, ChunkAttributes] = field(default_factory=dict)
    vectors: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    model: str | None = None


def _abroad(account: Store, everywhere: RecallOutcome, asking: Asking) -> _Abroad:
    chunks = [hit.chunk_id for hit in everywhere.hits_in(ACCOUNT_STORE)]
    if not chunks:
        return _Abroad()
    with account.reading() as tx:
        rows, model = tx.for_agent(asking.agent), _model(tx)
        return _Abroad(rows.chunk_sources.attributes(chunks), _vectors(rows, chunks, model), model)


def _memories(
    tx: Transaction,
    everywhere: RecallOutcome,
    abroad: _Abroad,
    conversation: Conversation,
    asking: Asking,
    channel: str | None,
) -> list[Candidate]:
    rows, model = tx.for_agent(asking.agent), _model(tx)
    candidates = _candidates(rows, everywhere, abroad, conversation.ids, asking, channel)
    turns = (*conversation.recent, *conversation.important, *conversation.relevant)
    known = rows.chunk_sources.of_message_rows([message.row_id for message in turns])
    here = [candidate.chunk_id for candidate in candidates if candidate.number > 0]
    vectors = _vectors(rows, [*known, *here], model)
    if abroad.model == model:  # the vectors of two models say nothing of each other
        vectors |= {-chunk_id: vector for chunk_id, vector in abroad.vectors.items()}
    return distinct(
        ranked(candidates, now=asking.now, rates=asking.rates),
        vectors,
        limit=asking.most_memories,
        known_texts=[message.content for message in turns],
        known_vectors=[vectors[chunk_id] for chunk_id in known if chunk_id in vectors],
    )


def _candidates(
    rows: AgentRepositories,
    everywhere: RecallOutcome,
    abroad: _Abroad,
    taken: set[str],
    asking: Asking,
    channel: str | None,
) -> list[Candidate]:
    """What the recall found and the conversation does not hold already, each in the tier that it lives in."""
    found: list[tuple[RecallResult, Hit]] = [
        (memory, hit)
        for memory, hit in zip(everywhere.response, everywhere.hits, strict=True)
        if memory.source_message not in taken and (memory.kind != "message" or memory.id not in taken)
    ]
    standings = rows.chunk_sources.attributes([hit.chunk_id for _, hit in found if hit.store != ACCOUNT_STORE])
    candidates = []
    for memory, hit in found:
        standing = (abroad.standings if hit.store == ACCOUNT_STORE else standings).get(hit.chunk_id)
        if standing is not None:  # None: forgotten a moment ago
            tier = tier_of(standing, session=asking.session, channel=channel)
            candidates.append(_candidate(memory, hit, standing, tier))
    return candidates


def _candidate(memory: RecallResult, hit: Hit, standing: ChunkAttributes, tier: Tier) -> Candidate:
    last_at = standing.accessed_at if standing.accessed_at is not None else standing.created_at
    return Candidate(
        memory,
        hit.chunk_id,
        hit.score,
        tier,
        standing.importance,
        standing.access_count,
        last_at,
        store=hit.store,
        what=standing.kind,
    )


def _model(tx: Transaction) -> str | None:
    """The model of the vectors that are searched."""
    generation = tx.index.active("vector")
    return generation.model if generation is not None else None


def _vectors(rows: AgentRepositories, chunk_ids: Sequence[int], model: str | None) -> dict[int, NDArray[np.float32]]:
    """The unit vectors of these chunks, as far as they have one."""
    if model is None:
        return {}
    ids, blob = rows.forward.vectors_of(chunk_ids, model)
    if not ids:
        return {}
    return dict(zip(ids, np.frombuffer(blob, dtype="<f4").reshape(len(ids), -1), strict=True))
