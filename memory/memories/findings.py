"""The findings of extraction, by either method: each is one thing that a user said, with the messages that say it.

Findings are stored as memories: known ones are skipped, newer ones supersede older ones. User-written memories are
never changed. If a newer memory is known already, the finding becomes history. Each new memory is one entry of the
curation log, together with what it superseded, so that each can be undone by itself.

Findings from a user's words belong to that user. Findings that tell the agent how to act for all of its users wait for
an operator's approval. Instructions found among other words wait for their user's confirmation.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from blake3 import blake3

from memory.conversion import convert
from memory.memories.concept_tags import SEEN_BY_ALL, concept_tags, sensitive_kind
from memory.memories.memories import add_in_history
from memory.memories.patterns.corrections import corrected, is_taken_back, with_own_corrections
from memory.memories.patterns.instruction_sentences import takes_back
from memory.memories.patterns.instructions import find_instructions, find_revocations
from memory.memories.patterns.matching import Statement, is_game
from memory.memories.patterns.names import note_names
from memory.memories.patterns.statements import find_statements
from memory.secrets import looks_secret, repeats_secret_of
from reverie.memories.types import EXTRACTION, MAX_KEY_CHARACTERS
from storage.curation import EntryDraft
from storage.memories.extraction import KnownMemories, KnownMemory, SourceMessage, WaitingSession
from storage.memories.records import EXTRACTION_SOURCE, USER_SOURCE, NewMemory, is_standing
from storage.recall.chunk_sources import Replacement
from storage.recall.claims import MOVED_ALONE, VALUABLES, claims_of, events_in, replaces
from storage.recall.dependence import changes_of, newest_change
from storage.transaction import Transaction

# The importance of a preference that every context would have if its speaker were the user.
_OF_A_SPEAKER: Final = 0.7
_NAME_CHARACTERS: Final = 64
_ID_CHARACTERS: Final = 32
_PUNCTUATION = re.compile(r"[\s.!,;:\"'\u2018\u2019\u201c\u201d]+")

Method = Literal["patterns", "language model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Statement):
    """A statement to be stored. `message` is the newest message that says it, `evidence` the ids of all that do."""

    message: SourceMessage
    evidence: tuple[str, ...]
    method: Method
    quote: str = ""
    category: str | None = None  # of a statement, it follows from its key

    def memory_id(self, agent: str, session: str) -> str:
        """Return an id derived from agent, session, message and content, so that finding it twice stores it once.

        `session` is the ref code of the session: memories of the account come from several workspaces.
        """
        seed = "\0".join((agent, session, self.message.id, normalised(self.content)))
        return blake3(seed.encode()).hexdigest()[:_ID_CHARACTERS]


def normalised(content: str) -> str:
    """Return a content in lower case, without punctuation and extra blanks, to compare meanings."""
    return _PUNCTUATION.sub(" ", content.casefold()).strip()


def found_by_patterns(
    messages: Sequence[SourceMessage],
    *,
    now: int,
    before: Sequence[SourceMessage] = (),
    known: Iterable[str] = (),
    instructions_only: Callable[[SourceMessage], bool] = lambda _: False,
) -> Iterator[Finding]:
    """Yield the plain statements of users in these messages, without secrets and without expired statements.

    From messages with `instructions_only`, only standing instructions, revocations and changes are taken. Nothing is
    taken from a role-play, which may have begun in the messages `before`, nor from one that the next takes back. One
    that the next corrects is read with the new value, also if it is the last of those `before`. `known` are memories of
    the user, which tell names.
    """
    in_game = False
    lost: dict[str, str] = {}
    events = [event for message in before for event in events_in(message.content)]
    names: dict[str, dict[str, str]] = defaultdict(dict)
    for content in known:
        note_names(names[""], _as_told(content))
        lost.update(_LOST.findall(content))
    last: dict[str, str] = {}
    read_before: dict[str, SourceMessage] = {}
    for message in before:
        in_game = is_game(message.content, before=in_game)
        if message.role == "user" and not in_game:
            note_names(names[message.name or ""], message.content)
            last[message.name or ""], read_before[message.name or ""] = message.content, message
    for place, message in enumerate(messages):
        in_game = is_game(message.content, before=in_game)
        next_one = next((one for one in messages[place + 1 :] if one.name == message.name), None)
        mended = corrected(message.content, next_one.content) if next_one is not None else None
        if in_game or (next_one is not None and mended is None and is_taken_back(next_one.content)):
            continue
        if (earlier := read_before.pop(message.name or "", None)) is not None:
            yield from _corrections(earlier, message, names[message.name or ""])
        evidence, resolved = [message.id], message
        if next_one is not None and mended is not None:
            evidence, resolved = [message.id, next_one.id], replace(next_one, content=mended)
        named, said_before = names[message.name or ""], last.get(message.name or "", "")
        resolved = replace(resolved, content=with_own_corrections(resolved.content))
        if (speaker := message.name or "User") in lost and _FOUND_IT.match(resolved.content):
            resolved = replace(resolved, content=_FOUND_IT.sub(f"I found my {lost.pop(speaker)}", resolved.content, 1))
        resolved = replace(resolved, content=_with_event(resolved.content, events))
        events += events_in(resolved.content)
        note_names(named, resolved.content)
        last[message.name or ""] = resolved.content
        for statement in _statements(resolved, instructions_only, named, said_before):
            note_names(named, _as_told(statement.content))
            lost.update((speaker, thing) for _, thing in _LOST.findall(statement.content))
            # Messages with a speaker's name are people talking to each other: their requests are not for the agent.
            if message.name and (statement.kind == "instruction" or statement.takes_back is not None):
                continue
            if message.name and is_standing(statement.kind, statement.importance):
                statement = replace(statement, importance=_OF_A_SPEAKER)
            expired = statement.expires_at is not None and statement.expires_at <= now
            is_secret = looks_secret(f"{statement.content}\n{statement.quote}") is not None
            if not (expired or is_secret or repeats_secret_of(statement.content, resolved.content)):
                yield convert(statement, Finding, message=resolved, evidence=tuple(evidence), method="patterns")


def _corrections(earlier: SourceMessage, message: SourceMessage, names: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what replaces the statements of a message that was read before, if the sender's next one corrects them."""
    mended = corrected(earlier.content, message.content)
    if mended is None and not is_taken_back(message.content):
        return
    old = [one.content for one in find_statements(earlier.content, at=earlier.created_at, names=names)]
    found = find_statements(mended, at=message.created_at, names=names) if mended is not None else []
    kept = {one.content for one in found}
    corrects = tuple(one for one in old if one not in kept)
    if not corrects:
        return
    new = [one for one in found if one.content not in old]
    if not new:
        quote = message.content.strip().rstrip(".!")
        new = [
            Statement(
                content=f'User took back what they had said: "{quote}."', kind="event", quote=message.content,
                subject=None, confidence=0.9, importance=0.5, only_changes=True,
            )
        ]  # fmt: skip
    for one in new:
        correction = replace(one, corrects=corrects)
        yield convert(correction, Finding, message=message, evidence=(earlier.id, message.id), method="patterns")


