"""Schedules that fire into an agent's own Celery workers: real processes, a real broker, a server that may be away."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import text

from reverie.client import Reverie
from reverie.clock import now_micros
from reverie.contract import QUEUES
from reverie.errors import AgentQueueFull, NotFound, Rejected
from reverie.scheduling.agent_worker import AgentTasks, QueueLimits
from reverie.scheduling.run_signing import SignedRun, derive_worker_key, sign_run
from reverie.scheduling.types import TaskExecutor
from support.agents import AgentProcess, agent_worker, ended, fire, fired, until
from support.http import running_server
from support.ports import free_port
from worker.runtime import Runtime

QUEUE = "ana-tasks"
CELERY_QUEUE = f"agent.default.{QUEUE}"

AGENT = """
    import json, os, pathlib, signal
    from reverie.scheduling.agent_worker import AgentWorker
    from reverie.scheduling.types import RunReport

    worker = AgentWorker(agent="ana", queue="ana-tasks")
    here = pathlib.Path(__file__).parent
    app = worker.app

    def write(name, text):
        (here / f"{name}.part").write_text(str(text))
        (here / f"{name}.part").rename(here / name)

    @worker.task("my_agent.tell")
    def tell(goal, run):
        return json.dumps({"goal": goal, "agent": run.agent, "workspace": run.workspace, "schedule": run.schedule_id,
                           "run": run.id, "due_at": run.due_at.isoformat(), "timeout": run.timeout_seconds})

    @worker.task("my_agent.report")
    def report(goal, run):
        return RunReport(status="failed", output="half of it", summary="half", error="no more milk", turn_count=3,
                         cost=0.25, notify=False)

    @worker.task("my_agent.fail")
    def fail(goal, run):
        raise LookupError("no calendar \\x00\\ud800")

    @worker.task("my_agent.nothing")
    def nothing(goal, run):
        return None

    @worker.task("my_agent.too_much")
    def too_much(goal, run):
        return "x" * 2_000_000

    @worker.task("my_agent.told_to_go")
    def told_to_go(goal, run):
        write("begun", os.getpid())
        while not (here / "go").exists():
            signal.sigtimedwait([], 0.05)
        return "went"

    @worker.task("my_agent.second_time")
    def second_time(goal, run):
        if (here / "first").exists():
            return "the second time"
        write("first", os.getpid())
        while True:
            signal.pause()
"""

PLAIN = """
    import os
    from celery import Celery
    from reverie import Reverie

    app = Celery("plain", broker=os.environ["PLAIN_BROKER"])
    app.conf.broker_transport_options = {"global_keyprefix": os.environ["REVERIE_BROKER_PREFIX"]}
    app.conf.task_default_queue = "agent.default.ana-tasks"
    app.conf.task_ignore_result = True

    @app.task(name="plain.summarise")
    def summarise(schedule_id, run_id, goal):
        with Reverie("ana") as reverie:
            reverie.runs.complete(run_id, f"{goal}: done for {schedule_id}", turn_count=2, cost=1.5)
"""


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], fires_every_second: None) -> Runtime:
    """A runtime in which schedules may fire every second."""
    return make_runtime()


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """The server that takes the reports."""
    with running_server(runtime) as running:
        yield running


@pytest.fixture
def client(url: str) -> Iterator[Reverie]:
    """The agent's client."""
    with Reverie("ana", url=url) as reverie:
        yield reverie


StartAgent = Callable[..., AgentProcess]


@pytest.fixture
def start_agent(runtime: Runtime, tmp_path: Path) -> Iterator[StartAgent]:
    """Starts workers of the agent's, which end with the test."""
    settings = runtime.settings
    with ExitStack() as running:

        def start(url: str, code: str = AGENT, **environment: str) -> AgentProcess:
            variables = {
                "REVERIE_BROKER": settings.broker_url,
                "REVERIE_BROKER_PREFIX": settings.broker_prefix,
                "REVERIE_URL": url,
                **environment,
            }
            return running.enter_context(agent_worker(tmp_path / "agent", code, variables))

        yield start


def add(client: Reverie, task: str, **more: object) -> str:
    """A schedule of every second for one of the agent's tasks."""
    fields = {"every": 1, "task": task, "queue": QUEUE, "recall_limit": 0, **more}
    return client.schedules.add("water the plants", **fields).id  # type: ignore[arg-type]


