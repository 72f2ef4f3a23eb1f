"""Start the stack, store a conversation, ask questions about it, stop. Each step is timed.

Messages take the same way as any agent's: the client puts them into the broker, or has the server do so if a stack runs
already; the workers store, chunk, embed and index them, and the server answers recalls. A second run first forgets its
three sessions and does the same again.

The stack is one that already runs on the data folder, or the demonstration's own. Invariant: on leaving
`running_stack`, by whatever way, processes that it started are stopped, and others keep running.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# The client imports these on first use; an interrupt in the middle of an import may be swallowed by its `except:`.
import httpx2  # noqa: F401
import msgspec
import redis  # noqa: F401
from rich.console import Console

from cli import clear_interrupt
from cli.stack import make_folder
from reverie import Reverie, contract
from reverie.errors import ReverieError, Unavailable
from reverie.recall.types import RecallResult
from worker.settings import PREFIX
from worker.supervision.broker_address import embedded_broker_url
from worker.supervision.data_lock import supervisor_pid
from worker.supervision.processes import spawn
from worker.supervision.server_file import running_server

DEFAULT_PORT = 7437
START_TIMEOUT_SECONDS = 120.0
_STOP_TIMEOUT_SECONDS = 40.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Stack:
    """The addresses of a running stack; of one that this program did not start, only that of its server."""

    url: str
    broker: str | None = None

    @property
    def own(self) -> bool:
        """Whether this program started it, and will stop it."""
        return self.broker is not None

    def client(self, agent: str, workspace: str) -> Reverie:
        """Return a client as an agent would create it. It finds the token of this user by itself."""
        return Reverie(agent, workspace=workspace, url=self.url, broker=self.broker, timeout_seconds=60)


@contextlib.contextmanager
def running_stack(data: Path, workspace: str) -> Iterator[Stack]:
    """Yield the stack on a data folder. If none is running, start one and stop it at the end."""
    make_folder(data)
    if supervisor_pid(data) is not None:
        yield _running(data)
        return
    # Start `reverie up` in a session of its own, so that Ctrl-C only reaches this program, which then stops it.
    command = [sys.executable, "-P", "-m", "cli", "--data", os.fspath(data), "--workspace", workspace, "up"]
    for port in (_free_port(), _free_port(but=DEFAULT_PORT)):
        # If this program is killed, the kernel sends the supervisor SIGTERM, so nothing is left running.
        process = spawn([*command, "--port", str(port)], {}, _log_path(data), signal.SIGTERM)
        try:
            _await_answer(process, data, port)
            yield Stack(f"http://127.0.0.1:{port}", embedded_broker_url(data))
            return
        except _StackEnded:
            # Another program may have taken the default port since it was free.
            if port != DEFAULT_PORT or not _listens(port):
                raise
        finally:
            _stop(process)


class _StackEnded(Unavailable):
    """The stack ended while it started."""


def _await_answer(process: subprocess.Popen[bytes], data: Path, port: int) -> None:
    """Wait until the server of this folder answers. Raises Unavailable: if it ends, or does not answer in time."""
    deadline, log_path = time.monotonic() + START_TIMEOUT_SECONDS, _log_path(data)
    while running_server(data) is None or not _listens(port):
        _raise_if_interrupted()
        if process.poll() is not None:
            lines = log_path.read_text(errors="replace").strip().splitlines()
            raise _StackEnded(f"the stack ended at once: {lines[-1] if lines else f'see {log_path}'}")
        if time.monotonic() > deadline:
            raise Unavailable(
                f"the stack does not answer after {START_TIMEOUT_SECONDS:g} s: see the logs in {log_path.parent}"
            )
        time.sleep(_LOOK_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the supervisor, which stops all its processes. A second Ctrl-C makes it kill them."""
    process.terminate()
    deadline = time.monotonic() + _STOP_TIMEOUT_SECONDS
    while process.poll() is None:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel ends its children with it


def _running(data: Path) -> Stack:
    """Return the stack that runs on this folder. Raises Unavailable if its server is not running."""
    server = running_server(data)
    if server is None:
        raise Unavailable(
            f"a stack runs on {data}, but its server is not running: try again, or see the logs in {data / 'logs'}"
        )
    return Stack(server.url)


def _free_port(but: int | None = None) -> int:
    """Return the default port, or another free one if it is in use; never the port `but`."""
    for port in (DEFAULT_PORT, 0) if but != DEFAULT_PORT else (0,):
        with socket.socket() as probe, contextlib.suppress(OSError):
            # As servers do. Without it, a port with connections in TIME_WAIT counts as in use.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise Unavailable("there is no free port on 127.0.0.1")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _log_path(data: Path) -> Path:
    return data / "logs" / "demo.log"


AGENT: Final = "demo"
WORKSPACE: Final = "demo"
QUESTIONS: Final = (
    "Am I allergic to anything?",
    "Which pet lives with me?",
    "What is wrong with my hearing?",
    "What happened to the musical instrument?",
    "When is my parents' wedding anniversary?",
)
RESULTS: Final = 3

CONVERSATION: Final = Path(__file__).with_name("conversation.jsonl")
_WARM_UP_SESSION: Final = "demo-warm-up"
# Loading the model takes 5 s, and about ten on a machine that reads it from disk for the first time.
_WAIT_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1
_STEP_WIDTH: Final = 12

console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
errors = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=True)
# Set by Ctrl-C. Its KeyboardInterrupt may be swallowed: by a finalizer, or by a bare `except` of a library.
_interrupted: Final = threading.Event()


