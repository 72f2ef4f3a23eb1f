"""The supervisor, as a real process that starts, loses and stops real processes."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from msgspec.structs import replace

from benchmarks.harness.folders import short_folder
from benchmarks.harness.stack import Stack
from reverie.errors import Conflict
from support.forks import Program
from worker.supervision.broker_address import embedded_broker_url
from worker.supervision.child import restart_delay_seconds
from worker.supervision.data_lock import supervisor_pid
from worker.supervision.embedded_broker import broker_answers, wait_until_ready
from worker.supervision.processes import parent_pid_from, watch_parent
from worker.supervision.run_file import hold_data_dir, read_run_file, run_file_path, write_run_file

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 60.0

# Runs a Supervisor in a process of its own: specs as JSON in, events as JSON lines out. It looks for signs of life
# every 2 s and counts a pause as 4 s at most: with 5 s, nobody is taken to hang because the whole machine stood still.
DRIVER = """
import dataclasses, json, signal, sys
from pathlib import Path
import structlog
from reverie.errors import ReverieError
from worker.supervision.embedded_broker import broker_processes
from worker.supervision.supervisor import ProcessSpec, Supervisor

signal.signal(signal.SIGHUP, getattr(signal, sys.argv.pop()))
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
data_dir, with_broker, specs = Path(sys.argv[1]), sys.argv[2] == "broker", json.loads(sys.argv[3])

def tell(event):
    print(json.dumps(dataclasses.asdict(event), default=str), flush=True)

def spec(name, argv=(), code=None, ready_file=None, log_path=None, touch=None, alive=None, **more):
    ready = Path(ready_file).exists if ready_file else None
    target = (lambda: exec(code, {})) if code else None
    more |= {"alive_path": Path(alive), "hang_seconds": 5.0} if alive else {}
    more |= {"while_starting": Path(touch).touch} if touch else {}
    return ProcessSpec(name=name, argv=argv, target=target, ready=ready, log_path=log_path and Path(log_path), **more)

all_specs = [spec(**fields) for fields in specs] + (broker_processes(data_dir) if with_broker else [])
try:
    sys.exit(Supervisor(all_specs, data_dir, on_event=tell).run())
except ReverieError as error:
    print(json.dumps({"kind": "refused", "name": type(error).__name__, "error": str(error)}), flush=True)
    sys.exit(3)
"""

FOREVER = ["sleep", "600"]
# Each says that it got so far by making the file named in its first argument.
IGNORES_SIGTERM = [
    sys.executable,
    "-c",
    "import signal, sys, pathlib\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "pathlib.Path(sys.argv[1]).touch()\nwhile True: signal.pause()",
]
HAS_A_CHILD = ["sh", "-c", 'sleep 601 & echo $! > "$0.part"; mv "$0.part" "$0"; wait']

Event = dict[str, Any]


class Up:
    """A supervisor under test and the events that it told so far."""

    def __init__(self, data_dir: Path, specs: list[dict[str, Any]], *, with_broker: bool = False) -> None:
        self.data_dir = data_dir
        self.events: list[Event] = []
        self.seen: list[psutil.Process] = []
        self._folder = tempfile.TemporaryDirectory()
        pipe, self._errors = Path(self._folder.name, "events"), Path(self._folder.name, "errors")
        os.mkfifo(pipe)
        self.stdout = os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb")
        hangup = "SIG_IGN" if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else "SIG_DFL"
        arguments = [str(data_dir), "broker" if with_broker else "alone", json.dumps(specs), hangup]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}
        self.process = Program(DRIVER, arguments, environment, pipe, errors=self._errors)
        self._unread = b""

    def until(self, kind: str, name: str) -> Event:
        """Block until the next such event and return it."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self.stdout, selectors.EVENT_READ)
            while True:
                while b"\n" in self._unread:
                    event = self._take_line()
                    if (event["kind"], event["name"]) == (kind, name):
                        return event
                assert selector.select(deadline - time.monotonic()), f"no {kind} {name}: {self.story()}"
                read = self.stdout.read()
                assert read, f"ended without {kind} {name}: {self.story()}"
                self._unread += read

    def _take_line(self) -> Event:
        line, self._unread = self._unread.split(b"\n", 1)
        event: Event = json.loads(line)
        self.events.append(event)
        if event["kind"] == "process_started":
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already
                self.seen.append(psutil.Process(event["pid"]))
        return event

    def finish(self) -> int:
        """Wait for its end, read what it told, and return its exit code."""
        code = self.process.wait(TIMEOUT_SECONDS)
        if not self.stdout.closed:
            self._unread += self.stdout.read() or b""
        while b"\n" in self._unread:
            self._take_line()
        return code

    def kinds(self, kind: str) -> list[str]:
        return [event["name"] for event in self.events if event["kind"] == kind]

    def story(self) -> str:
        return f"{self.events}\n{self._errors.read_text()}"

    def end(self) -> None:
        self.process.kill()
        self.finish()
        for process in self.seen:  # each led a group, and a shell's child may be left in it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self.stdout.close()
        self._folder.cleanup()


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data folder with a name short enough for a socket, which pytest's tmp_path does not promise."""
    path = short_folder("rv-")
    yield path
    shutil.rmtree(path)