_LOST: Final = re.compile(rf"\A(.{{1,40}}?) lost their ({VALUABLES})\b")
_FOUND_IT: Final = re.compile(
    r"\A(?:(?:ok(?:ay)?|omg|yay|update|phew|ha)[\s,!.:]{1,3})?(?:i )?(?:just |finally )?found (?:it|them)\b", re.I
)


# How many of the last mentioned events "moved to June 7" may be about.
_NEAR_EVENTS: Final = 3


def _with_event(content: str, events: Sequence[str]) -> str:
    """Return "moved to June 7" as "the wedding was moved to June 7", if only one event was mentioned lately."""
    near = {*events[-_NEAR_EVENTS:]}
    if len(near) != 1:
        return content
    return MOVED_ALONE.sub(f"The {near.pop()} was moved to ", content, count=1)


def _as_told(content: str) -> str:
    """Return a memory in the words of its user, by which it tells names."""
    return content.replace("User's", "my", 1)


def _statements(
    message: SourceMessage, instructions_only: Callable[[SourceMessage], bool], names: Mapping[str, str], before: str
) -> list[Statement]:
    found = find_statements(message.content, at=message.created_at, names=names, before=before)
    if instructions_only(message):
        found = [*find_instructions(message.content), *(one for one in found if one.only_changes)]
    revocations = find_revocations(message.content)
    # What takes an instruction back does not need to be told as a change as well.
    return [*(one for one in found if not (one.only_changes and revocations)), *revocations]


