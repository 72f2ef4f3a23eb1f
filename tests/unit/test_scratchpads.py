"""Scratchpads: working notes of a session, as a list and as keys, each agent's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.sessions import scratchpads as pads
from memory.sessions.lifecycle import SessionEndHooks, archive_session
from reverie.errors import NotFound, Rejected
from storage.verify import verify
from support.pipeline import Pipeline

NOW = 1_750_000_000_000_000
S: dict[str, str] = {"agent": "ana", "session": "s"}
NOTHING = SessionEndHooks(lambda *_: None, lambda *_: None)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def test_a_list_is_replaced_whole_and_cleared(pipe: Pipeline) -> None:
    """Given a list, when written again, then only the new one is there; cleared, it reads as empty."""
    pads.write_items(pipe.store, **S, items=["find flights", "book"], now=NOW)
    pads.write_items(pipe.store, **S, items=["pack"], now=NOW + 1)
    assert pads.read_items(pipe.store, **S).items == ["pack"]
    assert pads.clear_items(pipe.store, **S) == 1
    assert pads.clear_items(pipe.store, **S) == 0
    read = pads.read_items(pipe.store, **S)
    assert (read.items, read.updated_at) == ([], None)


@pytest.mark.parametrize(
    ("items", "expected_error"),
    [
        (["x"] * 33, "33 items; the limit is 32"),
        (["ok", "x" * 241], r"items\[1\] has 241 characters; the limit is 240"),
        ([" "], r"items\[0\] must be a text that is not blank"),
        (["\ud800"], "not valid Unicode"),
        ([7], r"items\[0\] must be a text"),
        ("abc", "items must be a list"),
    ],
)
def test_a_list_beyond_its_limits_is_refused_and_changes_nothing(
    pipe: Pipeline, items: Any, expected_error: str
) -> None:
    """Given a list too long or not of texts, then the error names the item and the old list stays."""
    pads.write_items(pipe.store, **S, items=["x" * 240] * 32, now=NOW)
    with pytest.raises(Rejected, match=expected_error):
        pads.write_items(pipe.store, **S, items=items, now=NOW)
    assert len(pads.read_items(pipe.store, **S).items) == 32


@pytest.mark.parametrize("value", [None, False, 0, "", "text ü\u2028", [1, [2.5]], {"a": {"b": None}}, 2**53, -1.5e-9])
def test_a_key_holds_any_json(pipe: Pipeline, value: Any) -> None:
    """Given any JSON, when written and read, then it is the same, and when it was first written stays."""
    first = pads.write_key(pipe.store, **S, key="state", value="before", now=NOW)
    pads.write_key(pipe.store, **S, key="state", value=value, now=NOW + 5)
    read = pads.read_key(pipe.store, **S, key="state")
    assert read.value == value
    assert type(read.value) is type(value)
    assert read.created_at == first.created_at < read.updated_at


@pytest.mark.parametrize(
    ("key", "value", "expected_error"),
    [
        ("k" * 129, 1, "key has 129 characters; the limit is 128"),
        ("", 1, "key must be a text that is not blank"),
        ("k", "x" * (64 * 1024), "value has 65,538 bytes of JSON; the limit is 65,536"),
        ("k", {"a": [float("nan")]}, "value contains NaN or infinity, which JSON cannot represent"),
        ("k", object(), "value cannot be written as JSON"),
    ],
)
def test_a_key_or_value_beyond_its_limits_is_refused(pipe: Pipeline, key: str, value: Any, expected_error: str) -> None:
    """Given a key or a value that cannot be kept, then the error names it and nothing is there."""
    with pytest.raises(Rejected, match=expected_error):
        pads.write_key(pipe.store, **S, key=key, value=value, now=NOW)
    assert pads.list_keys(pipe.store, **S) == []


def test_a_session_has_at_most_256_keys_and_the_old_ones_can_be_written_on(pipe: Pipeline) -> None:
    """Given 256 keys, then another is refused, one of them can be set, and after a delete there is room."""
    for number in range(256):
        pads.write_key(pipe.store, **S, key=f"k{number:03}", value=number, now=NOW)
    with pytest.raises(Rejected, match="256 keys, the limit"):
        pads.write_key(pipe.store, **S, key="one more", value=1, now=NOW)
    pads.write_key(pipe.store, **S, key="k000", value="again", now=NOW)
    assert pads.delete_keys(pipe.store, **S, key="k001") == 1
    pads.write_key(pipe.store, **S, key="one more", value=1, now=NOW)
    found = [entry.key for entry in pads.list_keys(pipe.store, **S)]
    assert (len(found), found == sorted(found)) == (256, True)
    assert pads.delete_keys(pipe.store, **S) == 256


def test_what_was_never_written_reads_as_empty(pipe: Pipeline) -> None:
    """Given no session, then lists are empty, clearing removes nothing, a key is not found, and no session is made."""
    assert pads.read_items(pipe.store, **S).items == []
    assert pads.list_keys(pipe.store, **S) == []
    assert (pads.clear_items(pipe.store, **S), pads.delete_keys(pipe.store, **S)) == (0, 0)
    with pytest.raises(NotFound, match="session 's' has no key 'k'"):
        pads.read_key(pipe.store, **S, key="k")
    assert pipe.count("sessions") == 0


def test_another_agent_and_another_session_have_their_own(pipe: Pipeline) -> None:
    """Given notes of ana's, then bob's session of the same name and her other one have none of them."""
    pads.write_items(pipe.store, **S, items=["hers"], now=NOW)
    pads.write_key(pipe.store, **S, key="k", value=1, now=NOW)
    for other in ({"agent": "bob", "session": "s"}, {"agent": "ana", "session": "t"}):
        pads.write_key(pipe.store, **other, key="mine", value=2, now=NOW)
        assert pads.read_items(pipe.store, **other).items == []
        assert [entry.key for entry in pads.list_keys(pipe.store, **other)] == ["mine"]
        assert pads.delete_keys(pipe.store, **other) == 1
    assert pads.read_key(pipe.store, **S, key="k").value == 1


def test_notes_are_kept_when_archived_and_gone_when_forgotten(pipe: Pipeline) -> None:
    """Given notes, when the session is archived, then they are there; when it is forgotten, nothing of them is."""
    pads.write_items(pipe.store, **S, items=["done"], now=NOW)
    pads.write_key(pipe.store, **S, key="k", value=1, now=NOW)
    archive_session(pipe.store, NOTHING, agent="ana", session="s", now=NOW, force=True)
    assert pads.read_items(pipe.store, **S).items == ["done"]
    assert pads.read_key(pipe.store, **S, key="k").value == 1
    with pipe.store.writing() as tx:
        assert tx.for_agent("ana").sessions.forget("s", forgotten_at=NOW)
    assert pipe.count("scratchpads") + pipe.count("scratchpad_lists") == 0
    assert verify(pipe.store).wrong == []
