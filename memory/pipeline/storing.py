"""One transaction of ingest: each item becomes a message, a file or a dead letter exactly once, or leaves no trace.

All decisions are based on reads in the same transaction, so a second delivery changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from blake3 import blake3

from memory.pipeline.incoming import Item, dead_letter, new_message, to_json, to_message, variant_of
from memory.stage import stage_writing, within_transaction_time
from reverie.checks import MAX_INTEGER
from reverie.contract import FilePayload, MessagePayload, Outcome, chat_key, content_hash
from reverie.errors import Conflict, Rejected, ReverieError
from reverie.sessions.types import Message
from storage.index.search_index import SearchIndex
from storage.pipeline.records import ReadyMessage
from storage.sessions.records import SessionRecord
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction

# How many messages of a session are stored at once: some 20 ms in PostgreSQL.
_MESSAGES_AT_ONCE: Final = 100
# At most so many sessions are looked up by their chat in one transaction; each takes some 0.2 ms.
_CHATS_AT_ONCE: Final = 32
# An item that becomes a dead letter, and why.
Dead = tuple[Item, ReverieError]

OTHER_CONTENT: Final = (
    "message {id!r} of session {session!r} is stored already and says something else, or is of another user: it stays"
    " as it is; send this one with another id"
)
NOT_OWN_SESSION: Final = "session {session!r} is not one of this user's: use a session of your own"


@dataclass(slots=True)
class IngestReport:
    """The counts of one or more batches; `latencies` has the seconds from accepted to stored."""

    taken: int = 0
    stored: int = 0
    repeated: int = 0
    unchanged: int = 0
    forgotten: int = 0
    dead: int = 0
    traces: set[str] = field(default_factory=set)
    latencies: list[float] = field(default_factory=list)

    def counts(self) -> dict[str, Any]:
        """Return the numbers, for a log line."""
        return {name: getattr(self, name) for name in ("taken", "stored", "repeated", "unchanged", "forgotten", "dead")}

    def add(self, other: IngestReport) -> None:
        """Add the counts of another batch."""
        for name, value in other.counts().items():
            setattr(self, name, getattr(self, name) + value)
        self.traces |= other.traces
        self.latencies += other.latencies


@dataclass(slots=True)
class Written:
    """The result of a transaction, for working memory and waiting producers after the commit. Keys are (agent,
    session).

    `accepted_at` is the number of the oldest new message. Working memory of the `uncertain` sessions must be dropped:
    an earlier delivery may have been committed without reaching it. `outcomes` and `sessions` (the sessions of the
    messages) are keyed by the items' fields. `refused` has the fields of items that the caller can correct.
    """

    messages: dict[tuple[str, str], list[Message]] = field(default_factory=dict)
    accepted_at: dict[tuple[str, str], int] = field(default_factory=dict)
    uncertain: set[tuple[str, str]] = field(default_factory=set)
    outcomes: dict[bytes, Outcome] = field(default_factory=dict)
    sessions: dict[bytes, str] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    report: IngestReport = field(default_factory=IngestReport)

    def note(self, item: Item, state: Any, error: ReverieError | None = None, *, stored_as: str = "") -> None:
        """Record an outcome for waiting producers; `stored_as` is the id of the stored item, if it has another id."""
        self.outcomes[item.taken.field] = Outcome(
            id=item.id,
            state=state,
            error=str(error or ""),
            field=error.field if isinstance(error, Rejected) else "",
            conflict=isinstance(error, Conflict),
            stored_as=stored_as,
        )

    def note_forgotten(self, item: Item) -> None:
        """Count and record an item that was accepted before its session was forgotten."""
        self.report.forgotten += 1
        self.note(item, "forgotten")


def store_items(store: Store, items: Sequence[Item], now: int) -> Written:
    """Store the first of these items, at least one, in one transaction; `outcomes` tells which.

    All items would hold the store's lock for too long: 500 messages of 500 sessions take seconds in PostgreSQL.

    Raises `StoreUnavailable`, `StoreUnusable`, or `Permanent` if one of the items is at fault.
    """
    written = Written()
    with stage_writing(store) as tx:
        for content in dict.fromkeys(item.taken.content for item in items):
            tx.broker_content.follow(content)
        dead: list[Dead] = []
        for more in within_transaction_time(_store_each(tx, items, written, now)):
            dead += more
        tx.dead_letters.add([dead_letter(item, error) for item, error in dead], now=now)
        written.report.dead += len(dead)
        for item, error in dead:
            written.note(item, "dead", error)
            if item.payload is not None and isinstance(error, Rejected):
                written.refused.add(item.taken.field)
        states = {field: outcome.state for field, outcome in written.outcomes.items()}
        stored = [item for item in items if states.get(item.taken.field) in ("stored", "searchable")]
        tx.dead_letters.remove_of_items("ingest", [(item.agent, item.id, variant_of(item)) for item in stored])
    return written


def _store_each(tx: Transaction, items: Sequence[Item], written: Written, now: int) -> Iterator[list[Dead]]:
    """Store items in steps; after each step yield the items that became dead letters."""
    for agent in dict.fromkeys(item.agent for item in items):
        agent_items = [item for item in items if item.agent == agent]
        yield from _store_agent(tx, tx.for_agent(agent), agent_items, written, now)


def _store_agent(
    tx: Transaction, rows: AgentRepositories, items: Sequence[Item], written: Written, now: int
) -> Iterator[list[Dead]]:
    by_session: dict[str, list[tuple[Item, MessagePayload]]] = {}
    chats: dict[str, str] = {}
    for item in items:
        if item.error is not None:
            yield _unless_forgotten(rows, item, item.error, written)
        elif isinstance(item.payload, FilePayload):
            yield _store_file(tx, rows, item, item.payload, written, now)
        elif isinstance(item.payload, MessagePayload) and len(chats) < _CHATS_AT_ONCE:
            by_session.setdefault(_session_id(rows, item.payload, chats, by_session), []).append((item, item.payload))
    for session_id, group in by_session.items():
        for first in range(0, len(group), _MESSAGES_AT_ONCE):
            yield _store_session(rows, session_id, group[first : first + _MESSAGES_AT_ONCE], written, now)


def _unless_forgotten(rows: AgentRepositories, item: Item, error: ReverieError, written: Written) -> list[Dead]:
    """Return a list of the item and its error, empty if its session was forgotten since it was accepted."""
    letter = dead_letter(item, error)
    forgotten_at = 0
    if letter.session is not None:  # an id, or the key of a chat
        forgotten_at = max(rows.sessions.forgotten_at(letter.session), rows.sessions.chat_forgotten_at(letter.session))
    user = item.payload.user if isinstance(item.payload, MessagePayload) else None
    forgotten_at = max(forgotten_at, rows.marks.forgotten_at(user=user))
    if not forgotten_at or item.taken.accepted_at > forgotten_at:
        return [(item, error)]
    written.note_forgotten(item)
    return []


def _store_session(
    rows: AgentRepositories, session_id: str, group: Sequence[tuple[Item, MessagePayload]], written: Written, now: int
) -> list[Dead]:
    live = _not_forgotten(rows, session_id, group, written)
    found = rows.sessions.find(session_id)
    fresh, dead = _drop_known(rows, found, live, written)
    fresh, refused = _check_members(rows, found, fresh)
    row_id, last = (found.row_id, found.last_sequence) if found else (0, 0)
    numbered, conflicts, last = _number(rows, row_id, last, fresh)
    dead += [*refused, *conflicts]
    if not numbered:
        return dead
    session = rows.sessions.ensure(session_id, now=now, **_session_fields([payload for _, payload in fresh]))
    stored = [(item, payload) for _, item, payload in numbered]
    rows.sessions.add_users(session, [payload.user for _, payload in stored if payload.user is not None])
    messages = [(sequence, new_message(item, payload)) for sequence, item, payload in numbered]
    rows.messages.insert(session.row_id, messages, now=now)
    rows.sessions.touch(session.row_id, now=now, last_sequence=last)
    written.report.stored += len(stored)
    written.report.traces |= {payload.trace for _, payload in stored}
    written.report.latencies += [(now - item.taken.accepted_at) / 1_000_000 for item, _ in stored]
    key = (rows.agent, session_id)
    written.accepted_at[key] = min(item.taken.accepted_at for item, _ in stored)
    written.messages.setdefault(key, []).extend(
        to_message(payload, session_id, sequence, message.importance)
        for (_, payload), (sequence, message) in zip(stored, messages, strict=True)
    )
    for item, _ in stored:
        written.note(item, "stored")
    return dead


def _not_forgotten(
    rows: AgentRepositories, session_id: str, group: Sequence[tuple[Item, MessagePayload]], written: Written
) -> list[tuple[Item, MessagePayload]]:
    """Return the items that were accepted after whatever they belong to was forgotten."""
    forgotten_at = rows.sessions.forgotten_at(session_id)
    chats_forgotten_at = {
        key: rows.sessions.chat_forgotten_at(key) for key in {_chat_alone(payload) for _, payload in group} if key
    }
    users_forgotten_at = {user: rows.marks.forgotten_at(user=user) for user in {payload.user for _, payload in group}}
    messages_forgotten_at = rows.marks.messages_forgotten_at(session_id, [payload.id for _, payload in group])
    live: list[tuple[Item, MessagePayload]] = []
    for item, payload in group:
        if item.taken.accepted_at > max(
            forgotten_at,
            chats_forgotten_at.get(_chat_alone(payload) or "", 0),
            users_forgotten_at[payload.user],
            messages_forgotten_at.get(payload.id, 0),
        ):
            live.append((item, payload))
        else:
            written.note_forgotten(item)
        written.sessions[item.taken.field] = session_id
    return live


def _drop_known(
    rows: AgentRepositories,
    session: SessionRecord | None,
    live: Sequence[tuple[Item, MessagePayload]],
    written: Written,
) -> tuple[list[tuple[Item, MessagePayload]], list[Dead]]:
    """Return the items whose ids are new in their session, and the errors of items whose id is taken by other content.

    An item with the same id and content was stored by an earlier delivery. Its outcome is sent again, since the first
    may have been lost with its worker.
    """
    if session is None:
        known: dict[str, str] = {}
    else:
        stored = rows.messages.whole(session.row_id, {payload.id for _, payload in live})
        known = {message.id: content_hash(message) for message in stored}
    before, repeated = set(known), set[str]()
    fresh: list[tuple[Item, MessagePayload]] = []
    dead: list[Dead] = []
    for item, payload in live:
        if known.setdefault(payload.id, content := content_hash(payload)) != content:
            text = OTHER_CONTENT.format(id=payload.id, session=payload.session)
            dead.append((item, Conflict(text, field="id")))
        elif payload.id in before or payload.id in repeated:
            written.note(item, "stored")
            written.report.repeated += 1
            written.uncertain.add((rows.agent, session.id if session else payload.session))
        else:
            repeated.add(payload.id)
            fresh.append((item, payload))
    return fresh, dead


def _check_members(
    rows: AgentRepositories, session: SessionRecord | None, fresh: Sequence[tuple[Item, MessagePayload]]
) -> tuple[list[tuple[Item, MessagePayload]], list[Dead]]:
    """Return the items that may be stored in a session, and errors for the items of users who may not join it."""
    users = None if session is None else rows.sessions.users(session)
    allowed: list[tuple[Item, MessagePayload]] = []
    dead: list[Dead] = []
    for item, payload in fresh:
        if users is None and payload.own_sessions_only:  # a new session belongs to the first who writes to it
            users = {payload.user} if payload.user is not None else set()
        if not payload.own_sessions_only or (users is not None and payload.user in users):
            allowed.append((item, payload))
        else:
            dead.append((item, Rejected(NOT_OWN_SESSION.format(session=payload.session), field="session")))
    return allowed, dead


def stored_rows(tx: Transaction, items: Sequence[Item], written: Written) -> dict[bytes, tuple[str, int]]:
    """Return the kind and row of the stored message or file of each item, by the items' fields."""
    found: dict[bytes, tuple[str, int]] = {}
    for item in items:
        rows, payload = tx.for_agent(item.agent), item.payload
        if isinstance(payload, FilePayload):
            session = rows.sessions.find(payload.session) if payload.session is not None else None
            stored = rows.files.version(payload.source_uri, session.row_id if session else None, payload.user)
            if stored is not None:
                found[item.taken.field] = ("file", stored.row_id)
        elif (name := written.sessions.get(item.taken.field)) is not None:
            session = rows.sessions.find(name)
            row = rows.messages.row(session.row_id, item.id) if session is not None else None
            if row is not None:
                found[item.taken.field] = ("message", row)
    return found


