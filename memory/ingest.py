"""From the inbox into the database: each accepted item is stored exactly once, and only then leaves the inbox.

What can never be stored becomes a dead letter by itself; the rest of its batch goes on. An item of a session that
was forgotten after it was accepted leaves nothing behind. Killed at any point, the next worker does the same again
and changes nothing that is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import msgspec
from blake3 import blake3

from adapters.working_memory import WorkingMemory
from memory.stage import MAX_CRASHES, WorkerCrashed
from reverie.clock import from_micros
from reverie.contract import FilePayload, MessagePayload, Outcome, Payload
from reverie.errors import Conflict, Permanent, Rejected, ReverieError, StoreUnusable, Transient
from reverie.inbox import Inbox, Taken, agent_and_id
from reverie.messages import check_payload
from reverie.types import Message
from storage.records import NewDeadLetter, NewMessage
from storage.stores import AgentRows, Store, Transaction

BATCH_ITEMS: Final = 500
# What a store that cannot be written now is given before the next try.
RELEASE_SECONDS: Final = 5.0
DEFAULT_IMPORTANCE: Final = {"user": 0.5, "assistant": 0.5, "tool": 0.3, "system": 0.1}

_decoder = msgspec.json.Decoder(MessagePayload | FilePayload)


class _Whereabouts(msgspec.Struct):
    """What is read of a payload that is at fault."""

    session: str | None = None


_whereabouts = msgspec.json.Decoder(_Whereabouts)


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


@dataclass(frozen=True, slots=True)
class _Item:
    """One taken item on its way: its payload, or the error that makes it a dead letter."""

    taken: Taken
    payload: Payload | None
    error: ReverieError | None = None

    @property
    def agent(self) -> str:
        return self.payload.agent if self.payload else agent_and_id(self.taken.field)[0]

    @property
    def id(self) -> str:
        return self.payload.id if self.payload else agent_and_id(self.taken.field)[1]


@dataclass(slots=True)
class _Written:
    """What a transaction wrote, to be told once it has committed."""

    spoken: dict[tuple[str, str], list[Message]] = field(default_factory=dict)
    accepted_at: dict[tuple[str, str], int] = field(default_factory=dict)
    doubtful: set[tuple[str, str]] = field(default_factory=set)
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)
    report: IngestReport = field(default_factory=IngestReport)

    def note(self, agent: str, item_id: str, state: Any, error: str = "") -> None:
        self.outcomes.append((agent, Outcome(id=item_id, state=state, error=error)))


def ingest_batch(
    inbox: Inbox, store: Store, working: WorkingMemory, *, now: int, limit: int = BATCH_ITEMS
) -> IngestReport:
    """Move up to `limit` items from the inbox into the database; an empty report means that nothing was due.

    Raises `StoreUnavailable` or `StoreUnusable` after giving the items back: they stay accepted.
    """
    taken = inbox.take(store.name, limit=limit)
    report = IngestReport(taken=len(taken))
    groups = list(_groups(taken))
    done, begun = 0, len(groups[0]) if groups else 0
    try:
        # Only what is in hand counts as tried: what merely lay beside it is not what kills a worker.
        inbox.count_tries(store.name, [item.field for item in taken[begun:]], -1)
        for group in groups:
            if done:
                inbox.count_tries(store.name, [item.field for item in group], 1)
                begun += len(group)
            _store_group(inbox, store, working, group, report, now)
            done += len(group)
    except (Transient, StoreUnusable):
        inbox.count_tries(store.name, [item.field for item in taken[begun:]], 1)
        inbox.release(store.name, [item.field for item in taken[done:]], delay_seconds=RELEASE_SECONDS)
        raise
    return report


def _groups(taken: Sequence[Taken]) -> Iterator[list[Taken]]:
    """What is stored together, in the order of acceptance. An item whose worker died before is stored alone: if it
    is what kills, it takes no other with it."""
    for suspect, group in groupby(taken, key=lambda item: item.tries > 1):
        if suspect:
            yield from ([item] for item in group)
        else:
            yield list(group)


def _store_group(
    inbox: Inbox, store: Store, working: WorkingMemory, taken: Sequence[Taken], report: IngestReport, now: int
) -> None:
    items = [_decode(item) for item in taken]
    try:
        written = _commit(store, items, now)
    except (Transient, StoreUnusable):
        raise
    except Permanent as error:
        if len(items) > 1:
            for item in taken:  # one of them is at fault: find it, and store the others
                _store_group(inbox, store, working, [item], report, now)
            return
        written = _commit(store, [_Item(items[0].taken, items[0].payload, error)], now)
    _tell(inbox, store, working, written)
    inbox.settle(store.name, [item.field for item in taken])
    report.add(written.report)


def _commit(store: Store, items: Sequence[_Item], now: int) -> _Written:
    written = _Written()
    with store.writing() as tx:
        for agent in dict.fromkeys(item.agent for item in items):
            mine = [item for item in items if item.agent == agent]
            _store_agent(tx, tx.for_agent(agent), mine, written, now)
    return written


def _store_agent(tx: Transaction, rows: AgentRows, items: Sequence[_Item], written: _Written, now: int) -> None:
    dead = [_dead_letter(item, item.error) for item in items if item.error is not None]
    by_session: dict[str, list[tuple[_Item, MessagePayload]]] = {}
    chats: dict[str, str] = {}
    for item in items:
        if item.error is not None:
            continue
        if isinstance(item.payload, FilePayload):
            _store_file(rows, item, item.payload, written, now)
        elif isinstance(item.payload, MessagePayload):
            by_session.setdefault(_session_id(rows, item.payload, chats), []).append((item, item.payload))
    for session_id, group in by_session.items():
        dead += _store_session(rows, session_id, group, written, now)
    tx.dead_letters.add(dead, now=now)
    written.report.dead += len(dead)
    for letter in dead:
        written.note(letter.agent, letter.item_id, "dead", letter.error)


def _store_session(
    rows: AgentRows, session_id: str, group: Sequence[tuple[_Item, MessagePayload]], written: _Written, now: int
) -> list[NewDeadLetter]:
    forgotten_at = rows.sessions.forgotten_at(session_id)
    live = [(item, payload) for item, payload in group if item.taken.accepted_at > forgotten_at]
    for _, payload in _missing(group, live):
        written.report.forgotten += 1
        written.note(payload.agent, payload.id, "forgotten")
    known = rows.messages.known(payload.id for _, payload in live)
    for _, payload in live:
        if payload.id in known:  # a second delivery; what was told of the first may have been lost with its worker
            written.report.repeated += 1
            written.doubtful.add((rows.agent, session_id))
            written.note(payload.agent, payload.id, "stored")
    if known:
        with_vectors = rows.found.index().active("vector") is not None
        for item_id in rows.messages.searchable(known, with_vectors=with_vectors):
            written.note(rows.agent, item_id, "searchable")
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
        spoken.append(_spoken(payloads[message.id], session_id, sequence, message.importance))
        written.report.traces.add(message.trace)
        written.note(message.agent, message.id, "stored")
    return dead


def _number(
    rows: AgentRows, session_row: int, last: int, fresh: Sequence[tuple[_Item, MessagePayload]]
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
            dead.append(_dead_letter(item, error))
            continue
        if payload.strict and sequence <= last:
            error = Conflict(
                f"sequence {sequence} of session {payload.session!r} comes after {last}: out of order", field="sequence"
            )
            dead.append(_dead_letter(item, error))
            continue
        taken.add(sequence)
        last = max(last, sequence)
        numbered.append((sequence, _new_message(item, payload)))
    return numbered, dead, last


def _store_file(rows: AgentRows, item: _Item, payload: FilePayload, written: _Written, now: int) -> None:
    if payload.session is not None and item.taken.accepted_at <= rows.sessions.forgotten_at(payload.session):
        written.report.forgotten += 1
        written.note(payload.agent, payload.id, "forgotten")
        return
    session_row = rows.sessions.ensure(payload.session, now=now).row_id if payload.session is not None else None
    content_hash = blake3(payload.content.encode()).digest()
    written.note(payload.agent, payload.id, "stored")
    held = rows.files.version(payload.source_uri, session_row)
    # An older version that comes late, its worker having died, must not take the place of a newer one.
    if held is not None and (held.content_hash == content_hash or held.accepted_at > item.taken.accepted_at):
        rows.files.note_seen(payload.source_uri, session_row, accepted_at=item.taken.accepted_at)
        written.report.unchanged += 1
        written.note(payload.agent, payload.id, "searchable")
        return
    row = {
        "id": payload.id,
        "content": payload.content,
        "content_hash": content_hash,
        "tags": _json(payload.tags),
        "metadata": _json(payload.metadata),
        "trace": payload.trace,
        "created_at": payload.created_at,
        "accepted_at": item.taken.accepted_at,
        "stored_at": now,
    }
    rows.files.replace(payload.source_uri, session_row, row)
    written.report.stored += 1
    written.report.traces.add(payload.trace)


def _tell(inbox: Inbox, store: Store, working: WorkingMemory, written: _Written) -> None:
    """Say what was committed. A broker that is away now will be told by the second delivery."""
    working.drop(store.name, sorted(written.doubtful))
    certain = {key: said for key, said in written.spoken.items() if key not in written.doubtful}
    working.append(store.name, certain, accepted_at=written.accepted_at)
    if inbox.anyone_waiting(store.name):
        inbox.reply(store.name, written.outcomes)


def _decode(taken: Taken) -> _Item:
    if taken.tries > MAX_CRASHES:
        return _Item(taken, None, WorkerCrashed(f"the worker died {taken.tries - 1} times while it stored this item"))
    if not taken.accepted_at:
        return _Item(taken, None, Rejected("it was not put into the inbox by Reverie: it has no time", field="payload"))
    try:
        payload = _decoder.decode(taken.payload)
        if (payload.agent, payload.id) != agent_and_id(taken.field):
            raise Rejected("the agent and id in the payload differ from those it was accepted under", field="id")
        check_payload(payload)
    except Rejected as error:
        return _Item(taken, None, error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _Item(taken, None, Rejected(f"the payload cannot be read: {error}", field="payload"))
    return _Item(taken, payload)


def _dead_letter(item: _Item, error: ReverieError) -> NewDeadLetter:
    return NewDeadLetter(
        agent=item.agent,
        session=item.payload.session if item.payload else _session_named(item.taken.payload),
        stage="ingest",
        item_id=item.id,
        payload=item.taken.payload,
        error_type=type(error).__name__,
        error=str(error),
        attempts=item.taken.tries,
        trace=item.payload.trace if item.payload else "",
    )


def _session_named(payload: bytes) -> str | None:
    """The session that a payload names which cannot be stored: forgetting that session takes its dead letters too."""
    try:
        return _whereabouts.decode(payload).session
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _session_id(rows: AgentRows, payload: MessagePayload, chats: dict[str, str]) -> str:
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
    group: Sequence[tuple[_Item, MessagePayload]], live: Sequence[tuple[_Item, MessagePayload]]
) -> list[tuple[_Item, MessagePayload]]:
    kept = {item.taken.field for item, _ in live}
    return [(item, payload) for item, payload in group if item.taken.field not in kept]


def _new_message(item: _Item, payload: MessagePayload) -> NewMessage:
    importance = payload.importance if payload.importance is not None else DEFAULT_IMPORTANCE[payload.role]
    return NewMessage(
        id=payload.id,
        agent=payload.agent,
        role=payload.role,
        name=payload.name,
        content=payload.content,
        tool_call_id=payload.tool_call_id,
        tool_name=payload.tool_name,
        tool_calls=_json(payload.tool_calls) if payload.tool_calls else None,
        token_count=payload.token_count,
        importance=importance,
        tags=_json(payload.tags),
        metadata=_json(payload.metadata),
        trace=payload.trace,
        created_at=payload.created_at,
        accepted_at=item.taken.accepted_at,
    )


def _spoken(payload: MessagePayload, session_id: str, sequence: int, importance: float) -> Message:
    return Message(
        id=payload.id,
        session=session_id,
        sequence=sequence,
        role=payload.role,
        content=payload.content,
        created_at=from_micros(payload.created_at),
        name=payload.name,
        tool_call_id=payload.tool_call_id,
        tool_name=payload.tool_name,
        tool_calls=payload.tool_calls,
        token_count=payload.token_count,
        importance=importance,
        tags=payload.tags,
        metadata=payload.metadata,
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode() if value else ("[]" if isinstance(value, list) else "{}")
