"""One transaction of ingest: items become messages, files or dead letters, exactly once, or leave nothing behind.

Everything is decided by what the database says within the transaction, so a second delivery changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from blake3 import blake3

from adapters.broker.inbox import LEASE_SECONDS
from memory.pipeline.incoming import Item, dead_letter, new_message, spoken_message, to_json
from reverie.contract import FilePayload, MessagePayload, Outcome
from reverie.errors import Conflict
from reverie.types import Message
from storage.pipeline.records import NewDeadLetter, NewMessage
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction

# Whoever waits for the write lock until its lease is over has lost its items to the next, who counts the wait as a
# death and waits for the same lock: held for two minutes, it would make dead letters of what is well.
_LOCK_WAIT_SECONDS: Final = LEASE_SECONDS / 2


@dataclass(slots=True)
class IngestReport:
    """What one batch came to."""

    taken: int = 0
    stored: int = 0
    repeated: int = 0
    unchanged: int = 0
    forgotten: int = 0
    dead: int = 0
    traces: set[str] = field(default_factory=set)

    def counts(self) -> dict[str, Any]:
        """The numbers, for a log line."""
        return {name: getattr(self, name) for name in ("taken", "stored", "repeated", "unchanged", "forgotten", "dead")}

    def add(self, other: IngestReport) -> None:
        """Count what another batch came to as well."""
        for name, value in other.counts().items():
            setattr(self, name, getattr(self, name) + value)
        self.traces |= other.traces


@dataclass(slots=True)
class Written:
    """What a transaction wrote, to be told once it has committed."""

    spoken: dict[tuple[str, str], list[Message]] = field(default_factory=dict)
    accepted_at: dict[tuple[str, str], int] = field(default_factory=dict)
    doubtful: set[tuple[str, str]] = field(default_factory=set)
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)
    report: IngestReport = field(default_factory=IngestReport)

    def note(self, agent: str, item_id: str, state: Any, error: str = "") -> None:
        """Keep an outcome for those who wait for it."""
        self.outcomes.append((agent, Outcome(id=item_id, state=state, error=error)))


def store_items(store: Store, items: Sequence[Item], now: int) -> Written:
    """Store items in one transaction. Raises `StoreUnavailable`, `StoreUnusable`, or `Permanent` for one at fault."""
    written = Written()
    with store.writing(lock_wait_seconds=_LOCK_WAIT_SECONDS) as tx:
        for agent in dict.fromkeys(item.agent for item in items):
            mine = [item for item in items if item.agent == agent]
            _store_agent(tx, tx.for_agent(agent), mine, written, now)
    return written


def _store_agent(tx: Transaction, rows: AgentRepositories, items: Sequence[Item], written: Written, now: int) -> None:
    dead: list[NewDeadLetter] = []
    by_session: dict[str, list[tuple[Item, MessagePayload]]] = {}
    chats: dict[str, str] = {}
    for item in items:
        if item.error is not None:
            dead += _set_aside(rows, dead_letter(item, item.error), item, written)
        elif isinstance(item.payload, FilePayload):
            _store_file(rows, item, item.payload, written, now)
        elif isinstance(item.payload, MessagePayload):
            by_session.setdefault(_session_id(rows, item.payload, chats), []).append((item, item.payload))
    for session_id, group in by_session.items():
        dead += _store_session(rows, session_id, group, written, now)
    tx.dead_letters.add(dead, now=now)
    written.report.dead += len(dead)
    for letter in dead:
        written.note(letter.agent, letter.item_id, "dead", letter.error)


def _set_aside(rows: AgentRepositories, letter: NewDeadLetter, item: Item, written: Written) -> list[NewDeadLetter]:
    """The letter of an item at fault, or none: what came for a session before it was forgotten is not kept."""
    forgotten_at = rows.sessions.forgotten_at(letter.session) if letter.session is not None else 0
    if not forgotten_at or item.taken.accepted_at > forgotten_at:
        return [letter]
    written.report.forgotten += 1
    written.note(letter.agent, letter.item_id, "forgotten")
    return []


def _store_session(
    rows: AgentRepositories, session_id: str, group: Sequence[tuple[Item, MessagePayload]], written: Written, now: int
) -> list[NewDeadLetter]:
    forgotten_at = rows.sessions.forgotten_at(session_id)
    live = [(item, payload) for item, payload in group if item.taken.accepted_at > forgotten_at]
    for _, payload in _missing(group, live):
        written.report.forgotten += 1
        written.note(payload.agent, payload.id, "forgotten")
    known = rows.messages.known(payload.id for _, payload in live)
    if known:
        _note_repeated(rows, session_id, known, written)
    fresh = [(item, payload) for item, payload in live if payload.id not in known]
    if not fresh:
        return []
    found = rows.sessions.find(session_id)
    row_id, last = (found.row_id, found.last_sequence) if found else (0, 0)
    numbered, dead, last = _number(rows, row_id, last, fresh)
    if not numbered:
        return dead
    session = rows.sessions.ensure(session_id, now=now, **_about(payload for _, payload in fresh))
    rows.messages.insert(session.row_id, numbered, now=now)
    rows.sessions.touch(session.row_id, now=now, last_sequence=last)
    written.report.stored += len(numbered)
    spoken = written.spoken.setdefault((rows.agent, session_id), [])
    written.accepted_at[rows.agent, session_id] = min(message.accepted_at for _, message in numbered)
    payloads = {payload.id: payload for _, payload in fresh}
    for sequence, message in numbered:
        spoken.append(spoken_message(payloads[message.id], session_id, sequence, message.importance))
        written.report.traces.add(message.trace)
        written.note(message.agent, message.id, "stored")
    return dead


def _note_repeated(rows: AgentRepositories, session_id: str, known: set[str], written: Written) -> None:
    """Second deliveries: what was told of the first may have been lost with its worker, so it is told again."""
    written.report.repeated += len(known)
    written.doubtful.add((rows.agent, session_id))
    for item_id in known:
        written.note(rows.agent, item_id, "stored")
    for item_id in rows.messages.searchable(known, with_vectors=_with_vectors(rows)):
        written.note(rows.agent, item_id, "searchable")


def _with_vectors(rows: AgentRepositories) -> bool:
    """Whether what is searchable here has vectors: by words alone it is until the first one is made."""
    return rows.found.index().active("vector") is not None


def _number(
    rows: AgentRepositories, session_row: int, last: int, fresh: Sequence[tuple[Item, MessagePayload]]
) -> tuple[list[tuple[int, NewMessage]], list[NewDeadLetter], int]:
    """Give each message its sequence: the caller's where it is free, else the next one (I6)."""
    taken = rows.messages.taken_sequences(session_row, (p.sequence for _, p in fresh if p.sequence is not None))
    numbered: list[tuple[int, NewMessage]] = []
    dead: list[NewDeadLetter] = []
    for item, payload in fresh:
        sequence = payload.sequence if payload.sequence is not None else last + 1
        if sequence in taken:
            error = Conflict(
                f"sequence {sequence} of session {payload.session!r} is taken by another message", field="sequence"
            )
            dead.append(dead_letter(item, error))
            continue
        if payload.strict and sequence <= last:
            error = Conflict(
                f"sequence {sequence} of session {payload.session!r} comes after {last}: out of order", field="sequence"
            )
            dead.append(dead_letter(item, error))
            continue
        taken.add(sequence)
        last = max(last, sequence)
        numbered.append((sequence, new_message(item, payload)))
    return numbered, dead, last


