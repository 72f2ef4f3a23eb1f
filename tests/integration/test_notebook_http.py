"""An agent's notebook over HTTP, by both clients and on the command line, and dreams as the worker runs them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

import cli
from adapters.workspace_git import GitFolders
from reverie import contract
from reverie.client import AsyncReverie, Reverie
from reverie.clock import DAY_MICROS, new_id, now_micros
from reverie.errors import Conflict, NotFound, Rejected
from storage.memories.records import NewMemory
from storage.recall.events import NewRecall
from support.http import running_server
from support.stages import drain
from worker import app as worker_app
from worker.runtime import Runtime

LISBON = "I moved to Lisbon in May"


@pytest.fixture
def here(runtime: Runtime) -> Iterator[Runtime]:
    """A runtime with a note of ana's; the tasks of this process get it."""
    with worker_app.use_runtime(runtime):
        worker_app.app.loader.import_default_modules()
        write_note(runtime, "milk")
        yield runtime


def write_note(here: Runtime, content: str, note_id: str = "shopping") -> None:
    """Store a note, or change it."""
    with here.store("default").writing() as tx:
        memories = tx.for_agent("ana").memories
        there = memories.by_note(note_id)
        if there is not None:
            memories.rewrite(there.row_id, content, now=here.now())
        else:
            note = NewMemory(id=new_id(), content=content, created_at=here.now(), kind="note", note_id=note_id)
            memories.add(note, now=here.now())


def run(**arguments: Any) -> Mapping[str, Any]:
    """A dream sweep, as a worker runs it by hand."""
    found: Mapping[str, Any] = worker_app.app.tasks[contract.DREAM_SWEEP].body(manual=True, **arguments)
    return found


def test_a_checkpoint_its_history_and_a_difference(here: Runtime, ana: Reverie) -> None:
    """Given two checkpoints around a change, then the history has both and the difference shows the change."""
    first = ana.memory_files.checkpoint("before the trip")
    assert ana.memory_files.checkpoint().commit is None
    write_note(here, "milk and bread")
    second = ana.memory_files.checkpoint()

    assert first.commit is not None
    assert second.commit is not None
    assert [commit.message for commit in ana.memory_files.history()] == ["Checkpoint", "before the trip"]
    assert ana.memory_files.history(limit=1) == [second.commit]
    assert "-> milk\n+> milk and bread\n" in ana.memory_files.diff(first.commit.id[:8])
    assert ana.memory_files.diff(first.commit.id, second.commit.id) == ana.memory_files.diff(first.commit.id)
    assert ana.memory_files.diff("HEAD") == ""


def test_another_agent_has_a_history_of_its_own(ana: Reverie, url: str) -> None:
    """Given ana's commits, then kate has none of them, by no id either."""
    made = ana.memory_files.checkpoint().commit
    assert made is not None

    with Reverie("kate", url=url) as kate:
        assert kate.memory_files.history() == []
        assert kate.curation.promotions() == []
        with pytest.raises(NotFound):
            kate.memory_files.diff(made.id)


def test_bad_input_names_its_field(ana: Reverie, url: str) -> None:
    """Given a message that is a secret, ids that name nothing, and unknown parameters, then each error says which."""
    for call, field in (
        (lambda: ana.memory_files.checkpoint("the api password: Zk8-fh2-QwLm9x"), "message"),
        (lambda: ana.memory_files.checkpoint("x" * 501), "message"),
        (lambda: ana.memory_files.checkpoint(7), "message"),  # type: ignore[arg-type]
        (lambda: ana.memory_files.diff("main"), "a"),
        (lambda: ana.memory_files.diff("HEAD", None), "a"),
        (lambda: ana.memory_files.history(0), "limit"),
        (lambda: ana.curation.promotions(1_001), "limit"),
    ):
        with pytest.raises(Rejected) as error:
            call()
        assert error.value.field == field
    headers = {"X-Reverie-Agent": "ana"}
    with httpx2.Client(base_url=url, headers=headers) as client:
        for path, field in (("/v1/history/diff", "a"), ("/v1/history?offset=3", "offset"), ("/v1/history?x=1", "x")):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["field"]) == (422, field)
        assert client.post("/v1/checkpoints", json={"massage": "x"}).json()["field"] == "massage"


def test_a_workspace_without_anything_has_nothing_to_commit(url: str) -> None:
    """Given a workspace that does not exist, then a checkpoint says so, and reading finds nothing and makes nothing."""
    with Reverie("ana", url=url, workspace="empty") as client:
        assert client.memory_files.history() == []
        assert client.curation.promotions() == []
        with pytest.raises(NotFound) as error:
            client.memory_files.checkpoint()
        assert error.value.field == "workspace"


def test_with_workspace_git_off_the_calls_say_so(make_runtime: Callable[..., Runtime]) -> None:
    """Given the setting off, then a checkpoint, the history and a difference are conflicts that name it."""
    runtime = make_runtime(workspace_git=False)
    write_note(runtime, "milk")
    with running_server(runtime) as url, Reverie("ana", url=url) as client:
        for call in (
            client.memory_files.checkpoint,
            client.memory_files.history,
            lambda: client.memory_files.diff("HEAD"),
        ):
            with pytest.raises(Conflict, match="workspace_git"):
                call()
        assert client.curation.promotions() == []
    assert not (runtime.settings.data / "workspaces" / "default" / "git").exists()