def searchable_among(tx: Transaction, rows: Collection[tuple[str, int]]) -> list[ReadyMessage]:
    """Return the given messages and files (each a kind and a row) that can be recalled already."""
    with_vectors = _has_vectors(tx)
    messages = tx.chunks.ready_messages([row for kind, row in rows if kind == "message"], with_vectors=with_vectors)
    return messages + tx.chunks.ready_files([row for kind, row in rows if kind == "file"], with_vectors=with_vectors)


def _has_vectors(tx: Transaction) -> bool:
    """Return whether searchable chunks have vectors: search is keyword-only until the first vector is made."""
    return SearchIndex(tx.connection).active("vector") is not None


def _number(
    rows: AgentRepositories, session_row: int, last: int, fresh: Sequence[tuple[Item, MessagePayload]]
) -> tuple[list[tuple[int, Item, MessagePayload]], list[Dead], int]:
    """Assign sequences: the caller's if it is free, otherwise the next one.

    Return the items with their sequences, those with conflicts, and the new last sequence.
    """
    taken = rows.messages.used_sequences(session_row, (p.sequence for _, p in fresh if p.sequence is not None))
    numbered: list[tuple[int, Item, MessagePayload]] = []
    dead: list[Dead] = []
    for item, payload in fresh:
        sequence = payload.sequence if payload.sequence is not None else last + 1
        if sequence in taken:
            problem = "is taken by another message"
        elif sequence >= MAX_INTEGER:  # only after an imported message
            problem = "is larger than any may be"
        elif payload.strict and sequence <= last:
            problem = f"comes after {last}: out of order"
        else:
            taken.add(sequence)
            last = max(last, sequence)
            numbered.append((sequence, item, payload))
            continue
        error = Conflict(f"sequence {sequence} of session {payload.session!r} {problem}", field="sequence")
        dead.append((item, error))
    return numbered, dead, last


