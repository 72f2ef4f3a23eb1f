"""Checks whether any accepted item stands still while `reverie status --check` finds nothing wrong.

Every second the oldest item that waits at each stage of each workspace is looked up. Stages take the oldest first, so
an item that stays the oldest is not worked on.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

import pysqlite3

from benchmarks.harness.stack import Stack
from reverie.errors import ReverieError

STILL_SECONDS: Final = 60.0
_CHECK_SECONDS: Final = 5.0
_SAMPLE_SECONDS: Final = 1.0
_HANGS_SECONDS: Final = 30.0
_STAGES: Final = ("chunk", "embed", "index")
_OLDEST: Final = (
    "SELECT (SELECT min(row_id) FROM messages WHERE chunked_at IS NULL),"
    " (SELECT min(id) FROM chunks WHERE embedded_at IS NULL),"
    " (SELECT min(id) FROM chunks WHERE embedded_at IS NOT NULL AND indexed_at IS NULL)"
)


class Standing:
    """Looks in a thread of its own; use it in a `with` statement.

    `longest` is the longest time in seconds that something stood still; `unnoticed` counts only the time while the
    checks said that nothing was wrong.
    """

    def __init__(self, stack: Stack, workspaces: Sequence[str], tell: Callable[[str], None]) -> None:
        """`tell` gets a line whenever the answer of the check changes."""
        self.longest = self.unnoticed = 0.0
        self.checks = self.checks_failed = self.checks_hanging = 0
        self.cases: list[str] = []
        self._stack, self._workspaces, self._tell = stack, workspaces, tell
        self._oldest: dict[str, tuple[float, float]] = {}  # by workspace and stage: the oldest item, and since when
        self._code: int | None = None
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="standing")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._halt.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._halt.is_set():
            began, before, output = time.monotonic(), dict(self._oldest), ""
            with self._stack.command("status", "--check") as check:
                while check.poll() is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        output, _ = check.communicate(timeout=_SAMPLE_SECONDS)
                    self._sample()
                    if time.monotonic() - began > _HANGS_SECONDS:
                        self.checks_hanging += 1
                        check.kill()
            self._judge(check.returncode, output, {place: began - since for place, (_, since) in before.items()})
            while time.monotonic() - began < _CHECK_SECONDS and not self._halt.wait(_SAMPLE_SECONDS):
                self._sample()

    def _judge(self, code: int, output: str, still: dict[str, float]) -> None:
        """Compare the check's result with the stages that stood still when it began, and still do."""
        self.checks += 1
        self.checks_failed += code != 0
        if code != self._code:
            self._code = code
            faults = [line for line in output.splitlines() if line.startswith(("Fault", "Broker    down"))]
            self._tell(f"status --check: exit code {code} {faults}")
        if code == 0:
            now = time.monotonic()
            still = {place: seconds for place, seconds in still.items() if now - self._since(place, now) >= seconds}
            self.unnoticed = max([self.unnoticed, *still.values()])
            self.cases += [f"{place}: {seconds:.0f} s" for place, seconds in still.items() if seconds > STILL_SECONDS]

    def _since(self, place: str, now: float) -> float:
        return self._oldest.get(place, (0.0, now))[1]

    def _sample(self) -> None:
        now = time.monotonic()
        for workspace in self._workspaces:
            with contextlib.suppress(pysqlite3.Error), self._stack.watch(workspace) as watch:
                for stage, item in zip(_STAGES, (watch.rows(_OLDEST) or [(None,) * 3])[0], strict=True):
                    self._note(f"{workspace} {stage}", item, now)
            with contextlib.suppress(ReverieError):
                inbox = self._stack.inbox().stats(workspace)
                self._note(f"{workspace} ingest", now - inbox.oldest_age_seconds if inbox.size else None, now)
        self.longest = max([self.longest, *(now - since for _, since in self._oldest.values())])

    def _note(self, place: str, item: float | None, now: float) -> None:
        if item is None:
            self._oldest.pop(place, None)
        elif place not in self._oldest or abs(item - self._oldest[place][0]) >= 1:
            self._oldest[place] = item, now
