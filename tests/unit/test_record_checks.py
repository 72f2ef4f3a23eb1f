"""An import takes what an export holds, however large it is, and nothing that no call could have stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from reverie import Rejected, Reverie, contract
from reverie.calls import route_of
from reverie.memories.calls import check_memory, check_note
from reverie.memories.types import MemoryDraft, NoteDraft
from reverie.scheduling.types import Interval, ScheduleDraft, check_schedule
from reverie.trust.exports import RECORD_TYPES, ExportedRecord, check_record, decode_record
from server.app import endpoints
from support.exports import ALL, Make, installation
from support.fuzzing.files import part_of_type, sample
from support.stages import drain

NEVER: Final = {"type": "once", "at": "2026-01-01T00:00:00"}
# By the part of a record: values that no call would have stored, by field.
IMPOSSIBLE: Final[Mapping[str, Mapping[str, list[Any]]]] = {
    "channels": {"id": ["\x01", "x" * 257], "description": ["x" * 5_000]},
    "sessions": {
        "ref_code": ["", "\x01"], "users": [[""], ["\x01"]], "provider": [""], "chat_id": ["\n"],
        "last_sequence": [-1, 2**53], "summary_upper_sequence": [-1], "extracted_up_to": [-1],
        "metadata": [{"a": "x" * 70_000}],
    },
    "messages": {"sequence": [0, -1, 2**53], "token_count": [-1]},
    "memories": {"note_id": ["", "\x01", "x" * 257], "source_message": [""], "access_count": [-1]},
    "scratchpad_lists": {"items": [[""], [1], ["x" * 241], ["x"] * 33]},
    "scratchpads": {"key": ["", "x" * 129, "\x01"], "value": ["", "no JSON", "NaN", '"' + "x" * 70_000 + '"']},
    "items": {"ttl_seconds": [0, -1, 1e12], "key": ["x" * 513], "index_fields": [[""]]},
    "schedules": {
        "goal": ["", " "], "timeout_seconds": [0, -1, 86_401], "recall_limit": [-1, 51], "name": ["", "\x01"],
        "cadence": [
            NEVER, {"type": "once", "at": "9999-12-31T23:59:59-14:00"}, {"type": "cron", "expression": "garbage"},
            {"type": "cron", "expression": "* * * * *", "tz": "../x"}, {"type": "interval", "seconds": 0},
            {"type": "interval", "seconds": 2**62}, {"type": "interval", "seconds": 60, "anchor": NEVER["at"]},
        ],
        "executor": [
            {"type": "task", "task": "reverie.ingest_messages", "queue": "q"}, {"type": "webhook", "url": ""},
            {"type": "task", "task": "a", "queue": "ingest"},
        ],
        "consecutive_failures": [-1], "retries": [-1],
    },
    "runs": {"attempt": [-1], "turn_count": [-1], "coalesced": [-1]},
    "reminders": {"message": ["", " ", "x" * 17_000], "attempts": [-1]},
    "notifications": {"attempts": [-1], "schedule_name": [""], "run": [""]},
}  # fmt: skip


def record(part: str, **changed: Any) -> ExportedRecord:
    """Return a record of a part, with fields changed."""
    kind = next(kind for kind in RECORD_TYPES if part_of_type(kind) == part)
    extra = {"items": {"namespace": ["n"]}, "scratchpads": {"value": '"thin"'}}.get(part, {})
    return decode_record(msgspec.json.encode({**sample(kind), **extra, **changed}))


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        (part, field, value)
        for part, fields in IMPOSSIBLE.items()
        for field, values in fields.items()
        for value in values
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_a_record_that_no_call_would_have_stored_is_refused(part: str, field: str, value: Any) -> None:
    """Given a record with a value that its call refuses, then an import refuses it, too."""
    check_record(record(part))
    with pytest.raises(Rejected):
        check_record(record(part, **{field: value}))


@pytest.fixture
def ana(make_runtime: Make, tmp_path: Path) -> Iterator[tuple[Any, Reverie]]:
    with installation(make_runtime, tmp_path / "largest") as both:
        yield both


def test_the_largest_that_is_taken_in_can_be_imported(ana: tuple[Any, Reverie], tmp_path: Path) -> None:
    """Given messages, a run and an item as large as they may be, then each record of their export is accepted."""
    runtime, client = ana
    client.ingest("s", {"role": "user", "content": "x", "original": "y" * (contract.MAX_ORIGINAL_BYTES - 9)})
    client.ingest("s", {"role": "user", "content": "first", "sequence": 2**52})
    client.ingest("s", [{"role": "user", "content": "behind it"}, {"role": "user", "content": "the last"}])
    drain(runtime)
    client.schedules.add("read the news", every=3_600, task="agent.news", queue="news", id="news")
    run = client.schedules.run_now("news").id
    client.runs.complete(run, "x", cost=1e300)
    client.admin.export_file(tmp_path / "all.jsonl")
    assert [message.content for message in client.sessions.newest_messages("s", 2)] == ["behind it", "the last"]

    client.admin.workspaces.delete()
    assert client.admin.import_file(tmp_path / "all.jsonl", **ALL).added["messages"] == 4


def test_a_sequence_leaves_room_for_those_behind_it(ana: tuple[Any, Reverie]) -> None:
    """Given a sequence so large that later ones could not be told apart in JSON, then it is refused."""
    with pytest.raises(Rejected, match="sequence"):
        ana[1].ingest("s", {"role": "user", "content": "x", "sequence": 2**52 + 1})


def literals() -> Iterator[tuple[type, str, str]]:
    """Yield the calls that read one thing by its id, the field of the id, and an id that has the path of another."""
    routes = [(endpoint.kind, route_of(endpoint.kind)) for endpoint in endpoints()]
    for kind, route in routes:
        *parts, last = route.path.split("/")
        for _, other in routes:
            *others, literal = other.path.split("/")
            if (route.method, parts) == (other.method, others) and last[0] == "{" != literal[0]:
                yield kind, last[1:-1], literal


def test_no_id_has_the_path_of_another_call() -> None:
    """Given an id that would be read as the path of another call, then nothing of the caller's may have it."""
    drafts: dict[str, Callable[[str], object] | None] = {
        "GetMemory": lambda name: (
            check_memory(MemoryDraft(content="x", id=name), now=0),
            check_note(NoteDraft(content="x", note_id=name)),
        ),
        "GetSchedule": lambda name: check_schedule(ScheduleDraft(goal="x", cadence=Interval(60), id=name)),
        "GetCurationEntry": None,  # Reverie's own ids
    }
    found = list(literals())
    assert {kind.__name__ for kind, _, _ in found} == set(drafts)
    for kind, _, literal in found:
        if (draft := drafts[kind.__name__]) is not None:
            with pytest.raises(Rejected, match="reserved by the path"):
                draft(literal)


@pytest.mark.parametrize("value", [{"a": {1: 2}}, {"a": [{None: 1}]}, {"a": {"b": {(1, 2): 3}}}])
def test_json_with_a_key_that_is_no_text_is_refused(value: dict[str, Any], ana: tuple[Any, Reverie]) -> None:
    """Given keys that JSON does not have, then they are refused and not turned into texts, whatever holds them."""
    client = ana[1]
    for store in (
        lambda: client.ingest("s", {"role": "user", "content": "x", "metadata": value}),
        lambda: client.ingest("s", {"role": "user", "content": "x", "tool_calls": [value]}),
        lambda: client.remember("x", metadata=value),
        lambda: client.items.put(["n"], "k", value),
        lambda: client.scratchpads.write_key("s", "k", value),
        lambda: client.sessions.start("s", metadata=value),
        lambda: client.files.add("uri", "x", metadata=value),
    ):
        with pytest.raises(Rejected, match="has a key that is not a text"):
            store()