def test_the_client_for_asyncio_does_the_same(url: str) -> None:
    """Given the other client, then each call answers as the first one's."""

    async def talk() -> tuple[Any, ...]:
        async with AsyncReverie("ana", url=url) as client:
            made = await client.memory_files.checkpoint("by asyncio")
            return (
                made,
                await client.memory_files.history(),
                await client.memory_files.diff("HEAD"),
                await client.curation.promotions(),
            )

    made, commits, difference, promotions = asyncio.run(talk())

    assert commits == [made.commit]
    assert (difference, promotions) == ("", [])


def test_deleting_the_workspace_leaves_nothing_of_its_history(here: Runtime, ana: Reverie) -> None:
    """Given commits, when the workspace is deleted, then its folder is gone and the history is empty."""
    ana.memory_files.checkpoint()
    folder = here.settings.data / "workspaces" / "default"
    assert (folder / "git" / "ana" / "notes" / "shopping.md").exists()

    assert ana.admin.workspaces.delete()

    assert not folder.exists()
    assert ana.memory_files.history() == []


def test_a_dream_sweep_runs_as_a_task_and_its_ledger_can_be_read(here: Runtime, ana: Reverie) -> None:
    """Given a message recalled often, when the task runs dry and then for good, then one promotion is told and kept."""
    ana.ingest("s", [{"role": "user", "content": LISBON}])
    store = drain(here)
    later = here.now() + 10 * DAY_MICROS
    here.clock = lambda: now_micros() + 10 * DAY_MICROS
    with store.writing() as tx:
        chunk = next(iter(tx.for_agent("ana").chunk_sources.texts(range(1, 20))))
        for day, query in enumerate(("where", "which city", "home")):
            tx.recalls.record([NewRecall("ana", new_id(), query, later - day * DAY_MICROS, ((chunk, 0.9),))])

    assert run(dry_run=True)["promoted"] == 1
    assert ana.curation.promotions() == []
    assert here.stores.jobs().last_runs() == {}, "a dry run would put the real one off by a day"
    counts = run()

    (promotion,) = ana.curation.promotions()
    assert (counts["promoted"], counts["commits"]) == (1, 1)
    assert (promotion.content, promotion.phase, promotion.kind) == (LISBON, "made", "event")
    assert "made " + promotion.memory in here.notebooks.repositories.repository("default", "ana").files()["DREAMS.md"]  # type: ignore[union-attr]
    runs = here.stores.jobs().last_runs()
    assert runs[contract.DREAM_SWEEP].counts["promoted"] == 1


def test_dreams_switched_off_do_nothing(make_runtime: Callable[..., Runtime]) -> None:
    """Given `dream_enabled` off, then the task says so."""
    worker_app.app.loader.import_default_modules()

    with worker_app.use_runtime(make_runtime(dream_enabled=False)):
        assert run() == {"disabled": 1}


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(
    here: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Runs the command line on the data folder, as ana."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Ended:
        argv = ["reverie", "--data", str(here.settings.data), "--agent", "ana", *arguments]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return call


def test_the_command_line_makes_checkpoints_and_shows_them(here: Runtime, command: Callable[..., Ended]) -> None:
    """Given two checkpoints, then history, diff and promotions answer for people and as JSON."""
    assert "notes/shopping.md" in command("checkpoint", "before the trip").out
    assert "nothing has changed" in command("checkpoint").out
    write_note(here, "milk and bread")
    made = json.loads(command("checkpoint", "--json").out)["commit"]

    commits = json.loads(command("history", "--json").out)
    assert [commit["message"] for commit in commits] == ["Checkpoint", "before the trip"]
    assert commits[0] == made
    assert "before the trip" in command("history").out
    assert "+> milk and bread" in command("diff", commits[1]["id"]).out
    assert command("diff", "HEAD").out.strip() == "There is no difference."
    assert json.loads(command("diff", commits[1]["id"][:9], "HEAD", "--json").out)["text"].startswith("--- a/notes/")
    assert json.loads(command("promotions", "--json").out) == []
    assert "nothing" in command("promotions").out


def test_the_command_line_fails_in_one_line(command: Callable[..., Ended]) -> None:
    """Given a commit that does not exist and a name that is none, then one line says so, with its exit code."""
    command("checkpoint")

    missing, wrong = command("diff", "0123456789"), command("diff", "main")

    assert (missing.code, wrong.code) == (1, 2)
    assert missing.err.count("\n") == wrong.err.count("\n") == 1
    assert "there is no commit 0123456789" in missing.err


def test_a_runtime_keeps_repositories_where_the_settings_say(here: Runtime) -> None:
    """Given the setting on, which is the default, then the runtime has them below its data folder."""
    assert isinstance(here.notebooks.repositories, GitFolders)
