"""Large files and sessions are cut, replaced, forgotten and erased in short transactions, whatever is killed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.broker.inbox import Number
from memory import stage
from memory.fragments import FragmentSet
from memory.lifecycle.erasure_rows import RowErasure
from memory.pipeline import chunking
from memory.tombstones import hash_key
from storage.lifecycle.erasures import Subject
from storage.pipeline.chunks import Chunks
from storage.pipeline.files import STEP_CHUNKS, ForgottenFiles
from storage.sessions.sessions import STEP_ROWS, ForgottenSessions
from storage.stores import Store
from storage.transaction import Transaction
from storage.verify import verify
from support.pipeline import Pipeline


class Killed(BaseException):
    """Stands for a SIGKILL: no handler of the product catches it."""


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def kill(*_: object, **__: object) -> None:
    raise Killed


def long_text(word: str, count: int = 200) -> str:
    again = f"{word} is said here again and again. " * 16
    return "\n\n".join(f"{word} number {number}. {again}" for number in range(count))


def chunks_of_files(pipe: Pipeline) -> int:
    return pipe.count("chunks", "file_row IS NOT NULL")


def watch_steps(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note after each transaction of the store how many chunks of files there are."""
    left = [chunks_of_files(pipe)]
    writing = Store.writing

    @contextmanager
    def counted(store: Store, **more: Any) -> Iterator[Transaction]:
        with writing(store, **more) as tx:
            yield tx
            sql = "SELECT count(*) FROM chunks WHERE file_row IS NOT NULL"
            left.append(int(tx.connection.exec_driver_sql(sql).scalar_one()))

    monkeypatch.setattr(Store, "writing", counted)
    return left


