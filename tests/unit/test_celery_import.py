"""Celery is imported when an agent sends its first message, and all modules once for all processes of `reverie up`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.ports import free_port

# The first thread is held while it imports the package, until the second one has ended or waits for it.
_PROGRAM = """
import sys
import threading
from importlib.abc import MetaPathFinder

from reverie.pipeline.producer import TaskSender

errors = []


def send_first():
    try:
        TaskSender("redis://127.0.0.1:1/0", prefix="test").prepare()
    except ImportError as error:
        errors.append(error)


second = threading.Thread(target=send_first)


class Held(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "celery.local":
            second.start()
            second.join(0.5)


sys.meta_path.insert(0, Held())
send_first()
second.join()
assert "celery" in sys.modules
sys.exit(str(errors[0]) if errors else 0)
"""


def test_two_threads_can_send_the_first_messages_at_once() -> None:
    """Given a process that has not imported Celery, when two threads do it at once, then both can send."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr


# Forks of the supervisor, as far as this: a worker begins to work where Celery connects to the broker.
_FORKS = """
import os
import sys
from pathlib import Path

from celery import platforms
from celery.worker.consumer import Consumer
from celery.beat import Service
from worker import running
from worker.settings import Settings

LIBRARIES = ("billiard", "celery", "cffi", "kombu", "pycparser", "worker")
settings = Settings(data=Path(sys.argv[1]), broker="redis://127.0.0.1:1/0", embedding_provider="none")
running.import_for_forks(settings)
before = set(sys.modules)


def begin(_):
    platforms.set_pdeathsig("SIGKILL")  # as each child of a pool does
    imported = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in LIBRARIES)
    print(name, "imports", *imported, flush=True)
    os._exit(0)


Consumer.start = Service.start = begin
for name in ("ingest", "schedules", "beat"):
    pid = os.fork()
    if not pid:
        if name == "beat":
            running.run_beat(settings)
        running.run_worker(settings, [name], 1, autoscale=2)
    assert os.waitpid(pid, 0)[1] == 0, name
"""


def test_a_fork_of_the_supervisor_finds_all_of_celery_imported(tmp_path: Path) -> None:
    """Given what the supervisor imports, when forks of it start, then they import nothing more of Celery.

    Celery's command line, with a prompt and Flower, would be 335 modules more in each of seven processes.
    """
    program = [sys.executable, "-c", _FORKS, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ingest imports", "schedules imports", "beat imports"]


# What `reverie up` does for its server, as far as this: uvicorn begins to serve.
_SERVER = """
import os
import sys
from pathlib import Path

import uvicorn

from cli.stack import process_specs
from worker.settings import Settings

settings = Settings(data=Path(sys.argv[1]), broker="redis://127.0.0.1:1/0", port=int(sys.argv[2]))
[server] = [spec for spec in process_specs(settings) if spec.name == "server"]
server.before_start()
before = set(sys.modules)
os.environ.update(server.env)


def begin(*_, **__):
    print(*sorted(set(sys.modules) - before))
    sys.exit(0)


uvicorn.Server.run = begin
server.target()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the server is not a fork")
def test_the_server_is_a_fork_that_finds_all_its_modules_imported(tmp_path: Path) -> None:
    """Given what the supervisor imports, when its fork serves, then it imports nothing of ours any more.

    By itself it would import for three seconds what the supervisor imports for the workers anyway.
    """
    program = [sys.executable, "-c", _SERVER, str(tmp_path / "data"), str(free_port())]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    ours = {"adapters", "memory", "retrieval", "reverie", "server", "storage", "worker"}
    assert imported.isdisjoint(ours | {"starlette", "uvicorn"})
