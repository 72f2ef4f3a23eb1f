"""Read one session window by window and store what is found in it, with a language model or by patterns.

Findings and the position up to which the session was read are committed together, compared with the position from
which it was read: killed at any point, or run by two at once, each is found once. A model that is down or gives an
invalid answer changes nothing, not even the position, unless patterns replace it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from adapters.language_models import LanguageModel, LanguageModelRefused, LanguageModelUnavailable
from memory.memories.extraction_checks import checked_findings
from memory.memories.extraction_prompt import ANSWER_TOKENS, INSTRUCTIONS, Extraction, is_evidence, prompt_for
from memory.memories.extraction_saving import FindingSaver, Origin
from memory.memories.extraction_window import (
    KNOWN_MEMORIES,
    ExtractionRules,
    Positions,
    Window,
    next_window,
    progress_of,
)
from memory.memories.findings import Finding, found_by_patterns, normalised
from reverie import contract
from storage.memories.extraction import KnownMemories, SourceMessage, WaitingSession
from storage.stores import Store
from storage.transaction import Transaction

# Pause before a session is tried again after the model failed and nothing replaced it; doubles each time.
_FIRST_RETRY_SECONDS: Final = 60.0
_MAX_RETRY_SECONDS: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Extractor:
    """The rules, the model if any, the account store, and `on_added`, called with each store that has new memories."""

    rules: ExtractionRules
    model: LanguageModel | None
    account: Callable[[], Store]
    on_added: Callable[[str], None]
    # The tenant of a workspace; None is the local one.
    tenant_of: Callable[[str], str | None] = lambda _: None


@dataclass(slots=True)
class SessionReader:
    """Reads one session; `session` is as the database has it, including its position."""

    store: Store
    extractor: Extractor
    session: WaitingSession
    positions: Positions
    dry_run: bool

    @property
    def counts(self) -> Counter[str]:
        """What was found, stored and dropped, by reason."""
        return self.positions.counts

    @property
    def now(self) -> int:
        """The time of the run in microseconds."""
        return self.positions.now

    def read(self, time_is_up: Callable[[], bool]) -> None:
        """Read to the end, or until the time is up, the model fails, or another reader is found at work."""
        read_to = start = self.session.position
        while read_to == start or not time_is_up():
            with self.store.reading() as tx:
                window = next_window(
                    tx, replace(self.session, position=read_to), for_model=self.extractor.model is not None
                )
            if not window.new:
                # Messages that were removed before they were read are not waited for either.
                read_to = max(read_to, self.session.last_sequence)
                break
            findings = self._find(window)
            if findings is None:
                self._postpone()
                return
            read_to = window.new[-1].sequence
            # With a model each window is committed: a call that was paid for is never repeated.
            is_due = findings or self.extractor.model is not None or self.positions.is_late
            if is_due and not self._save(findings, read_to):
                return
            self.counts["messages"] += len(window.new)
        if read_to > self.session.position and not self.dry_run:
            self.positions.note(self.session, read_to)

    def _find(self, window: Window) -> list[Finding] | None:
        """Return the findings of a window; None if the model failed and patterns may not replace it."""
        rules = self.extractor.rules
        by_users = [message for message in window.new if is_evidence(message, 1)]
        evidence = [message for message in by_users if is_evidence(message, rules.min_characters)]
        if self.extractor.model is not None and evidence:
            try:
                by_model = self._ask_model(self.extractor.model, window)
                return [*by_model, *self._beside_model(by_users, by_model, window)]
            except LanguageModelUnavailable:
                self.counts["model_unavailable"] += 1
            except LanguageModelRefused:
                self.counts["model_refused"] += 1
            if not rules.fallback:
                return None
        # `Use tabs.` is too short to say anything else.
        return list(
            found_by_patterns(
                by_users,
                now=self.now,
                before=window.before,
                instructions_only=lambda message: not is_evidence(message, rules.min_characters),
            )
        )

    def _beside_model(
        self, by_users: Sequence[SourceMessage], by_model: Sequence[Finding], window: Window
    ) -> list[Finding]:
        """Return what a model is not asked for: instructions of few words, and what users take back."""
        read = {finding.message.id for finding in by_model}
        minimum = self.extractor.rules.min_characters
        found = found_by_patterns(by_users, now=self.now, before=window.before, instructions_only=lambda _: True)
        return [
            finding
            for finding in found
            if finding.message.id not in read
            and (finding.takes_back is not None or not is_evidence(finding.message, minimum))
        ]

    def _ask_model(self, model: LanguageModel, window: Window) -> list[Finding]:
        rules = self.extractor.rules
        with self.extractor.account().reading() as tx:
            account_known = self._known_in_account(tx).newest(owner=window.owner, limit=KNOWN_MEMORIES)
        window = replace(window, known=(*account_known, *window.known))
        answer = model.complete_structured(
            INSTRUCTIONS, prompt_for(window, rules), ANSWER_TOKENS, form=Extraction, purpose="extraction"
        ).value
        self.counts["model_calls"] += 1
        findings, dropped = checked_findings(answer, window, rules, now=self.now)
        self.counts.update({f"dropped_{reason}": count for reason, count in dropped.items()})
        return findings

    def _save(self, findings: Sequence[Finding], read_to: int) -> bool:
        """Commit findings with the new position; False if the session was read or forgotten in the meantime."""
        certain = [finding for finding in findings if finding.confidence >= self.extractor.rules.threshold]
        certain = self._without_account_memories(certain)
        # What is taken back may apply in this workspace or in all.
        in_account = [replace(finding, tier="account") for finding in certain if finding.takes_back is not None]
        self.counts["found"] += len(certain)
        if self.dry_run:
            for finding in certain:
                self.positions.on_found(self.session.agent, self.session.id, finding.content)
            return True
        if not self._save_in_account([*(finding for finding in certain if finding.tier == "account"), *in_account]):
            return False
        with self.positions.writing() as tx:
            if not progress_of(tx).advance(self.session, to=read_to, now=self.now):
                self.counts["read_elsewhere"] += 1
                return False
            added = self._save_in(tx, [finding for finding in certain if finding.tier != "account"], origin=None)
        self.session = replace(self.session, position=read_to)
        self.positions.save()
        if added:
            self.extractor.on_added(self.store.name)
        return True

    def _without_account_memories(self, findings: Sequence[Finding]) -> list[Finding]:
        """Drop findings that memories of the account say already: those apply in this workspace, too."""
        if not findings:
            return []
        with self.extractor.account().reading() as tx:
            rows = self._known_in_account(tx)
            owners = {finding.message.user or self.session.user for finding in findings}
            known = {(owner, normalised(content)) for owner in owners for content in rows.contents(owner=owner)}
        return [
            finding
            for finding in findings
            if (finding.message.user or self.session.user, normalised(finding.content)) not in known
        ]

    def _known_in_account(self, tx: Transaction) -> KnownMemories:
        return KnownMemories(tx.connection, self.session.agent, self.extractor.tenant_of(self.store.name))

    def _save_in_account(self, findings: Sequence[Finding]) -> bool:
        """Commit findings of the account tier; False if the session was read or forgotten in the meantime.

        Done before the workspace's commit: a crash in between repeats it, which changes nothing.
        """
        if not findings:
            return True
        account = self.extractor.account()
        origin = Origin(self.store.name, self.extractor.tenant_of(self.store.name))
        with account.writing() as tx:
            # Checked under the account's lock: forgetting removes the session first and its account memories after.
            if not self._is_unchanged():
                self.counts["read_elsewhere"] += 1
                return False
            added = self._save_in(tx, findings, origin=origin)
        if added:
            self.extractor.on_added(account.name)
        return True

    def _is_unchanged(self) -> bool:
        """Return whether the session still exists and nobody has moved its position."""
        with self.store.reading() as tx:
            current = progress_of(tx).waiting_session(self.session.agent, self.session.id)
        return current is not None and (current.ref_code, current.position) == (
            self.session.ref_code,
            self.session.position,
        )

    def _save_in(self, tx: Transaction, findings: Sequence[Finding], *, origin: Origin | None) -> int:
        if not findings:
            return 0
        saver = FindingSaver(
            tx,
            self.session,
            job=contract.EXTRACT_MEMORIES,
            origin=origin,
            now=self.now,
            has_users=self._agent_has_users,
        )
        saver.save(findings)
        self.counts.update(saver.counts)
        return saver.counts["added"]

    def _agent_has_users(self) -> bool:
        with self.store.reading() as tx:
            return tx.for_agent(self.session.agent).dreams.has_users()

    def _postpone(self) -> None:
        self.counts["postponed"] += 1
        if self.dry_run:
            return
        with self.positions.writing() as tx:
            progress_of(tx).postpone(
                self.session,
                now=self.now,
                first_seconds=_FIRST_RETRY_SECONDS,
                longest_seconds=_MAX_RETRY_SECONDS,
            )
