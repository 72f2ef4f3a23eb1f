"""Reads the standing instructions of a context: what its user wants of the agent, whatever the query is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from retrieval.results import normalised
from reverie.memories.types import LaterChange, Provenance
from reverie.recall.types import RecallResult
from storage.memories.instructions import Applies, StandingInstruction
from storage.memories.trust import TrustPolicy
from storage.recall.dependence import changes_of, newest_change
from storage.stores import Store
from storage.transaction import AgentRepositories

# Hardly any instruction has fewer tokens, which limits how many can fit.
_SHORT_INSTRUCTION_TOKENS: Final = 8
# A message that is at most this much longer than an instruction repeats it.
_REPEATS_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class Instructions:
    """The newest instructions that apply, newest first, and how many apply in all.

    `provenances` say where they come from, by their ids, `changes` what makes a preference doubtful; `user` is the one
    that they apply to.
    """

    newest: tuple[StandingInstruction, ...] = ()
    total: int = 0
    provenances: Mapping[str, Provenance] = field(default_factory=dict)
    changes: Mapping[str, LaterChange] = field(default_factory=dict)
    user: str | None = None

    def repeated_by(self, result: RecallResult, message: tuple[str | None, str | None] | None) -> bool:
        """Return whether a result repeats one of the instructions, or is the source message of one.

        `message` is the session and id of the result's message, if it has one.
        """
        memory = result.id if result.kind == "memory" else None
        return any(
            one.id == memory
            or (
                message is not None
                and message == (self._session_of(one), one.source_message)
                and len(result.text) <= len(one.content) + _REPEATS_CHARACTERS
            )
            or normalised(one.content) == normalised(result.text)
            for one in self.newest
        )

    def _session_of(self, one: StandingInstruction) -> str | None:
        """Return the session of an instruction's source message. The account has no session rows, only provenances."""
        provenance = self.provenances.get(one.id)
        return provenance.session if provenance is not None else one.session


def read_instructions(
    stores: Iterable[Store | None], agent: str, applies: Applies, *, tokens: int, trust: TrustPolicy
) -> Instructions:
    """Return the newest instructions of the workspace and the account that may fit into `tokens`, newest first."""
    limit = tokens // _SHORT_INSTRUCTION_TOKENS + 1
    found: list[StandingInstruction] = []
    provenances: dict[str, Provenance] = {}
    changes: dict[str, LaterChange] = {}
    total = 0
    for store in stores if tokens > 0 else ():
        if store is None:
            continue
        with store.reading_as(agent) as rows:
            newest = rows.instructions.newest(applies, limit=limit)
            found += newest
            total += len(newest) if len(newest) < limit else rows.instructions.count(applies)
            if newest:
                provenances |= rows.provenances.of([one.id for one in newest])
            changes |= _changes_of_preferences(rows, newest)
    found.sort(key=lambda one: (-one.created_at, -one.row_id))
    # Only the newest of each owner and subject: one in the workspace may replace one in the account.
    distinct: dict[tuple[str | None, str], StandingInstruction] = {}
    for one in found:
        distinct.setdefault((one.owner, one.subject or one.id), one)
    allowed = [
        one
        for one in distinct.values()
        if trust.tells_memory(provenances.get(one.id), confirmed=one.confirmed_at is not None)
    ]
    total -= len(found) - len(allowed)
    return Instructions(tuple(allowed), total, provenances, changes, applies.user)


def _changes_of_preferences(
    rows: AgentRepositories, instructions: Sequence[StandingInstruction]
) -> dict[str, LaterChange]:
    """Return the later changes that make preferences among these doubtful: "I drink again"."""
    preferences = [one for one in instructions if one.kind == "preference"]
    known = {owner: changes_of(rows.past_memories.replacements(owner)) for owner in {one.owner for one in preferences}}
    found = {
        one.id: newest_change(one.content, max(one.created_at, one.confirmed_at or 0), known[one.owner])
        for one in preferences
    }
    return {id: change for id, change in found.items() if change is not None}
