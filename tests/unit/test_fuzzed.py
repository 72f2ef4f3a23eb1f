"""Odd payloads, made from a seed: each is refused with a reason or taken, and nothing else happens."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu.exceptions import ContentDisallowed, SerializationError
from kombu.message import Message

from memory.sessions.sessions import read_messages
from reverie.calls import build, check
from reverie.errors import Rejected, ReverieError, StoreUnusable
from reverie.pipeline.calls import ReplayDeadLetter
from server import bodies
from server.bodies import decode
from storage.stores import Stores
from storage.verify import verify
from support.fuzzing.files import FileFuzzer
from support.fuzzing.payloads import Fuzzer, TaskFuzzer
from support.fuzzing.reading import FILES
from support.pipeline import Pipeline
from worker.app import app
from worker.consumer import check_envelope, check_task
from worker.settings import load_settings

OF_SQLITE = ("backups", "stores")


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def test_a_body_is_a_call_or_refused() -> None:
    """Given odd bodies for every call, then each is decoded and checked, or refused as the caller's fault."""
    fuzzer = Fuzzer(seed=11)
    taken = 0
    for number in range(600):
        kind = fuzzer.kinds[number % len(fuzzer.kinds)]
        with contextlib.suppress(Rejected):
            check(decode(fuzzer.body(kind), kind))
            taken += 1
    assert 0 < taken < 600


def test_a_body_with_fields_from_the_path_is_a_call_or_refused() -> None:
    """Given odd arguments, decoded before those of the path are added, then each gives a call or is refused."""
    fuzzer = Fuzzer(seed=15)
    taken = 0
    for number in range(300):
        kind = fuzzer.kinds[number % len(fuzzer.kinds)]
        with contextlib.suppress(Rejected):
            build(kind, decode(fuzzer.body(kind), dict[str, Any]))
            taken += 1
    assert 0 < taken < 300


def test_values_are_counted_outside_texts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a body with brackets, quotes and escapes in its texts, in pieces that end anywhere, then they count not."""
    texts = ['a"\\,[{', '\\\\"', "x,y", "", '"""', "\\" * 9]
    body = json.dumps([{text: [text, 1, {"a": text}]} for text in texts]).encode()
    for size in range(1, 40):
        monkeypatch.setattr(bodies, "_PIECE_BYTES", size)
        assert bodies._bare_marks(body) == 1 + 6 * 5 + 5
    monkeypatch.setattr(bodies, "MAX_VALUES", 20)
    with pytest.raises(Rejected, match="more than 20 values"):
        decode(body, dict[str, Any])


def test_half_a_character_where_a_number_belongs_is_refused() -> None:
    """Given a lone surrogate in the text of a number, then the call is refused and the character named."""
    with pytest.raises(Rejected, match=r"U\+DFFF"):
        build(ReplayDeadLetter, {"id": 1, "timeout_seconds": "1\udfff"})


def test_an_item_of_the_inbox_is_stored_or_set_aside(pipe: Pipeline) -> None:
    """Given odd items between two good ones, then none is left in the inbox, and what was stored can be searched."""
    fuzzer = Fuzzer(seed=12)
    pipe.say("a lantern on the quay")
    for number in range(120):
        pipe.smuggle(fuzzer.item(f"odd-{number}", agent="ana")[1], item_id=f"odd-{number}")
    pipe.say("a lantern in the attic")
    pipe.settle()
    assert pipe.waiting_in_inbox() == 0
    assert pipe.count("messages", "chunked_at IS NULL") == 0
    assert len(pipe.found("lantern")) == 2
    assert {letter.stage for letter in pipe.dead_letters()} <= {"ingest"}


def test_a_query_is_answered_or_refused(pipe: Pipeline) -> None:
    """Given odd queries, with the syntax of full-text search among them, then each has an answer or a reason."""
    fuzzer = Fuzzer(seed=13)
    pipe.say("a lantern on the quay")
    pipe.settle()
    answered = 0
    for mode in ("keyword", "hybrid"):
        for _ in range(60):
            with contextlib.suppress(Rejected):
                pipe.recall(fuzzer.text(), mode=mode)
                answered += 1
    assert answered > 60


