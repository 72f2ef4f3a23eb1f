"""The curation log: whatever a job changes is logged whole, and undone it is what it was, in every table."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from adapters.embedders.base import HashEmbedder
from adapters.embedders.record import EmbedderRecord
from memory.lifecycle.curation import CurationLogs, undo_all, undo_entry
from memory.lifecycle.forgetting import RemovalServices, forget_workspace
from memory.memories.agent_memories import AgentMemories
from memory.pipeline import chunking
from memory.pipeline.chunking import cut
from memory.pipeline.reembedding import ReembedControl, ReembedTarget, reembed
from reverie.errors import Conflict, NotFound
from storage.curation import EVERY_ENTRY, EntryDraft
from storage.lifecycle.undo import undo
from storage.memories.records import NewMemory
from storage.pipeline.records import NewChunk, SourceText
from storage.rows import tables_of
from storage.transaction import AgentRepositories, Transaction
from storage.verify import verify
from support.curating import NOW, everything, recalled, remember
from support.index_content import recorded_tables
from support.pipeline import WORKSPACE, Pipeline

pytestmark = pytest.mark.slow

Change = Callable[[Transaction, AgentRepositories], None]
LATER = NOW + 1_000


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A workspace with a session of ana's, and five memories that are indexed and were recalled."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("we had walnuts for dinner", "and figs", session="s")
    pipe.settle()
    made = [
        remember(pipe, "walnuts", "ana likes walnuts " * 60, tags=("food", "nuts"), importance=0.1 + 0.2),
        remember(pipe, "home", "home city: Lisbon", category="home", key="city", value="Lisbon", subject="home"),
        remember(pipe, "talk", "what was said in this conversation", tier="conversation", session="s"),
        remember(pipe, "note", "a note", note_id="n1", kind="note", metadata={"a": [1, {"b": "ü\u2028"}]}),
        remember(pipe, "old", "an old story", lifetime="long_term"),
    ]
    pipe.settle()
    for memory in made:
        recalled(pipe, memory, times=2)
    yield pipe
    pipe.close()


def curate(pipe: Pipeline, change: Change, *, action: str = "change", agent: str = "ana", **more: Any) -> int:
    """Do something as a job does; returns the entry."""
    with pipe.store.writing() as tx, entry(tx, action=action, agent=agent, **more) as entry_id:
        change(tx, tx.for_agent(agent))
    return entry_id


def entry(tx: Transaction, *, action: str = "change", agent: str = "ana", **more: Any) -> AbstractContextManager[int]:
    fields = {"job": "reverie.test", "agent": agent, "action": action, "at": LATER, **more}
    return tx.curation.entry(EntryDraft("a test"), **fields)


def put_back(pipe: Pipeline, entry_id: int) -> None:
    undo_entry(pipe.store, agent="ana", entry=entry_id, now=LATER + 1)
    assert verify(pipe.store).wrong == []


def row_of(rows: AgentRepositories, name: str) -> int:
    return rows.memories.get(name).row_id


def prune(*names: str) -> Change:
    def change(_: Transaction, rows: AgentRepositories) -> None:
        rows.memories.delete([row_of(rows, name) for name in names])

    return change


def add(name: str, **more: Any) -> Change:
    def change(_: Transaction, rows: AgentRepositories) -> None:
        rows.memories.add(NewMemory(id=name, content=f"new: {name}", created_at=LATER, **more), now=LATER)

    return change


def replace_fact(_: Transaction, rows: AgentRepositories) -> None:
    """A newer fact takes the place of one that stands: it can only be added once that one has made way."""
    old = row_of(rows, "home")
    rows.memories.supersede(old, by=old, now=LATER)
    new = rows.memories.add(
        NewMemory(id="new-home", content="home city: Porto", created_at=LATER, category="home", key="city", value="P"),
        now=LATER,
    )
    rows.memories.supersede(old, by=new.row_id, now=LATER)


def merge(_: Transaction, rows: AgentRepositories) -> None:
    kept, gone = rows.memories.get("walnuts"), rows.memories.get("old")
    rows.memories.change(
        kept.row_id, now=LATER, access_count=kept.access_count + gone.access_count, tags=("food", "story"),
        importance=0.7000000000000001,
    )  # fmt: skip
    rows.memories.supersede(gone.row_id, by=kept.row_id, now=LATER)


def promote(tx: Transaction, rows: AgentRepositories) -> None:
    rows.memories.change(row_of(rows, "walnuts"), now=LATER, lifetime="long_term", concept_tags=("walnut",))
    tx.connection.execute(
        text(
            "INSERT INTO memory_promotions (agent_id, memory_id, promoted_at, score, phase) VALUES"
            " ('ana', 'walnuts', :now, 0.30000000000000004, 'deep')"
        ),
        {"now": LATER},
    )


def summarise(tx: Transaction, rows: AgentRepositories) -> None:
    session = rows.sessions.get("s").row_id
    tx.connection.execute(
        text(
            "UPDATE sessions SET summary_text = 'dinner', summary_epoch = 1, summary_upper_sequence = 2,"
            " status = 'idle', ended_at = :now WHERE row_id = :row"
        ),
        {"now": LATER, "row": session},
    )
    tx.connection.execute(
        text("UPDATE messages SET consolidated_at = :now WHERE session_row = :row"), {"now": LATER, "row": session}
    )


def rewrite(_: Transaction, rows: AgentRepositories) -> None:
    rows.memories.rewrite(row_of(rows, "home"), "home city: Faro", now=LATER, value="Faro")


def retag(_: Transaction, rows: AgentRepositories) -> None:
    rows.memories.change(row_of(rows, "walnuts"), now=LATER, tags=("nuts", "ü"), expires_at=LATER, pinned=True)


ACTIONS: dict[str, Change] = {
    "prune": prune("walnuts"),
    "prune several": prune("home", "note", "talk"),
    "add": add("m", tags=("t",), importance=1 / 3, metadata={"x": None}),
    "replace a fact": replace_fact,
    "merge": merge,
    "promote": promote,
    "summarise": summarise,
    "rewrite": rewrite,
    "retag": retag,
}


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("settled", [False, True], ids=["at once", "after the pipeline"])
def test_undone_every_table_is_what_it_was(pipe: Pipeline, name: str, settled: bool) -> None:
    """Given an action of a job, when undone before or after the pipeline followed it, then every row is as before."""
    before = everything(pipe.store)
    entry_id = curate(pipe, ACTIONS[name])
    changed = everything(pipe.store)
    assert changed != before
    if settled:
        pipe.settle()
    assert verify(pipe.store).wrong == []
    put_back(pipe, entry_id)
    assert everything(pipe.store) == before
    pipe.settle()
    assert everything(pipe.store) == before


@pytest.mark.parametrize("seed", range(6))
def test_any_number_of_actions_undone_in_reverse_leave_nothing_of_them(pipe: Pipeline, seed: int) -> None:
    """Given random actions of jobs with the pipeline between them, when all are undone, then every row is as before."""
    chance = random.Random(seed)
    before = everything(pipe.store)
    for number in range(chance.randrange(4, 14)):
        curate(pipe, _at_random(chance, number))
        if chance.random() < 0.5:
            pipe.settle()
        assert verify(pipe.store).wrong == []
    done, failed = undo_all(pipe.store, agent="ana", now=LATER)
    assert failed == {}
    assert done == sorted(done, reverse=True)
    assert everything(pipe.store) == before
    assert verify(pipe.store).wrong == []


def _at_random(chance: random.Random, number: int) -> Change:
    def change(tx: Transaction, rows: AgentRepositories) -> None:
        now = LATER + number
        standing = [memory.row_id for memory in rows.memories.page(limit=100)]
        if not standing or chance.random() < 0.3:
            made = NewMemory(id=f"m{number}", content=f"made {number}", created_at=now, importance=chance.random(),
                             tags=("made",), session=chance.choice(["s", None]))  # fmt: skip
            standing.append(rows.memories.add(made, now=now).row_id)
        one, other = chance.choice(standing), chance.choice(standing)
        match chance.randrange(6):
            case 0:
                rows.memories.delete([one])
            case 1 if one != other:
                rows.memories.supersede(one, by=other, now=now)
            case 2:
                rows.memories.change(one, now=now, importance=chance.random(), tags=chance.choice([(), ("a", "b")]))
            case 3:
                rows.memories.rewrite(one, f"written anew {number}", now=now)
            case 4:
                rows.memories.detach_superseded([one])
                rows.memories.delete([one])
            case _:
                tx.connection.execute(
                    text("UPDATE sessions SET summary_text = :text, summary_epoch = summary_epoch + 1"),
                    {"text": f"summary {number}"},
                )

    return change


def test_what_was_counted_since_is_kept(pipe: Pipeline) -> None:
    """Given a merge that added access counts, when the memory is recalled and the merge undone, then that stays."""
    with pipe.store.reading() as tx:
        first = tx.for_agent("ana").memories.get("walnuts")
    entry_id = curate(pipe, merge)
    recalled(pipe, first, times=3)
    put_back(pipe, entry_id)
    with pipe.store.reading() as tx:
        now = tx.for_agent("ana").memories.get("walnuts")
    assert (now.access_count, now.tags, now.importance) == (first.access_count + 3, first.tags, first.importance)
    assert now.accessed_at > first.accessed_at


def test_chunks_made_since_carry_the_old_tags(pipe: Pipeline) -> None:
    """Given tags changed before the memory was chunked, when undone after, then its chunks carry the old ones."""
    memory = remember(pipe, "late", tags=("old",))
    entry_id = curate(pipe, lambda _, rows: rows.memories.change(memory.row_id, now=LATER, tags=("new",)))
    pipe.settle()
    put_back(pipe, entry_id)
    held = "(SELECT id FROM chunks WHERE memory_row = (SELECT row_id FROM memories WHERE id = 'late'))"
    assert pipe.count("chunk_tags", f"tag = 'old' AND chunk_id IN {held}") == 1
    assert pipe.count("chunk_tags", f"tag = 'new' AND chunk_id IN {held}") == 0


def test_a_worker_that_cuts_what_is_undone_meanwhile_writes_nothing(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a memory that was rewritten, when that is undone while its chunks are cut, then only the old ones stay."""
    before = everything(pipe.store)
    entry_id = curate(pipe, rewrite)

    def undone_meanwhile(source: SourceText, check: Callable[[], None]) -> list[NewChunk]:
        put_back(pipe, entry_id)
        return cut(source, check)

    monkeypatch.setattr(chunking, "cut", undone_meanwhile)
    pipe.chunk()
    assert verify(pipe.store).wrong == []
    assert everything(pipe.store) == before


