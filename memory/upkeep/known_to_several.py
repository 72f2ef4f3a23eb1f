"""The rule for what several users see: one user alone must not make it last, however often they recall it.

It holds for agents that have users. Of an agent that never names a user there is nobody else to protect.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from reverie.contract import ACCOUNT_STORE
from reverie.errors import ReverieError
from storage.memories.sweeps import MemoryOutline, MemorySweeps
from storage.stores import Store, Stores


@dataclass(frozen=True, slots=True)
class AgentUsers:
    """Says which agents have users."""

    stores: Stores

    def named(self, store: Store, agent: str) -> bool:
        """Return whether an agent has users in a store; for the account's store, whether it has any in a workspace.

        A workspace that cannot be read counts as one with users.
        """
        if _names_users(store, agent):
            return True
        return store.name == ACCOUNT_STORE and any(self._in_workspace(name, agent) for name in self.stores.names())

    def _in_workspace(self, name: str, agent: str) -> bool:
        try:
            return _names_users(self.stores.workspace(name, create=False), agent)
        except ReverieError:
            return True


def little_known(
    sweeps: MemorySweeps, memories: Sequence[MemoryOutline], *, min_users: int, min_days: int
) -> Collection[int]:
    """Return the rows of the memories that several users see and too few have recalled, or on too few days.

    Counted are named users other than the author. With 0 for both there is no rule.
    """
    if not memories or not (min_users or min_days):
        return ()
    return sweeps.little_known([memory.row_id for memory in memories], min_users=min_users, min_days=min_days)


def _names_users(store: Store, agent: str) -> bool:
    with store.reading() as tx:
        return tx.for_agent(agent).dreams.has_users()
