"""A person who asks to be erased: on a running stack, under load, with a worker killed, nothing is left on disk.

It is the small form of `python -m benchmarks.erasure`, which does the same with more load and more kills.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from benchmarks.erasure import CANARIES, places
from support.stacks import start_benchmark

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_of_a_user_is_left_on_disk_while_others_write_and_workers_die(tmp_path: Path) -> None:
    """Given words of one user in every field, when that user is erased under load and kill -9, then no file has any."""
    output = tmp_path / "erasure.json"
    path = os.pathsep.join([str(ROOT / "client"), *filter(None, [os.environ.get("PYTHONPATH")])])

    program = start_benchmark(
        "erasure",
        *("--quick", "--output", str(output)),
        environment={**os.environ, "PYTHONPATH": path},
        output=tmp_path / "written",
        folder=ROOT,
    )
    written = program.communicate(400)

    assert program.wait() == 0, written
    result = json.loads(output.read_text(encoding="utf-8"))
    assert [goal["what"] for goal in result["goals"] if not goal["reached"] and goal["unit"] != "s"] == []
    assert result["figures"]["processes_killed"] > 0
    assert result["figures"]["fields_on_disk"] == len(CANARIES)


def test_the_search_finds_a_word_in_each_form(tmp_path: Path) -> None:
    """Given a word in each form that the search is about, then it finds the file and the field."""
    for number, form in enumerate(written_forms(CANARIES["content"])):
        (tmp_path / f"{number}.db").write_bytes(b"\0 before " + form + b" after \0")
    (tmp_path / "other.db").write_bytes(b"quillfeather")

    assert places(tmp_path) == {f"{number}.db": {"content"} for number in range(5)}


def written_forms(word: str) -> list[bytes]:
    """The word in plain text, within JSON, at the end of a word of an index, and in UTF-16."""
    return [
        word.encode(), json.dumps({"x": word}).encode(), word[6:].encode(), word.encode("utf-16-le"),
        word.encode("utf-16-be"),
    ]  # fmt: skip
