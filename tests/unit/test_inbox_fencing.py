"""Workers that were slow, brokers that did not answer, clocks that were set back: nothing is lost, doubled or left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.broker.inbox import LEASE_SECONDS, WorkerInbox
from memory.pipeline.incoming import decode
from memory.pipeline.ingest import drain_inbox, ingest_batch
from memory.pipeline.recovery import recover_inbox
from memory.pipeline.storing import store_items
from memory.sessions.sessions import newest_messages
from memory.stage import MAX_CRASHES
from reverie.contract import INGEST_MESSAGES, Outcome
from reverie.errors import InboxFull, Unavailable
from reverie.pipeline.calls import InboxLimits
from reverie.pipeline.inbox import inbox_field
from support.pipeline import WORKSPACE, Pipeline, turns

HOUR = 3_600 * 1_000_000


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with nothing in it."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the broker stands still: what lasts for seconds does not end while a slow machine pauses."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)


def key(pipe: Pipeline, suffix: str) -> str:
    return f"{pipe.prefix}inbox:{WORKSPACE}{suffix}"


def set_clock_back(pipe: Pipeline, micros: int = HOUR) -> None:
    """Have everything in the broker look as if its clock had been ahead until now."""
    number = int(pipe.broker.hget(f"{pipe.prefix}inboxes:state", "number") or pipe.inbox.now_micros())
    pipe.broker.hset(f"{pipe.prefix}inboxes:state", "number", number + micros)


def as_if_before(pipe: Pipeline, micros: int = HOUR) -> None:
    """Have the items in the inbox look as if they were accepted before the clock was set back."""
    for field, value in pipe.broker.hgetall(key(pipe, "")).items():
        stamp, _, rest = value.partition(b" ")
        pipe.broker.hset(key(pipe, ""), field, b"%d %s" % (int(stamp) + micros, rest))
        pipe.broker.zadd(key(pipe, ":due"), {field: int(stamp) + micros})


def test_a_slow_worker_gives_back_nothing_that_another_one_holds(pipe: Pipeline) -> None:
    """Given a worker whose lease ended, when it releases or settles, then the items stay with the next worker."""
    pipe.say("one", "two")
    slow = pipe.inbox.take(WORKSPACE, limit=10)
    assert pipe.inbox.begin(WORKSPACE, slow)
    pipe.lose_worker()
    other = WorkerInbox(pipe.broker, prefix=pipe.prefix)
    held = other.take(WORKSPACE, limit=10)
    assert [item.tries for item in held] == [2, 2]
    pipe.inbox.release(WORKSPACE, slow, delay_seconds=60)
    assert pipe.inbox.take(WORKSPACE, limit=10) == [], "they are still held, one by one"
    assert pipe.broker.zcard(key(pipe, ":taken")) == 2
    assert not pipe.broker.exists(key(pipe, ":pause"))
    assert pipe.inbox.settle(WORKSPACE, slow) == ((), ())
    assert pipe.waiting_in_inbox() == 2
    other.settle(WORKSPACE, held)
    assert pipe.waiting_in_inbox() == 0


def test_a_slow_worker_does_not_settle_what_was_sent_again_since(pipe: Pipeline) -> None:
    """Given items that another worker settled and a producer sent again, then the slow one leaves them for the next."""
    payloads = turns({"content": "one", "id": "m1"})
    pipe.inbox.accept(WORKSPACE, payloads)
    slow = pipe.inbox.take(WORKSPACE, limit=10)
    pipe.lose_worker()
    pipe.ingest()
    pipe.forget()
    pipe.inbox.accept(WORKSPACE, payloads)
    pipe.inbox.settle(WORKSPACE, slow)
    pipe.ingest()
    assert pipe.contents() == ["one"]


def test_a_worker_that_lost_its_lease_begins_with_nothing(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a worker that was stopped between take and begin, when another has the items, then it stores none."""
    pipe.say("one")
    take = pipe.inbox.take

    def stopped(*arguments: Any, **keywords: Any) -> Any:
        held = take(*arguments, **keywords)
        pipe.lose_worker()
        assert len(WorkerInbox(pipe.broker, prefix=pipe.prefix).take(WORKSPACE, limit=10)) == 1
        return held

    monkeypatch.setattr(pipe.inbox, "take", stopped)
    report = pipe.ingest()
    assert (report.taken, report.stored) == (1, 0)
    assert pipe.count("messages") == 0