def test_a_message_of_a_queue_is_a_task_or_refused() -> None:
    """Given odd messages of the queues, then each is a task with arguments of its own, or refused with a reason."""
    fuzzer = TaskFuzzer(16, workspace="ws")
    app.loader.import_default_modules()
    taken = 0
    for _ in range(400):
        _, raw = fuzzer.message()
        with contextlib.suppress(ValueError, RecursionError):
            envelope = json.loads(raw)
            check_envelope(envelope)
            body = base64.b64decode(envelope["body"])
            message = Message(
                body=body,
                headers=envelope["headers"],
                content_type=envelope.get("content-type"),
                content_encoding=envelope.get("content-encoding"),
                properties=envelope["properties"],
                accept={"application/json"},
            )
            with contextlib.suppress(ContentDisallowed, SerializationError):
                check_task(message, app.tasks)
                taken += 1
    assert 0 < taken < 200


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.sqlite("damages files")) if kind in OF_SQLITE else kind
        for kind in sorted(FILES)
    ],
)
def test_a_file_is_taken_or_refused(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given odd and damaged files of a kind, then each is read, or refused with one of Reverie's errors."""
    monkeypatch.setenv("REVERIE_CONFIG", "")
    read = FILES[kind](tmp_path)
    outcomes = set()
    for number in range(12 if kind in OF_SQLITE else 60):
        try:
            read(FileFuzzer(number), tmp_path)
            outcomes.add("taken")
        except ReverieError:
            outcomes.add("refused")
    assert outcomes


@pytest.mark.sqlite("damages a file")
def test_a_store_whose_schema_is_no_text_is_damaged(tmp_path: Path) -> None:
    """Given a schema that cannot be decoded, which SQLite quotes in its error, then the store is called damaged."""
    stores = Stores(tmp_path)
    stores.workspace("ws")
    stores.close()
    path = stores.database_path("ws")
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE messages", b"CREATE TABL\xd6 messages"))
    with pytest.raises(StoreUnusable, match="damaged"):
        stores.workspace("ws")


@pytest.mark.parametrize(
    "damaged",
    [
        "created_at = 1000000000000000000",
        pytest.param("created_at = x'00'", marks=pytest.mark.sqlite("a column takes values of any type")),
        "metadata = '{x'",
    ],
)
def test_a_row_that_is_damaged_is_left_out_of_what_is_read(pipe: Pipeline, damaged: str) -> None:
    """Given a row whose time or JSON is none, when its session is read, then the other rows are returned."""
    pipe.say("one", "two")
    pipe.settle()
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql(f"UPDATE messages SET {damaged} WHERE content = 'one'")
    read = read_messages(pipe.store, agent="ana", session="s", limit=10, offset=0)
    assert [message.content for message in read.messages] == ["two"]


@pytest.mark.parametrize("damaged", ["x'00'", "zeroblob(length(embedding) + 4)", "x''"])
@pytest.mark.sqlite("writes past its constraints")
def test_a_vector_of_the_wrong_size_is_left_out_of_a_recall(pipe: Pipeline, damaged: str) -> None:
    """Given one vector of another size, then a recall finds its text by words, and a verification finds the vector."""
    pipe.say("the lantern is on the quay")
    pipe.settle()
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        tx.connection.exec_driver_sql(f"UPDATE chunks_vec SET embedding = {damaged}")
        tx.connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
    assert [memory.text for memory in pipe.recall("lantern")] == ["the lantern is on the quay"]
    assert verify(pipe.store).wrong == [
        "integrity: CHECK constraint failed in chunks_vec",
        "damaged: chunks_vec (chunk_id 1), column embedding: not the dimension of its model",
    ]


def test_a_recall_leaves_out_a_row_without_a_time(pipe: Pipeline) -> None:
    pipe.say("the lantern is on the quay")
    pipe.settle()
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("UPDATE messages SET created_at = 1000000000000000000")
        tx.connection.exec_driver_sql("UPDATE forward_index SET created_at = 1000000000000000000")
    assert list(pipe.recall("lantern")) == []


def test_a_file_of_settings_is_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given odd files of settings, then each gives settings or an error that is the user's to mend."""
    fuzzer = Fuzzer(seed=14)
    file = tmp_path / "reverie.toml"
    monkeypatch.setenv("REVERIE_CONFIG", str(file))
    refused = 0
    for _ in range(40):
        file.write_bytes(fuzzer.settings())
        try:
            load_settings()
        except Rejected:
            refused += 1
    assert refused > 0
