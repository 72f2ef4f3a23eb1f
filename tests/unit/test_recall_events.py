"""What recalls found is recorded once, counted once, seen by its agent alone, and goes with the chunks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from adapters.broker.recall_log import KEEP_RECALLS, QUERY_CHARACTERS, RecallLog, RecallNote
from memory import recall as recalls
from memory.lifecycle.forgetting import RemovalServices, forget_workspace
from memory.pipeline.dead_letters import replay
from memory.recall import RecordReport, recent_recalls, record_recalls, sweep_recalls
from memory.upkeep import maintenance
from memory.upkeep.maintenance import optimize_stores, prune_recalls
from retrieval.query import RecallRequest
from reverie.clock import from_micros, new_id
from reverie.errors import Conflict, StoreUnavailable
from storage.recall.events import NewRecall, RecallEvents
from storage.verify import verify
from storage.viewer import Viewer
from support.pipeline import WORKSPACE, Pipeline
from support.recalling import find
from support.remembered import keep, settle
from worker.settings import Settings

DAY = 24 * 3_600 * 1_000_000


class Killed(BaseException):
    """The worker is gone."""


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline in which three messages and a file of ana's, and one message of kate's, can be found."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("zanzibar one", "zanzibar two", session="s")
    pipe.say("zanzibar three", session="other")
    pipe.hand_in("file:///z", "zanzibar file")
    pipe.say("zanzibar of kate", agent="kate")
    pipe.settle()
    yield pipe
    pipe.close()


def recall(pipe: Pipeline, query: str = "zanzibar", *, agent: str = "ana", limit: int = 10, **more: Any) -> RecallNote:
    """Recall, and put what was found into the log as the server does."""
    request = RecallRequest(query=query, agent=agent, mode="keyword", limit=limit, **more)
    hits = [(hit.chunk_id, hit.score) for hit in find(pipe.store, None, request).hits]
    return log(pipe, query=query, agent=agent, hits=hits)


def log(pipe: Pipeline, **fields: Any) -> RecallNote:
    """Put a note into the log."""
    note = RecallNote(**{"agent": "ana", "recall": new_id(), "query": "q", "at": pipe.now(), "hits": [], **fields})
    pipe.recalls.append(WORKSPACE, [msgspec.json.encode(note)])
    return note


def record(pipe: Pipeline, **options: float) -> RecordReport:
    return record_recalls(pipe.recalls, pipe.stores, workspace=WORKSPACE, **options)


def counted(pipe: Pipeline) -> dict[str, tuple[int, int | None]]:
    """How often and when each chunk was found, by its text."""
    with pipe.store.reading() as tx:
        rows = tx.connection.execute(text("SELECT text, access_count, accessed_at FROM chunks"))
        return {str(row[0]): (int(row[1]), row[2]) for row in rows}


def test_a_recall_becomes_events_and_counts(pipe: Pipeline) -> None:
    """Given two recalls, when they are recorded, then each result is an event and is counted on its chunk."""
    first = recall(pipe, "zanzibar", session="s")
    second = recall(pipe, "zanzibar two", limit=1)
    report = record(pipe)
    assert (report.recalls, report.events, report.unreadable, report.more) == (2, 3, 0, False)
    assert counted(pipe) == {
        "zanzibar one": (1, first.at),
        "zanzibar two": (2, second.at),
        "zanzibar three": (0, None),
        "zanzibar file": (0, None),
        "zanzibar of kate": (0, None),
    }
    assert pipe.recalls.workspaces() == []
    assert pipe.recalls.read(WORKSPACE, limit=1) == []


def test_events_are_read_newest_first_and_the_best_result_first(pipe: Pipeline) -> None:
    """Given recalls of messages and a file, then it is told what was found, scores only when asked."""
    ids = {message.content: message.id for message in [*pipe.messages("s"), *pipe.messages("other")]}
    older = recall(pipe, "zanzibar one", session="s")
    newer = recall(pipe, "zanzibar file", limit=1)
    record(pipe)
    found = recent_recalls(pipe.store, agent="ana")
    assert [event.recall for event in found] == [newer.recall, older.recall, older.recall]
    assert [event.query for event in found] == ["zanzibar file", "zanzibar one", "zanzibar one"]
    assert (found[0].kind, found[0].session, found[0].at) == ("file", None, from_micros(newer.at))
    assert [event.id for event in found[1:]] == [ids["zanzibar one"], ids["zanzibar two"]]
    assert [(event.kind, event.session, event.access_count) for event in found[1:]] == [("message", "s", 1)] * 2
    assert [event.score for event in found] == [None] * 3
    explained = recent_recalls(pipe.store, agent="ana", explain=True)
    assert [event.score for event in explained] == [newer.hits[0][1], *(score for _, score in older.hits)]
    assert recent_recalls(pipe.store, agent="ana", limit=1, offset=1) == found[1:2]


def test_recalls_of_the_account_are_seen_from_their_tenant_alone(pipe: Pipeline) -> None:
    """Given recalls of one agent in workspaces of two tenants, then each tenant has its own queries in the account."""
    tenants = {"local": None, "acme": "acme"}
    for name, tenant in tenants.items():
        keep(pipe, name, f"prefers {name}", tier="account", tenant=tenant)
    settle(pipe)
    account = pipe.stores.account_store()
    with account.writing() as tx:
        for name in tenants:
            sql = "SELECT c.id FROM chunks AS c JOIN memories AS k ON k.row_id = c.memory_row WHERE k.id = :id"
            chunk = tx.connection.execute(text(sql), {"id": name}).scalar_one()
            tx.recalls.record([NewRecall("ana", new_id(), f"query of {name}", pipe.now() + DAY, ((chunk, 1.0),))])
    for name in tenants:
        found = recent_recalls(account.seen_by(Viewer(tenant=name)), agent="ana")
        assert [(event.query, event.id) for event in found] == [(f"query of {name}", name)]
    assert len(recent_recalls(account, agent="ana")) == 2


def test_an_agent_sees_only_its_own_recalls(pipe: Pipeline) -> None:
    """Given recalls of two agents, then each sees its own; the same query of another is not there."""
    recall(pipe)
    recall(pipe, agent="kate")
    record(pipe)
    assert len(recent_recalls(pipe.store, agent="ana")) == 4
    assert len(recent_recalls(pipe.store, agent="kate")) == 1
    assert recent_recalls(pipe.store, agent="nobody") == []


def test_a_chunk_of_another_agent_is_not_counted(pipe: Pipeline) -> None:
    """Given a note that names a chunk of somebody else's, when it is recorded, then that chunk is left out."""
    hers = recall(pipe, agent="kate").hits[0]
    record(pipe)
    log(pipe, agent="ana", hits=[hers])
    assert record(pipe).events == 0
    assert recent_recalls(pipe.store, agent="ana") == []
    assert counted(pipe)["zanzibar of kate"][0] == 1


