"""The benchmarks of recall run with tiny inputs on the real stack; how good their figures are is not judged."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters.embedders.base import HashEmbedder
from benchmarks.context_quality import UPDATES, add_goals
from benchmarks.harness.datasets import (
    load_locomo,
    load_longmemeval,
    load_realmem,
    session_measures,
    turn_measures,
)
from benchmarks.harness.local import LocalInbox, NoWorkingMemory, store_messages
from benchmarks.harness.made_up_talk import MadeUpTalk
from benchmarks.harness.progress import Progress
from benchmarks.harness.recall_stores import Model, StoreSize, fill
from benchmarks.harness.result import Result
from benchmarks.recall_quality import GOALS
from memory.pipeline.chunking import chunk_messages
from memory.pipeline.embedding import EmbedHooks, embed_chunks, index_chunks
from reverie.clock import now_micros
from reverie.contract import MessagePayload
from storage.stores import Store, Stores
from storage.verify import verify
from support.endpoint import chat_endpoint
from support.reranking import score_by
from support.stacks import start_benchmark

pytestmark = pytest.mark.sqlite("measures recall from its files")

ROOT = Path(__file__).resolve().parents[2]
# What the builder and the pipeline must write alike; times, ids of messages and sessions' codes are each run's own.
SAME = {
    "sessions": "id, agent_id, status, last_sequence, metadata",
    "messages": "row_id, agent_id, session_row, sequence, role, name, content, importance, tags, metadata, created_at",
    "chunks": "id, agent_id, session_row, file_row, text, lead, content_hash, sequence_start, sequence_end, metadata,"
    " created_at, embedded_at IS NULL, indexed_at IS NULL",
    "message_chunks": "message_row, chunk_id",
    "chunks_vec": "chunk_id, model, dim, embedding",
    "forward_index": "agent_id, chunk_id, thread, sequence, created_at, role, speaker, words",
    "indexes": "kind, model, dim, state, built_to",
    "forward_changes": "agent_id, chunk_id, kind",
}


class BuiltVectors(HashEmbedder):
    """Gives chunks, in the order of their ids, the vectors that they were built with."""

    def __init__(self, blobs: Sequence[bytes]) -> None:
        self._vectors = iter([np.frombuffer(blob, "<f4") for blob in blobs])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The next vectors."""
        return np.array([next(self._vectors) for _ in texts])


