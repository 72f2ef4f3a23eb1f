"""Extract memories from what users say about themselves, from each session once it has been silent for a while.

The job works store by store; the end of a session extracts from that session at once. A session is read window by
window, with a language model or by patterns. Findings and the position up to which the session was read are committed
together, if the stored position is still the one from which it was read. So each finding is stored once, even if a
reader is killed or two read at the same time. A model that is down or gives an invalid answer changes nothing, not even
the position, unless patterns replace it. It is asked about several short sessions of a user in one call.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from adapters.language_models import LanguageModel, LanguageModelRefused, LanguageModelUnavailable
from memory.idle_stores import DueJob, IdleStores, run_where_due
from memory.jobs import ORDINARY_RUN, JobRun, RunOptions
from memory.memories.extraction_windows import (
    ANSWER_TOKENS,
    INSTRUCTIONS,
    KNOWN_MEMORIES,
    Extraction,
    ExtractionRules,
    Window,
    checked_findings,
    fits_with,
    is_evidence,
    next_window,
    progress_of,
    prompt_for,
)
from memory.memories.findings import Finding, FindingSaver, Origin, found_by_patterns, normalised
from memory.stage import MAX_CRASHES, Withdrawn, letter_of_crash, require_wanted
from reverie import contract
from reverie.clock import CLOCK_TOLERANCE_MICROS, SECOND_MICROS, now_micros
from reverie.errors import ReverieError, StoreUnusable, Transient
from storage.memories.extraction import (
    EXTRACT_STAGE,
    RECHECK_MICROS,
    ExtractionProgress,
    KnownMemories,
    SourceMessage,
    WaitingSession,
)
from storage.stores import Store, Stores
from storage.transaction import Transaction

# Positions of sessions without findings that are saved in one commit, and after how long at the latest.
_POSITIONS_PER_COMMIT: Final = 200
_SAVE_SECONDS: Final = 1.0
# Memories that are searched for the names of a user's people and pets: those told last.
_MAX_WITH_NAMES: Final = 1_000
# Pause before a session is tried again after the model failed and nothing replaced it; doubles each time.
_FIRST_RETRY_SECONDS: Final = 60.0
_MAX_RETRY_SECONDS: Final = 3_600.0


@dataclass(slots=True)
class Positions:
    """Positions of sessions in which nothing was found, saved many at a time.

    A commit for each would only make other writers wait. After a crash these sessions are read again.
    """

    writing: Callable[[], AbstractContextManager[Transaction]]
    counts: Counter[str]
    now: int
    # Called in a dry run with each finding that a real run would save: agent, session, content.
    on_found: Callable[[str, str, str], None] = lambda *_: None
    _unsaved: list[tuple[WaitingSession, int]] = field(default_factory=list)
    _saved_at: float = field(default_factory=time.monotonic)

    @property
    def is_late(self) -> bool:
        """Whether no position was saved for some time: a long session then saves its position while it is read."""
        return time.monotonic() - self._saved_at > _SAVE_SECONDS

    def note(self, session: WaitingSession, position: int) -> None:
        """Note that a session was read up to the sequence `position`; `session` still has the old position."""
        self._unsaved.append((session, position))
        if len(self._unsaved) >= _POSITIONS_PER_COMMIT or self.is_late:
            self.save()

    def save(self, *, ended: Sequence[WaitingSession] = ()) -> None:
        """Commit the noted positions, except those that another reader has moved meanwhile.

        The same commit notes that nobody reads the sessions in `ended` any more.
        """
        self._saved_at = time.monotonic()
        if not self._unsaved and not ended:
            return
        with self.writing() as tx:
            for session, position in self._unsaved:
                if not _advance(tx, session, to=position):
                    self.counts["read_elsewhere"] += 1
            progress_of(tx).attempts.end([session.ref_code for session in ended])
        self._unsaved.clear()


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
    # The first window and its findings, if a model was asked about several sessions before they were read.
    _first_window: Window | None = None
    _answered: list[Finding] | LanguageModelUnavailable | None = None
    _known_people: list[str] | None = None

    @property
    def counts(self) -> Counter[str]:
        """Counts of found, stored and dropped memories, by reason."""
        return self.positions.counts

    @property
    def now(self) -> int:
        """The time of the run in microseconds."""
        return self.positions.now

    def read(self, time_is_up: Callable[[], bool]) -> None:
        """Read to the end, or until the time is up, the model fails, or another reader has moved the position."""
        read_to = start = self.session.position
        while read_to == start or not time_is_up():
            window, self._first_window = self._first_window or self._window(read_to), None
            if not window.new:
                # Messages that were removed before they were read do not keep the session waiting.
                read_to = max(read_to, self.session.last_sequence)
                break
            try:
                findings = self._find(window)
            except Withdrawn:
                self.counts["forgotten"] += 1
                return
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

    def first_window(self) -> Window:
        """Return the window that `read` will begin with."""
        if self._first_window is None:
            self._first_window = self._window(self.session.position)
        return self._first_window

    def has_evidence(self, window: Window) -> bool:
        """Return whether a window has a user's message that is long enough to ask a model about."""
        return any(is_evidence(message, self.extractor.rules.min_characters) for message in window.new)

    def ask_ahead(self, model: LanguageModel, others: Sequence[SessionReader]) -> None:
        """Ask a model about the first windows of this session and others in one call, before they are read.

        If it refuses them together, each is asked about alone.
        """
        readers = (self, *others)
        answers: Sequence[list[Finding] | LanguageModelUnavailable]
        try:
            answers = self._ask_model(model, [reader.first_window() for reader in readers])
        except (LanguageModelRefused, Withdrawn):
            return
        except LanguageModelUnavailable as error:
            answers = [error] * len(readers)
        for reader, answer in zip(readers, answers, strict=True):
            reader._answered = answer

    def _window(self, read_to: int) -> Window:
        with self.store.reading() as tx:
            return next_window(tx, replace(self.session, position=read_to), for_model=self.extractor.model is not None)

    def _find(self, window: Window) -> list[Finding] | None:
        """Return the findings of a window; None if the model failed and patterns may not replace it."""
        rules = self.extractor.rules
        by_users = [message for message in window.new if is_evidence(message, 1)]
        if self.extractor.model is not None and self.has_evidence(window):
            try:
                by_model = self._by_model(self.extractor.model, window)
                if self._is_reliable(self.extractor.model, by_model, by_users, window) or not rules.fallback:
                    return [*by_model, *self._added_by_patterns(by_users, by_model, window)]
                self.counts["model_found_nothing"] += 1
            except LanguageModelUnavailable:
                self.counts["model_unavailable"] += 1
            except LanguageModelRefused:
                self.counts["model_refused"] += 1
            if not rules.fallback:
                return None
        return self._by_patterns(by_users, window)

    def _by_patterns(self, by_users: Sequence[SourceMessage], window: Window) -> list[Finding]:
        return list(found_by_patterns(by_users, now=self.now, before=window.before, known=self._about_people(by_users)))

    def _is_reliable(
        self, model: LanguageModel, by_model: Sequence[Finding], by_users: Sequence[SourceMessage], window: Window
    ) -> bool:
        """Return whether to rely on a model that found this: one that never finds what patterns find has a fault."""
        if by_model:
            return model.note_found(True)
        shown = [message for message in by_users if is_evidence(message, self.extractor.rules.min_characters)]
        return not self._by_patterns(shown, window) or model.note_found(False)

    def _about_people(self, messages: Sequence[SourceMessage]) -> Iterable[str]:
        """Return what is known of the people and pets of the user of these messages: it tells their names."""
        if self._known_people is None and messages and not self.session.is_group:
            owner = messages[0].user or self.session.user
            with self.store.reading() as tx:
                known = KnownMemories(tx.connection, self.session.agent).newest(owner=owner, limit=_MAX_WITH_NAMES)
            withdrawn = self.store.withdrawn("memories", [one.row_id for one in known])
            self._known_people = [one.content for one in known if one.owner == owner and one.row_id not in withdrawn]
        return self._known_people or ()

    def _added_by_patterns(
        self, by_users: Sequence[SourceMessage], by_model: Sequence[Finding], window: Window
    ) -> list[Finding]:
        """Return the findings that patterns add to a model's: those of short messages, and revocations."""
        read = {finding.message.id for finding in by_model}
        minimum = self.extractor.rules.min_characters
        found = found_by_patterns(
            by_users,
            now=self.now,
            before=window.before,
            known=self._about_people(by_users),
            instructions_only=lambda message: is_evidence(message, minimum),
        )
        return [
            finding
            for finding in found
            if finding.message.id not in read
            and (finding.takes_back is not None or not is_evidence(finding.message, minimum))
        ]

    def _by_model(self, model: LanguageModel, window: Window) -> list[Finding]:
        answered, self._answered = self._answered, None
        if isinstance(answered, LanguageModelUnavailable):
            raise answered
        return self._ask_model(model, [window])[0] if answered is None else answered

    def _ask_model(self, model: LanguageModel, windows: Sequence[Window]) -> list[list[Finding]]:
        """Return what a model finds in each of some windows that fit together (see `fits_with`)."""
        rules, owner = self.extractor.rules, windows[0].owner
        with self.store.reading() as tx:
            own_known = KnownMemories(tx.connection, self.session.agent).newest(owner=owner, limit=KNOWN_MEMORIES)
        with self.extractor.account().reading() as tx:
            account_known = self._known_in_account(tx).newest(owner=owner, limit=KNOWN_MEMORIES)
        withdrawn = self.store.withdrawn("memories", [known.row_id for known in own_known])
        own_known = [known for known in own_known if known.row_id not in withdrawn]
        withdrawn = self.extractor.account().withdrawn("memories", [known.row_id for known in account_known])
        account_known = [known for known in account_known if known.row_id not in withdrawn]
        messages = [message.row_id for window in windows for message in (*window.before, *window.new)]
        prompt = prompt_for(windows, [*account_known, *own_known], rules)

        def check() -> None:
            require_wanted(self.store, "messages", messages)
            require_wanted(self.store, "memories", [known.row_id for known in own_known])
            require_wanted(self.extractor.account(), "memories", [known.row_id for known in account_known])

        answer = model.complete_structured(
            INSTRUCTIONS, prompt, ANSWER_TOKENS, form=Extraction, purpose="extraction", check=check
        ).value
        model.note_read(sum(len(window.new) for window in windows), purpose="extraction")
        self.counts["model_calls"] += 1
        findings, dropped = checked_findings(answer, windows, rules, now=self.now)
        self.counts.update({f"dropped_{reason}": count for reason, count in dropped.items()})
        return findings

    def _save(self, findings: Sequence[Finding], read_to: int) -> bool:
        """Commit findings with the new position; False if the session was read or forgotten in the meantime."""
        certain = [finding for finding in findings if finding.confidence >= self.extractor.rules.threshold]
        certain = self._without_account_memories(certain)
        # The instruction that is taken back may apply in this workspace or in all.
        in_account = [replace(finding, tier="account") for finding in certain if finding.takes_back is not None]
        self.counts["found"] += len(certain)
        if self.dry_run:
            for finding in certain:
                self.positions.on_found(self.session.agent, self.session.id, finding.content)
            return True
        if not self._save_in_account([*(finding for finding in certain if finding.tier == "account"), *in_account]):
            return False
        with self.positions.writing() as tx:
            if not _advance(tx, self.session, to=read_to):
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


