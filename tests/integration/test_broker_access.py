"""Users of an external broker, as docs/operations.md makes them: they can do their work, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import celery
import pytest
import redis
from kombu.exceptions import OperationalError

from benchmarks.harness.folders import short_folder
from reverie.client import Reverie
from reverie.contract import MessagePayload
from reverie.errors import Unavailable
from reverie.pipeline.celery_settings import celery_settings
from reverie.pipeline.inbox import Inbox
from reverie.scheduling.agent_tasks import AgentTasks
from reverie.scheduling.schedule_types import TaskExecutor
from support.agents import agent_worker, ended, fired, until
from support.http import running_server
from support.ports import free_port
from worker.app import app, use_runtime
from worker.runtime import Runtime
from worker.supervision.embedded_broker import broker_command, wait_until_ready

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
PASSWORD = "correct-horse"
FLAGS = ("--without-gossip", "--without-mingle", "--without-heartbeat")

AGENT = """
    from reverie import AgentWorker

    worker = AgentWorker(agent="ana", queue="ana", workspace="home")
    app = worker.app

    @worker.task("my_agent.water")
    def water(goal, run):
        return f"did: {goal}"
"""


def documented(user: str) -> list[str]:
    """The words of the command in the page that makes a user."""
    (command,) = re.findall(rf"^ACL SETUSER {user} (.*?)^```", OPERATIONS.read_text(), re.MULTILINE | re.DOTALL)
    # A selector, in brackets, is one argument.
    words: list[str] = re.findall(r"\([^)]*\)|\S+", command.replace("PASSWORD", PASSWORD))
    return [user, *words]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A broker on a port of this machine, with the users of the page."""
    free = free_port()
    folder = short_folder("rv-")
    process = subprocess.Popen([*broker_command(folder), "--port", str(free)], stdout=subprocess.DEVNULL)
    try:
        wait_until_ready(f"redis://127.0.0.1:{free}/0", 20)
        with redis.Redis(port=free) as admin:
            for user in ("reverie-producer", "reverie-agent-ana"):
                admin.execute_command("ACL", "SETUSER", *documented(user))
        yield free
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def url_of(port: int, user: str) -> str:
    return f"redis://{user}:{PASSWORD}@127.0.0.1:{port}/0"


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], port: int) -> Iterator[Runtime]:
    """Reverie itself, which has all rights."""
    made = make_runtime(broker=f"redis://127.0.0.1:{port}/0", broker_prefix="reverie:", schedule_min_interval_seconds=1)
    yield made
    made.broker.flushdb()


def refusals(port: int) -> list[dict[str, Any]]:
    with redis.Redis(port=port) as admin:
        found: list[dict[str, Any]] = admin.acl_log()  # type: ignore[assignment]
        return found


def payload(**more: Any) -> MessagePayload:
    fields = {"id": "m1", "agent": "ana", "session": "s", "role": "user", "content": "hi", "created_at": 1, "trace": ""}
    return MessagePayload(**fields | more)


def test_a_producer_sends_and_waits_until_it_is_stored(runtime: Runtime, port: int) -> None:
    """Given the documented user of a producer, then messages are accepted, workers are told, and the receipt comes."""
    with redis.Redis(port=port) as admin:
        admin.acl_log_reset()
    done = threading.Event()

    def work() -> None:
        with use_runtime(runtime):
            while not done.is_set():
                app.tasks["reverie.ingest_messages"].body(workspace="home")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with Reverie("ana", workspace="home", broker=url_of(port, "reverie-producer"), prefix="reverie:") as producer:
            receipt = producer.ingest("chat", {"role": "user", "content": "I moved to Lisbon"}, wait="stored")
    finally:
        done.set()
        thread.join()
    assert receipt.state == "stored"
    assert runtime.broker.llen("reverie:ingest") >= 1  # the notification
    assert refusals(port) == []


REFUSED = [
    ("FLUSHALL",), ("FLUSHDB",), ("CONFIG", "GET", "*"), ("CONFIG", "SET", "dir", "/tmp"), ("KEYS", "*"), ("SCAN", "0"),
    ("SHUTDOWN",), ("ACL", "LIST"), ("ACL", "SETUSER", "x", "on"), ("MONITOR",), ("INFO",),
    ("CLIENT", "LIST"), ("MODULE", "LIST"), ("SAVE",), ("REPLICAOF", "no", "one"), ("EVAL", "return 1", "0"),
    ("GET", "reverie:working:home:x"), ("DEL", "reverie:inbox:home"), ("HGETALL", "reverie:inbox:home"),
    ("HKEYS", "reverie:inbox:home"), ("HGET", "reverie:inbox:other", "x"), ("HSET", "reverie:inbox:other", "x", "y"),
    ("SET", "reverie:inbox:home", "x"), ("SET", "reverie:ingest", "x"), ("LPUSH", "reverie:inbox:home", "x"),
    ("LPUSH", "reverie:maintenance", "x"), ("LPUSH", "reverie:schedules", "x"),
    ("LPUSH", "reverie:agent.home.bob", "x"),
    ("LRANGE", "reverie:ingest", "0", "-1"), ("BRPOP", "reverie:ingest", "1"), ("RPOP", "reverie:ingest"),
    ("PUBLISH", "/0.celery.pidbox", "x"), ("PUBLISH", "reverie:/0.celery.pidbox", "x"), ("SUBSCRIBE", "x"),
    ("PSUBSCRIBE", "*"), ("SADD", "reverie:_kombu.binding.celery.pidbox", "x"), ("SET", "elsewhere", "x"),
    ("GET", "elsewhere"), ("SELECT", "1"),
]  # fmt: skip