RunUp = Callable[..., Up]


@pytest.fixture
def run_up(data_dir: Path) -> Iterator[RunUp]:
    """Starts supervisors on the data folder; they and their processes are killed afterwards."""
    started: list[Up] = []

    def run(*specs: dict[str, Any], with_broker: bool = False) -> Up:
        started.append(Up(data_dir, list(specs), with_broker=with_broker))
        return started[-1]

    yield run
    for up in started:
        up.end()


def gone(*processes: psutil.Process) -> bool:
    """Wait for the end of `processes` and tell whether all ended."""
    return not psutil.wait_procs(processes, timeout=TIMEOUT_SECONDS)[1]


def test_processes_start_in_order_and_stop_in_reverse_with_the_broker_last(run_up: RunUp) -> None:
    up = run_up(
        {"name": "server", "argv": FOREVER, "order": 2},
        {"name": "worker", "argv": FOREVER, "order": 1},
        with_broker=True,
    )
    up.until("process_started", "server")

    up.process.send_signal(signal.SIGINT)

    assert up.finish() == 0
    assert up.kinds("process_started") == ["broker", "broker-sync", "worker", "server"]
    assert up.kinds("process_stopping") == ["server", "worker", "broker-sync", "broker"]
    assert up.kinds("process_stopped")[:2] == ["server", "worker"]
    assert up.kinds("process_killed") == []
    assert [e["exit_code"] for e in up.events if e["kind"] == "process_stopped" and e["name"] == "broker"] == [0]
    assert gone(*up.seen)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_ends_with_zero_and_leaves_nothing(run_up: RunUp, data_dir: Path, number: signal.Signals) -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        up = run_up({"name": "one", "argv": FOREVER})
    finally:
        signal.signal(signal.SIGHUP, former)
    up.until("process_started", "one")
    assert run_file_path(data_dir).exists()

    up.process.send_signal(number)

    assert up.finish() == 0
    assert gone(*up.seen)
    assert not run_file_path(data_dir).exists()
    assert supervisor_pid(data_dir) is None


def test_nohup_is_respected(run_up: RunUp) -> None:
    """A supervisor that was started to outlive its terminal does not stop when the terminal closes."""
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        up = run_up({"name": "one", "argv": FOREVER})
    finally:
        signal.signal(signal.SIGHUP, former)
    one = up.until("process_started", "one")

    up.process.send_signal(signal.SIGHUP)
    os.kill(one["pid"], signal.SIGKILL)

    up.until("process_started", "one")
    assert up.kinds("process_stopping") == []