def test_a_recall_that_is_delivered_twice_counts_once(pipe: Pipeline) -> None:
    """Given the same note in one batch and in a later one, then its events are there once and counted once."""
    note = recall(pipe)
    pipe.recalls.append(WORKSPACE, [msgspec.json.encode(note)])
    assert record(pipe).events == 4
    before = counted(pipe)
    pipe.recalls.append(WORKSPACE, [msgspec.json.encode(note)])
    assert record(pipe).events == 0
    assert counted(pipe) == before
    assert pipe.count("recall_events") == 4


def test_a_chunk_found_twice_by_one_recall_counts_once(pipe: Pipeline) -> None:
    """Given a note that names a chunk twice, then that is one event."""
    chunk, score = recall(pipe, limit=1).hits[0]
    record(pipe)
    log(pipe, hits=[(chunk, score), (chunk, 0.1)])
    assert record(pipe).events == 1


def test_the_time_of_access_never_goes_back(pipe: Pipeline) -> None:
    """Given notes that arrive out of order, then the newest time stays."""
    late = recall(pipe, limit=1)
    record(pipe)
    log(pipe, hits=late.hits, at=late.at - 1)
    record(pipe)
    assert max(counted(pipe).values()) == (2, late.at)


STEPS = [(RecallLog, "read"), (RecallEvents, "record"), (RecallLog, "remove")]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "name"), STEPS, ids=lambda value: getattr(value, "__name__", value))
def test_a_worker_killed_at_any_step_loses_nothing_and_counts_nothing_twice(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: bool
) -> None:
    """Given a death before or after a step, when the next worker comes, then all is recorded once."""
    for _ in range(3):
        recall(pipe)
    method = getattr(owner, name)

    def dies(*arguments: Any, **keywords: Any) -> None:
        if after:
            method(*arguments, **keywords)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(Killed):
            record(pipe)
    pipe.recalls.give_back(WORKSPACE, with_note=True)  # as when its time has ended
    record(pipe)
    assert pipe.count("recall_events") == 12
    assert {times for text_, (times, _) in counted(pipe).items() if "kate" not in text_} == {3}
    assert pipe.recalls.workspaces() == []
    assert verify(pipe.store).wrong == []


