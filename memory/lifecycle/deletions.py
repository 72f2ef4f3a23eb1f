"""Delete a memory or a schedule and return its records, by which the caller can bring it back. Nothing is kept here.

A memory that is brought back has its id, its times and its origin, and so have those that it had replaced. It is stored
after the tombstone of its deletion, so that a restored backup keeps it. A schedule comes back with the runs that had
ended; a time that passed meanwhile fires at once, and so does a schedule that was only waiting for an open run.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from memory.lifecycle.importing import ImportRules, import_records
from memory.memories.agent_memories import AgentMemories
from memory.memories.memories import delete_permanently
from memory.scheduling.rules import ScheduleRules
from memory.scheduling.schedules import check_room
from reverie.errors import Conflict
from reverie.trust.exports import ExportedMemory, ExportedRun, ExportedSchedule
from storage.scheduling.records import OPEN_STATUSES
from storage.stores import Store, Stores


def delete_with_records(memories: AgentMemories, memory_id: str) -> list[ExportedMemory]:
    """Delete a memory permanently, as `forget` does; return its record and those of all that it replaced, newest first.

    Raises `NotFound`, and `Rejected` for a user to whom it does not belong alone.
    """
    with memories.changing(memory_id) as (_, rows, record):
        ids = rows.memories.ids_with_superseded([record.row_id])
        found = rows.exported.memories(ids, workspace=memories.workspace)
        delete_permanently(memories, rows, [record])
    records = [one for one in found if one.id == memory_id]
    for successor in records:  # grows in the loop: an import needs each successor first
        records += [one for one in found if one.superseded_by == successor.id != one.id]
    return records


def bring_back(memories: AgentMemories, records: Sequence[ExportedMemory], *, deleted_at: int, now: int) -> set[str]:
    """Store the records of a deletion again, and return the names of the stores written. Safe to repeat.

    Raises `Conflict` if a new value or note has taken the memory's place, or if its user, session or agent was erased
    since. Times in microseconds; `deleted_at` is after the tombstone of the deletion.
    """
    rules = ImportRules(now=now, operator=True, trusted=True, exported_at=deleted_at, lenient=True)
    written = import_records(memories.stores, records[:1], rules).stores
    if memories.find(records[0].id) is None:
        raise Conflict("something else has its place by now, or it was erased: it was not brought back", field="memory")
    return written | import_records(memories.stores, records[1:], rules).stores


def delete_schedule_with_records(
    store: Store, schedule_id: str, *, agent: str, workspace: str
) -> list[ExportedSchedule | ExportedRun]:
    """Delete a schedule with its runs, and return its record and those of the runs that have ended, newest first.

    Raises `NotFound`, and `Rejected` for one that does not belong to the viewer.
    """
    with store.writing_as(agent) as rows:
        rows.schedules.own(schedule_id)
        found, runs = rows.exported.schedule(schedule_id, workspace=workspace)
        rows.schedules.delete(schedule_id)
    waits_for = next((run.due_at for run in runs if run.status in OPEN_STATUSES), None)
    schedules = [
        replace(one, next_run_at=waits_for) if one.status == "active" and one.next_run_at is None else one
        for one in found  # none if its row is damaged
    ]
    return [*schedules, *(run for run in runs if run.status not in OPEN_STATUSES)]


def bring_back_schedule(
    stores: Stores,
    records: Sequence[ExportedSchedule | ExportedRun],
    *,
    rules: ScheduleRules,
    deleted_at: int,
    now: int,
) -> None:
    """Store the records of a deleted schedule again. Safe to repeat.

    Raises `Conflict` if its user or agent was erased since, and `Rejected` at a user's limit. Times in microseconds.
    """
    first = records[0]
    if isinstance(first, ExportedSchedule):
        with stores.workspace(first.workspace, create=False).reading() as tx:
            rows = tx.for_agent(first.agent).schedules
            if rows.find(first.id) is None:
                check_room(first.agent, first.user, unfinished=rows.count_unfinished(first.user), rules=rules)
    how = ImportRules(now=now, operator=True, trusted=True, exported_at=deleted_at, lenient=True)
    if import_records(stores, records, how).left_out["schedules"]:
        raise Conflict("its user or agent was erased meanwhile: it was not brought back", field="schedule")