def test_what_a_person_changed_since_is_not_overwritten(pipe: Pipeline) -> None:
    """Given a promotion, when a person changed the memory since, then the undo is refused and changes nothing."""
    entry_id = curate(pipe, promote)
    with pipe.store.writing() as tx:
        rows = tx.for_agent("ana")
        rows.memories.change(row_of(rows, "walnuts"), now=LATER + 5, importance=1.0)
    before = everything(pipe.store)
    with pytest.raises(Conflict, match=f"entry {entry_id} cannot be undone: a row of memories has been changed since$"):
        undo_entry(pipe.store, agent="ana", entry=entry_id, now=LATER)
    assert everything(pipe.store) == before


def test_a_later_entry_has_to_be_undone_first(pipe: Pipeline) -> None:
    """Given two entries about a memory, when the first is to be undone, then the error names the second."""
    before = everything(pipe.store)
    first = curate(pipe, promote)
    other = curate(pipe, retag)
    second = curate(pipe, prune("walnuts"))
    with pytest.raises(Conflict, match=f"undo entry {other} first"):
        undo_entry(pipe.store, agent="ana", entry=first, now=LATER)
    for entry_id in (second, other, first):
        put_back(pipe, entry_id)
    assert everything(pipe.store) == before


def test_an_undone_entry_is_not_undone_again(pipe: Pipeline) -> None:
    """Given an entry that was undone, when undone again, then that is an error."""
    entry_id = curate(pipe, promote)
    put_back(pipe, entry_id)
    with pytest.raises(Conflict, match="has already been undone"):
        undo_entry(pipe.store, agent="ana", entry=entry_id, now=LATER)
    with pipe.store.reading() as tx:
        assert tx.curation.undone("change") == {("ana", "walnuts")}


