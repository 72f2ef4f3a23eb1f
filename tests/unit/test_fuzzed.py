"""Odd payloads, made from a seed: each is refused with a reason or taken, and nothing else happens.

The benchmark `fuzz` sends 100,000 of them to a running stack.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.fuzzed import Fuzzer
from reverie.calls import build, check
from reverie.errors import Rejected
from reverie.pipeline.calls import ReplayDeadLetter
from server.bodies import decode
from support.pipeline import Pipeline
from worker.settings import load_settings


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def test_a_body_is_a_call_or_refused() -> None:
    """Given odd bodies for every call, then each is decoded and checked, or refused as the caller's fault."""
    fuzzer = Fuzzer(seed=11)
    taken = 0
    for number in range(600):
        kind = fuzzer.kinds[number % len(fuzzer.kinds)]
        with contextlib.suppress(Rejected):
            check(decode(fuzzer.body(kind), kind))
            taken += 1
    assert 0 < taken < 600


def test_a_body_with_fields_from_the_path_is_a_call_or_refused() -> None:
    """Given odd arguments, decoded before those of the path are added, then each gives a call or is refused."""
    fuzzer = Fuzzer(seed=15)
    taken = 0
    for number in range(300):
        kind = fuzzer.kinds[number % len(fuzzer.kinds)]
        with contextlib.suppress(Rejected):
            build(kind, decode(fuzzer.body(kind), dict[str, Any]))
            taken += 1
    assert 0 < taken < 300


def test_half_a_character_where_a_number_belongs_is_refused() -> None:
    """Given a lone surrogate in the text of a number, then the call is refused and the character named."""
    with pytest.raises(Rejected, match=r"U\+DFFF"):
        build(ReplayDeadLetter, {"id": 1, "timeout_seconds": "1\udfff"})


def test_an_item_of_the_inbox_is_stored_or_set_aside(pipe: Pipeline) -> None:
    """Given odd items between two good ones, then none is left in the inbox, and what was stored can be searched."""
    fuzzer = Fuzzer(seed=12)
    pipe.say("a lantern on the quay")
    for number in range(120):
        pipe.smuggle(fuzzer.item(f"odd-{number}", agent="ana"), item_id=f"odd-{number}")
    pipe.say("a lantern in the attic")
    pipe.settle()
    assert pipe.waiting_in_inbox() == 0
    assert pipe.count("messages", "chunked_at IS NULL") == 0
    assert len(pipe.found("lantern")) == 2
    assert {letter.stage for letter in pipe.dead_letters()} <= {"ingest"}


def test_a_query_is_answered_or_refused(pipe: Pipeline) -> None:
    """Given odd queries, with the syntax of full-text search among them, then each has an answer or a reason."""
    fuzzer = Fuzzer(seed=13)
    pipe.say("a lantern on the quay")
    pipe.settle()
    answered = 0
    for mode in ("keyword", "hybrid"):
        for _ in range(60):
            with contextlib.suppress(Rejected):
                pipe.recall(fuzzer.text(), mode=mode)
                answered += 1
    assert answered > 60


def test_a_file_of_settings_is_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given odd files of settings, then each gives settings or an error that is the user's to mend."""
    fuzzer = Fuzzer(seed=14)
    file = tmp_path / "reverie.toml"
    monkeypatch.setenv("REVERIE_CONFIG", str(file))
    refused = 0
    for _ in range(40):
        file.write_bytes(fuzzer.settings())
        try:
            load_settings()
        except Rejected:
            refused += 1
    assert refused > 0