@pytest.mark.parametrize("name", ["begin", "settle"])
def test_a_broker_that_hangs_is_not_taken_for_a_worker_that_died(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Given a broker that does what it is asked, and does not answer, again and again, then no message is set aside."""
    pipe.say("one", "two")
    for _ in range(2 * MAX_CRASHES):
        with monkeypatch.context() as patch:
            done = getattr(WorkerInbox, name)

            def silent(self: Any, *arguments: Any, done: Any = done, **keywords: Any) -> None:
                if name == "begin":
                    done(self, *arguments, **keywords)
                raise Unavailable("the broker did not answer in time")

            def hangs(*_: Any) -> None:
                raise Unavailable("the broker did not answer in time")

            patch.setattr(WorkerInbox, name, silent)
            patch.setattr(
                WorkerInbox, "_give_back", lambda self: None if name == "take" else hangs() if self._owed else None
            )
            with pytest.raises(Unavailable):
                pipe.ingest()
        pipe.make_due()
        pipe.inbox.take("elsewhere", limit=1)  # the worker's next task, in whatever workspace
        pipe.make_due()
    assert {item.tries for item in pipe.inbox.take(WORKSPACE, limit=10)} == {1}
    pipe.lose_worker()
    pipe.settle()
    assert pipe.contents() == ["one", "two"]
    assert pipe.dead_letters() == []


def test_items_of_a_take_without_an_answer_are_given_back(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a broker that gave items to a worker who got no answer, then the worker's next take has them, untried."""
    pipe.say("one")
    with monkeypatch.context() as patch:
        run = WorkerInbox._run

        def silent(self: Any, *arguments: Any) -> None:
            run(self, *arguments)
            raise Unavailable("the broker did not answer in time")

        patch.setattr(WorkerInbox, "_run", silent)
        with pytest.raises(Unavailable):
            pipe.inbox.take(WORKSPACE, limit=10)
    assert pipe.broker.zcard(key(pipe, ":taken")) == 1
    assert [item.tries for item in pipe.inbox.take(WORKSPACE, limit=10)] == [1]


@pytest.mark.parametrize("searchable", [False, True])
def test_a_message_sent_again_while_it_is_settled_is_answered(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, searchable: bool
) -> None:
    """Given a resend with `wait` after the commit and before the item left the inbox, then its producer is told."""
    payloads = turns({"content": "one", "id": "m1"})
    pipe.inbox.accept(WORKSPACE, payloads)
    settle = pipe.inbox.settle

    def sent_again(*arguments: Any, **keywords: Any) -> Any:
        if searchable:
            for stage in (pipe.chunk, pipe.embed, pipe.index):
                stage()
        assert pipe.inbox.accept(WORKSPACE, payloads, reply_to="stored", wait="stored")[0] == 0
        pipe.inbox.accept(WORKSPACE, payloads, reply_to="searchable", wait="searchable")
        return settle(*arguments, **keywords)

    monkeypatch.setattr(pipe.inbox, "settle", sent_again)
    pipe.ingest()
    assert [outcome.state for outcome in pipe.inbox.wait_reply("stored", 1)] == ["stored"]
    if searchable:
        assert pipe.inbox.wait_reply("searchable", 1) == [Outcome(id="m1", state="searchable")]
        assert not pipe.inbox.anyone_waiting(WORKSPACE)
    else:  # the stages that follow tell it
        assert pipe.inbox.anyone_waiting(WORKSPACE)


def test_a_file_sent_again_while_it_is_settled_is_answered(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the same for a file, then its producer is told too."""
    payload = pipe.hand_in("doc.md", "zanzibar")
    settle = pipe.inbox.settle

    def sent_again(*arguments: Any, **keywords: Any) -> Any:
        for stage in (pipe.chunk, pipe.embed, pipe.index):
            stage()
        pipe.inbox.accept(WORKSPACE, [payload], reply_to="again", wait="searchable")
        return settle(*arguments, **keywords)

    monkeypatch.setattr(pipe.inbox, "settle", sent_again)
    pipe.ingest()
    assert pipe.inbox.wait_reply("again", 1) == [Outcome(id=payload.id, state="searchable")]


def test_forgetting_does_not_take_what_came_after_it_when_the_clock_was_set_back(pipe: Pipeline) -> None:
    """Given a session forgotten before the broker's clock was set back, then messages that follow are stored."""
    pipe.say("before")
    pipe.ingest()
    set_clock_back(pipe)
    pipe.say("on its way")
    pipe.forget()
    set_clock_back(pipe, 0)
    pipe.say("after")
    report = pipe.ingest()
    assert (report.stored, report.forgotten) == (1, 1)
    assert pipe.contents() == ["after"]
    pipe.say("and on")
    pipe.ingest()
    assert [m.content for m in newest_messages(pipe.store, pipe.working, agent="ana", session="s")] == [
        "after",
        "and on",
    ]


def test_a_file_forgotten_before_the_clock_was_set_back_can_be_handed_in_again(pipe: Pipeline) -> None:
    """Given a file that was forgotten by a number that is ahead of the clock, then its next delivery is stored."""
    first = pipe.hand_in("doc.md", "zanzibar")
    pipe.settle()
    set_clock_back(pipe)
    assert pipe.forget_file(first.id)
    pipe.hand_in("doc.md", "madagascar")
    pipe.settle()
    assert pipe.found("madagascar") == ["madagascar"]


def test_a_dead_letter_is_replayed_whatever_the_clock_says(pipe: Pipeline) -> None:
    """Given a session forgotten at a number ahead of the clock, then a letter of a later message comes back."""
    from memory.pipeline.dead_letters import replay

    set_clock_back(pipe)
    pipe.say("before")
    pipe.ingest()
    pipe.forget()
    payload = turns("after")[0]
    pipe.inbox.accept(WORKSPACE, [payload])
    pipe.broker.hset(key(pipe, ":tries"), inbox_field(payload), MAX_CRASHES)
    pipe.ingest()
    (letter,) = pipe.dead_letters()
    replay(pipe.store, pipe.inbox, letter.id)
    pipe.ingest()
    assert pipe.contents() == ["after"]


def test_items_say_how_long_they_wait_also_when_their_number_is_ahead(pipe: Pipeline) -> None:
    """Given numbers that ran an hour ahead, then the age of an item and its time in the store are by the clock."""
    set_clock_back(pipe)
    pipe.say("one")
    assert 0 <= pipe.inbox.stats(WORKSPACE).oldest_age_seconds < 60
    assert not pipe.inbox.stats(WORKSPACE).clock_set_back
    (item,) = pipe.inbox.take(WORKSPACE, limit=1)
    assert item.accepted_at - item.waits_since > HOUR / 2
    pipe.lose_worker()
    pipe.ingest()
    assert pipe.count("messages", f"accepted_at < {pipe.inbox.now_micros() + 1_000_000}") == 1


def test_items_from_before_the_clock_was_set_back_are_recovered_at_once(pipe: Pipeline) -> None:
    """Given items whose task was lost and a clock that was set back an hour, then the sweep does not wait an hour."""
    pipe.say("one")
    as_if_before(pipe)
    assert pipe.inbox.stats(WORKSPACE).clock_set_back
    report = recover_inbox(pipe.ingest_services, pipe.stores, now=pipe.now)
    assert report.recovered == 1


def test_a_lease_from_before_the_clock_was_set_back_ends(pipe: Pipeline) -> None:
    """Given a worker that died, and a clock that was set back after its take, then the items come free at once."""
    pipe.say("one")
    pipe.inbox.take(WORKSPACE, limit=10)
    ahead = pipe.inbox.now_micros() + HOUR
    pipe.broker.zadd(key(pipe, ":taken"), {pipe.broker.zrange(key(pipe, ":taken"), 0, 0)[0]: ahead})
    assert len(pipe.inbox.take(WORKSPACE, limit=10)) == 1


@pytest.mark.usefixtures("stopped_clock")
def test_flags_and_pauses_from_before_the_clock_was_set_back_do_not_hold(pipe: Pipeline) -> None:
    """Given a notification flag and a pause that would last an hour longer, then neither is obeyed."""
    ahead = pipe.inbox.now_micros() + HOUR
    flag = f"{pipe.prefix}wake:{INGEST_MESSAGES}:{WORKSPACE}"
    pipe.broker.set(flag, ahead, px=HOUR // 1_000)
    pipe.broker.set(key(pipe, ":pause"), ahead, px=HOUR // 1_000)
    assert pipe.inbox.accept(WORKSPACE, turns("one")) == (1, True)
    assert pipe.inbox.accept(WORKSPACE, turns("two")) == (1, False)
    pipe.broker.set(flag, ahead, px=HOUR // 1_000)
    assert pipe.inbox.claim_notification(INGEST_MESSAGES, WORKSPACE)
    assert not pipe.inbox.claim_notification(INGEST_MESSAGES, WORKSPACE)
    assert len(pipe.inbox.take(WORKSPACE, limit=10)) == 2


@pytest.mark.usefixtures("stopped_clock")
def test_a_producer_that_was_killed_before_it_sent_the_task_delays_others_by_two_seconds(pipe: Pipeline) -> None:
    """Given a notification that nobody confirmed, then the flag ends soon; a confirmed one lasts until it begins."""
    flag = f"{pipe.prefix}wake:{INGEST_MESSAGES}:{WORKSPACE}"
    pipe.say("one")
    assert 0 < pipe.broker.pttl(flag) <= 2_000
    pipe.inbox.confirm_notification(INGEST_MESSAGES, WORKSPACE)
    assert pipe.broker.pttl(flag) > 3_600_000


def test_a_long_batch_keeps_its_lease(pipe: Pipeline) -> None:
    """Given a batch of which half the lease is over, when the worker begins with the next items, then it is renewed."""
    pipe.say("one", "two")
    held = pipe.inbox.take(WORKSPACE, limit=10)
    soon = pipe.inbox.now_micros() + 1_000_000
    pipe.broker.zadd(key(pipe, ":taken"), {item.field: soon for item in held})
    assert pipe.inbox.begin(WORKSPACE, held[:1])
    ends = [score for _, score in pipe.broker.zrange(key(pipe, ":taken"), 0, -1, withscores=True)]
    assert min(ends) > soon + (LEASE_SECONDS - 2) * 1_000_000


# --- how much may wait ---


def used(pipe: Pipeline) -> tuple[int, int]:
    totals = pipe.inbox.totals()
    return totals.items, totals.bytes


def test_an_inbox_has_limits_and_keeps_what_it_accepted(pipe: Pipeline) -> None:
    """Given an inbox at its limit, then a call is refused as a whole, with what to do, and all that waits is stored."""
    pipe.inbox.set_limits(InboxLimits(workspace_items=3))
    pipe.say("one", "two")
    with pytest.raises(InboxFull, match=r"workspace ws is full.*2 of at most 3 items.*`reverie status`") as raised:
        pipe.say("three", "four")
    assert isinstance(raised.value, Unavailable)
    assert raised.value.retry_after_seconds > 0
    pipe.say("three")
    pipe.settle()
    assert pipe.contents() == ["one", "two", "three"]
    pipe.say("four")
    pipe.settle()
    assert len(pipe.contents()) == 4
    assert used(pipe) == (0, 0)


def test_sending_again_what_waits_needs_no_room(pipe: Pipeline) -> None:
    """Given a full inbox, when its messages are sent again, then that is no error: a producer may wait for them."""
    payloads = turns("one", "two")
    pipe.inbox.set_limits(InboxLimits(workspace_items=2))
    pipe.inbox.accept(WORKSPACE, payloads)
    assert pipe.inbox.accept(WORKSPACE, payloads, reply_to="r", wait="stored")[0] == 0
    pipe.ingest()
    assert len(pipe.inbox.wait_reply("r", 1)) == 2


@pytest.mark.parametrize("limit", ["workspace_bytes", "bytes"])
def test_bytes_are_limited_too_in_one_workspace_and_in_all(pipe: Pipeline, limit: str) -> None:
    """Given a limit in bytes, when the payloads would exceed it, then they are refused, in this or any workspace."""
    pipe.inbox.set_limits(InboxLimits(**{limit: 30_000}))
    pipe.say("x" * 20_000)
    with pytest.raises(InboxFull, match="bytes wait"):
        pipe.say("y" * 20_000)
    if limit == "bytes":
        with pytest.raises(InboxFull, match="all workspaces"):
            pipe.inbox.accept("elsewhere", turns("z" * 20_000))
    else:
        pipe.inbox.accept("elsewhere", turns("z" * 20_000))
    assert pipe.inbox.stats(WORKSPACE).bytes > 20_000


def test_what_leaves_an_inbox_in_any_way_makes_room(pipe: Pipeline) -> None:
    """Given items that are stored, released and stored, or forgotten with their workspace, then the counts hold."""
    pipe.say("one", "two")
    pipe.inbox.accept("elsewhere", turns("three"))
    size = used(pipe)[1]
    assert used(pipe)[0] == 3
    held = pipe.inbox.take(WORKSPACE, limit=10)
    pipe.inbox.release(WORKSPACE, held, delay_seconds=0)
    assert used(pipe) == (3, size)
    pipe.inbox.forget_workspace("elsewhere")
    assert used(pipe)[0] == 2
    pipe.inbox.forget_workspace("never was")
    pipe.ingest()
    assert used(pipe) == (0, 0)
    assert pipe.inbox.stats(WORKSPACE) == (0, 0.0, 0, False)


def test_items_of_an_older_producer_do_not_spoil_the_counts(pipe: Pipeline) -> None:
    """Given items that nobody counted when they were accepted, when all is settled, then the counts are 0, not less."""
    pipe.smuggle(b"{}", item_id="bad")
    pipe.say("one")
    pipe.ingest()
    assert used(pipe) == (0, 0)
    assert pipe.broker.hgetall(f"{pipe.prefix}inboxes:state").keys() == {b"number", b"id", b"accepted"}


def test_without_workers_tasks_do_not_pile_up(pipe: Pipeline) -> None:
    """Given a queue that nobody takes from, then producers add no further tasks; the sweep finds what waits."""
    pipe.broker.rpush(f"{pipe.prefix}ingest", *["task"] * 10_000)
    assert pipe.inbox.accept(WORKSPACE, turns("one")) == (1, False)


def test_draining_stores_what_waits_when_a_list_cannot_grow(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a broker that refuses to grow working memory, then messages are stored and settled, and reads are right."""

    def refused(*_: Any, **__: Any) -> None:
        raise Unavailable("the broker refused (OOM)")

    pipe.say("one")
    monkeypatch.setattr(pipe.working, "append", refused)
    stored, more = 0, True
    while more:  # a slow machine may use up the time of one call
        report, more = drain_inbox(pipe.ingest_services, lambda: pipe.store, workspace=WORKSPACE, now=pipe.now)
        stored += report.stored
    assert stored == 1
    assert pipe.waiting_in_inbox() == 0
    assert ingest_batch(pipe.ingest_services, pipe.store, now=pipe.now()).taken == 0


@pytest.mark.parametrize(("others", "waits"), [(1, True), (100, False)])
def test_draining_gathers_messages_unless_tasks_of_other_workspaces_wait(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, others: int, waits: bool
) -> None:
    """Given a message and tasks in the queue, when it is drained, then it waits for more only if few others wait."""
    pauses: list[float] = []
    monkeypatch.setattr("memory.pipeline.ingest.time.sleep", pauses.append)
    monkeypatch.setattr("memory.pipeline.ingest.STAGE_BUDGET_SECONDS", 60.0)  # for a busy machine
    pipe.say("one")
    pipe.broker.rpush(f"{pipe.prefix}ingest", *["task"] * others)
    report, more = drain_inbox(pipe.ingest_services, lambda: pipe.store, workspace=WORKSPACE, now=pipe.now)
    assert (report.stored, more, bool(pauses)) == (1, False, waits)


def test_a_task_stores_a_batch_however_late_it_is(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a machine on which the time of a task is up before it begins, then it stores a batch and asks for more."""
    monkeypatch.setattr("memory.pipeline.ingest.STAGE_BUDGET_SECONDS", 0.0)
    pipe.say("one")
    report, more = drain_inbox(pipe.ingest_services, lambda: pipe.store, workspace=WORKSPACE, now=pipe.now)
    assert (report.stored, more) == (1, True)


@pytest.mark.parametrize("by_file", [False, True])
def test_a_flushed_broker_whose_clock_is_behind_hides_nothing(pipe: Pipeline, by_file: bool) -> None:
    """Given marks ahead of the clock of a broker that was flushed, then what is said or handed in later is stored."""
    pipe.say("before")
    first = pipe.hand_in("doc.md", "zanzibar")
    pipe.hand_in("kept.md", "one")
    pipe.settle()
    set_clock_back(pipe)
    pipe.hand_in("kept.md", "two")
    pipe.settle()
    assert pipe.forget()
    assert pipe.forget_file(first.id)
    pipe.broker.flushall()
    if by_file:
        assert pipe.forget_file("another") is False  # the first to meet the new content may be a forget
    pipe.say("after")
    pipe.hand_in("doc.md", "madagascar")
    pipe.hand_in("kept.md", "three")
    pipe.settle()
    assert pipe.contents() == ["after"]
    assert pipe.found("madagascar") == ["madagascar"]
    assert [pipe.found(word) for word in ("two", "three")] == [[], ["three"]]
    # From now on numbers of the new content count.
    pipe.say("on its way")
    pipe.hand_in("doc.md", "mauritius")
    assert pipe.forget()
    pipe.settle()
    assert pipe.contents() == []
    assert pipe.found("mauritius") == ["mauritius"]


def test_a_worker_with_items_of_a_flushed_broker_ends_no_marks_of_the_new_one(pipe: Pipeline) -> None:
    """Given a batch taken before a flush and stored after it, then what was forgotten in between stays forgotten."""
    pipe.say("old")
    held = pipe.inbox.take(WORKSPACE, limit=10)
    pipe.broker.flushall()
    pipe.say("on its way")
    pipe.forget()
    store_items(pipe.store, [decode(item) for item in held], pipe.now())
    pipe.forget()
    assert pipe.ingest().forgotten == 1
    assert pipe.contents() == []
