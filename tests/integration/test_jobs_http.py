"""Periodic jobs by the client and HTTP: listed, and run for everything, for one workspace or for one agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args

import httpx2
import pytest

from beat_schedule import PERIODIC_JOBS
from memory.sessions.summaries import CompactionRules
from reverie import Reverie
from reverie.clock import now_micros
from reverie.contract import job_name
from reverie.errors import NotFound, Rejected
from reverie.upkeep import JobName
from storage.memories.records import NewMemory
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime

_DAY = 24 * 3_600 * 1_000_000
_SCOPES = {
    (): {("home", "ana"), ("home", "lif"), ("trips", "ana"), ("trips", "lif")},
    (("agent", "ana"),): {("home", "ana"), ("trips", "ana")},
    (("workspace", "trips"),): {("trips", "ana"), ("trips", "lif")},
    (("agent", "lif"), ("workspace", "home")): {("home", "lif")},
}


class _Clock:
    def __init__(self) -> None:
        self.offset = 0

    def __call__(self) -> int:
        return now_micros() + self.offset


@pytest.fixture
def clock() -> _Clock:
    """A clock that can be put forward."""
    return _Clock()


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], clock: _Clock) -> Runtime:
    """A runtime whose retention is a day."""
    return make_runtime(clock=clock, message_retention_days=1.0)


@pytest.fixture
def ana(runtime: Runtime) -> Iterator[Reverie]:
    """A client of ana's."""
    with running_server(runtime) as url, Reverie("ana", url=url) as client:
        yield client


def _everywhere(runtime: Runtime, read: Callable[[Any], bool]) -> set[tuple[str, str]]:
    """Return the workspaces and agents for which `read`, called with the agent's repositories, is true."""
    found = set()
    for workspace in ("home", "trips"):
        for agent in ("ana", "lif"):
            with runtime.store(workspace).reading() as tx:
                if read(tx.for_agent(agent)):
                    found.add((workspace, agent))
    return found


def test_all_jobs_are_listed_with_their_last_run(ana: Reverie) -> None:
    """Given the table of jobs, then the list has them, and after a run also what it did."""
    assert [job.name for job in ana.admin.jobs.list()] == [job_name(periodic.task) for periodic in PERIODIC_JOBS]
    assert {job.name for job in ana.admin.jobs.list()} == set(get_args(JobName))
    assert all(job.description and job.every_seconds > 0 and job.last_run is None for job in ana.admin.jobs.list())
    ana.admin.jobs.run("prune-decayed", dry_run=True)
    ana.admin.jobs.run("prune-decayed", agent="ana")
    ana.admin.jobs.run("verify-store")
    last = {job.name: job.last_run for job in ana.admin.jobs.list()}
    assert last["prune-decayed"] is None
    assert last["verify-store"] is not None
    assert last["verify-store"].finished_at is not None
    by_name = {job.name: job for job in ana.admin.jobs.list()}
    assert (by_name["dream-sweep"].dry_run, by_name["dream-sweep"].limits) == (True, ["workspace", "agent"])
    assert (by_name["verify-store"].dry_run, by_name["verify-store"].limits) == (False, ["workspace"])
    assert by_name["recover-inbox"].limits == []


@pytest.mark.parametrize("scope", _SCOPES)
def test_a_job_about_memories_keeps_to_its_workspace_and_agent(
    ana: Reverie, runtime: Runtime, scope: tuple[tuple[str, str], ...]
) -> None:
    """Given expired memories of two agents in two workspaces, then a run removes those within its limits alone."""
    for workspace in ("home", "trips"):
        for agent in ("ana", "lif"):
            with runtime.store(workspace).writing() as tx:
                over = NewMemory(id="m", content="it is over", created_at=now_micros() - _DAY, expires_at=1)
                tx.for_agent(agent).memories.add(over, now=now_micros())
    for job in ("prune-decayed", "consolidate-memories"):
        dry = ana.admin.jobs.run(job, dry_run=True, **dict(scope))
        assert (dry.job, dry.dry_run, dry.counts["expired"]) == (job, True, len(_SCOPES[scope]))
        assert {(change.store, change.agent, change.about) for change in dry.planned} == {
            (workspace, agent, "m") for workspace, agent in _SCOPES[scope]
        }
    assert _everywhere(runtime, lambda rows: rows.memories.find("m") is None) == set()
    assert ana.admin.jobs.run("prune-decayed", **dict(scope)).counts["expired"] == len(_SCOPES[scope])
    assert _everywhere(runtime, lambda rows: rows.memories.find("m") is None) == _SCOPES[scope]
    ana.admin.jobs.run("consolidate-memories")
    assert ana.admin.jobs.run("consolidate-memories", **dict(scope)).counts.get("expired", 0) == 0


