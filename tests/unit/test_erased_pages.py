"""Nothing erased stays where SQLite keeps more than rows: in unused bytes of pages, and within full-text indexes."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pysqlite3
import pytest

from memory.lifecycle.erasing import continue_erasures
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.erasures import read_erasure, request_erasure
from reverie import Reverie
from storage.engine import Database
from storage.verify import verify
from support.byte_search import places_of
from support.stages import drain
from worker.runtime import Runtime


@pytest.mark.sqlite("searches the bytes of its files")
def test_no_word_stays_between_the_pages_of_a_full_text_index(runtime: Runtime, ana: Reverie) -> None:
    """Given many rare words of two users, when one of them is erased, then no file has any, and the index is sound."""
    words, secrets = random.Random(7), list[str]()
    for batch in range(12):
        for user in ("kate", "lif"):
            said = [f"{words.getrandbits(160):040x}" for _ in range(25)]
            messages = [{"role": "user", "content": f"note {batch}: {word} " * words.randint(1, 6)} for word in said]
            ana.ingest(f"{user}-{batch % 3}", messages, user=user)
            secrets += said if user == "kate" else []
        drain(runtime)
    scope = Scope("user", "kate", None, None)
    erasure = request_erasure(runtime.stores, runtime.settings.data, scope, requested_by="tester", now=runtime.now())
    continue_erasures(runtime.erasure_services)
    receipt = read_erasure(runtime.stores, erasure.id).receipt
    assert receipt is not None
    assert receipt.leftovers == {}
    assert [word for word in secrets if places_of(runtime.settings.data, word)] == []
    assert verify(runtime.stores.workspace("default")).wrong == []
    assert len(ana.recall("note", mode="keyword", user="lif", limit=50)) == 50


SPLIT_ROWS = 600


@pytest.fixture
def split(tmp_path: Path) -> Iterator[Any]:
    """A file in which half of the rows were deleted, after they had grown and so moved to other pages."""
    connection = pysqlite3.connect(tmp_path / "memory.db", isolation_level=None)
    for pragma in ("auto_vacuum = INCREMENTAL", "journal_mode = WAL", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT UNIQUE, vector BLOB)")
    numbers = random.Random(3)
    for row in range(SPLIT_ROWS):
        text = f"{'secret' if row % 2 else 'public'} {numbers.getrandbits(128):032x}"
        connection.execute("INSERT INTO texts (text) VALUES (?)", [text])
    for row in range(SPLIT_ROWS):
        connection.execute("UPDATE texts SET vector = ? WHERE id = ?", [numbers.randbytes(700), row + 1])
    connection.execute("DELETE FROM texts WHERE text LIKE 'secret%'")
    connection.execute("PRAGMA incremental_vacuum").fetchall()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    yield connection
    connection.close()


def test_copies_of_deleted_rows_are_overwritten_while_others_read_and_write(split: Any, tmp_path: Path) -> None:
    """Given copies that split pages have left, when they are overwritten, then only what was never read has changed."""
    path = tmp_path / "memory.db"
    assert b"secret" in path.read_bytes(), "without a copy this test shows nothing"
    rows = split.execute("SELECT * FROM texts ORDER BY id").fetchall()
    reader = pysqlite3.connect(path, isolation_level=None)
    cached = reader.execute("SELECT * FROM texts ORDER BY id").fetchall()
    database = Database(path)
    database.overwrite_unused()
    assert b"secret" not in path.read_bytes()
    assert reader.execute("SELECT * FROM texts ORDER BY id").fetchall() == cached == rows
    reader.execute("UPDATE texts SET vector = NULL")  # by a connection that has read the pages before
    assert split.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    split.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"secret" not in path.read_bytes()
    reader.close()
    database.close()


def test_a_file_whose_log_is_read_all_the_time_is_left_for_later(split: Any, tmp_path: Path) -> None:
    """Given a reader that keeps the log in use, then nothing is written, and the error says what it was."""
    path = tmp_path / "memory.db"
    reader = pysqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM texts").fetchone()
    split.execute("DELETE FROM texts WHERE id = 1")
    before = path.read_bytes()
    code = (
        "import sys; from storage import unused_bytes as one; one._TRIES = 2; one.overwrite_unused_bytes(sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, f"the log of {path} is in use" in done.stderr) == (1, True)
    assert path.read_bytes() == before
    reader.close()
