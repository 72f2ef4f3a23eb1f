"""Selects what goes into a context, before tokens are counted: turns of the session, and memories from elsewhere.

Takes two recalls: one over all that is visible from the session, and one within it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.context.budget import results_for
from retrieval.context.conversation import (
    MAX_IMPORTANT,
    MAX_RELEVANT,
    MIN_COSINE,
    MIN_IMPORTANCE,
    Conversation,
    choose_turns,
)
from retrieval.context.dedup import distinct
from retrieval.context.history import with_histories
from retrieval.context.instructions import Instructions, read_instructions
from retrieval.context.relevance import Candidate, ranked, tier_of, with_provenances
from retrieval.recaller import RecallOutcome
from retrieval.request import RecallRequest
from reverie.clock import from_micros, rfc3339
from reverie.contract import ACCOUNT_STORE, DEFAULT_CHANNEL
from reverie.errors import Rejected
from reverie.memories.types import Provenance
from reverie.recall.calls import MAX_QUERY_CHARACTERS, MAX_RESULTS, ContextRanking
from reverie.recall.types import RecallResult
from storage.memories.instructions import Applies
from storage.memories.records import Tier
from storage.pipeline.records import MessageRecord
from storage.recall.past import Said
from storage.recall.records import ChunkAttributes, Hit
from storage.sessions.records import SessionRecord
from storage.sessions.summary_text import until_day
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction

# Recalls in the workspace of the context.
Recall = Callable[[RecallRequest], RecallOutcome]

# A turn used as the query may be a whole document: its beginning says what it is about.
_QUERY_CHARACTERS: Final = 2_000
# What is below this share of the best match's relevance only pads a context. Nor is anything told that has hardly
# anything in common with the query: no word, and a cosine below .08. Who said it does not matter here: an answer is
# often said by somebody else than the person that the query names. docs/recall-measurements.md has the figures.
_SHARE_OF_BEST: Final = 0.05
_LEAST_FIT: Final = 0.012
_NO_QUERY: Final = "there is no query and no user message in the session: nothing was searched"


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """The session that a context is for, and how much goes into it.

    Without a `query` the newest user message is the query. `channel` is searched instead of the session's own. The
    document has at most `max_messages` of the session's messages, the `recency_window` among them. `rates` are the
    decay rates of each tier per hour, for the ranking `decay`; `now` is in microseconds. Standing instructions get at
    most `instruction_tokens`. What is recalled with a relevance below `min_score` is left out. `memory_tokens` limits
    the tokens of what comes from elsewhere. With a `min_best`, everything is left out if the best has a lower
    relevance, and else what would have less than a twentieth of the best's whoever had said it. With `until`, a time in
    microseconds, it is the context of that time. It has what `user` may see, by default the user of the session.
    """

    agent: str
    session: str
    query: str | None
    channel: str | None
    recency_window: int
    max_messages: int
    max_memories: int
    rates: Mapping[Tier, float]
    now: int
    min_score: float = 0.0
    min_best: float = 0.0
    ranking: ContextRanking = "recall"
    memory_tokens: int | None = None
    until: int | None = None
    instruction_tokens: int = 0
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """What was selected: the session, its channel, summary and turns, and memories, best first.

    `searched_channel` is the channel that was searched, if it is another than the session's. `instructions` are those
    in force, before they are fitted into their tokens. `nothing_fits` says that nothing else that was recalled fits
    the query.
    """

    session: SessionRecord
    channel: str | None
    summary: str
    query: str
    conversation: Conversation
    memories: tuple[Candidate, ...]
    degraded: str
    nothing_fits: bool = False
    searched_channel: str | None = None
    instructions: Instructions = field(default_factory=Instructions)


@dataclass(frozen=True, slots=True)
class _Session:
    record: SessionRecord
    summary: str
    query: str
    recent: list[MessageRecord]


@dataclass(frozen=True, slots=True)
class _Recalled:
    """The outcomes of the recall over all that is visible from the session, and of the one within it.

    The second is None if all messages of the session are shown anyway.
    """

    visible: RecallOutcome
    in_session: RecallOutcome | None

    @property
    def degraded(self) -> str:
        within = self.in_session.response.degraded if self.in_session else ""
        return self.visible.response.degraded or within


@dataclass(frozen=True, slots=True)
class _AccountChunks:
    """The attributes and vectors, by chunk id, of what was found in the account's store.

    `model` is that of the vectors, and their dimension.
    `histories` are those of its memories, by their ids, and `provenances` say where they come from.
    """

    attributes: Mapping[int, ChunkAttributes] = field(default_factory=dict)
    vectors: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    model: tuple[str, int] | None = None
    histories: Mapping[str, Sequence[Said]] = field(default_factory=dict)
    provenances: Mapping[str, Provenance] = field(default_factory=dict)


def select(store: Store, recall: Recall, request: ContextRequest, *, account: Store | None = None) -> Selection:
    """Select the contents of a context. `account` is the account's store, if `recall` searches it.

    Raises `NotFound` for an unknown session or channel, and `Rejected` for an invalid query.
    """
    session = _read_session(store, request)
    channel = request.channel if request.channel is not None else session.record.channel
    found = _recall(recall, session, request) if session.query else None
    account_chunks = _read_account(account, found.visible, request) if account and found else _AccountChunks()
    with store.reading() as tx:
        conversation = _choose_conversation(tx.for_agent(request.agent), session, found, request)
        memories = _choose_memories(tx, found.visible, account_chunks, conversation, request, channel) if found else []
    degraded = found.degraded if found else _NO_QUERY
    own_channel = session.record.channel
    user = request.user or (None if session.record.is_group else session.record.user)
    return Selection(
        session.record,
        own_channel,
        session.summary,
        session.query,
        conversation,
        tuple(memories),
        degraded,
        nothing_fits=found is not None and request.max_memories > 0 and not memories,
        searched_channel=request.channel if request.channel not in (None, own_channel or DEFAULT_CHANNEL) else None,
        instructions=read_instructions(
            (store, account),
            request.agent,
            Applies(user, session.record.row_id, channel or DEFAULT_CHANNEL, request.now, request.until),
            limit_tokens=request.instruction_tokens,
        ),
    )


def _read_session(store: Store, request: ContextRequest) -> _Session:
    with store.reading() as tx:
        rows = tx.for_agent(request.agent)
        session = rows.sessions.get(request.session)
        if request.channel is not None:
            rows.channels.check_exists(request.channel)
        window, until = min(request.recency_window, request.max_messages), request.until
        recent = rows.messages.in_session(session.row_id, limit=window, newest=True, until=until)
        # One that only has an original, such as encrypted reasoning, says nothing.
        recent = [message for message in recent if message.content or message.tool_calls]
        query = (request.query or "").strip()
        if not query:
            newest = next((message for message in reversed(recent) if message.role == "user"), None)
            newest = newest or rows.messages.newest_with_role(session.row_id, "user", until=until)
            query = newest.content[:_QUERY_CHARACTERS].strip() if newest else ""
        elif len(query) > MAX_QUERY_CHARACTERS:
            raise Rejected(f"query has {len(query):,} characters; the limit is {MAX_QUERY_CHARACTERS:,}", field="query")
        first = rows.messages.in_session(session.row_id, limit=1)
        if first:  # imported messages may be older than the session's record
            session = replace(session, started_at=min(session.started_at, first[0].created_at))
        summary = rows.sessions.summary(session.row_id) or ""
        if until is not None:
            session = replace(session, messages=rows.messages.count_until(session.row_id, until))
            summary = until_day(summary, from_micros(until + 1).strftime("%Y-%m-%d"))
        return _Session(session, summary, query, recent)


def _recall(recall: Recall, session: _Session, request: ContextRequest) -> _Recalled:
    """Recall all that is visible from the session, and the nearest messages within it.

    Of these enough that some are left after the recent and important ones are skipped.
    """
    query = session.query
    as_of = None if request.until is None else rfc3339(request.until)
    visible = RecallRequest(
        query=query,
        user=request.user,
        agent=request.agent,
        session=request.session,
        scope="account",
        visible_channel=request.channel,
        limit=results_for(request.memory_tokens),
        min_score=request.min_score,
        separate_memories=True,
        separate_duplicates=True,  # removed later, by the rank in the context
        as_of=as_of,
        rerank=request.ranking == "recall",
    )
    if session.record.messages <= len(session.recent):
        return _Recalled(recall(visible), None)
    in_session = RecallRequest(
        query=query,
        user=request.user,
        agent=request.agent,
        session=request.session,
        kinds=("message",),
        mode="vector",
        limit=min(MAX_RESULTS, request.recency_window + MAX_IMPORTANT + MAX_RELEVANT),
        separate_duplicates=True,
        explain=True,
        as_of=as_of,
    )
    return _Recalled(recall(visible), recall(in_session))


def _choose_conversation(
    rows: AgentRepositories, session: _Session, found: _Recalled | None, request: ContextRequest
) -> Conversation:
    important = rows.messages.important(
        session.record.row_id,
        min_importance=MIN_IMPORTANCE,
        limit=MAX_IMPORTANT,
        exclude=[message.id for message in session.recent],
        until=request.until,
    )
    ids = []
    if found and found.in_session:
        ids = [result.id for result in _relevant(found.in_session, max(request.min_score, request.min_best))]
    messages = rows.messages.with_ids(ids)
    relevant = [messages[message_id] for message_id in ids if message_id in messages]
    return choose_turns(session.recent, important, relevant, max_messages=request.max_messages)


def _relevant(in_session: RecallOutcome, min_score: float) -> list[RecallResult]:
    """Return the messages near enough to the query, best first; without vectors those whose words are relevant."""
    results = in_session.response.results
    if in_session.response.degraded:
        return [result for result in results if result.relevance >= min_score]
    return [result for result in results if _cosine(result) > MIN_COSINE]


def _cosine(result: RecallResult) -> float:
    vector = result.explanation.vector if result.explanation else None
    return vector.score if vector else 0.0


def _read_account(account: Store, visible: RecallOutcome, request: ContextRequest) -> _AccountChunks:
    chunks = [hit.chunk_id for hit in visible.hits_in(ACCOUNT_STORE)]
    if not chunks:
        return _AccountChunks()
    with account.reading() as tx:
        rows, model = tx.for_agent(request.agent), _searched_model(tx)
        ids = [result.id for result in visible.response if result.tier == "account"]
        histories = rows.past_memories.histories(ids)
        vectors = _vectors(rows, chunks, model)
        provenances = rows.provenances.of(ids)
        return _AccountChunks(rows.chunk_sources.attributes(chunks), vectors, model, histories, provenances)


def _choose_memories(
    tx: Transaction,
    visible: RecallOutcome,
    account: _AccountChunks,
    conversation: Conversation,
    request: ContextRequest,
    channel: str | None,
) -> list[Candidate]:
    best = max((result.relevance for result in visible.response), default=0.0)
    if best < request.min_best:
        return []
    rows, model = tx.for_agent(request.agent), _searched_model(tx)
    candidates = _candidates(rows, visible, account, conversation, request, channel)
    if request.min_best:
        candidates = [one for one in candidates if one.fit >= max(_LEAST_FIT, _SHARE_OF_BEST * best)]
    turns = conversation.messages
    turn_chunks = rows.chunk_sources.of_message_rows([message.row_id for message in turns])
    own = [candidate.chunk_id for candidate in candidates if candidate.number > 0]
    vectors = _vectors(rows, [*turn_chunks, *own], model)
    if account.model == model:  # vectors of two models cannot be compared
        vectors |= {-chunk_id: vector for chunk_id, vector in account.vectors.items()}
    now = request.now if request.until is None else request.until
    chosen = distinct(
        candidates if request.ranking == "recall" else ranked(candidates, now=now, rates=request.rates),
        vectors,
        limit=request.max_memories,
        turns_of=request.session,
        max_turns=max(0, request.max_messages - len(turns)),
        known_texts=[message.content for message in turns],
        known_vectors=[vectors[chunk_id] for chunk_id in turn_chunks if chunk_id in vectors],
    )
    own_memories = [one.result.id for one in chosen if one.result.kind == "memory" and one.store != ACCOUNT_STORE]
    known = with_provenances(chosen, rows.provenances.of(own_memories) if own_memories else {}, account.provenances)
    return with_histories(known, _histories(rows, known, account), vectors)


def _histories(
    rows: AgentRepositories, chosen: Sequence[Candidate], account: _AccountChunks
) -> dict[int, Sequence[Said]]:
    """Return the histories of the memories that have one, by the candidate's number."""
    memories = [one for one in chosen if one.result.kind == "memory"]
    own = [one.result.id for one in memories if one.store != ACCOUNT_STORE]
    found = rows.past_memories.histories(own) if own else {}
    by_number = {}
    for one in memories:
        history = (account.histories if one.store == ACCOUNT_STORE else found).get(one.result.id)
        if history:
            by_number[one.number] = history
    return by_number