# The sweep runs several times a minute: what one run does not reach, the next one does.
BUDGET_SECONDS: Final = 120.0
# At most so many sessions are read in a run; the rest are left to the next run. Most need no model.
MAX_SESSIONS: Final = 1_000
# A session that is never silent is read after this many times the silence.
NEVER_SILENT: Final = 10

# How long a session whose readers died waits behind all others. It kills at most three runs, then it is set aside.
_SUSPECT_WAITS_MICROS: Final = 600 * SECOND_MICROS

# Sessions that are read between two commits. A commit for each would only make other writers wait.
_GROUP_SESSIONS: Final = 50


def extract_memories(
    stores: Stores,
    extractor: Extractor,
    *,
    now: int,
    idle_stores: IdleStores | None = None,
    options: RunOptions = ORDINARY_RUN,
) -> dict[str, Any]:
    """Extract from every session that is due; return the counts of each workspace and the totals.

    `idle_stores` remembers the workspaces in which no session waits.
    """

    def due_at(store: Store) -> int | None:
        with store.reading() as tx:
            if progress_of(tx).oldest_waiting(now=now) is None:
                return None
            # If sessions wait but none is due yet, the next sweep checks again.
            return now if _due_sessions(tx, extractor.rules, now, options.scope.agent) else now + 1

    return run_where_due(
        stores,
        DueJob(contract.EXTRACT_MEMORIES, lambda run: extract_due(run, extractor), due_at),
        now=now,
        idle_stores=idle_stores,
        options=replace(options, budget_seconds=BUDGET_SECONDS),
    )