def test_a_memory_that_has_taken_anothers_place_since_is_not_taken_away(pipe: Pipeline) -> None:
    """Given a memory that a job added, when one gave way to it since, then its undo is refused until that is undone."""
    added = curate(pipe, add("m"))

    def lower_priority(_: Transaction, rows: AgentRepositories) -> None:
        rows.memories.supersede(row_of(rows, "old"), by=row_of(rows, "m"), now=LATER)

    second = curate(pipe, lower_priority)
    with pytest.raises(Conflict, match=f"has replaced another memory since; undo entry {second} first"):
        undo_entry(pipe.store, agent="ana", entry=added, now=LATER)
    put_back(pipe, second)
    put_back(pipe, added)
    assert pipe.found("old story") == ["an old story"]


def test_a_fact_that_was_set_anew_is_not_displaced(pipe: Pipeline) -> None:
    """Given a fact that was pruned, when its key was set since, then the undo is refused and the new one stands."""
    entry_id = curate(pipe, prune("home"))
    remember(pipe, "again", "home city: Faro", category="home", key="city", value="Faro")
    with pytest.raises(Conflict, match="what it removed has been replaced since"):
        undo_entry(pipe.store, agent="ana", entry=entry_id, now=LATER)
    with pipe.store.reading() as tx:
        fact = tx.for_agent("ana").memories.fact("home", "city")
    assert fact is not None
    assert fact.id == "again"


