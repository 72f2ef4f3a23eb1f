"""The story of some days is told with tiny inputs; how good its figures are is not judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.options import UnusableData
from benchmarks.story.world import opened
from reverie.memories.types import MemoryDraft
from support.forks import run_module
from support.postgres import TestServer

ROOT = Path(__file__).resolve().parents[2]
SAID = (
    "I keep bees on the roof of the library.",
    "How many hives are there?",
    "Four, and the fifth comes in May.",
    "Is honey what they are kept for?",
    "No, for the orchard behind it.",
    "That orchard smells of cider in October.",
)
# What `--quick` simulates, with eight questions a day.
DAYS = 6
NOTED = ("Bees live on the roof of the library.", "The orchard is the reason for the bees.")


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    """A conversation of three sessions in the form of LoCoMo, with what an agent noted of the first."""
    talk: dict[str, Any] = {"speaker_a": "Iris", "speaker_b": "Tom"}
    for number in (1, 2, 3):
        talk[f"session_{number}_date_time"] = f"9:00 am on {number} June, 2025"
        turns = [("Iris", SAID[2 * number - 2]), ("Tom", SAID[2 * number - 1])]
        talk[f"session_{number}"] = [
            {"speaker": speaker, "text": text, "dia_id": f"D{number}:{place}"}
            for place, (speaker, text) in enumerate(turns, 1)
        ]
    questions = [
        {"question": "What is kept on the roof?", "category": 1, "evidence": ["D1:1"]},
        {"question": "How many hives are there?", "category": 1, "evidence": ["D2:1"]},
        {"question": "Where are the bees?", "category": 1, "evidence": ["D1:1"]},
        {"question": "What smells in October?", "category": 1, "evidence": ["D3:2"]},
    ]
    noted = {"session_1_observation": {"Iris": [[text, "D1:1"] for text in NOTED]}}
    path = tmp_path / "talk.json"
    path.write_text(
        json.dumps([{"sample_id": "iris", "conversation": talk, "qa": questions, "observation": noted}]),
        encoding="utf-8",
    )
    return path


def tell(folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """Have the story told; returns what was said and the result."""
    output = folder / "story.json"
    words = ["--quick", "--embedding-provider", "hash", "--output", str(output), "--page", str(folder / "story.md")]
    environment = {**os.environ, "REVERIE_CONFIG": os.devnull}
    if "TESTS_ON_POSTGRES" in os.environ:  # where the stores of the process are replaced when it starts
        command = [sys.executable, "-m", "benchmarks.story", *words, *options]
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    else:
        ran = run_module("benchmarks.story", *words, *options, environment=environment, output=folder, folder=ROOT)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, json.loads(output.read_text(encoding="utf-8"))


def test_days_are_lived_and_taken_back(conversation: Path, tmp_path: Path) -> None:
    """Given a conversation, when days are lived, then jobs worked on it, and undone it is as if they never had."""
    _, result = tell(tmp_path, "--locomo", str(conversation))
    figures = result["figures"]
    assert (figures["messages"], figures["questions_asked_during_the_month"]) == (6, 8 * DAYS)
    assert figures["memories_at_the_end"] > 0
    assert figures["done_dream"] > 0
    assert figures["done_close"] == 3
    assert figures["undone"] > 3
    assert figures["rows_that_differ_after_undoing_all"] == 0
    assert (figures["unseen_questions_after"], figures["asked_during_questions_after"]) == (2, 2)
    for which in ("unseen", "asked_during"):
        for when in ("before", "after"):
            # One turn of evidence per question: in the context, or not.
            assert figures[f"{which}_context_any_at_500_{when}"] in (50, 100)
            assert figures[f"{which}_context_share_at_500_{when}"] == figures[f"{which}_context_any_at_500_{when}"]

    page = (tmp_path / "story.md").read_text("utf-8")
    assert "| context any at 500 tokens, questions never asked in the month | " in page
    for text in (*SAID, *NOTED):
        assert text not in page, "nothing of a data set may be written down"


def test_without_a_data_set_our_own_conversation_is_lived(tmp_path: Path) -> None:
    """Given no file, when the story is told, then it says so and lives the demo's."""
    output, result = tell(tmp_path)
    assert "no --locomo FILE" in output
    assert result["figures"]["messages"] == 40
    assert "no marked answers" in (tmp_path / "story.md").read_text("utf-8")


def test_a_data_set_that_cannot_be_used_is_said_before_anything_is_lived(tmp_path: Path) -> None:
    """Given a file that is not there, or another form of file, then one line says so and nothing is written."""
    other = tmp_path / "other.json"
    other.write_text('{"a": 1}', encoding="utf-8")
    for path, expected_error in ((tmp_path / "nowhere.json", "there is no file"), (other, "has not the form of")):
        options = ("--embedding-provider", "hash", "--locomo", str(path), "--output", str(tmp_path / "story.json"))
        ran = run_module("benchmarks.story", *options, environment=os.environ, output=tmp_path / "output", folder=ROOT)
        assert (ran.returncode, expected_error in ran.stderr) == (1, True), ran.stderr
        assert "Traceback" not in ran.stderr
        assert not (tmp_path / "story.json").exists()


@pytest.mark.sqlite("names a database of its own")
def test_each_world_has_an_empty_database(server: TestServer, empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a database, when two worlds live in it one after the other, then the second knows nothing of the first."""
    monkeypatch.setenv("REVERIE_DATABASE", server.url(empty))
    with opened({"embedding_provider": "hash"}) as world:
        memory = world.remember("iris", MemoryDraft(content=NOTED[0], id="bees"))
    with opened({"embedding_provider": "hash"}) as world:
        assert world.remember("iris", MemoryDraft(content=NOTED[1], id="bees")) == memory
        with pytest.raises(UnusableData, match="not empty"), opened({"embedding_provider": "hash"}):
            pass
        assert [result.text for result in world.recall("iris", "bees").response.results] == [NOTED[1]]
    with server.admin(empty) as connection:
        assert connection.execute("SELECT to_regnamespace('reverie')").fetchone() == (None,)