def extract_due(run: JobRun, extractor: Extractor) -> None:
    """Read every session of a store that is due, until the time of the run is up."""
    with run.store.reading() as tx:
        due = _due_sessions(tx, extractor.rules, run.now, run.agent)
        deaths = progress_of(tx).attempts.deaths()
    positions = Positions(
        run.writing,
        run.counts,
        run.now,
        on_found=lambda agent, session, content: run.plan(agent, "extract", f"session {session}", content),
    )
    reached = 0
    for group in _groups(due, deaths, run.now):
        if run.time_is_up:
            break
        reached += _read_group(run, extractor, group, positions, deaths.get(group[0].ref_code, 0))
    if reached < len(due):
        run.counts["not_reached"] += len(due) - reached
    if not run.dry_run:
        positions.save()


def _groups(due: Sequence[WaitingSession], deaths: Mapping[str, int], now: int) -> Iterator[list[WaitingSession]]:
    """Yield groups of sessions to read together. Those whose readers died come last and alone, by number of deaths.

    One that has waited long is read first, or it would never be where more sessions come than a run has time for.
    """
    unsuspected = [session for session in due if session.ref_code not in deaths]
    suspects = [session for session in due if session.ref_code in deaths]
    suspects.sort(key=lambda session: deaths[session.ref_code])
    overdue = next((session for session in suspects if now - session.updated_at > _SUSPECT_WAITS_MICROS), None)
    if overdue is not None:
        yield [overdue]
    for start in range(0, len(unsuspected), _GROUP_SESSIONS):
        yield unsuspected[start : start + _GROUP_SESSIONS]
    yield from ([session] for session in suspects if session is not overdue)


