"""Forget sessions and workspaces everywhere: in stores, in work in progress, in the inbox and in caches."""

from __future__ import annotations

from adapters.broker.inbox import WorkerInbox
from adapters.broker.recall_log import RecallLog
from adapters.broker.working_memory import WorkingMemory
from memory.memories.extraction_saving import forget_in_account
from memory.trust.tombstones import note_forgotten
from storage.stores import Store, Stores


def forget_session(
    stores: Stores, store: Store, inbox: WorkerInbox, working: WorkingMemory, *, agent: str, session: str
) -> bool:
    """Delete a session and all that came from it; False if the store had nothing of it. It gets a tombstone.

    Messages accepted for it until now and still in the pipeline are dropped; those sent later under the same id start a
    new session. Raises `Unavailable` without a broker, before anything is deleted: what was accepted before
    is told by a number that the broker gives.
    """
    forgotten_at = inbox.next_number()
    working.drop(store.name, [(agent, session)])
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        reminders = rows.reminders.delete_for_session(session)
        found = rows.sessions.forget(session, forgotten_at=forgotten_at) or reminders > 0
        if found:
            note_forgotten(stores.data_dir, "session", [session], workspace=store.name, agent=agent)
    forget_in_account(stores.account_store(), agent=agent, workspace=store.name, session=session)
    # Again, for what was stored and cached between the two steps.
    working.drop(store.name, [(agent, session)])
    return found


def forget_workspace(
    stores: Stores, inbox: WorkerInbox, working: WorkingMemory, recalls: RecallLog, *, workspace: str
) -> bool:
    """Delete a workspace with its files and everything that is queued for it; False if there was none.

    It gets no tombstone: a backup may bring back what was deleted by mistake. An erasure of it is for good.

    Raises `Unavailable` without a broker, before anything is deleted, and `StoreUnavailable`.
    """
    inbox.forget_workspace(workspace)
    working.drop_workspace(workspace)
    recalls.forget_workspace(workspace)
    found = stores.delete_workspace(workspace)
    account = stores.account_store()
    with account.reading() as tx:
        agents = tx.memories.agents()
    for agent in agents:
        forget_in_account(account, agent=agent, workspace=workspace, session=None)
    with account.writing() as tx:
        tx.curation.forget_origin(workspace, None)  # also of agents that have no memories left
    # Again, for what was accepted, and read from the files, between the steps.
    inbox.forget_workspace(workspace)
    working.drop_workspace(workspace)
    recalls.forget_workspace(workspace)
    return found
