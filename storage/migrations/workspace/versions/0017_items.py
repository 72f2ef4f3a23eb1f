"""Items: JSON values under a namespace and a key, with the vectors by which they are found."""

from alembic import op

revision = "0017"
down_revision = "0016"

_BYTES = "octet_length({row}.namespace) + octet_length({row}.key) + octet_length({row}.value)"
_COUNT = (
    "INSERT INTO stored_amounts (tenant, bytes) VALUES ('', {sign}({bytes}))"
    " ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;"
)
_ADDED = _COUNT.format(sign="+", bytes=_BYTES.format(row="new"))
_REMOVED = _COUNT.format(sign="-", bytes=_BYTES.format(row="old"))

_STATEMENTS = (
    # `namespace` is a JSON array: an item is below another namespace if its text begins with that one's, so that a
    # range of the index holds all items of a prefix. `index_fields` are the paths of the texts that are embedded, NULL
    # for none; `embedding_model` is whose vectors the item has, NULL until it is embedded.
    """
    CREATE TABLE items (
        row_id INTEGER PRIMARY KEY AUTOINCREMENT,
        agent_id TEXT NOT NULL,
        user_id TEXT,
        namespace TEXT NOT NULL CHECK (json_type(namespace) = 'array'),
        key TEXT NOT NULL CHECK (key <> ''),
        value TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        stored_at INTEGER NOT NULL,
        ttl_seconds REAL,
        expires_at INTEGER,
        index_fields TEXT,
        embedding_model TEXT
    )
    """,
    "CREATE UNIQUE INDEX items_by_place ON items (agent_id, coalesce(user_id, ''), namespace, key)",
    "CREATE INDEX items_expiring ON items (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX items_to_embed ON items (row_id) WHERE embedding_model IS NULL AND index_fields IS NOT NULL",
    """
    CREATE TABLE item_vectors (
        row_id INTEGER PRIMARY KEY,
        item_row INTEGER NOT NULL REFERENCES items (row_id) ON DELETE CASCADE,
        embedding BLOB NOT NULL
    )
    """,
    "CREATE INDEX item_vectors_by_item ON item_vectors (item_row)",
    f"CREATE TRIGGER items_insert_counted AFTER INSERT ON items BEGIN {_ADDED} END",
    f"CREATE TRIGGER items_delete_counted AFTER DELETE ON items BEGIN {_REMOVED} END",
    f"CREATE TRIGGER items_update_counted AFTER UPDATE OF namespace, key, value ON items BEGIN {_REMOVED} {_ADDED} END",
)


def upgrade() -> None:
    """Create the tables and the triggers that count them."""
    for statement in _STATEMENTS:
        op.execute(statement)
