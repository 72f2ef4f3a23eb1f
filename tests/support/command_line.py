"""Runs the command line within the test's process."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, NamedTuple

import pytest
import structlog

import cli


def without_note(err: str) -> str:
    """Return standard error without the line by which a command says that no Reverie runs on its data folder."""
    return re.sub(
        r"reverie: no Reverie runs on .+: (its (files are|database is) changed|this is read from)[^\n]+\n", "", err
    )


class Ended(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def err_without_note(self) -> str:
        """Return standard error without the line by which a command says that no Reverie runs."""
        return without_note(self.err)

    @property
    def json(self) -> Any:
        """Return the printed JSON, decoded."""
        return json.loads(self.out)


class CommandLine:
    """Runs `reverie`; each call's arguments follow the common ones, `first`. Settings are set in the environment."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *first: str, **settings: object
    ) -> None:
        for name, value in settings.items():
            monkeypatch.setenv(f"REVERIE_{name.upper()}", str(value))
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self._first = first

    def __call__(self, *arguments: str) -> Ended:
        """Run a command and return its result."""
        _undo_captured_logs()
        self._monkeypatch.setattr(sys, "argv", ["reverie", *self._first, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = self._capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)


def _undo_captured_logs() -> None:
    """Have the command configure its log as in a new process.

    After `capture_logs` of an earlier test, structlog counts as configured, and logs to standard output.
    """
    config = structlog.get_config()
    captures = any(isinstance(one, structlog.testing.LogCapture) for one in config["processors"])
    if not captures and getattr(config["logger_factory"], "_file", sys.stderr) is None:
        structlog.reset_defaults()
