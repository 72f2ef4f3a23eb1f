"""The dream sweep: promotes memories that were recalled often, by different queries and on different days.

A memory becomes long-term; a message without a memory gets one. A promotion is written in one transaction with its row
in the ledger, its concept tags and its entry in the curation log, and never happens twice. A memory that several users
see needs recalls by several users on several days. Then the files of each agent are rendered and, if they changed,
committed, so that the next sweep completes one that was killed.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import blake3

from adapters.workspace_git import GitFolders
from memory.idle_stores import IdleStores, run_where_changed
from memory.jobs import ORDINARY_RUN, JobRun, RunOptions
from memory.memories.concept_tags import SEEN_BY_ALL, concept_tags, sensitive_kind
from memory.memories.patterns.corrections import corrected, is_taken_back
from memory.questions import is_only_questions
from memory.secrets import announces_secret, asks_for_secret, looks_secret
from memory.upkeep.consolidation import has_users
from memory.upkeep.dreaming import DreamRules, Signals, Tally
from memory.upkeep.notebook import Notebooks, refresh
from reverie.contract import DREAM_SWEEP
from reverie.errors import StoreUnavailable
from reverie.memories.types import DREAM_SWEEP as MADE_BY
from storage.curation import EntryDraft
from storage.memories.records import MemoryFilter, MemoryRecord, NewMemory
from storage.pipeline.records import MessageRecord
from storage.recall.claims import Claim, claims_of, replaces
from storage.recall.days import passed_day
from storage.recall.dependence import changes_of, newest_change
from storage.recall.words import FILLER_WORDS, words_of
from storage.stores import Stores
from storage.transaction import AgentRepositories, Transaction
from storage.upkeep.dreams import DreamEvent, DreamSource, Promotion

ACTION: Final = "promote"
# In a dry run: the action of candidates that are not promoted; the rule that refused them is the reason.
LEAVE_OUT: Final = "leave out"
# "kept": an existing memory became long-term. "made": a memory was made from a message.
Phase = Literal["kept", "made"]
# Candidates that are read in one transaction.
_READ_BATCH: Final = 100
# Pages of events between two renewals of the lease: 100,000 events take some seconds, far less than it lasts.
_PAGES_PER_LEASE: Final = 50
# Promotions in one transaction, which holds the write lock for some milliseconds.
_WRITE_BATCH: Final = 10


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory or message that passed the gates, its signals, and its chunk that was recalled most often."""

    source: DreamSource
    signals: Signals
    chunk_id: int

    @property
    def is_message(self) -> bool:
        """Whether it is a message without a memory."""
        return self.source.memory_row is None

    @property
    def order(self) -> tuple[float, int, str]:
        """By descending score, then by the last recall, newest first, then by id."""
        return -self.signals.score, -self.signals.last_at, self.source.id


# A candidate that is not promoted, and why.
LeftOut = tuple[Candidate, str]


def dream_sweep(
    stores: Stores,
    notebooks: Notebooks,
    *,
    rules: DreamRules,
    now: int,
    options: RunOptions = ORDINARY_RUN,
    on_new_memories: Callable[[str], None] = lambda _: None,
    idle_stores: IdleStores | None = None,
) -> dict[str, Any]:
    """Promote what passes the gates in every store, and commit the files of the agents concerned; return counts.

    `now` is in microseconds. `on_new_memories` is called with the name of each store with new memories, which the
    pipeline has to index; `idle_stores` remembers the workspaces that have not changed since. The next sweep does what
    this one has no time for, and retries repositories that failed.
    """

    def work(run: JobRun) -> None:
        with run.store.reading() as tx:
            agents = tx.recalls.agents()
        for agent in run.until_deadline(run.chosen(agents), remaining="agents_not_reached"):
            sweep_agent(run, agent, rules, stores)
        if run.counts["made_of_messages"]:
            on_new_memories(run.store.name)
        if notebooks.repositories is not None and not run.dry_run:
            _refresh_files(run, notebooks, notebooks.repositories)

    return run_where_changed(
        stores, DREAM_SWEEP, work, now=now, options=options, idle_stores=idle_stores, next_at=lambda _: math.inf
    )


