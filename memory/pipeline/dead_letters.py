"""Replay dead letters whose cause is fixed, or drop them."""

from __future__ import annotations

from typing import cast

import msgspec

from adapters.broker.inbox import WorkerInbox
from reverie.contract import INGEST_MESSAGES, PAYLOAD_VERSION, FilePayload, MessagePayload
from reverie.errors import Conflict
from storage.pipeline.records import DeadLetter
from storage.pipeline.work import Stage
from storage.stores import Store


def replay(store: Store, inbox: WorkerInbox, letter_id: int, *, agent: str | None = None) -> DeadLetter:
    """Retry the item of a dead letter from the start and remove the letter, which is returned.

    If it fails again, it becomes a dead letter with its new error. A payload is put back into the inbox before the
    letter is removed, so a crash between the two duplicates nothing. Raises `NotFound`, and `Conflict` for a payload
    that this version of Reverie cannot read or that belongs to another agent.
    """
    with store.reading() as tx:
        letter = (tx.for_agent(agent).dead_letters if agent else tx.dead_letters).get(letter_id)
    if letter.stage == "ingest":
        _accept_again(store, inbox, letter)
        with store.writing() as tx:
            tx.dead_letters.remove(
                letter
            )  # a worker may already have taken the payload and made a new dead letter of it
    else:
        with store.writing() as tx:
            tx.work.revive(cast("Stage", letter.stage), int(letter.item_id))
            if letter.stage == "embed":
                tx.chunks.set_embedding_error([int(letter.item_id)], None)
            tx.dead_letters.remove(letter)
    return letter


def drop(store: Store, letter_id: int, *, agent: str | None = None) -> DeadLetter:
    """Delete a dead letter and return it; the row it refers to (a chunk without a vector) stays as it is."""
    with store.writing() as tx:
        letters = tx.for_agent(agent).dead_letters if agent else tx.dead_letters
        letter = letters.get(letter_id)
        letters.remove(letter)
    return letter


def _accept_again(store: Store, inbox: WorkerInbox, letter: DeadLetter) -> None:
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
    # With its original time: if its session has been forgotten since, the item must not bring it back.
    inbox.accept(store.name, [payload], accepted_at=letter.created_at)
    # `accept` sets the notification flag, but it is the caller who sends the task, and claims the flag to do so.
    inbox.clear_notification(INGEST_MESSAGES, store.name)