@pytest.mark.parametrize("scope", _SCOPES)
def test_a_job_about_sessions_keeps_to_its_workspace_and_agent(
    ana: Reverie, runtime: Runtime, clock: _Clock, scope: tuple[tuple[str, str], ...]
) -> None:
    """Given old conversations of two agents in two workspaces, then each job reads, ends and cuts those it is for."""
    text = "My name is Kate and I live in Lisbon. I prefer tea to coffee, and I work as a nurse."
    for workspace in ("home", "trips"):
        for agent in ("ana", "lif"):
            with Reverie(agent, url=ana.connection.config.url, workspace=workspace) as client:
                client.ingest("s", [{"role": "user", "content": text, "created_at": "2020-01-01T00:00:00Z"}])
        drain(runtime, workspace)
    clock.offset = 40 * _DAY
    expected = _SCOPES[scope]

    ana.admin.jobs.run("extract-memories", **dict(scope))
    assert _everywhere(runtime, lambda rows: rows.memories.any()) == expected

    ana.admin.jobs.run("consolidate-conversations", **dict(scope))
    assert _everywhere(runtime, lambda rows: bool(rows.summaries.state("s").text)) == expected

    ana.admin.jobs.run("close-idle-sessions", **dict(scope))
    assert _everywhere(runtime, lambda rows: rows.sessions.get("s").status == "idle") == expected

    ana.admin.jobs.run("apply-retention", **dict(scope))
    assert _everywhere(runtime, lambda rows: rows.sessions.get("s").messages == 0) == expected

    for job in ("extract-memories", "consolidate-conversations", "close-idle-sessions", "apply-retention"):
        ana.admin.jobs.run(job)
    assert _everywhere(runtime, lambda rows: rows.sessions.get("s").messages == 0) == _SCOPES[()]


def test_long_sessions_of_other_agents_are_summarised_by_the_next_run(
    ana: Reverie, make_runtime: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given two agents' sessions over their budget, when a run is for one of them, then the next one does the other."""
    monkeypatch.setattr("worker.composition.CompactionRules", partial(CompactionRules, 512, 256))
    runtime = make_runtime(context_token_budget=2_048, system_prompt_buffer=0)
    text = "We walked along the river and talked about the trip to the islands in the summer. " * 4
    for agent in ("ana", "lif"):
        with Reverie(agent, url=ana.connection.config.url, workspace="home") as client:
            client.ingest("s", [{"role": role, "content": text} for _ in range(40) for role in ("user", "assistant")])
    drain(runtime, "home")
    runtime.store("trips")

    def summarised() -> set[tuple[str, str]]:
        return _everywhere(runtime, lambda rows: rows.sessions.find("s") is not None and _has_summary(rows))

    with running_server(runtime) as url, Reverie("ana", url=url) as client:
        client.admin.jobs.run("summarize-sessions", agent="lif")
        assert summarised() == {("home", "lif")}
        client.admin.jobs.run("summarize-sessions")
        assert summarised() == {("home", "lif"), ("home", "ana")}


def _has_summary(rows: Any) -> bool:
    return bool(rows.summaries.state("s").text)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({"job": "verify-store", "dry_run": True}, "verify-store has no dry run; those that have one: apply-retention"),
        ({"job": "verify-store", "agent": "ana"}, "verify-store cannot be limited to an agent; those that can: "),
        ({"job": "recover-inbox", "workspace": "home"}, "recover-inbox works on all workspaces"),
        ({"job": "dream-sweeep"}, "job is 'dream-sweeep'; it must be one of recover-inbox"),
    ],
)
def test_a_limit_that_a_job_does_not_have_is_refused(
    ana: Reverie, runtime: Runtime, call: dict[str, Any], error: str
) -> None:
    """Given a dry run or a limit that a job does not have, then the error names the jobs that have it."""
    runtime.store("home")
    with pytest.raises(Rejected) as caught:
        ana.admin.jobs.run(**call)
    assert str(caught.value).startswith(error)


def test_an_unknown_workspace_is_not_found(ana: Reverie) -> None:
    """Given the name of a workspace that does not exist, then nothing runs, and none is created."""
    with pytest.raises(NotFound, match="there is no workspace 'nope'"):
        ana.admin.jobs.run("prune-decayed", workspace="nope")
    assert ana.admin.workspaces.list() == []


def test_a_job_is_run_over_http_without_an_agent(ana: Reverie) -> None:
    """Given a request without headers and body, then the job runs for everything."""
    answer = httpx2.post(f"{ana.connection.config.url}/v1/jobs/verify-store/run")
    assert answer.status_code == 200
    assert answer.json()["job"] == "verify-store"
