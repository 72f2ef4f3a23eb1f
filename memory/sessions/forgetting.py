"""Forgetting wins: over what is stored, what is being embedded, what waits in the inbox, and what is cached."""

from __future__ import annotations

from adapters.broker.inbox import WorkerInbox
from adapters.broker.recall_log import RecallLog
from adapters.broker.working_memory import WorkingMemory
from memory.memories.extraction_saving import forget_in_account
from storage.stores import Store, Stores


def forget_session(
    store: Store, account: Store, inbox: WorkerInbox, working: WorkingMemory, *, agent: str, session: str
) -> bool:
    """Delete a session and all that came from it; False when the store had none of it.

    What was accepted for it until now and is still on its way will leave nothing behind; what is sent under the
    same id from now on begins anew. Raises `Unavailable` without a broker, before anything is deleted: the moment
    must be read from the clock that stamps what is accepted.
    """
    forgotten_at = inbox.now_micros()
    working.drop(store.name, [(agent, session)])
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        reminders = rows.reminders.delete_of(session)
        found = rows.sessions.forget(session, forgotten_at=forgotten_at) or reminders > 0
    forget_in_account(account, agent=agent, workspace=store.name, session=session)
    # Once more: what was stored and appended between the two steps.
    working.drop(store.name, [(agent, session)])
    return found


def forget_workspace(
    stores: Stores, inbox: WorkerInbox, working: WorkingMemory, recalls: RecallLog, *, workspace: str
) -> bool:
    """Delete a workspace with its files and everything that waits for it; False when there was none (M14).

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
        tx.curation.forget_origin(workspace, None)  # of agents of whom nothing else is left
    # Once more: what was accepted, and what was read from the files, between the steps.
    inbox.forget_workspace(workspace)
    working.drop_workspace(workspace)
    recalls.forget_workspace(workspace)
    return found
