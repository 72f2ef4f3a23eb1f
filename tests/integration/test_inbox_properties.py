"""Random steps of producers, workers, clocks and failures on an inbox, against a model with a dictionary or two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import uuid4

import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from adapters.broker.inbox import Taken, WorkerInbox
from adapters.broker.inbox_scripts import REMOVE_WAITING
from reverie.clock import new_id
from reverie.contract import MessagePayload, Outcome
from reverie.errors import InboxFull, Unavailable
from reverie.pipeline.calls import InboxLimits
from reverie.pipeline.inbox import inbox_field, parse_inbox_field
from support.properties import for_steps

W = "w"
IDS = [f"m{number}" for number in range(6)]
MOST = 5
HOUR = 3_600_000_000


def payload(item_id: str) -> MessagePayload:
    return MessagePayload(id=item_id, agent="ana", session="s", role="user", content=item_id, created_at=1, trace="t")


class Worker:
    """A worker with what it holds, as far as it knows, and what of that it has committed."""

    def __init__(self, broker: redis.Redis, prefix: str) -> None:
        self.inbox = WorkerInbox(broker, prefix=prefix)
        self.held: list[Taken] = []
        self.begun = False
        self.committed = False


class InboxMachine(RuleBasedStateMachine):
    """An item is accepted once, held by one worker, leaves only after its commit, and whoever waits is told."""

    broker: ClassVar[redis.Redis]
    settled: ClassVar[int] = 0
    """How many items workers have handed back as stored, in all runs."""

    def __init__(self) -> None:
        super().__init__()
        self.prefix = f"p{uuid4().hex[:10]}:"
        self.producer = WorkerInbox(self.broker, prefix=self.prefix)
        self.producer.set_limits(InboxLimits(workspace_items=MOST))
        self.workers = [Worker(self.broker, self.prefix) for _ in range(2)]
        self.waiting: set[str] = set()
        """What the inbox has to hold."""
        self.stored: dict[str, int] = {}
        """The database: the number under which each item was committed."""
        self.forgotten_up_to = 0
        self.lapsed = False
        """Whether the leases that were given have ended."""
        self.replies: dict[str, str] = {}
        """The reply lists of producers that wait for `stored`, with their item."""

    def teardown(self) -> None:
        """All that is in the inbox can be stored in the end, and everybody who waits is told."""
        self.lease_ends()
        worker = Worker(self.broker, self.prefix)
        self.broker.delete(self.name(":pause"))
        while self.waiting:
            worker.held = worker.inbox.take(W, limit=10)
            assert worker.held, f"{self.waiting} cannot be taken"
            self.finish(worker)
        for reply, item in self.replies.items():
            key = f"{self.prefix}reply:{reply}"
            assert self.broker.llen(key) >= 1, f"nobody told who waits for {item}"
        assert self.producer.totals()[:2] == (0, 0)
        keys = self.broker.keys(f"{self.prefix}*")
        if keys:
            self.broker.delete(*keys)

    def name(self, suffix: str = "") -> str:
        return f"{self.prefix}inbox:{W}{suffix}"

    # --- producers ---

    @rule(ids=st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True), waits=st.booleans())
    def accept(self, ids: list[str], waits: bool) -> None:
        new = set(ids) - self.waiting
        reply = new_id() if waits else ""
        try:
            added, _ = self.producer.accept(W, [payload(one) for one in ids], reply_to=reply, wait="stored")
        except InboxFull:
            assert len(self.waiting) + len(new) > MOST
            return
        assert added == len(new)
        assert len(self.waiting | new) <= MOST or not new
        self.waiting |= new
        if waits:
            self.replies.update({f"{reply}": ids[0]})

    @rule()
    def forget(self) -> None:
        """What was accepted so far is not to be stored; what is stored is deleted."""
        self.forgotten_up_to = self.producer.next_number().value
        self.stored.clear()

    @rule(item=st.sampled_from(IDS))
    def purge(self, item: str) -> None:
        """An erasure removes what no worker holds."""
        field = inbox_field(payload(item))
        held = self.broker.zscore(self.name(":taken"), field) is not None
        keys = [self.name(suffix) for suffix in ("", ":due", ":taken", ":tries")]
        keys += [f"{self.prefix}inboxes", f"{self.prefix}inboxes:state"]
        removed = self.broker.eval(REMOVE_WAITING, len(keys), *keys, W, field)
        assert bool(removed) == (item in self.waiting and not held)
        if removed:
            self.waiting.discard(item)
            self.producer.reply(W, [(field, Outcome(id=item, state="forgotten"))])

    # --- workers ---

    @rule(number=st.integers(0, 1), limit=st.integers(1, 4))
    def take(self, number: int, limit: int) -> None:
        worker = self.workers[number]
        if worker.held:
            return
        taken_by_others = self.broker.zcard(self.name(":taken")) and not self.lapsed and not worker.inbox._owed
        worker.held = worker.inbox.take(W, limit=limit)
        worker.begun = worker.committed = False
        assert not (taken_by_others and worker.held), "one worker at a time"
        self.lapsed = self.lapsed and not worker.held
        numbers = [item.accepted_at for item in worker.held]
        assert numbers == sorted(numbers)

    @rule(number=st.integers(0, 1), answered=st.booleans())
    def begin(self, number: int, answered: bool) -> None:
        worker = self.workers[number]
        if not worker.held or worker.begun:
            return
        mine = self.holds(worker)
        assert worker.inbox.begin(W, worker.held) is mine
        self.lapsed = self.lapsed and not mine
        if not mine:
            worker.held = []
        elif answered:
            worker.begun = True
        else:  # the broker hung: the worker gives up, and does not know whether it was counted
            worker.inbox.release(W, worker.held, delay_seconds=0, begun=worker.held)
            worker.held = []

    @rule(number=st.integers(0, 1))
    def commit(self, number: int) -> None:
        worker = self.workers[number]
        if worker.begun and not worker.committed:
            self.store(worker.held)
            worker.committed = True

    @rule(number=st.integers(0, 1), limit=st.integers(1, 4))
    def work_up_to_the_commit(self, number: int, limit: int) -> None:
        """The usual way in one step: what goes wrong does so before or after it."""
        self.take(number, limit)
        self.begin(number, answered=True)
        self.commit(number)

    @rule(number=st.integers(0, 1))
    def settle(self, number: int) -> None:
        worker = self.workers[number]
        if worker.committed:
            self.finish(worker)

    @rule(number=st.integers(0, 1), begun=st.booleans())
    def release(self, number: int, begun: bool) -> None:
        worker = self.workers[number]
        if worker.held:
            worker.inbox.release(W, worker.held, delay_seconds=0, begun=worker.held if begun and worker.begun else ())
            worker.held, worker.begun, worker.committed = [], False, False

    @rule(number=st.integers(0, 1))
    def die(self, number: int) -> None:
        self.workers[number] = Worker(self.broker, self.prefix)

    # --- time and failures ---

    @rule()
    def lease_ends(self) -> None:
        fields = self.broker.zrange(self.name(":taken"), 0, -1)
        if fields:
            self.broker.zadd(self.name(":taken"), {field: number for number, field in enumerate(fields)})
            self.lapsed = True

    @rule()
    @precondition(lambda self: self.waiting)
    def clock_is_set_back(self) -> None:
        """From now on the clock is behind the numbers, and behind the end of each lease."""
        self.producer.next_number()
        self.broker.hincrby(f"{self.prefix}inboxes:state", "number", HOUR)
        for field in self.broker.zrange(self.name(":taken"), 0, -1):
            self.broker.zincrby(self.name(":taken"), HOUR, field)
            self.lapsed = True

    @rule(number=st.integers(0, 1))
    def broker_does_not_answer_a_take(self, number: int) -> None:
        worker = self.workers[number]
        if worker.held:
            return
        run: Callable[..., Any] = worker.inbox._run

        def silent(*arguments: Any) -> None:
            run(*arguments)
            raise Unavailable("no answer")

        worker.inbox._run = silent  # type: ignore[method-assign]
        with pytest.raises(Unavailable):
            worker.inbox.take(W, limit=4)
        worker.inbox._run = run  # type: ignore[method-assign]

    # --- what holds at all times ---

    @invariant()
    def each_item_is_in_one_place(self) -> None:
        fields = {inbox_field(payload(item)).encode() for item in self.waiting}
        items = self.broker.hgetall(self.name())
        due, taken = (set(self.broker.zrange(self.name(part), 0, -1)) for part in (":due", ":taken"))
        assert set(items) == fields
        assert due | taken == fields
        assert not due & taken
        totals = self.producer.totals()
        assert totals[:2] == (len(items), sum(len(field) + len(value) for field, value in items.items()))
        assert bool(items) == (W in self.producer.workspaces()) or not items

    # --- the model's worker ---

    def holds(self, worker: Worker) -> bool:
        token = self.broker.get(self.name(":holder"))
        return bool(worker.held) and token == worker.held[0].token.encode()

    def store(self, items: list[Taken]) -> None:
        for item in items:
            if item.accepted_at > self.forgotten_up_to:
                self.stored.setdefault(parse_inbox_field(item.field).id, item.accepted_at)

    def finish(self, worker: Worker) -> None:
        self.store([] if worker.committed else worker.held)
        mine = self.holds(worker)
        held = set(self.broker.zrange(self.name(":taken"), 0, -1))
        outcomes = {item.field: Outcome(id=parse_inbox_field(item.field).id, state="stored") for item in worker.held}
        assert worker.inbox.settle(W, worker.held, outcomes).awaited == ()
        for item in worker.held:
            if mine and item.field in held:
                name = parse_inbox_field(item.field).id
                self.waiting.discard(name)
                assert name in self.stored or item.accepted_at <= self.forgotten_up_to, f"{name} is lost"
        type(self).settled += len(worker.held)
        worker.held, worker.begun, worker.committed = [], False, False


def test_random_steps_lose_nothing_double_nothing_and_tell_everybody(valkey_url: str) -> None:
    """Given random steps, then each item stays until its commit, in one place, and no producer waits for ever."""
    with redis.Redis.from_url(valkey_url) as broker:
        InboxMachine.broker = broker
        run_state_machine_as_test(InboxMachine, settings=for_steps())
    assert InboxMachine.settled > 0
