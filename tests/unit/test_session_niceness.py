"""How a process gives way with its whole session where Linux limits how often that is asked for."""

from __future__ import annotations

import os
from errno import EACCES, EAGAIN
from pathlib import Path

import pytest

from worker import running
from worker.settings import load_settings
from worker.supervision import processes


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was written to a file of the system. The process leads its session, and keeps its own niceness."""
    texts: list[str] = []
    monkeypatch.setattr(Path, "write_text", lambda path, text, **_: texts.append(f"{path} {text}"))
    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.setattr(processes, "can_take_priority_back", lambda: True)
    monkeypatch.setattr(processes, "can_set_session_niceness", lambda: True)
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    monkeypatch.setattr(processes, "_SESSION_PAUSE_SECONDS", 0.0)
    return texts


def test_a_session_gives_way_although_another_one_has_done_so_just_now(
    written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a kernel that allows it ten times a second to all processes together, then it is tried again."""
    write, refusals = Path.write_text, [EAGAIN, EAGAIN]

    def limited(path: Path, text: str, **more: str) -> int:
        if refusals:
            raise OSError(refusals.pop(), "tried too often")
        return write(path, text, **more)

    monkeypatch.setattr(Path, "write_text", limited)
    processes.lower_priority(7)
    assert written == ["/proc/self/autogroup 7\n"]


@pytest.mark.parametrize("refusal", [EAGAIN, EACCES])
def test_a_session_whose_niceness_cannot_be_set_is_left_as_it_is(
    written: list[str], monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(refusal, "no")

    monkeypatch.setattr(Path, "write_text", refuse)
    processes.lower_priority(7)
    assert written == []


def test_a_process_that_cannot_take_its_priority_back_does_not_give_way(
    written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a user without the right, then nothing is lowered: the process would keep the locks of stores for long."""
    lowered: list[int] = []
    monkeypatch.setattr(os, "nice", lowered.append)
    monkeypatch.setattr(processes, "can_take_priority_back", lambda: False)
    processes.lower_priority(7)
    processes.lower_priority_now(7)
    assert (lowered, written) == ([], [])


@pytest.mark.parametrize("queue", ["maintenance", "extraction"])
def test_a_worker_of_jobs_gives_way_only_once_it_is_loaded(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a machine without an idle processor, then the worker is imported before it gives way."""
    order: list[str] = []

    class Worker:
        def __init__(self, **_: object) -> None:
            order.append("made")

        def start(self) -> None:
            order.append("started")

    monkeypatch.setattr("worker.app.app.Worker", Worker)
    monkeypatch.setattr(running, "lower_priority", lambda _: order.append("gives way"))
    for effect in ("write_private_by_default", "raise_file_limit", "pass_on", "end_with_supervisor"):
        monkeypatch.setattr(running, effect, lambda *_: None)
    monkeypatch.setenv("REVERIE_PROCESS", "w")
    running.run_worker(load_settings(), [queue], 1)
    assert order == ["made", "gives way", "started"]