def sweep_agent(run: JobRun, agent: str, rules: DreamRules, stores: Stores) -> None:
    """Promote what passes the gates for one agent, at most `rules.most_promotions`."""
    candidates, missed = _recalled(run, agent, rules)
    run.counts.update(candidates=len(candidates), promoted=0)
    known, refused = _passing_shared_gates(run, agent, candidates, rules, stores)
    chosen, left_out = _choose(run, agent, known, rules.most_promotions)
    if run.dry_run:
        run.counts["promoted"] += len(chosen)
        for candidate in chosen:
            run.plan(agent, "promote", candidate.source.id, candidate.signals.explanation)
        for candidate, why in (*refused, *left_out, *missed):
            run.plan(agent, LEAVE_OUT, candidate.source.id, why)
        return
    for first in range(0, len(chosen), _WRITE_BATCH):
        batch = chosen[first : first + _WRITE_BATCH]
        with run.writing() as tx:
            done = Counter(_promote(tx, agent, candidate, run.now) for candidate in batch)
        run.counts["promoted"] += done["kept"] + done["made"]
        run.counts["made_of_messages"] += done["made"]


def _recalled(run: JobRun, agent: str, rules: DreamRules) -> tuple[list[Candidate], list[LeftOut]]:
    """Return the candidates that passed all gates, and in a dry run those that failed a gate, with that gate.

    Both are in descending order of their score, then of their last recall, then in the order of their ids.
    """
    tallies: dict[DreamSource, Tally] = {}
    chunks: dict[DreamSource, Counter[int]] = {}
    for event, source in _events(run, agent, rules):
        tally = tallies.get(source)
        if tally is None:
            tally = tallies[source] = Tally(
                max_queries=max(5, rules.min_queries),
                author=source.author,
                max_users=rules.shared_min_users,
                max_user_days=rules.shared_min_days,
            )
            chunks[source] = Counter()
        tally.add(event)
        chunks[source][event.chunk_id] += 1
    found: list[Candidate] = []
    missed: list[LeftOut] = []
    for source, tally in tallies.items():
        signals = tally.signals(now=run.now, kind=source.kind)
        chunk_id = min(chunks[source], key=lambda chunk: (-chunks[source][chunk], chunk))
        candidate, why = Candidate(source, signals, chunk_id), signals.missed_gate(rules)
        if not why:
            found.append(candidate)
        elif run.dry_run:
            missed.append((candidate, why))
    return sorted(found, key=lambda one: one.order), sorted(missed, key=lambda one: one[0].order)


def _passing_shared_gates(
    run: JobRun, agent: str, candidates: Sequence[Candidate], rules: DreamRules, stores: Stores
) -> tuple[Sequence[Candidate], list[LeftOut]]:
    """Separate the candidates that several users see and too few have recalled; return the others first."""
    if not any(candidate.source.for_several for candidate in candidates) or not has_users(stores, run.store, agent):
        return candidates, []
    known: list[Candidate] = []
    refused: list[LeftOut] = []
    for candidate in candidates:
        missed = candidate.signals.missed_shared_gate(rules) if candidate.source.for_several else None
        if missed is None:
            known.append(candidate)
        else:
            gate, why = missed
            run.counts[f"left_out_{gate}"] += 1
            refused.append((candidate, why))
    return known, refused


def memory_id_of(agent: str, session: str, message_id: str) -> str:
    """Return the id of the memory that a sweep makes from a message; always the same for one message."""
    return "dream-" + blake3.blake3(f"{agent}\x1f{session}\x1f{message_id}".encode()).hexdigest(length=16)


def _events(run: JobRun, agent: str, rules: DreamRules) -> Iterator[tuple[DreamEvent, DreamSource]]:
    """Yield the events of the lookback period with their recalled sources, oldest first, read in pages."""
    known: dict[int, DreamSource | None] = {}
    last: DreamEvent | None = None
    for pages in itertools.count(1):
        with run.store.reading() as tx:
            dreams = tx.for_agent(agent).dreams
            page = dreams.events(since=rules.since(run.now), until=run.now, after=last)
            new_chunks = {event.chunk_id for event in page} - known.keys()
            sources = dreams.sources(new_chunks)
        known.update((chunk_id, sources.get(chunk_id)) for chunk_id in new_chunks)
        for event in page:
            if (source := known[event.chunk_id]) is not None:
                yield event, source
        if not page:
            return
        last = page[-1]
        if pages % _PAGES_PER_LEASE == 0:
            run.renew_lease()