def _store_file(rows: AgentRepositories, item: Item, payload: FilePayload, written: Written, now: int) -> None:
    if payload.session is not None and item.taken.accepted_at <= rows.sessions.forgotten_at(payload.session):
        written.report.forgotten += 1
        written.note(payload.agent, payload.id, "forgotten")
        return
    session_row = rows.sessions.ensure(payload.session, now=now).row_id if payload.session is not None else None
    content_hash = blake3(payload.content.encode()).digest()
    written.note(payload.agent, payload.id, "stored")
    held = rows.files.version(payload.source_uri, session_row)
    # An older version that comes late, its worker having died, must not take the place of a newer one.
    overtaken = held is not None and held.accepted_at > item.taken.accepted_at
    if held is not None and (overtaken or held.content_hash == content_hash):
        rows.files.note_seen(held.row_id, accepted_at=item.taken.accepted_at)
        written.report.unchanged += 1
        if overtaken or rows.files.searchable(held.row_id, with_vectors=_with_vectors(rows)):
            written.note(payload.agent, payload.id, "searchable")
        else:
            rows.files.rename(held.row_id, payload.id)
        return
    row = {
        "id": payload.id,
        "content": payload.content,
        "content_hash": content_hash,
        "tags": to_json(payload.tags),
        "metadata": to_json(payload.metadata),
        "trace": payload.trace,
        "created_at": payload.created_at,
        "accepted_at": item.taken.accepted_at,
        "stored_at": now,
    }
    rows.files.replace(payload.source_uri, session_row, row)
    written.report.stored += 1
    written.report.traces.add(payload.trace)


def _session_id(rows: AgentRepositories, payload: MessagePayload, chats: dict[str, str]) -> str:
    """The session a payload belongs to; one named only by its chat may exist under an id of the caller's.

    `chats` are the ids that payloads before it in this batch gave to their chats.
    """
    if not (payload.provider and payload.chat_id):
        return payload.session
    chat = f"{payload.provider}:{payload.chat_id}"
    if payload.session != chat:
        chats.setdefault(chat, payload.session)
        return payload.session
    return rows.sessions.id_of_chat(payload.provider, payload.chat_id) or chats.get(chat, chat)


def _about(payloads: Iterable[MessagePayload]) -> dict[str, str | None]:
    about: dict[str, str | None] = {"user": None, "provider": None, "chat_id": None, "channel": None}
    for payload in payloads:
        for name in about:
            about[name] = getattr(payload, name) or about[name]
    return about


def _missing(
    group: Sequence[tuple[Item, MessagePayload]], live: Sequence[tuple[Item, MessagePayload]]
) -> list[tuple[Item, MessagePayload]]:
    kept = {item.taken.field for item, _ in live}
    return [(item, payload) for item, payload in group if item.taken.field not in kept]