def test_nothing_comes_back_of_a_session_that_was_forgotten(pipe: Pipeline) -> None:
    """Given entries about a session and about memories that came from it, when it is forgotten, then they are gone.

    Also those of memories that were pruned before: their text lies in nothing but the log.
    """
    pruned = curate(pipe, prune("talk"))
    summarised = curate(pipe, summarise)
    kept = curate(pipe, promote)
    pipe.forget("s")
    for entry_id in (pruned, summarised):
        with pytest.raises(NotFound):
            undo_entry(pipe.store, agent="ana", entry=entry_id, now=LATER)
    assert pipe.count("curation_changes", "before LIKE '%this conversation%'") == 0
    pipe.say("a new conversation", session="another")
    pipe.settle()
    put_back(pipe, kept)


@pytest.mark.parametrize("everything_goes", [False, True], ids=["the session", "the workspace"])
def test_nothing_comes_back_into_the_account_of_what_was_forgotten(pipe: Pipeline, everything_goes: bool) -> None:
    """Given account memories of two sessions that were pruned, when one is forgotten, then its entry is gone, too."""
    account = pipe.stores.account_store()
    for session in ("s", "another"):
        with account.writing() as tx:
            memories, origin = tx.for_agent("ana").memories, {"workspace": WORKSPACE, "session": session}
            made = NewMemory(id=session, content="be brief", created_at=NOW, tier="account", metadata=origin)
            row = memories.add(made, now=NOW).row_id
            with entry(tx):
                memories.delete([row])
    if everything_goes:
        forget_workspace(RemovalServices(pipe.stores, pipe.inbox, pipe.working, pipe.recalls), WORKSPACE)
    else:
        pipe.forget("s")
    with account.reading() as tx:
        left = [memory for entry in tx.curation.page() for memory in entry.memories]
    assert left == ([] if everything_goes else ["another"])


def test_a_forgotten_memory_takes_every_entry_with_it(pipe: Pipeline) -> None:
    """Given a merge of two memories, when one is forgotten with what is logged of it, then the entry is gone."""
    curate(pipe, merge)
    with pipe.store.writing() as tx:
        assert tx.curation.forget_memories("ana", ["old"]) == 1
    assert pipe.count("curation_changes") == 0
    assert pipe.count("curation_items") == 0


