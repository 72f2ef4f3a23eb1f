"""The command line, run within the test's own process."""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

import pytest

from worker import cli


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)


class CommandLine:
    """Runs `reverie` with arguments, the same ones first each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *first: str) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self._first = first

    def __call__(self, *arguments: str) -> Ended:
        """Run a command to its end."""
        self._monkeypatch.setattr(sys, "argv", ["reverie", *self._first, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = self._capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)
