"""The payloads of one `ingest` call, and its receipt with the accepted ids and the rejections.

Shared by the client and the HTTP server, so that both behave in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from reverie.contract import Outcome, Payload, WaitFor
from reverie.errors import Rejected, Rejection
from reverie.pipeline.items import SessionInput, build_messages
from reverie.pipeline.types import Receipt

if TYPE_CHECKING:
    from reverie.pipeline.producer import Producer

_NOT_STORED = {
    "dead": "it became a dead letter",
    "forgotten": "its session was forgotten after it was accepted: it was not stored",
}


@dataclass(frozen=True, slots=True)
class Submission:
    """The items of one call: valid payloads with their indexes in the call, and rejections of the others."""

    payloads: tuple[Payload, ...]
    indexes: tuple[int, ...]
    rejected: tuple[Rejection, ...]
    trace: str

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of the payloads."""
        return tuple(payload.id for payload in self.payloads)

    def part(self, start: int, end: int) -> Submission:
        """Return the payloads from `start` to `end` as a submission that keeps their indexes in the call."""
        return Submission(self.payloads[start:end], self.indexes[start:end], (), self.trace)

    def receipt(self, state: WaitFor, outcomes: Iterable[Outcome] = ()) -> Receipt:
        """Return the receipt of the call. Raises `Rejected` if there were items and all of them were rejected."""
        by_id = {outcome.id: outcome for outcome in outcomes}
        accepted: list[str] = []
        rejected = list(self.rejected)
        for index, payload in zip(self.indexes, self.payloads, strict=True):
            outcome = by_id.get(payload.id)
            if outcome is not None and outcome.state in _NOT_STORED:
                error = outcome.error or f"message {payload.id}: {_NOT_STORED[outcome.state]}"
                rejected.append(Rejection(index=index, field="", error=error))
            else:
                accepted.append(payload.id)
        degraded = next((outcome.degraded for outcome in by_id.values() if outcome.degraded), "")
        return checked_receipt(state, accepted, rejected, trace=self.trace, degraded=degraded)


def prepare_messages(messages: object, *, agent: str, session_input: SessionInput, trace: str) -> Submission:
    """Check a call's messages, a list or a single one. Raises `Rejected` if all of them are invalid."""
    items = [messages] if isinstance(messages, Mapping) else messages
    payloads, rejected = build_messages(items, agent=agent, session_input=session_input, trace=trace)
    if rejected and not payloads:
        raise _all_rejected(rejected)
    invalid = {rejection.index for rejection in rejected}
    indexes = tuple(index for index in range(len(payloads) + len(rejected)) if index not in invalid)
    return Submission(tuple(payloads), indexes, tuple(rejected), trace)


def single(payload: Payload) -> Submission:
    """Return the submission of one payload."""
    return Submission((payload,), (0,), (), payload.trace)


def enqueue(
    producer: Producer,
    submission: Submission,
    *,
    wait: WaitFor,
    timeout_seconds: float,
    on_accepted: Callable[[], None] = lambda: None,
) -> Receipt:
    """Enqueue a submission and return its receipt; `on_accepted` is called when all of it is in the inbox.

    Raises `Unavailable`, `WaitTimeout`, `QuotaExceeded`, and `Rejected` if nothing was stored.
    """
    outcomes = producer.enqueue(
        submission.payloads, wait=wait, timeout_seconds=timeout_seconds, on_accepted=on_accepted
    )
    return submission.receipt(wait, outcomes)


def checked_receipt(
    state: WaitFor, accepted: list[str], rejected: list[Rejection], *, trace: str, degraded: str = ""
) -> Receipt:
    """Return a receipt with rejections in the order of the call. Raises `Rejected` if nothing was accepted."""
    rejected = sorted(rejected, key=lambda rejection: rejection.index)
    if rejected and not accepted:
        raise _all_rejected(rejected)
    return Receipt(state=state, accepted=accepted, rejected=rejected, trace=trace, degraded=degraded)


def split_submission(submission: Submission, *, max_items: int, max_bytes: int) -> Iterator[Submission]:
    """Split a submission into parts of bounded size, as JSON; one item is never split."""
    start = 0
    size = 0
    for index, payload in enumerate(submission.payloads):
        payload_size = len(msgspec.json.encode(payload))
        if index > start and (index - start >= max_items or size + payload_size > max_bytes):
            yield submission.part(start, index)
            start, size = index, 0
        size += payload_size
    if start < len(submission.payloads):
        yield submission.part(start, len(submission.payloads))


def _all_rejected(rejected: list[Rejection]) -> Rejected:
    first = rejected[0]
    more = f" (all {len(rejected)} messages are invalid; this is the first error)" if len(rejected) > 1 else ""
    return Rejected(first.error + more, field=first.field, items=tuple(rejected))
