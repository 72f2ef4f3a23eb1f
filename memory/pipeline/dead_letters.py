"""Replay dead letters whose cause is fixed, or drop them."""

from __future__ import annotations

import time
from typing import Final, Literal, NamedTuple, cast

import msgspec

from adapters.broker.inbox import WorkerInbox
from reverie.clock import now_micros
from reverie.contract import EXTRACT_MEMORIES, INGEST_MESSAGES, PAYLOAD_VERSION, FilePayload, MessagePayload
from reverie.errors import Conflict
from storage.leases import JobLeases
from storage.memories.extraction import EXTRACT_STAGE, ExtractionProgress
from storage.pipeline.records import GOALS_STAGE, RECALLS_STAGE, DeadLetter
from storage.pipeline.work import Stage
from storage.stores import Store

# The pause between two looks for the outcome of a replay; a stage takes some 100 ms.
_PAUSE_SECONDS: Final = 0.05


class ReplayOutcome(NamedTuple):
    """The outcome of a replay, and its dead letter, with the new error if it failed again."""

    state: Literal["queued", "succeeded", "failed"]
    letter: DeadLetter


def replay(store: Store, inbox: WorkerInbox, letter_id: int, *, agent: str | None = None) -> DeadLetter:
    """Retry the item of a dead letter from the start, and return the letter.

    The letter stays until the item succeeds: ingest removes it with the item that it stores; a sweep removes letters of
    the stages. If it fails again, the letter gets the new error, and its attempts are added up. Raises `NotFound`, and
    `Conflict` for a recall, and for a payload that this version cannot read or that belongs to another agent.
    """
    letter = _read(store, letter_id, agent)
    if letter.stage == RECALLS_STAGE:
        raise Conflict(
            f"dead letter {letter.id} cannot be replayed, as the words of the recall are not kept: drop it. The caller"
            " had its results; only their record is missing",
            field="id",
        )
    if letter.stage == "ingest":
        # Forgetting a session deletes its letters. If the letter is there after this number was taken, it was not
        # forgotten before; if it is forgotten later, the number keeps the item out.
        number = inbox.next_number().value
        letter = _read(store, letter_id, agent)
        _accept_again(store, inbox, letter, number)
    elif letter.stage == GOALS_STAGE:
        with store.writing() as tx:
            tx.goal_vectors.embed_again(letter.agent, letter.item_id)
    elif letter.stage == EXTRACT_STAGE:
        ref_code, position = _read_session(letter)
        with store.writing() as tx:
            progress = ExtractionProgress(tx.connection, EXTRACT_MEMORIES)
            progress.read_again(ref_code, after=position, now=now_micros())  # by the next sweep
    else:
        with store.writing() as tx:
            tx.work.revive(cast("Stage", letter.stage), int(letter.item_id))
            if letter.stage == "embed":
                tx.chunks.set_embedding_error([int(letter.item_id)], None)
    return letter


def _read(store: Store, letter_id: int, agent: str | None) -> DeadLetter:
    with store.reading() as tx:
        return (tx.for_agent(agent).dead_letters if agent else tx.dead_letters).get(letter_id)


def _read_session(letter: DeadLetter) -> tuple[str, int]:
    """Return the ref code of the session that was not read, and the position from which it was not read."""
    ref_code, position = letter.item_id.rsplit(" ", 1)
    return ref_code, int(position)


def await_replay(store: Store, letter: DeadLetter, *, timeout_seconds: float) -> ReplayOutcome:
    """Return the outcome of a replayed letter: "queued" if it is not known after `timeout_seconds`.

    Polls the rows of the store: they show the outcome, whichever process does the work.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        outcome = _outcome(store, letter)
        if outcome.state != "queued" or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_SECONDS)
    if outcome.state == "succeeded":
        with store.writing() as tx:
            tx.dead_letters.remove(letter)
    return outcome


def _outcome(store: Store, letter: DeadLetter) -> ReplayOutcome:
    with store.reading() as tx:
        now = tx.dead_letters.find(letter.id)
        if now is not None and now != letter:
            return ReplayOutcome("failed", now)
        if letter.stage == "ingest":
            done = now is None
        elif letter.stage == GOALS_STAGE:
            done = not tx.goal_vectors.is_waiting(letter.agent, letter.item_id)
        elif letter.stage == EXTRACT_STAGE:
            ref_code, position = _read_session(letter)
            done = JobLeases(tx.connection).progress(EXTRACT_MEMORIES, ref_code) > position
        else:
            done = tx.work.is_done(cast("Stage", letter.stage), int(letter.item_id))
    return ReplayOutcome("succeeded" if done else "queued", letter)


def take_up_refused(store: Store) -> int:
    """Make workers embed refused chunks again, and remove their dead letters; return the number of chunks.

    A chunk that is refused again becomes a dead letter again.
    """
    with store.reading() as tx:
        if not tx.work.has_buried("embed"):
            return 0
    with store.writing() as tx:
        chunks = tx.work.revive_all("embed")
        tx.chunks.set_embedding_error(chunks, None)
        tx.dead_letters.remove_of_stage("embed")
    return len(chunks)


def drop(store: Store, letter_id: int, *, agent: str | None = None) -> DeadLetter:
    """Delete a dead letter and return it; the row it refers to (a chunk without a vector) stays as it is."""
    with store.writing() as tx:
        letters = tx.for_agent(agent).dead_letters if agent else tx.dead_letters
        letter = letters.get(letter_id)
        letters.remove(letter)
    return letter


def _accept_again(store: Store, inbox: WorkerInbox, letter: DeadLetter, number: int) -> None:
    try:
        payload = msgspec.json.decode(letter.payload or b"", type=MessagePayload | FilePayload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Conflict(
            f"dead letter {letter.id} cannot be read ({error}), so it cannot be replayed: drop it", field="id"
        ) from error
    if payload.v > PAYLOAD_VERSION:  # this version would lose the fields that only the newer one knows
        raise Conflict(f"dead letter {letter.id} was written by a newer Reverie: upgrade this one first", field="id")
    if payload.agent != letter.agent:
        raise Conflict(
            f"dead letter {letter.id} of agent {letter.agent!r} contains a message of agent {payload.agent!r}: drop it",
            field="id",
        )
    # A file keeps its time: an older version of it must not replace a newer one.
    accepted_at = letter.created_at if isinstance(payload, FilePayload) else number
    inbox.accept(store.name, [payload], accepted_at=accepted_at)
    # `accept` sets the notification flag, but it is the caller who sends the task, and claims the flag to do so.
    inbox.clear_notification(INGEST_MESSAGES, store.name)
