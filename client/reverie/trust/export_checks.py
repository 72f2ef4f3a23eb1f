"""Check the records of an export before anything is stored: in the client, and again in the server."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from reverie import contract
from reverie.checks import check_agent, check_json, check_label, check_payload, check_text, check_time, check_workspace
from reverie.clock import to_micros
from reverie.contract import FilePayload, MessagePayload
from reverie.decoding import convert
from reverie.errors import Rejected
from reverie.items import check_index, check_item_key, check_item_value, check_namespace
from reverie.memories.calls import check_memory
from reverie.memories.types import MemoryDraft
from reverie.scheduling.types import ScheduleDraft
from reverie.trust import export_types as types

_LABELS: Final = frozenset(
    {"id", "session", "user", "channel", "owner_user_id", "recipient", "schedule", "item_id", "found"}
)
_TEXT_BYTES: Final = contract.MAX_CONTENT_BYTES


def check_record(record: types.ExportedRecord) -> None:
    """Raise `Rejected`, naming the field, unless a record can be stored as it is."""
    check_workspace(record.workspace)
    check_agent(record.agent)
    for field in record.__struct_fields__:
        value = getattr(record, field)
        if isinstance(value, datetime):
            check_time(field, value)
        elif field in _LABELS:
            check_label(field, value)
        elif isinstance(value, str):
            check_text(field, value, contract.MAX_FILE_BYTES if field == "content" else _TEXT_BYTES)
        elif isinstance(value, (list, dict)) and not isinstance(record, types.ExportedItem):
            check_json(field, value, _TEXT_BYTES)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and not -(2**53) <= value <= 2**53:
            raise Rejected(f"{field} is {value}, which is out of range", field=field)
    match record:
        case types.ExportedMessage():
            _check_message(record)
        case types.ExportedFile():
            _check_file(record)
        case types.ExportedMemory():
            _check_memory(record)
        case types.ExportedItem():
            check_namespace("namespace", record.namespace)
            check_item_key("key", record.key)
            check_item_value("value", record.value)
            check_index("index_fields", record.index_fields or [])
        case types.ExportedSchedule():
            draft = {"goal": record.goal, "cadence": record.cadence, "executor": record.executor}
            convert(draft, ScheduleDraft, name="schedule")


def _check_message(record: types.ExportedMessage) -> None:
    names = [name for name in MessagePayload.__struct_fields__ if name in record.__struct_fields__]
    fields = {name: getattr(record, name) for name in names if name not in ("created_at", "user")}
    check_payload(MessagePayload(**fields, created_at=to_micros(record.created_at), user=record.user))


def _check_file(record: types.ExportedFile) -> None:
    names = [name for name in FilePayload.__struct_fields__ if name in record.__struct_fields__]
    fields = {name: getattr(record, name) for name in names if name != "created_at"}
    check_payload(FilePayload(**fields, created_at=to_micros(record.created_at)))


def _check_memory(record: types.ExportedMemory) -> None:
    # Without its end: a memory that has expired since may be imported. And one that waits for approval.
    unchecked = ("expires_at", "visibility")
    names = [name for name in MemoryDraft.__struct_fields__ if name in record.__struct_fields__]
    draft = MemoryDraft(**{name: getattr(record, name) for name in names if name not in unchecked})
    if record.tags != list(check_memory(draft, now=0).tags):
        raise Rejected("tags must be trimmed, lower case and without duplicates", field="tags")
    if record.access_count < 0:
        raise Rejected("access_count must not be negative", field="access_count")
    named = (record.category is not None, record.key is not None, record.value is not None)
    if any(named) and not all(named):
        raise Rejected("a fact has a category, a key and a value", field="key")


def described(record: types.ExportedRecord) -> str:
    """Return how errors name a record."""
    name = getattr(record, "id", None) or getattr(record, "session", None) or getattr(record, "item_id", "")
    return f"{types.part_of(record)} {name!r} of agent {record.agent!r} in workspace {record.workspace!r}"


def decode_record(line: bytes) -> types.ExportedRecord:
    """Return the record of a line. Raises `Rejected`."""
    try:
        found: types.ExportedRecord = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(f"it is no record of an export: {error}", field="records") from None
    return found


_decoder: Final = msgspec.json.Decoder(types.AnyRecord)