def _store_file(
    tx: Transaction, rows: AgentRepositories, item: Item, payload: FilePayload, written: Written, now: int
) -> list[Dead]:
    forgotten_at = max(
        rows.files.forgotten_at(payload.id, payload.source_uri, payload.session),
        rows.marks.forgotten_at(user=payload.user),
    )
    if payload.session is not None:
        forgotten_at = max(forgotten_at, rows.sessions.forgotten_at(payload.session))
    if item.taken.accepted_at <= forgotten_at:
        written.note_forgotten(item)
        return []
    session_row = None
    if payload.session is not None:
        session_row = rows.sessions.ensure(payload.session, now=now, user=payload.user).row_id
    content_hash = blake3(payload.content.encode()).digest()
    written.note(item, "stored")
    stored = rows.files.version(payload.source_uri, session_row, payload.user)
    if rows.files.row(payload.id) not in (None, stored.row_id if stored is not None else None):
        error = f"the id {payload.id!r} is that of another file: hand this one over without an id, or with another"
        return [(item, Conflict(error, field="id"))]
    # If an older version of a file arrives late, because its worker died, it must not replace a newer one.
    is_comparable = stored is not None and not tx.broker_content.is_file_of_earlier(stored.row_id)
    outdated = stored is not None and is_comparable and stored.accepted_at > item.taken.accepted_at
    tags, metadata = to_json(payload.tags), to_json(payload.metadata)
    has_same_labels = stored is not None and (tags, payload.visibility) == (stored.tags, stored.visibility)
    if stored is not None and (
        outdated or (has_same_labels and (content_hash, metadata) == (stored.content_hash, stored.metadata))
    ):
        rows.files.set_accepted_at(stored.row_id, accepted_at=item.taken.accepted_at)
        written.report.unchanged += 1
        if outdated or tx.chunks.ready_files([stored.row_id], with_vectors=_has_vectors(tx)):
            written.note(item, "searchable", stored_as=stored.id)
        else:
            rows.files.rename(stored.row_id, payload.id)
        return []
    row = {
        "id": payload.id,
        "content": payload.content,
        "content_hash": content_hash,
        "tags": tags,
        "metadata": metadata,
        "trace": payload.trace,
        "user": payload.user,
        "visibility": payload.visibility,
        "created_at": payload.created_at,
        "accepted_at": item.taken.accepted_at,
        "stored_at": now,
    }
    if stored is not None and has_same_labels and is_comparable:
        rows.files.rewrite(stored.row_id, row)
    else:
        rows.files.replace(payload.source_uri, session_row, row)
    written.report.stored += 1
    written.report.latencies.append((now - item.taken.accepted_at) / 1_000_000)
    written.report.traces.add(payload.trace)
    return []


