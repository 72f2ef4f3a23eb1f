"""`reverie evaluate`: what agents asked is asked again in a copy, and the installation is only read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from memory.lifecycle.erasing import continue_erasures
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.erasures import request_erasure
from memory.recall import record_recalls
from memory.upkeep.maintenance import KeepRules, expire
from reverie import Reverie
from storage.recall.captured import CapturedQuery
from support.agents import until
from support.command_line import CommandLine, Ended
from support.http import running_server
from support.index_content import everything_stored
from support.stages import drain
from worker.runtime import Runtime

pytestmark = pytest.mark.sqlite("copies the files of a workspace")

MESSAGES = [
    "My sister Agnes lives in a lighthouse near Nazare.",
    "The lighthouse keeper's dog is called Bruno.",
    "I moved from Porto to Lisbon in May.",
    "My bicycle needs new tyres.",
    "We sail on Sundays if the harbour is calm.",
    "The violin teacher comes on Tuesdays.",
]
DAY = 24 * 3_600 * 1_000_000


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    """A runtime that keeps what is asked."""
    return make_runtime(captured_queries_days=30)


@pytest.fixture
def ana(runtime: Runtime) -> Iterator[Reverie]:
    """A client of the agent ana, whose user kate has said something."""
    with running_server(runtime) as url, Reverie("ana", url=url) as client:
        client.ingest("old", [{"role": "user", "content": text} for text in MESSAGES], user="kate")
        client.ingest("now", {"role": "user", "content": "Where does Agnes live?"}, user="kate")
        drain(runtime)
        yield client


@pytest.fixture
def reverie(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    """Runs commands on the data folder, without a server."""
    monkeypatch.chdir(tmp_path)
    data = str(tmp_path / "data")
    return CommandLine(monkeypatch, capsys, "--data", data, embedding_provider="hash")


def ask(runtime: Runtime, ana: Reverie) -> None:
    """Recall, ask for contexts, and answer, as an agent does; a worker records it."""
    ana.recall("Who is Agnes?", user="kate", limit=3)
    ana.recall("lighthouse dog", user="kate", session="old", mode="keyword")
    ana.recall("zanzibar", user="lif", mode="keyword")
    ana.context("now", "Where does Agnes live?", token_budget=400)
    ana.context("now")
    record(runtime)
    ana.ingest("now", {"role": "assistant", "content": "Agnes lives in a lighthouse near Nazare."}, user="kate")
    drain(runtime)


def record(runtime: Runtime) -> None:
    """Do as the worker does with what the server has noted."""
    runtime.recall_buffer.flush()
    record_recalls(runtime.recall_log, runtime.stores, workspace="default")


def captured(runtime: Runtime) -> list[CapturedQuery]:
    """All captured questions, the oldest first."""
    with runtime.store("default").reading() as tx:
        return tx.captured.newest(agent=None, since=0, limit=100)[::-1]


def content(runtime: Runtime) -> list[list[tuple[str, str]]]:
    """All values of the workspace and the account."""
    found = []
    for store in (runtime.store("default"), runtime.stores.account_store()):
        with store.reading() as tx:
            found.append(list(everything_stored(tx)))
    return found


def copies(runtime: Runtime) -> list[str]:
    """The copies that are there."""
    return [path.name for path in (runtime.settings.data / "run").glob("evaluate-*")]


def test_nothing_is_captured_by_default(make_runtime: Callable[..., Runtime], reverie: CommandLine) -> None:
    """Given the settings as they are, when agents ask, then nothing is kept, and the command says what to switch on."""
    runtime = make_runtime()
    with running_server(runtime) as url, Reverie("ana", url=url) as ana:
        ana.ingest("now", {"role": "user", "content": MESSAGES[0]}, user="kate")
        drain(runtime)
        ana.recall("lighthouse", user="kate")
        ana.context("now", "lighthouse")
        record(runtime)
        assert ana.memories.recall_events(user="kate"), "the recall itself was recorded"
    assert captured(runtime) == []
    ended = reverie("evaluate", "--setting", "mode=keyword")
    assert ended.code == 1
    assert "set captured_queries_days = 30" in ended.err


def test_a_question_is_kept_with_its_parameters_and_what_it_found(runtime: Runtime, ana: Reverie) -> None:
    """Given recalls and contexts, then each is kept whole, also one that found nothing; for a group none is."""
    ask(runtime, ana)
    for user in ("lif", "mo"):
        ana.ingest("group", {"role": "user", "content": f"{user} likes plums"}, user=user)
    drain(runtime)
    ana.recall("plums", session="group")
    ana.recall("as it was", as_of="2026-01-01", user="kate")
    record(runtime)
    kept = captured(runtime)
    assert [(one.kind, one.query, one.user, one.session) for one in kept] == [
        ("recall", "Who is Agnes?", "kate", None),
        ("recall", "lighthouse dog", "kate", "old"),
        ("recall", "zanzibar", "lif", None),
        ("context", "Where does Agnes live?", "kate", "now"),
        ("context", "", "kate", "now"),
    ]
    assert len(kept[0].found) == 3
    assert kept[2].found == ()
    assert '"limit":3' in kept[0].parameters
    assert '"token_budget":400' in kept[3].parameters


def test_another_ranking_is_compared_in_a_copy_and_nothing_else_changes(
    runtime: Runtime, ana: Reverie, reverie: CommandLine
) -> None:
    """Given captured questions, when they are asked by words alone, then the report says what changes, by question, and
    neither a row of the installation nor a file of the copy is different afterwards."""
    ask(runtime, ana)
    before = content(runtime)
    found = reverie("evaluate", "--setting", "mode=keyword", "--setting", "limit=2", "--json").json
    assert (found["asked"], found["not_asked"], found["changes"]) == (5, {}, {"mode": "keyword", "limit": "2"})
    assert found["overlap_with_then"] == 1.0, "the store has not changed, and the answers that came since are not found"
    questions = {(one["kind"], one["query"]): one for one in found["questions"]}
    agnes = questions["recall", "Who is Agnes?"]
    assert {change["after"] for change in agnes["changes"]} & {None}, "two results instead of three"
    (used,) = [one for one in found["questions"][:] if one["query"] == "Where does Agnes live?"]
    assert used["used"] >= 1
    assert questions["recall", "zanzibar"]["changes"] == []
    shown = reverie("evaluate", "--setting", "limit=2")
    assert "5 questions of workspace default, asked in a copy: as it is, and with limit=2." in shown.out
    assert "Who is Agnes?" in shown.out
    record(runtime)
    assert content(runtime) == before
    assert copies(runtime) == []


def test_another_model_is_tried_on_the_copy_alone(runtime: Runtime, ana: Reverie, reverie: CommandLine) -> None:
    """Given vectors of one model, when another is tried, then it embeds the copy, and the store keeps its vectors."""
    ask(runtime, ana)
    before = content(runtime)
    found = reverie("evaluate", "--embedding-model", "none", "--json").json
    assert found["after"]["degraded"] == 3, "all but the recalls by words"
    assert found["before"]["degraded"] == 0
    real = reverie("evaluate", "--setting", "embedding_provider=sentence-transformers", "--json").json
    assert real["after"]["degraded"] == 0
    assert real["changed"] > 0
    assert content(runtime) == before


def test_captured_questions_go_with_their_user_their_session_and_their_days(runtime: Runtime, ana: Reverie) -> None:
    """Given questions of two users, then one is erased with hers, and the rest goes after its days."""
    ask(runtime, ana)
    ana.sessions.forget("now")
    assert {one.session for one in captured(runtime)} == {None, "old"}
    request_erasure(
        runtime.stores, runtime.settings.data, Scope("user", "kate", None, None), requested_by="t", now=runtime.now()
    )
    continue_erasures(runtime.erasure_services)
    assert [one.user for one in captured(runtime)] == ["lif"]
    kept = KeepRules(captured_queries_days=30)
    expire(runtime.store("default"), kept, now=runtime.now() + 29 * DAY)
    assert len(captured(runtime)) == 1
    expire(runtime.store("default"), kept, now=runtime.now() + 31 * DAY)
    assert captured(runtime) == []


def test_no_text_goes_to_another_machine_unless_allowed(runtime: Runtime, ana: Reverie, reverie: CommandLine) -> None:
    """Given a model on another machine, then it is refused, and named; one on this machine is not."""
    ask(runtime, ana)
    ended = reverie("evaluate", "--setting", "reranker_base_url=https://rerank.example/v1")
    assert ended.code == 2
    assert "the reranker at rerank.example would get captured questions and stored texts" in ended.err
    ended = reverie(
        *("evaluate", "--setting", "embedding_provider=openai", "--setting", "embedding_model=small"),
        *("--setting", "embedding_base_url=https://embed.example/v1"),
    )
    assert "the embedder at embed.example would get captured questions and stored texts" in ended.err
    here = reverie("evaluate", "--setting", "reranker_base_url=http://127.0.0.1:9/v1", "--json").json
    assert here["after"]["degraded"] > 0, "it does not answer, which is said"
    assert copies(runtime) == []


def test_a_disk_without_room_for_a_copy_is_refused(
    runtime: Runtime, ana: Reverie, reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a disk that a copy would fill, then one line says how much it needs, and nothing is left of a copy."""
    ask(runtime, ana)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    ended = reverie("evaluate", "--setting", "mode=keyword")
    assert ended.code == 1
    assert "MiB: free some space\n" in ended.err
    assert copies(runtime) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "name what to change"),
        (("--setting", "fusion"), "give NAME=VALUE"),
        (("--setting", "port=1"), "no recall or context depends on it"),
        (("--setting", "embedding_api_key=secret"), "no recall or context depends on it"),
        (("--setting", "fusion=best"), "must be one of contextual, weighted, rrf"),
        (("--setting", "recency_window=-1"), "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_changed_is_refused(
    runtime: Runtime, ana: Reverie, reverie: CommandLine, options: tuple[str, ...], said: str
) -> None:
    """Given a name or a value that cannot be, then one line says so."""
    ask(runtime, ana)
    ended: Ended = reverie("evaluate", *options)
    assert ended.code == 2
    assert said in ended.err


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_copy_is_removed_whatever_ends_the_command(
    runtime: Runtime, ana: Reverie, reverie: CommandLine, by: signal.Signals
) -> None:
    """Given a process that evaluates, when it is ended, then its copy goes; that of a killed one with the next run."""
    ask(runtime, ana)
    command = [sys.executable, "-m", "cli", "--data", str(runtime.settings.data)]
    changed = ["evaluate", "--setting", "embedding_provider=sentence-transformers"]
    environment = {**os.environ, "REVERIE_EMBEDDING_PROVIDER": "hash"}
    with subprocess.Popen([*command, *changed], env=environment, stdout=subprocess.DEVNULL) as process:
        until(lambda: bool(copies(runtime)) or process.poll() is not None, "there is no copy")
        process.send_signal(by)
        process.wait()
    assert process.returncode != 0
    if by == signal.SIGKILL:
        assert copies(runtime), "nothing can be done by a process that is killed"
        assert reverie("evaluate", "--setting", "mode=keyword", "--json").code == 0
    assert copies(runtime) == []
