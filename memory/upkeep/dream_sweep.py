"""The dream sweep (B7): what was recalled often, by different questions and on different days, is kept for long.

A memory becomes long-term; a message that no memory was made of becomes one. Each promotion is one transaction with its
row in the ledger, its concept tags and its entry in the curation log, and is never done twice. Then the files of each
agent are rendered anew and committed where they are not what they should be: also after a sweep that was killed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import blake3

from adapters.workspace_git import Repositories
from memory.jobs import BUDGET_SECONDS, JobRun, run_on_stores
from memory.memories.concept_tags import concept_tags
from memory.upkeep.dreaming import DreamRules, Signals, Tally
from memory.upkeep.notebook import MEMORY_FILE_BYTES, refresh
from memory.upkeep.promotable import lasts, plain_tags, why_not_memory, why_not_message
from reverie.contract import DREAM_SWEEP
from reverie.errors import StoreUnavailable
from storage.memories.records import MemoryRecord, NewMemory
from storage.pipeline.records import MessageRecord
from storage.stores import Stores
from storage.transaction import AgentRepositories, Transaction
from storage.upkeep.dreams import DreamEvent, DreamSource, Promotion

ACTION: Final = "promote"
# What became of something: a memory that was there is kept for long, or a memory was made of a message.
Phase = Literal["kept", "made"]
# Of what passed the gates, so many are read at once, the best first, until enough may be promoted.
_READ_AT_ONCE: Final = 100
# 100,000 events take some seconds: far less than a lease lasts.
_PAGES_A_LEASE: Final = 50
# So many promotions hold the write lock together: some milliseconds.
_WRITTEN_AT_ONCE: Final = 10


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that passed the gates: what it is, its signals, and the chunk of it that was found most often."""

    source: DreamSource
    signals: Signals
    chunk_id: int

    @property
    def is_message(self) -> bool:
        """Whether it is no memory yet."""
        return self.source.memory_row is None


