"""The curation log over HTTP, by both clients and on the command line: read, shown, undone, and found again."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reverie import contract
from reverie.client import AsyncReverie, Reverie
from reverie.clock import from_micros
from reverie.errors import Conflict, NotFound, Rejected
from storage.curation import EntryDraft
from storage.memories.records import NewMemory
from support.command_line import CommandLine
from support.stages import drain
from worker.runtime import Runtime

WALNUTS = "ana keeps walnuts in the cellar"


@pytest.fixture
def here(runtime: Runtime) -> Runtime:
    """A workspace with two memories of ana's, and one of the account tier, indexed."""
    for name, content in (("walnuts", WALNUTS), ("figs", "figs grow at the wall")):
        keep(runtime, name, content)
    keep(runtime, "manners", "be brief", store=contract.ACCOUNT_STORE, tier="account", kind="preference")
    drain(runtime)
    return runtime


@pytest.fixture
def reverie(
    here: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_BROKER_PREFIX", here.settings.broker_prefix)
    return CommandLine(
        monkeypatch, capsys, "--data", str(here.settings.data), "--agent", "ana", "--broker", here.settings.broker_url
    )


def keep(here: Runtime, name: str, content: str, *, store: str = "default", **more: Any) -> None:
    with here.store(store).writing() as tx:
        memory = NewMemory(id=name, content=content, created_at=here.now(), **more)
        tx.for_agent("ana").memories.add(memory, now=here.now())


def prune(here: Runtime, *names: str, store: str = "default", at: int | None = None) -> None:
    """Remove memories as a job does, each with its entry."""
    with here.store(store).writing() as tx:
        rows = tx.for_agent("ana")
        for name in names:
            draft = EntryDraft("it faded away")
            with tx.curation.entry(draft, job=contract.PRUNE_DECAYED, agent="ana", action="prune", at=at or here.now()):
                rows.memories.delete([rows.memories.get(name).row_id])


def found(client: Reverie, query: str) -> list[str]:
    return [result.text for result in client.recall(query, mode="keyword").results]


def test_a_pruned_memory_is_recalled_again_after_its_undo(here: Runtime, ana: Reverie) -> None:
    """Given a server that recalls, when a memory is pruned and that undone, then its answers follow at once."""
    assert found(ana, "walnuts") == [WALNUTS]
    prune(here, "walnuts")
    assert found(ana, "walnuts") == []
    (entry,) = ana.curation.list()
    undone = ana.curation.undo(entry.id)
    assert (undone.id, undone.undone_at is not None) == (entry.id, True)
    assert found(ana, "walnuts") == [WALNUTS]
    assert ana.recall(WALNUTS, mode="vector", limit=1).results[0].text == WALNUTS
    with pytest.raises(Conflict, match="already been undone"):
        ana.curation.undo(entry.id)


def test_the_log_is_listed_narrowed_and_shown(here: Runtime, ana: Reverie) -> None:
    """Given entries of both stores, then they are listed by time, narrowed by what is asked, and shown with rows."""
    prune(here, "walnuts")
    prune(here, "manners", store=contract.ACCOUNT_STORE)
    prune(here, "figs")
    assert [entry.memories for entry in ana.curation.list()] == [["figs"], ["manners"], ["walnuts"]]
    assert [entry.memories for entry in ana.curation.list(1, 1)] == [["manners"]]
    assert [entry.memories for entry in ana.curation.list(memory="figs")] == [["figs"]]
    assert len(ana.curation.list(job="prune-decayed", action="prune")) == 3
    assert ana.curation.list(job="dream-sweep") == ana.curation.list(action="merge") == []
    account = ana.curation.list()[1]
    assert account.id.startswith("account-")
    shown = ana.curation.get(account.id)
    (change,) = shown.changes
    assert (change.table, change.after) == ("memories", None)
    assert change.before is not None
    assert change.before["content"] == "be brief"
    assert ana.curation.undo(account.id).id == account.id
    with Reverie("bob", url=ana.connection.config.url) as bob:
        assert bob.curation.list() == []
        for entry in ("1", "account-1", "account-99", "x", "1" * 40, "../1"):
            with pytest.raises(NotFound, match="no entry"):
                bob.curation.get(entry)


def test_several_are_undone_at_once(here: Runtime, ana: Reverie) -> None:
    """Given entries old and new, then those since a moment are undone, what cannot be is told, all only when said."""
    long_ago = here.now() - 7_200 * 1_000_000
    prune(here, "walnuts", at=long_ago)
    prune(here, "figs")
    prune(here, "manners", store=contract.ACCOUNT_STORE)
    with pytest.raises(Rejected, match="or set everything"):
        ana.curation.undo_all()
    with pytest.raises(Rejected, match="time zone"):
        ana.curation.undo_all(since=datetime(2026, 1, 1))
    first = ana.curation.undo_all(since=from_micros(here.now()) - timedelta(hours=1))
    assert (sorted(first.undone), first.failed) == (["2", "account-1"], {})
    keep(here, "walnuts", "other walnuts")
    rest = ana.curation.undo_all(everything=True)
    assert rest.undone == []
    assert list(rest.failed) == ["1"]
    assert ana.curation.undo_all(job="prune-decayed", action="prune").failed == rest.failed


def test_requests_that_are_wrong_name_the_field(url: str) -> None:
    """Given unknown parameters and bodies, then the answer is a problem that names them."""
    headers = {"X-Reverie-Agent": "ana"}
    with httpx2.Client(base_url=url, headers=headers) as client:
        assert client.get("/v1/curation?who=me").json()["field"] == "who"
        assert client.post("/v1/curation/undo", json={"since": "yesterday"}).json()["field"] == "since"
        assert client.post("/v1/curation/undo", json={"since": "2026-05-01T12:00:00"}).json()["field"] == "since"
        assert client.post("/v1/curation/undo", json={"everything": True}).status_code == 422
        paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/curation", "/v1/curation/{entry}", "/v1/curation/undo", "/v1/curation/{entry}/undo"} <= set(paths)


def test_the_same_for_asyncio(here: Runtime, url: str) -> None:
    """Given the client for asyncio, then it lists, shows and undoes as the other."""
    prune(here, "walnuts", "figs")

    async def use() -> None:
        async with AsyncReverie("ana", url=url) as ana:
            newest, oldest = await ana.curation.list()
            assert (await ana.curation.get(newest.id)).changes
            assert (await ana.curation.undo(newest.id)).undone_at is not None
            assert (await ana.curation.undo_all(action="prune")).undone == [oldest.id]

    asyncio.run(use())


def test_the_command_line_lists_shows_and_undoes(here: Runtime, reverie: CommandLine) -> None:
    """Given entries, then each command prints for people and as JSON, and undo tells what it did by its code."""
    assert "No job has changed memories of agent" in reverie("curation", "list").out
    prune(here, "walnuts", "figs")
    prune(here, "manners", store=contract.ACCOUNT_STORE)
    listed = reverie("curation", "list")
    assert "account-1" in listed.out
    assert "prune-decayed" in listed.out
    assert [entry["id"] for entry in reverie("curation", "list", "--memory", "figs", "--json").json] == ["2"]
    shown = reverie("curation", "show", "1").out
    assert "memories walnuts removed:" in shown
    assert f"content: {WALNUTS}" in shown
    assert reverie("curation", "show", "1", "--json").json["changes"][0]["after"] is None
    undone = reverie("curation", "undo", "1", "account-1", "--json")
    assert (undone.code, undone.json) == (0, {"undone": ["1", "account-1"], "failed": {}})
    again = reverie("curation", "undo", "1", "2", "nothing")
    assert (again.code, again.out.splitlines()[0]) == (1, "1 undone.")
    assert "1 cannot be undone: entry 1 has already been undone" in again.out
    assert "No entry" in reverie("curation", "list", "--action", "capped").out
    assert "no entry 'nothing'" in again.out


def test_why_not_is_told_once_and_by_ids_that_can_be_given(here: Runtime, reverie: CommandLine) -> None:
    """Given two changes of an account memory, when the first is undone, then the other is named by its whole id."""
    with here.store(contract.ACCOUNT_STORE).writing() as tx:
        memories = tx.for_agent("ana").memories
        for importance in (0.6, 0.7):
            draft = EntryDraft("often")
            with tx.curation.entry(draft, job=contract.DREAM_SWEEP, agent="ana", action="promote", at=here.now()):
                memories.change(memories.get("manners").row_id, now=here.now(), importance=importance)
    refused = reverie("curation", "undo", "account-1", "account-9")
    assert refused.code == 1
    assert refused.out.splitlines() == [
        "account-1 cannot be undone: a row of memories has been changed since; undo entry account-2 first",
        "account-9 cannot be undone: there is no entry 'account-9' in the curation log",
    ]


@pytest.mark.parametrize("since", ["2h", "1d", "999999w", "2020-01-01", "2020-01-01T12:00:00+02:00"])
def test_the_command_line_undoes_all_since_a_moment(here: Runtime, reverie: CommandLine, since: str) -> None:
    """Given an entry of now, then each way to say a moment before takes it in."""
    prune(here, "walnuts")
    assert reverie("curation", "undo", "--since", since, "--job", "prune-decayed", "--yes").out == "1 undone.\n"
    assert reverie("curation", "undo", "--all", "--yes").out == "There was nothing to undo.\n"


@pytest.mark.parametrize(
    ("arguments", "expected_error"),
    [
        ([], "name entries, or select them"),
        (["1", "--all"], "name entries, or select them"),
        (["--since", "yesterday", "--yes"], "give a time like 90m"),
    ],
)
def test_an_undo_that_says_nothing_clear_is_refused(
    reverie: CommandLine, arguments: list[str], expected_error: str
) -> None:
    """Given neither entries nor which, or both, then the command ends with 2 and one line."""
    ended = reverie("curation", "undo", *arguments)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert expected_error in ended.err


@pytest.fixture
def run(here: Runtime) -> str:
    """The id of a run that learned one thing, replaced one and forgot one, that of the account."""
    at = here.now()
    how = {"job": contract.EXTRACT_MEMORIES, "agent": "ana", "action": "extract", "at": at}
    with here.store("default").writing() as tx:
        memories = tx.for_agent("ana").memories
        with tx.curation.entry(EntryDraft("said in message 1", sensitive="health"), **how):
            memories.add(NewMemory(id="knee", content="ana's knee hurts", created_at=at), now=at)
        with tx.curation.entry(EntryDraft("said in message 2"), **how):
            pears = memories.add(NewMemory(id="pears", content="pears grow at the wall", created_at=at), now=at)
            memories.supersede(memories.get("figs").row_id, by=pears.row_id, now=at)
    with here.store(contract.ACCOUNT_STORE).writing() as tx:
        memories = tx.for_agent("ana").memories
        with tx.curation.entry(EntryDraft("said in message 3"), **how):
            memories.delete([memories.get("manners").row_id])
    prune(here, "walnuts", at=at + 1)
    return f"extract-memories.{at}"


def test_a_run_is_one_change_with_its_texts_before_and_after(here: Runtime, ana: Reverie, run: str) -> None:
    """Given a run in both stores, then it is one change in words, and each line has its texts."""
    newest, extracted = ana.curation.runs()
    assert (newest.job, newest.summary) == ("prune-decayed", "1 forgotten")
    assert (extracted.id, extracted.summary, extracted.open, extracted.due) == (
        run,
        "1 learned, 1 replaced, 1 forgotten",
        3,
        1,
    )
    assert {line.after or line.before for line in extracted.entries} == {
        "ana's knee hurts",
        "pears grow at the wall",
        "be brief",
    }
    lines = {line.id: line for line in ana.curation.run(run).entries}
    assert {id: (one.effect, one.before, one.after, one.sensitive) for id, one in lines.items()} == {
        "1": ("learned", None, "ana's knee hurts", "health"),
        "2": ("replaced", "figs grow at the wall", "pears grow at the wall", None),
        "account-1": ("forgotten", "be brief", None, None),
    }
    assert [one.id for one in ana.curation.runs(1, 1)] == [one.id for one in ana.curation.runs(due=True)] == [run]
    assert [one.id for one in ana.curation.runs(job="prune-decayed")] == [newest.id]
    assert len(ana.curation.run(run, limit=1, offset=2).entries) == 1
    for unknown in ("extract-memories.1", "extract-memories", "extract-memories.x", f"dream-sweep.{newest.id[-16:]}"):
        with pytest.raises(NotFound, match="no run"):
            ana.curation.run(unknown)


def test_a_run_is_accepted_or_undone_by_line_or_as_a_whole(here: Runtime, ana: Reverie, run: str) -> None:
    """Given a run, when a line is undone and another accepted, then the rest is left, and goes as a whole."""
    ana.curation.undo("2")
    assert ana.curation.accept(["1", "account-1", "99"]) == ["1", "account-1"]
    assert ana.curation.accept(["1", "2"]) == ana.curation.accept(run=run) == []
    kept = ana.curation.run(run)
    assert (kept.open, kept.due) == (0, 0)
    assert sorted(line.id for line in kept.entries if line.accepted_at) == ["1", "account-1"]
    assert ana.curation.runs(due=True) == []
    assert sorted(ana.curation.undo_all(run=run).undone) == ["1", "account-1"]
    assert ana.memories.get("figs").content == "figs grow at the wall"
    assert [line.memories for line in ana.curation.list() if line.undone_at is None] == [["walnuts"]]
    with pytest.raises(Rejected, match="give entries or a run"):
        ana.curation.accept()
    with pytest.raises(NotFound, match="no run"):
        ana.curation.accept(run="dream-sweep.1")


def test_the_command_line_shows_accepts_and_undoes_a_run(reverie: CommandLine, run: str) -> None:
    """Given a run, then its commands print it line by line, accept it, and undo it."""
    listed = reverie("curation", "runs").out
    assert "1 learned, 1 replaced, 1 forgotten" in listed
    assert "ana's knee hurts" in listed, "one sees what was learned without opening the run"
    shown = reverie("curation", "run", run).out
    assert "1  learned [health]: said in message 1\n    + ana's knee hurts\n" in shown
    assert "    - figs grow at the wall\n    + pears grow at the wall\n" in shown
    assert "(2 of 3 lines: " in reverie("curation", "run", run, "--limit", "2").out
    assert reverie("curation", "accept", "1").out == "1 accepted.\n"
    assert reverie("curation", "accept", "--run", run).out == "2 accepted.\n"
    assert "[accepted]" in reverie("curation", "run", run).out
    assert reverie("curation", "undo", "--run", run, "--yes").out == "3 undone.\n"
