"""Noting a recall never waits and never fails, and what was noted reaches the broker's log when it can."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import fakeredis
import pytest
from structlog.testing import capture_logs

from adapters.broker.recall_log import FLUSH_RECALLS, LogEntry, RecallBuffer, RecallLog, RecallNote
from reverie.clock import new_id, now_micros
from reverie.errors import Unavailable

NEVER = 3_600.0
SOON = 0.01
PATIENCE_SECONDS = 20


@pytest.fixture
def server() -> fakeredis.FakeServer:
    """A broker that can be taken away: `connected = False`."""
    return fakeredis.FakeServer()


@pytest.fixture
def log(server: fakeredis.FakeServer) -> RecallLog:
    """The log in that broker."""
    return RecallLog(fakeredis.FakeRedis(server=server), prefix="test:")


class Flushed:
    """Who was told that a log has grown."""

    def __init__(self) -> None:
        self.workspaces: list[str] = []
        self.called = threading.Event()

    def __call__(self, workspace: str) -> None:
        self.workspaces.append(workspace)
        self.called.set()


@pytest.fixture
def flushed() -> Flushed:
    """What the buffer tells its owner."""
    return Flushed()


@pytest.fixture
def make_buffer(log: RecallLog, flushed: Flushed) -> Iterator[Callable[..., RecallBuffer]]:
    """Makes buffers, which hand nothing over by themselves unless told otherwise."""
    made: list[RecallBuffer] = []

    def make(recall_log: RecallLog = log, *, flush_seconds: float = NEVER, **options: int) -> RecallBuffer:
        made.append(RecallBuffer(recall_log, on_flushed=flushed, flush_seconds=flush_seconds, **options))
        return made[-1]

    yield make
    for buffer in made:
        buffer.close()


def recall(agent: str, query: str, *hits: tuple[int, float]) -> RecallNote:
    """A recall of this moment, which found a chunk."""
    return RecallNote(agent=agent, recall=new_id(), query=query, at=now_micros(), hits=list(hits or [(1, 1.0)]))


def notes_of(log: RecallLog, workspace: str = "ws") -> list[RecallNote]:
    return [entry.note for entry in log.read(workspace, limit=1_000_000) if entry.note is not None]


def test_what_was_noted_arrives_whole(make_buffer: Callable[..., RecallBuffer], log: RecallLog) -> None:
    """Given two recalls, when they are handed over, then each has its agent, query, time and results in order."""
    buffer = make_buffer()
    buffer.note("ws", recall("ana", "where is the Zoë?\0", (7, 0.5), (3, 0.25)))
    buffer.note("ws", recall("kate", "tea", (9, 1.0)))
    assert notes_of(log) == []
    buffer.flush()
    first, second = notes_of(log)
    assert (first.agent, first.query, first.hits) == ("ana", "where is the Zoë?\0", [(7, 0.5), (3, 0.25)])
    assert (second.agent, second.query, second.hits) == ("kate", "tea", [(9, 1.0)])
    assert first.recall < second.recall
    assert first.at < second.at
    assert (buffer.waiting, buffer.dropped) == (0, 0)


def test_a_recall_is_handed_over_by_itself_after_a_moment(
    make_buffer: Callable[..., RecallBuffer], log: RecallLog, flushed: Flushed
) -> None:
    """Given a buffer at work, when a recall is noted, then it is in the log and its workspace was told of."""
    make_buffer(flush_seconds=SOON).note("ws", recall("ana", "tea"))
    assert flushed.called.wait(PATIENCE_SECONDS)
    assert len(notes_of(log)) == 1
    assert flushed.workspaces == ["ws"]


def test_many_recalls_are_handed_over_without_waiting_any_longer(
    make_buffer: Callable[..., RecallBuffer], log: RecallLog, flushed: Flushed
) -> None:
    """Given a buffer that would gather for an hour, when it holds a batch, then it hands that over now."""
    buffer = make_buffer(flush_seconds=NEVER)
    for _ in range(FLUSH_RECALLS):
        buffer.note("ws", recall("ana", "tea"))
    assert flushed.called.wait(PATIENCE_SECONDS)
    assert len(notes_of(log)) == FLUSH_RECALLS


def test_a_flush_returns_when_what_another_one_took_is_in_the_log(
    make_buffer: Callable[..., RecallBuffer], log: RecallLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a thread that is handing a recall over, when another one flushes, then the log has it afterwards."""
    begun, go_on = threading.Event(), threading.Event()
    append = log.append

    def append_slowly(workspace: str, notes: Sequence[bytes]) -> int:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return append(workspace, notes)

    monkeypatch.setattr(log, "append", append_slowly)
    buffer = make_buffer()
    buffer.note("ws", recall("ana", "tea"))
    found: list[int] = []

    def flush() -> None:
        buffer.flush()
        found.append(len(notes_of(log)))

    first, second = threading.Thread(target=flush), threading.Thread(target=flush)
    first.start()
    assert begun.wait(PATIENCE_SECONDS)
    second.start()
    second.join(0.1)  # it ends by now if it waits for nobody
    go_on.set()
    for thread in (first, second):
        thread.join()
    assert found == [1, 1]


