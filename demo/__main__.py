"""`python -m demo`: start the stack, hand over a conversation, ask about it, stop. Each step shows how long it took.

Everything goes the way an agent's messages go: the client puts them into the broker, the workers store, chunk, embed
and index them, the server answers. Run again, it forgets its three sessions first and does the same again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console

from demo.stack import Stack, running_stack
from reverie import Reverie, contract
from reverie.errors import ReverieError, Unavailable
from reverie.types import RecallResult
from worker.settings import PREFIX

DATA: Final = Path(".reverie")
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
# Loading the model takes 5 s here, and some ten on a machine that reads its disk for the first time.
_WAIT_SECONDS: Final = 120.0
_STEP_WIDTH: Final = 12

console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
complaints = Console(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=True)


class Steps:
    """Shows each step while it runs (on a terminal) and how long it took when it is done."""

    @contextmanager
    def step(self, name: str) -> Iterator[list[str]]:
        """Time one step. What the body appends to the list is shown behind the time."""
        notes: list[str] = []
        started = time.monotonic()
        with console.status(f"{name} ..."):
            yield notes
        self.done(name, time.monotonic() - started, ", ".join(notes))

    def done(self, name: str, seconds: float, note: str = "") -> None:
        """Show a step that has ended."""
        took = f"{seconds:7.1f} s " if seconds >= 1 else f"{seconds * 1_000:7.0f} ms"
        console.print(f"  {name:<{_STEP_WIDTH}} {took}   {note}".rstrip())


def main() -> int:
    """Run the demonstration and return the exit code: 0, 1 with one line that says what failed, 130 on Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    _forget_environment()
    try:
        _run(Steps())
    except KeyboardInterrupt:
        complaints.print("demo: interrupted; nothing is left running")
        return 130
    except (ReverieError, OSError) as error:
        complaints.print(f"demo: {error}")
        return 1
    return 0


def _run(steps: Steps) -> None:
    conversation = _conversation()
    total = sum(len(messages) for messages in conversation.values())
    console.print(f"Reverie, from an enqueued message to a recalled one. Data in {DATA.resolve()}\n")
    begun = time.monotonic()
    with ExitStack() as running:
        with steps.step("stack up") as notes:
            stack = running.enter_context(running_stack(DATA, WORKSPACE))
            what = "broker, pipeline worker, embed worker, beat, server"
            notes.append(what if stack.own else "it was running already")
        with stack.client(AGENT, WORKSPACE) as memory:
            with steps.step("model ready") as notes:
                notes.append(_warm_up(memory))
            _remember(steps, memory, conversation, total)
            _ask(memory)
        if stack.own:
            with steps.step("stopped") as notes:
                running.close()
                notes.append("no process is left")
    console.print(f"\nDone in {time.monotonic() - begun:.0f} s.\n")
    _say_what_next(stack)


def _warm_up(memory: Reverie) -> str:
    """Have both processes that embed load their model, by a message and a question that are forgotten again."""
    for session in (_WARM_UP_SESSION, *_conversation()):
        memory.forget_session(session)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(memory.recall, "ready?")
        warm_up = [{"role": "user", "content": "Are you awake?"}]
        receipt = memory.ingest(_WARM_UP_SESSION, warm_up, wait="searchable", timeout_seconds=_WAIT_SECONDS)
        asked.result()
    memory.forget_session(_WARM_UP_SESSION)
    if receipt.degraded:
        raise Unavailable(f"the model cannot be loaded: {receipt.degraded}")
    embedder = memory.status().embedder
    return f"{embedder.model} in {embedder.dtype} on {embedder.device}"


def _remember(steps: Steps, memory: Reverie, conversation: dict[str, list[Any]], total: int) -> None:
    """Hand the conversation over, then wait for it. Handing over the same ids again changes nothing: it only waits."""
    started = time.monotonic()
    for state in contract.WAITS:
        with console.status(f"{state} ..."):
            for session, messages in conversation.items():
                memory.ingest(session, messages, wait=state, timeout_seconds=_WAIT_SECONDS)
        note = f"{total} messages of {len(conversation)} sessions are with the broker" if state == "queued" else ""
        steps.done(state, time.monotonic() - started, note)


def _ask(memory: Reverie) -> None:
    for question in QUESTIONS:
        began = time.monotonic()
        found = memory.recall(question, limit=RESULTS)
        milliseconds = (time.monotonic() - began) * 1_000
        console.print(f"\n? {question}   ({milliseconds:.0f} ms)", style="bold")
        if found.degraded:
            console.print(f"  ({found.degraded})")
        for result in found.results:
            console.print(f"  {_who_said_what(result)}")
    console.print()


def _who_said_what(memory: RecallResult) -> str:
    text = " ".join((memory.text or memory.excerpt or "").split())
    shown = text if len(text) <= 150 else text[:149] + "…"
    return f"{memory.created_at:%d %b %Y} {memory.name or memory.role or memory.kind:>9}: {shown}"


def _say_what_next(stack: Stack) -> None:
    console.print("What next:")
    if stack.own:
        console.print("  make up                     the same stack, until Ctrl-C; then, in another shell:")
    console.print("  .venv/bin/reverie --workspace demo --agent demo recall 'what may I not eat?'")
    console.print("  .venv/bin/reverie status")
    console.print("  README.md                   five minutes of use, from your own code")


def _conversation() -> dict[str, list[Any]]:
    """The messages that come with the repository, by session, in their order."""
    sessions: dict[str, list[Any]] = {}
    for line in CONVERSATION.read_bytes().splitlines():
        message = msgspec.json.decode(line)
        sessions.setdefault(message.pop("session"), []).append(message)
    return sessions


def _forget_environment() -> None:
    """The demonstration shows the defaults: settings of the shell that it runs in are for something else."""
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[variable]
    os.environ[PREFIX + "CONFIG"] = os.devnull


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