def _candidates(
    rows: AgentRepositories,
    visible: RecallOutcome,
    account: _AccountChunks,
    conversation: Conversation,
    request: ContextRequest,
    channel: str | None,
) -> list[Candidate]:
    """Return what was recalled and is not part of the conversation, each with its tier."""
    taken = conversation.ids
    found: list[tuple[RecallResult, Hit]] = [
        (result, hit)
        for result, hit in zip(visible.response, visible.hits, strict=True)
        if result.source_message not in taken and (result.kind != "message" or result.id not in taken)
    ]
    attributes = rows.chunk_sources.attributes([hit.chunk_id for _, hit in found if hit.store != ACCOUNT_STORE])
    candidates = []
    for result, hit in found:
        chunk = (account.attributes if hit.store == ACCOUNT_STORE else attributes).get(hit.chunk_id)
        chunk = chunk or visible.past.get(hit.chunk_id)
        if chunk is not None:  # None: deleted since the recall
            tier = tier_of(chunk, session=request.session, channel=channel)
            candidates.append(_candidate(result, hit, chunk, tier))
    return candidates


def _candidate(result: RecallResult, hit: Hit, chunk: ChunkAttributes, tier: Tier) -> Candidate:
    return Candidate(
        result,
        hit.chunk_id,
        hit.score,
        tier,
        chunk.importance,
        chunk.access_count,
        last_at=chunk.accessed_at if chunk.accessed_at is not None else chunk.created_at,
        fit=hit.relevance_of_any_speaker,
        store=hit.store,
        memory_kind=chunk.kind,
        keyed=chunk.keyed,
    )


def _searched_model(tx: Transaction) -> tuple[str, int] | None:
    generation = tx.index.active("vector")
    return (generation.model, generation.dim) if generation is not None else None


def _vectors(
    rows: AgentRepositories, chunk_ids: Sequence[int], model: tuple[str, int] | None
) -> dict[int, NDArray[np.float32]]:
    """Return the unit vectors of the chunks that have one of this model, by chunk id."""
    if model is None:
        return {}
    ids, blob = rows.forward.vectors_of(chunk_ids, *model)
    if not ids:
        return {}
    return dict(zip(ids, np.frombuffer(blob, dtype="<f4").reshape(len(ids), -1), strict=True))
