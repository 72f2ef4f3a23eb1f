"""Summaries through every face: the tasks that write them, client, asyncio, HTTP and command line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from adapters.embedders.base import EmbedderSpec
from adapters.embedders.record import build_embedder
from adapters.tokens import build_token_counter
from memory.jobs import JobRun, run_on_store
from memory.sessions.condensers import Condenser
from memory.sessions.summaries import RollingRules, SummaryRules
from memory.sessions.summary_jobs import consolidate_conversations, read_summary
from reverie import AsyncReverie, Reverie, contract
from reverie.errors import NotFound, Rejected
from support.command_line import CommandLine
from support.endpoint import chat_endpoint, say
from support.http import running_server
from support.pipeline import Pipeline
from support.stages import drain
from support.talks import MOVE
from worker import app as worker_app
from worker.runtime import Runtime

SMALL = {"context_token_budget": 1_200, "system_prompt_buffer": 100}
TURNS = [
    {"role": "user", "name": "Ann", "content": f"On visit {n} I counted {n + 3} seahorses in the harbour and was paid."}
    for n in range(50)
]


@pytest.fixture
def here(make_runtime: Callable[..., Runtime]) -> Iterator[Runtime]:
    """The runtime that the tasks of this process get; its sessions have a small budget."""
    runtime = make_runtime(**SMALL)
    with worker_app.use_runtime(runtime):
        worker_app.app.loader.import_default_modules()
        yield runtime


@pytest.fixture
def url(here: Runtime) -> Iterator[str]:
    """A server over a session of ana's with 50 turns."""
    with running_server(here) as address:
        with Reverie("ana", url=address) as ana:
            ana.ingest("s", TURNS)
        drain(here)
        yield address


def run(task: str, **arguments: Any) -> Mapping[str, Any]:
    """The body of a task, as a worker runs it."""
    found: Mapping[str, Any] = worker_app.app.tasks[task].body(**arguments)
    return found


def test_the_periodic_task_summarises_and_the_client_reads_it(url: str) -> None:
    """Given a session over its budget, when the task has run, then the client, also for asyncio, sees its summary."""
    with Reverie("ana", url=url) as ana:
        assert ana.sessions.summary("s").text == ""
        assert run(contract.SUMMARIZE_SESSIONS, manual=True, dry_run=True)["due"] == 1
        assert ana.sessions.summary("s").epoch == 0
        assert run(contract.SUMMARIZE_SESSIONS, manual=True)["summaries"] == 1
        assert "summaries" not in run(contract.SUMMARIZE_SESSIONS, manual=True)
        found = ana.sessions.summary("s")
        assert found.covers == found.upper_sequence > 0
        assert found.covers + found.uncovered == 50
        assert "seahorses" in found.text
        assert ana.context("s", token_budget=3_000).text.count("## Summary of what was said before") == 1
        assert ana.restore("s").uncovered == 0

    async def read() -> str:
        async with AsyncReverie("ana", url=url) as memory:
            assert (await memory.sessions.compact("s", 400)).condensed > 0
            return (await memory.sessions.summary("s")).text

    assert asyncio.run(read()) != found.text


def test_conversations_that_are_over_are_consolidated_by_their_task(url: str, here: Runtime) -> None:
    """Given a session in which something was said just now, then the task leaves it; once it has ended, it does not."""
    assert "summaries" not in run(contract.CONSOLIDATE_CONVERSATIONS, manual=True)
    with here.store("default").writing() as tx:
        tx.connection.exec_driver_sql("UPDATE sessions SET status = 'idle'")
    assert run(contract.CONSOLIDATE_CONVERSATIONS, manual=True)["summaries"] == 1
    assert run(contract.CONSOLIDATE_CONVERSATIONS, manual=True).get("summaries", 0) == 0
    with Reverie("ana", url=url) as ana:
        assert (ana.sessions.summary("s").covers, ana.sessions.summary("s").uncovered) == (50, 0)


