"""Store findings as memories: known ones are skipped, newer ones supersede older ones.

User-written memories are never changed, nor is anything newer than the finding, which then becomes history. Each new
memory is one entry of the curation log, together with what it superseded, so that each can be undone by itself.

What one user says stays that user's. What would tell the agent how to act for all of its users waits for an operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from memory.conversion import convert
from memory.memories.concept_tags import concept_tags
from memory.memories.findings import Finding, normalised, with_owner
from memory.memories.history import add_in_history
from memory.memories.patterns.revocations import takes_back
from reverie.memories.types import EXTRACTION
from storage.memories.extraction import KnownMemories, KnownMemory, WaitingSession
from storage.memories.records import USER_SOURCE, NewMemory, is_standing
from storage.transaction import Transaction
from storage.upkeep.curation import EntryDraft

SOURCE: Final = "extraction"
ACTION: Final = "extract"


class Origin(NamedTuple):
    """The workspace that memories of the account come from, and its tenant; None for the local one."""

    workspace: str
    tenant: str | None = None


class FindingSaver:
    """Stores findings of one session in one transaction; `counts` has the outcome of each."""

    def __init__(
        self,
        tx: Transaction,
        session: WaitingSession,
        *,
        job: str,
        origin: Origin | None,
        now: int,
        has_users: Callable[[], bool],
    ) -> None:
        """Take the `origin` of the session if the store is the account's, which has no sessions: it is metadata.

        `has_users` returns whether the agent has users.
        """
        self.counts: Counter[str] = Counter()
        self._tx = tx
        self._session = session
        self._job = job
        self._workspace = origin.workspace if origin is not None else None
        self._tenant = origin.tenant if origin is not None else None
        self._now = now
        self._known = KnownMemories(tx.connection, session.agent, self._tenant)
        self._memories = tx.for_agent(session.agent).memories
        self._instructions = tx.for_agent(session.agent).instructions
        self._known_contents: dict[str | None, set[str]] = {}
        self._undone = tx.curation.undone(ACTION)
        self._has_users = has_users

    def save(self, findings: Sequence[Finding]) -> None:
        """Store those findings that are new, in their order."""
        for finding in findings:
            owner = self._owner(finding)
            if owner is None and self._session.is_group:
                self.counts["speaker_unknown"] += 1  # whose it is cannot be known: it is no one's, nor everybody's
                continue
            self.counts[self._save(with_owner(finding, owner), self._contents_of(owner))] += 1

    def _owner(self, finding: Finding) -> str | None:
        """Return whose a finding is: the user of the message that says it, else that of the session."""
        return self._session.speaker(finding.message)

    def _waits(self, finding: Finding) -> bool:
        """Return whether a finding is for an operator to approve before it is all users'.

        So is a procedure learned from a user, and what a session of nobody tells an agent with users to do from now on.
        """
        if self._owner(finding) is not None:
            return finding.kind == "procedure"
        directs = finding.kind == "procedure" or is_standing(finding.kind, finding.importance)
        return (directs or finding.takes_back is not None) and self._has_users()

    def _may_replace(self, rival: KnownMemory, finding: Finding) -> bool:
        """Return whether a finding may take the place of a memory: not of what all users are told, unapproved."""
        if _is_same_fact(rival, finding):
            return True
        if self._owner(finding) is not None:
            return rival.visibility != "shared"
        return rival.visibility == "requested" or not self._waits(finding)

    def _contents_of(self, owner: str | None) -> set[str]:
        known = self._known_contents.get(owner)
        if known is None:
            known = {normalised(content) for content in self._known.contents(owner=owner)}
            self._known_contents[owner] = known
        return known

    def _save(self, finding: Finding, contents: set[str]) -> str:
        """Store a finding unless it is known; return the outcome."""
        agent = self._session.agent
        memory_id = finding.memory_id(agent)
        if finding.takes_back is not None:
            return self._take_back(finding, finding.takes_back, memory_id, contents)
        if normalised(finding.content) in contents or self._memories.find(memory_id) is not None:
            return "known"
        if (agent, memory_id) in self._undone:
            return "undone_before"
        rivals = self._rivals(finding)
        if any(_says_the_same(rival, finding) for rival in rivals):
            return "known"
        newer = [rival for rival in rivals if rival.created_at > finding.message.created_at]
        older = [rival for rival in rivals if rival not in newer]
        if any(_is_protected(rival) and _is_same_fact(rival, finding) for rival in older):
            return "contradicts_user_written"
        older = [rival for rival in older if not _is_protected(rival)]
        older = [rival for rival in older if self._may_replace(rival, finding)]
        self._store(finding, memory_id, older, newer)
        if older:
            # What was superseded may be said again, and then it is the newest.
            contents -= {normalised(one.content) for one in older}
            self.counts["superseded"] += len(older)
        if newer:
            return "older_than_known"
        contents.add(normalised(finding.content))
        return "added"

    def _take_back(self, finding: Finding, words: str, memory_id: str, contents: set[str]) -> str:
        """Supersede the instruction that these words name, if there is one, by a note of what was taken back."""
        agent = self._session.agent
        if self._memories.find(memory_id) is not None:
            return "known"
        if (agent, memory_id) in self._undone:
            return "undone_before"
        if self._owner(finding) is None and self._waits(finding):
            return "not_theirs_to_take_back"
        given = self._instructions.of_owner(self._owner(finding), tenant=self._tenant)
        fits = [(takes_back(words, one.content), one) for one in given if one.created_at <= finding.message.created_at]
        best = max((fit for fit, _ in fits), default=0.0)
        taken_back = [one for fit, one in fits if fit == best > 0.0 and one.source != USER_SOURCE and not one.pinned]
        if not taken_back:
            return "nothing_to_take_back"
        known = [self._known.with_id(one.id) for one in taken_back]
        self._store(finding, memory_id, known, [])
        contents -= {normalised(one.content) for one in known}
        self.counts["superseded"] += len(known)
        return "added"

    def _rivals(self, finding: Finding) -> list[KnownMemory]:
        """Return the current memories of the same subject or fact."""
        owner = self._owner(finding)
        rivals: dict[int, KnownMemory] = {}
        if finding.subject is not None:
            rivals = {one.row_id: one for one in self._known.with_subject(finding.subject, owner=owner)}
        if finding.category is not None and finding.key is not None:
            for one in self._known.with_fact(finding.category, finding.key, owner=owner):
                rivals[one.row_id] = one
        return list(rivals.values())

    def _store(
        self, finding: Finding, memory_id: str, older: Sequence[KnownMemory], newer: Sequence[KnownMemory]
    ) -> None:
        draft = EntryDraft(
            f"said in message {finding.message.id}, found by {finding.method}",
            memories=[memory_id, *(one.id for one in older)],
            session=self._session.id,
        )
        with self._tx.curation.entry(draft, job=self._job, agent=self._session.agent, action=ACTION, at=self._now):
            memory = self._memory(finding, memory_id)
            added = add_in_history(
                self._memories,
                memory,
                [one.row_id for one in older],
                [one.row_id for one in newer],
                now=self._now,
            )
            # It has just been learnt, however long ago it was said: it must not decay at once.
            self._memories.change(added.row_id, now=self._now, accessed_at=max(self._now, added.created_at))

    def _memory(self, finding: Finding, memory_id: str) -> NewMemory:
        owner = self._owner(finding)
        metadata: dict[str, object] = {"evidence": list(finding.evidence), "found_by": finding.method}
        if self._workspace is not None:
            # The ref code tells the session from a later one of its name.
            metadata |= {"workspace": self._workspace, "session": self._session.id, "ref_code": self._session.ref_code}
        return convert(
            finding,
            NewMemory,
            id=memory_id,
            created_at=finding.message.created_at,
            source=SOURCE,
            made_by=EXTRACTION,
            owner_user_id=owner,
            # What an agent does for all users is not for one of them to say.
            visibility="requested" if self._waits(finding) else "private",
            tenant=self._tenant,
            concept_tags=concept_tags(finding.content),
            metadata=metadata,
            session=None if self._workspace is not None else self._session.id,
            source_message=finding.message.id,
            trace=finding.message.trace,
        )


def _says_the_same(known: KnownMemory, finding: Finding) -> bool:
    """Return whether a known memory is this fact with this value."""
    return (
        _is_same_fact(known, finding)
        and known.value is not None
        and finding.value is not None
        and normalised(known.value) == normalised(finding.value)
    )


def _is_same_fact(known: KnownMemory, finding: Finding) -> bool:
    return finding.category is not None and (known.category, known.key) == (finding.category, finding.key)


def _is_protected(known: KnownMemory) -> bool:
    """Return whether no job may supersede it: user-written, pinned, or a fact or note that an agent stored."""
    explicit = known.source in (USER_SOURCE, "agent") and (known.note_id is not None or known.category is not None)
    return explicit or known.source == USER_SOURCE or known.pinned
