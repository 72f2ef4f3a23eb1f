"""One transaction of ingest: each item becomes a message, a file or a dead letter exactly once, or leaves no trace.

All decisions are based on reads in the same transaction, so a second delivery changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from blake3 import blake3

from memory.pipeline.incoming import Item, dead_letter, new_message, to_json, to_message
from memory.stage import STAGE_LOCK_WAIT_SECONDS
from reverie.contract import FilePayload, MessagePayload, Outcome, chat_key
from reverie.errors import Conflict, Rejected
from reverie.sessions.types import Message
from storage.pipeline.records import NewDeadLetter, NewMessage
from storage.sessions.records import SessionRecord
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction

NOT_OWN_SESSION: Final = "session {session!r} is not one of this user's: use a session of your own"


@dataclass(slots=True)
class IngestReport:
    """The counts of one or more batches; `latencies` are the seconds from accepted to stored of what one has stored."""

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
    """What a transaction wrote, for working memory and waiting producers after the commit. Keys are (agent, session).

    `accepted_at` is the number of the oldest new message. Working memory of the `uncertain` sessions must be
    dropped: an earlier delivery may have been committed without reaching it.
    """

    messages: dict[tuple[str, str], list[Message]] = field(default_factory=dict)
    accepted_at: dict[tuple[str, str], int] = field(default_factory=dict)
    uncertain: set[tuple[str, str]] = field(default_factory=set)
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)
    report: IngestReport = field(default_factory=IngestReport)

    def note(self, agent: str, item_id: str, state: Any, error: str = "") -> None:
        """Record an outcome for waiting producers."""
        self.outcomes.append((agent, Outcome(id=item_id, state=state, error=error)))

    def note_forgotten(self, agent: str, item_id: str) -> None:
        """Count and record an item that was accepted before its session was forgotten."""
        self.report.forgotten += 1
        self.note(agent, item_id, "forgotten")


def store_items(store: Store, items: Sequence[Item], now: int) -> Written:
    """Store items in one transaction.

    Raises `StoreUnavailable`, `StoreUnusable`, or `Permanent` if one of the items is at fault.
    """
    written = Written()
    with store.writing(lock_wait_seconds=STAGE_LOCK_WAIT_SECONDS) as tx:
        for content in dict.fromkeys(item.taken.content for item in items):
            tx.broker_content.follow(content)
        for agent in dict.fromkeys(item.agent for item in items):
            agent_items = [item for item in items if item.agent == agent]
            _store_agent(tx, tx.for_agent(agent), agent_items, written, now)
    return written


def _store_agent(tx: Transaction, rows: AgentRepositories, items: Sequence[Item], written: Written, now: int) -> None:
    dead: list[NewDeadLetter] = []
    by_session: dict[str, list[tuple[Item, MessagePayload]]] = {}
    chats: dict[str, str] = {}
    for item in items:
        if item.error is not None:
            dead += _unless_forgotten(rows, dead_letter(item, item.error), item, written)
        elif isinstance(item.payload, FilePayload):
            _store_file(tx, rows, item, item.payload, written, now)
        elif isinstance(item.payload, MessagePayload):
            by_session.setdefault(_session_id(rows, item.payload, chats), []).append((item, item.payload))
    for session_id, group in by_session.items():
        dead += _store_session(rows, session_id, group, written, now)
    tx.dead_letters.add(dead, now=now)
    written.report.dead += len(dead)
    for letter in dead:
        written.note(letter.agent, letter.item_id, "dead", letter.error)


def _unless_forgotten(
    rows: AgentRepositories, letter: NewDeadLetter, item: Item, written: Written
) -> list[NewDeadLetter]:
    """Return the letter in a list, empty if the item was accepted before its session was forgotten."""
    forgotten_at = 0
    if letter.session is not None:  # an id, or the key of a chat
        forgotten_at = max(rows.sessions.forgotten_at(letter.session), rows.sessions.chat_forgotten_at(letter.session))
    user = item.payload.user if isinstance(item.payload, MessagePayload) else None
    forgotten_at = max(forgotten_at, rows.marks.forgotten_at(user=user))
    if not forgotten_at or item.taken.accepted_at > forgotten_at:
        return [letter]
    written.note_forgotten(letter.agent, letter.item_id)
    return []


def _store_session(
    rows: AgentRepositories, session_id: str, group: Sequence[tuple[Item, MessagePayload]], written: Written, now: int
) -> list[NewDeadLetter]:
    forgotten_at = rows.sessions.forgotten_at(session_id)
    chats_forgotten_at = {
        key: rows.sessions.chat_forgotten_at(key) for key in {_chat_alone(payload) for _, payload in group} if key
    }
    users_forgotten_at = {user: rows.marks.forgotten_at(user=user) for user in {payload.user for _, payload in group}}
    messages_forgotten_at = rows.marks.messages_forgotten_at([payload.id for _, payload in group])
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
            written.note_forgotten(payload.agent, payload.id)
    rows.sessions.make_way([payload.id for _, payload in live])
    known = rows.messages.existing_ids(payload.id for _, payload in live)
    if known:
        _note_repeated(rows, session_id, known, written)
    fresh = [(item, payload) for item, payload in live if payload.id not in known]
    if not fresh:
        return []
    found = rows.sessions.find(session_id)
    fresh, refused = _without_intruders(rows, found, fresh)
    if not fresh:
        return refused
    row_id, last = (found.row_id, found.last_sequence) if found else (0, 0)
    numbered, dead, last = _number(rows, row_id, last, fresh)
    dead = [*refused, *dead]
    if not numbered:
        return dead
    session = rows.sessions.ensure(session_id, now=now, **_session_fields([payload for _, payload in fresh]))
    rows.sessions.add_users(session, [message.user for _, message in numbered if message.user is not None])
    rows.messages.insert(session.row_id, numbered, now=now)
    rows.sessions.touch(session.row_id, now=now, last_sequence=last)
    written.report.stored += len(numbered)
    messages = written.messages.setdefault((rows.agent, session_id), [])
    stored_ids = {message.id for _, message in numbered}
    written.accepted_at[rows.agent, session_id] = min(
        item.taken.accepted_at for item, payload in fresh if payload.id in stored_ids
    )
    written.report.latencies += [
        (now - item.taken.accepted_at) / 1_000_000 for item, payload in fresh if payload.id in stored_ids
    ]
    payloads = {payload.id: payload for _, payload in fresh}
    for sequence, message in numbered:
        messages.append(to_message(payloads[message.id], session_id, sequence, message.importance))
        written.report.traces.add(message.trace)
        written.note(message.agent, message.id, "stored")
    return dead


def _without_intruders(
    rows: AgentRepositories, session: SessionRecord | None, fresh: Sequence[tuple[Item, MessagePayload]]
) -> tuple[list[tuple[Item, MessagePayload]], list[NewDeadLetter]]:
    """Return the items that may be stored in a session, and dead letters of those of users who may not join it."""
    users = None if session is None else rows.sessions.users(session)
    allowed: list[tuple[Item, MessagePayload]] = []
    dead: list[NewDeadLetter] = []
    for item, payload in fresh:
        if users is None and payload.own_sessions_only:  # a new session belongs to the first who writes to it
            users = {payload.user} if payload.user is not None else set()
        if not payload.own_sessions_only or (users is not None and payload.user in users):
            allowed.append((item, payload))
        else:
            dead.append(dead_letter(item, Rejected(NOT_OWN_SESSION.format(session=payload.session), field="session")))
    return allowed, dead


def _note_repeated(rows: AgentRepositories, session_id: str, known: set[str], written: Written) -> None:
    """Record second deliveries: the outcome of the first may have been lost with its worker, so it is sent again."""
    written.report.repeated += len(known)
    written.uncertain.add((rows.agent, session_id))
    for item_id in known:
        written.note(rows.agent, item_id, "stored")
    for item_id in rows.messages.searchable(known, with_vectors=_with_vectors(rows)):
        written.note(rows.agent, item_id, "searchable")


def is_searchable(rows: AgentRepositories, item: Item) -> bool:
    """Return whether the message or file of an item can be recalled."""
    with_vectors = _with_vectors(rows)
    if not isinstance(item.payload, FilePayload):
        return item.id in set(rows.messages.searchable([item.id], with_vectors=with_vectors))
    session = rows.sessions.find(item.payload.session) if item.payload.session is not None else None
    row_id = session.row_id if session is not None else None
    stored = rows.files.version(item.payload.source_uri, row_id, item.payload.user)
    return stored is not None and rows.files.is_searchable(stored.row_id, with_vectors=with_vectors)


def _with_vectors(rows: AgentRepositories) -> bool:
    """Return whether searchable chunks have vectors: search is keyword-only until the first vector is made."""
    return rows.chunk_sources.index().active("vector") is not None


def _number(
    rows: AgentRepositories, session_row: int, last: int, fresh: Sequence[tuple[Item, MessagePayload]]
) -> tuple[list[tuple[int, NewMessage]], list[NewDeadLetter], int]:
    """Assign sequences: the caller's if it is free, otherwise the next one.

    Return (sequence, message) pairs, dead letters of conflicts, and the new last sequence.
    """
    taken = rows.messages.used_sequences(session_row, (p.sequence for _, p in fresh if p.sequence is not None))
    numbered: list[tuple[int, NewMessage]] = []
    dead: list[NewDeadLetter] = []
    for item, payload in fresh:
        sequence = payload.sequence if payload.sequence is not None else last + 1
        if sequence in taken:
            problem = "is taken by another message"
        elif payload.strict and sequence <= last:
            problem = f"comes after {last}: out of order"
        else:
            taken.add(sequence)
            last = max(last, sequence)
            numbered.append((sequence, new_message(item, payload)))
            continue
        error = Conflict(f"sequence {sequence} of session {payload.session!r} {problem}", field="sequence")
        dead.append(dead_letter(item, error))
    return numbered, dead, last


def _store_file(
    tx: Transaction, rows: AgentRepositories, item: Item, payload: FilePayload, written: Written, now: int
) -> None:
    forgotten_at = max(
        rows.files.forgotten_at(payload.id, payload.source_uri, payload.session),
        rows.marks.forgotten_at(user=payload.user),
    )
    if payload.session is not None:
        forgotten_at = max(forgotten_at, rows.sessions.forgotten_at(payload.session))
    if item.taken.accepted_at <= forgotten_at:
        written.note_forgotten(payload.agent, payload.id)
        return
    session_row = None
    if payload.session is not None:
        session_row = rows.sessions.ensure(payload.session, now=now, user=payload.user).row_id
    content_hash = blake3(payload.content.encode()).digest()
    written.note(payload.agent, payload.id, "stored")
    stored = rows.files.version(payload.source_uri, session_row, payload.user)
    # An older version that arrives late, because its worker died, must not replace a newer one.
    outdated = (
        stored is not None
        and stored.accepted_at > item.taken.accepted_at
        and not tx.broker_content.is_file_of_earlier(stored.row_id)
    )
    if stored is not None and (outdated or stored.content_hash == content_hash):
        rows.files.set_accepted_at(stored.row_id, accepted_at=item.taken.accepted_at)
        written.report.unchanged += 1
        if outdated or rows.files.is_searchable(stored.row_id, with_vectors=_with_vectors(rows)):
            written.note(payload.agent, payload.id, "searchable")
        else:
            rows.files.rename(stored.row_id, payload.id)
        return
    row = {
        "id": payload.id,
        "content": payload.content,
        "content_hash": content_hash,
        "tags": to_json(payload.tags),
        "metadata": to_json(payload.metadata),
        "trace": payload.trace,
        "user": payload.user,
        "visibility": payload.visibility,
        "created_at": payload.created_at,
        "accepted_at": item.taken.accepted_at,
        "stored_at": now,
    }
    rows.files.replace(payload.source_uri, session_row, row)
    written.report.stored += 1
    written.report.latencies.append((now - item.taken.accepted_at) / 1_000_000)
    written.report.traces.add(payload.trace)


def _session_id(rows: AgentRepositories, payload: MessagePayload, chats: dict[str, str]) -> str:
    """Return the session of a payload; a session named only by its chat may exist under another id.

    `chats` maps the keys of chats of earlier payloads in this batch to their session ids.
    """
    if not (payload.provider and payload.chat_id):
        return payload.session
    key = chat_key(payload.provider, payload.chat_id)
    named = payload.session if payload.session != key else None
    if key not in chats:
        owner = rows.sessions.id_by_chat(payload.provider, payload.chat_id)
        chats[key] = owner or named or rows.sessions.free_id_for_chat(payload.provider, payload.chat_id)
    return named or chats[key]


def _chat_alone(payload: MessagePayload) -> str | None:
    """Return the key of the chat by which alone a payload names its session, or None."""
    if not (payload.provider and payload.chat_id):
        return None
    key = chat_key(payload.provider, payload.chat_id)
    return key if payload.session == key else None


def _session_fields(payloads: Sequence[MessagePayload]) -> dict[str, str | None]:
    """Return the last provider, chat and channel that is named, and the first user."""
    fields: dict[str, str | None] = {"user": None, "provider": None, "chat_id": None, "channel": None}
    for payload in payloads:
        for name in fields:
            fields[name] = getattr(payload, name) or fields[name]
    fields["user"] = next((payload.user for payload in payloads if payload.user), None)
    return fields