def test_what_a_function_returns_or_raises_is_how_its_run_ends(
    runtime: Runtime, client: Reverie, url: str, start_agent: StartAgent
) -> None:
    """Given functions that return a text, a report, nothing, too much, and that raise, then each run says so."""
    start_agent(url)
    names = ("tell", "report", "fail", "nothing", "too_much")
    schedules = {name: add(client, f"my_agent.{name}", timeout_seconds=300) for name in names}
    first = {name: fired(runtime, client, schedule) for name, schedule in schedules.items()}
    runs = {name: ended(client, run) for name, run in first.items()}

    received = json.loads(runs["tell"].output)
    assert runs["tell"].status == "success"
    assert received == {
        "goal": "water the plants",
        "agent": "ana",
        "workspace": "default",
        "schedule": schedules["tell"],
        "run": first["tell"],
        "due_at": runs["tell"].due_at.isoformat(),
        "timeout": 300,
    }
    report = runs["report"]
    assert (report.status, report.output, report.summary, report.error) == (
        "failed",
        "half of it",
        "half",
        "no more milk",
    )
    assert (report.turn_count, report.cost) == (3, 0.25)
    assert (runs["fail"].status, runs["fail"].error) == ("failed", "LookupError: no calendar ?")
    assert (runs["nothing"].status, runs["nothing"].output) == ("success", "")
    assert runs["too_much"].status == "failed"
    assert "output has 2,000,000 bytes" in runs["too_much"].error


def test_a_run_of_a_task_that_the_worker_lacks_fails_at_once(
    runtime: Runtime, client: Reverie, url: str, start_agent: StartAgent
) -> None:
    """Given a schedule with a misspelt task, then its run fails and names the tasks that there are."""
    start_agent(url)
    run = ended(client, fired(runtime, client, add(client, "my_agent.tel", timeout_seconds=300)))
    assert (run.status, run.error.partition("; it has ")[0]) == ("failed", "the worker has no task 'my_agent.tel'")
    assert "my_agent.tell" in run.error


def test_a_plain_celery_task_reports_by_itself(
    runtime: Runtime, client: Reverie, url: str, start_agent: StartAgent
) -> None:
    """Given a Celery app that knows nothing of ours but the client, then what it reports is the run's end."""
    from reverie.pipeline.broker import celery_url

    start_agent(url, PLAIN, PLAIN_BROKER=celery_url(runtime.settings.broker_url))
    schedule = add(client, "plain.summarise")
    run = ended(client, fired(runtime, client, schedule))
    assert (run.status, run.output) == ("success", f"water the plants: done for {schedule}")
    assert (run.turn_count, run.cost) == (2, 1.5)


def test_a_report_waits_for_a_server_that_is_away(runtime: Runtime, start_agent: StartAgent) -> None:
    """Given a server that went away while the agent worked, when it is back, then the report arrives."""
    port = free_port()
    with running_server(runtime, port=port) as url, Reverie("ana", url=url) as client:
        agent = start_agent(url)
        run = fired(runtime, client, add(client, "my_agent.told_to_go"))
        agent.wait_for("begun")
    (agent.folder / "go").touch()
    with socket.create_server(("127.0.0.1", port)) as breaking_off:  # until it has asked in vain
        breaking_off.settimeout(60)
        breaking_off.accept()[0].close()
    with running_server(runtime, port=port) as url, Reverie("ana", url=url) as client:
        done = ended(client, run)
    assert (done.status, done.output) == ("success", "went")


def test_a_task_whose_process_was_killed_comes_again(
    runtime: Runtime, client: Reverie, url: str, start_agent: StartAgent
) -> None:
    """Given SIGKILL of the process that executes, then the worker gives the same run to another."""
    agent = start_agent(url)
    run = fired(runtime, client, add(client, "my_agent.second_time"))
    os.kill(int(agent.wait_for("first")), signal.SIGKILL)
    done = ended(client, run)
    assert (done.status, done.output) == ("success", "the second time")


def test_a_task_whose_worker_was_killed_comes_again_after_what_it_may_take(
    runtime: Runtime, client: Reverie, url: str, start_agent: StartAgent
) -> None:
    """Given SIGKILL of the whole worker, when its time is over, then the next worker of the queue gets the run."""
    agent = start_agent(url)
    run = fired(runtime, client, add(client, "my_agent.second_time"))
    agent.wait_for("first")
    agent.kill()
    index = f"{runtime.settings.broker_prefix}unacked_index:{CELERY_QUEUE}"
    ((held, _),) = runtime.broker.zscan(index)[1]
    assert runtime.broker.zcard(f"{runtime.settings.broker_prefix}unacked_index") == 0  # Reverie's own
    runtime.broker.zadd(index, {held: 1})  # as if it had been taken long ago  # type: ignore[type-var]
    start_agent(url)
    done = ended(client, run)
    assert (done.status, done.output) == ("success", "the second time")