def test_a_large_file_is_cut_in_steps_and_each_of_its_chunks_is_stored_once(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a file of more chunks than one transaction stores, and a kill between two, then the next worker goes on."""
    monkeypatch.setattr(chunking, "_CHUNKS_AT_ONCE", 40)
    monkeypatch.setattr(stage, "_TRANSACTION_SECONDS", 0.0)
    pipe.hand_in("doc.md", long_text("zanzibar", 100))
    pipe.ingest()
    left = watch_steps(pipe, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(Chunks, "mark_chunked", kill_second(Chunks.mark_chunked))
        with pytest.raises(Killed):
            pipe.chunk()
    assert 0 < left[-1] <= 40
    pipe.advance(60)
    pipe.drain(lambda: pipe.chunk().more)
    assert max(after - before for before, after in itertools.pairwise(left)) <= 40
    assert left[-1] == chunks_of_files(pipe) > 100
    assert pipe.count("files", "chunked_at IS NOT NULL") == 1
    with pipe.store.reading() as tx:
        sql = "SELECT count(*), count(DISTINCT content_hash) FROM chunks"
        assert len(set(tx.connection.exec_driver_sql(sql).one())) == 1
    pipe.settle()
    assert verify(pipe.store).wrong == []


def kill_second(method: Callable[..., Any]) -> Callable[..., Any]:
    calls: list[int] = []

    def second(*arguments: Any, **keywords: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise Killed
        return method(*arguments, **keywords)

    return second


def test_a_large_file_is_replaced_at_once_and_its_rows_go_in_short_steps(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a file of many chunks and its next version, then nobody finds the old one, and workers remove its rows."""
    pipe.hand_in("doc.md", long_text("zanzibar"))
    pipe.settle()
    left = watch_steps(pipe, monkeypatch)
    pipe.hand_in("doc.md", "madagascar")
    pipe.ingest()
    assert left[-1] == left[0], "nothing is removed yet"
    assert pipe.found("zanzibar") == []
    assert verify(pipe.store).wrong == []
    with pipe.store.reading() as tx:
        assert [file.source_uri for file in tx.for_agent("ana").files.page()] == ["doc.md"]
        assert not tx.work.is_idle(["chunk-files"]), "what is left is work, which a sweep finds"
        content = tx.connection.exec_driver_sql("SELECT group_concat(content) FROM files").scalar_one()
    assert "zanzibar" not in content
    with monkeypatch.context() as patch:
        patch.setattr(Chunks, "remove", kill)
        with pytest.raises(Killed):
            pipe.chunk()
    pipe.advance(60)
    pipe.settle()
    assert max(before - after for before, after in itertools.pairwise(left)) <= STEP_CHUNKS
    assert (pipe.found("madagascar"), chunks_of_files(pipe), pipe.count("files")) == (["madagascar"], 1, 1)
    assert pipe.count("claims") == 0
    assert verify(pipe.store).wrong == []


def test_a_large_file_is_forgotten_at_once_and_its_rows_go_in_short_steps(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a kill right after a large file was forgotten, then nothing of it is found, and workers remove its rows."""
    forgotten = pipe.hand_in("doc.md", long_text("zanzibar"))
    pipe.settle()
    left = watch_steps(pipe, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("memory.lifecycle.forgetting.remove_forgotten", kill)
        with pytest.raises(Killed):
            pipe.forget_file(forgotten.id)
    assert left[-1] == left[0]
    assert pipe.found("zanzibar") == []
    assert pipe.forget_file(forgotten.id) is False
    assert (left[-1], pipe.count("files")) == (0, 0)
    assert max(before - after for before, after in itertools.pairwise(left)) <= STEP_CHUNKS
    pipe.hand_in("doc.md", "zanzibar once more")
    pipe.settle()
    assert pipe.found("zanzibar") == ["zanzibar once more"]
    assert verify(pipe.store).wrong == []


def test_a_file_that_is_replaced_while_it_is_cut_leaves_no_chunks(pipe: Pipeline) -> None:
    """Given a worker that has claimed a large file which is then replaced, then it stores nothing of it."""
    pipe.hand_in("doc.md", long_text("zanzibar"))
    pipe.settle()
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("UPDATE files SET chunked_at = NULL")
        claim = tx.work.claim("chunk-files", now=pipe.now(), lease_seconds=25, limit=10)
    pipe.hand_in("doc.md", "madagascar")
    pipe.ingest()
    assert claim is not None
    with pipe.store.reading() as tx:
        assert tx.work.still_claimed(claim) == set()
    pipe.settle()
    assert chunks_of_files(pipe) == 1


def erase(pipe: Pipeline, subject: Subject, counts: Counter[str], kept: FragmentSet) -> None:
    RowErasure(
        forgotten_at=lambda: Number(0, ""),
        drop_cached=lambda _store, _sessions: None,
        on_removed=lambda _store, numbers: counts.update(numbers),
        key=hash_key(pipe.stores.data_dir),
        on_fragments=kept.add,
    ).erase(pipe.store, "ana", subject)


@pytest.mark.parametrize("killed_at", [ForgottenSessions, ForgottenFiles, None])
@pytest.mark.parametrize("subject", [Subject("agent"), Subject("user", "kate")])
def test_an_erasure_sets_what_is_large_aside_and_leaves_nothing_of_it(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, killed_at: type | None, subject: Subject
) -> None:
    """Given a large session and file, and a kill while their rows go, then they are gone at once, and all at the end.

    None of the transactions is long, and the traces of all texts were noted.
    """
    pipe.say(*[f"the harbour has pier number {number}" for number in range(200)], user="kate")
    pipe.hand_in("doc.md", long_text("zanzibar"), user="kate")
    pipe.settle()
    tables = ("chunks", "messages", "files", "sessions")
    before, left = {table: pipe.count(table) for table in tables}, [pipe.count("chunks")]
    writing = Store.writing

    @contextmanager
    def counted(store: Store, **more: Any) -> Iterator[Transaction]:
        with writing(store, **more) as tx:
            yield tx
            left.append(int(tx.connection.exec_driver_sql("SELECT count(*) FROM chunks").scalar_one()))

    monkeypatch.setattr(Store, "writing", counted)
    counts, kept = Counter[str](), FragmentSet()
    if killed_at is not None:
        with monkeypatch.context() as patch:
            patch.setattr(killed_at, "remove_step", kill)
            with pytest.raises(Killed):
                erase(pipe, subject, counts, kept)
        assert pipe.found("zanzibar") == []
    erase(pipe, subject, counts, kept)
    assert {table: pipe.count(table) for table in tables} == dict.fromkeys(tables, 0)
    assert {table: counts[table] for table in tables} == before
    assert max(more - less for more, less in itertools.pairwise(left)) <= max(STEP_ROWS, STEP_CHUNKS)
    assert len(kept) > sum(before.values())
    assert verify(pipe.store).wrong == []
