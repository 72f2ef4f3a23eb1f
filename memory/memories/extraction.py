"""Extraction: what users say of themselves becomes memories, session by session, once it has been silent for a while.

With a language model or by patterns. What a session was read up to, and the memories found there, are committed
together, against the position from which it was read: killed at any point, or run by two at once, it is found once.
A model that is down or answers nonsense changes nothing, not even that position, unless patterns stand in for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from adapters.language_models import LanguageModel, LanguageModelRefused, LanguageModelUnavailable
from memory.jobs import JobRun
from memory.memories.extraction_checks import checked
from memory.memories.extraction_prompt import ANSWER_TOKENS, INSTRUCTIONS, Extraction, is_evidence, prompt_of
from memory.memories.extraction_saving import Keeper
from memory.memories.extraction_window import KNOWN_MEMORIES, Positions, Window, next_window, progress_of
from memory.memories.findings import Finding, found_by_patterns, normalised
from reverie import contract
from storage.memories.extraction import RECHECK_MICROS, ExtractionProgress, KnownMemories, WaitingSession
from storage.stores import Store
from storage.transaction import Transaction

# Most of the sessions of a run are read without a model being asked; the rest come with the next.
SESSIONS_A_RUN: Final = 1_000
# A session in which somebody always speaks is read after so many times the silence that is waited for.
NEVER_SILENT: Final = 10
# After a failure of the model without a stand-in, doubling.
_RETRY_FIRST_SECONDS: Final = 60.0
_RETRY_LONGEST_SECONDS: Final = 3_600.0

_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ExtractionRules:
    """What is extracted, and when. Without a model, or with `fallback` where it fails, by patterns."""

    fewest_characters: int = 20
    debounce_seconds: float = 30.0
    threshold: float = 0.7
    fallback: bool = True


@dataclass(frozen=True, slots=True)
class Extractor:
    """What extraction works with: `account` gives the account's store, `on_added` hears of stores with new memories."""

    rules: ExtractionRules
    model: LanguageModel | None
    account: Callable[[], Store]
    on_added: Callable[[str], None]


def has_waiting(store: Store) -> bool:
    """Whether any session of a store has something new, due or not."""
    with store.reading() as tx:
        return progress_of(tx).oldest_waiting() is not None


def has_due(store: Store, rules: ExtractionRules, *, now: int) -> bool:
    """Whether a session of a store is to be read now."""
    with store.reading() as tx:
        return bool(_due(tx, rules, now))


def extract_due(run: JobRun, extractor: Extractor) -> None:
    """Read every session of a store that is due, as far as the time allows."""
    with run.store.reading() as tx:
        due = _due(tx, extractor.rules, run.now)
    positions = Positions(run.writing, run.counts, run.now)
    for place, session in enumerate(due):
        if run.time_is_up:
            run.counts["not_reached"] += len(due) - place
            break
        reading = _Reading(run.store, extractor, session, positions, run.dry_run)
        reading.read(lambda: run.time_is_up)
    if not run.dry_run:
        positions.save()
        _note_seen(run)


def extract_session(
    store: Store, extractor: Extractor, *, agent: str, session: str, now: int, dry_run: bool = False
) -> Counter[str]:
    """Read one session to its end without waiting for silence, as when it is closed; returns counts.

    Needs no lease: whoever moves the session's position commits what was found, and another copy commits nothing.
    """
    counts: Counter[str] = Counter()
    with store.reading() as tx:
        waiting = progress_of(tx).waiting_session(agent, session)
    if waiting is not None:
        positions = Positions(store.writing, counts, now)
        _Reading(store, extractor, waiting, positions, dry_run).read(lambda: False)
        positions.save()
    return counts