def test_an_entry_names_what_it_changed_without_being_told(pipe: Pipeline) -> None:
    """Given entries that were told nothing, then they name the memories and the session that they changed."""
    merged, summarised = curate(pipe, merge), curate(pipe, summarise)
    with pipe.store.reading() as tx:
        assert tx.curation.get(merged).memories == ("old", "walnuts")
        assert tx.curation.get(summarised).session == "s"


class OtherModel(HashEmbedder):
    """A second model."""

    model = "other"  # type: ignore[misc]  # another one is the point


def go_over(pipe: Pipeline, **options: Any) -> None:
    """Change the model of the workspace."""
    old, new = (
        EmbedderRecord(provider="hash", model=model, dimension=HashEmbedder.dimension)
        for model in (HashEmbedder.model, OtherModel.model)
    )
    target = ReembedTarget(OtherModel(), new, configured=old)
    reembed(pipe.store, target, now=pipe.now, control=ReembedControl(**options))


def test_after_a_change_of_the_model_what_comes_back_is_embedded_anew(pipe: Pipeline) -> None:
    """Given a pruned memory, when the model is changed and the prune undone, then it waits for a vector of the new."""
    entry_id = curate(pipe, prune("walnuts"))
    go_over(pipe)
    put_back(pipe, entry_id)
    assert pipe.count("chunks", "embedded_at IS NULL AND memory_row IS NOT NULL") > 0
    assert "walnuts" in pipe.found("walnuts", limit=1)[0]
    with pipe.store.reading() as tx:
        active = tx.index.active("vector")
    pipe.embedder = OtherModel()
    pipe.embedder.model = active.model if active else ""  # type: ignore[misc]  # as the record of the index names it
    pipe.settle()
    assert pipe.count("chunks", "indexed_at IS NULL") == 0
    assert verify(pipe.store).wrong == []


@pytest.mark.parametrize("batches", [1, 3])
def test_during_a_change_of_the_model_what_comes_back_goes_over_with_the_rest(pipe: Pipeline, batches: int) -> None:
    """Given a change that was stopped, when a prune from before or within it is undone, then it ends with all of it."""
    before = curate(pipe, prune("walnuts"))
    looks = iter(range(batches + 1))
    go_over(pipe, batch_size=2, stop=lambda: next(looks) == batches)
    within = curate(pipe, prune("home", "note", "talk", "old"))
    put_back(pipe, within)
    put_back(pipe, before)
    go_over(pipe, batch_size=2)
    assert verify(pipe.store).wrong == []
    assert pipe.count("chunks", "indexed_at IS NULL") == 0


def test_a_block_that_changes_nothing_leaves_no_entry(pipe: Pipeline) -> None:
    """Given a block that changes nothing, or only what is not curated, then there is no entry."""
    curate(pipe, lambda _tx, _rows: None)
    curate(pipe, lambda tx, _: tx.connection.exec_driver_sql("UPDATE messages SET metadata = '{}'") and None)
    assert pipe.count("curation_log") == 0


def test_entries_do_not_lie_in_one_another(pipe: Pipeline) -> None:
    """Given an open entry, when another is begun, then that is refused: both would hold the changes of both."""
    with pytest.raises(ValueError, match="already open"), pipe.store.writing() as tx, entry(tx), entry(tx):
        pass
    assert pipe.count("curation_log") == 0


def test_killed_within_an_entry_nothing_half_is_left(pipe: Pipeline) -> None:
    """Given a job that fails within an entry, then neither its changes nor the entry are there."""
    before = everything(pipe.store)

    def fail(tx: Transaction, rows: AgentRepositories) -> None:
        merge(tx, rows)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        curate(pipe, fail)
    assert everything(pipe.store) == before
    assert pipe.count("curation_log") + pipe.count("curation_recording") + pipe.count("curation_changes") == 0


