"""Random entries of the curation log, undone in any order, against a model: rows as a dictionary, entries as images."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from memory.lifecycle.curation import undo_all, undo_entry
from memory.upkeep.maintenance import prune_log
from reverie.errors import Conflict, NotFound
from storage.curation import EntryDraft
from storage.memories.records import NewMemory
from storage.stores import Stores
from storage.transaction import AgentRepositories
from support.properties import for_steps

DAY = 24 * 3_600 * 1_000_000
NAMES = [f"m{number}" for number in range(6)]
names = st.sampled_from(NAMES)
importances = st.sampled_from([0.125, 0.25, 0.5, 0.75])
kinds = st.sampled_from(["change", "pin", "supersede", "delete", "add"])
# One entry changes up to three memories, or one memory more than once.
actions = st.lists(st.tuples(kinds, names, names, importances), min_size=1, max_size=3)

Row = dict[str, Any]


@dataclass
class Entry:
    """What an entry changed: each row before and after, by its number."""

    at: int
    changes: dict[int, tuple[Row | None, Row | None]] = field(default_factory=dict)
    undone: bool = False


class UndoMachine(RuleBasedStateMachine):
    """A job and an agent change memories; entries are undone, one by one or all, and the log is pruned."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.stores = Stores(Path(self.folder.name))
        self.store = self.stores.workspace("w")
        self.now = 400 * DAY
        self.rows: dict[int, Row] = {}
        self.entries: dict[int, Entry] = {}
        self.acted = False
        for name in NAMES[:4]:
            self.agent_adds(name)

    def teardown(self) -> None:
        self.stores.close()
        self.folder.cleanup()

    # --- the model ---

    def row_of(self, name: str) -> int | None:
        return next((number for number, row in self.rows.items() if row["id"] == name), None)

    def change_row(self, number: int, **values: Any) -> None:
        self.rows[number] = {**self.rows[number], **values}

    def delete_row(self, number: int) -> None:
        """Delete a row and all that it has replaced."""
        for replaced in [other for other, row in self.rows.items() if row["superseded_by"] == number]:
            if replaced in self.rows and replaced != number:
                self.delete_row(replaced)
        self.rows.pop(number, None)

    def can_undo(self, entry: Entry) -> bool:
        if entry.undone:
            return False
        for number, (before, after) in entry.changes.items():
            now = self.rows.get(number)
            if after is None or now is None:
                if now is not after:
                    return False
                continue
            if any(now[name] != value for name, value in after.items() if before is None or before[name] != value):
                return False
            # What an undone addition has replaced would be deleted with it.
            own = {own for own, (_, left) in entry.changes.items() if left is not None}
            if before is None and any(
                row["superseded_by"] == number and other not in own for other, row in self.rows.items()
            ):
                return False
        return self.after_undo(entry) is not None

    def after_undo(self, entry: Entry) -> dict[int, Row] | None:
        """Return the rows after an undo; None if a row would refer to one that is gone, or two would share an id."""
        rows = copy.deepcopy(self.rows)
        for number, (before, after) in entry.changes.items():
            if before is None:
                rows.pop(number, None)
            elif after is None:
                rows[number] = dict(before)
            else:
                rows[number] |= {name: value for name, value in before.items() if after[name] != value}
        ids = [row["id"] for row in rows.values()]
        dangling = any(row["superseded_by"] is not None and row["superseded_by"] not in rows for row in rows.values())
        return None if dangling or len(ids) != len(set(ids)) else rows

    # --- what agents and jobs do ---

    def act(self, rows: AgentRepositories, kind: str, name: str, other: str, importance: float) -> None:
        """Do one thing to the store and to the model, if it can be done."""
        number, target = self.row_of(name), self.row_of(other)
        self.now += 1
        if kind == "add" and number is None:
            self.add(rows, name, importance)
        elif number is None:
            return
        elif kind == "change":
            rows.memories.change(number, now=self.now, importance=importance)
            self.change_row(number, importance=importance, updated_at=self.now)
        elif kind == "pin":
            pinned = 1 - self.rows[number]["pinned"]
            rows.memories.change(number, now=self.now, pinned=pinned)
            self.change_row(number, pinned=pinned, updated_at=self.now)
        elif kind == "delete":
            rows.memories.delete([number])
            self.delete_row(number)
        elif kind == "supersede" and target is not None and self.may_supersede(number, target):
            rows.memories.supersede(number, by=target, now=self.now)
            self.change_row(number, superseded_by=target, superseded_at=self.now)
        else:
            return
        self.acted = True

    def add(self, rows: AgentRepositories, name: str, importance: float) -> None:
        added = rows.memories.add(
            NewMemory(id=name, content=f"about {name}", created_at=self.now, importance=importance), now=self.now
        )
        self.rows[added.row_id] = {
            "id": name,
            "importance": importance,
            "pinned": 0,
            "superseded_by": None,
            "superseded_at": None,
            "updated_at": self.now,
        }

    def may_supersede(self, number: int, target: int) -> bool:
        """Return whether one may replace the other: jobs replace what stands by what stands."""
        return (
            number != target
            and self.rows[number]["superseded_by"] is None
            and self.rows[target]["superseded_by"] is None
        )

    @rule(name=names)
    def agent_adds(self, name: str) -> None:
        with self.store.writing() as tx:
            self.act(tx.for_agent("ana"), "add", name, name, 0.5)

    @rule(kind=st.sampled_from(["change", "pin", "delete"]), name=names, importance=importances)
    def agent_changes(self, kind: str, name: str, importance: float) -> None:
        """Change something outside of the log, as users do."""
        with self.store.writing() as tx:
            self.act(tx.for_agent("ana"), kind, name, name, importance)

    @rule(done=actions)
    def job_changes(self, done: list[tuple[str, str, str, float]]) -> None:
        before = copy.deepcopy(self.rows)
        with self.store.writing() as tx:
            draft = EntryDraft("a test")
            with tx.curation.entry(draft, job="job", agent="ana", action="change", at=self.now) as number:
                entry, self.acted = Entry(self.now), False
                for kind, name, other, importance in done:
                    self.act(tx.for_agent("ana"), kind, name, other, importance)
        changed = {
            row: (before.get(row), self.rows.get(row))
            for row in before.keys() | self.rows.keys()
            if before.get(row) != self.rows.get(row)
        }
        entry.changes = copy.deepcopy(changed)
        if self.acted:  # an entry that recorded nothing is not kept
            self.entries[number] = entry

    # --- the log ---

    @rule(which=st.integers(0, 1_000))
    def undo_one(self, which: int) -> None:
        if self.entries:
            self.try_undo(sorted(self.entries)[which % len(self.entries)])

    def try_undo(self, number: int) -> None:
        entry = self.entries[number]
        possible = self.can_undo(entry)
        self.now += 1
        done = True
        try:
            undo_entry(self.store, agent="ana", entry=number, now=self.now)
        except Conflict:
            done = False
        assert done == possible
        if done:
            self.note_undone(entry)

    def note_undone(self, entry: Entry) -> None:
        rows = self.after_undo(entry)
        assert rows is not None
        self.rows, entry.undone = rows, True

    @rule()
    def undo_everything(self) -> None:
        done, failed = undo_all(self.store, agent="ana", now=self.now + 1)
        self.now += 1
        for number in sorted(self.entries, reverse=True):
            entry = self.entries[number]
            if entry.undone:
                assert number not in done
                assert number not in failed
                continue
            assert self.can_undo(entry) == (number in done)
            if number in done:
                self.note_undone(entry)

    @rule(days=st.integers(1, 60))
    def time_passes_and_the_log_is_pruned(self, days: int) -> None:
        self.now += days * DAY
        pruned = prune_log(self.store, now=self.now, keep_days=90)
        old = [number for number, entry in self.entries.items() if entry.at < self.now - 90 * DAY]
        assert pruned == len(old)
        for number in old:
            del self.entries[number]
            try:
                undo_entry(self.store, agent="ana", entry=number, now=self.now)
            except NotFound:
                continue
            raise AssertionError(f"entry {number} is gone and was undone")

    # --- what holds at all times ---

    @invariant()
    def the_rows_are_those_of_the_model(self) -> None:
        with self.store.reading() as tx:
            found = tx.connection.exec_driver_sql(
                "SELECT row_id, id, importance, pinned, superseded_by, superseded_at, updated_at FROM memories"
            )
            rows = {row.row_id: {name: getattr(row, name) for name in row._fields if name != "row_id"} for row in found}
        assert rows == self.rows

    @invariant()
    def the_log_is_that_of_the_model(self) -> None:
        with self.store.reading() as tx:
            entries = tx.for_agent("ana").curation.page(limit=100_000)
        assert {entry.id: entry.undone_at is not None for entry in entries} == {
            number: entry.undone for number, entry in self.entries.items()
        }


def test_random_entries_undone_in_any_order_leave_what_a_model_says() -> None:
    """Given random changes, undos and prunings, then rows and log are those of the model after each step."""
    run_state_machine_as_test(UndoMachine, settings=for_steps())