def test_what_is_at_fault_is_told(url: str) -> None:
    """Given an unknown session, another agent's, or a budget that is none, then the error names it."""
    with Reverie("ana", url=url) as ana, Reverie("kate", url=url) as kate:
        with pytest.raises(NotFound, match="no session 'nowhere'"):
            ana.sessions.summary("nowhere")
        with pytest.raises(NotFound):
            kate.sessions.summary("s")
        with pytest.raises(NotFound):
            kate.sessions.compact("s")
        for budget in (0, -1, 1.5, True):
            with pytest.raises(Rejected, match="token_budget"):
                ana.sessions.compact("s", budget)  # type: ignore[arg-type]
        with pytest.raises(Rejected, match="at least 256"):
            ana.sessions.compact("s", 100)
    answered = httpx2.post(f"{url}/v1/sessions/s/compact", json={"tokens": 1}, headers={"X-Reverie-Agent": "ana"})
    assert answered.status_code == 422
    assert "tokens" in answered.json()["detail"]


def test_the_command_line_shows_and_compacts(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a session, then `sessions compact` condenses it and `sessions summary` prints what became of it."""
    settings = {"port": urlsplit(url).port, "data": tmp_path / "data", "embedding_provider": "hash", **SMALL}
    reverie = CommandLine(monkeypatch, capsys, "--agent", "ana", **settings)
    assert "No summary yet; 50 messages." in reverie("sessions", "summary", "s").out
    done = reverie("sessions", "compact", "s", "--budget", "600", "--json")
    assert done.code == 0, done.err
    condensed = done.json["condensed"]
    assert 0 < condensed < 50
    shown = reverie("sessions", "summary", "s")
    assert shown.out.startswith("- 20")
    assert f"for {condensed} messages; {50 - condensed} newer ones" in shown.out
    failed = reverie("sessions", "compact", "s", "--budget", "7")
    assert failed.code == 2
    assert failed.err == "reverie: --budget is 7; it must be at least 256\n"


def test_a_language_model_condenses_where_one_is_set(make_runtime: Callable[..., Runtime]) -> None:
    """Given an endpoint that condenses, then its lines are the summary, and what it took is counted."""
    with chat_endpoint(say("- 2026-05-01 Ann: counted seahorses on fifty visits.")) as endpoint:
        runtime = make_runtime(**SMALL, language_model_base_url=endpoint.url, language_model="m")
        with running_server(runtime) as address, Reverie("ana", url=address) as ana:
            ana.ingest("s", [{**turn, "created_at": "2026-05-01T09:00:00Z"} for turn in TURNS])
            drain(runtime)
            assert ana.sessions.compact("s", 800).summary.text == "- 2026-05-01 Ann: counted seahorses on fifty visits."


def test_with_the_real_model_the_extract_holds_what_matters(tmp_path: Path) -> None:
    """Given small talk around a move, a job and an allergy, embedded by all-MiniLM, then these are in the summary."""
    embedder = build_embedder(EmbedderSpec(device="cpu"))
    assert embedder is not None
    counter = build_token_counter("sentence-transformers", "all-MiniLM-L6-v2")
    pipe = Pipeline(tmp_path / "data", embedder=embedder)
    try:
        pipe.say(
            *[{"role": "assistant" if name == "Ben" else "user", "content": text, "name": name} for name, text in MOVE]
        )
        pipe.settle()
        pipe.advance(25 * 3_600)

        def work(run: JobRun) -> None:
            numbers = SummaryRules(100_000, RollingRules(), None, 2_000)
            consolidate_conversations(run, Condenser(counter), numbers, after_hours=24)

        run_on_store(pipe.store, "consolidate", work, now=pipe.now())
        found = read_summary(pipe.store, counter, agent="ana", session="s")
    finally:
        pipe.close()
    for fact in ("moved to Lisbon on 3 May", "marine biologist", "allergic to peanuts", "night train for 12 July"):
        assert fact in found.text
    for chatter in ("Hi Ben", "so cool", "Great!", "Can't wait"):
        assert chatter not in found.text
    assert found.tokens <= 160