def _choose(
    run: JobRun, agent: str, candidates: Sequence[Candidate], limit: int
) -> tuple[list[Candidate], list[LeftOut]]:
    """Return the best candidates that were neither promoted before, nor undone by a person, nor refused.

    The refused candidates are returned with the reason.
    """
    chosen: list[Candidate] = []
    refused: list[LeftOut] = []
    claimed = _Claimed()
    with run.store.reading() as tx:
        undone = {memory for owner, memory in tx.curation.undone(ACTION) if owner == agent}
        limit -= tx.for_agent(agent).dreams.count_at(run.now)  # this sweep made them before it was killed
    candidates = candidates if limit > 0 else ()
    for first in range(0, len(candidates), _READ_BATCH):
        batch = candidates[first : first + _READ_BATCH]
        with run.store.reading_as(agent) as rows:
            excluded = undone | rows.dreams.promoted([_memory_id(agent, candidate) for candidate in batch])
            for candidate in batch:
                if _memory_id(agent, candidate) in excluded:
                    continue
                found = _promotable(rows, candidate, run.now)
                if isinstance(found, MessageRecord) and _is_outdated(rows, found, claimed, run.now):
                    found = "outdated"
                if isinstance(found, str):
                    run.counts[f"left_out_{found}"] += 1
                    refused.append((candidate, found.replace("_", " ")))
                    continue
                chosen.append(candidate)
                if len(chosen) == limit:
                    return chosen, refused
    return chosen, refused


def _memory_id(agent: str, candidate: Candidate) -> str:
    source = candidate.source
    return memory_id_of(agent, source.session, source.id) if candidate.is_message else source.id


def _promotable(rows: AgentRepositories, candidate: Candidate, now: int) -> MemoryRecord | MessageRecord | str:
    """Return the memory or message of a candidate, or why it must not be promoted."""
    if candidate.source.memory_row is None:
        row = candidate.source.message_row
        message = next(iter(rows.messages.by_rows([row])), None)
        if message is None:
            return "gone"
        return refuse_message(message, rows.messages.preceding_texts([row]).get(row, "")) or message
    memory = rows.memories.by_rows([candidate.source.memory_row]).get(candidate.source.memory_row)
    if memory is None or not memory.active:
        return "gone"
    if not is_lasting(memory, now):
        return "passing"
    return refuse_memory(memory, rows.messages.sources_of([memory.row_id]).get(memory.row_id)) or memory


class _Claimed:
    """What the current memories of an owner claim, each with its time: read once for all candidates of a sweep."""

    def __init__(self) -> None:
        self._of_owner: dict[str | None, list[tuple[int, Claim]]] = {}

    def since(self, rows: AgentRepositories, owner: str | None, at: int) -> Iterator[Claim]:
        """Yield the claims of memories that belong to an owner, or to nobody, and were made after a time."""
        if owner not in self._of_owner:
            memories = (one for one in rows.memories.iterate(MemoryFilter(owner=owner)) if one.owner_user_id == owner)
            self._of_owner[owner] = [(one.created_at, claim) for one in memories for claim in claims_of(one.content)]
        return (claim for made_at, claim in self._of_owner[owner] if made_at > at)


def _is_outdated(rows: AgentRepositories, message: MessageRecord, claimed: _Claimed, now: int) -> bool:
    """Return whether what a message says was corrected, replaced or changed since, or was planned for a past day.

    The memory made from it would be told as what holds.
    """
    owner = _owner(rows, message)
    if passed_day(message.content, message.created_at, now=now) is not None:
        return True
    next_one = rows.messages.said_next(message)
    if next_one and (is_taken_back(next_one) or corrected(message.content, next_one) is not None):
        return True
    changes = changes_of(rows.past_memories.replacements(owner))
    if newest_change(message.content, message.created_at, changes) is not None:
        return True
    claims = claims_of(message.content)
    newer = claimed.since(rows, owner, message.created_at) if claims else ()
    return any(replaces(by, claim) for by in newer for claim in claims)


