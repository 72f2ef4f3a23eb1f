"""Stacks for tests of what they do: `reverie up` as a fork, which need not import for 1.5 s of the processor.

How it starts from a command line is tested by `tests/acceptance/test_demo.py` and others.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.harness.stack import Stack
from support.forks import FORKS, RUN_MODULE, Program, start_code

# As `worker.supervision.processes.spawn` starts it: in a session of its own, which ends with its parent.
_UP: Final = f"""
import atexit, os, signal
from worker.supervision.processes import die_with_parent
atexit._clear()  # what the process that was forked does at its end
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
die_with_parent()
{RUN_MODULE}
"""
_BENCHMARK: Final = f"""
from support.stacks import fork_stacks
fork_stacks()
{RUN_MODULE}
"""


class ForkedStack(Stack):
    """Broker, workers, beat and server, which are all forks of the process that is forked for tests."""

    def launch(self) -> None:
        """Start `reverie up` and return at once."""
        _launch(self, FORKS)


def fork_stacks() -> None:
    """Have each stack that this process starts be a fork of it, unless it is to run by a command of its own."""
    original = Stack.launch

    def launch(stack: Stack) -> None:
        if stack._prefix:
            original(stack)
        else:
            _launch(stack, multiprocessing.get_context("fork"))

    Stack.launch = launch  # type: ignore[method-assign]


def start_benchmark(name: str, *options: str, environment: Mapping[str, str], output: Path, folder: Path) -> Program:
    """Start a benchmark as a fork, and its stacks as forks of that; see `support.forks.start_module`."""
    return start_code(_BENCHMARK, f"benchmarks.{name}", *options, environment=environment, output=output, folder=folder)


def _launch(stack: Stack, context: multiprocessing.context.BaseContext) -> None:
    words = ["cli", "--data", str(stack.data), "up", "--port", str(stack.port)]
    environment = {**os.environ, **stack._environment()}
    started = Program(_UP, words, environment, stack.data / "up.out", context=context)
    stack._process = started  # type: ignore[assignment]
