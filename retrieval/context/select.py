"""Selects the content of a context, before tokens are counted: turns of the session, and memories from elsewhere.

This is the first of the three phases of a context: select, fit, write. It takes two recalls: one over all that is
visible from the session, and one within it; some queries need more, by words. No query asks for standing instructions:
every context has those that are in force. They are the only stored text that an agent is told to follow, so another
user's instruction is never among them.

Memories keep the order of the recall. The ranking `decay` orders them by the recall's score times the decay of their
tier instead: old or seldom recalled memories sink, however well they fit. A tier decides how fast something fades and
where it is placed in the document. It is not also a weight, which would discount the wider tiers twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from retrieval.candidates import is_past
from retrieval.context.links import asks_about_user, asks_for_history, follow_names, is_of_person, with_diets
from retrieval.context.standing import Instructions, read_instructions
from retrieval.context.turns import MAX_IMPORTANT, MAX_RELEVANT, MIN_IMPORTANCE, Conversation, choose_turns
from retrieval.query import RecallRequest
from retrieval.recaller import RecallOutcome
from retrieval.results import Twin, Twins
from reverie.clock import from_micros, rfc3339, to_micros
from reverie.contract import ACCOUNT_STORE, DEFAULT_CHANNEL
from reverie.errors import Rejected
from reverie.memories.types import Provenance, Tier
from reverie.recall.calls import MAX_QUERY_CHARACTERS, MAX_RESULTS, ContextRanking
from reverie.recall.types import RecallResult
from storage.index.search_index import Hit
from storage.memories.instructions import Applies
from storage.memories.records import decay, hours_between
from storage.memories.trust import EVERYTHING_TOLD, TrustPolicy
from storage.pipeline.records import MessageRecord
from storage.recall.chunk_sources import ChunkAttributes, Said
from storage.recall.sameness import contradicts, statement
from storage.sessions.records import SessionRecord
from storage.sessions.summaries import until_day
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction

# A recall in the workspace of the context.
Recall = Callable[[RecallRequest], RecallOutcome]

# Cosine to the query. all-MiniLM-L6-v2 gives paraphrases about 0.7 and turns on one subject about 0.4.
_MIN_COSINE: Final = 0.65
# A turn used as the query may be a whole document, whose beginning says what it is about.
_QUERY_CHARACTERS: Final = 2_000
# Results below this share of the best result's relevance would only pad a context. Results that have hardly anything in
# common with the query (no word, and a cosine below .08) are left out, too. The speaker does not matter here: often
# somebody else than the person named in the query gives the answer. docs/recall-measurements.md has the figures.
_SHARE_OF_BEST: Final = 0.05
_LEAST_FIT: Final = 0.012
_NO_QUERY: Final = "there is no query and no user message in the session: nothing was searched"
# An excerpt has some 20 tokens. This asks for twice as many results as fit, because some are duplicates or too long.
# Questions over a whole history get all that a recall can return.
_TOKENS_OF_RESULT: Final = 10
_LEAST_RESULTS: Final = 25
# What stands for the session of a context without one.
_NO_SESSION: Final = SessionRecord(0, "", "", "", None, None, None, None, "active", 0, None, 0, 0)
# Two memories whose vectors have a higher cosine may contradict each other.
_MAX_COSINE: Final = 0.9


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """A request for a context: its session, and how much goes into it.

    Without a session it has only what was said and remembered elsewhere. Without a `query` the newest user message is
    the query. `channel` is searched instead of the session's own. The document has at most `max_messages` of the
    session's messages, the `recency_window` among them. `rates` are the decay rates of each tier per hour, for the
    ranking `decay`; `now` is in microseconds. Standing instructions get at most `instruction_tokens`. Results with a
    relevance below `min_score` are left out. `memory_tokens` limits the tokens of results from outside the session.
    With a `min_best`, all results are left out if the best has a lower relevance. Otherwise results whose relevance,
    regardless of the speaker, is less than a twentieth of the best's are left out. With `until`, a time in
    microseconds, it is the context of that time. It has the texts that `user` may see, by default the user of the
    session. From outside the session, it has only texts that `trust` allows.
    """

    agent: str
    session: str | None
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
    trust: TrustPolicy = EVERYTHING_TOLD


class Candidate(NamedTuple):
    """A recalled message, file or memory with the values that decide its rank in a context.

    `fit` is the relevance of the text without regard to its speaker. `store` is the store of its chunk, `last_at` the
    time of its last access or else of its creation (microseconds), `memory_kind` the kind of a memory: a fact, a
    preference and so on. `keyed` is true for the value of a category and key, `confirmed` for a memory that was
    confirmed. For a memory, `provenance` says where it
    comes from, `history` has its versions, the newest first, and `contradicted_at` is the time of another memory that
    it seems to contradict.
    """

    result: RecallResult
    chunk_id: int
    score: float
    tier: Tier
    importance: float
    access_count: int
    last_at: int
    relevance: float = 0.0
    fit: float = 0.0
    store: str = ""
    memory_kind: str | None = None
    keyed: bool = False
    confirmed: bool = False
    provenance: Provenance | None = None
    history: Sequence[Said] = ()
    contradicted_at: int | None = None

    @property
    def number(self) -> int:
        """Its chunk id, negated for the account's store, so that it is unique across both stores."""
        return -self.chunk_id if self.store == ACCOUNT_STORE else self.chunk_id

    @property
    def origin(self) -> tuple[str | None, str | None]:
        """The identity that copies of a result share: session and id of its message or source, else its own id."""
        message = message_of(self.result, self.provenance)
        return (self.result.kind, self.result.id) if message is None else message


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected session, its channel, summary and turns, and memories, best first. `duplicates` counts the results
    that say the same as one of the memories. `searched_channel` is the channel that was searched, if it is not the
    session's. `instructions` are the instructions in force. `nothing_fits` says that no other result of the recall fits
    the query. `recalled` is the recall that found the memories, `held_back` the kind and id of each result that is not
    told because of whose word it is.
    """

    session: SessionRecord
    summary: str
    query: str
    conversation: Conversation
    memories: tuple[Candidate, ...]
    degraded: str = ""
    duplicates: int = 0
    nothing_fits: bool = False
    searched_channel: str | None = None
    instructions: Instructions = field(default_factory=Instructions)
    recalled: RecallOutcome | None = None
    held_back: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class _Session:
    """The session of a context, `recent` its newest turns, and the query: that of the request, or a turn."""

    record: SessionRecord
    summary: str
    query: str
    recent: list[MessageRecord]

    @property
    def has_only_recent(self) -> bool:
        """Return whether the newest turns are all that it has."""
        return self.record.messages <= len(self.recent)


@dataclass(frozen=True, slots=True)
class _MemoryDetails:
    """Details of some memories in one store: vectors and attributes by chunk id, the rest by memory id.

    `model` is the model of the vectors with its dimension, None without vectors.
    """

    model: tuple[str, int] | None = None
    vectors: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    histories: Mapping[str, Sequence[Said]] = field(default_factory=dict)
    provenances: Mapping[str, Provenance] = field(default_factory=dict)
    attributes: Mapping[int, ChunkAttributes] = field(default_factory=dict)


def select(store: Store, recall: Recall, request: ContextRequest, *, account: Store | None = None) -> Selection:
    """Select the contents of a context. `account` is the account's store, if `recall` searches it.

    Raises `NotFound` for an unknown session or channel, and `Rejected` for an invalid query.
    """
    session = _read_session(store, request)
    own_channel = session.record.channel
    channel = request.channel if request.channel is not None else own_channel
    visible, nearest, degraded = None, list[str](), _NO_QUERY
    if session.query:
        visible = _recall_visible(recall, session.query, request)
        degraded = visible.response.degraded
        if not session.has_only_recent:
            within = recall(_within_session(session.query, request))
            # Without vectors, those are near whose words are relevant.
            floor = max(request.min_score, request.min_best) if within.response.degraded else 0.0
            nearest = [result.id for result in within.response if result.relevance >= floor]
            degraded = degraded or within.response.degraded
    across = _read_account(account, visible, request) if account and visible else _MemoryDetails()
    with store.reading() as tx:
        conversation = Conversation()
        if request.session is not None:
            conversation = _choose_conversation(tx.for_agent(request.agent), session, nearest, request)
        memories, duplicates, held_back = list[Candidate](), 0, frozenset[tuple[str, str]]()
        if visible:
            rows = tx.for_agent(request.agent)
            share = 0.0 if _is_over_history(session.query, request) else _SHARE_OF_BEST
            least = replace(request, min_best=0.0) if asks_about_user(session.query) else request
            candidates = _candidates(rows, visible, across, conversation.ids, least, channel, share)
            trusted = _in_order_of_question(_allowed_by_trust(rows, candidates, request.trust), session.query, request)
            held_back = frozenset(map(_key, candidates)) - frozenset(map(_key, trusted))
            memories, duplicates = _choose_memories(tx, trusted, across, conversation, request)
    user = request.user or (None if session.record.is_group else session.record.user)
    applies = Applies(user, session.record.row_id, channel or DEFAULT_CHANNEL, request.now, request.until)
    return Selection(
        session.record,
        session.summary,
        session.query,
        conversation,
        tuple(memories),
        degraded,
        duplicates=duplicates,
        nothing_fits=visible is not None and request.max_memories > 0 and not memories,
        searched_channel=request.channel if request.channel not in (None, own_channel or DEFAULT_CHANNEL) else None,
        instructions=read_instructions(
            dict.fromkeys((store, account)),
            request.agent,
            applies,
            tokens=request.instruction_tokens,
            trust=request.trust,
        ),
        recalled=visible,
        held_back=held_back,
    )


def _recall_visible(recall: Recall, query: str, request: ContextRequest) -> RecallOutcome:
    """Return what fits the query in all that may be seen, with what its names and its guests' diets lead to."""

    def by_words(words: str) -> RecallOutcome:
        return recall(_by_words(words, request))

    found = recall(_all_visible(query, request))
    if request.ranking != "recall":
        return found
    return with_diets(query, follow_names(query, found, by_words), by_words, least=request.min_best)


