"""What is done to somebody's rows while an erasure of them waits, runs, or has ended, does not bring them back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from memory.lifecycle import erasing
from memory.lifecycle.erasing import ErasureJob, continue_erasures
from memory.lifecycle.erasure_rows import RowErasure, Scope
from memory.lifecycle.erasures import read_erasure, request_erasure
from reverie import Reverie, contract
from reverie.errors import Conflict, NotFound
from reverie.trust.exports import (
    ExportedMessage,
    ExportedRecord,
    ExportedReminder,
    ExportedSchedule,
    ExportedSession,
    ImportRecords,
)
from storage.curation import EntryDraft
from storage.stores import Store
from support.byte_search import places_of
from support.stages import drain
from worker.runtime import Runtime

KATE = "kate-canary-5f2d91c07a"
SECRET = "The heron lantern of Cacilhas burns only on odd Thursdays"
FUTURE = datetime(2100, 1, 1, tzinfo=UTC)
OTHER = "Lif grows plums by the old pier"


def fill(runtime: Runtime, ana: Reverie) -> None:
    """Store what kate and lif say, remember and plan; a job has removed one memory of each."""
    for user, text in ((KATE, SECRET), ("lif", OTHER)):
        ana.ingest(f"of {user}", {"role": "user", "content": text, "id": "m"}, user=user)
        drain(runtime)
        for name in ("kept", "pruned", "shared"):
            ana.remember(
                f"{name}: {text}", id=f"{name} {user}", owner_user_id=user, session=f"of {user}", kind="preference"
            )
        ana.remember(f"account: {text}", id=f"account {user}", owner_user_id=user, tier="account", kind="preference")
        ana.facts.set("lantern", user, f"fact one: {text}", user=user)
        ana.facts.set("lantern", user, f"fact: {text}", user=user)
        ana.notes.add(f"note: {text}", note_id=f"note {user}", user=user)
        ana.items.put(["lanterns"], user, {"text": text}, user=user)
        ana.schedules.add(f"ask: {text}", id=f"schedule {user}", cron="0 9 * * *", user=user)
    drain(runtime)
    with runtime.store("default").writing() as tx:
        rows = tx.for_agent("ana")
        for user in (KATE, "lif"):
            draft = EntryDraft("it faded away")
            with tx.curation.entry(draft, job=contract.PRUNE_DECAYED, agent="ana", action="prune", at=runtime.now()):
                rows.memories.delete([rows.memories.get(f"pruned {user}").row_id])


def change_everything(ana: Reverie) -> None:
    """Do to kate's rows whatever keeps their words, as far as they are still there."""
    for change in (
        lambda: ana.curation.undo_all(everything=True),
        lambda: ana.memories.update(f"kept {KATE}", tags=["a"], user=KATE),
        lambda: ana.memories.update(f"shared {KATE}", visibility="shared", user=KATE),
        lambda: ana.memories.confirm(f"kept {KATE}", user=KATE),
        lambda: ana.notes.update(f"note {KATE}", tags=["a"], user=KATE),
        lambda: ana.schedules.update(f"schedule {KATE}", name="another", user=KATE),
        lambda: ana.sessions.archive(f"of {KATE}", force=True, user=KATE),
        lambda: ana.sessions.start(f"of {KATE}", user=KATE),
        lambda: ana.facts.set("lantern", KATE, "no longer known", user=KATE),
    ):
        with suppress(NotFound, Conflict):
            change()


def erase(runtime: Runtime, scope: Scope) -> None:
    """Erase, and go on until nothing waits any more."""
    data = runtime.settings.data
    erasure = request_erasure(runtime.stores, data, scope, requested_by="tester", now=runtime.now())
    for _ in range(2):
        continue_erasures(runtime.erasure_services)
        drain(runtime)
    done = read_erasure(runtime.stores, erasure.id)
    assert done.receipt is not None, done.error
    assert done.receipt.leftovers == {}


