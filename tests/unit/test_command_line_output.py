"""What people see: ids that are whole on a narrow terminal, and no control characters of others' making."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from cli import output
from reverie.counts import counted, counts_text
from support.command_line import CommandLine

ID = "note-01a1fc71-a11b-769f-8564-d566f7eed5c9"
TEXT = "A house at the sea in which she spends every August with her two sisters and their boat"


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Console:
    """A terminal of 60 columns, whose text is kept."""
    console = Console(width=60, record=True)
    monkeypatch.setattr(output, "console", lambda: console)
    return console


def test_an_id_is_whole_where_the_table_is_wider_than_the_terminal(narrow: Console) -> None:
    """Given rows that do not fit, then each is a line with its id and the text below it, no word of it cut."""
    output.print_table(("id", "tier", "content"), [(ID, "workspace", TEXT), ("m", "workspace", "")], empty="")
    lines = narrow.export_text().splitlines()
    assert lines[2] == f"{ID}  workspace"
    assert " ".join(line.strip() for line in lines[3:-1]) == TEXT
    assert lines[-1].split() == ["m", "workspace"]


def test_cells_that_do_not_fit_into_a_line_are_below_their_headings(narrow: Console) -> None:
    """Given rows that are wider than the terminal without their text, then no cell is broken, and columns are kept."""
    rows = [(ID, "workspace", "long_term", "2026-11-28", TEXT), ("m", "account", "short_term", "2026-11-27", "")]
    output.print_table(("id", "tier", "lifetime", "created", "content"), rows, empty="")
    lines = [line.rstrip() for line in narrow.export_text().splitlines()]
    assert lines[:3] == [f"{'id':{len(ID)}}  tier", "    lifetime    created", "    content"]
    assert lines[3:5] == [f"{ID}  workspace", "    long_term   2026-11-28"]
    assert lines[-2:] == [f"{'m':{len(ID)}}  account", "    short_term  2026-11-27"]


def test_a_sentence_beside_a_label_is_broken_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a terminal of 60 columns, then the lines of a sentence begin below one another; a program gets one line."""
    output.say_beside("warning  Backups  ", TEXT, "", "docs/backup.md")
    assert capsys.readouterr().out == f"warning  Backups  {TEXT}\n{'':18}docs/backup.md\n"
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.say_beside("warning  Backups  ", TEXT, "", "docs/backup.md")
    first, *rest = capsys.readouterr().out.splitlines()
    assert (len(rest), all(len(line) <= 60 for line in (first, *rest))) == (3, True)
    assert " ".join(line[18:] for line in (first, *rest)) == f"{TEXT} docs/backup.md"
    assert {line[:18] for line in rest} == {" " * 18}


def test_a_table_without_a_long_text_folds_its_cells(narrow: Console) -> None:
    """Given a table whose last column is short, then its cells are folded, and none of their characters is lost."""
    output.print_table(("worker", "queues", "tasks"), [("w", "ab,cd" * 20, 1)], empty="")
    folded = [word for word in narrow.export_text().split() if "," in word]
    assert len(folded) > 1
    assert "".join(folded) == "ab,cd" * 20


def test_what_is_empty_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Given no rows, then the words for it are there and no header."""
    output.print_table(("id",), [], empty="Nothing yet.")
    assert capsys.readouterr().out == "Nothing yet.\n"


@pytest.mark.parametrize("sign", ["\x1b[2J", "\r", "\x07", "\x9b31m", "\x7f", "\u202e", "\u2028"])
def test_control_characters_do_not_reach_the_terminal(
    narrow: Console, sign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a text with a control character, then it is shown and does nothing, in a line as in a table."""
    output.say(f"before{sign}after")
    output.print_table(("id", "content"), [("m", f"before{sign}after")], empty="")
    shown = capsys.readouterr().out
    shown += narrow.export_text() if not shown.count("m  ") else ""
    assert sign[0] not in shown
    assert shown.count("before") == shown.count("after") == 2


@pytest.mark.parametrize("sign", ["\x1b[2J", "\r", "\x9b31m", "\x7f", "\u202e", "\u2028"])
def test_json_and_errors_have_no_control_characters(
    sign: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a text with a control character, then JSON escapes it, and the line of an error shows it."""
    output.print_json({"text": f"a{sign}b"})
    out = capsys.readouterr().out
    assert sign[0] not in out
    assert json.loads(out) == {"text": f"a{sign}b"}
    ended = CommandLine(monkeypatch, capsys)("db", "accept", f"a{sign}b", "--yes")
    assert ended.code != 0
    assert sign[0] not in ended.err


def test_a_text_with_line_breaks_is_no_row_and_no_field(capsys: pytest.CaptureFixture[str]) -> None:
    """Given stored texts that continue with what looks like a row or a field, then they stay one cell and one field."""
    output.print_table(("actor", "action"), [("x\nroot  grant", "read\tall"), ("y", "z")], empty="")
    assert len(capsys.readouterr().out.splitlines()) == 3
    output.print_fields({"content": "a\noutcome: ok", "outcome": "refused"})
    assert capsys.readouterr().out.splitlines() == ["content: a", "         outcome: ok", "outcome: refused"]


@pytest.mark.parametrize(
    ("number", "what", "expected"),
    [
        (1, "memory", "1 memory"),
        (0, "memory", "0 memories"),
        (2_000, "older message", "2,000 older messages"),
        (2, "query", "2 queries"),
        (2, "batch", "2 batches"),
        (2, "day", "2 days"),
    ],
)
def test_a_number_is_told_with_its_noun(number: int, what: str, expected: str) -> None:
    """Given a number and a noun, then one of it is told in the singular, and any other number in the plural."""
    assert counted(number, what) == expected


def test_counts_of_one_are_told_in_the_singular() -> None:
    """Given counts under names in the plural, then those of 1 are in the singular, and those of 0 are left out."""
    counts = {"commits": 1, "recall_events_dropped": 1, "pages_freed": 2_000, "summaries": 1, "pruned": 0}
    assert counts_text(counts) == "1 commit, 1 recall event dropped, 2,000 pages freed, 1 summary"
    assert counts_text({"left_out_too_few_days": 1}) == "1 left out too few days"
    assert counts_text({"made_of_messages": 1, "batches": 1, "left": 1}) == "1 made of messages, 1 batch, 1 left"
