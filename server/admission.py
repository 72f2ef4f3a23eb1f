"""Ask before a call stores something whether the quotas have room for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import msgspec

from reverie.calls import Call, Resource
from reverie.contract import ACCOUNT_STORE, Payload
from reverie.errors import NotFound
from reverie.trust.export_calls import amounts_of_records
from reverie.trust.export_types import AnyRecord
from reverie.trust.scopes import Scope
from server.services import Services
from storage.trust.amounts import COUNTED_TABLES, stored_ids

# Calls of these scopes put something where perhaps no workspace was.
CREATING: Final[tuple[Scope, ...]] = ("write", "schedule")


@contextmanager
def admitted(services: Services, call: Call[Any], workspace: str, *, creates: bool) -> Iterator[None]:
    """Hold room for what a call stores in a workspace, empty for none, while it is handled. Raises `QuotaExceeded`.

    `creates` is whether the workspace was not there yet. Messages and files are held room for where they are put into
    the inbox.
    """
    with services.creating(workspace, creates=creates):
        amounts = dict(call.amounts())
        if not amounts or call.changes_stored or "messages" in amounts or not services.quotas.any_set:
            yield
            return
        amounts["bytes"] = len(msgspec.json.encode(call))
        in_account = getattr(call, "tier", None) == "account"
        with services.quotas.admitted(workspace, amounts, in_account=in_account):
            yield


@contextmanager
def admitted_records(services: Services, records: Sequence[AnyRecord]) -> Iterator[None]:
    """Hold room for the records of an export that are not there yet, in each workspace. Raises `QuotaExceeded`."""
    with ExitStack() as held:
        for workspace in sorted({record.workspace for record in records}):
            held.enter_context(services.creating(workspace, creates=True))
            if not services.quotas.any_set:
                continue
            for in_account in (False, True):
                mine = [one for one in records if one.workspace == workspace and _is_of_account(one) == in_account]
                mine = _missing(services, workspace if not in_account else ACCOUNT_STORE, mine)
                amounts = {**amounts_of_records(mine), "bytes": sum(len(msgspec.json.encode(one)) for one in mine)}
                held.enter_context(services.quotas.admitted(workspace, amounts, in_account=in_account))
        yield


def _missing(services: Services, name: str, records: Sequence[AnyRecord]) -> list[AnyRecord]:
    """Return the records that a store does not have yet: what is there already needs no room."""
    if not records:
        return []
    try:
        with services.runtime.stores.workspace(name, create=False).reading() as tx:
            present = {
                (table, agent): stored_ids(tx.connection, table, agent, {str(one.id) for one in mine})
                for (table, agent), mine in _by_table(records).items()
            }
    except NotFound:
        return list(records)
    return [one for one in records if getattr(one, "id", "") not in present.get((_table_of(one), one.agent), ())]


def _by_table(records: Sequence[AnyRecord]) -> dict[tuple[str, str], list[Any]]:
    found: dict[tuple[str, str], list[Any]] = {}
    for one in records:
        if _table_of(one) in COUNTED_TABLES:
            found.setdefault((_table_of(one), one.agent), []).append(one)
    return found


def _table_of(record: AnyRecord) -> str:
    return str(record.__struct_config__.tag)


def _is_of_account(record: AnyRecord) -> bool:
    return getattr(record, "tier", None) == "account"


def amounts_of(payloads: Sequence[Payload]) -> dict[Resource, int]:
    """Return what payloads add to a workspace: their number, and the bytes of their texts as they are counted."""
    return {"messages": len(payloads), "bytes": sum(_bytes_of(payload) for payload in payloads)}


def _bytes_of(payload: Payload) -> int:
    tool_calls = getattr(payload, "tool_calls", None)
    encoded = len(msgspec.json.encode(payload.metadata)) + (len(msgspec.json.encode(tool_calls)) if tool_calls else 0)
    original = getattr(payload, "original", None) or ""
    return len(payload.content.encode()) + len(original.encode()) + encoded