def test_a_report_that_comes_too_late_is_dropped_quietly(
    runtime: Runtime, client: Reverie, url: str, start_agent: StartAgent
) -> None:
    """Given a function that takes longer than the run may, then the run is timed out and stays so, and the worker
    says nothing of it."""
    agent = start_agent(url)
    schedule = add(client, "my_agent.told_to_go")
    run = fired(runtime, client, schedule)
    agent.wait_for("begun")
    end_time_of(runtime, run)
    late = ended(client, run, meanwhile=lambda: fire(runtime))
    assert late.status == "timed_out"
    assert "did not finish within its timeout" in late.error
    client.schedules.pause(schedule)

    (agent.folder / "go").touch()
    until(lambda: f"[{run}] succeeded" in agent.log_text, "the task does not end")
    assert client.runs.get(run) == late
    assert "Traceback" not in agent.log_text


def end_time_of(runtime: Runtime, run: str) -> None:
    """Have the time of a run be over, as if it had begun long ago."""
    with runtime.store("default").writing() as tx:
        over = {"past": now_micros() - 1, "id": run}
        tx.connection.execute(text("UPDATE schedule_runs SET deadline = :past WHERE id = :id"), over)


def test_a_worker_that_was_away_does_not_make_up_for_what_is_over(
    runtime: Runtime, client: Reverie, url: str, start_agent: StartAgent
) -> None:
    """Given a run that timed out before any worker came, when one comes, then it executes the next run alone."""
    schedule = add(client, "my_agent.second_time", timeout_seconds=1)
    missed = fired(runtime, client, schedule)
    assert ended(client, missed, meanwhile=lambda: fire(runtime)).status == "timed_out"
    client.schedules.pause(schedule)
    agent = start_agent(url)
    run = fired(runtime, client, add(client, "my_agent.tell"))
    assert ended(client, run).status == "success"
    until(lambda: missed in agent.log_text, "the worker does not see what it missed")
    assert not (agent.folder / "first").exists()


def test_a_cancelled_run_takes_no_report(runtime: Runtime, client: Reverie, url: str, start_agent: StartAgent) -> None:
    """Given a run that was cancelled and one whose schedule was deleted while the agent worked, then nobody fails."""
    agent = start_agent(url)
    schedule = add(client, "my_agent.told_to_go")
    run = fired(runtime, client, schedule)
    agent.wait_for("begun")
    assert client.runs.cancel(run).status == "cancelled"
    client.schedules.delete(schedule)
    (agent.folder / "go").touch()
    until(lambda: f"[{run}] succeeded" in agent.log_text, "the task does not end")
    assert "Traceback" not in agent.log_text


def test_tasks_lie_in_the_agents_queue_and_in_none_of_reveries(runtime: Runtime, client: Reverie) -> None:
    """Given no worker, then the task waits in its queue under the run's id, without the goal in what is shown."""
    run = fired(runtime, client, add(client, "my_agent.tell"))
    prefix, broker = runtime.settings.broker_prefix, runtime.broker
    (raw,) = queued(broker, f"{prefix}{CELERY_QUEUE}")
    headers = json.loads(raw)["headers"]
    assert (headers["task"], headers["id"]) == ("my_agent.tell", run)
    assert "plants" not in json.dumps(headers)
    own = [json.loads(item)["headers"]["task"] for queue in QUEUES for item in queued(broker, f"{prefix}{queue}")]
    assert all(task.startswith("reverie.") for task in own)
    assert client.runs.get(run).status == "running"


def queued(broker: redis.Redis, key: str) -> list[bytes]:
    found: list[bytes] = broker.lrange(key, 0, -1)  # type: ignore[assignment]
    return found


@pytest.mark.parametrize(
    ("task", "queue", "field"),
    [("reverie.run_schedule", QUEUE, "task"), ("celery.chord", QUEUE, "task"), ("a.b", "schedules", "queue"),
     ("a.b", "ingest", "queue"), ("a.b", "celery", "queue"), ("a b", QUEUE, "task"), ("a.b", "a b", "queue"),
     ("a.b", "reverie:inbox:default", "queue"), ("a.b", "../x", "queue"), ("a.b", "agent.other.ana", "queue"),
     ("a.b", "other.ana", "queue")],
)  # fmt: skip
def test_tasks_and_queues_of_reverie_are_refused(client: Reverie, task: str, queue: str, field: str) -> None:
    """Given a name that is Reverie's or none at all, then the field at fault is named."""
    with pytest.raises(Rejected) as refused:
        client.schedules.add("goal", every=60, task=task, queue=queue)
    assert refused.value.field == field


