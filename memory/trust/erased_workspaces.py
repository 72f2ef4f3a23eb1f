"""Deletes the files of a workspace that was erased, unless it has been used since."""

from __future__ import annotations

from contextlib import suppress

from adapters.broker.inbox import WorkerInbox
from adapters.broker.recall_log import RecallLog
from adapters.broker.working_memory import WorkingMemory
from reverie.errors import NotFound, Transient
from storage.stores import Stores


class _InUse(Transient):
    """A workspace that is being erased has been used since: it stays, without what was erased."""


def delete_unused(
    stores: Stores, inbox: WorkerInbox, working: WorkingMemory, recalls: RecallLog, workspace: str
) -> bool:
    """Remove the files of a workspace, unless something has been stored or accepted since; return whether it did.

    It is looked once more while nobody can write: what is stored in between must not go with it.
    """

    def is_in_use() -> bool:
        with stores.workspace(workspace, create=False).reading() as tx:
            return bool(tx.kept_out.agents()) or inbox.stats(workspace).size > 0

    def drop() -> None:
        if is_in_use():
            raise _InUse(f"workspace {workspace!r} was used meanwhile")
        working.drop_workspace(workspace)
        recalls.forget_workspace(workspace)

    with suppress(NotFound, _InUse):
        return not is_in_use() and stores.delete_workspace(workspace, when_closed=drop)
    return False
