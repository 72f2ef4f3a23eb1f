"""The last messages of a session: in the order in which they were added, with originals, and removed one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.broker.inbox import Settled
from memory.sessions import sessions
from memory.sessions.sessions import export_session, pop_message, read_newest
from memory.tombstones import read_tombstones
from reverie.errors import NotFound, Rejected
from reverie.pipeline.submission import build_message, build_session
from reverie.sessions.types import Message
from storage.verify import verify
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline on an empty workspace."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def pop(pipe: Pipeline, session: str = "s") -> Message | None:
    return pop_message(pipe.stores, pipe.store, pipe.inbox, pipe.working, agent="ana", session=session)


def last(pipe: Pipeline, limit: int = 100, before: int | None = None) -> list[Message]:
    return read_newest(pipe.store, agent="ana", session="s", limit=limit, before=before)


def test_the_last_messages_come_in_the_order_in_which_they_were_added(pipe: Pipeline) -> None:
    """Given messages whose times go backwards, then the last ones are those that were added last, page by page."""
    pipe.say(*({"content": f"{day}", "created_at": f"2026-05-{day:02}T00:00:00Z"} for day in range(9, 0, -1)))
    pipe.ingest()
    assert [message.content for message in last(pipe, limit=4)] == ["4", "3", "2", "1"]
    first = last(pipe, limit=4)[0].sequence
    assert [message.content for message in last(pipe, limit=100, before=first)] == ["9", "8", "7", "6", "5"]
    with pytest.raises(NotFound):
        read_newest(pipe.store, agent="ana", session="nobody's", limit=1)


def test_a_page_has_no_more_bytes_than_fit(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given large originals, then a page ends when it is full, and has one message in any case."""
    monkeypatch.setattr(sessions, "_PAGE_BYTES", 1_000)
    pipe.say(*({"content": f"{number}", "original": "x" * 600} for number in range(4)))
    pipe.ingest()
    assert [message.content for message in last(pipe)] == ["2", "3"]
    monkeypatch.setattr(sessions, "_PAGE_BYTES", 1)
    assert [message.content for message in last(pipe)] == ["3"]


def test_an_original_comes_back_unchanged_and_is_not_searched(pipe: Pipeline) -> None:
    """Given originals, then they are read and exported as they were written; recall finds only the content."""
    text = '{"b": 1, "a": "\\u0000 \\ud800", "ö": "heron"}'
    pipe.say({"content": "lantern", "original": text}, {"content": "", "original": "only heron"}, "plain")
    pipe.settle()
    assert [message.original for message in last(pipe)] == [text, "only heron", None]
    export = export_session(pipe.store, agent="ana", session="s")
    assert [message.original for message in export.messages] == [text, "only heron", None]
    assert pipe.found("heron") == []
    assert pipe.found("lantern") == ["lantern"]
    assert verify(pipe.store).wrong == []


def test_an_original_has_a_limit_and_does_not_stand_for_a_message_of_nothing() -> None:
    """Given an original over 3 MiB, or a message that is empty in all ways, then it is refused, naming the field."""
    session = build_session({"session": "s"})
    for original, field in (("x" * (3 * 1024 * 1024 + 1), "original"), ("", "content"), ("\x00", "original")):
        with pytest.raises(Rejected) as refused:
            build_message({"role": "user", "original": original}, agent="ana", session_input=session, trace="t")
        assert refused.value.field == field


def test_a_popped_message_is_gone_with_what_came_from_it(pipe: Pipeline) -> None:
    """Given two messages and memories of the second, when it is popped, then nothing of it is left."""
    pipe.say("tea", {"content": "heron", "original": "the heron"})
    pipe.settle()
    source = pipe.messages()[1].id
    for tier in ("workspace", "account"):
        Knowing(pipe.stores, workspace=WORKSPACE).remember(
            f"the heron lives in Porto: {tier}",
            tier=tier,
            kind="preference",
            source_message=source,
            metadata={"workspace": WORKSPACE},
        )
    popped = pop(pipe)
    assert popped is not None
    assert (popped.content, popped.original, popped.id) == ("heron", "the heron", source)
    assert pipe.contents() == ["tea"]
    assert pipe.count("chunks") == 1
    assert pipe.count("memories") == 0
    with pipe.stores.account_store().reading() as tx:
        assert tx.connection.exec_driver_sql("SELECT count(*) FROM memories").scalar() == 0
    assert pipe.found("heron") == []
    assert pipe.cached() is None
    assert verify(pipe.store).wrong == []
    assert [tombstone.kind for tombstone in read_tombstones(pipe.stores.data_dir)] == ["message"]


def test_a_delivery_of_a_popped_message_is_not_stored_again(pipe: Pipeline) -> None:
    """Given a worker that died after its commit, when the message is popped before it is delivered again, it stays out;
    one that is sent later under the same id is stored, with the next sequence."""
    pipe.say("tea", {"id": "m", "content": "heron"})
    settle = pipe.inbox.settle
    pipe.inbox.settle = lambda *_, **__: Settled()  # type: ignore[method-assign]
    pipe.ingest()
    pipe.inbox.settle = settle  # type: ignore[method-assign]
    assert pop(pipe) is not None
    pipe.lose_worker()
    report = pipe.ingest()
    assert (report.repeated, report.forgotten) == (1, 1)
    assert pipe.contents() == ["tea"]
    pipe.say({"id": "m", "content": "heron"})
    pipe.ingest()
    assert [(message.content, message.sequence) for message in last(pipe)] == [("tea", 1), ("heron", 3)]


def test_several_that_pop_at_once_get_different_messages(pipe: Pipeline) -> None:
    """Given ten messages and four threads that pop until nothing is left, then each message is popped once."""
    pipe.say(*map(str, range(10)))
    pipe.settle()
    popped: list[str] = []

    def work() -> None:
        while (message := pop(pipe)) is not None:
            popped.append(message.content)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(popped) == [str(number) for number in range(10)]
    assert pop(pipe) is None
    assert pop(pipe, "unknown") is None


def test_popping_a_summarised_message_takes_it_out_of_the_summary(pipe: Pipeline) -> None:
    """Given a summary that covers a session, when its last message is popped, then the summary is made anew."""
    pipe.say("tea", "heron")
    pipe.settle()
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("UPDATE sessions SET summary_text = 'tea, heron', summary_upper_sequence = 2")
        tx.connection.exec_driver_sql("UPDATE messages SET consolidated_at = 1")
    assert pop(pipe) is not None
    assert pipe.count("sessions", "summary_text IS NULL AND summary_upper_sequence = 0") == 1
    assert pipe.count("messages", "consolidated_at IS NULL") == 1