def forge(runtime: Runtime, run_id: str, *, key: str | None, **changes: Any) -> None:
    """Put a task into the queue of ana as somebody does who has full access to the broker."""
    fields = {
        "workspace": "default", "agent": "ana", "task": "my_agent.tell", "schedule_id": "s", "run_id": run_id,
        "goal": "pay the plumber", "due_at": "2027-03-01T08:00:00Z", "timeout_seconds": 300, "trace": "",
        "signed_at": int(time.time()), **changes,
    }  # fmt: skip
    signed = SignedRun(**fields)
    names = ("workspace", "agent", "due_at", "timeout_seconds", "trace", "signed_at")
    headers = {name: getattr(signed, name) for name in names}
    if key is not None:
        headers["signature"] = sign_run(key, signed)
    tasks = AgentTasks(runtime.settings.broker_url, prefix=runtime.settings.broker_prefix)
    tasks.send(
        TaskExecutor(task="my_agent.tell", queue=QUEUE), workspace="default", schedule_id=signed.schedule_id,
        run_id=run_id, goal=signed.goal, headers=headers,
    )  # fmt: skip
    tasks.close()


@pytest.mark.parametrize(
    ("limits", "fits"), [(QueueLimits(tasks=3), 3), (QueueLimits(bytes=25_000), 3), (QueueLimits(), 5)]
)
def test_a_queue_that_nobody_serves_takes_so_much_and_no_more(runtime: Runtime, limits: QueueLimits, fits: int) -> None:
    """Given agents' workers that are down, when a queue is full, then it is said what to do, and what waits is kept."""
    tasks = AgentTasks(runtime.settings.broker_url, prefix=runtime.settings.broker_prefix, limits=limits)
    key = f"{runtime.settings.broker_prefix}agent.default.{QUEUE}"

    def send(number: int, queue: str = QUEUE) -> None:
        tasks.send(
            TaskExecutor(task="my_agent.tell", queue=queue), workspace="default", schedule_id="s",
            run_id=f"r{number}", goal="g" * 5_000, headers={},
        )  # fmt: skip

    sent = 0
    with contextlib.suppress(AgentQueueFull):
        for sent in range(5):
            send(sent)
        sent = 5
    assert sent == fits
    if fits < 5:
        with pytest.raises(AgentQueueFull, match="Start some, or pause its schedules"):
            send(9)
        assert runtime.broker.llen(key) == fits
        send(9, queue="another")
        assert runtime.broker.rpop(key)
        send(9)
    tasks.close()


def test_a_worker_executes_only_open_runs_that_are_signed_for_its_agent(
    runtime: Runtime, client: Reverie, url: str, start_agent: StartAgent
) -> None:
    """Given tasks that are unsigned, signed by another agent, of no run and of an ended one, then none is executed."""
    agent = start_agent(url)
    schedule = add(client, "my_agent.tell")
    done = ended(client, fired(runtime, client, schedule))
    client.schedules.pause(schedule)
    with Reverie("bob", url=url) as bob:
        other = bob.runs.worker_key().key
    own = client.runs.worker_key().key
    forge(runtime, "unsigned", key=None)
    forge(runtime, "of-bob", key=other)
    forge(runtime, "for-bob", key=other, agent="bob")
    forge(runtime, "no-such-run", key=own)
    forge(runtime, done.id, key=own, schedule_id=schedule)
    reasons = {
        "unsigned": "it is not signed",
        "of-bob": "its signature is wrong",
        "for-bob": "it is for agent 'bob'",
        "no-such-run": "there is no such run",
        done.id: "this worker has had it before",
    }
    for run_id, reason in reasons.items():
        refusal = f"run {run_id!r} is refused: {reason}"
        until(lambda refusal=refusal: refusal in agent.log_text, f"not in its log: {refusal}\n{agent.log_text}")
    assert agent.log_text.count("succeeded") == 1
    agent.kill()
    agent = start_agent(url)  # which has seen nothing
    forge(runtime, done.id, key=own, schedule_id=schedule)
    until(lambda: f"run {done.id!r} is refused: it has ended: success" in agent.log_text, "it is not refused")
    assert client.runs.get(done.id) == done
    again = ended(client, fired(runtime, client, add(client, "my_agent.tell")))
    assert again.status == "success"


def test_a_report_of_another_agent_is_refused(runtime: Runtime, client: Reverie, url: str) -> None:
    """Given the id of an open run, then another agent, or another workspace, can neither end nor see it."""
    run = fired(runtime, client, add(client, "my_agent.tell"))
    for agent, workspace in (("bob", "default"), ("ana", "other")):
        with Reverie(agent, url=url, workspace=workspace) as other, pytest.raises(NotFound):
            other.runs.complete(run, "mine")
    assert client.runs.get(run).status == "running"


def test_a_worker_with_the_key_of_another_installation_executes_nothing(
    runtime: Runtime, client: Reverie, url: str, start_agent: StartAgent
) -> None:
    """Given a worker with a wrong key, then it says so in its log, and the run stays open."""
    agent = start_agent(url, REVERIE_WORKER_KEY=derive_worker_key(b"x" * 32, "default", "ana"))
    run = fired(runtime, client, add(client, "my_agent.tell"))
    until(lambda: "its signature is wrong" in agent.log_text, "the worker does not refuse it")
    assert client.runs.get(run).status == "running"
