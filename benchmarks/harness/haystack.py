"""Conversations to search in: sent by the public client, waited for, and queried.

In every data set, each agent's part is a haystack, and goes through the product like any agent's messages.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from benchmarks.harness.progress import Progress
from benchmarks.harness.stack import Stack
from benchmarks.harness.watch import Watch
from reverie import Reverie
from reverie.contract import MAX_MESSAGES_PER_CALL

# Enough that the pipeline never waits for the next batch; more would only cost processor time.
_PRODUCERS: Final = 4
_ASKERS: Final = 2
_LOOK_SECONDS: Final = 0.25
# Loading the model, the slowest step, takes seconds: without progress for this time something is broken.
_STUCK_SECONDS: Final = 120.0
_CALL_SECONDS: Final = 60.0
_BAR_CHARACTERS: Final = 24

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class DatasetMessage:
    """One message of a data set. Without `created_at` it gets the time at which it is sent."""

    id: str
    session: str
    role: str
    content: str
    name: str | None = None
    created_at: datetime | None = None

    def as_message(self) -> dict[str, Any]:
        """Return the message as the client takes it."""
        required = {"id": self.id, "role": self.role, "content": self.content}
        optional = {"name": self.name, "created_at": self.created_at}
        return {**required, **{key: value for key, value in optional.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class Haystack:
    """All messages of one agent."""

    agent: str
    messages: Sequence[DatasetMessage]

    def by_session(self) -> dict[str, list[DatasetMessage]]:
        """Return the messages by session, in order."""
        sessions: dict[str, list[DatasetMessage]] = defaultdict(list)
        for message in self.messages:
            sessions[message.session].append(message)
        return sessions


def client_of(stack: Stack, agent: str, workspace: str) -> Reverie:
    """Return a public client of one agent: it enqueues at the broker and recalls over HTTP."""
    return Reverie(agent, url=stack.url, broker=stack.broker_url, workspace=workspace, timeout_seconds=_CALL_SECONDS)


def take_up(stack: Stack, workspace: str, haystacks: Sequence[Haystack], tell: Progress) -> float:
    """Send everything through the queue and wait until all of it is searchable. Return the seconds taken.

    Raises RuntimeError: if a message is rejected. Raises TimeoutError: if there is no progress for two minutes.
    """
    started = time.monotonic()
    count = sum(len(haystack.messages) for haystack in haystacks)
    with ThreadPoolExecutor(max_workers=_PRODUCERS) as pool:
        handed = [pool.submit(_hand_over, stack, workspace, haystack) for haystack in haystacks]
        with stack.watch(workspace) as watch:
            _wait_searchable(watch, count, tell)
        for call in handed:
            call.result()
    return time.monotonic() - started


def ask(
    stack: Stack,
    workspace: str,
    questions: Sequence[tuple[str, _Question]],
    call: Callable[[Reverie, _Question], _Answer],
    tell: Progress,
) -> list[_Answer]:
    """Put each question through `call`, with its agent. Return the answers in the order of the questions."""
    clients = {agent: client_of(stack, agent, workspace) for agent in dict.fromkeys(agent for agent, _ in questions)}
    try:
        with ThreadPoolExecutor(max_workers=_ASKERS) as pool:
            asked = [pool.submit(call, clients[agent], question) for agent, question in questions]
            answers = []
            for number, answer in enumerate(asked, 1):
                answers.append(answer.result())
                tell(f"{workspace}: asked {_bar(number, len(asked))}")
            return answers
    finally:
        for client in clients.values():
            client.close()


def _hand_over(stack: Stack, workspace: str, haystack: Haystack) -> None:
    with client_of(stack, haystack.agent, workspace) as client:
        for session, messages in haystack.by_session().items():
            for start in range(0, len(messages), MAX_MESSAGES_PER_CALL):
                batch: list[Any] = [message.as_message() for message in messages[start : start + MAX_MESSAGES_PER_CALL]]
                receipt = client.ingest(session, batch)
                if receipt.rejected:
                    raise RuntimeError(f"session {session} of {haystack.agent}: {receipt.rejected[0].error}")


def _wait_searchable(watch: Watch, count: int, tell: Progress) -> None:
    started = moved = time.monotonic()
    before = (-1, -1)
    while True:
        state = (watch.messages(), watch.waiting())
        stored, waiting = state
        if stored >= count and not waiting:
            return
        now = time.monotonic()
        if state != before:
            before, moved = state, now
        elif now - moved > _STUCK_SECONDS:
            raise TimeoutError(
                f"{stored:,} of {count:,} messages stored, {waiting:,} rows waiting, without progress for"
                f" {_STUCK_SECONDS:g} s"
            )
        chunks, indexed = _chunks(watch)
        tell(f"stored {_bar(stored, count)} searchable {_bar(indexed, max(chunks, 1))} {now - started:,.0f} s")
        time.sleep(_LOOK_SECONDS)


def _chunks(watch: Watch) -> tuple[int, int]:
    """How many chunks there are, and how many of them are in the vector index."""
    # The highest id serves as a count here, and is found at once; partial indexes count what waits.
    chunks = watch.number("SELECT coalesce(max(id), 0) FROM chunks")
    waiting = watch.number(
        "SELECT (SELECT count(*) FROM chunks WHERE embedded_at IS NULL)"
        " + (SELECT count(*) FROM chunks WHERE embedded_at IS NOT NULL AND indexed_at IS NULL)"
    )
    return chunks, max(0, chunks - waiting)


def _bar(done: int, whole: int) -> str:
    full = _BAR_CHARACTERS * min(done, whole) // whole if whole else _BAR_CHARACTERS
    return f"[{'#' * full}{'.' * (_BAR_CHARACTERS - full)}] {done:,} of {whole:,}"