def _owner(rows: AgentRepositories, message: MessageRecord) -> str | None:
    """Return to whom words belong: in a session of several users, the user whom the message names, or all of them."""
    session = rows.sessions.get(message.session)
    return message.user or (None if session.is_group else session.user)


def _promote(tx: Transaction, agent: str, candidate: Candidate, now: int) -> Phase | None:
    """Promote a candidate, unless it was promoted, forgotten or rewritten since it was chosen."""
    rows = tx.for_agent(agent)
    memory_id = _memory_id(agent, candidate)
    if rows.dreams.promoted([memory_id]):
        return None
    found = _promotable(rows, candidate, now)
    if isinstance(found, MemoryRecord):
        draft = EntryDraft(candidate.signals.explanation, memories=[found.id])
        with tx.curation.entry(draft, job=DREAM_SWEEP, agent=rows.agent, action=ACTION, at=now):
            rows.memories.change(found.row_id, now=now, lifetime="long_term", concept_tags=concept_tags(found.content))
            _add_to_ledger(rows, found.id, candidate.signals, "kept", now)
        return "kept"
    return _make(tx, rows, candidate, found, memory_id, now) if isinstance(found, MessageRecord) else None


def _make(
    tx: Transaction, rows: AgentRepositories, candidate: Candidate, message: MessageRecord, memory_id: str, now: int
) -> Phase | None:
    found = rows.chunk_sources.texts([candidate.chunk_id]).get(candidate.chunk_id)
    if found is None or (found.session, found.id) != (message.session, message.id):
        return None
    owner = _owner(rows, message)
    sensitive = sensitive_kind(found.chunk_text)
    if sensitive is None and owner is None and rows.dreams.has_users():
        sensitive = SEEN_BY_ALL
    draft = EntryDraft(candidate.signals.explanation, memories=[memory_id], sensitive=sensitive)
    with tx.curation.entry(draft, job=DREAM_SWEEP, agent=rows.agent, action=ACTION, at=now):
        memory = rows.memories.add(
            NewMemory(
                id=memory_id,
                # The text as it was recalled: with the speaker's name, and only the recalled part of a long message.
                content=found.chunk_text,
                created_at=message.created_at,
                lifetime="long_term",
                source="dream",
                made_by=MADE_BY,
                importance=message.importance,
                owner_user_id=owner,
                tags=tags_without_secrets(message.tags),
                concept_tags=concept_tags(found.chunk_text),
                session=message.session,
                source_message=message.id,
                trace=message.trace,
            ),
            now=now,
        )
        # The memory gets the recalls of its message: otherwise it would decay from the message's day.
        accessed_at = max(memory.accessed_at, candidate.signals.last_at)
        rows.memories.change(memory.row_id, now=now, access_count=candidate.signals.hits, accessed_at=accessed_at)
        _add_to_ledger(rows, memory_id, candidate.signals, "made", now)
    return "made"


def _add_to_ledger(rows: AgentRepositories, memory_id: str, signals: Signals, phase: Phase, now: int) -> None:
    rows.dreams.promote(Promotion(memory_id, now, round(signals.score, 6), phase))


def _refresh_files(run: JobRun, notebooks: Notebooks, repositories: GitFolders) -> None:
    """Bring the files of every agent up to date with its ledger, including agents whose ledger is now empty.

    A failure does not stop the others; the first one is raised at the end.
    """
    failed: StoreUnavailable | None = None
    with run.store.reading() as tx:
        dreaming = tx.dreams.agents()
    agents = run.chosen(sorted({*dreaming, *repositories.agents(run.store.name)}))
    for agent in run.until_deadline(agents, remaining="notebooks_not_reached"):
        run.renew_lease()
        try:
            done = refresh(run.store, notebooks, agent, now=run.now)
        except StoreUnavailable as error:
            failed = failed or error
            continue
        run.counts["commits"] += done.commit is not None
        run.counts["refused"] += len(done.refused)
    if failed is not None:
        raise failed


Refusal = Literal["command", "filler", "outdated", "question", "secret", "tool_output", "too_long"]

