"""Recall: the words of each chunk by agent, changes to them, vectors of two models at a time, recall events."""

from alembic import op
from sqlalchemy import text

from storage.recall.words import hashes_of

revision = "0002"
down_revision = "0001"

_BATCH = 1_000

_STATEMENTS = (
    # The question asked just before, if the chunk begins a message: the chunk answers it.
    "ALTER TABLE chunks ADD COLUMN lead TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE chunks ADD COLUMN access_count INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE chunks ADD COLUMN accessed_at INTEGER",
    # While the model is changed a chunk has two vectors: the one that is searched, and the one that will be.
    """
    CREATE TABLE chunks_vec_of_models (
        chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
        model TEXT NOT NULL,
        dim INTEGER NOT NULL,
        embedding BLOB NOT NULL CHECK (length(embedding) = 4 * dim),
        PRIMARY KEY (chunk_id, model)
    )
    """,
    "INSERT INTO chunks_vec_of_models SELECT chunk_id, model, dim, embedding FROM chunks_vec",
    "DROP TABLE chunks_vec",
    "ALTER TABLE chunks_vec_of_models RENAME TO chunks_vec",
    # How to create the embedder of an index: JSON of provider, model and dimension; '' if the settings describe it.
    "ALTER TABLE indexes ADD COLUMN embedder TEXT NOT NULL DEFAULT ''",
    # What an agent's index in memory is made from, in the order in which it is read. `thread` is what has neighbours:
    # a session's row, or a file's with a minus. `words` are the 32-bit hashes of the words, little-endian.
    """
    CREATE TABLE forward_index (
        agent_id TEXT NOT NULL,
        chunk_id INTEGER NOT NULL,
        thread INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        role TEXT NOT NULL,
        speaker TEXT,
        words BLOB NOT NULL,
        PRIMARY KEY (agent_id, chunk_id)
    ) WITHOUT ROWID
    """,
    # Changes of chunks, so that an index in memory reads only what has changed. Pruned by upkeep.
    """
    CREATE TABLE forward_changes (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        agent_id TEXT NOT NULL,
        chunk_id INTEGER NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('added', 'vector', 'gone'))
    )
    """,
    "CREATE INDEX forward_changes_by_agent ON forward_changes (agent_id, seq)",
    "CREATE TRIGGER forward_index_added AFTER INSERT ON forward_index BEGIN"
    " INSERT INTO forward_changes (agent_id, chunk_id, kind) VALUES (new.agent_id, new.chunk_id, 'added'); END",
    "CREATE TRIGGER chunks_leave_forward_index AFTER DELETE ON chunks BEGIN"
    " DELETE FROM forward_index WHERE agent_id = old.agent_id AND chunk_id = old.id;"
    " INSERT INTO forward_changes (agent_id, chunk_id, kind) VALUES (old.agent_id, old.id, 'gone'); END",
    "CREATE TRIGGER chunks_vec_added AFTER INSERT ON chunks_vec"
    " WHEN new.model = (SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active') BEGIN"
    " INSERT INTO forward_changes (agent_id, chunk_id, kind)"
    " SELECT agent_id, id, 'vector' FROM chunks WHERE id = new.chunk_id; END",
    "CREATE TRIGGER chunks_vec_changed AFTER UPDATE ON chunks_vec"
    " WHEN new.model = (SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active') BEGIN"
    " INSERT INTO forward_changes (agent_id, chunk_id, kind)"
    " SELECT agent_id, id, 'vector' FROM chunks WHERE id = new.chunk_id; END",
    # One result of one recall: what dreaming learns from. A batch that is delivered twice is written once.
    """
    CREATE TABLE recall_events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        agent_id TEXT NOT NULL,
        recall TEXT NOT NULL,
        chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
        query TEXT NOT NULL,
        score REAL NOT NULL,
        at INTEGER NOT NULL,
        UNIQUE (recall, chunk_id)
    )
    """,
    "CREATE INDEX recall_events_by_chunk ON recall_events (chunk_id)",
    "CREATE INDEX recall_events_by_time ON recall_events (agent_id, at)",
)

_CHUNKS = """
    SELECT c.id, c.agent_id, coalesce(c.session_row, 0), c.file_row, c.sequence_start, c.created_at, m.role, m.name,
        c.text
    FROM chunks AS c
    LEFT JOIN messages AS m ON m.row_id = (SELECT min(message_row) FROM message_chunks WHERE chunk_id = c.id)
    WHERE c.id > :after ORDER BY c.id LIMIT :limit
"""


def upgrade() -> None:
    """Create the tables, and count the words of the existing chunks."""
    for statement in _STATEMENTS:
        op.execute(statement)
    connection = op.get_bind()
    after = 0
    while True:
        chunks = connection.execute(text(_CHUNKS), {"after": after, "limit": _BATCH}).all()
        if not chunks:
            return
        connection.execute(
            text(
                "INSERT INTO forward_index (agent_id, chunk_id, thread, sequence, created_at, role, speaker, words)"
                " VALUES (:agent, :id, :thread, :sequence, :created_at, :role, :speaker, :words)"
            ),
            [
                {
                    "agent": row[1],
                    "id": row[0],
                    "thread": -row[3] if row[3] is not None else row[2],
                    "sequence": row[4],
                    "created_at": row[5],
                    "role": row[6] or "file",
                    "speaker": row[7],
                    "words": hashes_of(row[8]).tobytes(),
                }
                for row in chunks
            ],
        )
        after = int(chunks[-1][0])