def test_each_workspace_gets_its_own(
    make_buffer: Callable[..., RecallBuffer], log: RecallLog, flushed: Flushed
) -> None:
    """Given recalls in two workspaces by turns, then each log has its own in their order, and each is told of once."""
    buffer = make_buffer()
    for number in range(4):
        buffer.note(f"w{number % 2}", recall("ana", f"q{number}"))
    buffer.flush()
    assert [note.query for note in notes_of(log, "w0")] == ["q0", "q2"]
    assert [note.query for note in notes_of(log, "w1")] == ["q1", "q3"]
    assert sorted(flushed.workspaces) == log.workspaces() == ["w0", "w1"]


def test_beyond_its_bound_the_oldest_are_dropped_and_counted(
    make_buffer: Callable[..., RecallBuffer], log: RecallLog
) -> None:
    """Given a buffer of some hundred bytes, when more is noted, then the newest stay and the rest is counted."""
    buffer = make_buffer(bound_bytes=500)
    for number in range(20):
        buffer.note("ws", recall("ana", f"q{number}"))
    kept = buffer.waiting
    assert 0 < kept < 20
    assert buffer.dropped == 20 - kept
    buffer.flush()
    assert [note.query for note in notes_of(log)] == [f"q{number}" for number in range(20 - kept, 20)]


def test_without_a_broker_recalls_stay_and_arrive_once_it_is_back(
    make_buffer: Callable[..., RecallBuffer], log: RecallLog, server: fakeredis.FakeServer
) -> None:
    """Given a broker that is away, when recalls are noted, then none is lost; when it is back, all arrive in order."""
    buffer = make_buffer()
    server.connected = False
    for number in range(3):
        buffer.note("ws", recall("ana", f"q{number}"))
        with pytest.raises(Unavailable):
            buffer.flush()
    assert (buffer.waiting, buffer.dropped) == (3, 0)
    server.connected = True
    buffer.flush()
    assert [note.query for note in notes_of(log)] == ["q0", "q1", "q2"]


def test_without_a_broker_the_bound_holds_too(
    make_buffer: Callable[..., RecallBuffer], server: fakeredis.FakeServer
) -> None:
    """Given a broker that is away, when what could not be handed over comes back, then the oldest of it give way."""
    buffer = make_buffer(bound_bytes=500)
    server.connected = False
    for number in range(20):
        buffer.note("ws", recall("ana", f"q{number}"))
        with pytest.raises(Unavailable):
            buffer.flush()
    assert buffer.waiting + buffer.dropped == 20
    assert 0 < buffer.waiting < 10


class Away(RecallLog):
    """A log that cannot be written until it is told that it can; says when it was tried."""

    def __init__(self, inner: RecallLog, error: Exception) -> None:
        self.inner = inner
        self.error = error
        self.back = False
        self.tried = threading.Event()

    def append(self, workspace: str, notes: Sequence[bytes]) -> int:
        is_back = self.back  # before the test, which is told next, brings it back
        self.tried.set()
        if not is_back:
            raise self.error
        return self.inner.append(workspace, notes)


@pytest.mark.parametrize("error", [Unavailable("away"), ValueError("a bug")], ids=["away", "bug"])
def test_the_thread_tries_again_until_the_broker_is_back(
    make_buffer: Callable[..., RecallBuffer], log: RecallLog, flushed: Flushed, error: Exception
) -> None:
    """Given a failure in the thread, then it lives, goes on by itself once it can, and says so without the query."""
    away = Away(log, error)
    with capture_logs() as logs:
        make_buffer(away, flush_seconds=SOON).note("ws", recall("ana", "secret"))
        assert away.tried.wait(PATIENCE_SECONDS)
        away.back = True
        assert flushed.called.wait(PATIENCE_SECONDS)
        assert [note.query for note in notes_of(log)] == ["secret"]
    assert "secret" not in str(logs)
    assert {entry["event"] for entry in logs} & {"recalls_wait", "recalls_not_handed_over"}


def test_at_the_end_what_is_left_is_handed_over(make_buffer: Callable[..., RecallBuffer], log: RecallLog) -> None:
    """Given recalls that were just noted, when the process ends, then they are in the log; what comes later is not."""
    buffer = make_buffer(flush_seconds=NEVER)
    buffer.note("ws", recall("ana", "tea"))
    buffer.close(PATIENCE_SECONDS)
    assert [note.query for note in notes_of(log)] == ["tea"]
    buffer.note("ws", recall("ana", "late"))
    assert (buffer.waiting, buffer.dropped) == (0, 1)


