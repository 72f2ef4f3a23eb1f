"""Every table of a store is in the catalogue, which says the truth about it, and its columns are exported or not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reverie.trust.exports import RECORD_TYPES, tag_of
from storage.catalogue import TABLES
from storage.rows import column_name, tables_of
from storage.stores import Stores

# What of tables without a part is in the records of others: `users` of a session, `promoted_at` and so on of a memory.
# Of `job_progress` it is how far extraction has come in a session, `extracted_up_to`.
IN_OTHERS = {"session_users", "memory_promotions", "job_progress"}
# Numbers of rows, and what the pipeline and the jobs of this installation keep of its work.
OF_THIS_STORE = {"row_id", "agent_id", "stored_at", "accepted_at", "chunked_at", "content_hash"}
LEFT_OUT = {
    "channels": set[str](),
    "sessions": {"audience", "is_group"},
    "messages": {"session_row", "embedding_error"},
    "files": {"session_row"},
    "memories": {"session_row", "tenant"},
    "scratchpad_lists": {"session_row"},
    "scratchpads": {"session_row"},
    "items": {"embedding_model"},
    "schedules": {"revision", "goal_vector", "goal_model"},
    "schedule_runs": {"sent_at", "not_before", "paused_at", "tries", "crashes", "token", "lease_until", "deadline"},
    "reminders": {"claimed_at", "claim_until", "token", "not_before", "paused_at"},
    "notifications": {"claim_until", "token", "not_before", "paused_at"},
    "dead_letters": {"id"},
    "recall_events": {"id", "chunk_id"},
    "contexts": {"session_row"},
}


@pytest.fixture
def columns(stores: Stores) -> Mapping[str, frozenset[str]]:
    """The columns of all tables: the account has those of a workspace, too."""
    with stores.account_store().reading() as tx:
        return tables_of(tx.connection)


@pytest.fixture
def stores(tmp_path: Path) -> Any:
    """An empty data folder."""
    stores = Stores(tmp_path / "data")
    yield stores
    stores.close()


def test_every_table_is_in_the_catalogue(columns: Mapping[str, frozenset[str]]) -> None:
    """Given the schema of both kinds of store, then each table has an entry, and no entry is of another one."""
    assert TABLES.keys() == columns.keys()


@pytest.mark.parametrize("name", TABLES)
def test_an_entry_names_columns_that_are_there(name: str, columns: Mapping[str, frozenset[str]]) -> None:
    """Given an entry, then its table has the columns that it names, and an agent where it says so."""
    table = TABLES[name]
    named = {*table.key, *table.refers, *table.users, *table.json, *table.names, *table.quotes}
    named |= {column for column in (table.vector, table.quoted_by) if column}
    named |= {"session_id"} if table.has_session_id else set()
    if table.counted is not None:
        named |= {*table.counted.columns, *table.counted.watched}
    if table.recorded is not None:
        named |= {*table.recorded.blobs, *filter(None, table.recorded.columns.split(", "))}

    assert named <= columns[name]
    assert table.of_agent == ("agent_id" in columns[name]), "a table without an agent_id has of_agent=False"
    assert list(TABLES).index(name) >= max((list(TABLES).index(other) for other in table.refers.values()), default=0)


@pytest.mark.parametrize("name", TABLES)
def test_the_texts_of_a_table_are_looked_for(name: str, columns: Mapping[str, frozenset[str]]) -> None:
    """Given a table that is exported, or whose rows an erasure removes, then its texts are there by right or quotes."""
    table = TABLES[name]
    if table.exported is not None or table.about or table.removed:
        assert table.words != bool(table.quotes), "it needs words=True, or quotes that name its columns with texts"


@pytest.mark.sqlite("reads the references and keys of the file")
@pytest.mark.parametrize("name", TABLES)
def test_an_entry_has_the_key_and_references_of_its_table(name: str, stores: Stores) -> None:
    """Given an entry, then its key and its references are those of the schema."""
    with stores.account_store().reading() as tx:
        references = tx.connection.exec_driver_sql(f"PRAGMA foreign_key_list({name})").mappings().all()
        columns = tx.connection.exec_driver_sql(f"PRAGMA table_info({name})").mappings().all()

    assert TABLES[name].refers == {row["from"]: row["table"] for row in references if row["from"] != "agent_id"}
    assert TABLES[name].key == tuple(row["name"] for row in sorted(columns, key=lambda row: row["pk"]) if row["pk"])


def test_every_column_is_exported_or_left_out_on_purpose(columns: Mapping[str, frozenset[str]]) -> None:
    """Given the tables with a part, then each of their columns is a field of an export, or in the list above."""
    fields = {tag_of(kind): {*map(column_name, kind.__struct_fields__)} for kind in RECORD_TYPES}
    exported = {name: table.exported.part for name, table in TABLES.items() if table.exported is not None}

    assert exported.keys() == LEFT_OUT.keys(), "LEFT_OUT above names the columns that no export has"
    assert sorted(exported.values()) == sorted(fields), "AnyRecord of reverie.trust.exports names all records"
    for name, part in exported.items():
        assert columns[name] <= fields[part] | OF_THIS_STORE | LEFT_OUT[name]
    assert not IN_OTHERS & exported.keys()
