"""`reverie dead-letters` says what became of what it replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.application import Invocation
from reverie.clock import from_micros
from reverie.errors import Conflict
from reverie.pipeline.calls import DeadLetter, DeadLetterList, ListDeadLetters, ReplayDeadLetter
from support.command_line import CommandLine, Ended


def letter(number: int, **fields: Any) -> DeadLetter:
    """A dead letter of ana's."""
    known = {
        "agent": "ana",
        "stage": "chunk",
        "item_id": "i",
        "error_type": "E",
        "error": "it is broken",
        "attempts": 3,
    }
    return DeadLetter(id=number, created_at=from_micros(0), **{**known, **fields})


def replay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str, answers: dict[int, Any]
) -> Ended:
    """Run `dead-letters replay` against these answers to the replay of each letter."""

    def send(_: Invocation, call: Any) -> Any:
        if isinstance(call, ListDeadLetters):
            return DeadLetterList(dead_letters=[letter(number) for number in answers][call.offset :])
        assert isinstance(call, ReplayDeadLetter)
        answer = answers[call.letter_id]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Invocation, "send", send)
    return CommandLine(monkeypatch, capsys, "--agent", "ana")("dead-letters", "replay", *arguments)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_one_that_fails_again_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a letter that fails again at once, then the command fails, and tells its new error."""
    ended = replay(monkeypatch, capsys, "7", answers={7: letter(7, replay="failed")})
    assert (ended.code, ended.out) == (1, "1 failed.\n")
    assert "dead letter 7: it failed again: it is broken" in ended.err


def test_of_all_letters_those_that_cannot_be_replayed_do_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given three letters of which one cannot be replayed, then the others are, and the reason is told."""
    answers = {
        1: letter(1, replay="queued"),
        2: Conflict("the payload cannot be read"),
        3: letter(3, replay="succeeded"),
    }
    ended = replay(monkeypatch, capsys, "--all", answers=answers)
    assert (ended.code, ended.out) == (1, "1 queued, 1 succeeded.\n")
    assert "dead letter 2: the payload cannot be read" in ended.err
    assert replay(monkeypatch, capsys, "--all", "--json", answers={1: answers[1]}).json == {
        "queued": [1], "succeeded": [], "failed": [], "refused": {}
    }  # fmt: skip