def test_a_process_that_is_not_ready_keeps_the_next_from_starting(run_up: RunUp, data_dir: Path) -> None:
    ready_file = data_dir / "ready"
    first = {"name": "first", "argv": FOREVER, "order": 0, "ready_file": str(ready_file)}
    up = run_up(first, {"name": "second", "argv": FOREVER, "order": 1})
    up.until("process_started", "first")
    # It is still asking: the first dies, is started again, and the second still is not there.
    up.seen[0].kill()
    up.until("process_started", "first")
    assert up.kinds("process_started") == ["first", "first"]

    ready_file.touch()

    up.until("process_started", "second")
    assert up.kinds("process_ready") == ["first"]


def test_a_process_that_never_gets_ready_stops_all_and_names_its_log(run_up: RunUp, data_dir: Path) -> None:
    log_path = data_dir / "logs" / "late.log"
    up = run_up(
        {"name": "early", "argv": FOREVER, "order": 0},
        {
            "name": "late",
            "argv": FOREVER,
            "order": 1,
            "ready_file": str(data_dir / "never"),
            "ready_timeout_seconds": 0.2,
            "log_path": str(log_path),
        },
    )

    refused = up.until("refused", "Unavailable")

    assert refused["error"] == f"late was not ready after 0.2 s: see {log_path}"
    assert up.finish() == 3
    assert up.kinds("process_stopped") == ["late", "early"]
    assert gone(*up.seen)


def test_a_program_that_does_not_exist_stops_all_with_its_name(run_up: RunUp) -> None:
    up = run_up({"name": "good", "argv": FOREVER}, {"name": "bad", "argv": ["/nowhere/program"], "order": 1})

    refused = up.until("refused", "Unavailable")

    assert "bad cannot be started" in refused["error"]
    assert "/nowhere/program" in refused["error"]
    assert up.finish() == 3
    assert gone(*up.seen)


def test_a_killed_process_is_back_at_once_and_then_with_growing_delays(run_up: RunUp) -> None:
    up = run_up({"name": "one", "argv": FOREVER}, {"name": "other", "argv": FOREVER, "order": 1})
    one = up.until("process_started", "one")
    up.until("process_started", "other")
    delays = []
    for _ in range(3):
        os.kill(one["pid"], signal.SIGKILL)
        died = up.until("process_died", "one")
        assert (died["pid"], died["signal"], died["exit_code"]) == (one["pid"], "SIGKILL", None)
        delays.append(died["restart_in_seconds"])  # that it waits for so long: test_supervisor_times
        one = up.until("process_started", "one")

    assert delays == [0.0, 0.2, 0.4]
    assert up.kinds("process_died") == ["one"] * 3