@contextmanager
def before(step: str, act: Callable[[], None]) -> Iterator[None]:
    """Act once, before the job does a step."""
    with pytest.MonkeyPatch.context() as patch:
        work, acts = erasing._RUN[step], iter([act])

        def meanwhile(job: ErasureJob) -> str | None:
            for one in acts:
                one()
            return work(job)

        patch.setitem(erasing._RUN, step, meanwhile)
        yield


@pytest.mark.sqlite("searches the bytes of its files")
@pytest.mark.parametrize("step", ["mark", "inbox", "rows", "rows again", "release", "pages"])
def test_what_is_erased_does_not_come_back(runtime: Runtime, ana: Reverie, step: str) -> None:
    """Given kate's rows, when they are undone and changed while they are erased, then they go, and others stay."""
    fill(runtime, ana)
    with before(step, lambda: change_everything(ana)):
        erase(runtime, Scope("user", KATE, None, None))
    change_everything(ana)
    drain(runtime)
    assert places_of(runtime.settings.data, SECRET) == set()
    kept = {memory.content for memory in ana.memories.list(user="lif")}
    assert {f"{name}: {OTHER}" for name in ("kept", "pruned", "shared", "account", "note")} <= kept
    assert ana.facts.get("lantern", "lif", user="lif").value == f"fact: {OTHER}"
    assert [message.content for message in ana.sessions.messages("of lif")] == [OTHER]


def test_who_joins_a_session_while_it_is_erased_keeps_what_they_said(
    runtime: Runtime, ana: Reverie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a session of kate's that was chosen to be removed, when lif speaks there, then only kate's words go."""
    fill(runtime, ana)
    remove, joined = RowErasure._erase_part, []

    def join_and_remove(rows: RowErasure, store: Store, *arguments: Any) -> int | None:
        if store.name == "default" and not joined:
            joined.append(ana.ingest(f"of {KATE}", {"role": "user", "content": "Lif is here"}, user="lif"))
            drain(runtime)
        return remove(rows, store, *arguments)

    monkeypatch.setattr(RowErasure, "_erase_part", join_and_remove)
    erase(runtime, Scope("user", KATE, None, None))
    assert [message.content for message in ana.sessions.messages(f"of {KATE}", user="lif")] == ["Lif is here"]
    assert places_of(runtime.settings.data, SECRET) == set()


@pytest.mark.parametrize("kind", ["user", "agent"])
def test_imported_rows_with_times_in_the_future_are_erased(
    runtime: Runtime, ana: Reverie, kind: Literal["user", "agent"]
) -> None:
    """Given rows that were made in 2100 by the clock of another installation, then an erasure takes them along."""
    place = {"workspace": "default", "agent": "ana"}
    at = {"created_at": FUTURE, "user": KATE}
    said: dict[str, Any] = {**place, **at, "sequence": 1, "role": "user", "content": SECRET}
    records: list[ExportedRecord] = [
        ExportedSession(**place, id="s", ref_code="0123456789a", started_at=FUTURE, updated_at=FUTURE, user=KATE),
        ExportedMessage(**said, id="in a session", session="s"),
        ExportedMessage(**said, id="in none", session="t"),
        ExportedReminder(
            **place, **at, id="r", session="s", recipient=KATE, message=SECRET, due_at=FUTURE, delivery="pull"
        ),
        ExportedSchedule(
            **place, **at, id="p", goal=SECRET, updated_at=FUTURE, cadence={"type": "interval", "seconds": 3600},
            executor={"type": "llm"}, policy="always", status="paused", timeout_seconds=60, recall_limit=5,
        ),
    ]  # fmt: skip
    report = ana.connection.send(ImportRecords(records=records, trusted=True))
    assert sum(report.added.values()) == len(records)
    drain(runtime)
    erase(runtime, Scope(kind, KATE if kind == "user" else "", None if kind == "user" else "ana", None))
    assert places_of(runtime.settings.data, SECRET) == set()
