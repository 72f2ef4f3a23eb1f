"""Every column of a store is in an export, or is left out for a reason that is given here."""

from __future__ import annotations

from pathlib import Path

from reverie.trust.export_types import RECORD_TYPES
from storage.rows import column_name, tables_of
from storage.stores import Stores

# Tables that are made again from others, belong to the work of this installation, or count.
NOT_EXPORTED = {
    "alembic_version",
    "chunk_tags",
    "chunks",
    "chunks_vec",
    "claims",
    "curation_changes",
    "curation_items",
    "curation_log",
    "curation_recording",
    "broker_content",
    "forgotten_sessions",
    "forward_changes",
    "forward_index",
    "indexes",
    "item_vectors",
    "job_leases",
    "job_progress",  # but for how far extraction has come in a session: `extracted_up_to`
    "message_chunks",
    "sqlite_sequence",
    "stored_amounts",
}
# Where a part has the rows of a table of another name, and what of other tables is part of its records.
TABLES = {"runs": "schedule_runs"}
IN_OTHERS = {
    "session_users": {"session_row", "agent_id", "user_id"},  # `users` of a session
    "memory_promotions": {"agent_id", "memory_id", "promoted_at", "score", "phase"},  # `promoted_at` and so on
}
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
}


def test_every_column_is_exported_or_left_out_on_purpose(tmp_path: Path) -> None:
    """Given the schema of a store, then each column is a field of an export, or in the lists above."""
    stores = Stores(tmp_path / "data")
    with stores.workspace("w").reading() as tx:
        columns = tables_of(tx.connection)
    stores.close()
    exported = dict(IN_OTHERS)
    for kind in RECORD_TYPES:
        part = str(kind.__struct_config__.tag)
        table = TABLES.get(part, part)
        fields = {column_name(field) for field in kind.__struct_fields__}
        exported[table] = (fields | OF_THIS_STORE | LEFT_OUT[table]) & columns[table]
    assert {name: found for name, found in columns.items() if name not in NOT_EXPORTED} == exported
