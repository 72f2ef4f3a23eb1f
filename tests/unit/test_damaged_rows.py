"""Rows that a damaged file has left: set aside, named by verification, and quoted nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from adapters.tokens import EstimatedTokens
from memory.sessions.restoring import restore_session
from memory.sessions.sessions import export_session
from reverie import Reverie
from storage.stores import Store
from storage.verify import verify
from support.exports import fill, installation
from support.pipeline import Pipeline
from support.remembered import keep
from support.stages import drain
from worker.runtime import Runtime

# What must appear in no answer and no log line.
SECRET: Final = "xylophone"
NOT_UTF8: Final = f"CAST(x'ff' || CAST('{SECRET}' AS BLOB) AS TEXT)"
SURROGATE: Final = f"CAST(CAST('{SECRET}' AS BLOB) || x'eda080' AS TEXT)"
BLOB: Final = f"CAST('{SECRET}' AS BLOB)"
NOT_JSON: Final = f"'{{{SECRET}'"
LONE: Final = f"""'["{SECRET}\\ud800"]'"""
NO_TIME: Final = str(2**62)
NO_NUMBER: Final = f"'{SECRET}'"


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, valkey_url: str) -> Iterator[tuple[Runtime, Reverie]]:
    """One installation with something of every kind, in which each test damages one value and mends it again."""
    from worker.settings import Settings

    made: list[Runtime] = []

    def make(**settings: Any) -> Runtime:
        made.append(Runtime(Settings(broker=valkey_url, embedding_provider="hash", **settings)))
        return made[-1]

    with installation(make, tmp_path_factory.mktemp("damaged")) as (runtime, ana):
        fill(runtime, ana)
        ana.ingest("kates", [{"role": "user", "content": "taken", "sequence": 1}], user="kate")
        drain(runtime)
        yield runtime, ana
    made[0].close()


def execute(store: Store, sql: str) -> None:
    with store.database.atomic() as connection:
        has_pragmas = connection.dialect.name == "sqlite"
        for statement in ("PRAGMA ignore_check_constraints = ON", sql, "PRAGMA ignore_check_constraints = OFF"):
            if has_pragmas or statement == sql:
                connection.exec_driver_sql(statement)


READS: Final[dict[str, Callable[[Reverie], Any]]] = {
    "recall by words": lambda ana: ana.recall("heron lamp choir", user="kate", mode="keyword", limit=50),
    "recall": lambda ana: ana.recall("heron lamp choir", user="kate", limit=50, neighbours=2, explain=True),
    "recall as of": lambda ana: ana.recall("city", user="kate", as_of="2030-01-01T00:00:00Z"),
    "context": lambda ana: ana.context("group", "heron lamp", user="kate", token_budget=10_000),
    "sessions": lambda ana: ana.sessions.list(all_users=True),
    "messages": lambda ana: ana.sessions.messages("nobodys"),
    "a session": lambda ana: ana.sessions.get("kates"),
    "messages of a session": lambda ana: ana.sessions.messages("kates"),
    "export of a session": lambda ana: ana.sessions.export("kates"),
    "context of a session": lambda ana: ana.context("kates", "heron", user="kate"),
    "working memory": lambda ana: ana.working("kates"),
    "recall in a session": lambda ana: ana.recall("taken", session="kates"),
    "memories": lambda ana: ana.memories.list(user="kate", superseded=True, expired=True),
    "search of memories": lambda ana: ana.memories.search("lamp", user="kate", tags=["lamp"]),
    "facts": lambda ana: ana.facts.list(user="kate"),
    "fact history": lambda ana: ana.facts.history("home", "city", user="kate"),
    "notes": lambda ana: ana.notes.list(user="kate"),
    "files": lambda ana: ana.files.list(user="kate"),
    "items": lambda ana: ana.items.search([], "plums"),
    "items of a user": lambda ana: ana.items.search([], filter={"n": {"$gte": 1}}, user="kate"),
    "namespaces": lambda ana: ana.items.namespaces(),
    "schedules": lambda ana: ana.schedules.list(all_users=True, cadence="cron"),
    "reminders": lambda ana: ana.reminders.list(all_users=True),
    "recall events": lambda ana: ana.memories.recall_events(user="kate", explain=True),
    "dead letters": lambda ana: ana.admin.dead_letters.list(all_agents=True),
    "channels": lambda ana: ana.channels.list(),
    "agents": lambda ana: ana.admin.workspaces.agents(),
    "status": lambda ana: ana.status(),
    "audit": lambda ana: ana.admin.audit(),
    "erasure": lambda ana: ana.admin.erasures.create(user="kate", dry_run=True),
    "export of memories": lambda ana: ana.memories.export(user="kate"),
}
DAMAGES: Final = [
    ("messages", "content", NOT_UTF8),
    ("messages", "content", SURROGATE),
    ("messages", "content", BLOB),
    ("messages", "created_at", NO_NUMBER),
    ("messages", "created_at", NO_TIME),
    ("messages", "metadata", NOT_JSON),
    ("messages", "tags", LONE),
    ("messages", "tool_calls", NOT_JSON),
    ("chunks", "text", NOT_UTF8),
    ("chunks", "text", BLOB),
    ("chunks", "created_at", NO_TIME),
    ("forward_index", "words", "x'00'"),
    ("forward_index", "role", NOT_UTF8),
    ("memories", "content", NOT_UTF8),
    ("memories", "owner_user_id", NOT_UTF8),
    ("memories", "expires_at", NO_TIME),
    ("memories", "updated_at", NO_NUMBER),
    ("memories", "metadata", NOT_JSON),
    ("memories", "tags", NOT_JSON),
    ("memories", "importance", NO_NUMBER),
    ("files", "source_uri", NOT_UTF8),
    ("files", "metadata", NOT_JSON),
    ("items", "value", NOT_JSON),
    ("items", "key", NOT_UTF8),
    ("schedules", "cadence", NOT_JSON),
    ("schedules", "goal", BLOB),
    ("reminders", "message", NOT_UTF8),
    ("reminders", "due_at", NO_TIME),
    ("recall_events", "query", NOT_UTF8),
    ("sessions", "metadata", NOT_JSON),
    ("sessions", "ref_code", NOT_UTF8),
    ("sessions", "chat_id", BLOB),
    ("sessions", "channel_id", NOT_UTF8),
    ("sessions", "started_at", NO_TIME),
    ("sessions", "ended_at", NO_NUMBER),
    ("sessions", "updated_at", NO_TIME),
    ("channels", "description", NOT_UTF8),
    ("dead_letters", "error", NOT_UTF8),
    ("scratchpad_lists", "items", NOT_JSON),
]


@pytest.mark.sqlite("a database server checks texts and types itself")
@pytest.mark.parametrize(("table", "column", "damage"), DAMAGES)
def test_a_damaged_row_fails_nothing_else_and_is_named(
    filled: tuple[Runtime, Reverie], tmp_path: Path, table: str, column: str, damage: str
) -> None:
    """Given one damaged value, then everything can be read and exported, no answer or log line has what it holds, and
    verification names its table and column."""
    runtime, ana = filled
    store = runtime.store("default")
    key = _KEYS.get(table, "rowid")
    row = f"{key} = (SELECT max({key}) FROM {table})"
    with store.reading() as tx:
        kept = tx.connection.exec_driver_sql(f"SELECT quote({column}) FROM {table} WHERE {row}").scalar_one()
    execute(store, f"UPDATE {table} SET {column} = {damage} WHERE {row}")
    failed, said = {}, ""
    with structlog.testing.capture_logs() as lines:
        for name, read in READS.items():
            try:
                said += repr(read(ana))
            except Exception as error:
                failed[name] = repr(error)
        path = tmp_path / "all.jsonl"
        ana.admin.export_file(path)
    wrong = verify(store).wrong
    execute(store, f"UPDATE {table} SET {column} = {kept} WHERE {row}")
    assert failed == {}
    assert SECRET not in said + path.read_text() + repr(lines) + repr(wrong)
    damaged = [line for line in wrong if line.startswith("damaged: ")]
    named = [line for line in damaged if f"damaged: {table} (" in line and f"column {column}:" in line]
    assert len(named) == (0 if column == "words" else 1), damaged
    assert verify(store).wrong == []


# Of tables without rows that are numbered.
_KEYS: Final = {"forward_index": "chunk_id", "reminders": "id", "schedules": "id"}


@pytest.mark.sqlite("a database server checks texts itself")
def test_a_message_that_cannot_be_read_becomes_a_dead_letter_and_the_others_are_found(pipe: Pipeline) -> None:
    """Given a message damaged before it was cut, and a chunk damaged before it was embedded, then the stages go on,
    and both are dead letters that say nothing of the text."""
    pipe.say("the heron stands", f"the {SECRET} plays", "the choir sings")
    pipe.drain(lambda: pipe.ingest().taken)
    execute(pipe.store, f"UPDATE messages SET content = {NOT_UTF8} WHERE sequence = 2")
    pipe.drain(lambda: pipe.chunk().more)
    execute(pipe.store, f"UPDATE chunks SET text = {NOT_UTF8} WHERE id = (SELECT max(id) FROM chunks)")
    pipe.settle()
    assert pipe.found("heron choir stands sings") == ["the heron stands"]
    letters = pipe.dead_letters()
    assert sorted(letter.stage for letter in letters) == ["chunk", "embed"]
    assert SECRET not in repr(letters)
    assert not pipe.chunk().done
    assert not pipe.embed().done


@pytest.mark.sqlite("a database server checks the length")
def test_a_vector_that_was_cut_is_made_again(pipe: Pipeline) -> None:
    """Given a vector without its dimension before it is indexed, then it is made again and found."""
    pipe.say("the heron stands", "the choir sings")
    pipe.drain(lambda: pipe.ingest().taken)
    pipe.drain(lambda: pipe.chunk().more)
    pipe.embed()
    execute(pipe.store, "UPDATE chunks_vec SET embedding = x'00' WHERE chunk_id = 1")
    assert [line for line in verify(pipe.store).wrong if "chunks_vec (chunk_id 1), column embedding" in line]
    pipe.settle()
    pipe.settle()
    assert verify(pipe.store).wrong == []
    assert next(found.text for found in pipe.recall("the heron stands", mode="vector")) == "the heron stands"


def test_json_that_is_none_is_named_and_left_out(pipe: Pipeline) -> None:
    """Given metadata that are no JSON, in a file or a database server, then the other messages are read and the row is
    named; a session has none then, and goes on."""
    pipe.say("the heron stands", "the choir sings")
    pipe.settle()
    execute(pipe.store, f"UPDATE sessions SET metadata = {NOT_JSON}")
    assert [line for line in verify(pipe.store).wrong if "sessions" in line and "column metadata" in line]
    assert pipe.contents() == ["the heron stands", "the choir sings"]
    execute(pipe.store, "UPDATE sessions SET metadata = '{}'")
    execute(pipe.store, f"UPDATE messages SET metadata = {NOT_JSON} WHERE sequence = 1")
    assert pipe.contents() == ["the choir sings"]
    (line,) = verify(pipe.store).wrong
    assert "messages" in line
    assert "column metadata: not JSON" in line


@pytest.mark.sqlite("a database server checks texts itself")
def test_a_session_that_is_damaged_makes_dead_letters_of_its_messages_alone(pipe: Pipeline) -> None:
    """Given a session whose number of messages is damaged, when messages for it and for others arrive together, then
    only its own wait as dead letters, to be replayed."""
    pipe.say("the heron stands", session="bad")
    pipe.settle()
    execute(pipe.store, f"UPDATE sessions SET last_sequence = {NO_NUMBER}")
    pipe.say("one", session="bad")
    pipe.say("two", session="good")
    pipe.settle()
    assert pipe.contents("good") == ["two"]
    (letter,) = pipe.dead_letters()
    assert json.loads(letter.payload or b"")["content"] == "one"


@pytest.mark.sqlite("a database server checks types itself")
def test_pages_full_of_damaged_rows_end_no_list(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more damaged memories in a row than a page has, then lists and jobs go on behind them."""
    monkeypatch.setattr("storage.memories.memories._PAGE_ROWS", 2)
    for number in range(8):
        keep(pipe, str(number), f"Memory {number}")
    execute(pipe.store, "UPDATE memories SET updated_at = 'never' WHERE row_id BETWEEN 3 AND 7")
    with pipe.store.reading() as tx:
        memories = tx.for_agent("ana").memories
        assert [memory.content for memory in memories.page(limit=2, offset=0)] == ["Memory 7", "Memory 1"]
        assert [memory.content for memory in memories.iterate()] == ["Memory 0", "Memory 1", "Memory 7"]


