"""The messages that the stack has accepted in a scenario, and what became of them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.harness.load import verified
from benchmarks.harness.stack import WORKSPACE, Stack
from reverie.clock import new_id, now_micros
from reverie.contract import MessagePayload, WaitFor

_POLL_SECONDS = 0.1


@dataclass(slots=True)
class Outcome:
    """What was found in the databases after a scenario: counts over all of its workspaces."""

    accepted: int = 0
    lost: int = 0
    doubled: int = 0
    dead_letters: int = 0
    not_searchable: int = 0
    wrong: list[str] = field(default_factory=list)
    """Findings of `verify`, and messages whose stored text is wrong."""
    reasons: list[str] = field(default_factory=list)
    """Why dead letters were set aside."""


class Accepted:
    """Sends messages and keeps the text of each that was accepted, by workspace and id; any thread may call it."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._noted = threading.Lock()
        self._contents: dict[str, dict[str, str]] = {}

    def send(
        self,
        contents: Sequence[str],
        *,
        workspace: str = WORKSPACE,
        wait: WaitFor = "queued",
        timeout_seconds: float = 30.0,
        session: str = "s",
    ) -> list[str]:
        """Send messages in one call, as the client does, and return their ids. A text should be unique.

        Raises:
            Unavailable: they were not accepted, as far as the caller can know; they are not expected to be there.
            WaitTimeout: they were accepted, but have not reached the state `wait` yet.
        """
        payloads = [_payload(content, session) for content in contents]
        self._stack.producer(workspace).enqueue(
            payloads,
            wait=wait,
            timeout_seconds=timeout_seconds,
            on_accepted=lambda: self.note(workspace, payloads),
        )
        return [payload.id for payload in payloads]

    def note(self, workspace: str, payloads: Iterable[MessagePayload]) -> None:
        """Record messages that something else has sent and that were accepted."""
        with self._noted:
            self._contents.setdefault(workspace, {}).update((payload.id, payload.content) for payload in payloads)

    def all_searchable(self) -> bool:
        """Return whether every accepted message is searchable or a dead letter, in every workspace."""
        for workspace, contents in self._copy().items():
            with self._stack.watch(workspace) as watch:
                done = {row.id for row in watch.searchable()}
                done |= {str(row[0]) for row in watch.rows("SELECT item_id FROM dead_letters")}
                if contents.keys() - done or watch.waiting():
                    return False
        return True

    def await_searchable(self, timeout_seconds: float) -> float | None:
        """Return after how many seconds everything was searchable; None if it was not in time."""
        started = time.monotonic()
        while not self.all_searchable():
            if time.monotonic() - started > timeout_seconds:
                return None
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - started

    def outcome(self) -> Outcome:
        """Compare the databases with what was accepted."""
        found = Outcome()
        for workspace, contents in self._copy().items():
            self._compare(workspace, contents, found)
        return found

    def _compare(self, workspace: str, contents: dict[str, str], found: Outcome) -> None:
        with self._stack.watch(workspace) as watch:
            rows = watch.rows("SELECT id, content FROM messages")
            searchable = {row.id for row in watch.searchable()}
            dead = watch.rows("SELECT item_id, stage, error_type, error FROM dead_letters")
        stored = {str(item_id) for item_id, _ in rows}
        set_aside = {str(row[0]) for row in dead}
        sent = Counter(contents.values())
        kept = Counter(content for item_id, content in rows if str(item_id) in contents)
        found.accepted += len(contents)
        found.lost += len(contents.keys() - stored - set_aside)
        found.doubled += len(rows) - len(stored) + (kept - sent).total()
        found.dead_letters += len(dead)
        found.not_searchable += len((contents.keys() & stored) - searchable - set_aside)
        changed = sum(1 for item_id, content in rows if contents.get(str(item_id), content) != content)
        found.wrong += [f"{workspace}: {changed} messages are not what was sent"] if changed else []
        found.reasons += sorted({f"{workspace}: {stage}: {kind}: {error}" for _, stage, kind, error in dead})[:5]
        if rows:
            # A store that was never made has nothing to verify.
            found.wrong += [f"{workspace}: {line}" for line in verified(self._stack, workspace)]

    def _copy(self) -> dict[str, dict[str, str]]:
        with self._noted:
            return {workspace: dict(contents) for workspace, contents in self._contents.items()}


def _payload(content: str, session: str) -> MessagePayload:
    return MessagePayload(
        id=new_id(), agent="bench", session=session, role="user", content=content, created_at=now_micros(),
        trace="fault",
    )  # fmt: skip