@pytest.mark.parametrize("user", ["reverie-producer", "reverie-agent-ana"])
@pytest.mark.parametrize("command", REFUSED, ids=" ".join)
def test_nothing_else_is_allowed(port: int, user: str, command: tuple[str, ...]) -> None:
    """Given a command of an operator, a key of somebody else or a control message, then the broker refuses it."""
    with (
        redis.Redis.from_url(url_of(port, user), protocol=2) as client,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        client.execute_command(*command)


@pytest.mark.parametrize("user", ["reverie-producer", "reverie-agent-ana"])
def test_no_user_controls_celerys_workers(port: int, user: str) -> None:
    """Given Celery's own client, then a control command of it is refused before a worker could hear it."""
    control = celery.Celery("x", broker=url_of(port, user), set_as_current=False)
    control.conf.update(celery_settings("reverie:"))
    control.conf.broker_transport_options["max_retries"] = 0
    with pytest.raises((redis.exceptions.NoPermissionError, OperationalError)):
        control.control.broadcast("shutdown")
    control.close()


def test_a_producer_of_one_workspace_cannot_send_to_another(port: int) -> None:
    """Given the user of a producer for one workspace, then the inbox of another refuses it, and nothing is in it."""
    with redis.Redis.from_url(url_of(port, "reverie-producer")) as broker, redis.Redis(port=port) as admin:
        with pytest.raises(Unavailable, match="refused"):
            Inbox(broker, prefix="reverie:").accept("other", [payload()])
        assert admin.exists("reverie:inbox:other") == 0


def test_a_producer_cannot_send_tasks_to_agents(port: int) -> None:
    """Given the user of a producer, then it cannot put a task into the queue of an agent."""
    tasks = AgentTasks(url_of(port, "reverie-producer"), prefix="reverie:")
    with pytest.raises((Unavailable, redis.exceptions.NoPermissionError)):
        tasks.send(
            TaskExecutor(task="a.b", queue="ana"), workspace="home", schedule_id="s", run_id="r", goal="g", headers={}
        )
    tasks.close()


def test_an_agent_s_worker_takes_the_tasks_of_its_queue(runtime: Runtime, port: int, tmp_path: Path) -> None:
    """Given the documented user of an agent's worker, then it executes a run, and the broker had nothing to refuse."""
    with redis.Redis(port=port) as admin:
        admin.acl_log_reset()
    with ExitStack() as running:
        url = running.enter_context(running_server(runtime))
        ana = running.enter_context(Reverie("ana", url=url, workspace="home"))
        variables = {"REVERIE_BROKER": url_of(port, "reverie-agent-ana"), "REVERIE_URL": url}
        agent = running.enter_context(agent_worker(tmp_path / "agent", AGENT, variables, *FLAGS))
        schedule = ana.add_schedule("water", every=1, task="my_agent.water", queue="ana", recall_limit=0).id
        run = ended(ana, fired(runtime, ana, schedule, workspace="home"))
        until(lambda: f"[{run.id}] succeeded" in agent.log_text, "the task does not end")
        assert (run.status, run.output) == ("success", "did: water")
        assert refusals(port) == []


def test_reveries_workers_take_no_control_commands(make_runtime: Callable[..., Runtime]) -> None:
    """Given the defaults, then the app of the workers, and those of producers and agents, have no remote control."""
    assert os.environ.get("REVERIE_BROKER_REMOTE_CONTROL") is None
    assert app.conf.worker_enable_remote_control is False
    assert celery_settings("x:")["worker_enable_remote_control"] is False


def test_a_client_and_the_workers_agree_on_a_key(
    make_runtime: Callable[..., Runtime], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a key of the broker, then a client with it is heard, and one without it gets the reason in its receipt."""
    key = "k" * 64
    runtime = make_runtime(broker=f"redis://127.0.0.1:{port}/0", broker_prefix="signed:", broker_key=key)

    def ingested(text: str) -> str:
        with Reverie("ana", workspace="home", broker=runtime.settings.broker_url, prefix="signed:") as producer:
            producer.ingest("chat", {"role": "user", "content": text})
        with use_runtime(runtime):
            app.tasks["reverie.ingest_messages"].body(workspace="home")
        with runtime.stores.workspace("home").reading() as tx:
            return " ".join(letter.error for letter in tx.for_agent("ana").dead_letters.list())

    monkeypatch.setenv("REVERIE_BROKER_KEY", key)
    assert ingested("signed") == ""
    monkeypatch.delenv("REVERIE_BROKER_KEY")
    assert "it is not signed: give its producer a key of broker_key" in ingested("not signed")
