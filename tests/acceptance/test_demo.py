"""`make demo` as a newcomer sees it: the real stack, the real model, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.harness.folders import short_folder

pytestmark = pytest.mark.sqlite("shows the defaults")

ROOT = Path(__file__).resolve().parents[2]
# It takes some ten seconds; loading the model from a cold disk beside other tests takes longer.
TIMEOUT_SECONDS = 240.0

# What each question of the demonstration is to bring back: other words than the question's own.
ANSWERS = {
    "Am I allergic to anything?": "Walnuts close up my throat",
    "Which pet lives with me?": "My greyhound!",
    "What is wrong with my hearing?": "My ears have hurt",
    "What happened to the musical instrument?": "the piano stays behind",
    "When is my parents' wedding anniversary?": "married for forty years on the ninth",
}

# The demonstration, interrupted in the middle of a string run as code, as when a dataclass is created.
INTERRUPTED = """
import sys
from cli.demo import DATA, showing as demo

demo._run = lambda *_: exec("import os, signal; os.kill(os.getpid(), signal.SIGINT); [None for _ in range(1000)]")
sys.exit(demo.main(DATA))
"""
# The same where a callback swallows the exception, as one of the garbage collector does.
SWALLOWED = """
import contextlib, os, signal, sys
from cli.demo import DATA, showing as demo

def run(*_):
    with contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        [None for _ in range(1000)]
    demo._ask(None)

demo._run = run
sys.exit(demo.main(DATA))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a name short enough for the broker's socket."""
    path = short_folder("rv-")
    yield path
    for process in processes_of(path):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    shutil.rmtree(path, ignore_errors=True)


def start(folder: Path) -> subprocess.Popen[str]:
    """The demonstration with this folder as its current one, as a terminal would run it."""
    return subprocess.Popen(
        [sys.executable, "-m", "cli", "demo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every process that runs in this folder or names it, whoever started it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(folder) or any(str(folder) in word for word in process.cmdline()):
                found.append(process)
    return found


def test_the_demonstration_recalls_what_was_said_and_leaves_nothing_running(folder: Path) -> None:
    """Given an empty folder, when the demo runs twice, then each question finds its answer and no process is left.

    The usual port is taken meanwhile, so it has to choose another one.
    """
    with contextlib.ExitStack() as taken:
        with contextlib.suppress(OSError):  # it is taken already, then
            taken.enter_context(socket.create_server(("127.0.0.1", 7437)))
        first = shown(folder)
        assert processes_of(folder) == []
    second = shown(folder)
    assert processes_of(folder) == []
    for output in (first, second):
        steps = ("stack up", "model ready", "queued", "stored", "searchable", "stopped")
        assert [step for step in steps if step not in output] == []
        for question, answer in ANSWERS.items():
            results = output.partition(f"? {question}")[2].partition("\n\n")[0]
            assert answer in results, f"{question}\n{results}"


def shown(folder: Path) -> str:
    """Run the demonstration to its end, which must be a good one, and return what it shows."""
    demo = start(folder)
    output, errors = demo.communicate(timeout=TIMEOUT_SECONDS)
    assert (demo.returncode, errors) == (0, ""), output + errors
    return output


def test_an_interrupted_demonstration_leaves_nothing_running(folder: Path) -> None:
    """Given a demo whose stack is up, when Ctrl-C comes, then it ends with 130 and no process is left."""
    demo = start(folder)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "stack up" in line:
            break
    assert len(processes_of(folder)) > 4

    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=60)

    assert demo.returncode == 130
    assert errors == "demo: interrupted; nothing is left running\n"
    assert processes_of(folder) == []


@pytest.mark.parametrize("program", [INTERRUPTED, SWALLOWED], ids=["in a string", "swallowed"])
def test_an_interrupt_in_foreign_code_ends_with_130(folder: Path, program: str) -> None:
    """Given Ctrl-C while a library runs a string as code, or swallows the exception, then the exit code is 130."""
    (folder / "interrupted.py").write_text(program)
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (130, "demo: interrupted; nothing is left running\n")


def test_a_folder_that_cannot_be_written_is_told_with_what_to_do(folder: Path) -> None:
    """Given a file in the place of the data folder, then one line names it and the option that chooses another."""
    (folder / ".reverie").write_text("not a folder")
    demo = start(folder)
    _, errors = demo.communicate(timeout=60)

    assert (demo.returncode, errors.count("\n")) == (1, 1)
    assert errors.startswith("demo: ")
    assert "the data folder .reverie cannot be written" in errors
    assert "choose another with --data" in errors


def test_a_killed_demonstration_takes_its_stack_with_it(folder: Path) -> None:
    """Given a demo whose stack is up, when it gets SIGKILL, then its stack ends by itself."""
    demo = start(folder)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "stack up" in line:
            break

    demo.kill()
    demo.communicate()

    deadline = time.monotonic() + 60
    while left := processes_of(folder):
        assert time.monotonic() < deadline, left
        psutil.wait_procs(left, timeout=1)
