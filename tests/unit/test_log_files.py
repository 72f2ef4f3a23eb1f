"""Log files are rotated while their processes write, by size and by age, and no line is lost."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker.logs import RotatedLog
from worker.supervision.log_files import LogFiles, LogLimits

NOW = 1_800_000_000.0  # 2027-01-15
DAY = 86_400.0
WRITER = """
import logging, sys, time
from pathlib import Path
from worker.logs import RotatedLog
handler = RotatedLog(Path(sys.argv[1]), owns_outputs=True)
logger = logging.getLogger("writer")
logger.addHandler(handler)
for number in range(int(sys.argv[2])):
    # Once for every 4,000 lines, so that the test rotates while it writes, however seldom it gets the processor.
    while number and number % 4_000 == 0 and not Path(f"{sys.argv[1]}.{number // 4_000}").exists():
        time.sleep(0.001)
    logger.warning("line %d", number)
print("the last words", file=sys.stderr)
"""


def log_files(folder: Path, *, max_bytes: int = 1_000, kept: int = 2, days: float = 30, now: float = NOW) -> LogFiles:
    return LogFiles(folder, LogLimits(days, max_bytes, kept), now=lambda: now)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_large_file_is_renamed_and_the_oldest_goes(tmp_path: Path) -> None:
    """Given a file over the limit each time, then so many older ones are kept, the newest first."""
    log = tmp_path / "a.log"
    files = log_files(tmp_path, days=3_650)
    for text in ("first", "second", "third"):
        log.write_text(text * 300)
        assert files.rotate() == [log]
        assert log.read_text() == ""
        assert log.stat().st_mode & 0o777 == 0o600

    assert names(tmp_path) == ["a.log", "a.log.1", "a.log.2"]
    assert [(tmp_path / name).read_text()[:5] for name in ("a.log.1", "a.log.2")] == ["third", "secon"]


def test_without_rotated_files_the_text_is_dropped(tmp_path: Path) -> None:
    """Given that none is kept, then a large file is emptied."""
    (tmp_path / "a.log").write_text("x" * 2_000)

    log_files(tmp_path, kept=0).rotate()

    assert names(tmp_path) == ["a.log"]


@pytest.mark.parametrize(
    ("line", "is_rotated"),
    [
        ('{"event": "x", "timestamp": "2027-01-14T07:59:59.5Z"}\n', True),
        ('{"event": "x", "timestamp": "2027-01-14T08:00:01Z"}\n', False),
        ("2027-01-13T08:00:00Z [info     ] started\n", True),
    ],
)
def test_a_file_is_rotated_a_day_after_its_first_line(tmp_path: Path, line: str, is_rotated: bool) -> None:
    """Given small files, then those go whose first line is older than a day, whatever was added since."""
    log = tmp_path / "a.log"
    log.write_text(line + '{"timestamp": "2027-01-15T07:59:59Z"}\n')

    assert log_files(tmp_path).rotate() == ([log] if is_rotated else [])


def test_a_file_without_times_is_rotated_a_day_after_it_was_seen(tmp_path: Path) -> None:
    """Given a file of another program, then its age counts from when it was first seen."""
    log, now = tmp_path / "broker.log", [NOW]
    log.write_text("123:M 15 Jan 2027 08:00:00.000 * Ready to accept connections\n")
    files = LogFiles(tmp_path, LogLimits(30, 1_000, 2), now=lambda: now[0])

    assert files.rotate() == []
    now[0] += DAY + 1
    assert files.rotate() == [log]


def test_rotated_files_are_removed_when_they_are_too_old_or_too_many(tmp_path: Path) -> None:
    """Given rotated files, then those beyond the limits go, and no file that is none of them."""
    for name, age_days in (("a.log.1", 1), ("a.log.2", 9), ("a.log.3", 1), ("gone.log.1", 9), ("a.log.bak", 99)):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (NOW, NOW - age_days * DAY))

    log_files(tmp_path, days=8).rotate()

    assert names(tmp_path) == ["a.log.1", "a.log.bak"]


def test_what_cannot_be_renamed_stays(tmp_path: Path) -> None:
    """Given a folder in the way of a rotated file, then the log stays as it is, and others are rotated."""
    (tmp_path / "a.log.1" / "x").mkdir(parents=True)
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("x" * 2_000)

    assert log_files(tmp_path, kept=1).rotate() == [tmp_path / "b.log"]
    assert (tmp_path / "a.log").read_text() == "x" * 2_000


def test_no_line_of_a_writing_process_is_lost(tmp_path: Path) -> None:
    """Given a process that writes on, when its file is rotated again and again, then each line is there once."""
    log, number = tmp_path / "a.log", 20_000
    path = os.pathsep.join(["client", "."])
    with (
        log.open("ab") as output,
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(log), str(number)],
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": path},
            cwd=Path(__file__).resolve().parents[2],
        ) as process,
    ):
        files, rotations = log_files(tmp_path, max_bytes=5_000, kept=60, now=0.0), 0
        while process.poll() is None:
            rotations += len(files.rotate())
        assert process.returncode == 0

    rotated = sorted(tmp_path.glob("a.log.*"), key=lambda path: -int(path.suffix[1:]))
    lines = "".join(path.read_text() for path in [*rotated, log]).splitlines()
    assert rotations > 3
    assert lines == [*(f"line {one}" for one in range(number)), "the last words"]


def test_a_log_that_cannot_be_opened_again_fails_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a folder that is gone, then a line is lost and the caller goes on."""
    monkeypatch.setattr(logging, "raiseExceptions", False)
    folder = tmp_path / "logs"
    folder.mkdir()
    handler = RotatedLog(folder / "a.log", owns_outputs=False)
    (folder / "a.log").unlink()
    folder.rmdir()

    handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "a line", None, None))
    folder.mkdir()
    handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "another line", None, None))
    handler.close()

    assert (folder / "a.log").read_text() == "another line\n"


@pytest.mark.parametrize("name", ["folder", "gone/a.log", "file/a.log"])
def test_a_process_works_without_a_log_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    """Given a log path that can be no file, then a process starts, and says so where its errors go."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    path = tmp_path / name
    code = (
        "from worker.logs import configure_logging\nfrom worker.settings import load_settings\n"
        "configure_logging(load_settings(), process='p')\nprint('works')"
    )
    environ = {**os.environ, "REVERIE_LOG_FILE": str(path), "REVERIE_DATA": str(tmp_path / "data")}
    ended = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert ended.stdout == "works\n"
    assert "log_file_not_opened" in ended.stderr
    assert str(path) in ended.stderr