def _read_group(
    run: JobRun, extractor: Extractor, group: Sequence[WaitingSession], positions: Positions, deaths: int
) -> int:
    """Read a group of sessions whose readers have died `deaths` times each; return how many sessions were reached.

    The start of reading is noted, so that a session that kills its worker is found. After three deaths (it was read
    alone in the last two) its messages so far are set aside, and only later ones are read.
    """
    if deaths >= MAX_CRASHES and not run.dry_run:
        _set_aside(run, group[0], deaths)
        return 1
    if not run.dry_run:
        with run.writing() as tx:
            progress_of(tx).attempts.begin([session.ref_code for session in group], now=now_micros())
            _move_watermark(progress_of(tx), run.now)
    try:
        reached = _read_together(run, extractor, group, positions)
    except (Transient, StoreUnusable):  # no text did this: the store is locked, for example
        if not run.dry_run:
            with suppress(ReverieError), run.writing() as tx:
                progress_of(tx).attempts.end([session.ref_code for session in group])
        raise
    if not run.dry_run:
        positions.save(ended=group)
    return reached


def _read_together(run: JobRun, extractor: Extractor, group: Sequence[WaitingSession], positions: Positions) -> int:
    reached = 0
    readers = [SessionReader(run.store, extractor, session, positions, run.dry_run) for session in group]
    for together in _asked_together(readers) if extractor.model is not None else ([reader] for reader in readers):
        if run.time_is_up:
            break
        if extractor.model is not None and len(together) > 1:
            together[0].ask_ahead(extractor.model, together[1:])
        for reader in together:
            reader.read(lambda: run.time_is_up)
        reached += len(together)
    return reached