def test_delays_double_up_to_five_seconds_for_ever() -> None:
    delays = [restart_delay_seconds(deaths) for deaths in (1, 2, 3, 4, 5, 6, 7, 5000)]
    assert delays == [0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_crash_loop_is_told_once_with_its_last_lines_and_goes_on(run_up: RunUp, data_dir: Path) -> None:
    log_path = data_dir / "logs" / "bad.log"
    up = run_up({"name": "bad", "argv": ["sh", "-c", "echo no such model; exit 7"], "log_path": str(log_path)})

    event = up.until("process_keeps_crashing", "bad")
    up.until("process_started", "bad")

    assert up.kinds("process_died") == ["bad"] * 5
    assert event["exit_code"] == 7
    assert event["log_path"] == str(log_path)
    assert event["last_lines"][-1] == "no such model"
    assert stat.S_IMODE(log_path.stat().st_mode) == 0o600
    up.until("process_died", "bad")
    assert up.kinds("process_keeps_crashing") == ["bad"]


def test_a_process_is_restarted_also_when_its_log_cannot_be_opened(run_up: RunUp, data_dir: Path) -> None:
    log_path = data_dir / "logs" / "one.log"
    up = run_up({"name": "one", "argv": FOREVER, "log_path": str(log_path)})
    one = up.until("process_started", "one")
    shutil.rmtree(log_path.parent)
    log_path.parent.write_text("no folder")

    os.kill(one["pid"], signal.SIGKILL)

    again = up.until("process_started", "one")
    assert psutil.Process(again["pid"]).is_running()
    assert "log_file_not_opened" in up.story()


def test_a_process_that_gives_no_sign_any_more_is_killed_and_restarted(run_up: RunUp, data_dir: Path) -> None:
    """Given one process that stops giving signs of life, one that goes on, and one that never gave any, when time
    passes, then only the first is killed, with a message, and it is back."""
    touches = ["sh", "-c", 'touch "$0"; exec sleep 600', str(data_dir / "hangs.alive")]
    goes_on = ["sh", "-c", 'while touch "$0"; do sleep 0.1; done', str(data_dir / "works.alive")]
    up = run_up(
        {"name": "works", "argv": goes_on, "alive": str(data_dir / "works.alive")},
        {"name": "silent", "argv": FOREVER, "alive": str(data_dir / "silent.alive")},
        {"name": "hangs", "argv": touches, "alive": str(data_dir / "hangs.alive")},
    )
    first = up.until("process_started", "hangs")["pid"]
    assert up.until("process_hangs", "hangs")["pid"] == first
    assert up.until("process_died", "hangs")["signal"] == "SIGKILL"
    assert up.until("process_started", "hangs")["pid"] != first
    assert set(up.kinds("process_died")) == set(up.kinds("process_hangs")) == {"hangs"}


def test_what_a_killed_process_had_started_is_gone_before_it_is_back(run_up: RunUp, data_dir: Path) -> None:
    pid_file = data_dir / "grandchild"
    up = run_up(
        {"name": "parent", "argv": [*HAS_A_CHILD, str(pid_file)], "ready_file": str(pid_file)},
    )
    parent = up.until("process_ready", "parent")
    grandchild = psutil.Process(int(pid_file.read_text()))

    os.kill(parent["pid"], signal.SIGKILL)

    up.until("process_started", "parent")
    assert gone(grandchild)


def test_what_a_stopped_process_leaves_behind_is_gone_too(run_up: RunUp, data_dir: Path) -> None:
    """A shell that gets SIGTERM ends without its background child."""
    pid_file = data_dir / "grandchild"
    up = run_up({"name": "parent", "argv": [*HAS_A_CHILD, str(pid_file)], "ready_file": str(pid_file)})
    up.until("process_ready", "parent")
    grandchild = psutil.Process(int(pid_file.read_text()))

    up.process.send_signal(signal.SIGTERM)

    assert up.finish() == 0
    assert gone(grandchild)


def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(run_up: RunUp, data_dir: Path) -> None:
    mark = str(data_dir / "mark")
    up = run_up(
        {
            "name": "deaf",
            "argv": [*IGNORES_SIGTERM, mark],
            "ready_file": mark,
            "stop_grace_seconds": 0.5,
        }
    )
    up.until("process_ready", "deaf")

    up.process.send_signal(signal.SIGINT)
    stopped = up.until("process_stopped", "deaf")

    assert stopped["signal"] == "SIGKILL"
    assert up.kinds("process_killed") == ["deaf"]
    assert up.finish() == 0


def test_a_second_ctrl_c_hurries(run_up: RunUp, data_dir: Path) -> None:
    mark = str(data_dir / "mark")
    up = run_up({"name": "deaf", "argv": [*IGNORES_SIGTERM, mark], "ready_file": mark, "stop_grace_seconds": 600})
    up.until("process_ready", "deaf")
    up.process.send_signal(signal.SIGINT)
    up.until("process_stopping", "deaf")

    up.process.send_signal(signal.SIGINT)

    assert up.finish() == 0
    assert gone(*up.seen)


def test_a_stop_while_something_gets_ready_does_not_wait_for_it(run_up: RunUp, data_dir: Path) -> None:
    up = run_up({"name": "slow", "argv": FOREVER, "ready_file": str(data_dir / "never")})
    up.until("process_started", "slow")

    up.process.send_signal(signal.SIGINT)

    assert up.finish() == 0
    assert gone(*up.seen)


def test_nothing_outlives_a_killed_supervisor_and_the_next_one_starts(run_up: RunUp, data_dir: Path) -> None:
    """Given a killed supervisor, then its broker flushes and ends, and all it held is there again."""
    up = run_up({"name": "one", "argv": FOREVER, "order": 1}, with_broker=True)
    up.until("process_started", "one")
    with redis.Redis.from_url(embedded_broker_url(data_dir)) as client:
        client.rpush("queue", "kept")

    up.process.kill()

    assert gone(*up.seen)
    again = run_up(with_broker=True)
    again.until("process_ready", "broker")
    with redis.Redis.from_url(embedded_broker_url(data_dir)) as client:
        assert client.lpop("queue") == b"kept"


def test_what_a_killed_supervisor_could_not_end_is_ended_by_the_next(run_up: RunUp, data_dir: Path) -> None:
    """A child that ignores SIGTERM stands for a platform where the kernel does not tell it either."""
    mark = str(data_dir / "mark")
    up = run_up({"name": "deaf", "argv": [*IGNORES_SIGTERM, mark], "ready_file": mark})
    up.until("process_ready", "deaf")
    up.process.kill()
    up.finish()
    assert up.seen[0].is_running()

    run_up({"name": "one", "argv": FOREVER}).until("process_started", "one")

    assert gone(*up.seen)


def test_a_pid_that_went_to_another_process_is_left_alone(run_up: RunUp, data_dir: Path) -> None:
    bystander = subprocess.Popen(FOREVER, start_new_session=True)
    try:
        up = run_up({"name": "one", "argv": FOREVER})
        up.until("process_started", "one")
        up.process.kill()
        up.finish()
        old = read_run_file(data_dir)
        assert old is not None
        entry = old.processes[0]
        assert entry.created is not None
        reused = replace(entry, pid=bystander.pid, created=entry.created - 10)
        write_run_file(data_dir, replace(old, processes=[reused]))

        run_up({"name": "one", "argv": FOREVER}).until("process_started", "one")

        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_second_supervisor_on_one_data_folder_is_refused(run_up: RunUp, data_dir: Path) -> None:
    first = run_up({"name": "one", "argv": FOREVER})
    first.until("process_started", "one")
    assert supervisor_pid(data_dir) == first.process.pid

    refused = run_up({"name": "two", "argv": FOREVER}).until("refused", "Conflict")

    assert f"already running on {data_dir} (pid {first.process.pid})" in refused["error"]
    assert first.process.poll() is None
    assert run_file_path(data_dir).exists()


def test_a_broker_that_no_supervisor_answers_for_is_not_taken_over(run_up: RunUp, data_dir: Path) -> None:
    first = run_up(with_broker=True)
    first.until("process_started", "broker-sync")
    # Forget the first one: its lock file and its picture are gone, its broker is not.
    shutil.move(data_dir / "run" / "up.lock", data_dir / "lock")
    run_file_path(data_dir).unlink()

    refused = run_up(with_broker=True).until("refused", "Conflict")

    assert f"(pid {first.seen[0].pid})" in refused["error"]
    assert broker_answers(embedded_broker_url(data_dir))


def test_the_lock_is_free_again_after_its_holder_and_its_pid_with_it(data_dir: Path) -> None:
    with hold_data_dir(data_dir):
        assert supervisor_pid(data_dir) == os.getpid()
        with pytest.raises(Conflict), hold_data_dir(data_dir):
            pass
    with hold_data_dir(data_dir):
        pass
    assert supervisor_pid(data_dir) is None


def test_up_json_follows_the_processes_and_is_private(run_up: RunUp, data_dir: Path) -> None:
    up = run_up({"name": "one", "argv": FOREVER}, {"name": "two", "argv": FOREVER, "order": 1})
    up.until("process_started", "two")
    up.seen[0].kill()
    up.until("process_started", "one")
    # The picture is drawn before the event is told; this second death shows that the first is in it.
    up.seen[1].kill()
    up.until("process_died", "two")

    picture = read_run_file(data_dir)

    assert picture is not None
    assert picture.supervisor_pid == up.process.pid
    one = picture.processes[0]
    assert (one.name, one.pid, one.restarts) == ("one", up.seen[2].pid, 1)
    assert one.started_at is not None
    assert one.started_at.tzinfo is not None
    assert stat.S_IMODE(run_file_path(data_dir).stat().st_mode) == 0o600


def test_a_broker_killed_under_a_supervisor_is_back_with_what_it_held(run_up: RunUp, data_dir: Path) -> None:
    up = run_up(with_broker=True)
    up.until("process_ready", "broker")
    url = embedded_broker_url(data_dir)
    with redis.Redis.from_url(url) as client:
        client.rpush("queue", *range(1000))

    up.seen[0].kill()

    up.until("process_started", "broker")
    wait_until_ready(url, TIMEOUT_SECONDS)
    with redis.Redis.from_url(url) as client:
        assert client.llen("queue") == 1000


def test_output_that_is_gone_does_not_keep_processes_alive(run_up: RunUp) -> None:
    """`reverie up | head`: telling of the stop fails, stopping does not."""
    up = run_up({"name": "one", "argv": FOREVER})
    up.until("process_started", "one")
    up.stdout.close()

    up.process.send_signal(signal.SIGTERM)

    up.process.wait(TIMEOUT_SECONDS)
    assert gone(*up.seen)


def test_children_are_told_who_their_parent_is(run_up: RunUp, data_dir: Path) -> None:
    written = data_dir / "written"
    tell = 'echo "$REVERIE_PARENT_PID $EXTRA" > "$0.part"; mv "$0.part" "$0"; sleep 600'
    up = run_up(
        {
            "name": "one",
            "argv": ["sh", "-c", tell, str(written)],
            "env": {"EXTRA": "more"},
            "ready_file": str(written),
        }
    )
    up.until("process_ready", "one")

    assert written.read_text().split() == [str(up.process.pid), "more"]
    assert parent_pid_from({"REVERIE_PARENT_PID": "12"}) == 12
    assert parent_pid_from({}) is None


def test_work_may_be_done_while_a_process_starts_and_a_process_may_be_stopped_apart(
    run_up: RunUp, data_dir: Path
) -> None:
    """Given a server that is ready once work was done beside it, then others start after it, and stop after it."""
    ready = str(data_dir / "ready")
    server = {"name": "server", "argv": FOREVER, "order": 1, "stop_order": 2, "ready_file": ready, "touch": ready}
    up = run_up(server, {"name": "worker", "argv": FOREVER, "order": 1})
    up.until("process_started", "worker")
    assert up.kinds("process_ready") == ["server"]

    up.process.send_signal(signal.SIGINT)

    assert up.finish() == 0
    assert up.kinds("process_stopped") == ["server", "worker"]


# Tells what it is in the file named by REPORT, then waits.
FORKED = """
import json, os, signal
told = {
    "variables": [os.environ["REVERIE_PARENT_PID"], os.environ["EXTRA"]],
    "session": os.getsid(0),
    "open": sorted(os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                   if os.path.exists(f"/proc/self/fd/{name}")),
    "term": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
    "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
}
print("forked", flush=True)
with open(os.environ["REPORT"] + ".part", "w") as file:
    json.dump(told, file)
os.replace(os.environ["REPORT"] + ".part", os.environ["REPORT"])
while True:
    signal.pause()
"""


def forked(data_dir: Path, **more: Any) -> dict[str, Any]:
    report, log = data_dir / "report", data_dir / "logs" / "fork.log"
    env = {"EXTRA": "more", "REPORT": str(report)}
    return {"name": "fork", "code": FORKED, "env": env, "ready_file": str(report), "log_path": str(log), **more}


def test_a_fork_has_its_own_session_output_and_signals_and_not_the_lock(run_up: RunUp, data_dir: Path) -> None:
    up = run_up(forked(data_dir))
    fork = up.until("process_ready", "fork")
    report = json.loads((data_dir / "report").read_text())

    assert report["variables"] == [str(up.process.pid), "more"]
    assert report["session"] == fork["pid"]
    assert (report["term"], report["blocked"]) == (True, [])
    assert not [path for path in report["open"] if path.endswith("up.lock")]
    assert (data_dir / "logs" / "fork.log").read_text() == "forked\n"

    up.process.send_signal(signal.SIGINT)

    assert up.finish() == 0
    assert up.kinds("process_killed") == []
    assert gone(*up.seen)


def test_a_killed_fork_is_back_and_none_outlives_a_killed_supervisor(run_up: RunUp, data_dir: Path) -> None:
    up = run_up(forked(data_dir))
    fork = up.until("process_ready", "fork")
    os.kill(fork["pid"], signal.SIGKILL)
    died = up.until("process_died", "fork")
    assert (died["pid"], died["signal"]) == (fork["pid"], "SIGKILL")
    up.until("process_started", "fork")

    up.process.kill()

    assert gone(*up.seen)
    assert supervisor_pid(data_dir) is None


@pytest.mark.parametrize(
    ("code", "exit_code", "last_line"),
    [
        ("raise SystemExit(7)", 7, None),
        ("raise SystemExit('not so')", 1, "not so"),
        ("raise ValueError('a bug')", 1, "ValueError: a bug"),
        ("from reverie.errors import Unavailable\nraise Unavailable('no store')", 1, "reverie: no store"),
    ],
)
def test_a_fork_that_fails_says_why_and_the_supervisor_goes_on(
    run_up: RunUp, data_dir: Path, code: str, exit_code: int, last_line: str | None
) -> None:
    log = data_dir / "logs" / "fork.log"
    up = run_up({"name": "fork", "code": code, "log_path": str(log)})

    died = up.until("process_died", "fork")

    assert died["exit_code"] == exit_code
    assert (log.read_text().splitlines() or [None])[-1] == last_line
    up.until("process_started", "fork")


ENDS_WITH_PARENT = """
import os, signal, sys
from worker.supervision.processes import die_with_parent
if os.fork():
    sys.stdin.read(1)
    os._exit(0)
die_with_parent({expected}, signal=signal.SIGKILL)
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""


def test_a_forked_child_ends_with_its_parent() -> None:
    """As a Celery pool's child does when the worker is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", ENDS_WITH_PARENT.format(expected="os.getppid()")],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))

        parent.kill()

        assert gone(child)


def test_a_child_whose_parent_was_dead_already_ends_at_once() -> None:
    """Given a parent that died before the call, then its child never gets past the call."""
    with subprocess.Popen(
        [sys.executable, "-c", ENDS_WITH_PARENT.format(expected="-1")],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        output, _ = parent.communicate(b"x", timeout=TIMEOUT_SECONDS)

        assert output == b""


def test_where_the_kernel_does_not_tell_a_thread_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))

    watch_parent(os.getppid() + 1, signal.SIGTERM)

    assert sent == [(os.getpid(), signal.SIGTERM)]


def test_a_supervisor_whose_data_folder_is_removed_ends_with_all_its_processes(run_up: RunUp, data_dir: Path) -> None:
    """Given a broker and a process, when their folder is removed, then all end, and nothing of it is made anew."""
    mark = str(data_dir / "ready")
    up = run_up({"name": "deaf", "argv": [*IGNORES_SIGTERM, mark], "ready_file": mark, "order": 1}, with_broker=True)
    up.until("process_ready", "deaf")
    shutil.rmtree(data_dir)

    assert up.finish() == 3
    assert "was removed or replaced" in up.story()
    assert gone(*up.seen)
    assert not data_dir.exists()
    data_dir.mkdir()


def test_a_stack_runs_without_standard_streams() -> None:
    """Given `reverie up` with its standard streams closed, as some daemons are started, then all of it runs."""
    closing = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    with Stack(env={"REVERIE_EMBEDDING_PROVIDER": "hash"}, prefix=closing) as stack:
        assert stack.server_answers()
        assert "pipeline" in {process.name for process in stack.processes()}
