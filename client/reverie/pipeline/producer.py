"""The producer: puts payloads into the inbox, notifies the workers, and waits for outcomes on request.

It runs in the process of an agent: Celery is imported only when the first task is sent, and its app never becomes
the current app of that process.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from reverie import contract
from reverie.clock import new_id
from reverie.contract import Outcome, Payload, WaitFor
from reverie.counts import counted
from reverie.errors import Unavailable, WaitTimeout
from reverie.parts import in_parts
from reverie.pipeline.broker import celery_class, celery_settings, celery_url, connect, within
from reverie.pipeline.inbox import Inbox

if TYPE_CHECKING:
    import redis

# One script call blocks the broker while it runs: a few milliseconds at this size.
_BATCH_ITEMS = 500
_BATCH_BYTES = 4 * 1024 * 1024
# After so long without an outcome, a producer checks whether the broker still knows that it waits, and whether a task
# was sent. Longer than `NOTIFYING_SECONDS`, when the flag of a killed sender has expired.
_ASK_SECONDS = 2.5
_PAUSE_SECONDS = 0.2


def _nothing() -> None:
    return


class TaskSender:
    """Sends tasks to the workers: a workspace and ids, never content."""

    def __init__(self, broker_url: str, *, prefix: str) -> None:
        self._broker_url = broker_url
        self._prefix = prefix
        self._app: Any = None
        self._lock = threading.Lock()

    def send(self, task_name: str, *, workspace: str | None = None, trace: str = "", **arguments: str | bool) -> None:
        """Send one task, of a workspace or of all. Raises `Unavailable`; no work is lost then, the sweeps find it."""
        from kombu.exceptions import OperationalError

        named = {} if workspace is None else {"workspace": workspace}
        try:
            self._celery().send_task(
                task_name,
                kwargs={**named, **arguments},
                headers={contract.TRACE_HEADER: trace, contract.SENT_AT_HEADER: f"{time.time():.3f}"},
                retry=False,
            )
        except (OperationalError, OSError) as error:
            raise Unavailable(f"the broker did not accept the task ({error})") from error

    def prepare(self) -> None:
        """Import and configure Celery, once. This takes a quarter of a second: call it before accepting payloads."""
        self._celery()

    def _celery(self) -> Any:
        with self._lock:
            if self._app is None:
                app = celery_class()("reverie-producer", broker=celery_url(self._broker_url), set_as_current=False)
                app.conf.update(celery_settings(self._prefix))
                self._app = app
            return self._app


class Producer:
    """Enqueues payloads for one workspace. Safe to share between threads and to use after a fork."""

    def __init__(
        self,
        broker_url: str,
        *,
        workspace: str = contract.DEFAULT_WORKSPACE,
        prefix: str = contract.DEFAULT_PREFIX,
        broker: redis.Redis | None = None,
        keys: Sequence[bytes] = (),
        inbox: Inbox | None = None,
        task_sender: TaskSender | None = None,
    ) -> None:
        self.workspace = workspace
        self._inbox = inbox or Inbox(broker or connect(broker_url), prefix=prefix, keys=keys)
        self._task_sender = task_sender or TaskSender(broker_url, prefix=prefix)

    def enqueue(
        self,
        payloads: Sequence[Payload],
        *,
        wait: WaitFor = "queued",
        timeout_seconds: float = 30.0,
        on_accepted: Callable[[], None] = _nothing,
    ) -> list[Outcome]:
        """Put payloads into the inbox; with `wait`, return their outcomes once all are stored or searchable.

        Sending the same ids again changes nothing. `on_accepted` is called when all are in the inbox. Raises
        `Unavailable` (with the ids that may not have been accepted), `QuotaExceeded`, and `WaitTimeout` (all are
        accepted, but some did not reach the state in time).
        """
        reply_to = new_id() if wait != "queued" else ""
        if payloads:
            # Before anything is accepted: a producer killed between accepting and notifying leaves the work to a sweep.
            self._task_sender.prepare()
        done = 0
        for batch in _batches(payloads):
            try:
                with within(timeout_seconds):
                    _, notify = self._inbox.accept(self.workspace, batch, reply_to=reply_to, wait=wait)
            except Unavailable as error:
                unconfirmed = tuple(payload.id for payload in payloads[done:])
                raise type(error)(str(error), unconfirmed=unconfirmed) from None
            done += len(batch)
            if notify:
                self._notify(batch[0].trace)
        on_accepted()
        if wait == "queued":
            return []
        return self._await(payloads, reply_to, wait, timeout_seconds)

    def _notify(self, trace: str) -> None:
        # The payloads are safe by now and the sweep finds them: a failed notification must not fail the call.
        with contextlib.suppress(Unavailable):
            self._task_sender.send(contract.INGEST_MESSAGES, workspace=self.workspace, trace=trace)
            self._inbox.confirm_notification(contract.INGEST_MESSAGES, self.workspace)

    def _await(
        self, payloads: Sequence[Payload], reply_to: str, wait: WaitFor, timeout_seconds: float
    ) -> list[Outcome]:
        accepted = tuple(payload.id for payload in payloads)
        missing = set(accepted)
        outcomes: dict[str, Outcome] = {}
        deadline = time.monotonic() + timeout_seconds
        why = ""
        while missing:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise WaitTimeout(
                    f"accepted but not {wait} after {timeout_seconds:g} s: {len(missing):,} of"
                    f" {counted(len(accepted), 'item')}; {why or 'are the workers running'}? See `reverie status`",
                    accepted=accepted,
                )
            try:
                replies = self._inbox.wait_reply(reply_to, min(remaining, _ASK_SECONDS))
                if not replies:
                    self._send_again([one for one in payloads if one.id in missing], reply_to, wait)
                why = ""
            except Unavailable as error:  # they are accepted: the broker may be back in time
                why, replies = f"the broker is or was away ({error})", []
                time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))
            outcomes.update((outcome.id, outcome) for outcome in replies)
            missing -= outcomes.keys()
        return [outcomes[item_id] for item_id in dict.fromkeys(accepted)]

    def _send_again(self, payloads: Sequence[Payload], reply_to: str, wait: WaitFor) -> None:
        """Send the payloads again if the broker does not know that somebody waits for them: it has lost its content.

        If it knows, only the task may have been lost, so only the task is sent again.
        """
        if self._inbox.is_awaited(self.workspace, payloads[0], reply_to):
            # The other payloads are awaited, too, except in the moment before they are answered.
            if self._inbox.claim_notification(contract.INGEST_MESSAGES, self.workspace):
                self._notify(payloads[0].trace)
            return
        lost = [payload for payload in payloads if not self._inbox.is_awaited(self.workspace, payload, reply_to)]
        for batch in _batches(lost):
            if self._inbox.accept(self.workspace, batch, reply_to=reply_to, wait=wait)[1]:
                self._notify(batch[0].trace)


def _batches(payloads: Sequence[Payload]) -> Iterator[list[Payload]]:
    return in_parts(((payload, _weight(payload)) for payload in payloads), most=_BATCH_ITEMS, size=_BATCH_BYTES)


def _weight(payload: Payload) -> int:
    weight = len(payload.content) + len(getattr(payload, "original", None) or "") + 512
    if payload.metadata or getattr(payload, "tool_calls", None):
        weight += len(msgspec.json.encode(payload))
    return weight