def _key(candidate: Candidate) -> tuple[str, str]:
    return candidate.result.kind, candidate.result.id


def _read_session(store: Store, request: ContextRequest) -> _Session:
    if request.channel is not None:
        with store.reading_as(request.agent) as rows:
            rows.channels.check_exists(request.channel)
    if request.session is None:
        return _Session(replace(_NO_SESSION, user=request.user), "", _checked_query(request), [])
    with store.reading_as(request.agent) as rows:
        session = rows.sessions.get(request.session)
        window, until = min(request.recency_window, request.max_messages), request.until
        newest_ones = rows.messages.in_session(session.row_id, limit=window, newest=True, until=until)
        # A message that only has an original, such as encrypted reasoning, has no text.
        recent = [message for message in newest_ones if message.content or message.tool_calls]
        query = _checked_query(request)
        if not query:
            newest = next((message for message in reversed(recent) if message.role == "user"), None)
            newest = newest or rows.messages.newest_with_role(session.row_id, "user", until=until)
            if newest and store.withdrawn("messages", [newest.row_id]):  # an embedder may be an endpoint
                newest = None
            query = newest.content[:_QUERY_CHARACTERS].strip() if newest else ""
        are_all = session.messages <= len(newest_ones)
        first = newest_ones if are_all else rows.messages.in_session(session.row_id, limit=1)
        if first:  # imported messages may be older than the session's record
            session = replace(session, started_at=min(session.started_at, first[0].created_at))
        summary = rows.sessions.summary(session.row_id) or ""
        if until is not None:
            session = replace(session, messages=rows.messages.count_until(session.row_id, until))
            summary = until_day(summary, from_micros(until + 1).strftime("%Y-%m-%d"))
        return _Session(session, summary, query, recent)


