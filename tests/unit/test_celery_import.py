"""Agents send their first messages from several threads at once, and Celery is only then imported."""

from __future__ import annotations

import subprocess
import sys

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
