"""Users of an external broker, as docs/security.md makes them: they can do their work, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
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
from reverie.contract import QUEUES
from reverie.pipeline.broker import celery_settings
from support.agents import agent_worker, ended, fired, until
from support.http import running_server
from support.ports import free_port
from worker.app import app, use_runtime
from worker.runtime import Runtime
from worker.supervision.embedded_broker import broker_command, wait_until_ready

SECURITY = Path(__file__).resolve().parents[2] / "docs" / "security.md"
PASSWORD = "correct-horse"
USER = "reverie-agent-ana"
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
    (command,) = re.findall(rf"^ACL SETUSER {user} (.*?)^```", SECURITY.read_text(), re.MULTILINE | re.DOTALL)
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
            admin.execute_command("ACL", "SETUSER", *documented(USER))
        yield free
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def url_of(port: int, user: str) -> str:
    return f"redis://{user}:{PASSWORD}@127.0.0.1:{port}/0"


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime], port: int, fires_every_second: None) -> Iterator[Runtime]:
    """Reverie itself, which has all rights."""
    made = make_runtime(broker=f"redis://127.0.0.1:{port}/0", broker_prefix="reverie:")
    yield made
    made.broker.flushdb()


def refusals(port: int) -> list[dict[str, Any]]:
    with redis.Redis(port=port) as admin:
        found: list[dict[str, Any]] = admin.acl_log()  # type: ignore[assignment]
        return found


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


@pytest.mark.parametrize("command", REFUSED, ids=" ".join)
def test_nothing_else_is_allowed(port: int, command: tuple[str, ...]) -> None:
    """Given a command of an operator, a key of somebody else or a control message, then the broker refuses it."""
    with (
        redis.Redis.from_url(url_of(port, USER), protocol=2) as client,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        client.execute_command(*command)


def test_no_user_controls_celerys_workers(port: int) -> None:
    """Given Celery's own client, then a control command of it is refused before a worker could hear it."""
    control = celery.Celery("x", broker=url_of(port, USER), set_as_current=False)
    control.conf.update(celery_settings("reverie:"))
    control.conf.broker_transport_options["max_retries"] = 0
    with pytest.raises((redis.exceptions.NoPermissionError, OperationalError)):
        control.control.broadcast("shutdown")
    control.close()


# A key of each kind, of others, and three whose names begin as those of the agent's own queue do.
KEYS_OF_OTHERS = [
    "inbox:home", "inbox:home:due", "inbox:home:taken", "inbox:home:tries", "inbox:home:holder", "inbox:home:waiting",
    "inbox:home:pause", "inbox:home:full", "inboxes", "inboxes:state", "inboxes:limits", "reply:x",
    "wake:reverie.ingest_messages:home", "working:x", "working-epoch:x", "working-epoch", "recalls", "recalls:home",
    "answered:x", "lag", "metrics", "worker:x", "progress:x", *QUEUES, "_kombu.binding.celery", "unacked",
    "unacked_index", "unacked_mutex", "_kombu.binding.agent.home.bob", "agent.home.bob", "agent.home.anabel",
    "agent.home.ana.x", "agent.other.ana", "unacked:agent.home.bob", "unacked:agent.home.anabel",
    "unacked_index:agent.home.anabel",
]  # fmt: skip
# What touches no key; the first four are allowed to everybody before they have logged in.
KEYLESS = {
    "auth", "hello", "quit", "reset", "ping", "client|setinfo", "multi", "exec", "script|load",
}  # fmt: skip


def commands(admin: redis.Redis) -> Iterator[tuple[str, int]]:
    """Every command and subcommand of the server, with the number of words that it needs at least."""
    connection = admin.connection_pool.get_connection()
    connection.send_command("COMMAND")
    for found in connection.read_response():
        for name, arity, *_ in (found, *found[9]):
            yield name.decode(), abs(arity)
    admin.connection_pool.release(connection)


def test_every_command_is_refused_for_every_key_of_others(port: int) -> None:
    """Given each command of the server and a key of each kind, then a worker of ana may not use one on the other."""
    allowed: set[tuple[str, str]] = set()
    refused = 0
    with redis.Redis(port=port) as admin:
        known = list(commands(admin))
        assert len(known) > 300
        for name, words in known:
            for key in KEYS_OF_OTHERS:
                full = f"reverie:{key}"
                arguments = [full] * max(1, words - 1 - name.count("|"))
                if name in ("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"):
                    arguments = ["x", "1", full]
                try:
                    answer = admin.execute_command("ACL", "DRYRUN", USER, *name.split("|"), *arguments)
                except redis.ResponseError:  # it cannot be called with these words
                    continue
                if answer == b"OK":
                    allowed.add((name, key))
                else:
                    refused += 1
        assert refused > 300 * len(KEYS_OF_OTHERS)
    assert {name for name, _ in allowed} <= KEYLESS, sorted(allowed)


def test_an_agent_s_worker_takes_the_tasks_of_its_queue(runtime: Runtime, port: int, tmp_path: Path) -> None:
    """Given the documented user of an agent's worker, then it executes a run, and the broker had nothing to refuse."""
    with redis.Redis(port=port) as admin:
        admin.acl_log_reset()
    with ExitStack() as running:
        url = running.enter_context(running_server(runtime))
        ana = running.enter_context(Reverie("ana", url=url, workspace="home"))
        variables = {"REVERIE_BROKER": url_of(port, USER), "REVERIE_URL": url}
        agent = running.enter_context(agent_worker(tmp_path / "agent", AGENT, variables, *FLAGS))
        schedule = ana.schedules.add("water", every=1, task="my_agent.water", queue="ana", recall_limit=0).id
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
