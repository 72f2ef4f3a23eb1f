"""Records and client structs are converted by field name: nothing is lost, and times and sequences fit their side."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from memory.conversion import convert, set_fields
from reverie.memories.types import Fact, Memory, MemoryChanges, MemoryDraft, Note
from reverie.sessions.types import Message, Session
from storage.memories.records import MemoryRecord, NewMemory
from storage.pipeline.records import MessageRecord
from storage.sessions.records import SessionRecord


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """A record as a store returns it."""

    name: str
    at: int
    until: int | None
    tags: tuple[str, ...]
    sizes: tuple[int, ...] = (1, 2)

    @property
    def label(self) -> str:
        """Return a derived field."""
        return self.name.upper()


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What the client sees of it."""

    name: str
    at: datetime
    until: datetime | None = None
    tags: list[str] = []
    label: str = ""
    extra: int = 0


def test_fields_are_copied_by_name_with_times_and_sequences_converted() -> None:
    """Given a record, then the struct has its fields, datetimes in UTC, lists and derived fields included."""
    shown = convert(Stored("a", 1_000_000, None, ("x",)), Shown)
    assert shown == Shown(name="a", at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), tags=["x"], label="A")
    assert convert(shown, Stored, sizes=(3,)) == Stored("a", 1_000_000, None, ("x",), (3,))


def test_overrides_win_and_a_missing_field_without_a_default_is_an_error() -> None:
    """Given an override, then it is used as it is; given neither source nor default, then it fails at once."""
    assert convert(Stored("a", 0, 5, ()), Shown, name="b", until=None).name == "b"
    with pytest.raises(TypeError):
        convert(object(), Shown)


def test_only_the_fields_that_were_given_are_set() -> None:
    """Given changes, then those left out are not among them, and an explicit null is."""
    assert set_fields(MemoryChanges(importance=0.7, expires_at=None)) == {"importance": 0.7, "expires_at": None}


@pytest.mark.parametrize(
    ("source", "target", "named"),
    [
        # Where a memory comes from, and why it waits or may not hold, is read from other rows.
        (MemoryRecord, Memory, {"provenance", "review"}),
        # No caller names the tenant, which is that of the workspace, nor which call or job made the memory.
        (
            MemoryDraft,
            NewMemory,
            {
                "created_at",
                "confirmed_at",
                "concept_tags",
                "note_id",
                "category",
                "key",
                "value",
                "trace",
                "tenant",
                "made_by",
            },
        ),
        (Memory, NewMemory, {"trace", "tenant", "made_by"}),
        (MemoryRecord, Fact, {"review"}),
        (MemoryRecord, Note, {"user"}),
        (MessageRecord, Message, {"original"}),
        (SessionRecord, Session, {"title", "speakers", "first_said_at", "last_said_at"}),
    ],
)
def test_no_field_is_lost_between_a_record_and_its_struct(source: Any, target: Any, named: set[str]) -> None:
    """Given the pairs that are converted, then the target has no field that the source lacks but those named."""
    fields = {
        kind: set(getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", ()))
        for kind in (source, target)
    }
    assert fields[target] - fields[source] == named


def test_a_container_of_the_declared_type_is_not_copied_and_another_is_converted() -> None:
    """Given a list for a list, then it is the same; given a tuple for a list, then it becomes one."""
    draft = MemoryDraft(content="x", metadata={"a": 1}, tags=["b"])
    new = convert(draft, NewMemory, id="i", created_at=1, lifetime="short_term")
    assert new.metadata is draft.metadata
    assert new.tags == ("b",)
