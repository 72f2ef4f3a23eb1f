"""Memories carried from one store to another as one document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memory.lifecycle.importing import import_memories
from memory.memories.memories import export_memories, memory_stats
from reverie.clock import now_micros
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Rejected
from reverie.memories.transfer import read_export
from storage.stores import Stores
from support.knowing import Knowing

HOUR = 3_600_000_000


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """The stores of an empty data folder."""
    made = Stores(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def ana(stores: Stores) -> Knowing:
    """What ana knows."""
    return Knowing(stores)


def test_an_export_comes_back_as_it_was(ana: Knowing, stores: Stores) -> None:
    """Given memories, facts and notes, when they are exported and imported elsewhere, twice, then all are there with
    their ids, times and counts, once."""
    ana.remember("one", tags=["x"], session="s", at=now_micros() - HOUR)
    counted = ana.remember("two", tier="account", kind="preference", metadata={"a": [1]})
    with stores.workspace(ACCOUNT_STORE).writing() as tx:
        tx.for_agent("ana").memories.change(counted.row_id, now=now_micros(), access_count=7, accessed_at=now_micros())
    ana.set_fact("a", "b", "old")
    ana.set_fact("a", "b", "new")
    ana.note("a note", user="kate")
    document = export_memories(ana.memories)
    assert [memory.content for memory in document.memories][:2] == ["one", "two"]
    assert len(document.memories) == 4
    kate = Knowing(stores, agent="kate", workspace="hers")
    for added in (4, 0):
        done, _ = import_memories(kate.memories, document, now=now_micros())
        assert (done.added, done.present) == (added, 4 - added)
    mine, hers = ({m.id: m for m in export_memories(who.memories).memories} for who in (ana, kate))
    assert set(mine) == set(hers)
    for memory_id, memory in mine.items():
        for field in set(memory.__struct_fields__) - {"agent"}:
            assert getattr(hers[memory_id], field) == getattr(memory, field), field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"importance": 2.0}, "importance"),
        ({"content": " "}, "content"),
        ({"tags": ["A"]}, "tags"),
        ({"access_count": -1}, "access_count"),
        ({"tier": "account"}, "tier"),
        ({"superseded_by": "x"}, "superseded_by"),
        ({"category": "a"}, "key"),
    ],
)
def test_an_import_at_fault_stores_nothing(ana: Knowing, stores: Stores, change: dict[str, Any], field: str) -> None:
    """Given a document with one memory at fault, then the error names it, and none of the others is stored."""
    ana.remember("fine")
    ana.remember("to be spoilt")
    document = msgspec.to_builtins(export_memories(ana.memories))
    document["memories"][1] |= change
    kate = Knowing(stores, agent="kate")
    with pytest.raises(Rejected, match=r"memory 1 .*nothing was imported") as caught:
        import_memories(kate.memories, read_export(msgspec.json.encode(document)), now=now_micros())
    assert caught.value.field == field
    assert memory_stats(kate.memories).memories == 0


@pytest.mark.parametrize(
    ("document", "expected_error"),
    [
        (b"", "not an export of memories"),
        (b"\xff\xfe", "not an export of memories"),
        (b"[]", "not an export of memories"),
        (b'{"memories": []}', "not an export of memories: schema_version is required"),
        (b'{"schema_version": 2, "memories": "?"}', "newer than 1: upgrade"),
        (b'{"schema_version": 1, "memories": [{"id": "x"}]}', r"export of memories: memories\[0\].agent is required"),
        (
            b'{"schema_version": 1, "memories": [{"id": "x", "agent": "ana", "tier": "moon"}]}',
            r"memories\[0\].tier is 'moon'; it must be one of conversation, channel, workspace, account",
        ),
    ],
)
def test_what_is_no_export_is_refused(document: bytes, expected_error: str) -> None:
    """Given something else than an export, or a newer one, then the error says so."""
    with pytest.raises(Rejected, match=expected_error):
        read_export(document)