# Longer texts are documents, too long for MEMORY.md and for a prompt.
MAX_CHARACTERS: Final = 20_000
# Fillers are short; a longer text need not be read.
_MAX_FILLER: Final = 200
_TOOL_ROLES: Final = frozenset({"tool", "system"})
# White space, zero-width characters and quotation marks that may precede a command.
_COMMAND_PREFIX: Final = " \t\r\n\f\v`'\"\u200b\u200c\u200d\u2060\ufeff\xa0"
_COMMAND = re.compile(
    r"""
    [/!](?=\S)                                  # /reset, !rm
    | [$%\u276f\u279c\u03bb]\s{1,9}\S               # $ ls, and the prompts of other shells
    | \#\s(?:[a-z][\w./-]{0,60})(?:\s{1,9}-|\s{0,9}$)        # a root prompt, not a heading
    | >>>\s | In\s\[\d+\]:                      # Python's
    | # ana@host:~/src$
      (?:\([\w.-]{1,60}\)\s)?\[?[\w.-]{1,60}@[\w.-]{1,60}(?::[~/][^\s$\#%]{0,200}|\s[~/\w.-]{1,200})\]?\s?[$\#%]\s
    | PS\s[A-Z]:\\[^>\n]{0,200}> | [A-Z]:\\[^>\n]{0,200}>   # PowerShell and cmd
    | (?:sudo|doas)\s{1,9}\S
    """,
    re.VERBOSE,
)
_OUTPUT = re.compile(
    r"""
    ``` | ~~~                                   # a block of code or its output
    | Traceback\s\(most\srecent\scall\slast\)
    | <(?:tool|function)[_-]?(?:result|response|call|output)
    | \[(?:tool|function)[_\s-]?(?:result|response|call|output)
    | (?:tool|function)[_\s](?:result|response|call|output)\b\s{0,9}[:=({\[]
    | (?:stdout|stderr)\s{0,9}:
    """,
    re.VERBOSE | re.IGNORECASE,
)


def refuse_memory(memory: MemoryRecord, source: MessageRecord | None) -> Refusal | None:
    """Return why a memory must not be promoted, or None. `source` is the message that it was made from, if any."""
    if memory.source.lower() in _TOOL_ROLES or (source is not None and source.role in _TOOL_ROLES):
        return "tool_output"
    return refuse_text(f"{memory.value or ''}\n{memory.content}".strip())


def is_lasting(memory: MemoryRecord, now: int) -> bool:
    """Return whether a memory is current, unexpired, and outlives its conversation. `now` is in microseconds."""
    return memory.active and memory.tier != "conversation" and not (memory.expires_at and memory.expires_at <= now)


def tags_without_secrets(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags without those that look like a secret."""
    return tuple(tag for tag in tags if looks_secret(tag) is None)


def refuse_message(message: MessageRecord, preceding_text: str) -> Refusal | None:
    """Return why a message must not become a memory, or None. `preceding_text` is the message just before it."""
    if asks_for_secret(preceding_text) or announces_secret(preceding_text):
        return "secret"
    if message.role in _TOOL_ROLES or message.tool_call_id or message.tool_name or message.tool_calls:
        return "tool_output"
    # A question is recalled by similar questions, but answers none of them.
    if is_only_questions(message.content):
        return "question"
    return "filler" if is_filler(message.content) else refuse_text(message.content)


def is_filler(text: str) -> bool:
    """Return whether a text only acknowledges another one, as "Noted." or "OK, thanks" do.

    Such a text is recalled with the question that it answers, and is worthless without it.
    """
    return len(text) <= _MAX_FILLER and FILLER_WORDS.issuperset(words_of(text.replace("\u2019", "'")))


def refuse_text(text: str) -> Refusal | None:
    """Return why a text must not be promoted, or None."""
    beginning = unicodedata.normalize("NFKC", text[:400]).lstrip(_COMMAND_PREFIX)
    raw = text.lstrip(" \t\r\n")
    if _COMMAND.match(beginning):
        return "command"
    if _OUTPUT.match(raw) or _is_json(raw):
        return "tool_output"
    if looks_secret(text):
        return "secret"
    return "too_long" if len(text) > MAX_CHARACTERS else None


def _is_json(text: str) -> bool:
    if not text.startswith(("{", "[")) or len(text) > MAX_CHARACTERS:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
