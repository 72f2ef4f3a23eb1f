"""Processes that give way: by their niceness, also where Linux shares the processors out by sessions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from storage.held_locks import can_set_session_niceness, can_take_priority_back
from worker.supervision.processes import spawn

AUTOGROUP = Path("/proc/self/autogroup")
LOWERED = 7 if can_take_priority_back() else 0
PROGRAM = """
import os
from worker.supervision.processes import lower_priority
lower_priority(7)
group = open("/proc/self/autogroup").read() if os.path.exists("/proc/self/autogroup") else ""
open({out!r}, "w").write(f"{{os.getpriority(os.PRIO_PROCESS, 0)}} {{group}}")
"""

# A worker whose pool child gives way once it has done its first work, in a thread as in the embed worker.
CHILD_GIVES_WAY = """
import contextlib, json, os, threading
from worker.supervision.processes import lower_priority_now
child = os.fork()
if child == 0:
    other = threading.Event()
    threads = [threading.Thread(target=other.wait), threading.Thread(target=lower_priority_now, args=(7,))]
    for thread in threads:
        thread.start()
    threads[1].join()
    found = []
    for name in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # a thread that was joined is listed until Linux has ended it
            found.append(os.getpriority(os.PRIO_PROCESS, int(name)))
    group = open("/proc/self/autogroup").read() if os.path.exists("/proc/self/autogroup") else ""
    open({out!r}, "w").write(json.dumps([found, group]))
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0
assert os.getpriority(os.PRIO_PROCESS, 0) == {mine}
"""


def test_a_pool_child_gives_way_with_all_its_threads_and_its_session(tmp_path: Path) -> None:
    """Given a child of a supervised worker, when a thread of it gives way, then all its threads and the session do."""
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    program = CHILD_GIVES_WAY.format(out=str(tmp_path / "out"), mine=mine)
    process = spawn([sys.executable, "-c", program], {}, tmp_path / "log", signal.SIGKILL)
    assert process.wait(60) == 0, (tmp_path / "log").read_text("utf-8")

    found, group = json.loads((tmp_path / "out").read_text("utf-8"))
    assert found
    assert set(found) == {min(19, mine + LOWERED)}
    if group.strip() and LOWERED and can_set_session_niceness():  # a kernel with autogroups
        assert group.split()[-2:] == ["nice", "7"]


def test_a_supervised_process_gives_way_to_those_of_other_sessions(tmp_path: Path) -> None:
    """Given a process that leads a session, when it gives way, then the whole session does."""
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    program = PROGRAM.format(out=str(tmp_path / "out"))
    process = spawn([sys.executable, "-c", program], {}, tmp_path / "log", signal.SIGKILL)
    assert process.wait(60) == 0, (tmp_path / "log").read_text("utf-8")

    niceness, _, group = (tmp_path / "out").read_text("utf-8").partition(" ")
    assert int(niceness) == min(19, mine + LOWERED)
    if group.strip() and LOWERED and can_set_session_niceness():  # a kernel with autogroups
        assert group.split()[-2:] == ["nice", "7"]


def test_a_process_of_a_users_session_leaves_that_session_as_it_is() -> None:
    """Given a worker started by hand, which leads no session, then the shell it came from keeps its share."""
    before = AUTOGROUP.read_text("ascii") if AUTOGROUP.exists() else ""
    program = "from worker.supervision.processes import lower_priority; lower_priority(5)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)  # a process of this session
    assert (AUTOGROUP.read_text("ascii") if AUTOGROUP.exists() else "") == before


WRITES = """
import json, os
from pathlib import Path
from storage.stores import Stores
from worker.supervision.processes import lower_priority
lower_priority(7)
AUTOGROUP = Path("/proc/self/autogroup")
found = []
def note():
    group = AUTOGROUP.read_text().split()[-1] if AUTOGROUP.exists() else "0"
    found.append([os.getpriority(os.PRIO_PROCESS, 0), int(group)])
note()
stores = Stores(Path({data!r}))
for store in (stores.account_store(), stores.workspace("ws")):
    with store.writing():
        note()
    note()
    try:
        with store.writing():
            note()
            raise ValueError
    except ValueError:
        note()
Path({out!r}).write_text(json.dumps(found))
"""


def test_a_process_that_gives_way_has_its_priority_while_it_holds_the_lock_of_a_store(tmp_path: Path) -> None:
    """Given a process that gives way, then not while it writes, and again afterwards, whether that fails or not."""
    program = WRITES.format(out=str(tmp_path / "out"), data=str(tmp_path / "data"))
    process = spawn([sys.executable, "-c", program], {}, tmp_path / "log", signal.SIGKILL)
    assert process.wait(60) == 0, (tmp_path / "log").read_text("utf-8")
    found = json.loads((tmp_path / "out").read_text("utf-8"))
    outside, within = found[0], [min(os.getpriority(os.PRIO_PROCESS, 0), 0), 0]
    assert found == [outside, *([within, outside] * 4)]