def test_a_transaction_that_outlives_a_failed_block_records_no_more(pipe: Pipeline) -> None:
    """Given a caller that handles the failure of a block, when it goes on, then its own changes are not logged."""
    with pipe.store.writing() as tx:
        rows = tx.for_agent("ana")
        with pytest.raises(NotFound), entry(tx):
            rows.memories.get("nothing")
        rows.memories.change(row_of(rows, "old"), now=LATER, importance=0.9)
    assert pipe.count("curation_changes") + pipe.count("curation_recording") == 0


def test_a_failed_undo_is_undone_whole(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an undo that is cut off after the rows were put back, then nothing of it is committed."""
    entry_id = curate(pipe, prune("walnuts", "home"))
    before = everything(pipe.store)
    monkeypatch.setattr("storage.lifecycle.undo.add_to_indexes", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt), pipe.store.writing() as tx:
        undo(tx.connection, tx.curation.get(entry_id), at=LATER)
    assert everything(pipe.store) == before


def test_another_agent_sees_and_undoes_nothing(pipe: Pipeline) -> None:
    """Given an entry of ana's, when bob reads or undoes it, then it does not exist."""
    entry_id = curate(pipe, promote)
    with pipe.store.reading() as tx:
        assert tx.for_agent("bob").curation.page() == []
    with pytest.raises(NotFound):
        undo_entry(pipe.store, agent="bob", entry=entry_id, now=LATER)


def test_pages_of_both_logs_hold_each_entry_once(pipe: Pipeline) -> None:
    """Given entries of a slow job among later ones, in both logs, when read in pages, then none is left out or double,
    and those of one log come in the order of writing."""
    stores = (pipe.store, pipe.stores.account_store())
    for store, moments in zip(stores, ((5, 9, 2, 7), (1, 8, 3)), strict=True):
        for moment in moments:
            with store.writing() as tx, entry(tx, at=NOW + moment):
                made = NewMemory(id=f"{store.name}-{moment}", content="something", created_at=NOW)
                tx.for_agent("ana").memories.add(made, now=NOW)
    logs = CurationLogs(AgentMemories(pipe.stores, WORKSPACE, "ana"))

    paged = [found.id for offset in range(8) for found in logs.list(EVERY_ENTRY, limit=1, offset=offset)]

    assert paged == [found.id for found in logs.list(EVERY_ENTRY, limit=50, offset=0)]
    assert sorted(paged) == sorted(["1", "2", "3", "4", "account-1", "account-2", "account-3"])
    assert [name for name in paged if not name.startswith("account-")] == ["4", "3", "2", "1"]
    assert [name for name in paged if name.startswith("account-")] == ["account-3", "account-2", "account-1"]


# Of tables that jobs change in part, the columns that they may change; the key is recorded with them.
_IN_PART = {
    "sessions": {"row_id", "summary_text", "summary_epoch", "summary_upper_sequence", "status", "ended_at"},
    "messages": {"row_id", "consolidated_at"},
}


def test_the_recorders_write_every_column_of_every_table(pipe: Pipeline) -> None:
    """Given entries that change every table recorded, then each image has each column: none can be added and missed."""
    for change in (ACTIONS["prune several"], prune("walnuts"), summarise, add("m")):
        curate(pipe, change)
    curate(
        pipe,
        lambda tx, _: (
            tx.connection.exec_driver_sql(
                "INSERT INTO memory_promotions (agent_id, memory_id, promoted_at, score, phase)"
                " VALUES ('ana', 'x', 1, 0.5, 'p')"
            )
            and None
        ),
    )
    with pipe.store.writing() as tx:
        recorded = recorded_tables(tx)
        images = tx.connection.exec_driver_sql("SELECT table_name, coalesce(after, before) FROM curation_changes")
        written: dict[str, set[str]] = {}
        for table, image in images:
            written.setdefault(table, set()).update(json.loads(image))
        columns = {table: set(found) for table, found in tables_of(tx.connection).items() if table in recorded}
    assert set(written) == recorded
    assert written == {**columns, **_IN_PART}