def _session_id(
    rows: AgentRepositories, payload: MessagePayload, chats: dict[str, str], used_ids: Collection[str]
) -> str:
    """Return the session of a payload; a session named only by its chat may exist under another id.

    `chats` maps the keys of chats of earlier payloads in this batch to their session ids; `used_ids` are the ids of the
    sessions of earlier payloads.
    """
    if not (payload.provider and payload.chat_id):
        return payload.session
    key = chat_key(payload.provider, payload.chat_id)
    named = payload.session if payload.session != key else None
    if key not in chats:
        owner = rows.sessions.id_by_chat(payload.provider, payload.chat_id)
        chats[key] = owner or named or rows.sessions.free_id_for_chat(payload.provider, payload.chat_id, used_ids)
    return named or chats[key]


def _chat_alone(payload: MessagePayload) -> str | None:
    """Return the key of the chat if a payload names its session only by its chat, or None."""
    if not (payload.provider and payload.chat_id):
        return None
    key = chat_key(payload.provider, payload.chat_id)
    return key if payload.session == key else None


def _session_fields(payloads: Sequence[MessagePayload]) -> dict[str, str | None]:
    """Return the last provider, chat and channel that the payloads name, and the first user."""
    fields: dict[str, str | None] = {"user": None, "provider": None, "chat_id": None, "channel": None}
    for payload in payloads:
        for name in fields:
            fields[name] = getattr(payload, name) or fields[name]
    fields["user"] = next((payload.user for payload in payloads if payload.user), None)
    return fields