def run_benchmark(name: str, output: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """Run one with the hash embedder, in a fork; returns what it said and its result."""
    program = start_benchmark(
        name,
        *("--quick", "--output", str(output), *options),
        environment=environment(),
        output=output.with_suffix(".output"),
        folder=ROOT,
    )
    said, complained = program.communicate(600)
    assert program.wait() == 0, said + complained
    return said, json.loads(output.read_text(encoding="utf-8"))


def environment() -> dict[str, str]:
    """Return the environment of a benchmark: this one's, without settings but for the hash embedder."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("REVERIE_")}
    path = os.pathsep.join([str(ROOT / "client"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "REVERIE_EMBEDDING_PROVIDER": "hash", "PYTHONPATH": path}


@pytest.fixture
def locomo(tmp_path: Path) -> Path:
    """Two people in two sessions; of the questions two count, one is adversarial, one has no evidence."""
    conversation = {
        "speaker_a": "Ana",
        "speaker_b": "Ben",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ana", "dia_id": "D1:1", "text": "The harbour was full of boats."},
            {"speaker": "Ben", "dia_id": "D1:2", "text": "Look at this!", "blip_caption": "a photo of a violin"},
        ],
        "session_2_date_time": "9:05 am on 1 June, 2023",
        "session_2": [{"speaker": "Ben", "dia_id": "D2:1", "text": "It rained all day."}],
        "session_3_date_time": "9:05 am on 2 June, 2023",
    }
    questions = [
        {"question": "Which boats lay in the harbour?", "category": 1, "evidence": ["D1:1; D2:1"]},
        {"question": "What is on the photo of Ben?", "category": 4, "evidence": ["D1:2"]},
        {"question": "Which boats did Ben own?", "category": 5, "evidence": ["D1:1"]},
        {"question": "Is Ana a sailor?", "category": 3, "evidence": []},
    ]
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([{"sample_id": "conv-1", "conversation": conversation, "qa": questions}]))
    return path


@pytest.fixture
def longmemeval(tmp_path: Path) -> Path:
    """One question with an answer and one without; a session stands in the haystack twice, a turn is empty."""
    user, assistant = {"role": "user", "content": "My violin has a new string."}, {"role": "assistant", "content": " "}
    entry = {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "What has the violin got?",
        "answer_session_ids": ["gold"],
        "haystack_session_ids": ["gold", "other", "other"],
        "haystack_dates": ["2023/05/20 (Sat) 00:43", "2023/05/21 (Sun) 10:00", "2023/05/29 (Mon) 02:12"],
        "haystack_sessions": [[user, assistant], *[[{"role": "user", "content": "It rained."}]] * 2],
    }
    path = tmp_path / "longmemeval.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.write("".join(json.dumps({**entry, "question_id": name}) + "\n" for name in ("q1_abs", "q1")))
    return path


@pytest.fixture
def changes(tmp_path: Path) -> tuple[Path, Path]:
    """A fact that is replaced with a question for it, and somebody to be forgotten beside somebody who is not."""
    facts = ["The capital of Veria is Osk.", "The capital of Luria is Tamm.", "The capital of Veria is Ulm."]
    replaced = {"new_facts": [facts[2]], "old_facts": [facts[0]]}
    forgotten = [("add", "Zora Quill has a boat.", None), ("add", "Milan Petri has a kite.", None)]
    paths = tmp_path / "facts.jsonl", tmp_path / "forget.jsonl"
    for path, turns, case in (
        (
            paths[0],
            [("add", fact, None) for fact in facts],
            {"kind": "f/sh", "question": "What is the capital of Veria?"},
        ),
        (
            paths[1],
            [*forgotten, ("purge", "", "Zora Quill")],
            {
                "kind": "purge/plain",
                "question": "Who has a boat or a kite?",
                "must": [["kite"]],
                "must_not": ["a boat"],
            },
        ),
    ):
        told = [{"i": i, "op": op, "text": text, "target": target} for i, (op, text, target) in enumerate(turns)]
        meta = replaced if path is paths[0] else {}
        entries = [
            {"type": "context", "context": "c", "turns": told},
            {"type": "case", "context": "c", "meta": meta, **case},
        ]
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return paths


@pytest.fixture
def realmem(tmp_path: Path) -> Path:
    """One person with three sessions, and two questions; only one has its answer in an earlier session."""
    sessions = [
        {
            "id": name,
            "time": "2025-12-15",
            "turns": [{"role": "user", "text": said}, {"role": "assistant", "text": " "}],
        }
        for name, said in (("first", "My violin has a new string."), ("second", "It rained."), ("third", "A violin?"))
    ]
    queries = [
        {"session": "third", "turn": 0, "text": "What has my violin got?", "gold_sessions": ["first"]},
        {"session": "first", "turn": 0, "text": "What will it be?", "gold_sessions": ["third"]},
    ]
    path = tmp_path / "realmem.jsonl"
    path.write_text(json.dumps({"person": "p1", "sessions": sessions, "queries": queries}))
    return path


def test_recall_quality_asks_what_counts_through_the_product(
    locomo: Path, longmemeval: Path, realmem: Path, tmp_path: Path
) -> None:
    """Given a tiny file of each set, when recall is measured, then each question that counts was asked."""
    files = ["--locomo", str(locomo), "--longmemeval", str(longmemeval), "--realmem", str(realmem)]
    with chat_endpoint(score_by(lambda _query, text: float(len(text)))) as reranker:
        files += ["--mode", "keyword", "--fusion", "rrf", "--reranker", reranker.url, "--reranker-model", "words"]
        _, result = run_benchmark("recall_quality", tmp_path / "result.json", *files)
        assert reranker.requests

    figures = result["figures"]
    assert (figures["locomo_questions"], figures["locomo_messages"]) == (2, 3)
    assert (figures["longmemeval_questions"], figures["longmemeval_messages"]) == (1, 3)
    # Few enough that ten or twenty results are all there is, and words find what only they can find here.
    assert figures["locomo_any_at_20"] == 100
    assert figures["longmemeval_all_at_5 (keyword)"] == 100
    # What was said later holds the words, too, and is not counted.
    assert (figures["realmem_questions"], figures["realmem_messages"]) == (1, 3)
    assert figures["realmem_ndcg_at_10"] == 100
    assert figures["realmem_any_at_5 (rrf)"] == 100
    assert set(figures["locomo_groups"]) == {"all", "conv-1", "category 1", "category 4"}
    assert "locomo_any_at_10 (rrf)" in figures
    assert figures["locomo_any_at_20 (not reranked)"] == 100
    assert not [note for note in result["notes"] if "not reranked:" in note]
    assert [goal["goal"] for goal in result["goals"]] == list(GOALS.values())


def test_recall_quality_says_what_it_cannot_measure(tmp_path: Path) -> None:
    """Given a file that is not there and one that is not named, when it runs, then it says so and measures nothing.

    It is started as its users do: by the name of the benchmark.
    """
    path = tmp_path / "result.json"
    options = ["--quick", "--output", str(path), "--locomo", str(tmp_path / "absent.json")]
    command = [sys.executable, "-m", "benchmarks", "recall_quality", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(path.read_text(encoding="utf-8"))

    assert "locomo is not measured: there is no file" in done.stdout.replace("\n", " ")
    assert "longmemeval is not measured: no --longmemeval FILE" in done.stdout.replace("\n", " ")
    assert [goal["reached"] for goal in result["goals"]] == [None] * len(GOALS)


def test_recall_speed_measures_each_store_in_process_and_over_http(tmp_path: Path) -> None:
    """Given tiny stores, when recall is timed, then each has its figures, and the first those beside ingest too."""
    _, result = run_benchmark("recall_speed", tmp_path / "result.json", "--sizes", "90", "30x2")

    figures = result["figures"]
    for size in ("90x1", "30x2"):
        for figure in ("in_process_p95", "http_p50", "http_cold", "server_memory", "disk"):
            assert figures[f"{size}_{figure}"] > 0
        assert figures[f"{size}_recall_at_10_of_exact_vector"] == 1.0
    assert figures["90x1_during_ingest_of_same_agent_p95"] > 0
    assert [goal for goal in result["goals"] if goal["figure"] is None] == []


def test_a_conversation_is_handed_over_as_it_is(locomo: Path) -> None:
    """Given a conversation, when it is read, then its messages have names, dates and sessions."""
    [conversation] = load_locomo(locomo)
    first, photo, _ = conversation.haystack.messages
    assert (first.name, first.role, first.session) == ("Ana", "user", "session_1")
    assert first.created_at is not None
    assert first.created_at.isoformat() == "2023-05-08T13:56:00+00:00"
    assert (photo.content, photo.role) == ("Look at this! a photo of a violin", "assistant")
    assert photo.created_at is not None
    assert photo.created_at.second == 1
    assert [question.evidence for question in conversation.questions] == [{"D1:1", "D2:1"}, {"D1:2"}]


def test_a_haystack_keeps_a_session_that_stands_in_it_twice(longmemeval: Path) -> None:
    """Given a haystack with a session twice, when it is read, then its messages have ids of their own."""
    [question] = load_longmemeval(longmemeval)

    assert question.gold == {"gold"}
    assert [message.id for message in question.haystack.messages] == ["0:0", "1:0", "2:0"]


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    """Given files that hold something else, when they are read, then the error names the file."""
    path = tmp_path / "other.json"
    path.write_text('{"a": 1}')
    with pytest.raises(ValueError, match=r"other\.json has not the form of LoCoMo"):
        load_locomo(path)
    with pytest.raises(ValueError, match=r"other\.json has not the form of LongMemEval"):
        load_longmemeval(path)
    with pytest.raises(ValueError, match=r"other\.json has not the form of RealMem"):
        load_realmem(path)


def test_the_measures_are_those_that_are_defined() -> None:
    """Given rankings, when they are measured, then any, share, all and NDCG are as the definitions say."""
    found = [f"D1:{number}" for number in range(1, 21)]
    measures = turn_measures(found, frozenset({"D1:7", "D1:12"}))
    assert (measures["any_at_5"], measures["any_at_10"], measures["any_at_20"]) == (0.0, 1.0, 1.0)
    assert (measures["frac_at_5"], measures["frac_at_10"], measures["frac_at_20"]) == (0.0, 0.5, 1.0)

    # "a" counts once, so "c" is the second session; rank 2 is worth 1 / log2(2) in the paper's form of NDCG.
    measures = session_measures(["a", "a", "c", "d", "e", "f", "b"], frozenset({"a", "b"}))
    assert (measures["all_at_5"], measures["any_at_5"]) == (0.0, 1.0)
    assert measures["ndcg_at_10"] == pytest.approx((1 + 1 / 2.584962500721156) / 2)


def test_a_size_says_how_it_is_written() -> None:
    """Given texts, when they are read as sizes, then those that are none are refused with an example."""
    assert StoreSize.parse("10000x100") == StoreSize(10_000, 100)
    assert str(StoreSize.parse("6000")) == "6000x1"
    for text in ("", "0", "10x0", "x", "tenx1"):
        with pytest.raises(ValueError, match="as in 10000x100"):
            StoreSize.parse(text)


def test_the_builder_writes_what_the_pipeline_writes(tmp_path: Path) -> None:
    """Given a built store, when the pipeline is given the same messages, then both hold the same rows."""
    stores = Stores(tmp_path)
    try:
        built, piped = stores.workspace("built"), stores.workspace("piped")
        embedder = HashEmbedder()
        talk = MadeUpTalk(embedder.embed, topics=3, parts=2, seed=7)
        fill(built, talk, StoreSize(70, 2), Model(embedder.model, embedder.dimension), Progress())
        pipe_messages(built, piped)

        assert verify(built).wrong == []
        assert verify(built).counts == verify(piped).counts
        for table, columns in SAME.items():
            assert rows_of(built, table, columns) == rows_of(piped, table, columns), table
    finally:
        stores.close()


def pipe_messages(built: Store, piped: Store) -> None:
    """Put the messages of a built store through the stages of the pipeline, vectors as they were built."""
    inbox, working = LocalInbox(), NoWorkingMemory()
    with built.reading() as tx:
        messages = tx.connection.exec_driver_sql(
            "SELECT m.id, m.agent_id, s.id, m.role, m.name, m.content, m.created_at FROM messages AS m"
            " JOIN sessions AS s ON s.row_id = m.session_row ORDER BY m.row_id"
        ).all()
        vectors = tx.connection.exec_driver_sql("SELECT embedding FROM chunks_vec ORDER BY chunk_id").scalars().all()
    fields = ("id", "agent", "session", "role", "name", "content", "created_at")
    payloads = [MessagePayload(trace="t", **dict(zip(fields, row, strict=True))) for row in messages]
    store_messages(piped, inbox, working, payloads)
    chunk_messages(piped, now=now_micros, on_batch=lambda _rows: None)
    hooks = EmbedHooks(on_embedded=lambda: None, on_unavailable=lambda _chunks, why: pytest.fail(why))
    embed_chunks(piped, BuiltVectors(vectors), now=now_micros, hooks=hooks)
    index_chunks(piped, now=now_micros, on_indexed=lambda _indexed: None)


def rows_of(store: Store, table: str, columns: str) -> list[tuple[Any, ...]]:
    """The comparable columns of a table, in one order."""
    with store.reading() as tx:
        rows = [tuple(row) for row in tx.connection.exec_driver_sql(f"SELECT {columns} FROM {table}")]
    return sorted(rows, key=repr)


@pytest.fixture
def updates(longmemeval: Path, tmp_path: Path) -> Path:
    """The questions of LongMemEval, and one about what changed between two sessions."""
    sessions = ["My violin has a gut string.", "My violin has a steel string now."]
    entry = {
        "question_id": "q2",
        "question_type": UPDATES,
        "question": "What string has my violin?",
        "answer_session_ids": ["newer", "older"],
        "haystack_session_ids": ["newer", "older"],
        "haystack_dates": ["2023/05/29 (Mon) 02:12", "2023/05/20 (Sat) 00:43"],
        "haystack_sessions": [[{"role": "user", "content": content}] for content in sessions[::-1]],
    }
    path = tmp_path / "updates.jsonl"
    path.write_bytes(gzip.decompress(longmemeval.read_bytes()) + json.dumps(entry).encode() + b"\n")
    return path


def test_context_quality_searches_the_documents_for_the_evidence(
    locomo: Path, updates: Path, realmem: Path, tmp_path: Path
) -> None:
    """Given all data sets, then contexts and recalls of each budget are searched for turns and for sessions.

    Of the question about what changed, both sessions are told, the newer last.
    """
    files = ("--locomo", str(locomo), "--longmemeval", str(updates), "--realmem", str(realmem))
    output, result = run_benchmark("context_quality", tmp_path / "result.json", *files)
    figures = result["figures"]
    assert set(figures["locomo_rows"]) >= {"context, 250", "recall, 250", "context, default"}
    assert figures["locomo_any_1000"] == 100.0
    assert figures["locomo_share_1000"] == 100.0
    assert figures["longmemeval_any_500"] == 100.0
    assert figures["realmem_any_500"] == 100.0
    assert 0 < figures["locomo_tokens_250"] <= 250
    assert figures["locomo_times_a_recall"] > 0
    assert figures["longmemeval_newest_and_older_told_1000"] == 100.0
    assert figures["longmemeval_newest_told_last_1000"] == 100.0
    assert result["goals"][0]["reached"] is True
    assert [goal["figure"] is not None for goal in result["goals"]] == [True] * 10
    assert figures["ordering_share_1000"] > 0 < figures["summaries_share_1000"]
    assert "contexts that tell changed facts" in output


def test_context_quality_has_no_figure_of_what_changed_where_nothing_did(updates: Path) -> None:
    """Given one type of questions, then others are left out; without one about what changed, its goal says so."""
    assert [one.haystack.agent for one in load_longmemeval(updates, kind=UPDATES)] == ["q2"]
    result = Result(benchmark="context_quality", seed=1, quick=True, settings={})
    add_goals(result)
    assert (result.goals[0].figure, result.goals[0].note) == (None, "no question about what changed was measured")


def test_updates_tells_the_newest_fact_first_and_nothing_of_what_is_forgotten(
    tmp_path: Path, changes: tuple[Path, Path]
) -> None:
    """Given a replaced fact and a person to forget, then the first is told as replaced, and the other one is gone."""
    facts, forget = changes
    _, result = run_benchmark(
        "updates", tmp_path / "result.json", "--factconsolidation", str(facts), "--forgeteval", str(forget)
    )
    figures = result["figures"]
    assert {name: figures[f"factconsolidation_one_{name}"] for name in ("ahead", "stale", "told")} == {
        "ahead": 100, "stale": 0, "told": 100
    }  # fmt: skip
    assert (figures["forgeteval_forgotten_gone"], figures["forgeteval_forgotten_told"]) == (100, 100)
    assert figures["scenarios_cascade_stale"] == 0
