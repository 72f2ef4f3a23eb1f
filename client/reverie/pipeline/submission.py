"""One call of `ingest` on its way: what of it can be accepted, and the receipt that says what became of it.

The client and the HTTP server both go through here, so both keep one contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reverie.contract import Outcome, Payload, WaitFor
from reverie.errors import Rejected, Rejection
from reverie.pipeline.items import SessionInput, build_messages
from reverie.types import Receipt

if TYPE_CHECKING:
    from reverie.pipeline.producer import Producer

_LOST = {
    "dead": "it became a dead letter",
    "forgotten": "its session was forgotten after it was accepted: it was not stored",
}


@dataclass(frozen=True, slots=True)
class Submission:
    """The items of one call: payloads with their places in the call, and what was at fault."""

    payloads: tuple[Payload, ...]
    places: tuple[int, ...]
    rejected: tuple[Rejection, ...]
    trace: str

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of what can be accepted."""
        return tuple(payload.id for payload in self.payloads)

    def part(self, start: int, end: int) -> Submission:
        """A stretch of the payloads, as a submission of its own that keeps their places in the call."""
        return Submission(self.payloads[start:end], self.places[start:end], (), self.trace)

    def receipt(self, state: WaitFor, outcomes: Iterable[Outcome] = ()) -> Receipt:
        """What to tell the caller. Raises `Rejected` when there were items and all of them are at fault."""
        told = {outcome.id: outcome for outcome in outcomes}
        accepted: list[str] = []
        rejected = list(self.rejected)
        for place, payload in zip(self.places, self.payloads, strict=True):
            outcome = told.get(payload.id)
            if outcome is not None and outcome.state in _LOST:
                error = outcome.error or f"message {payload.id}: {_LOST[outcome.state]}"
                rejected.append(Rejection(index=place, field="", error=error))
            else:
                accepted.append(payload.id)
        degraded = next((outcome.degraded for outcome in told.values() if outcome.degraded), "")
        return checked_receipt(state, accepted, rejected, trace=self.trace, degraded=degraded)


def prepare_messages(messages: object, *, agent: str, where: SessionInput, trace: str) -> Submission:
    """Check a call's messages: a list of them, or a single one. Raises `Rejected` when all of them are at fault."""
    items = [messages] if isinstance(messages, Mapping) else messages
    payloads, rejected = build_messages(items, agent=agent, where=where, trace=trace)
    if rejected and not payloads:
        raise _all_rejected(rejected)
    at_fault = {rejection.index for rejection in rejected}
    places = tuple(place for place in range(len(payloads) + len(rejected)) if place not in at_fault)
    return Submission(tuple(payloads), places, tuple(rejected), trace)


def single(payload: Payload) -> Submission:
    """A call with one payload."""
    return Submission((payload,), (0,), (), payload.trace)


def enqueue(producer: Producer, submission: Submission, *, wait: WaitFor, timeout_seconds: float) -> Receipt:
    """Hand a submission to the broker. Raises `Unavailable`, `WaitTimeout`, and `Rejected` when nothing was stored."""
    outcomes = producer.enqueue(submission.payloads, wait=wait, timeout_seconds=timeout_seconds)
    return submission.receipt(wait, outcomes)


def checked_receipt(
    state: WaitFor, accepted: list[str], rejected: list[Rejection], *, trace: str, degraded: str = ""
) -> Receipt:
    """A receipt with its rejections in the order of the call. Raises `Rejected` when nothing was accepted."""
    rejected = sorted(rejected, key=lambda rejection: rejection.index)
    if rejected and not accepted:
        raise _all_rejected(rejected)
    return Receipt(state=state, accepted=accepted, rejected=rejected, trace=trace, degraded=degraded)


def parts(submission: Submission, *, most_items: int, most_bytes: int) -> Iterator[Submission]:
    """Cut a submission into stretches of bounded size; one item is never cut."""
    start = 0
    size = 0
    for place, payload in enumerate(submission.payloads):
        weight = len(payload.content) + 1_024
        if place > start and (place - start >= most_items or size + weight > most_bytes):
            yield submission.part(start, place)
            start, size = place, 0
        size += weight
    if start < len(submission.payloads):
        yield submission.part(start, len(submission.payloads))


def _all_rejected(rejected: list[Rejection]) -> Rejected:
    first = rejected[0]
    more = f" (all {len(rejected)} messages are at fault; this is the first)" if len(rejected) > 1 else ""
    return Rejected(first.error + more, field=first.field, items=tuple(rejected))
