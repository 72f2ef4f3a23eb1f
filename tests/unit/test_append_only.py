"""Gaps in append-only files are removed, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.supervision.append_only import close_gaps, main

NAME = "appendonly.aof.1.incr.aof"


def command(*words: bytes) -> bytes:
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)])


ONE = command(b"SET", b"a", b"1")
TWO = command(b"SET", b"b", b"2")
BINARY = command(b"SET", b"c", b"\0\0 \n\0 \r\n\0")
GAP = b"\0" * 349
BEGIN, END = command(b"MULTI"), command(b"EXEC")


def repaired(folder: Path, content: bytes) -> bytes:
    path = folder / NAME
    path.write_bytes(content)
    removed = close_gaps(folder)
    assert removed == len(content) - len(path.read_bytes())
    return path.read_bytes()


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (b"", b""),
        (ONE + TWO, ONE + TWO),
        (ONE + BINARY + TWO, ONE + BINARY + TWO),
        (ONE + GAP + TWO, ONE + TWO),
        (GAP + ONE, ONE),
        (ONE + b"\0" + TWO, ONE + TWO),
        (ONE + GAP, ONE),
        (ONE + GAP + TWO + GAP + ONE, ONE + TWO + ONE),
        (BINARY + GAP + BINARY, BINARY + BINARY),
        # A second short write removes too much: the gap follows half a command.
        (ONE + TWO[:-7] + GAP + ONE, ONE + ONE),
        (ONE + TWO[:5] + GAP + ONE, ONE + ONE),
        (ONE + TWO[:-1] + GAP + ONE, ONE + ONE),
        # Half a transaction must not be joined to the next one.
        (ONE + BEGIN + TWO + GAP + BEGIN + ONE + END, ONE + BEGIN + ONE + END),
        (BEGIN + ONE + END + GAP + TWO, BEGIN + ONE + END + TWO),
        # The end of the file may be half a command: the server removes it.
        (ONE + GAP + TWO[:-4], ONE + TWO[:-4]),
        (b"#TS:1\r\n" + ONE + GAP + b"#TS:2\r\n" + TWO, b"#TS:1\r\n" + ONE + b"#TS:2\r\n" + TWO),
    ],
)
def test_what_was_written_is_kept_and_gaps_are_removed(tmp_path: Path, content: bytes, kept: bytes) -> None:
    assert repaired(tmp_path, content) == kept


def test_other_damage_is_left_to_the_server(tmp_path: Path) -> None:
    damaged = ONE + BINARY + b"this is no command, and much longer than a line may be" + TWO
    assert repaired(tmp_path, damaged) == damaged


def test_without_a_folder_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert close_gaps(tmp_path / "nowhere") == 0


def test_a_file_that_cannot_be_replaced_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(ONE + GAP + TWO)
    (tmp_path / f"{NAME}.repaired").mkdir()

    assert close_gaps(tmp_path) == 0
    assert path.read_bytes() == ONE + GAP + TWO


def test_an_operator_is_told_what_was_removed_and_when_the_folder_is_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given the folder of the files, then the bytes removed are printed; without such files, it says what to name."""
    with pytest.raises(SystemExit, match="has no append-only files"):
        main(str(tmp_path))
    (tmp_path / NAME).write_bytes(ONE + GAP + TWO)
    main(str(tmp_path))
    assert capsys.readouterr().out.endswith("349 bytes were removed\n")
    with pytest.raises(SystemExit, match="name the folder"):
        main()