class Steps:
    """Shows each step while it runs (on a terminal), and how long it took when it has ended.

    A step ends with KeyboardInterrupt if there was an interrupt during it.
    """

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """Time one step. Texts that the body appends to the list are printed after the time."""
        notes: list[str] = []
        started = time.monotonic()
        with console.status(f"{name} ..."):
            yield notes
        self.done(name, time.monotonic() - started, ", ".join(notes))

    def done(self, name: str, seconds: float, note: str = "") -> None:
        """Show a step that has ended. Raises KeyboardInterrupt if it was interrupted."""
        _raise_if_interrupted()
        took = f"{seconds:7.1f} s " if seconds >= 1 else f"{seconds * 1_000:7.0f} ms"
        console.print(f"  {name:<{_STEP_WIDTH}} {took}   {note}".rstrip())


def main(data: Path) -> int:
    """Run the demonstration on a data folder. Return 0, 1 after printing what failed, or 130 on Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[variable]
    os.environ[PREFIX + "CONFIG"] = os.devnull
    try:
        _run(Steps(), data)
    except KeyboardInterrupt:
        clear_interrupt()
        errors.print("demo: interrupted; nothing is left running")
        return 130
    except (ReverieError, OSError) as error:
        errors.print(f"demo: {error}")
        return 1
    return 0


def _run(steps: Steps, data: Path) -> None:
    conversation = _conversation()
    total = sum(len(messages) for messages in conversation.values())
    console.print(f"Reverie, from an enqueued message to a recalled one. Data in {data.resolve()}\n")
    begun = time.monotonic()
    with ExitStack() as running:
        with steps.step("stack up") as notes:
            stack = running.enter_context(running_stack(data, WORKSPACE))
            what = "broker, workers, beat, server"
            notes.append(what if stack.own else "already running")
        with stack.client(AGENT, WORKSPACE) as memory:
            with steps.step("model ready") as notes:
                notes.append(_warm_up(memory))
            _remember(steps, memory, conversation, total)
            _ask(memory)
        if stack.own:
            with steps.step("stopped") as notes:
                running.close()
                notes.append("all processes")
    console.print(f"\nDone in {time.monotonic() - begun:.0f} s.\n")
    _print_next_steps(stack)


def _warm_up(memory: Reverie) -> str:
    """Make the embed worker and the server load their model, with a message that is then forgotten and with recalls.

    The server answers by keywords while it loads its model, so it is asked until it no longer does.
    """
    for session in (_WARM_UP_SESSION, *_conversation()):
        memory.sessions.forget(session)
    deadline = time.monotonic() + _WAIT_SECONDS
    memory.recall("ready?")
    warm_up: list[Any] = [{"role": "user", "content": "Are you awake?"}]
    receipt = memory.ingest(_WARM_UP_SESSION, warm_up, wait="searchable", timeout_seconds=_WAIT_SECONDS)
    degraded = receipt.degraded or memory.recall("ready?").degraded
    while degraded and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        _raise_if_interrupted()
        degraded = memory.recall("ready?").degraded
    memory.sessions.forget(_WARM_UP_SESSION)
    if degraded:
        raise Unavailable(f"the model cannot be loaded: {degraded}")
    embedder = memory.status().embedder
    return f"{embedder.model} in {embedder.dtype} on {embedder.device}"


def _remember(steps: Steps, memory: Reverie, conversation: dict[str, list[Any]], total: int) -> None:
    """Send the conversation and wait for each state. Sending the same ids again changes nothing: it only waits."""
    started = time.monotonic()
    for state in contract.WAITS:
        with console.status(f"{state} ..."):
            for session, messages in conversation.items():
                memory.ingest(session, messages, wait=state, timeout_seconds=_WAIT_SECONDS)
        note = f"{total} messages of {len(conversation)} sessions are in the broker" if state == "queued" else ""
        steps.done(state, time.monotonic() - started, note)


def _ask(memory: Reverie) -> None:
    for question in QUESTIONS:
        _raise_if_interrupted()
        began = time.monotonic()
        response = memory.recall(question, limit=RESULTS)
        milliseconds = (time.monotonic() - began) * 1_000
        console.print(f"\n? {question}   ({milliseconds:.0f} ms)", style="bold")
        if response.degraded:
            console.print(f"  ({response.degraded})")
        for result in response.results:
            console.print(f"  {_result_line(result)}")
    console.print()


def _result_line(result: RecallResult) -> str:
    text = " ".join((result.text or result.excerpt or "").split())
    shown = text if len(text) <= 150 else text[:149] + "…"
    return f"{result.created_at:%d %b %Y} {result.name or result.role or result.kind:>9}: {shown}"


def _print_next_steps(stack: Stack) -> None:
    beside = Path(sys.executable).with_name("reverie")
    reverie = "reverie" if shutil.which("reverie") else os.path.relpath(beside)
    console.print("Next steps:")
    if stack.own:
        console.print(f"  {reverie} up                  the same stack, until Ctrl-C; then, in another shell:")
    console.print(f"  {reverie} --workspace demo --agent demo recall 'what am I allergic to?'")
    console.print(f"  {reverie} status")
    page = f"http://127.0.0.1:{DEFAULT_PORT}" if stack.own else stack.url
    console.print(f"  {reverie} tokens show-local   the token with which to log in to the memory page, {page}/")


def _conversation() -> dict[str, list[Any]]:
    """Return the messages of the repository's conversation, by session, in order."""
    sessions: dict[str, list[Any]] = {}
    for line in CONVERSATION.read_bytes().splitlines():
        message = msgspec.json.decode(line)
        sessions.setdefault(message.pop("session"), []).append(message)
    return sessions


def _raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if there was one, in case that of the signal handler was swallowed."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


def _interrupt(_number: int, _frame: object) -> None:
    _interrupted.set()
    raise KeyboardInterrupt