def test_a_recall_that_kills_its_worker_is_set_aside_and_the_others_are_recorded(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given one recall among others at which each worker dies, then it is a dead letter, and the others are events."""
    for query in ("one", "two", "deadly", "four", "five"):
        recall(pipe, query="zanzibar", limit=1) if query != "deadly" else log(pipe, query=query)
    write = RecallEvents.record

    def dies(self: RecallEvents, found: Sequence[NewRecall]) -> int:
        if any(one.query == "deadly" for one in found):
            raise Killed
        return write(self, found)

    monkeypatch.setattr(RecallEvents, "record", dies)
    for _ in range(4):
        with contextlib.suppress(Killed):
            record(pipe)
        assert record(pipe) == RecordReport(), "its time has not ended"
        pipe.recalls.give_back(WORKSPACE, with_note=True)
    record(pipe)
    assert (pipe.count("recall_events"), pipe.recalls.workspaces()) == (4, [])
    (letter,) = pipe.dead_letters()
    assert (letter.stage, letter.error_type, letter.payload) == ("recalls", "WorkerCrashed", None)
    with pytest.raises(Conflict, match="cannot be replayed, as the words of the recall are not kept: drop it"):
        replay(pipe.store, pipe.inbox, letter.id)


def test_a_recall_whose_store_was_locked_is_not_suspected(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a store that is locked time and again, then its recalls are recorded when it is free."""
    recall(pipe)
    with monkeypatch.context() as patch:

        def locked(*_: object) -> int:
            raise StoreUnavailable("the database is locked")

        patch.setattr(RecallEvents, "record", locked)
        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                record(pipe)
    assert record(pipe).events == 4
    assert pipe.dead_letters() == []


def test_two_workers_at_one_log_record_everything_once(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a worker that has read a batch, when another records it and more, then the first one loses nothing."""
    monkeypatch.setattr(recalls, "BATCH_RECALLS", 2)
    for _ in range(5):
        recall(pipe)
    read = pipe.recalls.read

    def another_first(workspace: str, *, limit: int) -> object:
        found = read(workspace, limit=limit)
        monkeypatch.setattr(pipe.recalls, "read", read)
        record(pipe, budget_seconds=-1)
        recall(pipe)
        return found

    monkeypatch.setattr(pipe.recalls, "read", another_first)
    record(pipe)
    assert pipe.count("recall_events") == 24
    assert counted(pipe)["zanzibar one"][0] == 6
    assert pipe.recalls.workspaces() == []


def test_what_a_worker_has_no_time_for_is_asked_for_again(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more than a batch and no time, then one batch is recorded, the rest is there, and the report says so."""
    monkeypatch.setattr(recalls, "BATCH_RECALLS", 2)
    for _ in range(5):
        recall(pipe)
    reports = [record(pipe, budget_seconds=-1) for _ in range(3)]
    assert [(report.recalls, report.more) for report in reports] == [(2, True), (2, True), (1, False)]


def test_what_cannot_be_read_is_dropped_and_counted(pipe: Pipeline) -> None:
    """Given junk among the notes, then it holds nothing up."""
    pipe.recalls.append(WORKSPACE, [b"junk"])
    recall(pipe)
    pipe.recalls.append(WORKSPACE, [b"{}"])
    report = record(pipe)
    assert (report.recalls, report.events, report.unreadable) == (1, 4, 2)
    assert pipe.recalls.workspaces() == []


def test_an_empty_log_is_no_work(pipe: Pipeline) -> None:
    """Given nothing in the log, then nothing is written."""
    assert record(pipe) == RecordReport()


@pytest.mark.sqlite("PostgreSQL's texts have no NUL: it is replaced")
def test_a_query_of_any_letters_is_kept_as_it_was(pipe: Pipeline) -> None:
    """Given a query with quotes, a zero and letters beyond the basic plane, then it is read as it was written."""
    query = "a\0b '\"; DROP TABLE chunks -- 🐙 é"
    log(pipe, query=query, hits=recall(pipe, limit=1).hits)
    record(pipe)
    assert query in {event.query for event in recent_recalls(pipe.store, agent="ana")}


def test_a_chunk_that_is_gone_meanwhile_is_left_out(pipe: Pipeline) -> None:
    """Given recalls of two sessions, when one is forgotten before they are recorded, then only the other is there."""
    recall(pipe)
    pipe.forget("s")
    report = record(pipe)
    assert (report.recalls, report.events) == (1, 2)
    assert {event.session for event in recent_recalls(pipe.store, agent="ana")} == {"other", None}


def test_the_events_of_a_forgotten_session_go_with_it(pipe: Pipeline) -> None:
    """Given recorded recalls, when a session is forgotten, then no event speaks of it any more."""
    recall(pipe)
    record(pipe)
    pipe.forget("s")
    assert {event.session for event in recent_recalls(pipe.store, agent="ana")} == {"other", None}
    assert pipe.count("recall_events") == 2
    assert verify(pipe.store).wrong == []


def test_a_file_that_is_replaced_takes_its_events_along(pipe: Pipeline) -> None:
    """Given a file that was found, when its text changes, then its old chunks and their events are gone."""
    recall(pipe, "file", limit=1)
    record(pipe)
    assert len(recent_recalls(pipe.store, agent="ana")) == 1
    pipe.hand_in("file:///z", "pemba")
    pipe.settle()
    assert recent_recalls(pipe.store, agent="ana") == []


def test_a_deleted_workspace_leaves_nothing_in_the_log(pipe: Pipeline) -> None:
    """Given recalls that wait, when their workspace is deleted, then they are gone from the broker."""
    recall(pipe)
    assert forget_workspace(RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)
    assert [key for key in pipe.broker.keys("*") if b"recalls" in key] == []


def test_a_recall_noted_late_is_dropped_with_its_workspace(pipe: Pipeline) -> None:
    """Given a server that still had a recall in memory, when the workspace is gone, then its note is dropped."""
    note = recall(pipe)
    forget_workspace(RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)
    pipe.recalls.append(WORKSPACE, [msgspec.json.encode(note)])
    assert record(pipe) == RecordReport()
    assert [key for key in pipe.broker.keys("*") if b"recalls" in key] == []
    assert pipe.stores.names() == []


def test_a_recall_noted_late_says_nothing_of_a_workspace_made_anew(pipe: Pipeline) -> None:
    """Given a workspace that was deleted and made anew, then an old recall counts for no chunk of the same id."""
    note = recall(pipe)
    forget_workspace(RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)
    pipe.say("something else", "and more", "and more yet")
    pipe.settle()
    pipe.recalls.append(WORKSPACE, [msgspec.json.encode(note)])
    report = record(pipe)
    assert (report.recalls, report.events) == (1, 0)


def test_the_sweep_wakes_for_each_log_that_is_not_empty(pipe: Pipeline) -> None:
    """Given logs of two workspaces and one that no client of ours could name, two are notified, the third dropped."""
    recall(pipe)
    pipe.recalls.append("other", [b"junk"])
    pipe.recalls.append("../../etc", [b"junk"])
    notified: list[str] = []
    counts = sweep_recalls(pipe.recalls, notify=notified.append)
    assert notified == ["other", WORKSPACE]
    assert counts["recall_logs"] == 2
    assert list(counts["recall_log_errors"]) == ["../../etc"]
    assert pipe.recalls.workspaces() == ["other", WORKSPACE]
    record(pipe)
    record_recalls(pipe.recalls, pipe.stores, workspace="other")
    assert sweep_recalls(pipe.recalls, notify=notified.append) == {"recall_logs": 0}


def test_events_are_kept_for_so_many_days(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given events of two agents, old and new, when they are pruned step by step, then new ones and counts stay."""
    monkeypatch.setattr(maintenance, "_PRUNE_EVENTS", 3)
    for agent in ("ana", "kate"):
        for _ in range(3):
            recall(pipe, agent=agent)
    record(pipe)
    before = counted(pipe)
    now = pipe.now() + 90 * DAY
    fresh = recall(pipe, "zanzibar one", limit=1)
    log(pipe, hits=fresh.hits, at=now)
    record(pipe)
    assert prune_recalls(pipe.store, now=now - DAY, keep_days=90) == 0
    assert prune_recalls(pipe.store, now=now, keep_days=90) == 15
    assert [event.at for event in recent_recalls(pipe.store, agent="ana")] == [from_micros(now), from_micros(fresh.at)]
    assert recent_recalls(pipe.store, agent="kate") == []
    assert counted(pipe)["zanzibar of kate"] == before["zanzibar of kate"] == (3, before["zanzibar of kate"][1])
    assert prune_recalls(pipe.store, now=now, keep_days=90) == 0


def test_pruning_stops_when_its_time_is_over(pipe: Pipeline) -> None:
    """Given no time, then nothing is pruned, and the next run does it."""
    recall(pipe)
    record(pipe)
    later = pipe.now() + DAY
    assert prune_recalls(pipe.store, now=later, keep_days=0.5, budget_seconds=-1) == 0
    assert prune_recalls(pipe.store, now=later, keep_days=0.5) == 4


def test_the_daily_upkeep_prunes(pipe: Pipeline) -> None:
    """Given old events, when the stores are optimised, then they are dropped and counted."""
    recall(pipe)
    record(pipe)
    pipe.advance(2 * 24 * 3_600)
    counts = optimize_stores(pipe.stores, now=pipe.now, recall_events_days=1)
    assert counts["workspaces"][WORKSPACE]["recall_events_dropped"] == 4
    assert recent_recalls(pipe.store, agent="ana") == []


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("limits.md", f"{KEEP_RECALLS:,} recalls of a workspace"),
        ("operations.md", f"first {QUERY_CHARACTERS} characters of"),
        ("operations.md", f"for {Settings.model_fields['recall_events_days'].default:g} days"),
    ],
)
def test_a_number_of_recalls_on_a_page_is_the_one_in_the_code(page: str, says: str) -> None:
    """Given a number that a page gives, then it is the constant's value."""
    text_ = (Path(__file__).resolve().parents[2] / "docs" / page).read_text(encoding="utf-8")
    assert says in " ".join(text_.split())


@pytest.mark.parametrize(
    "read",
    [
        lambda tx: tx.for_agent("ana").recalls.recent(),
        lambda tx: tx.recalls.prune("ana", before=0, limit=10),
        lambda tx: tx.recalls.agents(),
    ],
    ids=["recent", "prune", "agents"],
)
@pytest.mark.sqlite("query plans")
def test_no_look_at_events_reads_all_of_them(pipe: Pipeline, read: Callable[[Any], object]) -> None:
    """Given many events, then each question is answered by an index: it takes as many steps as with few."""
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
            " INSERT INTO recall_events (agent_id, recall, chunk_id, query, score, at)"
            " SELECT CASE WHEN i % 10 THEN 'kate' ELSE 'ana' END, 'r' || i, 1, 'q', 1.0, i FROM n"
        )
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    with pipe.store.writing() as tx:
        raw = tx.connection.connection.driver_connection
        raw.set_progress_handler(count, 100)
        try:
            read(tx)
        finally:
            raw.set_progress_handler(None, 0)
    assert steps[0] * 100 < 10_000