@pytest.mark.sqlite("a database server checks types itself")
def test_a_page_without_a_damaged_row_is_not_the_last(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a damaged row on the first of several pages, then an export and a restore still have what comes after."""
    monkeypatch.setattr("memory.sessions.restoring._PAGE", 3)
    pipe.say(*(f"turn {number}" for number in range(8)))
    pipe.settle()
    execute(pipe.store, "UPDATE messages SET created_at = 'never' WHERE content IN ('turn 1', 'turn 6')")
    exported = export_session(pipe.store, agent="ana", session="s")
    restored = restore_session(pipe.store, EstimatedTokens(), agent="ana", session="s", token_budget=1_000)
    readable = [f"turn {number}" for number in (0, 2, 3, 4, 5, 7)]
    assert [message.content for message in exported.messages] == readable
    assert [message.content for message in restored.messages] == readable


@pytest.mark.sqlite("a database server checks types itself")
def test_the_memories_behind_a_page_with_a_damaged_one_are_read(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a damaged memory on the first of several pages, then all others are read."""
    monkeypatch.setattr("storage.memories.memories._PAGE_ROWS", 2)
    for number in range(5):
        keep(pipe, str(number), f"Memory {number}")
    execute(pipe.store, "UPDATE memories SET created_at = 'never' WHERE content = 'Memory 1'")
    with pipe.store.reading() as tx:
        found = [memory.content for memory in tx.for_agent("ana").memories.iterate()]
    assert found == ["Memory 0", "Memory 2", "Memory 3", "Memory 4"]