@dataclass(slots=True)
class _Reading:
    """One session being read, window by window. `session` is as the database has it, its position included."""

    store: Store
    extractor: Extractor
    session: WaitingSession
    positions: Positions
    dry_run: bool

    @property
    def counts(self) -> Counter[str]:
        return self.positions.counts

    @property
    def now(self) -> int:
        return self.positions.now

    def read(self, time_is_up: Callable[[], bool]) -> None:
        """Read on to the end, or until the time is up, the model fails, or another copy is found to read."""
        read_to = begin = self.session.position
        while read_to == begin or not time_is_up():
            with self.store.reading() as tx:
                window = next_window(
                    tx, replace(self.session, position=read_to), for_model=self.extractor.model is not None
                )
            if not window.new:
                # Nor is waited for messages that were removed before they were read.
                read_to = max(read_to, self.session.last_sequence)
                break
            findings = self._found(window)
            if findings is None:
                self._put_off()
                return
            read_to = window.new[-1].sequence
            # What a model was paid for is never asked again.
            if (findings or self.extractor.model is not None) and not self._keep(findings, read_to):
                return
            self.counts["messages"] += len(window.new)
        if read_to > self.session.position and not self.dry_run:
            self.positions.note(self.session, read_to)

    def _found(self, window: Window) -> list[Finding] | None:
        """What a window holds; None when the model failed and nothing stands in for it."""
        rules = self.extractor.rules
        said = [message for message in window.new if is_evidence(message, rules.fewest_characters)]
        if not said:
            return []
        if self.extractor.model is None:
            return list(found_by_patterns(said, now=self.now, before=window.before))
        try:
            return self._asked(self.extractor.model, window)
        except LanguageModelUnavailable:
            self.counts["model_unavailable"] += 1
        except LanguageModelRefused:
            self.counts["model_refused"] += 1
        return list(found_by_patterns(said, now=self.now, before=window.before)) if rules.fallback else None

    def _asked(self, model: LanguageModel, window: Window) -> list[Finding]:
        rules = self.extractor.rules
        with self.extractor.account().reading() as tx:
            everywhere = KnownMemories(tx.connection, self.session.agent).newest(
                owner=self.session.user, limit=KNOWN_MEMORIES
            )
        known = [*everywhere, *window.known]
        prompt = prompt_of(window.new, before=window.before, known=known, fewest_characters=rules.fewest_characters)
        answer = model.complete_structured(
            INSTRUCTIONS, prompt, ANSWER_TOKENS, form=Extraction, purpose="extraction"
        ).value
        self.counts["asked"] += 1
        dropped: Counter[str] = Counter()
        found = checked(
            answer, window.new, before=window.before, fewest_characters=rules.fewest_characters,
            threshold=rules.threshold, now=self.now, dropped=dropped,
        )  # fmt: skip
        findings = list(found)
        self.counts.update({f"dropped_{reason}": count for reason, count in dropped.items() if count})
        return findings

    def _keep(self, findings: Sequence[Finding], to: int) -> bool:
        """Commit what was found with how far the session was read; False when it was read or forgotten meanwhile."""
        certain = [finding for finding in findings if finding.confidence >= self.extractor.rules.threshold]
        certain = self._not_known_everywhere(certain)
        self.counts["found"] += len(certain)
        if self.dry_run:
            return True
        here = [finding for finding in certain if finding.tier != "account"]
        if not self._keep_for_account([finding for finding in certain if finding.tier == "account"]):
            return False
        with self.positions.writing() as tx:
            if not progress_of(tx).advance(self.session, to=to, now=self.now):
                self.counts["read_elsewhere"] += 1
                return False
            added = self._keep_in(tx, here, workspace=None)
        self.session = replace(self.session, position=to)
        if added:
            self.extractor.on_added(self.store.name)
        return True

    def _not_known_everywhere(self, findings: Sequence[Finding]) -> list[Finding]:
        """Without what the account's memories say already: those hold in this workspace, too."""
        if not findings:
            return []
        with self.extractor.account().reading() as tx:
            contents = KnownMemories(tx.connection, self.session.agent).contents(owner=self.session.user)
        known = {normalised(content) for content in contents}
        return [finding for finding in findings if normalised(finding.content) not in known]

    def _keep_for_account(self, findings: Sequence[Finding]) -> bool:
        """Commit what holds in every workspace: first, so that a crash repeats it, which changes nothing.

        False when the session was read or forgotten meanwhile.
        """
        if not findings:
            return True
        account = self.extractor.account()
        with account.writing() as tx:
            # Looked at under the account's lock: forgetting takes the session first and its account memories after.
            if not self._is_as_it_was():
                self.counts["read_elsewhere"] += 1
                return False
            added = self._keep_in(tx, findings, workspace=self.store.name)
        if added:
            self.extractor.on_added(account.name)
        return True

    def _is_as_it_was(self) -> bool:
        """Whether the session is still there and nobody read on in it."""
        with self.store.reading() as tx:
            current = progress_of(tx).waiting_session(self.session.agent, self.session.id)
        return current is not None and (current.ref_code, current.position) == (
            self.session.ref_code,
            self.session.position,
        )

    def _keep_in(self, tx: Transaction, findings: Sequence[Finding], *, workspace: str | None) -> int:
        if not findings:
            return 0
        keeper = Keeper(tx, self.session, job=contract.EXTRACT_MEMORIES, workspace=workspace, now=self.now)
        keeper.keep(findings)
        self.counts.update(keeper.counts)
        return keeper.counts["added"]

    def _put_off(self) -> None:
        self.counts["put_off"] += 1
        if self.dry_run:
            return
        with self.positions.writing() as tx:
            progress_of(tx).postpone(
                self.session,
                now=self.now,
                first_seconds=_RETRY_FIRST_SECONDS,
                longest_seconds=_RETRY_LONGEST_SECONDS,
            )


def _due(tx: Transaction, rules: ExtractionRules, now: int) -> list[WaitingSession]:
    """The sessions to be read now."""
    progress = progress_of(tx)
    waiting = progress.waiting(now=now, limit=SESSIONS_A_RUN)
    return [session for session in waiting if _is_due(progress, session, rules, now)]


def _is_due(progress: ExtractionProgress, session: WaitingSession, rules: ExtractionRules, now: int) -> bool:
    silence = int(rules.debounce_seconds * _SECOND)
    if now - session.updated_at >= silence:
        return True
    return now - progress.first_waiting_since(session) >= NEVER_SILENT * silence


def _note_seen(run: JobRun) -> None:
    """Move the mark up to the longest silent session that still waits; seldom, for it is a commit."""
    with run.store.reading() as tx:
        oldest, noted = progress_of(tx).oldest_waiting(), progress_of(tx).watermark()
    up_to = min(run.now, run.now if oldest is None else oldest) - RECHECK_MICROS
    if up_to - noted > RECHECK_MICROS:
        with run.writing() as tx:
            progress_of(tx).set_watermark(up_to=up_to, now=run.now)