def with_owner(finding: Finding, owner: str | None) -> Finding:
    """Return a finding with its owner in subject and category, so that one person's never supersedes another's.

    If the message has a name, the finding is about that person: several people may speak in a session of one user.
    """
    name = (finding.message.name or "").strip()[:_NAME_CHARACTERS]
    person = ":".join(filter(None, (owner, name)))
    if not person:
        return finding
    return replace(
        finding,
        content=_of_person(finding, name) if name else finding.content,
        subject=f"{name}: {finding.subject}" if name and finding.subject else finding.subject,
        corrects=tuple(re.sub(r"^User\b", lambda _: name or "User", one) for one in finding.corrects),
        category=_fitting(f"{finding.category}:{person}") if finding.category is not None else None,
    )


def _fitting(category: str) -> str:
    """Return a category as long as calls and imports take it: the end of a longer one is replaced by a hash."""
    if len(category) <= MAX_KEY_CHARACTERS:
        return category
    digest = blake3(category.encode()).hexdigest()[:_ID_CHARACTERS]
    return f"{category[: MAX_KEY_CHARACTERS - _ID_CHARACTERS]}{digest}"


def _of_person(finding: Finding, name: str) -> str:
    """Return a content that names the person; an instruction keeps the person's own words after the name."""
    # Behind quotation marks, `User` is a word of somebody's.
    content = re.sub(r"^User\b|(?<=\s)User\b(?=[^\"]*\Z)", lambda _: name, finding.content)
    return (
        f"{name}: {content}"
        if is_standing(finding.kind, finding.importance) and content == finding.content
        else content
    )


ACTION: Final = "extract"