def dream_sweep(
    stores: Stores,
    repositories: Repositories | None,
    *,
    rules: DreamRules,
    now: int,
    memory_file_bytes: int = MEMORY_FILE_BYTES,
    budget_seconds: float = BUDGET_SECONDS,
    dry_run: bool = False,
    on_made: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Promote in every store what passes the gates, and commit the files of whom that concerns; returns counts.

    `now` is in microseconds. `on_made` is told of each store with new memories, which the pipeline has to index.
    Without `repositories` there are no files. What the time does not reach, or a repository that cannot be used, is
    made good by the next sweep.
    """

    def work(run: JobRun) -> None:
        with run.store.reading() as tx:
            agents = tx.recalls.agents()
        for agent in run.until_deadline(agents, remaining="agents_not_reached"):
            sweep_agent(run, agent, rules)
        if run.counts["made_of_messages"]:
            on_made(run.store.name)
        if repositories is not None and not run.dry_run:
            _refresh_files(run, repositories, memory_file_bytes)

    return run_on_stores(stores, DREAM_SWEEP, work, now=now, budget_seconds=budget_seconds, dry_run=dry_run)


def sweep_agent(run: JobRun, agent: str, rules: DreamRules) -> None:
    """Promote what of one agent's passes the gates, at most as many as the rules allow."""
    candidates = find_candidates(run, agent, rules)
    run.counts.update(candidates=len(candidates), promoted=0)
    chosen = _choose(run, agent, candidates, rules.most_promotions)
    if run.dry_run:
        run.counts["promoted"] += len(chosen)
        return
    for first in range(0, len(chosen), _WRITTEN_AT_ONCE):
        batch = chosen[first : first + _WRITTEN_AT_ONCE]
        with run.writing() as tx:
            done = Counter(_promote(tx, agent, candidate, run.now) for candidate in batch)
        run.counts["promoted"] += done["kept"] + done["made"]
        run.counts["made_of_messages"] += done["made"]


def find_candidates(run: JobRun, agent: str, rules: DreamRules) -> list[Candidate]:
    """What passed the gates, the best first; ties go to what was recalled last, then to the id."""
    tallies: dict[DreamSource, Tally] = {}
    chunks: dict[DreamSource, Counter[int]] = {}
    for event, source in _events(run, agent, rules):
        tally = tallies.get(source)
        if tally is None:
            tally = tallies[source] = Tally(remembered=max(5, rules.min_queries))
            chunks[source] = Counter()
        tally.add(event)
        chunks[source][event.chunk_id] += 1
    found = [
        Candidate(source, signals, min(chunks[source], key=lambda chunk: (-chunks[source][chunk], chunk)))
        for source, tally in tallies.items()
        if (signals := tally.signals(now=run.now, kind=source.kind)).pass_gates(rules)
    ]
    return sorted(found, key=lambda one: (-one.signals.score, -one.signals.last_at, one.source.id))


def memory_id_of(agent: str, message_id: str) -> str:
    """The id of the memory that a dream makes of a message: always the same one."""
    return "dream-" + blake3.blake3(f"{agent}\x1f{message_id}".encode()).hexdigest(length=16)


def _events(run: JobRun, agent: str, rules: DreamRules) -> Iterator[tuple[DreamEvent, DreamSource]]:
    """The events of the lookback with what each stands for, the oldest first, read in pages."""
    known: dict[int, DreamSource | None] = {}
    last: DreamEvent | None = None
    for pages in itertools.count(1):
        with run.store.reading() as tx:
            dreams = tx.for_agent(agent).dreams
            page = dreams.events(since=rules.since(run.now), until=run.now, after=last)
            fresh = {event.chunk_id for event in page} - known.keys()
            sources = dreams.sources(fresh)
        known.update((chunk_id, sources.get(chunk_id)) for chunk_id in fresh)
        for event in page:
            if (source := known[event.chunk_id]) is not None:
                yield event, source
        if not page:
            return
        last = page[-1]
        if pages % _PAGES_A_LEASE == 0:
            run.renew_lease()


def _choose(run: JobRun, agent: str, candidates: Sequence[Candidate], most: int) -> list[Candidate]:
    """The best that may be promoted: not yet, nor undone by a person, and nothing that must never be."""
    chosen: list[Candidate] = []
    with run.store.reading() as tx:
        undone = {memory for owner, memory in tx.curation.undone(ACTION) if owner == agent}
        most -= tx.for_agent(agent).dreams.count_at(run.now)  # by this very sweep, before it was killed
    candidates = candidates if most > 0 else ()
    for first in range(0, len(candidates), _READ_AT_ONCE):
        batch = candidates[first : first + _READ_AT_ONCE]
        with run.store.reading() as tx:
            rows = tx.for_agent(agent)
            spared = undone | rows.dreams.promoted([_memory_id(agent, one) for one in batch])
            memories = rows.memories.by_rows([one.source.memory_row for one in batch if one.source.memory_row])
            messages = rows.messages.with_ids([*_message_ids(batch), *_sources_of(memories.values())])
            before = rows.messages.preceding_texts(_message_ids(batch))
        for one in batch:
            if _memory_id(agent, one) in spared:
                continue
            refusal = _why_not(one, memories, messages, before, run.now)
            if refusal is not None:
                run.counts[f"left_out_{refusal}"] += 1
                continue
            chosen.append(one)
            if len(chosen) == most:
                return chosen
    return chosen


def _memory_id(agent: str, candidate: Candidate) -> str:
    return memory_id_of(agent, candidate.source.id) if candidate.is_message else candidate.source.id


def _message_ids(candidates: Sequence[Candidate]) -> list[str]:
    return [one.source.id for one in candidates if one.is_message]


def _sources_of(memories: Any) -> list[str]:
    return [memory.source_message for memory in memories if memory.source_message is not None]


def _why_not(
    one: Candidate,
    memories: dict[int, MemoryRecord],
    messages: dict[str, MessageRecord],
    before: dict[str, str],
    now: int,
) -> str | None:
    if one.source.memory_row is None:
        message = messages.get(one.source.id)
        return "gone" if message is None else why_not_message(message, before.get(one.source.id, ""))
    memory = memories.get(one.source.memory_row)
    if memory is None or not memory.active:
        return "gone"
    if not lasts(memory, now):
        return "passing"
    return why_not_memory(memory, messages.get(memory.source_message or ""))


def _promote(tx: Transaction, agent: str, one: Candidate, now: int) -> Phase | None:
    """Promote one, unless it was promoted, forgotten or rewritten since it was looked at."""
    rows = tx.for_agent(agent)
    memory_id = _memory_id(agent, one)
    if rows.dreams.promoted([memory_id]):
        return None
    return _make(tx, rows, one, memory_id, now) if one.is_message else _keep(tx, rows, one, now)


def _keep(tx: Transaction, rows: AgentRepositories, one: Candidate, now: int) -> Phase | None:
    memory = rows.memories.find(one.source.id)
    if memory is None or not lasts(memory, now) or why_not_memory(memory, _message_of(rows, memory)) is not None:
        return None
    with tx.curation.entry(
        job=DREAM_SWEEP, agent=rows.agent, action=ACTION, why=one.signals.told, memories=[memory.id], at=now
    ):
        rows.memories.change(memory.row_id, now=now, lifetime="long_term", concept_tags=concept_tags(memory.content))
        _into_ledger(rows, memory.id, one.signals, "kept", now)
    return "kept"


def _make(tx: Transaction, rows: AgentRepositories, one: Candidate, memory_id: str, now: int) -> Phase | None:
    message = rows.messages.with_ids([one.source.id]).get(one.source.id)
    before = rows.messages.preceding_texts([one.source.id]).get(one.source.id, "")
    if message is None or why_not_message(message, before) is not None:
        return None
    found = rows.found.texts([one.chunk_id]).get(one.chunk_id)
    if found is None or found.id != message.id:
        return None
    session = rows.sessions.get(message.session)
    with tx.curation.entry(
        job=DREAM_SWEEP, agent=rows.agent, action=ACTION, why=one.signals.told, memories=[memory_id], at=now
    ):
        made = rows.memories.add(
            NewMemory(
                id=memory_id,
                # As it was recalled: with the name of who said it, and of a long message the part that was found.
                content=found.chunk_text,
                created_at=message.created_at,
                lifetime="long_term",
                source="dream",
                importance=message.importance,
                owner_user_id=session.user,
                tags=plain_tags(message.tags),
                concept_tags=concept_tags(found.chunk_text),
                session=message.session,
                source_message=message.id,
                trace=message.trace,
            ),
            now=now,
        )
        # It has been recalled, as what it was before: else it would begin to fade from the day on which it was said.
        rows.memories.change(
            made.row_id, now=now, access_count=one.signals.hits, accessed_at=max(made.accessed_at, one.signals.last_at)
        )
        _into_ledger(rows, memory_id, one.signals, "made", now)
    return "made"


def _message_of(rows: AgentRepositories, memory: MemoryRecord) -> MessageRecord | None:
    if memory.source_message is None:
        return None
    return rows.messages.with_ids([memory.source_message]).get(memory.source_message)


def _into_ledger(rows: AgentRepositories, memory_id: str, signals: Signals, phase: Phase, now: int) -> None:
    rows.dreams.promote(Promotion(memory_id, now, round(signals.score, 6), phase))


def _refresh_files(run: JobRun, repositories: Repositories, memory_file_bytes: int) -> None:
    """Have every agent's files say what its ledger says, also where it has none any more.

    One that fails holds up no other.
    """
    failed: StoreUnavailable | None = None
    with run.store.reading() as tx:
        dreaming = tx.dreams.agents()
    agents = sorted({*dreaming, *repositories.agents(run.store.name)})
    for agent in run.until_deadline(agents, remaining="notebooks_not_reached"):
        run.renew_lease()
        try:
            done = refresh(run.store, repositories, agent, now=run.now, memory_file_bytes=memory_file_bytes)
        except StoreUnavailable as error:
            failed = failed or error
            continue
        run.counts["commits"] += done.commit is not None
        run.counts["refused"] += len(done.refused)
    if failed is not None:
        raise failed