def _checked_query(request: ContextRequest) -> str:
    query = (request.query or "").strip()
    if len(query) > MAX_QUERY_CHARACTERS:
        raise Rejected(f"query has {len(query):,} characters; the limit is {MAX_QUERY_CHARACTERS:,}", field="query")
    return query


# --- the recalls ---


def _all_visible(query: str, request: ContextRequest) -> RecallRequest:
    """Return the recall over all that is visible from the session, with about as many results as can fit."""
    limit = MAX_RESULTS
    if request.memory_tokens is not None and not _is_over_history(query, request):
        limit = min(limit, max(_LEAST_RESULTS, request.memory_tokens // _TOKENS_OF_RESULT))
    return RecallRequest(
        query=query,
        user=request.user,
        agent=request.agent,
        session=request.session,
        scope="account",
        visible_channel=request.channel,
        limit=limit,
        min_score=request.min_score,
        separate_memories=True,
        separate_duplicates=True,  # duplicates are removed later, by the rank in the context
        as_of=None if request.until is None else rfc3339(request.until),
        rerank=request.ranking == "recall",
    )


def _is_over_history(query: str, request: ContextRequest) -> bool:
    return request.ranking == "recall" and (asks_for_history(query) or asks_about_user(query))


def _in_order_of_question(candidates: list[Candidate], query: str, request: ContextRequest) -> list[Candidate]:
    """Return candidates in the order of the recall; for some questions, memories or words of people come first."""
    if asks_about_user(query):
        return sorted(
            candidates,
            key=lambda one: (one.result.kind != "memory", not is_of_person(one.result), -one.importance),
        )
    if _is_over_history(query, request):
        return sorted(candidates, key=lambda one: not is_of_person(one.result))
    return candidates


def _by_words(words: str, request: ContextRequest) -> RecallRequest:
    """Return a recall over the same texts by words alone, with few results."""
    return structs.replace(_all_visible(words, request), mode="keyword", limit=_LEAST_RESULTS)


def _within_session(query: str, request: ContextRequest) -> RecallRequest:
    """Return the recall of the messages of the session that are near the query.

    It finds enough messages that some are left after the recent and important ones are skipped.
    """
    return RecallRequest(
        query=query,
        user=request.user,
        agent=request.agent,
        session=request.session,
        kinds=("message",),
        mode="vector",
        limit=min(MAX_RESULTS, request.recency_window + MAX_IMPORTANT + MAX_RELEVANT),
        separate_duplicates=True,
        min_cosine=_MIN_COSINE,
        as_of=None if request.until is None else rfc3339(request.until),
    )


# --- turns of the conversation ---


def _choose_conversation(
    rows: AgentRepositories, session: _Session, nearest: Sequence[str], request: ContextRequest
) -> Conversation:
    if session.has_only_recent:
        return choose_turns(session.recent, [], [], max_messages=request.max_messages)
    important = rows.messages.important(
        session.record.row_id,
        min_importance=MIN_IMPORTANCE,
        limit=MAX_IMPORTANT,
        exclude=[message.id for message in session.recent],
        until=request.until,
    )
    messages = rows.messages.with_ids(session.record.row_id, nearest)
    relevant = [messages[message_id] for message_id in nearest if message_id in messages]
    return choose_turns(session.recent, important, relevant, max_messages=request.max_messages)


# --- memories, messages and files from elsewhere ---


def _read_account(account: Store, visible: RecallOutcome, request: ContextRequest) -> _MemoryDetails:
    """Read details of the recalled memories of the account."""
    pairs = zip(visible.response, visible.hits, strict=True)
    found = {hit.chunk_id: result.id for result, hit in pairs if hit.store == ACCOUNT_STORE}
    if not found:
        return _MemoryDetails()
    with account.reading() as tx:
        attributes = tx.for_agent(request.agent).chunk_sources.attributes(list(found))
        return replace(_read_details(tx, request.agent, found), attributes=attributes)


def _read_details(tx: Transaction, agent: str, memories: Mapping[int, str]) -> _MemoryDetails:
    """Read the vectors, histories and provenances of memories, given by chunk id with their own ids."""
    rows, generation = tx.for_agent(agent), tx.index.active("vector")
    model = None if generation is None else (generation.model, generation.dim)
    if not memories:
        return _MemoryDetails(model)
    ids, blob = rows.forward.vectors_of(list(memories), *model) if model is not None else ([], b"")
    vectors = np.frombuffer(blob, dtype="<f4").reshape(len(ids), -1) if ids else ()
    names = list(memories.values())
    return _MemoryDetails(
        model,
        dict(zip(ids, vectors, strict=True)),
        rows.past_memories.histories(names),
        rows.provenances.of(names),
    )


def _candidates(
    rows: AgentRepositories,
    visible: RecallOutcome,
    across: _MemoryDetails,
    selected: Collection[str],
    request: ContextRequest,
    channel: str | None,
    share_of_best: float,
) -> list[Candidate]:
    """Return the recalled results that fit the query and are not among the selected turns, each with its tier."""
    best = max((result.relevance for result in visible.response), default=0.0)
    if best < request.min_best:
        return []
    least_fit = max(_LEAST_FIT, share_of_best * best) if request.min_best else 0.0
    taken = {(request.session, message) for message in selected}
    found: list[tuple[RecallResult, Hit, Provenance | None]] = []
    for result, hit in zip(visible.response, visible.hits, strict=True):
        provenance = across.provenances.get(result.id) if hit.store == ACCOUNT_STORE else None
        if hit.relevance_of_any_speaker >= least_fit and message_of(result, provenance) not in taken:
            found.append((result, hit, provenance))
    own = rows.chunk_sources.attributes([hit.chunk_id for _, hit, _ in found if hit.store != ACCOUNT_STORE])
    candidates = []
    for result, hit, provenance in found:
        chunk = (across.attributes if hit.store == ACCOUNT_STORE else own).get(hit.chunk_id)
        if visible.past is not None and is_past(hit.chunk_id):
            chunk = visible.past.memory(hit.chunk_id).attributes()
        if chunk is not None and not result.waits:  # None if it was deleted since the recall
            tier = tier_of(chunk, session=request.session, channel=channel)
            candidates.append(
                Candidate(
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
                    confirmed=chunk.confirmed,
                    provenance=provenance,
                )
            )
    return candidates


def _allowed_by_trust(rows: AgentRepositories, candidates: list[Candidate], trust: TrustPolicy) -> list[Candidate]:
    """Return the candidates that the trust policy allows in the context."""
    if not trust:
        return candidates
    own = [one.result.id for one in candidates if one.result.kind == "memory" and one.store != ACCOUNT_STORE]
    provenances = rows.provenances.of(own)

    def is_told(one: Candidate) -> bool:
        if one.result.kind != "memory":
            return trust.tells("file" if one.result.kind == "file" else one.result.role or "")
        return trust.tells_memory(one.provenance or provenances.get(one.result.id), confirmed=one.confirmed)

    return [one for one in candidates if is_told(one)]


def message_of(result: RecallResult, provenance: Provenance | None) -> tuple[str | None, str | None] | None:
    """Return the session and id of a message, or of a memory's source message; None without one.

    `provenance` is given for a memory of the account: it knows the session.
    """
    if result.kind == "message":
        return result.session, result.id
    if result.source_message is None:
        return None
    return provenance.session if provenance is not None else result.session, result.source_message


def tier_of(chunk: ChunkAttributes, *, session: str | None, channel: str | None) -> Tier:
    """Return a memory's tier; for messages and files the narrowest scope that contains both chunk and session."""
    if chunk.tier is not None:
        return chunk.tier
    if session is not None and chunk.session == session:
        return "conversation"
    if channel is not None and chunk.channel == channel:
        return "channel"
    return "workspace"


def _choose_memories(
    tx: Transaction,
    candidates: list[Candidate],
    across: _MemoryDetails,
    conversation: Conversation,
    request: ContextRequest,
) -> tuple[list[Candidate], int]:
    """Return the chosen candidates with their past, and the number of others that say the same as one of them."""
    if request.ranking != "recall":
        now = request.now if request.until is None else request.until
        candidates = ranked(candidates, now=now, rates=request.rates)
    chosen, folded = distinct(
        candidates,
        limit=request.max_memories,
        turns_of=request.session,
        max_turns=max(0, request.max_messages - len(conversation.messages)),
        known=conversation.messages,
    )
    memories = [one for one in chosen if one.result.kind == "memory"]
    if not memories:
        return chosen, folded
    own = {one.chunk_id: one.result.id for one in memories if one.store != ACCOUNT_STORE}
    return _with_past(chosen, _read_details(tx, request.agent, own), across), folded


def relevance_of(candidate: Candidate, *, now: int, rates: Mapping[Tier, float]) -> float:
    """Return the recall's score, decayed once. `now` is in microseconds, `rates` are per hour."""
    factor = decay(
        candidate.tier,
        importance=candidate.importance,
        access_count=candidate.access_count,
        hours=hours_between(candidate.last_at, now),
        rates=rates,
    )
    return max(0.0, candidate.score) * factor


def ranked(candidates: Iterable[Candidate], *, now: int, rates: Mapping[Tier, float]) -> list[Candidate]:
    """Return candidates with their relevance, best first; ties go to the better match, the newer, the higher id."""
    rated = [candidate._replace(relevance=relevance_of(candidate, now=now, rates=rates)) for candidate in candidates]
    return sorted(rated, key=lambda c: (-c.relevance, -c.score, -c.last_at, -c.number))


def distinct(
    ranked: Sequence[Candidate],
    *,
    limit: int,
    turns_of: str | None = None,
    max_turns: int = 0,
    known: Sequence[MessageRecord] = (),
) -> tuple[list[Candidate], int]:
    """Return the first `limit` ranked candidates that say different things, and how many say the same as one of them.

    Their words are compared, so that no difference is lost. A memory and its source message say the same. A candidate
    that repeats a message of `known`, the selected turns, is left out and not counted. Of two candidates that say the
    same, the newer one is returned, at the place of the better one. Of the candidates that are messages of the session
    `turns_of`, at most `max_turns` are returned.
    """
    chosen: list[Candidate] = []
    origins: set[tuple[str | None, str | None]] = set()
    twins = Twins()
    for message in known:
        twins.accept(Twin(statement(message.content), (message.role, message.name)))
    turns = folded = 0
    for candidate in ranked:
        if len(chosen) >= limit:
            break
        is_turn = candidate.result.kind == "message" and candidate.result.session == turns_of
        if (is_turn and turns >= max_turns) or candidate.origin in origins:
            continue
        twin = _twin(candidate)
        place = twins.find(twin)
        if place is None:
            twins.accept(twin)
            chosen.append(candidate)
            turns += is_turn
            origins.add(candidate.origin)
        elif place >= len(known):
            folded += 1
            chosen[place - len(known)] = _newer(chosen[place - len(known)], candidate)
    return chosen, folded


def _twin(candidate: Candidate) -> Twin:
    result = candidate.result
    speaker = (result.role, result.name) if result.kind == "message" else None
    # A chunk of a message begins with the name of its speaker.
    text = (result.excerpt or result.text).removeprefix(f"{result.name}: ")
    return Twin(statement(text), speaker)


def _newer(better: Candidate, other: Candidate) -> Candidate:
    """Return the newer of two candidates that say the same, with the better one's relevance."""
    if other.result.created_at <= better.result.created_at or other.tier != better.tier:
        return better
    return other._replace(score=better.score, relevance=better.relevance, fit=better.fit)


# --- the past of memories ---


def _with_past(chosen: Sequence[Candidate], own: _MemoryDetails, across: _MemoryDetails) -> list[Candidate]:
    """Return the candidates; memories get their provenance, their history, and the time of a contradiction."""
    vectors = dict(own.vectors)
    if across.model == own.model:  # vectors of two models cannot be compared
        vectors |= {-chunk_id: vector for chunk_id, vector in across.vectors.items()}
    contradicted = _contradicted(chosen, vectors)
    completed = []
    for one in chosen:
        if one.result.kind == "memory":
            details = across if one.store == ACCOUNT_STORE else own
            one = one._replace(
                provenance=details.provenances.get(one.result.id),
                history=details.histories.get(one.result.id, ()),
                contradicted_at=contradicted.get(one.number),
            )
        completed.append(one)
    return completed


def _contradicted(candidates: Sequence[Candidate], vectors: Mapping[int, NDArray[np.float32]]) -> dict[int, int]:
    """Return, for each pair of memories that seem to contradict each other, the older one's time at the newer one.

    `vectors` has the numbers of the candidates as keys.
    """
    memories = [one for one in candidates if one.result.kind == "memory" and one.number in vectors]
    memories.sort(key=lambda one: (one.result.created_at, one.number))
    found: dict[int, int] = {}
    for position, newer in enumerate(memories):
        for older in memories[:position]:
            is_near = float(vectors[newer.number] @ vectors[older.number]) > _MAX_COSINE
            is_told = older.result.replaced_by is not None  # a known replacement is more than a possible contradiction
            if is_near and not is_told and _are_at_odds(newer, older):
                found[newer.number] = to_micros(older.result.created_at)
    return found


def _are_at_odds(one: Candidate, other: Candidate) -> bool:
    """Return whether two memories with nearly the same vector seem to contradict each other.

    Values of two different facts never do.
    """
    are_values = one.keyed and other.keyed
    return not are_values and contradicts(statement(one.result.text), statement(other.result.text))