class Origin(NamedTuple):
    """The workspace from which memories of the account come, and its tenant (None for the local tenant)."""

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
        """`origin` is given for the account's store: it has no sessions, so they become metadata of the memory.

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
        self._known_contents: dict[str | None, dict[str, int]] = {}
        self._undone = tx.curation.undone(ACTION)
        self._has_users = has_users

    def save(self, findings: Sequence[Finding]) -> None:
        """Store those findings that are new, in their order."""
        for finding in findings:
            owner = self._owner(finding)
            if owner is None and self._session.is_group:
                self.counts["speaker_unknown"] += 1  # a group's finding must not become everybody's
                continue
            self.counts[self._save(with_owner(self._of_member(finding), owner), self._contents_of(owner))] += 1

    def _of_member(self, finding: Finding) -> Finding:
        """Return a finding without the speaker's name, if it is the name of a user who said it in a group.

        So it is about the user, and replaces what the same user said elsewhere.
        """
        is_members = self._session.is_group and finding.message.user is not None
        return replace(finding, message=replace(finding.message, name=None)) if is_members else finding

    def _owner(self, finding: Finding) -> str | None:
        """Return the user to whom a finding belongs: the user of its message, else the session's user."""
        return self._session.speaker(finding.message)

    def _needs_approval(self, finding: Finding) -> bool:
        """Return whether a finding needs approval before the agent is told it.

        Approval is needed for an unconfirmed instruction, which may be another person's words, and for a procedure
        learned from a user, before all users get it. If the agent has users, approval is also needed for what a session
        without a user would tell all of them: an instruction or its revocation, a procedure, and anything sensitive.
        """
        if finding.unconfirmed:
            return True
        if self._owner(finding) is not None:
            return finding.kind == "procedure"
        directs = finding.kind == "procedure" or is_standing(finding.kind, finding.importance)
        waits = directs or finding.takes_back is not None or sensitive_kind(finding.content) is not None
        return waits and self._has_users()

    def _sensitive(self, finding: Finding) -> str | None:
        """Return why a person should read a finding, even if it does not wait; None if nobody has to read it."""
        if kind := sensitive_kind(finding.content):
            return kind
        if finding.kind in ("instruction", "procedure") or finding.takes_back is not None:
            return "instruction"
        return SEEN_BY_ALL if self._owner(finding) is None and self._has_users() else None

    def _may_replace(self, rival: KnownMemory, finding: Finding) -> bool:
        """Return whether a finding may replace a memory; a memory that all users see needs an approval for that."""
        if finding.unconfirmed:
            return _is_unconfirmed(rival)
        if _is_same_fact(rival, finding):
            return True
        if self._owner(finding) is not None:
            return rival.visibility != "shared"
        return rival.visibility == "requested" or not self._needs_approval(finding)

    def _contents_of(self, owner: str | None) -> dict[str, int]:
        """Return the rows of memories by their normalised contents."""
        known = self._known_contents.get(owner)
        if known is None:
            known = {normalised(content): row for content, row in self._known.contents(owner=owner).items()}
            self._known_contents[owner] = known
        return known

    def _save(self, finding: Finding, contents: dict[str, int]) -> str:
        """Store a finding unless it is known; return the outcome."""
        agent = self._session.agent
        memory_id = finding.memory_id(agent, self._session.ref_code)
        if finding.takes_back is not None:
            return self._take_back(finding, finding.takes_back, memory_id, contents)
        if (row := contents.get(normalised(finding.content))) is not None:
            return self._said_again(row, finding)
        if self._memories.find(memory_id) is not None:
            return "known"
        if (agent, memory_id) in self._undone:
            return "undone_before"
        if finding.only_changes and not self._makes_doubtful(finding):
            return "changes_nothing_known"
        rivals = self._rivals(finding)
        if same := next((rival for rival in rivals if _says_the_same(rival, finding)), None):
            return self._said_again(same.row_id, finding)
        if self._needs_approval(finding) and any(
            _is_unconfirmed(one) and one.content == finding.content for one in rivals
        ):
            return "known"
        newer = [rival for rival in rivals if rival.created_at > finding.message.created_at]
        older = [rival for rival in rivals if rival not in newer]
        if any(_is_protected(rival) and _is_same_fact(rival, finding) for rival in older):
            return "contradicts_user_written"
        older = [rival for rival in older if not _is_protected(rival)]
        older = [rival for rival in older if self._may_replace(rival, finding)]
        stored_row = self._store(finding, memory_id, older, newer)
        for one in older:  # a superseded statement may be said again; then it is the newest
            contents.pop(normalised(one.content), None)
        if older:
            self.counts["superseded"] += len(older)
        if newer:
            return "older_than_known"
        if finding.unconfirmed:
            return "unconfirmed"
        contents[normalised(finding.content)] = stored_row
        return "added"

    def _said_again(self, row: int, finding: Finding) -> str:
        """Note that the message of a finding confirms a memory, and return the outcome."""
        self._known.confirm(row, at=finding.message.created_at)
        return "known"

    def _take_back(self, finding: Finding, words: str, memory_id: str, contents: dict[str, int]) -> str:
        """Supersede the instructions that these words fit best, if any, by a memory that says they were revoked."""
        agent = self._session.agent
        if self._memories.find(memory_id) is not None:
            return "known"
        if (agent, memory_id) in self._undone:
            return "undone_before"
        if self._owner(finding) is None and self._needs_approval(finding):
            return "not_theirs_to_take_back"
        given = self._instructions.of_owner(self._owner(finding), tenant=self._tenant)
        fits = [(takes_back(words, one.content), one) for one in given if one.created_at <= finding.message.created_at]
        best = max((fit for fit, _ in fits), default=0.0)
        taken_back = [one for fit, one in fits if fit == best > 0.0 and one.source != USER_SOURCE and not one.pinned]
        if not taken_back:
            return "nothing_to_take_back"
        known = [self._known.with_id(one.id) for one in taken_back]
        self._store(finding, memory_id, known, [])
        for one in known:
            contents.pop(normalised(one.content), None)
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
        for one in self._known.with_rows(self._replaced_by(finding, owner)):
            if one.owner == owner and one.created_at <= finding.message.created_at:
                rivals[one.row_id] = one
        return list(rivals.values())

    def _replaced_by(self, finding: Finding, owner: str | None) -> list[int]:
        """Return the rows of memories that no longer hold if the finding is true."""
        claims = [claim for claim in claims_of(finding.content) if not claim.adds]
        known = self._known.contents(owner=owner) if claims or finding.corrects else {}
        return [
            row
            for content, row in known.items()
            if content in finding.corrects
            or any(replaces(newer, older) for older in claims_of(content) for newer in claims)
        ]

    def _makes_doubtful(self, finding: Finding) -> bool:
        """Return whether a finding replaces a known memory, or makes it doubtful."""
        owner = self._owner(finding)
        if self._replaced_by(finding, owner):
            return True
        changes = changes_of([Replacement("", "", finding.content, finding.message.created_at)])
        known = self._known.contents(owner=owner)
        return any(newest_change(content, 0, changes) is not None for content in known)

    def _store(
        self, finding: Finding, memory_id: str, older: Sequence[KnownMemory], newer: Sequence[KnownMemory]
    ) -> int:
        """Store a finding as an entry of the curation log, and return its row."""
        draft = EntryDraft(
            f"said in message {finding.message.id}, found by {finding.method}",
            memories=[memory_id, *(one.id for one in older)],
            session=self._session.id,
            sensitive=self._sensitive(finding),
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
            # It counts as accessed now, however long ago it was said: it must not decay at once.
            self._memories.change(added.row_id, now=self._now, accessed_at=max(self._now, added.created_at))
        return added.row_id

    def _memory(self, finding: Finding, memory_id: str) -> NewMemory:
        owner = self._owner(finding)
        metadata: dict[str, object] = {"evidence": list(finding.evidence), "found_by": finding.method}
        if self._workspace is not None:
            # The ref code tells the session from a later session with the same id.
            metadata |= {"workspace": self._workspace, "session": self._session.id, "ref_code": self._session.ref_code}
        return convert(
            finding,
            NewMemory,
            id=memory_id,
            created_at=finding.message.created_at,
            source=EXTRACTION_SOURCE,
            made_by=EXTRACTION,
            owner_user_id=owner,
            # One user must not decide how the agent acts for all users.
            visibility="requested" if self._needs_approval(finding) else "private",
            tenant=self._tenant,
            concept_tags=concept_tags(finding.content),
            metadata=metadata,
            session=None if self._workspace is not None else self._session.id,
            source_message=finding.message.id,
            trace=finding.message.trace,
        )


def _says_the_same(known: KnownMemory, finding: Finding) -> bool:
    """Return whether a known memory is the same fact with the same value."""
    return (
        _is_same_fact(known, finding)
        and known.value is not None
        and finding.value is not None
        and normalised(known.value) == normalised(finding.value)
    )


def _is_unconfirmed(known: KnownMemory) -> bool:
    return (
        known.visibility == "requested"
        and known.source == EXTRACTION_SOURCE
        and is_standing(known.kind, known.importance)
    )


def _is_same_fact(known: KnownMemory, finding: Finding) -> bool:
    return finding.category is not None and (known.category, known.key) == (finding.category, finding.key)


def _is_protected(known: KnownMemory) -> bool:
    """Return whether no job may supersede a memory: it is user-written, pinned, or a fact or note of an agent."""
    explicit = known.source in (USER_SOURCE, "agent") and (known.note_id is not None or known.category is not None)
    return explicit or known.source == USER_SOURCE or known.pinned