def test_the_end_is_not_held_up_without_a_broker(
    make_buffer: Callable[..., RecallBuffer], server: fakeredis.FakeServer
) -> None:
    """Given a broker that is away, when the process ends, then what is lost is counted and told of."""
    server.connected = False
    buffer = make_buffer(flush_seconds=NEVER)
    buffer.note("ws", recall("ana", "tea"))
    with capture_logs() as logs:
        buffer.close()
    assert buffer.dropped == 1
    assert [entry["recalls"] for entry in logs if entry["event"] == "recalls_dropped"] == [1]


def test_the_end_does_not_wait_for_a_broker_that_hangs(
    make_buffer: Callable[..., RecallBuffer], log: RecallLog
) -> None:
    """Given a broker that never answers, when the process ends, then it waits as long as it was told and no more."""
    answer = threading.Event()

    class Hanging(Away):
        def append(self, workspace: str, notes: Sequence[bytes]) -> int:
            self.tried.set()
            answer.wait(PATIENCE_SECONDS)
            return 0

    hanging = Hanging(log, Unavailable("away"))
    buffer = make_buffer(hanging, flush_seconds=SOON)
    buffer.note("ws", recall("ana", "tea"))
    assert hanging.tried.wait(PATIENCE_SECONDS)
    buffer.close(0.05)
    assert not answer.is_set()
    answer.set()


def test_nothing_is_started_where_nothing_is_recalled(make_buffer: Callable[..., RecallBuffer]) -> None:
    """Given a process that recalls nothing, then it has no thread for it, and ends at once."""
    before = set(threading.enumerate())
    buffer = make_buffer()
    assert set(threading.enumerate()) <= before  # those of other tests may end
    buffer.close()


def test_a_log_that_nobody_empties_is_bounded_and_what_it_drops_is_counted(
    make_buffer: Callable[..., RecallBuffer], server: fakeredis.FakeServer
) -> None:
    """Given no worker, when more is noted than a workspace keeps, then the newest stay and the rest is counted."""
    small = RecallLog(fakeredis.FakeRedis(server=server), prefix="test:", keep_recalls=3)
    buffer = make_buffer(small)
    for number in range(5):
        buffer.note("ws", recall("ana", f"q{number}"))
    buffer.flush()
    assert [note.query for note in notes_of(small)] == ["q2", "q3", "q4"]
    assert buffer.dropped == 2


def test_what_is_removed_is_what_was_read(log: RecallLog) -> None:
    """Given entries that came and went since a worker read, when it removes its own, then no other goes."""
    log.append("ws", [b"0", b"1"])
    read = log.read("ws", limit=2)
    small = RecallLog(log._broker, prefix="test:", keep_recalls=2)
    assert small.append("ws", [b"2"]) == 1, "the first entry has given way"
    assert log.remove("ws", [entry.id for entry in read]) == 1
    assert len(log.read("ws", limit=9)) == 1
    assert log.workspaces() == ["ws"]


def test_a_log_that_was_emptied_gives_no_id_twice(log: RecallLog) -> None:
    """Given a worker that is slow, when the log was emptied and filled again, then its late removal hits nothing."""
    log.append("ws", [b"0"])
    (slow,) = log.read("ws", limit=1)
    assert log.remove("ws", [slow.id]) == 0
    assert log.workspaces() == []
    log.append("ws", [b"1"])
    assert log.remove("ws", [slow.id]) == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"junk",
        b"[]",
        b"{}",
        b'{"agent":"ana","recall":"r","query":"q","at":1,"hits":[[0,1.0]]}',
        b'{"agent":"ana","recall":"r","query":"q","at":1,"hits":[[9223372036854775808,1.0]]}',
        b'{"agent":"ana","recall":"r","query":"q","at":1,"hits":[[1,null]]}',
        b'{"agent":"ana","recall":"r","query":"q","at":1,"hits":[[1,1e999]]}',
        b'{"agent":"ana","recall":"r","query":"q","at":100000000000000000,"hits":[]}',
        b'{"agent":"ana","recall":"","query":"q","at":1,"hits":[]}',
        b'{"agent":"\\ud800","recall":"r","query":"q","at":1,"hits":[]}',
        b"\xff",
    ],
)
def test_an_entry_of_another_form_is_none(log: RecallLog, raw: bytes) -> None:
    """Given bytes that are no note of ours, when they are read, then there is an entry without a note."""
    log.append("ws", [raw])
    assert [entry.note for entry in log.read("ws", limit=1)] == [None]


def test_an_entry_without_our_field_is_none(log: RecallLog) -> None:
    """Given an entry that something else wrote, then it can be removed like any other."""
    log._broker.xadd("test:recalls:ws", {"other": "1"})
    (entry,) = log.read("ws", limit=1)
    assert entry == LogEntry(entry.id, None)
    assert log.remove("ws", [entry.id]) == 0