def _asked_together(readers: Sequence[SessionReader]) -> Iterator[list[SessionReader]]:
    """Yield the readers of a group; those whose sessions fit into one call of a model are yielded together."""
    together: list[SessionReader] = []
    # The sort is stable: a user's sessions keep their order, so that the newer statement is found last.
    for reader in sorted(readers, key=lambda reader: (reader.session.agent, reader.session.user or "")):
        window = reader.first_window()
        if not reader.has_evidence(window):
            yield [reader]
            continue
        of_same_agent = not together or together[0].session.agent == reader.session.agent
        if not of_same_agent or not fits_with(window, [one.first_window() for one in together]):
            yield together
            together = []
        together.append(reader)
    if together:
        yield together


def _advance(tx: Transaction, session: WaitingSession, *, to: int) -> bool:
    """Move the position of a session that was read; False if another reader moved it or the session was forgotten.

    The time of the move is the clock's, not that of the run's beginning: it shows that the run gets on. If a dead
    letter of these messages was replayed, it is removed: they have been read.
    """
    if not progress_of(tx).advance(session, to=to, now=now_micros()):
        return False
    letter = (session.agent, f"{session.ref_code} {session.position}", "")
    tx.dead_letters.remove_of_items(EXTRACT_STAGE, [letter])
    return True


def _set_aside(run: JobRun, session: WaitingSession, deaths: int) -> None:
    """Skip the messages of a session that kills its reader; a replay of the dead letter reads them again."""
    messages = f"messages {session.position + 1} to {session.last_sequence}"
    doing = f"looked for memories in session {session.id!r}, in {messages}"
    item_id = f"{session.ref_code} {session.position}"
    letter = letter_of_crash(session.agent, EXTRACT_STAGE, item_id, deaths, doing, session=session.id)
    with run.writing() as tx:
        progress = progress_of(tx)
        if progress.advance(session, to=session.last_sequence, now=run.now):
            tx.dead_letters.add([letter], now=run.now)
            run.counts["set_aside"] += 1
        progress.attempts.end([session.ref_code])


def extract_session(store: Store, extractor: Extractor, *, agent: str, session: str, now: int) -> Counter[str]:
    """Read one session to its end without waiting for silence, as when it is closed; return counts.

    Needs no lease: findings are committed together with the session's position, so of two readers one commits.
    """
    counts: Counter[str] = Counter()
    with store.reading() as tx:
        waiting = progress_of(tx).waiting_session(agent, session)
    if waiting is not None:
        positions = Positions(store.writing, counts, now)
        SessionReader(store, extractor, waiting, positions, False).read(lambda: False)
        positions.save()
    return counts


def _due_sessions(tx: Transaction, rules: ExtractionRules, now: int, agent: str | None) -> list[WaitingSession]:
    progress = progress_of(tx)
    waiting = progress.waiting(now=now, limit=MAX_SESSIONS, agent=agent)
    return [session for session in waiting if _is_due(progress, session, rules, now)]


def _is_due(progress: ExtractionProgress, session: WaitingSession, rules: ExtractionRules, now: int) -> bool:
    silence = int(rules.debounce_seconds * SECOND_MICROS)
    # A time in the future means that the session was written before the clock was set back.
    if now - session.updated_at >= silence or session.updated_at > now + max(silence, CLOCK_TOLERANCE_MICROS):
        return True
    return now - progress.first_waiting_since(session) >= NEVER_SILENT * silence


def _move_watermark(progress: ExtractionProgress, now: int) -> None:
    """Move the watermark up to the session that has waited longest; rarely, because it is a write."""
    oldest = progress.oldest_waiting(now=now)
    up_to = min(now, now if oldest is None else oldest) - RECHECK_MICROS
    if up_to - progress.watermark(now) > RECHECK_MICROS:
        progress.set_watermark(up_to=up_to, now=now)
